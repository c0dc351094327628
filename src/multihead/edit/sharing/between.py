"""What stands between the projections of q and k and the kernel: nothing, a scale, a rotation, or a norm.

It is found by comparing the queries and keys that the kernel gets with the projections of the layer's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from multihead.edit.sharing.projection_inputs import Inputs
from multihead.edit.sharing.rotary_factor import Pairs, pairs_of, tolerance
from multihead.layer import Problem
from multihead.model.anatomy import LayerAnatomy
from multihead.model.head_weights import HeadWeights

Kind = Literal["plain", "rotary", "normed", "normed over heads"]


@dataclass(frozen=True)
class Between:
    """The kind; for rotations which dimensions turn together; the scale from projections to scores."""

    kind: Kind
    pairs: Pairs | None = None
    scale: float = 1.0

    def state(self) -> dict[str, Any]:
        pairs = (
            None
            if self.pairs is None
            else [list(x) for x in (self.pairs.first, self.pairs.second, self.pairs.rest)]
        )
        return {"kind": self.kind, "pairs": pairs, "scale": self.scale}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Between:
        pairs = None if state["pairs"] is None else Pairs(*(tuple(map(int, x)) for x in state["pairs"]))
        return Between(cast(Kind, state["kind"]), pairs, float(state["scale"]))


def find_between(
    layer: LayerAnatomy,
    model: nn.Module,
    weights: HeadWeights,
    problem: Problem,
    x: Inputs,
    real_queries: Bool[Tensor, "batch query"],
    real_keys: Bool[Tensor, "batch key"],
) -> Between:
    """Whether q and k are their projections, turned, or something else."""
    if _norms_span_heads(layer, model):
        return Between("normed over heads")
    k = problem.k
    if k.shape[1] != weights.kv_heads:  # the kernel was given copies
        readers = [weights.groups.kv_of_head.index(i) for i in range(weights.kv_heads)]
        k = k[:, [problem.groups.kv_of_head[head] for head in readers]]
    queries, keys = real_queries[:, None, :, None], real_keys[:, None, :, None]
    pairs = [
        (_projected(x["q"], weights.q, weights.b_q) * queries, problem.q * queries),
        (_projected(x["k"], weights.k, weights.b_k) * keys, k * keys),
    ]
    ratios = [_ratio(before, after) for before, after in pairs]
    scale = problem.scores.scale * ratios[0] * ratios[1]
    if all(_is_scaled(before, after) for before, after in pairs):
        return Between("plain", scale=scale)
    turning = pairs_of([(_of_size(before, after), after) for before, after in pairs])
    return Between("normed" if turning is None else "rotary", turning, scale)


def _norms_span_heads(layer: LayerAnatomy, model: nn.Module) -> bool:
    names = [name for letter in "qk" for name in layer.between[letter]]
    return any(model.get_parameter(name).shape[-1] > layer.key_dim for name in names)


def _projected(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    out = torch.einsum("btd,hkd->bhtk", x.to(w.dtype), w)
    return out if b is None else out + b[:, None]


def _ratio(before: Tensor, after: Tensor) -> float:
    return float(after.double().norm() / before.double().norm().clamp_min(1e-300))


def _is_scaled(before: Tensor, after: Tensor) -> bool:
    """after = c · before."""
    before, after_wide = before.double(), after.double()
    factor = float((before * after_wide).sum() / before.square().sum().clamp_min(1e-300))
    return float((after_wide - factor * before).norm()) <= tolerance(after) * float(after_wide.norm())


def _of_size(before: Tensor, after: Tensor) -> Tensor:
    """Scaled to the size of `after`: some models scale their queries."""
    ratio = _ratio(before, after)
    return before * ratio if abs(ratio - 1) > tolerance(after) else before
