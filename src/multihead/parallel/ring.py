"""Exact attention over keys that go around the ranks: sums that merge, and a backward pass that goes around again.

Ring attention (Liu et al. 2023), with each row's softmax as three sums that take keys in any order (Milakov and
Gimelshein 2018), s being the scores of the keys at hand:

    m' = max(m, max s),   l' = l·e^(m−m') + Σ e^(s−m'),   o' = o·e^(m−m') + e^(s−m') v

The output is o / l, and lse = m + log l. The backward pass computes P = e^(s−lse) again, tile by tile: nothing n×n
is kept, and nothing of other ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.layer.blocked import BLOCK, add_to, exact_dtype, part_of, product
from multihead.layer.kernels import lower_triangle
from multihead.layer.problem import Problem
from multihead.layer.tiles import Inside, Tile, tile

Chunk = tuple[int, int, int]
"""(first place, one past the last, where it begins among the tokens of its rank)"""


@runtime_checkable
class Round(Protocol):
    """Whose tokens are where, and the way from rank to rank."""

    def chunks(self, rank: int | None = None) -> list[Chunk]: ...

    def around(self, k: Tensor, v: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]: ...

    def home(self, parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]: ...


def ring_attend(problem: Problem, ring: Round) -> HeadOutputs:
    """softmax(scores) v, where q, k and v are the tokens of this rank and the frame is that of all."""
    nothing = problem.q.new_empty(0, 0, 0, 0)  # the backward is given q, k and v as saved tensors
    task = _Task(replace(problem, q=nothing, k=nothing, v=nothing), ring)
    sinks = problem.scores.sinks
    out = _Ring.apply(problem.q, problem.k, problem.v, sinks, task, *problem.mask.learned())
    return cast(Tensor, out)


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, task: _Task, *learned: Tensor
    ) -> Tensor:
        sums = _Sums(q, v, sinks)
        for owner, other_k, other_v in task.ring.around(k, v):
            held = _Held(other_k, other_v)
            for t, rows, columns in task.tiles(owner):
                task.take_in(sums, t, q, held, rows, columns)
        out, lse = sums.finish()
        ctx.save_for_backward(q, k, v, sinks, out, lse, *learned)
        ctx.task = task
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # untyped decorator
        (grad,) = grad_outputs
        q, k, v, sinks, out, lse, *learned = ctx.saved_tensors
        task: _Task = ctx.task
        dead = (lse == torch.inf).unsqueeze(-1)  # rows that see nothing, or NaN: zeros flow back
        grad = grad.to(exact_dtype(q)).masked_fill(dead, 0.0)
        delta = (grad * out.masked_fill(dead, 0.0)).sum(-1)
        back = _Back(q, grad, lse, delta, torch.zeros_like(q, dtype=grad.dtype), learned)
        dk, dv = task.ring.home(task.give_back(back, *held) for held in task.ring.around(k, v))
        d_sinks = None
        if sinks is not None:
            share = (sinks.to(lse.dtype)[:, None] - lse).exp()
            d_sinks = -(share * delta).sum((0, 2)).to(sinks.dtype)
        return back.dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), d_sinks, None, *back.d_learned


class _Sums:
    """m, l and o of every row of every head; a sink is where they begin."""

    def __init__(self, q: Queries, v: Values, sinks: Tensor | None) -> None:
        like = q.new_empty(0, dtype=exact_dtype(q))
        self.dtype = q.dtype
        self.top = like.new_full(q.shape[:3], -torch.inf)
        self.total = like.new_zeros(q.shape[:3])
        # (tokens, heads) in memory, so that joining the heads for W_O is a view.
        self.out = like.new_zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        self.broken = torch.zeros(q.shape[:3], dtype=torch.bool, device=q.device)
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
        """Scores of some rows; `s` is written over."""
        old, total = self.top[row, heads, rows], self.total[row, heads, rows]
        top = torch.maximum(old, s.amax(-1))
        level = top.masked_fill(top == -torch.inf, 0.0)  # rows that have seen nothing yet
        fade = (old - level).exp_()
        s.sub_(level.unsqueeze(-1)).exp_()
        self.total[row, heads, rows] = total * fade + s.sum(-1)
        self.out[row, heads, rows] = self.out[row, heads, rows] * fade.unsqueeze(-1) + product(s, v, 1.0)
        self.top[row, heads, rows] = top

    def finish(self) -> tuple[HeadOutputs, Float[Tensor, "batch head query"]]:
        """The output, and lse; +inf where nothing was seen, or what may not be summed."""
        empty = self.total == 0.0
        out = self.out.div_(self.total.masked_fill(empty, 1.0).unsqueeze(-1))
        out.masked_fill_(self.broken.unsqueeze(-1), torch.nan)
        return out.to(self.dtype), (self.top + self.total.log()).masked_fill(empty | self.broken, torch.inf)


class _Held:
    """Keys and values of one rank, while they are here. NaN and inf are set aside: they reach who may see them."""

    def __init__(self, k: Keys, v: Values) -> None:
        bad = ~(torch.isfinite(k).all(-1) & torch.isfinite(v).all(-1))
        self.bad: Bool[Tensor, "batch kv_head key"] | None = None
        self.k, self.v = k, v
        if k.device.type != "cpu" or bool(bad.any()):  # looking would stall an accelerator
            self.bad = bad
            self.k, self.v = (x.masked_fill(bad.unsqueeze(-1), 0.0) for x in (k, v))


@dataclass
class _Back:
    """What the backward pass reads of every row, and what it sums up."""

    q: Queries
    grad: Float[Tensor, "batch head query value_dim"]
    lse: Float[Tensor, "batch head query"]
    delta: Float[Tensor, "batch head query"]
    dq: Queries
    learned: Sequence[Tensor]

    def __post_init__(self) -> None:
        self.d_learned: list[Tensor | None] = [None] * len(self.learned)


@dataclass(frozen=True)
class _Task:
    """The mask and the scores of all tokens, and who has which."""

    problem: Problem
    ring: Round

    def tiles(self, owner: int) -> Iterator[tuple[Tile, slice, tuple[slice, ...]]]:
        """What the queries here may see of the keys of `owner`: tiles, and where each lies among both's tokens."""
        mask, frame = self.problem.mask, self.problem.frame
        for first, last, start in self.ring.chunks():
            for low, high, begin in self.ring.chunks(owner):
                part = (first, last), (low, high)
                if mask.structured:
                    found = tile(mask, frame, largest=BLOCK, every=True, part=part)
                else:
                    found = _unstructured(frame.batch, frame.heads if mask.per_head else 1, *part)
                for t in found:
                    if t.keys:
                        rows = slice(t.queries.start - first + start, t.queries.stop - first + start)
                        yield t, rows, tuple(slice(c.start - low + begin, c.stop - low + begin) for c in t.keys)

    def take_in(
        self, sums: _Sums, t: Tile, q: Queries, held: _Held, rows: slice, columns: tuple[slice, ...]
    ) -> None:
        """The keys of a tile into the sums of its queries."""
        hidden, added = self._cells(t)
        for row, heads in self._pieces(t):
            k, v = self._own(held.k, row, heads, columns), self._own(held.v, row, heads, columns)
            s, _ = self._scores(
                q[row, heads, rows], k, self._at(hidden, t, row, heads), self._at(added, t, row, heads)
            )
            sums.add(row, heads, rows, s, v)
            if held.bad is not None:
                bad = self._own(held.bad.unsqueeze(-1), row, heads, columns)[..., 0].unsqueeze(1)
                seen = bad if hidden is None else bad & ~cast(Tensor, self._at(hidden, t, row, heads))
                sums.broken[row, heads, rows] |= seen.any(-1)

    def give_back(self, back: _Back, owner: int, k: Keys, v: Values) -> tuple[Tensor, Tensor]:
        """dK and dV that the queries here give to keys and values of `owner`; dQ is summed up in `back`."""
        held, exact = _Held(k, v), back.grad.dtype
        dk, dv = torch.zeros_like(k, dtype=exact), torch.zeros_like(v, dtype=exact)
        scale, softcap = self.problem.scores.scale, self.problem.scores.softcap
        kv_of_head = torch.tensor(self.problem.groups.kv_of_head, device=k.device)
        for t, rows, columns in self.tiles(owner):
            with torch.enable_grad():
                hidden, added = self._cells(t)
            fixed = None if added is None else added.detach()
            d_added = torch.zeros_like(added) if added is not None and added.requires_grad else None
            for row, heads in self._pieces(t):
                q, g = back.q[row, heads, rows], back.grad[row, heads, rows]
                own_k, own_v = self._own(held.k, row, heads, columns), self._own(held.v, row, heads, columns)
                s, slope = self._scores(q, own_k, self._at(hidden, t, row, heads), self._at(fixed, t, row, heads))
                p = s.sub_(back.lse[row, heads, rows].unsqueeze(-1)).exp_()
                d = product(g, own_v.mT, 1.0).sub_(back.delta[row, heads, rows].unsqueeze(-1)).mul_(p)
                if d_added is not None:
                    add_to(d_added, row - t.batch.start, heads, d)
                if softcap is not None and slope is not None:
                    d.mul_(slope)
                back.dq[row, heads, rows] += product(d, own_k, scale)
                _scatter(dk[row], kv_of_head[heads], columns, product(d.mT, q, scale))
                _scatter(dv[row], kv_of_head[heads], columns, product(p.mT, g, 1.0))
            if added is not None and d_added is not None:
                found = torch.autograd.grad(added, list(back.learned), d_added, allow_unused=True)
                back.d_learned = [_sum(a, b) for a, b in zip(back.d_learned, found, strict=True)]
        return dk, dv

    def _pieces(self, t: Tile) -> Iterator[tuple[int, slice]]:
        """(batch row, heads) of blocks that fit the bound."""
        _, queries, keys = t.shape
        heads, some = self.problem.frame.heads, max(1, BLOCK // max(1, queries * keys))
        for row in range(t.batch.start, t.batch.stop):
            for head in range(0, heads, some):
                yield row, slice(head, min(head + some, heads))

    def _cells(self, t: Tile) -> tuple[Tensor | None, Tensor | None]:
        """What is hidden in a tile, and what is added to its scores."""
        frame, mask = self.problem.frame, self.problem.mask
        if t.inside is Inside.FULL:
            return None, None
        if t.inside is Inside.CAUSAL:
            return ~lower_triangle(t.shape[1], t.shape[2], frame.device), None
        grid = frame.grid(t.batch, t.queries, t.keys)
        allowed = mask.allowed(grid)
        return None if allowed is None else ~allowed, mask.added(grid)

    def _scores(
        self, q: Tensor, k: Tensor, hidden: Tensor | None, added: Tensor | None
    ) -> tuple[Float[Tensor, "head query key"], Tensor | None]:
        """The scores of a few heads, -inf where hidden; and the slope of softcap there, if it has one."""
        scale, softcap, slope = self.problem.scores.scale, self.problem.scores.softcap, None
        s = product(q, k.mT, scale if softcap is None else scale / softcap)
        if softcap is not None:
            s.tanh_()
            slope = 1.0 - s.square()
            s.mul_(softcap)
        if added is not None:
            s.add_(added)
        return s if hidden is None else s.masked_fill_(hidden, -torch.inf), slope

    def _own(self, x: Tensor, row: int, heads: slice, columns: tuple[slice, ...]) -> Tensor:
        """Of one row the keys (or values) that each of some query heads reads."""
        parts = [x[row, :, c] for c in columns]
        mine = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return mine[list(self.problem.groups.kv_of_head[heads])]

    @staticmethod
    def _at(x: Tensor | None, t: Tile, row: int, heads: slice) -> Tensor | None:
        return None if x is None else part_of(x, row - t.batch.start, heads)


def _unstructured(batch: int, heads: int, queries: tuple[int, int], keys: tuple[int, int]) -> list[Tile]:
    """Tiles of a mask whose structure is not known on the host."""
    step = max(1, BLOCK // max(1, batch * heads * (keys[1] - keys[0])))
    starts = range(queries[0], queries[1], step)
    return [
        Tile(slice(0, batch), slice(lo, min(lo + step, queries[1])), (slice(*keys),), Inside.MASKED)
        for lo in starts
    ]


def _scatter(total: Tensor, kv_heads: Tensor, columns: tuple[slice, ...], x: Tensor) -> None:
    """Add what each query head gives to the kv head that it reads."""
    at = 0
    for c in columns:
        width = c.stop - c.start
        total[:, c].index_add_(0, kv_heads, x[:, at : at + width])
        at += width


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
