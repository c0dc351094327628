"""E_d |∂L_d / ∂gate| of every head: how strongly the loss of a document depends on the head (Michel et al. 2019).

Every head has a gate per document, equal to 1. One backward pass per batch then yields a separate gradient for each
document, so gradients of opposite sign do not cancel. With s_d the differentiated function of document d:

    importance = E_d |∂s_d/∂g|          fisher = E_d (∂s_d/∂g)²

For a loss with labels, s_d = L_d: importance is Michel's, fisher the diagonal of the empirical Fisher information.

The distance to the model's own outputs is 0 for the intact model, and so is its gradient. To second order it is
L_d ≈ ½ ‖A Δy_d‖² (A: see `OutputDistance`). Removing a head changes y by Δy ≈ −∂y/∂g, so L_d ≈ ½ ‖A ∂y_d/∂g‖², the
Gauss–Newton form. Hence s_d = rᵀ A y_d with random signs r (Hutchinson 1990), as E_r (∂s_d/∂g)² = ‖A ∂y_d/∂g‖².
½ fisher then predicts the ablation to second order, and importance is how far the outputs move along a random
direction. Each of the `probes` is one more backward pass through the same graph.

>>> import torch
>>> from torch import nn
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> from multihead.measures.importance.gradients import Gradients
>>> from multihead.measures.importance.losses import OutputDistance
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> gradients = Gradients(OutputDistance())
>>> _ = run(model, Corpus(model, {"src": torch.randn(5, 7, 12)}), [gradients])
>>> bool((gradients.columns()["importance"] > 0).all()), model.layers[0].linear1.weight.grad is None
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, BatchRun, Inputs, State
from multihead.corpus.batch_generator import batch_generator
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.head_moments import NO_DOCUMENT, NO_EFFECT, HeadMoments, check_documents
from multihead.measures.importance.losses import Loss, OutputDistance, PerDocument, Target
from multihead.model.call import Call
from multihead.model.model_inputs import documents_in
from multihead.model.sites import Key, Sites
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

SUMS = ("size", "square", "signed")
PROBES = 4


class Gradients(HeadMoments):
    """One forward and one backward pass per batch; for `OutputDistance`, one backward pass per probe."""

    name = "gradients"
    grad = True

    def __init__(
        self,
        loss: Loss,
        *,
        normalise: bool = False,
        probes: int = PROBES,
        seed: int = 0,
        shared: Mapping[Key, Key] | None = None,
    ) -> None:
        """Args:

        normalise: divide the importance by its L2 norm over the heads of a layer, as Michel et al. do.
        shared: attentions that use the weights of an earlier one, and its key. One gate scales a head in all of
            them, and the head is listed once: that of the earlier one.
        """
        if probes < 1:
            raise SizeError(
                f"probes must be at least 1, got {probes}", hint="each costs one backward pass; 4 are enough"
            )
        super().__init__(len(SUMS))
        self.loss, self.normalise, self.seed = loss, normalise, seed
        self.shared: Mapping[Key, Key] = shared or {}
        self.probes = probes if loss.is_distance else 1
        self.forwards = 3.0 * self.probes
        self._layers: list[int] = []
        """number of heads of each attention"""
        self._gates = _DocumentGates(0, self.shared)

    def inputs(self, batch: Batch) -> Inputs:
        inputs = self.loss.inputs(batch.inputs, batch.index)
        self._gates = _DocumentGates(documents_in(inputs), self.shared)
        return inputs

    def change(self, call: Call, out: HeadOutputs) -> HeadOutputs:
        return self._gates.gated(call, out)

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Add the gradients of this batch's loss by every head's gate."""
        rows, sites = self.slopes(batch, run), self._gates.sites
        sums = torch.stack([rows.abs().mean(0), rows.square().mean(0), rows.mean(0)])
        self.add_documents(sites.heads, sums)
        self._layers = [site.heads for site in sites]
        self._gates = _DocumentGates(0, self.shared)

    def slopes(self, batch: Batch, run: BatchRun) -> Float[Tensor, "probe head document"]:
        """Gradients ∂s_d/∂g by every head and document, once per probe; NaN for documents that do not count."""
        seen = self.loss.read(run.output)
        target = self.loss.target(batch.inputs, run.inputs, seen.detach())
        self.loss.checked(seen.detach(), target, batch.index)
        if not isinstance(self.loss, OutputDistance):
            return self._gates.slopes(self.loss.documents(seen, target), target)[None]
        signs = [batch_generator(self.seed, batch.index, probe) for probe in range(self.probes)]
        return torch.stack([self._gates.slopes(self.loss.probe(seen, target, r), target) for r in signs])

    # ---- states and columns -------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return super().state() | {"layers": list(self._layers)}

    def load(self, state: State) -> None:
        super().load(state)
        self._layers = list(state["layers"])

    def columns(self) -> HeadTable:
        """The table's columns of gradient importance, with standard errors."""
        distance = self.loss.is_distance
        size, error = self.mean_and_error(0)
        norm = self._norms(size) if self.normalise else torch.ones_like(size)
        text = "estimated by gradients: E |∂L/∂gate| over documents (Michel 2019)"
        if distance:
            text = "estimated by gradients: E |∂(rᵀAy)/∂gate|, how far the outputs move"
        per_layer = "; divided by its L2 norm over the layer" if self.normalise else ""
        unit = "share" if self.normalise else "√loss" if distance else "loss"
        columns = {
            "importance": size / norm,
            "importance_error": error / norm,
            "fisher": self.mean_and_error(1)[0],
        }
        meaning = {
            "importance": ColumnInfo(unit, text + per_layer),
            "importance_error": ColumnInfo(unit, "standard error of importance over documents"),
            "fisher": ColumnInfo(
                "loss" if distance else "loss²",
                "E ‖A ∂y/∂gate‖²; its half predicts the ablation (Gauss–Newton)" if distance else "E (∂L/∂gate)²",
            ),
        }
        if not distance:
            columns["gradient"] = self.mean_and_error(2)[0]
            meaning["gradient"] = ColumnInfo(
                "loss", "E ∂L/∂gate, signed; without the head the loss changes by −this"
            )
        no_effect = [h for h, zero in zip(self.heads, (size == 0).tolist(), strict=True) if zero]
        reasons = {name: dict.fromkeys(no_effect, NO_EFFECT) for name in columns if no_effect}
        if not int(self.moments.count[0].max()):
            reasons |= {name: dict.fromkeys(self.heads, NO_DOCUMENT) for name in columns}
        no_error = self.error_reasons(error)
        reasons |= {"importance_error": no_error} if no_error else {}
        about = {
            "loss": self.loss.name,
            "documents": int(self.moments.count[0].max()),
            "notes": list(self.notes),
            "normalised": self.normalise,
        } | ({"probes": self.probes} if distance else {})
        return HeadTable(tuple(self.heads), columns, meaning, reasons, about)

    def _norms(self, size: Float[Tensor, " head"]) -> Float[Tensor, " head"]:
        """√Σ importance² over each head's layer, to normalise gradients; 1 where it is 0."""
        parts = [part.norm().expand(len(part)) for part in size.split(self._layers)]
        norm = torch.cat(parts)
        return torch.where(norm > 0, norm, torch.ones_like(norm))


