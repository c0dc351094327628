"""The steps around the scores that attention layers share: where tokens stand, caches, gates, answers."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Keys, Values
from multihead.errors import MultiheadError
from multihead.layer import mask as masks
from multihead.layer.apart import apart
from multihead.layer.ask import Ask, Attended, Cells, lse_of, weights_of
from multihead.layer.cache import Cache, Cross, Ring
from multihead.layer.frame import Frame
from multihead.layer.mask_algebra import Mask
from multihead.layer.mask_kinds import Padding, ragged_lengths, within_cache
from multihead.layer.problem import Problem, own_precision


def places(
    positions: Tensor | None, cache: Cache | None, queries: int, keys: int, *, same: bool
) -> tuple[Tensor | int, Tensor | int]:
    """Positions of the new queries and of the new keys; an int is the first of consecutive ones."""
    block = apart()
    if block is not None:
        if cache is not None or not same:
            raise MultiheadError(
                f"{'a cache' if same else 'keys of another sequence'} in a block of context_parallel, "
                f"which has {block.tokens} tokens over several ranks",
                hint="only self-attention of all tokens at once can be split over ranks",
            )
        at = block.places(queries)
        return (at, at) if positions is None else (positions, positions)
    if cache is not None and not isinstance(cache, Cross):
        start = cache.seen
        here = cache.next_positions(queries) if start is None else start
    else:
        here = 0 if same else keys - queries
    if positions is not None:
        return positions, positions if same else 0
    return here, here if same else 0


def remembered(
    k: Float[Tensor, "batch kv_head new key_dim"],
    v: Float[Tensor, "batch kv_head new value_dim"],
    mask: Mask,
    cache: Cache | None,
    *,
    queries: int,
    heads: int,
) -> tuple[Keys, Values, Mask, Frame]:
    """Put the new keys into the cache; what to attend to, under which mask, and where it all stands."""
    batch, block = k.shape[0], apart()
    if block is not None:
        return k, v, mask, Frame(batch, heads, block.tokens, block.tokens, k.device, apart=block)
    if isinstance(cache, Cross):
        cache.keep(k, v)
        if cache.seen is None:  # rows of different lengths were kept
            mask = mask & Padding(torch.arange(k.shape[2], device=k.device) < cache.lengths[:, None])
    if cache is None or isinstance(cache, Cross):
        return k, v, mask, Frame(batch, heads, queries, k.shape[2], k.device)
    lengths = ragged_lengths(mask)
    fresh = cache.seen == 0
    _check_first(mask, cache, Frame(batch, heads, queries, queries, k.device))
    view = cache.append(k, v, None if lengths is None else lengths.tensor.expand(batch))
    if isinstance(cache, Ring):
        mask = mask & masks.window(cache.window, first=cache.first)
    if fresh:  # nothing came before: the new tokens are all there is, in the order they have here
        return k, v, mask, Frame(batch, heads, queries, queries, k.device)
    frame = Frame(batch, heads, queries, view.k.shape[2], k.device, view.query_positions, view.key_positions)
    return view.k, view.v, within_cache(mask, view.filled), frame


def _check_first(mask: Mask, cache: Cache, new: Frame) -> None:
    """Raise where the mask will not fit, before the cache has taken the tokens: a refused call leaves it alone."""
    if torch.compiler.is_compiling():
        return None
    if cache.seen == 0:
        return mask.check(new)
    lengths = ragged_lengths(mask)
    each = None
    if lengths is not None and lengths.known:
        each = [lengths.row(b) for b in range(new.batch)] if len(lengths.values) in (1, new.batch) else None
    keys = cache.keys_after(new.queries, each)
    places = cache.next_positions(new.queries)
    places = places if places.ndim == 2 else places[None]
    return within_cache(mask, None).check(replace(new, keys=keys, query_places=places))


def split(x: Float[Tensor, "batch token width"], dim: int) -> Float[Tensor, "batch head token dim"]:
    return x.view(*x.shape[:2], x.shape[2] // dim, dim).transpose(1, 2)


def gate(gate: Tensor) -> Tensor:
    """(head,), (batch, head) or (batch, head, query), as something that multiplies head outputs."""
    return gate.view(1, -1, 1, 1) if gate.ndim == 1 else gate.reshape(*gate.shape, *(1,) * (4 - gate.ndim))


def answer(asked: Ask, problem: Problem, out: Tensor, heads: HeadOutputs) -> Attended:
    """The output with what was asked for beside it."""
    if problem.frame.apart is not None and (asked.weights or asked.lse):
        raise MultiheadError(
            f"{'weights' if asked.weights else 'lse'} of {problem.frame.keys} keys were asked for, "
            "which are on several ranks",
            hint="ask outside of context_parallel, or for 'heads'",
        )
    cells = Cells() if asked.weights is True else asked.weights
    with own_precision(problem.q.device):
        weights = weights_of(problem, cells) if cells else None
        lse = lse_of(problem) if asked.lse else None
    return Attended(out, weights, lse, heads if asked.heads else None)


def lift(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.unsqueeze(0)


def unbatched(result: Tensor | Attended) -> Tensor | Attended:
    if isinstance(result, Tensor):
        return result.squeeze(0)
    parts = (result.out, result.weights, result.lse, result.heads)
    return Attended(*(None if p is None else p.squeeze(0) for p in parts))  # pyright: ignore[reportArgumentType]
