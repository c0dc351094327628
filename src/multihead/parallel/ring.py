"""Ring attention: exact attention over keys passed around the ranks, forward and backward (Liu et al. 2023).

Each row's softmax is kept as three sums, which take keys in any order (Milakov and Gimelshein 2018). For the scores
s of the current keys:

    m' = max(m, max s),   l' = l·e^(m−m') + Σ e^(s−m'),   o' = o·e^(m−m') + e^(s−m') v

The output is o / l, and lse = m + log l. The backward pass recomputes P = e^(s−lse) tile by tile, so no n×n matrix
and no tensor of another rank is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.layer import Problem
from multihead.layer._blocked import (
    add_to,
    capped_scores,
    check_first_derivative,
    exact_dtype,
    part_of,
    product,
    softcap_slope,
)
from multihead.layer._kernels import lower_triangle
from multihead.layer._plan import BLOCK
from multihead.layer._tiles import Tile, TileMask, tile

Chunk = tuple[int, int, int]
"""(start, stop, offset among the tokens of its rank)"""


@runtime_checkable
class TokenRing(Protocol):
    """The token layout over the ranks, and the communication between them."""

    def chunks(self, rank: int | None = None) -> list[Chunk]: ...

    def around(self, k: Tensor, v: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]: ...

    def home(self, parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]: ...


def ring_attend(problem: Problem, ring: TokenRing) -> HeadOutputs:
    """softmax(scores) v; q, k and v are this rank's tokens, and the coordinates are those of all tokens."""
    empty = problem.q.new_empty(0, 0, 0, 0)  # backward gets q, k and v as saved tensors
    task = _RingTask(replace(problem, q=empty, k=empty, v=empty), ring)
    sinks = problem.scores.sinks
    out = _RingAttention.apply(problem.q, problem.k, problem.v, sinks, task, *problem.mask.bias_params())
    return cast(Tensor, out)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, task: _RingTask, *learned: Tensor
    ) -> Tensor:
        """The output of ring attention: keys of every rank pass by, softmax sums add up."""
        sums = _SoftmaxSums(q, v, sinks)
        for owner, owner_k, owner_v in task.ring.around(k, v):
            keys = _FiniteKeys(owner_k, owner_v)
            for t, rows, columns in task.tiles(owner):
                task.accumulate(sums, t, q, keys, rows, columns)
        out, lse = sums.finish()
        ctx.save_for_backward(q, k, v, sinks, out, lse, *learned)
        ctx.task = task
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of ring attention, with keys passed around once more."""
        check_first_derivative("ring", hint='call the layer with route="reference", outside context_parallel')
        (grad,) = grad_outputs
        q, k, v, sinks, out, lse, *learned = ctx.saved_tensors
        task: _RingTask = ctx.task
        no_gradient = (lse == torch.inf).unsqueeze(-1)  # rows that see no key, or NaN
        grad = grad.to(exact_dtype(q)).masked_fill(no_gradient, 0.0)
        delta = (grad * out.masked_fill(no_gradient, 0.0)).sum(-1)
        rows = _RowGradients(q, grad, lse, delta, torch.zeros_like(q, dtype=grad.dtype), learned)
        dk, dv = task.ring.home(task.key_gradients(rows, *block) for block in task.ring.around(k, v))
        d_sinks = None
        if sinks is not None:
            sink_weight = (sinks.to(lse.dtype)[:, None] - lse).exp()
            d_sinks = -(sink_weight * delta).sum((0, 2)).to(sinks.dtype)
        return rows.dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), d_sinks, None, *rows.d_learned


class _SoftmaxSums:
    """m, l and o of every row of every head; a sink gives their initial values."""

    def __init__(self, q: Queries, v: Values, sinks: Tensor | None) -> None:
        like = q.new_empty(0, dtype=exact_dtype(q))
        self.dtype = q.dtype
        self.top = like.new_full(q.shape[:3], -torch.inf)
        self.total = like.new_zeros(q.shape[:3])
        # (tokens, heads) in memory, so concatenating the heads for W_O is a view.
        self.out = like.new_zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        self.nonfinite = torch.zeros(q.shape[:3], dtype=torch.bool, device=q.device)
        if sinks is not None:
            self.top = sinks.detach().to(self.total.dtype)[:, None].expand(q.shape[:3]).clone()
            self.total += 1.0

    def add(
        self,
        row: int,
        heads: slice,
        rows: slice,
        s: Float[Tensor, "head query key"],
        v: Float[Tensor, "head key d"],
    ) -> None:
        """Add scores `s` and values `v` of a ring step to the softmax sums of some rows; overwrites `s`."""
        old_top, total = self.top[row, heads, rows], self.total[row, heads, rows]
        top = torch.maximum(old_top, s.amax(-1))
        finite_top = top.masked_fill(top == -torch.inf, 0.0)  # rows that have seen no key yet
        rescale = (old_top - finite_top).exp_()
        s.sub_(finite_top.unsqueeze(-1)).exp_()
        self.total[row, heads, rows] = total * rescale + s.sum(-1)
        self.out[row, heads, rows] = self.out[row, heads, rows] * rescale.unsqueeze(-1) + product(s, v, 1.0)
        self.top[row, heads, rows] = top

    def finish(self) -> tuple[HeadOutputs, Float[Tensor, "batch head query"]]:
        """The output of ring attention, and lse: +inf for rows without keys or with a key that is not finite."""
        empty = self.total == 0.0
        out = self.out.div_(self.total.masked_fill(empty, 1.0).unsqueeze(-1))
        out.masked_fill_(self.nonfinite.unsqueeze(-1), torch.nan)
        return out.to(self.dtype), (self.top + self.total.log()).masked_fill(empty | self.nonfinite, torch.inf)


class _FiniteKeys:
    """Keys and values of one rank with NaN and inf zeroed; `bad` marks them for the queries that may see them."""

    def __init__(self, k: Keys, v: Values) -> None:
        bad = ~(torch.isfinite(k).all(-1) & torch.isfinite(v).all(-1))
        self.bad: Bool[Tensor, "batch kv_head key"] | None = None
        self.k, self.v = k, v
        if k.device.type != "cpu" or bool(bad.any()):  # any() would synchronize an accelerator
            self.bad = bad
            self.k, self.v = (x.masked_fill(bad.unsqueeze(-1), 0.0) for x in (k, v))


@dataclass
class _RowGradients:
    """Inputs of the backward pass for every row, and the sums dQ and d_learned."""

    q: Queries
    grad: Float[Tensor, "batch head query value_dim"]
    lse: Float[Tensor, "batch head query"]
    delta: Float[Tensor, "batch head query"]
    dq: Queries
    learned: Sequence[Tensor]

    def __post_init__(self) -> None:
        self.d_learned: list[Tensor | None] = [None] * len(self.learned)


@dataclass(frozen=True)
class _RingTask:
    """The mask and scores of all tokens, and their layout over the ranks."""

    problem: Problem
    ring: TokenRing

    def tiles(self, owner: int) -> Iterator[tuple[Tile, slice, tuple[slice, ...]]]:
        """Tiles of this rank's queries × the keys of ring rank `owner`, with rows and columns on their ranks."""
        mask, coordinates = self.problem.mask, self.problem.coordinates
        for first, last, query_start in self.ring.chunks():
            for key_first, key_last, key_start in self.ring.chunks(owner):
                part = (first, last), (key_first, key_last)
                if mask.structured:
                    tiles = tile(mask, coordinates, largest=BLOCK, every=True, part=part)
                else:
                    tiles = _unstructured(coordinates.batch, coordinates.heads if mask.per_head else 1, *part)
                for t in tiles:
                    if t.keys:
                        columns = tuple(_shift(c, key_start - key_first) for c in t.keys)
                        yield t, _shift(t.queries, query_start - first), columns

    def accumulate(
        self, sums: _SoftmaxSums, t: Tile, q: Queries, keys: _FiniteKeys, rows: slice, columns: tuple[slice, ...]
    ) -> None:
        """Add the keys of a tile in the ring to the softmax sums of its queries."""
        hidden, bias = self._mask_of(t)
        for row, heads in self._head_blocks(t):
            k, v = (self._select(x, row, heads, columns) for x in (keys.k, keys.v))
            s, _ = self._scores(
                q[row, heads, rows], k, self._part(hidden, t, row, heads), self._part(bias, t, row, heads)
            )
            sums.add(row, heads, rows, s, v)
            if keys.bad is not None:
                bad = self._select(keys.bad.unsqueeze(-1), row, heads, columns)[..., 0].unsqueeze(1)
                visible = bad if hidden is None else bad & ~cast(Tensor, self._part(hidden, t, row, heads))
                sums.nonfinite[row, heads, rows] |= visible.any(-1)

    def key_gradients(self, total: _RowGradients, owner: int, k: Keys, v: Values) -> tuple[Tensor, Tensor]:
        """dK and dV of the keys and values of `owner` from this rank's queries; adds dQ to `total`."""
        keys, exact = _FiniteKeys(k, v), total.grad.dtype
        dk, dv = torch.zeros_like(k, dtype=exact), torch.zeros_like(v, dtype=exact)
        scale, softcap = self.problem.scores.scale, self.problem.scores.softcap
        kv_of_head = torch.tensor(self.problem.groups.kv_of_head, device=k.device)
        for t, rows, columns in self.tiles(owner):
            with torch.enable_grad():
                hidden, bias = self._mask_of(t)
            constant_bias = None if bias is None else bias.detach()
            d_bias = torch.zeros_like(bias) if bias is not None and bias.requires_grad else None
            for row, heads in self._head_blocks(t):
                q, g = total.q[row, heads, rows], total.grad[row, heads, rows]
                head_k, head_v = (self._select(x, row, heads, columns) for x in (keys.k, keys.v))
                s, slope = self._scores(
                    q, head_k, self._part(hidden, t, row, heads), self._part(constant_bias, t, row, heads)
                )
                p = s.sub_(total.lse[row, heads, rows].unsqueeze(-1)).exp_()
                d = product(g, head_v.mT, 1.0).sub_(total.delta[row, heads, rows].unsqueeze(-1)).mul_(p)
                if d_bias is not None:
                    add_to(d_bias, row - t.batch.start, heads, d)
                if softcap is not None and slope is not None:
                    d.mul_(slope)
                total.dq[row, heads, rows] += product(d, head_k, scale)
                _scatter(dk[row], kv_of_head[heads], columns, product(d.mT, q, scale))
                _scatter(dv[row], kv_of_head[heads], columns, product(p.mT, g, 1.0))
            if bias is not None and d_bias is not None:
                grads = torch.autograd.grad(bias, list(total.learned), d_bias, allow_unused=True)
                total.d_learned = [_sum(a, b) for a, b in zip(total.d_learned, grads, strict=True)]
        return dk, dv

    def _head_blocks(self, t: Tile) -> Iterator[tuple[int, slice]]:
        """(batch row, heads) of blocks of a ring step of at most BLOCK scores, or one head."""
        _, queries, keys = t.shape
        heads, step = self.problem.coordinates.heads, max(1, BLOCK // max(1, queries * keys))
        for row in range(t.batch.start, t.batch.stop):
            for head in range(0, heads, step):
                yield row, slice(head, min(head + step, heads))

    def _mask_of(self, t: Tile) -> tuple[Tensor | None, Tensor | None]:
        """The hidden cells of a tile in the ring, and the bias added to its scores."""
        coordinates, mask = self.problem.coordinates, self.problem.mask
        if t.mask is TileMask.FULL:
            return None, None
        if t.mask is TileMask.CAUSAL:
            return ~lower_triangle(t.shape[1], t.shape[2], coordinates.device), None
        grid = coordinates.grid(t.batch, t.queries, t.keys)
        allowed = mask.allowed(grid)
        return None if allowed is None else ~allowed, mask.score_bias(grid)

    def _scores(
        self, q: Tensor, k: Tensor, hidden: Tensor | None, bias: Tensor | None
    ) -> tuple[Float[Tensor, "head query key"], Tensor | None]:
        """The scores of some heads in a ring step, -inf where hidden, and the derivative of softcap, if any."""
        scores = self.problem.scores
        s = capped_scores(q, k, scores)
        slope = None if scores.softcap is None else softcap_slope(s, scores)
        if bias is not None:
            s.add_(bias)
        return s if hidden is None else s.masked_fill_(hidden, -torch.inf), slope

    def _select(self, x: Tensor, row: int, heads: slice, columns: tuple[slice, ...]) -> Tensor:
        """The passed-on keys (or values) of one batch row that each of the given query heads reads."""
        parts = [x[row, :, c] for c in columns]
        keys = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return keys[list(self.problem.groups.kv_of_head[heads])]

    @staticmethod
    def _part(x: Tensor | None, t: Tile, row: int, heads: slice) -> Tensor | None:
        return None if x is None else part_of(x, row - t.batch.start, heads)


def _unstructured(batch: int, heads: int, queries: tuple[int, int], keys: tuple[int, int]) -> list[Tile]:
    """Ring tiles of a mask whose structure is unknown on the host."""
    step = max(1, BLOCK // max(1, batch * heads * (keys[1] - keys[0])))
    starts = range(queries[0], queries[1], step)
    return [
        Tile(slice(0, batch), slice(lo, min(lo + step, queries[1])), (slice(*keys),), TileMask.MASKED)
        for lo in starts
    ]


def _shift(positions: slice, by: int) -> slice:
    return slice(positions.start + by, positions.stop + by)


def _scatter(total: Tensor, kv_heads: Tensor, columns: tuple[slice, ...], x: Tensor) -> None:
    """Add the gradient of each query head to the kv head it reads, in a ring step."""
    start = 0
    for c in columns:
        width = c.stop - c.start
        total[:, c].index_add_(0, kv_heads, x[:, start : start + width])
        start += width


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
