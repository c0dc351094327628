"""Which route would run, why not the faster ones, and what it will cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from multihead.layer.cache import Cache, Cross, Ring
from multihead.layer.checks import check_inputs
from multihead.layer.frame import Frame
from multihead.layer.mask import window
from multihead.layer.mask_algebra import Mask
from multihead.layer.mask_kinds import within_cache
from multihead.layer.position import PositionBias
from multihead.layer.problem import PositionScores, Problem, Scores
from multihead.layer.ragged import pack
from multihead.layer.routes import ROUTES, Choice, choose
from multihead.layer.tiles import Inside

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention


@dataclass(frozen=True)
class Explanation:
    """Route, reasons and cost of one call; print it."""

    route: str
    why: str
    refused: dict[str, str]
    mask: str
    sizes: str
    tiles: int
    projection_flops: int
    attention_flops: int
    saved: float  # share of the scores that is never computed
    bytes: int  # weights, q, k, v and output, and what is written out beside them

    @property
    def flops(self) -> int:
        return self.projection_flops + self.attention_flops

    def __str__(self) -> str:
        calls = f"{self.tiles} tile{'s' if self.tiles != 1 else ''}"
        lines = [
            f"route      {self.route}: {self.why}",
            f"sizes      {self.sizes}",
            f"mask       {self.mask}; {calls}, {self.saved:.0%} of the scores left out",
            f"FLOPs      {_si(self.flops)} (projections {_si(self.projection_flops)}, "
            f"attention {_si(self.attention_flops)})",
            f"memory     {_si(self.bytes)}B moved at least",
        ]
        lines += [f"not {name:<11}{why}" for name, why in self.refused.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from multihead._base.html import plain

        return plain(str(self))


def explain(
    attn: MultiHeadAttention,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    *,
    mask: Mask,
    cache: Cache | None,
) -> Explanation:
    """Ask the router with tensors that have sizes but no numbers; nothing is computed or cached."""
    query = query if query.ndim == 3 else query[None]
    key, value = (x if x is None or x.ndim == 3 else x[None] for x in (key, value))
    known = isinstance(cache, Cross) and cache.filled
    check_inputs(attn, query, key, value, None, known=known)
    batch, queries = query.shape[:2]
    new_keys = queries if key is None else key.shape[1]
    frame = _frame(attn, cache, batch, queries, new_keys, query.device)
    packed = pack(mask, query, None, None) if key is None and cache is None else None
    if cache is not None and not isinstance(cache, Cross) and cache.seen != 0:
        mask = within_cache(mask, None)
    if isinstance(cache, Ring):
        mask = mask & window(cache.window, first=cache.first)
    if isinstance(attn.position, PositionBias):
        mask = mask & PositionScores(attn.position, None, query.dtype)
    mask.check(frame)
    grad = torch.is_grad_enabled() and (query.requires_grad or any(p.requires_grad for p in attn.parameters()))
    rows, stored = (batch, queries) if packed is None else (1, packed.bounds[-1])
    problem = Problem(
        _meta(grad, rows, attn.num_heads, stored, attn.head_dim, like=query),
        _meta(grad, rows, attn.num_kv_heads, stored if packed else frame.keys, attn.head_dim, like=query),
        _meta(grad, rows, attn.num_kv_heads, stored if packed else frame.keys, attn.value_dim, like=query),
        attn.groups,
        mask,
        frame,
        Scores(attn.scale, attn.softcap, attn.sink_logits, attn.dropout if attn.training else 0.0),
        None if packed is None else packed.bounds,
    )
    new = 0 if known else (stored if key is None else new_keys) * rows
    return _described(attn, problem, choose(problem), rows * stored, new, query.element_size())


def _described(
    attn: MultiHeadAttention, problem: Problem, choice: Choice, asked: int, new: int, itemsize: int
) -> Explanation:
    frame, heads = problem.frame, attn.num_heads
    dims = attn.head_dim + attn.value_dim
    cells = sum(t.cells for t in choice.tiles)
    everything = max(1, frame.batch * frame.queries * frame.keys)
    written = sum(t.cells for t in choice.tiles if t.inside is Inside.MASKED)
    written *= heads * itemsize if problem.mask.per_head else 1
    if choice.route == "reference":
        written += cells * heads * max(itemsize, 4)
    width_in = attn.d_model * heads * attn.head_dim
    width_kv = attn.num_kv_heads * (attn.d_key * attn.head_dim + attn.d_value * attn.value_dim)
    projections = 2 * (asked * (width_in + heads * attn.value_dim * attn.d_out) + new * width_kv)
    moved = problem.q.numel() + problem.k.numel() + problem.v.numel() + asked * (attn.d_model + attn.d_out)
    weights = sum(p.numel() * p.element_size() for p in attn.parameters())
    return Explanation(
        route=choice.route,
        why=choice.why,
        refused={n: choice.refused[n] for n in ROUTES if n in choice.refused},
        mask=str(problem.mask),
        sizes=f"batch {frame.batch}, {frame.queries} queries, {frame.keys} keys, {heads} heads on "
        f"{attn.num_kv_heads} kv heads, {attn.head_dim} + {attn.value_dim} dims"
        + (f", packed to {problem.packing[-1]} tokens" if problem.packing else ""),
        tiles=len(choice.tiles),
        projection_flops=projections,
        attention_flops=2 * cells * heads * dims,
        saved=1 - cells / everything,
        bytes=weights + moved * itemsize + written,
    )


def _frame(
    attn: MultiHeadAttention,
    cache: Cache | None,
    batch: int,
    queries: int,
    new_keys: int,
    device: torch.device,
) -> Frame:
    heads = attn.num_heads
    if isinstance(cache, Cross):
        keys = new_keys if cache.known is None else cache.known[0].shape[2]
        return Frame(batch, heads, queries, keys, device)
    if cache is None or cache.seen == 0:
        return Frame(batch, heads, queries, new_keys, device)
    keys = cache.keys_after(queries)
    if cache.seen is not None and keys == cache.seen + queries:
        return Frame(batch, heads, queries, keys, device)
    places = cache.next_positions(queries)
    return Frame(batch, heads, queries, keys, device, places if places.ndim == 2 else places[None])


def _meta(grad: bool, *shape: int, like: Tensor) -> Tensor:
    return torch.empty(shape, device="meta", dtype=like.dtype, requires_grad=grad)


def _si(number: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} P"
