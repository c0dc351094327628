"""G = E[Jᵀ AᵀA J], J = ∂y/∂gates: how much the model's own output moves with its heads, and with two at once.

A gate of 1 stands on every head of every document. Against the model's own output a loss has no slope there, but
½ ΔᵀGΔ for a change Δ of the gates (Gauss–Newton). Random signs r (Hutchinson 1990) give it from gradients alone:
E_r[∇(rᵀAy) ∇(rᵀAy)ᵀ] = G. The diagonal is what `multihead.measures.importance.gradients` calls fisher.

>>> import torch, multihead as mh
>>> from multihead.edit.calibration import Calibration
>>> from multihead.edit.choosing.curvature import curvature
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> text = Calibration(model, [{"src": torch.randn(4, 7, 12)} for _ in range(8)])
>>> found = curvature(model, [[mh.anatomy(model)[0]]], text)
>>> found.matrix.shape, bool((found.of("L0").diagonal() > 0).all())
(torch.Size([3, 3]), True)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.corpus.batch_generator import batch_generator
from multihead.corpus.data_parallel import shard
from multihead.edit.calibration import Calibration, Progress
from multihead.edit.choosing.head_covariance import Turns
from multihead.errors import MultiheadError
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.gradients import PROBES
from multihead.measures.importance.losses import LanguageModel, OutputDistance
from multihead.model.call import Call, Compute
from multihead.model.eval_mode import documents_in
from multihead.model.forward import Forward
from multihead.model.sites import Key

DOCUMENTS = 256
"""Documents that are enough: a gradient of each, for every probe."""


@dataclass(frozen=True)
class Curvature:
    """G over all heads; `places[layer]` are the rows of its heads."""

    matrix: Float64[Tensor, "head head"]
    places: dict[str, range]

    def of(self, layer: str) -> Float64[Tensor, "own own"]:
        """The block of one layer."""
        rows = self.places[layer]
        return self.matrix[rows.start : rows.stop, rows.start : rows.stop]


def own_loss(model: nn.Module, batch: Inputs) -> OutputDistance:
    """The distance to the model's own output: of its distribution where it has a head, else of its states.

    What an encoder without a head puts out is mostly pooled: there it is the cosine of the mean over tokens.
    """
    found = loss_for(model, batch)
    if isinstance(found, OutputDistance):
        return OutputDistance("sentence") if found.of == "hidden" and not found.two else found
    return OutputDistance("logits", two=found.two if isinstance(found, LanguageModel) else False)


def curvature(
    model: nn.Module,
    layers: Turns,
    calibration: Calibration,
    *,
    documents: int = DOCUMENTS,
    probes: int = PROBES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Curvature:
    """G over the first `documents` of the calibration text (they are in an order that was drawn)."""
    places: dict[str, range] = {}
    count = 0
    for same in layers:
        places[same[0].name] = range(count, count + same[0].num_heads)
        count += same[0].num_heads
    of_key = {layer.site.key: same[0].name for same in layers for layer in same}
    matrix, seen = torch.zeros(count, count, dtype=torch.float64), 0
    chosen: list[tuple[int, Inputs]] = []
    for index, batch in enumerate(calibration.fit()):
        if seen >= documents:
            break
        chosen.append((index, batch))
        seen += documents_in(batch)
    mine, summed = shard(chosen)
    loss, forward = own_loss(model, chosen[0][1]), Forward(model, grad=True)
    for done, (index, batch) in enumerate(mine, start=1):
        for rows in _slopes(forward, batch, index, loss, of_key, places, count, probes, seed):
            matrix += rows.T @ rows / probes
        if progress is not None:
            progress("sensitivity", done, len(mine))
    summed(matrix)
    return Curvature(matrix / max(seen, 1), places)


def _slopes(
    forward: Forward,
    batch: Inputs,
    index: int,
    loss: OutputDistance,
    of_key: dict[Key, str],
    places: dict[str, range],
    count: int,
    probes: int,
    seed: int,
) -> Iterator[Float64[Tensor, "document head"]]:
    """∂(rᵀAy_d)/∂gate of every document and head, once per probe."""
    inputs = loss.inputs(batch, index)
    size = documents_in(inputs)
    gates: dict[Key, Float[Tensor, "document head"]] = {}

    def listen(call: Call, run: Compute) -> HeadOutputs:
        heads, key = run(), call.key
        if key not in of_key:
            return heads
        if heads.shape[0] != size:
            raise MultiheadError(
                f"{call.path} attends in {heads.shape[0]} rows, the batch has {size} documents",
                hint="one document at a time: Calibration(..., batch_size=1)",
            )
        if key not in gates:
            gates[key] = heads.new_ones(size, heads.shape[1], dtype=torch.float32).requires_grad_()
        return heads * gates[key].to(heads.dtype)[:, :, None, None]

    with forward.listening(listen):
        seen = loss.read(forward.run(inputs))
        target = loss.target(batch, inputs, seen.detach())
        for probe in range(probes):
            each = loss.probe(seen, target, batch_generator(seed, index, probe)).masked_fill(~target.counts, 0.0)
            found = cast(
                Sequence[Tensor | None],
                torch.autograd.grad(
                    each.sum(), list(gates.values()), retain_graph=probe + 1 < probes, allow_unused=True
                ),
            )
            rows = torch.zeros(size, count, dtype=torch.float64)
            for key, slope in zip(gates, found, strict=True):
                at = places[of_key[key]]
                if slope is not None:  # turns of shared weights add up
                    rows[:, at.start : at.stop] += slope.double().cpu()
            yield rows
