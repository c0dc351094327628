"""What a layer loses if its heads share kv heads, after the best re-fit of W_O: in the unit of taking heads out.

Every rung of a layer's ladder (12 kv heads, 6, 4, …) is made: clusters, the joint factorisation, a copy of the
model with those weights in it. From the sums of one pass, z' into W_O and the original's output o,

    e = min_W E‖o − W z'‖²,      and of a head that then goes too      tr(W_hᵀ (P_hh)⁻¹ W_h),  P = Cov(z')⁻¹,

both times the sensitivity s_l that `scores` weighs errors of a layer with. So a rung is a starting error and a
surgeon of its own, and a search may go down the ladder and take heads out in any order.

>>> import torch, multihead as mh
>>> from multihead.edit.fitting.calibration import Calibration
>>> from multihead.edit.choosing.scores import scorer
>>> block = torch.nn.TransformerEncoderLayer(12, 4, batch_first=True)
>>> model = torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
>>> text = Calibration(model, [{"src": torch.randn(4, 17, 12)} for _ in range(8)])
>>> ladders = scorer("obs", model, [[layer] for layer in mh.anatomy(model)], text, group=True)
>>> [(len(clusters), cost > 0) for clusters, cost in ladders.steps("L1")]       # 4 kv heads become 2, or 1
[(2, True), (1, True)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from multihead.edit.choosing.contexts import Turns
from multihead.edit.choosing.scores import RIDGE, Clusters, Surgeon
from multihead.edit.fitting.calibration import PER_COLUMN, Calibration
from multihead.edit.fitting.gather import Sums, gather
from multihead.edit.fitting.refit import Progress, columns_of
from multihead.edit.fitting.resume import ROOM, Resumed, blocks_of
from multihead.edit.physical.surgery import arranged, install
from multihead.edit.sharing.group import grouped, ladder
from multihead.edit.sharing.moments import moments_of
from multihead.edit.weights import HeadWeights
from multihead.errors import MultiheadError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.intercept import inner


@dataclass
class Rung:
    """One way to share: what is lost by it, and a surgeon for the heads of such a layer."""

    clusters: Clusters
    lost: float
    """with the heads that are gone by now"""
    surgeon: Surgeon


class Ladders:
    """A `Sharer`: for every layer the rungs it may stand on, the uppermost first, which it stands on at first."""

    unit = "loss"

    def __init__(self, rungs: Mapping[str, list[Rung]], notes: list[str]) -> None:
        self._rungs = {name: list(some) for name, some in rungs.items()}
        self.notes = notes

    @staticmethod
    def of(
        model: nn.Module,
        layers: Turns,
        calibration: Calibration,
        surgeon: Surgeon,
        matters: Mapping[str, float],
        *,
        progress: Progress | None = None,
    ) -> Ladders:
        """Ladders of all layers; `surgeon` knows them as they are, `matters` is what an error of each counts."""
        rungs: dict[str, list[Rung]] = {}
        notes: list[str] = []
        blocks = blocks_of([layer.path for same in layers for layer in same])
        runs = Resumed([model, model], calibration.example(), hold=ROOM)
        for at, same in enumerate(layers):
            layer = same[0]
            if progress is not None:
                progress(f"kv heads of {layer.name}", at, len(layers))
            own = HeadWeights.of(layer)
            whole = tuple(
                tuple(h for h, i in enumerate(own.groups.kv_of_head) if i == kv) for kv in range(own.kv_heads)
            )
            rungs[layer.name] = [Rung(whole, 0.0, surgeon)]
            why = _cannot(same, own)
            if not why:
                runs.go_to(blocks[layer.path])
                try:
                    rungs[layer.name] += _made(model, layer, own, calibration, matters[layer.name], runs)
                except MultiheadError as wrong:
                    why = str(wrong).splitlines()[0]
            if why:
                notes.append(f"the kv heads of {layer.name} stay as they are: {why}")
        return Ladders(rungs, notes)

    def cost(self, layer: str, head: int) -> float:
        return self._rungs[layer][0].surgeon.cost(layer, head)

    def together(self, layer: str, heads: Sequence[int]) -> float:
        return self._rungs[layer][0].surgeon.together(layer, heads)

    def remove(self, layer: str, head: int) -> None:
        for rung in self._rungs[layer]:
            rung.lost += rung.surgeon.cost(layer, head)
            rung.surgeon.remove(layer, head)

    def steps(self, layer: str) -> list[tuple[Clusters, float]]:
        now, *further = self._rungs[layer]
        return [(rung.clusters, rung.lost - now.lost) for rung in further]

    def share(self, layer: str, clusters: Clusters) -> None:
        self._rungs[layer] = self._rungs[layer][[r.clusters for r in self._rungs[layer]].index(clusters) :]


def _cannot(same: Sequence[LayerAnatomy], own: HeadWeights) -> str:
    """Why a layer cannot share, if it cannot."""
    if len(same) > 1:
        return "several layers have its weights, and none of them is fitted again"
    if same[0].site.cross:
        return "it looks at another sequence"
    return "it has one" if own.kv_heads == 1 else ""


def _made(
    model: nn.Module, layer: LayerAnatomy, own: HeadWeights, calibration: Calibration, matters: float, runs: Resumed
) -> list[Rung]:
    """The rungs below the first. The text of 25 tokens per column of W_O is enough for them."""
    enough = PER_COLUMN * own.heads * own.o.shape[2]
    moments = moments_of(model, layer, calibration.sample(enough), run=runs)
    found: list[Rung] = []
    name = layer.weights["o"].parameter
    for rung in list(ladder(layer, own, moments).values())[1:]:
        new, student = arranged(grouped(own, rung.clusters, moments)), deepcopy(model)
        install(student, layer, new, inputs=calibration.example())
        runs.models[1] = student  # in front of this layer it is the model
        sums = gather(model, student, name, calibration.sample(enough), bias=True, run=runs)
        weight = inner(student).get_parameter(name).detach()
        columns = columns_of(weight if layer.weights["o"].axis == 1 else weight.T, new, layer.name)
        order = [new.origin.index(h) for h in range(own.heads)]
        dims = own.o.shape[2]
        rows = torch.tensor(columns).view(own.heads, dims)[order].flatten()
        lost, best, covariance = _fitted(sums, rows, new.o[order].mT.flatten(0, 1).double())
        surgeon = Surgeon({layer.name: matters**0.5 * best}, {layer.name: covariance}, {layer.name: own.heads})
        found.append(Rung(rung.clusters, matters * lost, surgeon))
    runs.models[1] = model
    return found


def _fitted(
    sums: Sums, rows: Tensor, now: Float64[Tensor, "column row"]
) -> tuple[float, Float64[Tensor, "column row"], Float64[Tensor, "column column"]]:
    """(E‖o − W z‖² at the best W, that W, Cov(z)): the constant is free, columns in the order of `rows`."""
    mean = sums.zz[-1, :-1][rows] / sums.tokens
    rest = sums.zr[-1] / sums.tokens
    covariance = sums.zz[rows][:, rows] / sums.tokens - mean[:, None] * mean
    crossed = sums.zr[rows] / sums.tokens - mean[:, None] * rest
    ridge = RIDGE * covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    pulled = covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    change = torch.linalg.solve(pulled, crossed)
    missing = sums.missing / sums.tokens - float(rest.square().sum())
    lost = missing - float((change * (2 * crossed - covariance @ change)).sum())
    return max(lost, 0.0), now + change, covariance
