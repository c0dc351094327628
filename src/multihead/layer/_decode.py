"""The kernel for few queries over many keys, as in decoding, where reading keys and values dominates the cost.

The query heads of a group become additional queries of their kv head, so keys and values are read once per group
instead of once per head. Few queries have few scores (linear in keys), so the scores can be written out, and
softcap, sinks and biases cost nothing extra. Inference only.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.layer._kernels import ScoreBlock, capped_and_masked, fused, lower_triangle, softmax_with_sink
from multihead.layer._problem import Groups

# Measured on a 2-core AVX2 machine (bench/layer.py): up to 8 rows per kv head a plain fp32 product streams
# the keys faster than the fused kernel; bf16 rows are best fused unless there is only one.
FEW_ROWS = 8
CAST_KEYS = 4096  # half-precision keys cast to fp32 at a time: they fit the cache


def grouped_decode(block: ScoreBlock) -> HeadOutputs:
    """softmax(scores) v with one read of each key and value per group of query heads."""
    size, queries = block.groups.size, block.q.shape[2]
    assert size is not None
    if block.causal:
        triangle = lower_triangle(queries, block.k.shape[2], block.q.device)
        block = replace(block, causal=False, allowed=triangle)
    rows, dtype = size * queries, block.q.dtype
    plain = block.scores.softcap is None and block.scores.sinks is None
    wide = rows > FEW_ROWS and dtype in (torch.float32, torch.float64)
    if plain and (wide or (dtype == torch.bfloat16 and rows > 1)):
        return _folded_fused(block, size)
    return _written_out(block, rows)


def _written_out(block: ScoreBlock, rows: int) -> HeadOutputs:
    """Decode with written-out scores: two products per group of query heads."""
    (batch, heads, queries, dim), kv_heads = block.q.shape, block.k.shape[1]
    exact = torch.promote_types(block.q.dtype, torch.float32)
    scores = block.scores
    q = (block.q.to(exact) * scores.scale).reshape(batch * kv_heads, rows, dim)
    logits = _scores(q, block.k.flatten(0, 1)).view(batch, heads, queries, -1)
    logits = capped_and_masked(logits, block)
    weights = logits.softmax(-1) if scores.sinks is None else softmax_with_sink(logits, scores.sinks)[0]
    out = _weighted_sums(weights.view(batch * kv_heads, rows, -1), block.v.flatten(0, 1))
    out = out.view(batch, heads, queries, -1).to(block.q.dtype)
    return out if block.row_has_key is None else out.masked_fill(~block.row_has_key, 0.0)


def _scores(q: Float[Tensor, "n row dim"], k: Float[Tensor, "n key dim"]) -> Float[Tensor, "n row key"]:
    """Scores of few queries in decoding, over all keys."""
    if k.dtype == q.dtype:
        # K qᵀ with qᵀ a transposed view streams the keys twice as fast as q Kᵀ (MKL, few rows).
        return torch.bmm(k, q.transpose(1, 2)).transpose(1, 2).contiguous()
    out = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    for chunk in _key_chunks(k):
        out[:, :, chunk] = torch.bmm(q, k[:, chunk].to(q.dtype).transpose(1, 2))
    return out


def _weighted_sums(
    weights: Float[Tensor, "n row key"], v: Float[Tensor, "n key dim"]
) -> Float[Tensor, "n row dim"]:
    """Weighted sums of the values in decoding."""
    if v.dtype == weights.dtype:
        return torch.bmm(weights, v)
    out = weights.new_zeros(v.shape[0], weights.shape[1], v.shape[2])
    for chunk in _key_chunks(v):
        out.baddbmm_(weights[:, :, chunk], v[:, chunk].to(weights.dtype))
    return out


def _key_chunks(x: Float[Tensor, "n key dim"]) -> list[slice]:
    step = max(16, CAST_KEYS // x.shape[0])
    return [slice(start, min(start + step, x.shape[1])) for start in range(0, x.shape[1], step)]


def _folded_fused(block: ScoreBlock, size: int) -> HeadOutputs:
    """Decode by the fused kernel, with groups folded into the query axis."""
    batch, heads, queries, _ = block.q.shape
    kv_heads = heads // size

    def fold(x: Tensor | None) -> Tensor | None:
        """Fold groups into queries to decode: (batch, head, query, n) → (batch, kv_head, size · query, n)"""
        if x is None or (x.shape[1] == 1 and x.shape[2] == 1):
            return x
        folded = kv_heads if x.shape[1] > 1 else 1
        return x.expand(-1, folded * size, queries, -1).reshape(x.shape[0], folded, size * queries, x.shape[3])

    q = block.q.reshape(batch, kv_heads, size * queries, -1)
    mask = {name: fold(getattr(block, name)) for name in ("allowed", "bias", "row_has_key")}
    groups = Groups(tuple(range(kv_heads)), kv_heads)
    return fused(replace(block, q=q, groups=groups, **mask)).reshape(batch, heads, queries, -1)
