"""The kernels that compute one block of attention: explicit (the definition) and fused.

Both take a `ScoreBlock` and return the same values; tests compare them with the explicit kernel. A row that
may attend to no key is computed as one that sees every key, and its output is then set to 0: no backend computes an
empty softmax, forward or backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from multihead._base.recent import Recent
from multihead._base.shapes import Allowed, HeadOutputs, Keys, Queries, ScoreBias, Values, Weights
from multihead.layer._coordinates import Coordinates, Grid
from multihead.layer._dropout import dropped
from multihead.layer._mask_algebra import Mask
from multihead.layer._problem import Groups, Problem, ScoreConfig
from multihead.layer._tiles import Tile, TileMask
from multihead.layer._tracing import is_compiling


@dataclass(slots=True)
class ScoreBlock:
    """One rectangle of the scores, with its part of the mask."""

    q: Queries
    k: Keys
    v: Values
    groups: Groups
    scores: ScoreConfig
    causal: bool = False  # the square lower triangle
    allowed: Allowed | None = None
    bias: ScoreBias | None = None
    row_has_key: Bool[Tensor, "#batch #head #query 1"] | None = None  # None if every row has a key
    any_bias: bool = False  # the bias comes from the user and may have any size


@dataclass(frozen=True)
class KernelOutput:
    """The output of the explicit kernel, with its weights and log-sum-exp."""

    out: HeadOutputs
    weights: Weights
    lse: Float[Tensor, "batch head query"]


@dataclass(frozen=True)
class WrittenMask:
    """The mask of one tile as tensors. A row that sees no key is written as one that sees every key."""

    allowed: Allowed | None
    bias: ScoreBias | None
    row_has_key: Bool[Tensor, "#batch #head #query 1"] | None


CACHED_CELLS = 1 << 20
_WRITTEN = Recent[WrittenMask](16)
"""Written-out masks, shared by the layers of a model."""


def lower(problem: Problem, tile: Tile, q: Queries, k: Keys, v: Values) -> ScoreBlock:
    """The input of a kernel for one tile, with the mask written out for this tile only."""
    block = ScoreBlock(q, k, v, problem.groups, problem.scores, tile.mask is TileMask.CAUSAL)
    if tile.mask is TileMask.MASKED:
        written = _write_mask(problem.mask, problem.coordinates, tile)
        block.allowed, block.bias, block.row_has_key = written.allowed, written.bias, written.row_has_key
        block.any_bias = problem.mask.any_bias
        if written.row_has_key is not None and torch.is_grad_enabled():
            # A query that sees no key may be NaN (padding); its zero gradient times NaN would be NaN.
            block.q = q.masked_fill(~written.row_has_key, 0.0)
    return block


def _write_mask(mask: Mask, coordinates: Coordinates, tile: Tile) -> WrittenMask:
    """The mask of one tile for a kernel; cached for the next layer if the mask's key determines its cells."""
    if is_compiling() or not (mask.pure and coordinates.aligned) or tile.cells > CACHED_CELLS:
        return written_mask(mask, coordinates, coordinates.grid(tile.batch, tile.queries, tile.keys))
    key = (mask.key, coordinates, tile.batch.start, tile.batch.stop, tile.queries.start, tile.queries.stop,
           *[(part.start, part.stop) for part in tile.keys])  # fmt: skip
    written = _WRITTEN.get(key)
    if written is None:
        with torch.inference_mode(False), torch.no_grad():  # a backward pass may save it later
            grid = coordinates.grid(tile.batch, tile.queries, tile.keys)
            written = written_mask(mask, coordinates, grid)
        parts = (written.allowed, written.bias, written.row_has_key)
        if all(part is None or (type(part) is Tensor and part.numel() <= CACHED_CELLS) for part in parts):
            _WRITTEN.put(key, written)
    return written


def try_rules(mask: Mask, coordinates: Coordinates, tiles: Sequence[Tile]) -> None:
    """Write out the tiles of a rule's mask before the kernel: one that raises does so before a cache changes."""
    if not is_compiling():
        for tile in (t for t in tiles if t.keys):
            mask.allowed(coordinates.grid(tile.batch, tile.queries, tile.keys))


def written_mask(mask: Mask, coordinates: Coordinates, grid: Grid) -> WrittenMask:
    """The mask that a kernel takes, written out on the cells of a grid."""
    allowed, bias = mask.allowed(grid), mask.score_bias(grid)
    never_empty = mask.diagonal_visible and coordinates.aligned and coordinates.queries <= coordinates.keys
    if allowed is None or never_empty:
        return WrittenMask(allowed, bias, None)
    row_has_key = allowed.any(-1, keepdim=True)
    return WrittenMask(allowed | ~row_has_key, bias, row_has_key)


def explicit(block: ScoreBlock) -> KernelOutput:
    """softmax(softcap(q kᵀ scale) + bias, masked) v, written out: the definition that every route follows.

    Computed in at least fp32. The returned weights are those before dropout.
    """
    scores = block.scores
    k, v = block.groups.expand(block.k), block.groups.expand(block.v)
    exact = torch.promote_types(block.q.dtype, torch.float32)
    logits = capped_and_masked((block.q.to(exact) @ k.to(exact).mT) * scores.scale, block)
    weights, lse = softmax_with_sink(logits, scores.sinks)
    if block.row_has_key is not None:
        weights = weights.masked_fill(~block.row_has_key, 0.0)
        empty = -torch.inf if scores.sinks is None else scores.sinks.to(exact).detach()[:, None]
        lse = torch.where(block.row_has_key.squeeze(-1), lse, empty)
    used_weights = dropped(weights, scores.dropout) if scores.dropout else weights
    out = (used_weights @ v.to(exact)).to(block.q.dtype)
    return KernelOutput(out, weights, lse)


