"""Convert the arguments of attention kernels (tensors, mask, scale) to a `Problem`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, overrides
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]  # no public equivalent

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.errors import SizeError
from multihead.layer import Groups, Problem, attend
from multihead.layer import mask as masks
from multihead.layer._coordinates import Coordinates
from multihead.layer._kv_store import sized
from multihead.layer._mask_algebra import Mask
from multihead.layer._problem import ScoreConfig
from multihead.model.active_interceptions import isolated

HIDES = -1e4
"""A mask value this low hides the key: exp(-1e4) is 0 in every dtype."""


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
    """softmax(scores) v, one output per head; adapters call this kernel in place of their module's arithmetic.

    A bool mask is True where a query may attend; a float mask is added to the scores. If k and v have fewer heads
    than q, groups of query heads share them. `causal` hides later keys, with the last query at the last key.
    """
    rule = mask if isinstance(mask, Mask) else mask_of(mask)
    rule = rule & masks.causal() if causal else rule
    return attend(problem_of(q, k, v, mask=rule, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout))


def attend_as(problem: Problem, compute: Callable[[], HeadOutputs]) -> HeadOutputs:
    """compute(), which solves the kernel's problem; an interception sees the problem, as with `attend`."""
    if overrides.has_torch_function((problem.q,)):
        return overrides.handle_torch_function(attend_as, (problem.q,), problem, compute)
    return compute()


@contextmanager
def without_interception() -> Generator[None]:
    """A context in which nothing intercepts attention, except modes entered inside it."""
    count = torch._C._len_torch_function_stack()  # pyright: ignore[reportPrivateUsage]  # no public equivalent
    modes = [overrides._pop_mode() for _ in range(count)]  # pyright: ignore[reportPrivateUsage]
    try:
        with isolated():
            yield
    finally:
        for mode in reversed(modes):
            overrides._push_mode(mode)  # pyright: ignore[reportPrivateUsage]


@contextmanager
def unobserved() -> Generator[None]:
    """A context for a comparison: no gradient is recorded, and no mode sees the operations."""
    with torch.no_grad(), without_interception(), _disable_current_modes():
        yield


def problem_of(
    q: Queries,
    k: Keys,
    v: Float[Tensor, "batch value_head key value_dim"],
    *,
    mask: Mask | Tensor | None = None,
    top_left: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, " head"] | None = None,
    dropout: float = 0.0,
    cross: bool = False,
) -> Problem:
    """The problem computed by one call of an attention kernel.

    `top_left` is the causal flag of torch's kernel: query i sees keys 0..i, even if there are more keys. Keys that
    are not tokens, such as summaries behind the tokens, have no positions: the problem is `cross` then.
    """
    _, heads, queries, _ = q.shape
    keys = k.shape[2]
    if k.shape[1] != v.shape[1] and 0 not in (k.shape[1], v.shape[1]):  # one of both may be shared by more heads
        k, v = (Groups.even(heads, x.shape[1]).expand(x) for x in (k, v))
    if k.shape[1] == 0 or heads % k.shape[1]:
        raise SizeError(
            f"the number of query heads must be a multiple of the key heads, got {heads} and {k.shape[1]}",
            hint="q is (batch, head, query, dim), k and v are (batch, kv_head, key, dim)",
        )
    rule = mask if isinstance(mask, Mask) else mask_of(mask)
    coordinates, positions = sized(q, keys), None
    if rule.parts() and not cross and queries < keys:
        positions, known = _query_positions(rule, coordinates)
        cross = not known
    if top_left and queries != keys:
        positions = torch.arange(queries, device=q.device).unsqueeze(0)
    if positions is not None:
        coordinates = replace(coordinates, query_positions=positions)
    rule = rule & masks.causal() if top_left else rule
    groups = Groups.even(heads, k.shape[1])
    factor = q.shape[3] ** -0.5 if scale is None else float(scale)
    return Problem(q, k, v, groups, rule, coordinates, ScoreConfig(factor, softcap, sinks, dropout), cross=cross)


def mask_of(mask: Tensor | None) -> Mask:
    """A kernel's mask (True where a query may attend, or values to add) as a `Mask`.

    Values of -1e4 and below leave no weight, so they are read as hidden. Otherwise padding would count as visible,
    and a row without visible keys would appear to attend to all of them.
    """
    if mask is None:
        return masks.everything()
    mask = mask.detach() if not mask.requires_grad else mask
    if mask.dtype == torch.bool:
        return _structured_mask(mask)
    hidden = mask.detach() <= HIDES
    added = mask.masked_fill(hidden, 0.0)
    rule = _structured_mask(~hidden)
    return rule if not mask.requires_grad and not bool(added.any()) else rule & masks.additive(added)


def _structured_mask(allowed: Bool[Tensor, "*axes query key"]) -> Mask:
    """A kernel's mask in structured form if it is padding, causal, or both, so hidden blocks can be skipped."""
    if bool(allowed.all()):
        return masks.everything()
    if allowed.ndim != 4 or allowed.shape[1] != 1:
        return masks.tensor(allowed)
    queries, keys = allowed.shape[2:]
    real = allowed[:, 0, -1]  # the last query sees every real key, even if causal
    if bool((allowed[:, 0] == real.unsqueeze(1)).all()):
        return masks.padding(real)
    if queries == keys and all(
        torch.equal(row, real_keys.expand_as(row).tril())
        for row, real_keys in zip(allowed[:, 0], real, strict=True)
    ):
        return masks.causal() if bool(real.all()) else masks.causal() & masks.padding(real)
    return masks.tensor(allowed)


def _query_positions(rule: Mask, coordinates: Coordinates) -> tuple[Int[Tensor, "#batch query"] | None, bool]:
    """Query positions of a kernel call on a static cache with empty slots: the last key each query may see.

    None if the queries are aligned with the last keys, as in a growing cache. Also whether the positions are known:
    from one query to the next, a causal mask shows one more key.
    """
    allowed = rule.allowed(coordinates.grid())
    if allowed is None:
        return None, True
    visible = allowed.any(1).expand(-1, coordinates.queries, coordinates.keys)  # batch, query, key
    sees = visible.any(-1)
    last = coordinates.keys - 1 - visible.flip(-1).int().argmax(-1)
    known = not bool((last.diff(dim=-1)[sees[:, 1:] & sees[:, :-1]] > 1).any())
    positions = torch.where(sees, last, torch.zeros_like(last))
    aligned = torch.arange(coordinates.offset, coordinates.keys, device=coordinates.device)
    return None if bool((positions == aligned).all()) else positions, known
