"""The cost of removing a head, given the heads already removed.

| method | cost of head h |
|---|---|
| `obs` | s_l · tr(W_hᵀ (P_hh)⁻¹ W_h), P = (Cov(z) + λI)⁻¹: the loss that remains *after* the best refit of W_O |
| `fisher` | F_h = E ‖A ∂y/∂g_h‖², see `multihead.edit.sensitivity` |
| `random` | drawn with a seed, the baseline |

`obs` is the optimal brain surgeon (Hassibi & Stork 1993) for blocks of columns: the part of a head's output that
the remaining heads cannot replace. s_l = Σ_h F_h / Σ_h E‖W_h z_h‖² converts an error of layer l to one of the
model's output. Each removal updates W −= P_:h P_hh⁻¹ W_h and P −= P_:h P_hh⁻¹ P_h:, so the next head is scored in
the layer without it.

>>> import torch, multihead as mh
>>> from multihead.edit.calibration import Calibration
>>> from multihead.edit.saliency import saliency
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> obs = saliency("obs", Calibration(model, [{"src": torch.randn(4, 7, 12)} for _ in range(8)]))
>>> before = obs.cost("L0", 1)
>>> obs.remove("L0", 0)
>>> obs.cost("L0", 1) > before                        # fewer heads can replace it now
True
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64
from torch import Tensor

from multihead.edit.calibration import Calibration
from multihead.errors import SizeError

RIDGE = 0.01
"""λ, relative to the mean of diag Cov(z): heads that never differ in the sample are not taken to be equal."""


@runtime_checkable
class Saliency(Protocol):
    """Costs of heads, by the name of their layer and their index. A removal changes costs in its layer only."""

    def cost(self, layer: str, head: int) -> float:
        """The loss if this head is removed next."""
        ...

    def joint_cost(self, layer: str, heads: Sequence[int]) -> float:
        """The loss if these heads are removed next: more than the sum if they replace each other."""
        ...

    def remove(self, layer: str, head: int) -> None:
        """Update the saliencies after this head was removed."""
        ...


def saliency(method: str, calibration: Calibration, *, seed: int = 0) -> Saliency:
    """The costs that a method assigns. Layers that share weights are scored as one; `seed` is that of `random`."""
    check_method(method)
    return METHODS[method](calibration, seed)


def check_method(method: object) -> None:
    """Raise unless `method` is the name of a saliency."""
    if not isinstance(method, str) or method not in METHODS:
        close = get_close_matches(str(method), METHODS, n=1)
        did_you_mean = f"did you mean {close[0]!r}? " if close else ""
        raise SizeError(f"unknown method {method!r}", hint=f"{did_you_mean}choose one of {', '.join(METHODS)}")


def _obs(calibration: Calibration, seed: int) -> Saliency:
    """The saliency by OBS: W_O scaled by sensitivity, and the covariance of its inputs."""
    weights: dict[str, Tensor] = {}
    heads: dict[str, int] = {}
    for layer, *_ in calibration.weight_sets:
        output = torch.stack([w.detach() for w in layer.W_O]).mT.double()
        scale = _output_scale(calibration.sensitivity[layer.name], output, calibration.covariance[layer.name])
        weights[layer.name] = scale**0.5 * output.flatten(0, 1)
        heads[layer.name] = layer.num_heads
    return OBSSaliency(weights, calibration.covariance, heads)


def _fisher(calibration: Calibration, seed: int) -> Saliency:
    return FixedSaliency({name: costs.tolist() for name, costs in calibration.sensitivity.items()})


def _random(calibration: Calibration, seed: int) -> Saliency:
    draw = random.Random(seed)
    sets = calibration.weight_sets
    return FixedSaliency({layer.name: [draw.random() for _ in range(layer.num_heads)] for layer, *_ in sets})


METHODS: dict[str, Callable[[Calibration, int], Saliency]] = {"obs": _obs, "fisher": _fisher, "random": _random}


class FixedSaliency:
    """Costs that do not depend on the heads already removed."""

    def __init__(self, costs: Mapping[str, Sequence[float]]) -> None:
        self.costs = costs

    def cost(self, layer: str, head: int) -> float:
        return float(self.costs[layer][head])

    def joint_cost(self, layer: str, heads: Sequence[int]) -> float:
        return sum(self.cost(layer, h) for h in heads)

    def remove(self, layer: str, head: int) -> None:
        """Other heads cost the same."""


class OBSSaliency:
    """tr(W_hᵀ (P_hh)⁻¹ W_h), with W and P of the remaining heads."""

    def __init__(
        self,
        weights: Mapping[str, Float64[Tensor, "column row"]],
        covariances: Mapping[str, Float64[Tensor, "column column"]],
        heads: Mapping[str, int],
        *,
        ridge: float = RIDGE,
    ) -> None:
        self._weights = dict(weights)
        self._inverse = {name: _inverse(c, ridge) for name, c in covariances.items()}
        self._remaining = {name: list(range(count)) for name, count in heads.items()}
        self._costs: dict[str, dict[int, float]] = {}
        """of layers whose heads were scored since the last removal"""

    def cost(self, layer: str, head: int) -> float:
        if layer not in self._costs:
            self._costs[layer] = {h: self.joint_cost(layer, [h]) for h in self._remaining[layer]}
        return self._costs[layer][head]

    def joint_cost(self, layer: str, heads: Sequence[int]) -> float:
        columns = torch.cat([self._columns(layer, h) for h in heads])
        w, p = self._weights[layer][columns], self._inverse[layer][columns][:, columns]
        return float((w * torch.linalg.solve(p, w)).sum())

    def remove(self, layer: str, head: int) -> None:
        """Remove a head from the saliencies of its layer: the others take over what they can."""
        columns, w, p = self._columns(layer, head), self._weights[layer], self._inverse[layer]
        gain = torch.linalg.solve(p[columns][:, columns], p[columns]).T  # P_:h P_hh⁻¹
        w, p = w - gain @ w[columns], p - gain @ p[columns]
        rest = torch.ones(len(w), dtype=torch.bool, device=w.device)
        rest[columns] = False
        self._weights[layer], self._inverse[layer] = w[rest], p[rest][:, rest]
        self._remaining[layer].remove(head)
        self._costs.pop(layer, None)

    def _columns(self, layer: str, head: int) -> Tensor:
        """The columns of W_O that read a head, among those of the remaining heads, for its saliency."""
        remaining, w = self._remaining[layer], self._weights[layer]
        dims, i = len(w) // len(remaining), remaining.index(head)
        return torch.arange(i * dims, (i + 1) * dims, device=w.device)


def _inverse(covariance: Float64[Tensor, "column column"], ridge: float) -> Float64[Tensor, "column column"]:
    diagonal = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return torch.linalg.inv(covariance + ridge * diagonal * eye)


def _output_scale(
    fisher: Float64[Tensor, " head"],
    output: Float64[Tensor, "head value_dim row"],
    covariance: Float64[Tensor, "column column"],
) -> float:
    """The scale of saliencies, s = Σ_h F_h / Σ_h E‖W_h z_h‖²: the model's error per error of the layer's output."""
    heads, dims, _ = output.shape
    blocks = covariance.view(heads, dims, heads, dims).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    size = float((output * (blocks @ output)).sum())
    return float(fisher.sum()) / size if size > 0 else 0.0