def capped_and_masked(logits: Weights, block: ScoreBlock) -> Weights:
    """The scores of a kernel: softcap(logits) + bias, and -inf where hidden."""
    softcap = block.scores.softcap
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if block.bias is not None:
        logits = logits + block.bias
    allowed = lower_triangle(logits.shape[2], logits.shape[3], logits.device) if block.causal else block.allowed
    return logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)


def softmax_with_sink(
    logits: Weights, sinks: Float[Tensor, " head"] | None
) -> tuple[Weights, Float[Tensor, "batch head query"]]:
    """Of a kernel's scores, softmax([logits, sink]) without the sink's column, and the log-sum-exp of both.

    Subtracts the maximum, not the lse: next to scores of -1e9, log n is less than a rounding error.
    """
    if sinks is None:
        return torch.softmax(logits, dim=-1), torch.logsumexp(logits, dim=-1)
    sink = sinks.to(logits.dtype)[:, None, None]
    top = torch.maximum(logits.detach().amax(-1, keepdim=True), sink.detach())
    parts = torch.exp(logits - top)
    total = parts.sum(-1, keepdim=True) + torch.exp(sink - top)
    return parts / total, (top + total.log()).squeeze(-1)


def fused(block: ScoreBlock) -> HeadOutputs:
    """The fused kernel: as `explicit`, by F.scaled_dot_product_attention with inputs that it supports.

    - If key and value heads differ in size, zeros pad the smaller one.
    - A learned sink is an extra key with value 0, whose logit comes from an extra query/key dimension; under the
      causal flag a dummy first query keeps the score matrix square.
    - Uneven groups read copies of their kv head.
    """
    q, k, v, scale = block.q, block.k, block.v, block.scores.scale
    if block.bias is not None and (block.any_bias or block.scores.sinks is not None):
        exact = torch.promote_types(q.dtype, block.bias.dtype)
        if exact != q.dtype:  # rounded, 1000.5 is 1000 and -1e9 is -inf in fp16, which would hide the key
            return fused(replace(block, q=q.to(exact), k=k.to(exact), v=v.to(exact))).to(q.dtype)
    if scale <= 0:  # torch's fused kernel returns NaN
        q, scale = q * scale, 1.0
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
    if out.shape[2:] != (queries, value_dim):
        out = out[:, :, out.shape[2] - queries :, :value_dim]
    return out if block.row_has_key is None else out.masked_fill(~block.row_has_key, 0.0)


def sees_marked_key(block: ScoreBlock) -> HeadOutputs:
    """1 for each query that may attend to a key marked with v = 1, else 0."""
    if block.allowed is not None and block.allowed.shape[1] > 1:
        sees = ((block.groups.expand(block.v).mT > 0) & block.allowed).any(-1, keepdim=True)
    else:
        sees = block.groups.expand(_marks_seen(block)) > 0
    sees = sees.expand(-1, -1, block.q.shape[2], -1)
    if block.row_has_key is not None:
        sees = sees & block.row_has_key
    return sees.to(block.v.dtype)


def _marks_seen(block: ScoreBlock) -> Float[Tensor, "batch kv_head #query 1"]:
    """The number of marked keys that a query may attend to, if all heads share one mask; no n×n tensor per head."""
    if block.causal:
        return block.v.cumsum(2)  # as many queries as keys
    if block.allowed is None:
        return block.v.sum(2, keepdim=True)
    cells = block.allowed[:, 0].expand(-1, -1, block.k.shape[2])
    return (cells.to(block.v.dtype) @ block.v[..., 0].mT).mT.unsqueeze(-1)


def _float_mask(block: ScoreBlock) -> Tensor | None:
    """One mask tensor for the fused kernel: bool without a bias, else the bias with -inf for hidden cells."""
    if block.bias is None:
        mask = block.allowed
    else:
        mask = _cast_bias(block.bias, block)
        if block.allowed is not None:
            mask = mask.masked_fill(~block.allowed, -torch.inf)
    if mask is None:
        return None
    # The kernel needs full query and key axes; batch and head may be 1.
    return mask.expand(mask.shape[0], mask.shape[1], block.q.shape[2], block.k.shape[2])


def _cast_bias(bias: ScoreBias, block: ScoreBlock) -> ScoreBias:
    """The bias of the fused kernel in the queries' dtype; if less precise, minus the largest bias of each row.

    A softmax does not change by a constant per row, and so the bias is rounded least at the keys that count.
    """
    dtype = block.q.dtype
    if torch.promote_types(bias.dtype, dtype) == dtype:
        return bias.to(dtype)
    seen = bias if block.allowed is None else bias.masked_fill(~block.allowed, -torch.inf)
    return (bias - seen.amax(-1, keepdim=True)).clamp(min=torch.finfo(dtype).min).to(dtype)


def _with_sink_key(
    block: ScoreBlock, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The inputs of a kernel with a key whose score is the sink and whose value is 0."""
    sinks = block.scores.sinks
    assert sinks is not None
    logit = sinks.to(q.dtype).view(1, -1, 1, 1)
    q = torch.cat([q, logit.expand(q.shape[0], -1, q.shape[2], 1)], dim=-1)
    sink_key = F.pad(k.new_ones(*k.shape[:2], 1, 1), (k.shape[3], 0))
    k = torch.cat([sink_key, _widened(k, k.shape[3] + 1)], dim=2)
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