class _DocumentGates:
    """A gate for every head and document, z ← g z with g = 1, for separate gradients per document."""

    def __init__(self, documents: int, shared: Mapping[Key, Key]) -> None:
        self.documents, self.shared, self.sites = documents, shared, Sites()
        self.of: dict[Key, Float[Tensor, "document head"]] = {}

    def gated(self, call: Call, heads: HeadOutputs) -> HeadOutputs:
        """Head outputs times a gate per document, whose gradient is the importance."""
        check_documents(self.documents, call.problem.coordinates.batch)
        key = self.shared.get(call.key, call.key)
        if key not in self.of:
            self.sites.register(call.site)
            like = heads.new_empty(0, dtype=torch.promote_types(heads.dtype, torch.float32))
            self.of[key] = like.new_ones(self.documents, heads.shape[1]).requires_grad_()
        return heads * self.of[key].to(heads.dtype)[:, :, None, None]

    def slopes(self, s: PerDocument, target: Target) -> Float[Tensor, "head document"]:
        """Gradients ∂s_d/∂g by every gate; NaN for documents that do not count.

        The gradient of Σ_d s_d suffices, because a document does not depend on the gates of others.
        """
        total = s.masked_fill(~target.counts, 0.0).sum()
        gates = list(self.of.values())
        if not total.requires_grad:
            raise MultiheadError(
                "the loss must have a gradient, but it does not depend on any head or was detached",
                hint="compute the loss from the model's output without .detach(), .item() or torch.no_grad()",
            )
        slopes: list[Tensor | None] = [*torch.autograd.grad(total, gates, retain_graph=True, allow_unused=True)]
        filled = [torch.zeros_like(g) if d is None else d for g, d in zip(gates, slopes, strict=True)]
        return torch.cat(filled, dim=1).T.double().masked_fill(~target.counts, torch.nan)
