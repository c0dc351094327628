"""What a layer loses if its heads share kv heads, after the best re-fit of W_O: in the unit of taking heads out.

Every rung of a layer's ladder (12 kv heads, 6, 4, …) is made: clusters, the joint factorisation, a copy of the
model with those weights in it. From the sums of one pass, z' into W_O and the original's output o, come the best W,

    e = min_W E‖o − W z'‖²,      and of a head that then goes too      tr(W_hᵀ (P_hh)⁻¹ W_h),  P = Cov(z')⁻¹.

With W in its place the copy is run on held-out text: how far its output moves is what the rung costs. A copy
without the cheaper half of the heads is run as well: how far that moves the output, against what the surgeon said,
is the factor that brings the costs of heads to the same unit. So a rung is a loss to start from and a surgeon of
its own, and a search may go down the ladder and take heads out in any order.

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
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor, nn

from multihead.edit.choosing.curvature import own_loss
from multihead.edit.choosing.head_covariance import Turns
from multihead.edit.choosing.scores import RIDGE, Clusters, Surgeon
from multihead.edit.fitting.calibration import PER_COLUMN, Calibration, tokens_in
from multihead.edit.fitting.gather import gather
from multihead.edit.fitting.refit import Progress, columns_of
from multihead.edit.fitting.resume import ROOM, Resumed, blocks_of
from multihead.edit.physical.surgery import arranged, install
from multihead.edit.sharing.group import grouped, ladder
from multihead.edit.sharing.moments import moments_of
from multihead.errors import MultiheadError
from multihead.measures.importance.losses import Target
from multihead.model.anatomy import LayerAnatomy
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.statistics.cross_moments import CrossMoments

JUDGED = 2048
"""Held-out tokens that a rung is judged by."""


@dataclass
class Rung:
    """One way to share: what is lost by it, and a surgeon for the heads of such a layer."""

    clusters: Clusters
    lost: float
    """with the heads that are gone by now"""
    surgeon: Surgeon
    matters: float
    """what an error of the layer's output counts, in the surgeon's numbers"""
    scale: float = 1.0
    """what these must be multiplied with"""


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
        judge = _Judge(model, calibration)
        for at, same in enumerate(layers):
            layer = same[0]
            if progress is not None:
                progress(f"kv heads of {layer.name}", at, len(layers))
            own = HeadWeights.of(layer)
            whole = tuple(
                tuple(h for h, i in enumerate(own.groups.kv_of_head) if i == kv) for kv in range(own.kv_heads)
            )
            top = Rung(whole, 0.0, surgeon, matters[layer.name])
            rungs[layer.name] = [top]
            why = _cannot(same, own)
            if not why:
                runs.go_to(blocks[layer.path])
                try:
                    rungs[layer.name] += _made(model, layer, calibration, top, runs, judge)
                except MultiheadError as wrong:
                    why = str(wrong).splitlines()[0]
            if why:
                notes.append(f"the kv heads of {layer.name} stay as they are: {why}")
        return Ladders(rungs, notes)

    def cost(self, layer: str, head: int) -> float:
        now = self._rungs[layer][0]
        return now.scale * now.surgeon.cost(layer, head)

    def together(self, layer: str, heads: Sequence[int]) -> float:
        now = self._rungs[layer][0]
        return now.scale * now.surgeon.together(layer, heads)

    def remove(self, layer: str, head: int) -> None:
        for rung in self._rungs[layer]:
            rung.lost += rung.scale * rung.surgeon.cost(layer, head)
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
    if same[0].latent is not None:
        return "its keys and values come from a latent vector"
    if same[0].gated:
        return "a gate multiplies its heads' outputs"
    return "it has one" if own.kv_heads == 1 else ""


class _Judge:
    """How far a model's output is from the original's, on held-out text; twice the loss, as `scores` count."""

    def __init__(self, model: nn.Module, calibration: Calibration) -> None:
        self.cases: list[tuple[dict[str, Any], Target]] = []
        self.loss = own_loss(model, calibration.example())
        seen = 0
        forward = Forward(model)
        with forward.listening():
            for index, batch in enumerate(calibration.held_out()):
                inputs = self.loss.inputs(batch, index)
                output = self.loss.read(forward.run(inputs))
                self.cases.append((inputs, self.loss.target(batch, inputs, output)))
                seen += tokens_in(batch)
                if seen >= JUDGED:
                    break

    def __call__(self, model: nn.Module) -> float:
        forward = Forward(model)
        with forward.listening():
            losses = [self.loss.documents(self.loss.read(forward.run(x)), target) for x, target in self.cases]
        return 2 * float(torch.cat(losses).double().mean())


@dataclass
class _Trial:
    """Tries heads in the place of a layer's own, W_O fitted again."""

    model: nn.Module
    layer: LayerAnatomy
    calibration: Calibration
    enough: int
    runs: Resumed
    judge: _Judge

    def __call__(self, new: HeadWeights) -> tuple[HeadWeights, Float64[Tensor, "column column"], float]:
        """(The heads with their W_O, the covariance of what they give, what the model's output moves.)"""
        student, part, example = deepcopy(self.model), self.layer.weights["o"], self.calibration.example()
        install(student, self.layer, new, inputs=example)
        self.runs.models[1] = student  # in front of this layer it is the model
        text = self.calibration.sample(self.enough)
        sums = gather(self.model, student, part.parameter, text, bias=True, run=self.runs)
        self.runs.models[1] = self.model
        weight = inner(student).get_parameter(part.parameter).detach()
        columns = columns_of(weight if part.axis == 1 else weight.T, new, self.layer.name)
        fit = _fitted(sums.moments, torch.tensor(columns))
        o = new.o + fit.change.unflatten(0, (new.heads, -1)).mT.to(new.o)
        b_o = None if new.b_o is None else new.b_o + fit.shift.to(new.b_o)
        fitted = replace(new, o=o, b_o=b_o)
        install(student, self.layer, fitted, inputs=example)
        return fitted, fit.covariance, self.judge(student)


