"""The kernels that compute one block of attention: explicit (the meaning), fused, and folded (decoding).

All take the same `Block` and return the same numbers; tests hold them to the explicit one. A row that may
attend to nothing gives zeros by our own hand: it is lowered as a row that sees everything, and its output
is then set to 0, so that no backend ever meets an empty softmax, forward or backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from multihead._base.shapes import Allowed, HeadOutputs, Keys, Queries, ScoreBias, Values, Weights
from multihead.layer.dropout import dropped
from multihead.layer.frame import Grid
from multihead.layer.problem import Groups, Problem, Scores
from multihead.layer.tiles import Inside, Tile


@dataclass(frozen=True)
class Block:
    """One rectangle of the scores, with what remains of the mask inside it."""

    q: Queries
    k: Keys
    v: Values
    groups: Groups
    scores: Scores
    causal: bool = False  # the square lower triangle
    allowed: Allowed | None = None
    added: ScoreBias | None = None
    alive: Bool[Tensor, "#batch #head #query 1"] | None = None  # rows that see something; None: all do


@dataclass(frozen=True)
class Explained:
    """What the explicit kernel knows beside its output."""

    out: HeadOutputs
    weights: Weights
    lse: Float[Tensor, "batch head query"]


def lower(problem: Problem, tile: Tile, q: Queries, k: Keys, v: Values) -> Block:
    """The block of a tile: what remains of the mask is written out, for this tile only."""
    block = Block(q, k, v, problem.groups, problem.scores, tile.inside is Inside.CAUSAL)
    if tile.inside is not Inside.MASKED:
        return block
    return masked(block, problem, problem.frame.grid(tile.batch, tile.queries, tile.keys))


def masked(block: Block, problem: Problem, grid: Grid) -> Block:
    """The block with the mask of its cells written out."""
    mask, frame = problem.mask, problem.frame
    allowed, added, alive = mask.allowed(grid), mask.added(grid), None
    never_empty = mask.sees_self and frame.aligned and frame.queries <= frame.keys
    if allowed is not None and not never_empty:
        alive = allowed.any(-1, keepdim=True)
        allowed = allowed | ~alive
    return replace(block, allowed=allowed, added=added, alive=alive)


def explicit(block: Block) -> Explained:
    """softmax(softcap(q kᵀ scale) + added, masked) v, written out. The meaning that every route has.

    Computed in at least fp32; the weights returned are the clean ones, before dropout.
    """
    scores = block.scores
    k, v = block.groups.expand(block.k), block.groups.expand(block.v)
    exact = torch.promote_types(block.q.dtype, torch.float32)
    logits = (block.q.to(exact) @ k.to(exact).mT) * scores.scale
    if scores.softcap is not None:
        logits = scores.softcap * torch.tanh(logits / scores.softcap)
    if block.added is not None:
        logits = logits + block.added
    allowed = lower_triangle(logits.shape[2], logits.shape[3], logits.device) if block.causal else block.allowed
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    weights, lse = softmax_with_sink(logits, scores.sinks)
    if block.alive is not None:
        weights = weights.masked_fill(~block.alive, 0.0)
        empty = -torch.inf if scores.sinks is None else scores.sinks.to(exact).detach()[:, None]
        lse = torch.where(block.alive.squeeze(-1), lse, empty)
    used = dropped(weights, scores.dropout) if scores.dropout else weights
    out = (used @ v.to(exact)).to(block.q.dtype)
    return Explained(out, weights, lse)


def softmax_with_sink(
    logits: Weights, sinks: Float[Tensor, " head"] | None
) -> tuple[Weights, Float[Tensor, "batch head query"]]:
    """softmax([logits, sink]) without the sink's column, and the log-sum-exp of both.

    By subtracting the maximum, not the lse: beside scores of -1e9 log n is less than a rounding error.
    """
    if sinks is None:
        return torch.softmax(logits, dim=-1), torch.logsumexp(logits, dim=-1)
    sink = sinks.to(logits.dtype)[:, None, None]
    top = torch.maximum(logits.detach().amax(-1, keepdim=True), sink.detach())
    parts = torch.exp(logits - top)
    total = parts.sum(-1, keepdim=True) + torch.exp(sink - top)
    return parts / total, (top + total.log()).squeeze(-1)


def fused(block: Block) -> HeadOutputs:
    """The same through F.scaled_dot_product_attention, shaped so that it takes the fused kernel.

    - sizes of key and value heads that differ are padded with zeros to the larger one;
    - a learned sink rides as one extra key with value 0, whose logit comes from one extra query/key
      dimension; under the causal flag a dummy first query keeps the square;
    - uneven groups read copies of their kv head.
    """
    q, k, v, scale = block.q, block.k, block.v, block.scores.scale
    groups, queries, value_dim = block.groups, block.q.shape[2], block.v.shape[3]
    if groups.size is None:
        k, v = groups.expand(k), groups.expand(v)
    mask = _float_mask(block)
    if block.scores.sinks is not None:
        q, k, v, mask = _with_sink_key(block, q * scale, k, v, mask)
        scale = 1.0
    if q.shape[3] != value_dim and not torch.onnx.is_in_onnx_export():  # ONNX's Attention takes both sizes
        width = max(q.shape[3], value_dim)
        q, k, v = _widened(q, width), _widened(k, width), _widened(v, width)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=block.causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    out = out[:, :, out.shape[2] - queries :, :value_dim]
    return out if block.alive is None else out.masked_fill(~block.alive, 0.0)


def reaches(block: Block) -> HeadOutputs:
    """1 for each query that may attend to a key marked with v = 1, else 0."""
    if block.allowed is not None and block.allowed.shape[1] > 1:
        found = ((block.groups.expand(block.v).mT > 0) & block.allowed).any(-1, keepdim=True)
    else:
        found = block.groups.expand(_marks_seen(block)) > 0
    found = found.expand(-1, -1, block.q.shape[2], -1)
    if block.alive is not None:
        found = found & block.alive
    return found.to(block.v.dtype)


def _marks_seen(block: Block) -> Float[Tensor, "batch kv_head #query 1"]:
    """How many marked keys a query may attend to, where all heads see alike; nothing per head is n×n."""
    if block.causal:
        return block.v.cumsum(2)  # the square: as many queries as keys
    if block.allowed is None:
        return block.v.sum(2, keepdim=True)
    cells = block.allowed[:, 0].expand(-1, -1, block.k.shape[2])
    return (cells.to(block.v.dtype) @ block.v[..., 0].mT).mT.unsqueeze(-1)


def _float_mask(block: Block) -> Tensor | None:
    """One mask tensor for the fused kernel: bool where nothing is added, else scores with -inf for hidden."""
    if block.added is None:
        mask = block.allowed
    else:
        mask = block.added.to(block.q.dtype)
        if block.allowed is not None:
            mask = mask.masked_fill(~block.allowed, -torch.inf)
    if mask is None:
        return None
    # The kernel wants full query and key axes; batch and head may stay 1.
    return mask.expand(mask.shape[0], mask.shape[1], block.q.shape[2], block.k.shape[2])


def _with_sink_key(
    block: Block, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    sinks = block.scores.sinks
    assert sinks is not None
    logit = sinks.to(q.dtype).view(1, -1, 1, 1)
    q = torch.cat([q, logit.expand(q.shape[0], -1, q.shape[2], 1)], dim=-1)
    unit = F.pad(k.new_ones(*k.shape[:2], 1, 1), (k.shape[3], 0))
    k = torch.cat([unit, _widened(k, k.shape[3] + 1)], dim=2)
    v = F.pad(v, (0, 0, 1, 0))
    if block.causal:
        q = F.pad(q, (0, 0, 1, 0))
    if mask is not None:
        mask = F.pad(mask, (1, 0), value=True if mask.dtype == torch.bool else 0.0)
    return q, k, v, mask


def _widened(x: Float[Tensor, "... dim"], width: int) -> Float[Tensor, "... width"]:
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def lower_triangle(queries: int, keys: int, device: torch.device) -> Allowed:
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()[None, None]
