"""The explicit formula on bounded blocks, recomputed in the backward pass.

This route supports dropout, softcap, sinks and biases with gradients, in memory linear in tokens. Per block, with S
the scores:

    P = softmax([softcap(scale q kᵀ) + bias, sink]),   O = (M / keep_prob ∘ P) v,   M the dropout mask
    dS = P ∘ (M / keep_prob ∘ dO vᵀ − δ),   δ = rowsum(dO ∘ O)

The backward pass recomputes P from q and k, redraws M from its seed and writes out the bias again: no n×n tensor is
saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.errors import MultiheadError
from multihead.layer._dropout import DropoutMask, fresh_seed
from multihead.layer._kernels import ScoreBlock, lower, lower_triangle
from multihead.layer._plan import BLOCK
from multihead.layer._problem import Problem, ScoreConfig
from multihead.layer._tiles import Tile


def blocked(problem: Problem, tile: Tile, q: Queries, k: Keys, v: Values) -> HeadOutputs:
    """The output of one tile by blocks of a few heads, each recomputed in the backward pass."""
    groups, scores = problem.groups, problem.scores
    # The backward pass gets q, k and v as saved tensors; a second reference would defeat checkpointing.
    empty = q.new_empty(0, 0, 0, 0)
    task = _Task(
        replace(problem, q=empty, k=empty, v=empty), tile, fresh_seed() + scores.rng_offset if scores.dropout else 0
    )
    out = _Blocked.apply(q, groups.expand(k), groups.expand(v), scores.sinks, task, *problem.mask.bias_params())
    return cast(Tensor, out)


@dataclass(frozen=True)
class _Task:
    """The inputs of a tile besides q, k and v."""

    problem: Problem
    tile: Tile
    seed: int

    def lowered(self, q: Tensor, k: Tensor, v: Tensor) -> ScoreBlock:
        """The tile with -inf in `bias` for hidden cells: in blocks, adding is far cheaper than a bool mask."""
        block = lower(self.problem, self.tile, q, k, v)
        allowed = lower_triangle(q.shape[2], k.shape[2], q.device) if block.causal else block.allowed
        if allowed is None:
            return block
        bias = torch.zeros((), dtype=exact_dtype(q), device=q.device) if block.bias is None else block.bias
        return replace(block, bias=torch.where(allowed, bias, -torch.inf))

    def head_blocks(self, q: Tensor, k: Tensor) -> Iterator[tuple[int, slice]]:
        """(batch row, heads) of blocks of at most BLOCK scores, or one head."""
        batch, heads, rows, _ = q.shape
        step = max(1, BLOCK // max(1, rows * k.shape[2]))
        for row in range(batch):
            for head in range(0, heads, step):
                yield row, slice(head, min(head + step, heads))

    def dropout_mask(self, device: torch.device) -> DropoutMask | None:
        dropout = self.problem.scores.dropout
        return DropoutMask(dropout, self.seed, device) if dropout else None


class _Blocked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, task: _Task, *learned: Tensor
    ) -> Tensor:
        """Compute the output block by block; the weights are not kept."""
        block, dropout = task.lowered(q, k, v), task.dropout_mask(q.device)
        buffers = _Buffers(q, k, task)
        # (tokens, heads) in memory, so joining the heads for W_O is a view.
        out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        for row, heads in task.head_blocks(q, k):
            weights, _ = _weights(block, row, heads, buffers.take("weights", heads))
            if dropout is not None:
                weights.mul_(dropout.draw(buffers.take("kept", heads)))
            out[row, heads] = product(weights, v[row, heads], 1.0 if dropout is None else dropout.rescale)
        if block.row_has_key is not None:
            out.masked_fill_(~block.row_has_key, 0.0)
        # The backward pass writes out the mask again. Saving its tensors makes autograd raise if they change.
        mask_tensors = [t for t in task.problem.mask.tensors() if not t.is_inference()]
        ctx.save_for_backward(q, k, v, sinks, out, *learned, *mask_tensors)
        ctx.task, ctx.learned = task, len(learned)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Recompute the weights block by block, for the gradients of q, k, v, sinks and learned biases."""
        check_first_derivative("blocked", hint='route="reference" has all derivatives')
        (grad,) = grad_outputs
        q, k, v, sinks, out, *rest = ctx.saved_tensors
        learned = rest[: ctx.learned]
        task: _Task = ctx.task
        with torch.enable_grad():
            block = task.lowered(q, k, v)
        bias = block.bias
        block = replace(block, q=block.q.detach(), bias=None if bias is None else bias.detach())
        if block.row_has_key is not None:
            grad = grad.masked_fill(~block.row_has_key, 0.0)
        dropout, softcap, scale = task.dropout_mask(q.device), block.scores.softcap, block.scores.scale
        rescale = 1.0 if dropout is None else dropout.rescale
        buffers = _Buffers(q, k, task)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        d_sinks = None if sinks is None else torch.zeros_like(sinks)
        d_bias = torch.zeros_like(bias) if bias is not None and bias.requires_grad else None
        for row, heads in task.head_blocks(q, k):
            weights, sink_weight = _weights(block, row, heads, buffers.take("weights", heads))
            g = grad[row, heads].to(weights.dtype)
            delta = (g * out[row, heads]).sum(-1, keepdim=True)
            if d_sinks is not None and sink_weight is not None:
                d_sinks[heads] -= (sink_weight * delta).sum((1, 2)).to(d_sinks.dtype)
            d = product(g, v[row, heads].mT, rescale, buffers.take("d", heads))  # of the weights after dropout
            if dropout is not None:
                keep_mask = dropout.draw(buffers.take("kept", heads))
                d.mul_(keep_mask).sub_(delta).mul_(weights)
                weights.mul_(keep_mask)
            else:
                d.sub_(delta).mul_(weights)  # of the scores
            dv[row, heads] = product(weights.mT, g, rescale)
            if d_bias is not None:
                add_to(d_bias, row, heads, d)
            if softcap is not None:
                d.mul_(_slope(block, row, heads))
            dq[row, heads] = product(d, k[row, heads], scale)
            dk[row, heads] = product(d.mT, block.q[row, heads], scale)
        d_learned: list[Tensor | None] = [None] * len(learned)
        if bias is not None and d_bias is not None:
            d_learned = list(torch.autograd.grad(bias, learned, d_bias, allow_unused=True))
        return dq, dk, dv, d_sinks, None, *d_learned