def _made(
    model: nn.Module, layer: LayerAnatomy, calibration: Calibration, top: Rung, runs: Resumed, judge: _Judge
) -> list[Rung]:
    """The rungs below the first, whose scale is set. 25 tokens per column of W_O are enough for them."""
    own, name = HeadWeights.of(layer), layer.name
    heads, dims = own.heads, own.o.shape[2]
    trial = _Trial(model, layer, calibration, PER_COLUMN * heads * dims, runs, judge)
    moments = moments_of(model, layer, calibration.sample(trial.enough), run=runs)
    cheap = sorted(range(heads), key=lambda h: top.surgeon.cost(name, h))[: heads // 2]
    _, _, moved = trial(arranged(own.keep([h for h in range(heads) if h not in cheap])))
    said = top.surgeon.together(name, cheap)
    top.scale = moved / said if said > 0 and moved > 0 else 1.0
    found: list[Rung] = []
    for rung in list(ladder(layer, own, moments).values())[1:]:
        new, covariance, moved = trial(arranged(grouped(own, rung.clusters, moments)))
        order = torch.tensor([new.origin.index(h) for h in range(heads)])
        at = (order[:, None] * dims + torch.arange(dims)).flatten()
        best = top.matters**0.5 * new.o[order].mT.flatten(0, 1).double()
        surgeon = Surgeon({name: best}, {name: covariance[at][:, at]}, {name: heads})
        found.append(Rung(rung.clusters, moved, surgeon, top.matters, top.scale))
    return found


@dataclass(frozen=True)
class _Fit:
    """The best change of W_O for z, the constant that goes with it, and Cov(z)."""

    change: Float64[Tensor, "column row"]
    shift: Float64[Tensor, " row"]
    covariance: Float64[Tensor, "column column"]


def _fitted(moments: CrossMoments, columns: Int[Tensor, " column"]) -> _Fit:
    """Least squares with the ridge of the scores; columns in this order."""
    mean, rest = moments.mean[columns], moments.target_mean
    covariance, crossed = moments.covariance()[columns][:, columns], moments.cross_covariance()[columns]
    ridge = RIDGE * covariance.diagonal().mean().clamp_min(torch.finfo(torch.float32).tiny)
    pulled = covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    change = torch.linalg.solve(pulled, crossed)
    return _Fit(change, rest - mean @ change, covariance)
