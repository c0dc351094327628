"""What it costs to take a head out, given those that are out already: three ways to say it.

| method | cost of head h, with S gone already |
|---|---|
| `random` | drawn by a seed: the baseline |
| `fisher` | G_hh = E ‖A ∂y/∂gate_h‖²: the Gauss–Newton diagonal (`multihead.measures.importance.gradients`) |
| `obs` | s_l · tr(W_hᵀ (P_hh)⁻¹ W_h), P = (Cov(c) + λI)⁻¹: what is lost *after* the best re-fit of W_O |

`obs` is the optimal brain surgeon (Hassibi & Stork 1993) for blocks: the part of a head's output that the heads
that stay cannot stand in for. s_l = Σ_h G_hh / Σ_h E‖W_h c_h‖² says how much an error of layer l moves the model's
output. With every head that goes, W −= P_:h P_hh⁻¹ W_h and P −= P_:h P_hh⁻¹ P_h:, so that the next one is judged
by the layer that is left.

>>> import torch, multihead as mh
>>> from multihead.edit.calibration import Calibration
>>> from multihead.edit.choosing.scores import scorer
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> text = Calibration(model, [{"src": torch.randn(4, 7, 12)} for _ in range(8)])
>>> score = scorer("obs", model, [[mh.anatomy(model)[0]]], text)
>>> before = score.cost("L0", 1)
>>> score.remove("L0", 0)
>>> score.cost("L0", 1) > before                        # fewer can stand in for it now
True
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from multihead.edit.calibration import Calibration, Progress
from multihead.edit.choosing.curvature import curvature
from multihead.edit.choosing.head_covariance import Turns, head_covariance
from multihead.errors import SizeError

METHODS = ("obs", "fisher", "random")
RIDGE = 0.01
"""of the mean of diag Cov(c): what heads that never differ would have in common is not taken for certain"""


@runtime_checkable
class Scorer(Protocol):
    """Costs of heads, by layer name and number; they change as heads are removed."""

    unit: str

    def cost(self, layer: str, head: int) -> float:
        """What is lost if this head goes next."""
        ...

    def together(self, layer: str, heads: Sequence[int]) -> float:
        """What is lost if these go next: more than the sum where they stand in for each other."""
        ...

    def remove(self, layer: str, head: int) -> None:
        """The head is gone."""
        ...


def scorer(
    method: str,
    model: nn.Module,
    layers: Turns,
    calibration: Calibration,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Scorer:
    """The scorer of a method. Layers that share weights are scored as one: their costs add up."""
    if method not in METHODS:
        raise SizeError(f"method={method!r} is not known", hint=f"choose one of {', '.join(METHODS)}")
    if method == "random":
        draw = random.Random(seed)
        return Fixed({s[0].name: [draw.random() for _ in range(s[0].num_heads)] for s in layers}, "drawn")
    found = curvature(model, layers, calibration, seed=seed, progress=progress)
    if method == "fisher":
        return Fixed({name: found.of(name).diagonal().tolist() for name in found.places}, "loss")

    def told(done: int) -> None:
        if progress is not None:
            progress("heads", done, len(calibration))

    covariances = head_covariance(model, layers, calibration.fit(), progress=told)
    outputs = {s[0].name: torch.stack([w.detach() for w in s[0].W_O]).mT.double() for s in layers}
    matters = {name: _sensitivity(found.of(name), outputs[name], covariances[name]) for name in outputs}
    weighted = {name: matters[name] ** 0.5 * outputs[name].flatten(0, 1) for name in outputs}
    return Surgeon(weighted, covariances, {s[0].name: s[0].num_heads for s in layers})


class Fixed:
    """Costs that nothing changes."""

    def __init__(self, costs: dict[str, Sequence[float]], unit: str) -> None:
        self.costs, self.unit = costs, unit

    def cost(self, layer: str, head: int) -> float:
        return float(self.costs[layer][head])

    def together(self, layer: str, heads: Sequence[int]) -> float:
        return sum(self.cost(layer, h) for h in heads)

    def remove(self, layer: str, head: int) -> None:
        pass


class Surgeon:
    """tr(W_hᵀ (P_hh)⁻¹ W_h), with W and P of the heads that are left; W is weighted by what errors of it matter."""

    unit = "loss"

    def __init__(
        self,
        weights: dict[str, Float64[Tensor, "column row"]],
        covariances: dict[str, Float64[Tensor, "column column"]],
        heads: dict[str, int],
        *,
        ridge: float = RIDGE,
    ) -> None:
        self._weights = {name: w.clone() for name, w in weights.items()}
        self._inverse = {name: _inverse(c, ridge) for name, c in covariances.items()}
        self._left = {name: list(range(count)) for name, count in heads.items()}
        self._known: dict[str, dict[int, float]] = {}

    def cost(self, layer: str, head: int) -> float:
        if layer not in self._known:
            self._known[layer] = {h: self._cost(layer, h) for h in self._left[layer]}
        return self._known[layer][head]

    def together(self, layer: str, heads: Sequence[int]) -> float:
        slices = [self._slice(layer, h) for h in heads]
        at = torch.tensor([i for some in slices for i in range(some.start, some.stop)], dtype=torch.long)
        w, p = self._weights[layer][at], self._inverse[layer][at][:, at]
        return float((w * torch.linalg.solve(p, w)).sum())

    def remove(self, layer: str, head: int) -> None:
        at, w, p = self._slice(layer, head), self._weights[layer], self._inverse[layer]
        gain = torch.linalg.solve(p[at, at], p[at]).T  # P_:h P_hh⁻¹
        w, p = w - gain @ w[at], p - gain @ p[at]
        rest = torch.tensor([i for i in range(len(w)) if not at.start <= i < at.stop], dtype=torch.long)
        self._weights[layer], self._inverse[layer] = w[rest], p[rest][:, rest]
        self._left[layer].remove(head)
        self._known.pop(layer, None)

    def _slice(self, layer: str, head: int) -> slice:
        left = self._left[layer]
        dims, i = len(self._weights[layer]) // len(left), left.index(head)
        return slice(i * dims, (i + 1) * dims)

    def _cost(self, layer: str, head: int) -> float:
        at, w, p = self._slice(layer, head), self._weights[layer], self._inverse[layer]
        return float((w[at] * torch.linalg.solve(p[at, at], w[at])).sum())


def _inverse(covariance: Float64[Tensor, "column column"], ridge: float) -> Float64[Tensor, "column column"]:
    diagonal = covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return torch.linalg.inv(covariance + ridge * diagonal * eye)


def _sensitivity(
    matrix: Float64[Tensor, "head head"],
    output: Float64[Tensor, "head value_dim row"],
    covariance: Float64[Tensor, "column column"],
) -> float:
    """s = Σ_h G_hh / Σ_h E‖W_h c_h‖²: how much of an error of the layer's output reaches the model's."""
    dims = output.shape[1]
    size = sum(
        float((w * (covariance[h * dims : (h + 1) * dims, h * dims : (h + 1) * dims] @ w)).sum())
        for h, w in enumerate(output)
    )
    return float(matrix.diagonal().sum()) / size if size > 0 else 0.0