def check_first_derivative(route: str, *, hint: str) -> None:
    """Raise inside a backward that a gradient is to flow through, as with create_graph=True.

    Not `once_differentiable`: `autograd.grad` skips its error node and returns a wrong second derivative.
    """
    if torch.is_grad_enabled():
        raise MultiheadError(f"the {route} route has first derivatives only, got create_graph=True", hint=hint)


class _Buffers:
    """Named score blocks, allocated once per call: fresh memory costs more than the arithmetic on it."""

    def __init__(self, q: Tensor, k: Tensor, task: _Task) -> None:
        self.cell = (q.shape[2], k.shape[2])
        self.heads = next((heads.stop for _, heads in task.head_blocks(q, k)), 0)
        self.like = q.new_empty(0, dtype=exact_dtype(q))
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, heads: slice) -> Float[Tensor, "head query key"]:
        if name not in self.buffers:
            self.buffers[name] = self.like.new_empty(self.heads, *self.cell)
        return self.buffers[name][: heads.stop - heads.start]


def _weights(block: ScoreBlock, row: int, heads: slice, s: Tensor) -> tuple[Tensor, Tensor | None]:
    """P of a block of heads, written into `s` (head, query, key), and the weight of the sink."""
    sinks = block.scores.sinks
    capped_scores(block.q[row, heads], block.k[row, heads], block.scores, s)
    if block.bias is not None:
        s.add_(part_of(block.bias, row, heads))
    if sinks is None:
        return torch.softmax(s, dim=-1, out=s), None
    sink = sinks[heads, None, None].detach().to(s.dtype)
    top = torch.maximum(s.amax(-1, keepdim=True), sink)
    sink_weight = (sink - top).exp_()
    total = s.sub_(top).exp_().sum(-1, keepdim=True).add_(sink_weight)
    return s.div_(total), sink_weight.div_(total)


def _slope(block: ScoreBlock, row: int, heads: slice) -> Tensor:
    """d softcap(s) / d s, at the scores before the bias."""
    s = capped_scores(block.q[row, heads], block.k[row, heads], block.scores)
    return softcap_slope(s, block.scores)


def capped_scores(
    q: Float[Tensor, "head query dim"],
    k: Float[Tensor, "head key dim"],
    scores: ScoreConfig,
    out: Tensor | None = None,
) -> Float[Tensor, "head query key"]:
    """Scores of a block of heads, in the blocked route: softcap · tanh(scale · q kᵀ / softcap), or scale · q kᵀ."""
    if scores.softcap is None:
        return product(q, k.mT, scores.scale, out)
    return product(q, k.mT, scores.scale / scores.softcap, out).tanh_().mul_(scores.softcap)


def softcap_slope(capped: Float[Tensor, "head query key"], scores: ScoreConfig) -> Float[Tensor, "head query key"]:
    """d softcap(s) / d s = 1 − (softcap(s) / softcap)²"""
    assert scores.softcap is not None
    return 1.0 - (capped / scores.softcap).square_()


def product(a: Tensor, b: Tensor, factor: float, out: Tensor | None = None) -> Tensor:
    """factor · a b of a block, in at least fp32; the matrix product applies the factor at no cost."""
    exact = exact_dtype(a)
    if out is None:
        out = a.new_empty(a.shape[0], a.shape[1], b.shape[2], dtype=exact)
    return torch.baddbmm(out, a.to(exact), b.to(exact), beta=0, alpha=factor, out=out)


def exact_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def part_of(x: Tensor, row: int, heads: slice) -> Tensor:
    """One row and some heads of a block that broadcasts over both."""
    x = x[row if x.shape[0] > 1 else 0]
    return x[heads] if x.shape[0] > 1 else x


def add_to(total: Tensor, row: int, heads: slice, part: Tensor) -> None:
    target = part_of(total, row, heads)
    target.add_(part.sum_to_size(target.shape).to(target.dtype))
