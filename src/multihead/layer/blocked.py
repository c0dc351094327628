"""The explicit formula on bounded blocks, computed again in the backward: everything the fused kernel cannot do.

Dropout, softcap, sinks and biases with gradients, in memory linear in tokens. Per block, with S the scores:

    P = softmax([softcap(scale q kᵀ) + added, sink]),   O = (M / share ∘ P) v,   M the weights that dropout keeps
    dS = P ∘ (M / share ∘ dO vᵀ − δ),   δ = rowsum(dO ∘ O)

P is recomputed from q and k, M redrawn from its seed, what is added is lowered anew: nothing n×n is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from multihead.layer.dropout import Keep, fresh_seed
from multihead.layer.kernels import Block, lower
from multihead.layer.problem import Problem
from multihead.layer.tiles import Tile
from multihead.shapes import HeadOutputs, Keys, Queries, Values

BLOCK = 3 << 19
"""Scores of one block: three fp32 buffers of it stay inside a shared cache of 32 MB."""


def blocked(problem: Problem, tile: Tile, q: Queries, k: Keys, v: Values) -> HeadOutputs:
    """One tile, a few heads at a time."""
    groups, scores = problem.groups, problem.scores
    task = _Task(problem, tile, fresh_seed() if scores.dropout else 0)
    out = _Blocked.apply(q, groups.expand(k), groups.expand(v), scores.sinks, task, *problem.mask.learned())
    return cast(Tensor, out)


@dataclass(frozen=True)
class _Task:
    """What a block is computed from beside its tensors."""

    problem: Problem
    tile: Tile
    seed: int

    def lowered(self, q: Tensor, k: Tensor, v: Tensor) -> Block:
        block = lower(self.problem, self.tile, q, k, v)
        if block.causal:
            rows, keys = q.shape[2], k.shape[2]
            allowed = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril()[None, None]
            return replace(block, allowed=allowed)
        return block

    def pieces(self, q: Tensor, k: Tensor) -> Iterator[tuple[int, slice]]:
        """(batch row, heads) of blocks that fit the bound."""
        batch, heads, rows, _ = q.shape
        some = max(1, BLOCK // max(1, rows * k.shape[2]))
        for row in range(batch):
            for head in range(0, heads, some):
                yield row, slice(head, min(head + some, heads))

    def keep(self) -> Keep | None:
        dropout = self.problem.scores.dropout
        return Keep(dropout, self.seed) if dropout else None


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, task: _Task, *learned: Tensor
    ) -> Tensor:
        block = task.lowered(q, k, v)
        keep = task.keep()
        # (tokens, heads) in memory, so that joining the heads for W_O is a view.
        out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        for row, heads in task.pieces(q, k):
            weights, _ = _weights(block, row, heads)
            if keep is not None:
                weights.mul_(keep.into(torch.empty_like(weights)))
                weights.mul_(1 / keep.share if keep.share else 0.0)
            out[row, heads] = torch.bmm(weights, v[row, heads].to(weights.dtype))
        if block.alive is not None:
            out.masked_fill_(~block.alive, 0.0)
        ctx.save_for_backward(q, k, v, sinks, out, *learned)
        ctx.task = task
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (grad,) = grad_outputs
        q, k, v, sinks, out, *learned = ctx.saved_tensors
        task: _Task = ctx.task
        with torch.enable_grad():
            block = task.lowered(q, k, v)
        added, block = block.added, replace(block, added=None if block.added is None else block.added.detach())
        if block.alive is not None:
            grad = grad.masked_fill(~block.alive, 0.0)
        keep, softcap, scale = task.keep(), block.scores.softcap, block.scores.scale
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        d_sinks = None if sinks is None else torch.zeros_like(sinks)
        d_added = torch.zeros_like(added) if added is not None and added.requires_grad else None
        for row, heads in task.pieces(q, k):
            weights, rest = _weights(block, row, heads)
            g, kb, qb = (x[row, heads].to(weights.dtype) for x in (grad, k, q))
            delta = (g * out[row, heads]).sum(-1, keepdim=True)
            if d_sinks is not None and rest is not None:
                d_sinks[heads] -= (rest * delta).sum((1, 2)).to(d_sinks.dtype)
            d = torch.bmm(g, v[row, heads].to(weights.dtype).mT)  # of the weights that were used
            if keep is not None:
                kept = keep.into(torch.empty_like(weights)).mul_(1 / keep.share if keep.share else 0.0)
                d.mul_(kept).sub_(delta).mul_(weights)
                weights.mul_(kept)
            else:
                d.sub_(delta).mul_(weights)  # of the scores
            dv[row, heads] = torch.bmm(weights.mT, g)
            if d_added is not None:
                _add_to(d_added, row, heads, d)
            if softcap is not None:
                d.mul_(_slope(qb, kb, scale, softcap))
            d.mul_(scale)
            dq[row, heads] = torch.bmm(d, kb)
            dk[row, heads] = torch.bmm(d.mT, qb)
        d_learned: list[Tensor | None] = [None] * len(learned)
        if added is not None and d_added is not None:
            d_learned = list(torch.autograd.grad(added, learned, d_added, allow_unused=True))
        return dq, dk, dv, d_sinks, None, *d_learned


def _weights(block: Block, row: int, heads: slice) -> tuple[Tensor, Tensor | None]:
    """P of one row's heads (head, query, key), and the weight of the sink."""
    scores = block.scores
    exact = torch.promote_types(block.q.dtype, torch.float32)
    s = torch.bmm(block.q[row, heads].to(exact) * scores.scale, block.k[row, heads].to(exact).mT)
    if scores.softcap is not None:
        s.div_(scores.softcap).tanh_().mul_(scores.softcap)
    if block.added is not None:
        s.add_(_part(block.added, row, heads))
    if block.allowed is not None:
        s.masked_fill_(~_part(block.allowed, row, heads), -torch.inf)
    if scores.sinks is None:
        return torch.softmax(s, dim=-1, out=s), None
    sink = scores.sinks[heads, None, None].detach().to(exact)
    top = torch.maximum(s.amax(-1, keepdim=True), sink)
    rest = (sink - top).exp_()
    total = s.sub_(top).exp_().sum(-1, keepdim=True).add_(rest)
    return s.div_(total), rest.div_(total)


def _slope(q: Tensor, k: Tensor, scale: float, softcap: float) -> Tensor:
    """d softcap(s) / d s = 1 − tanh²(s / softcap)"""
    return torch.bmm(q * (scale / softcap), k.mT).tanh_().square_().neg_().add_(1.0)


def _part(x: Tensor, row: int, heads: slice) -> Tensor:
    """One row and some heads of a block that broadcasts over both."""
    x = x[row if x.shape[0] > 1 else 0]
    return x[heads] if x.shape[0] > 1 else x


def _add_to(total: Tensor, row: int, heads: slice, part: Tensor) -> None:
    target = _part(total, row, heads)
    target.add_(part.sum_to_size(target.shape).to(target.dtype))
