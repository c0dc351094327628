"""What attention functions are given (tensors, a mask in their own convention, a scale), as one `Problem`."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.errors import SizeError
from multihead.layer import mask as masks
from multihead.layer.frame import Frame
from multihead.layer.mask_algebra import Mask
from multihead.layer.problem import Groups, Problem, Scores
from multihead.layer.routes import attend

HIDES = -1e4
"""A number this low, added to a score, is meant to hide: exp(-1e4) is 0 in every dtype."""


def attend_heads(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    mask: Mask | Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, " head"] | None = None,
    dropout: float = 0.0,
) -> HeadOutputs:
    """softmax(scores) v, one output per head; what an adapter calls in place of its module's own arithmetic.

    A bool mask is True where a query may attend, a float mask is added. Heads of k and v are shared in groups
    where there are fewer of them. `causal` hides later keys; the last query stands at the last key.
    """
    rule = mask if isinstance(mask, Mask) else mask_of(mask)
    rule = rule & masks.causal() if causal else rule
    return attend(problem_of(q, k, v, mask=rule, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout))


def without_interception() -> AbstractContextManager[None]:
    """A block whose attention no TorchFunctionMode sees."""
    return torch._C.DisableTorchFunction()  # pyright: ignore[reportPrivateUsage]  # it has no public name


def problem_of(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    mask: Mask | Tensor | None = None,
    top_left: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, " head"] | None = None,
    dropout: float = 0.0,
    cross: bool = False,
) -> Problem:
    """The problem behind one call of an attention kernel.

    `top_left` is the causal flag of torch's kernel: query i sees keys 0..i, also where there are more keys.
    """
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    if k.shape[1] == 0 or heads % k.shape[1]:
        raise SizeError(
            f"{heads} query heads cannot share {k.shape[1]} key heads evenly",
            hint="q is (batch, head, query, dim), k and v are (batch, kv_head, key, dim)",
        )
    rule = mask if isinstance(mask, Mask) else mask_of(mask)
    places: Int[Tensor, "#batch query"] | None = None
    if rule.parts() and not cross and queries < keys:
        places = _places_by_mask(rule, Frame(batch, heads, queries, keys, q.device))
    if top_left and queries != keys:
        places = torch.arange(queries, device=q.device).unsqueeze(0)
    frame = Frame(batch, heads, queries, keys, q.device, query_places=places)
    rule = rule & masks.causal() if top_left else rule
    groups = Groups.even(heads, k.shape[1])
    own = q.shape[3] ** -0.5 if scale is None else float(scale)
    return Problem(q, k, v, groups, rule, frame, Scores(own, softcap, sinks, dropout))


def mask_of(mask: Tensor | None) -> Mask:
    """A kernel's mask, True = may attend or numbers to add, as one of ours; what is meant to hide does hide.

    Numbers of -1e4 and below leave no weight, so they are read as hidden: else the keys of the padding would
    count as seen, and a row that sees nothing would seem to look at everything.
    """
    if mask is None:
        return masks.everything()
    mask = mask.detach() if not mask.requires_grad else mask
    if mask.dtype == torch.bool:
        return _recognised(mask)
    hidden = mask.detach() <= HIDES
    kept = mask.masked_fill(hidden, 0.0)
    rule = _recognised(~hidden)
    return rule if not mask.requires_grad and not bool(kept.any()) else rule & masks.additive(kept)


def _recognised(allowed: Bool[Tensor, "*axes query key"]) -> Mask:
    """The same mask with its structure, where it is padding, or causal with padding: work can then be left out."""
    if bool(allowed.all()):
        return masks.everything()
    if allowed.ndim != 4 or allowed.shape[1] != 1:
        return masks.tensor(allowed)
    queries, keys = allowed.shape[2:]
    real = allowed[:, 0, -1]  # the last query sees every real key, also in a causal mask
    if bool((allowed[:, 0] == real.unsqueeze(1)).all()):
        return masks.padding(real)
    if queries == keys and all(
        torch.equal(row, one.expand_as(row).tril()) for row, one in zip(allowed[:, 0], real, strict=True)
    ):
        return masks.causal() if bool(real.all()) else masks.causal() & masks.padding(real)
    return masks.tensor(allowed)


def _places_by_mask(rule: Mask, frame: Frame) -> Int[Tensor, "#batch query"] | None:
    """Where the queries stand when the cache has room behind them: at the last key that they may see.

    None where the last query does see the last key, as in a cache that grows.
    """
    allowed = rule.allowed(frame.grid())
    if allowed is None:
        return None
    seen = allowed.any(1).expand(-1, frame.queries, frame.keys)  # batch, query, key
    last = frame.keys - 1 - seen.flip(-1).int().argmax(-1)
    places = torch.where(seen.any(-1), last, torch.zeros_like(last))
    aligned = torch.arange(frame.offset, frame.keys, device=frame.device)
    return None if bool((places == aligned).all()) else places
