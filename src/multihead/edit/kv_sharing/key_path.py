"""The path of q and k from their projections to the kernel: nothing, a scale, a rotation, or a norm.

It is found by comparing the queries and keys that the kernel gets with the projections of the layer's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from multihead._base.float64 import float64
from multihead.edit.kv_sharing.rotary import Pairs, find_pairs, tolerance
from multihead.layer import Problem
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.projection_inputs import QKVInputs

Kind = Literal["plain", "rotary", "normed", "normed over heads"]


@dataclass(frozen=True)
class KeyPath:
    """One of four kinds; "normed over heads" is a norm that spans all heads."""

    kind: Kind
    pairs: Pairs | None = None
    """rotary: the dimensions that are rotated together"""
    scale: float = 1.0
    """the scores are so much times the product of the projections"""


def find_key_path(
    layer: LayerAnatomy,
    model: nn.Module,
    weights: HeadWeights,
    problem: Problem,
    x: QKVInputs,
    real_queries: Bool[Tensor, "batch query"],
    real_keys: Bool[Tensor, "batch key"],
) -> KeyPath:
    """Whether q and k are their projections, scaled, rotated, or something else."""
    if _norms_span_heads(layer, model):
        return KeyPath("normed over heads")
    k = problem.k
    if k.shape[1] != weights.kv_heads:  # the model repeats kv heads for the kernel
        readers = [weights.groups.kv_of_head.index(i) for i in range(weights.kv_heads)]
        k = k[:, [problem.groups.kv_of_head[head] for head in readers]]
    queries, keys = real_queries[:, None, :, None], real_keys[:, None, :, None]
    pairs = [
        (_projected(x.q, weights.q, weights.b_q) * queries, problem.q * queries),
        (_projected(x.k, weights.k, weights.b_k) * keys, k * keys),
    ]
    ratios = [_ratio(before, after) for before, after in pairs]
    scale = problem.scores.scale * ratios[0] * ratios[1]
    if all(_is_scaled(before, after) for before, after in pairs):
        return KeyPath("plain", scale=scale)
    rotated_pairs = find_pairs([(_rescaled(before, after), after) for before, after in pairs])
    return KeyPath("normed" if rotated_pairs is None else "rotary", rotated_pairs, scale)


def _norms_span_heads(layer: LayerAnatomy, model: nn.Module) -> bool:
    names = [name for letter in "qk" for name in layer.between[letter]]
    return any(model.get_parameter(name).shape[-1] > layer.key_dim for name in names)


def _projected(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    out = torch.einsum("btd,hkd->bhtk", x.to(w.dtype), w)
    return out if b is None else out + b[:, None]


def _ratio(before: Tensor, after: Tensor) -> float:
    return float(float64(after).norm() / float64(before).norm().clamp_min(1e-300))


def _is_scaled(before: Tensor, after: Tensor) -> bool:
    """Whether the path of q or k is only a scale: after = c · before."""
    before, wide = float64(before), float64(after)
    factor = float((before * wide).sum() / before.square().sum().clamp_min(1e-300))
    return float((wide - factor * before).norm()) <= tolerance(after) * float(wide.norm())


def _rescaled(before: Tensor, after: Tensor) -> Tensor:
    """`before` with the norm of `after`: some models scale their queries."""
    ratio = _ratio(before, after)
    return before * ratio if abs(ratio - 1) > tolerance(after) else before
