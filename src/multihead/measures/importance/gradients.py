"""E_d |∂L_d / ∂gate| of every head: how much the loss of a document would move with the head (Michel et al. 2019).

Every document has a gate of its own on every head, all 1: one backward pass per batch gives the gradient of each
document apart, so that those of opposite sign do not cancel. With s_d what is differentiated:

    importance = E_d |∂s_d/∂g|          fisher = E_d (∂s_d/∂g)²

For a loss with labels s_d = L_d: importance is Michel's, fisher the diagonal of the empirical Fisher information.

The distance to the model's own outputs is 0 where it is taken and so is its gradient. It is L_d ≈ ½ ‖A Δy_d‖² there
(A: see `OutputDistance`), and with Δy = −∂y/∂g for a head that is taken out, L_d ≈ ½ ‖A ∂y_d/∂g‖², the Gauss–Newton
form. So s_d = rᵀ A y_d with random signs r (Hutchinson 1990), for which E_r (∂s_d/∂g)² = ‖A ∂y_d/∂g‖²: ½ fisher
predicts the ablation to second order, and importance is how far the outputs move along a random direction. Each of
`probes` is one more backward pass through the same graph.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.importance.gradients import Gradients
>>> from multihead.measures.importance.losses import OutputDistance
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> stage = Gradients(model, OutputDistance())
>>> stage.step({"src": torch.randn(5, 7, 12)})
>>> bool((stage.table["importance"] > 0).all()), model.layers[0].linear1.weight.grad is None
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch
from multihead.corpus.batch_generator import batch_generator
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.ablation import NOTHING, UNSEEN, error_reasons, mean_and_error, merged_importance
from multihead.measures.importance.losses import Loss, OutputDistance, PerDocument, Seen, Target
from multihead.model.call import Call, Compute
from multihead.model.eval_mode import documents_in
from multihead.model.forward import Forward
from multihead.model.intercept import inner
from multihead.model.known import note, seen_sites
from multihead.model.missing import nothing_found
from multihead.model.sites import Key
from multihead.model.statistics.moments import Moments
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

KEPT = ("size", "square", "signed")
PROBES = 4


class Gradients:
    """A stage: one forward and one backward pass per batch (one per probe for a distance to own outputs)."""

    name = "gradients"

    def __init__(
        self, model: nn.Module, loss: Loss, *, normalise: bool = False, probes: int = PROBES, seed: int = 0
    ) -> None:
        """`normalise`: divide the importance by its L2 norm over the heads of a layer, as Michel et al. do."""
        if probes < 1:
            raise SizeError(f"probes={probes} is less than 1", hint="each is one backward pass; 4 are enough")
        self.model, self.loss, self.normalise, self.seed = model, loss, normalise, seed
        self.probes = probes if loss.own else 1
        self.batches = 0
        self.heads: list[str] = []
        self.notes: list[str] = []
        self._moments: Moments | None = None
        self._layers: list[int] = []
        """heads of each attention"""

    # ---- one batch ----------------------------------------------------------------------------

    def step(self, batch: Batch) -> None:
        inputs = self.loss.inputs(batch, self.batches)
        gates = _DocumentGates(self.model, documents_in(inputs))
        forward = Forward(self.model, grad=True)
        with forward.listening(gates.listen):  # layers that are checkpointed run again in the backward pass
            seen = self.loss.read(forward.run(inputs))
            if not gates.of:
                raise nothing_found(inner(self.model), 1)
            target = self.loss.target(batch, inputs, seen.detach())
            self.loss.checked(seen.detach(), target, self.batches)
            slopes = [gates.slopes(s, target) for s in self._differentiated(seen, target)]
        self.notes += [n for n in forward.notes if n not in self.notes]
        rows = torch.stack(slopes)  # probe, head, document
        self._begin(gates)
        assert self._moments is not None
        table = torch.stack([rows.abs().mean(0), rows.square().mean(0), rows.mean(0)])
        self._moments.add(table.cpu(), slice(0, len(self.heads)), range(len(KEPT)))
        self.batches += 1

    def _differentiated(self, seen: Seen, target: Target) -> Iterator[PerDocument]:
        """s_d of every document, once per probe."""
        if not isinstance(self.loss, OutputDistance):
            yield self.loss.documents(seen, target)
            return
        for probe in range(self.probes):
            yield self.loss.probe(seen, target, batch_generator(self.seed, self.batches, probe))

    def _begin(self, gates: _DocumentGates) -> None:
        named = seen_sites(self.model)
        sites = [named[key] for key in gates.of]
        names = [site.name(head) for site in sites for head in range(site.heads)]
        if not self.heads:
            self.heads, self._layers = names, [site.heads for site in sites]
            self._moments = Moments([None] * len(KEPT), len(names))
        if names != self.heads:
            raise MultiheadError(
                f"batch {self.batches} ran {len(names)} heads, those before {len(self.heads)}",
                hint="every batch must run the whole model",
            )

    # ---- keeping and reading ------------------------------------------------------------------

    def begin(self, batch: int) -> None:
        self.batches = batch

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        return merged_importance(first, second, ("moments",))

    def state(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "heads": list(self.heads),
            "layers": list(self._layers),
            "notes": list(self.notes),
            "moments": None if self._moments is None else self._moments.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.batches, self._layers = int(state["batches"]), list(state["layers"])
        self.heads, self.notes = list(state["heads"]), list(state["notes"])
        self._moments = None
        if state["moments"] is not None:
            self._moments = Moments([None] * len(KEPT), len(self.heads))
            self._moments.load(state["moments"])

    @property
    def table(self) -> HeadTable:
        if self._moments is None:
            raise MultiheadError("no batch was taken in yet", hint="stage.step(batch) first")
        own = self.loss.own
        size, error = mean_and_error(self._moments, 0)
        norm = self._norms(size) if self.normalise else torch.ones_like(size)
        said = "E |∂(rᵀAy)/∂gate|, how far the outputs move" if own else "E |∂L/∂gate| over documents (Michel 2019)"
        per_layer = "; divided by its L2 norm over the layer" if self.normalise else ""
        unit = "share" if self.normalise else "√loss" if own else "loss"
        columns = {
            "importance": size / norm,
            "importance_error": error / norm,
            "fisher": mean_and_error(self._moments, 1)[0],
        }
        meaning = {
            "importance": Meaning(unit, said + per_layer),
            "importance_error": Meaning(unit, "standard error of importance over documents"),
            "fisher": Meaning(
                "loss" if own else "loss²",
                "E ‖A ∂y/∂gate‖²; its half predicts the ablation (Gauss–Newton)" if own else "E (∂L/∂gate)²",
            ),
        }
        if not own:
            columns["gradient"] = mean_and_error(self._moments, 2)[0]
            meaning["gradient"] = Meaning("loss", "E ∂L/∂gate, signed; without the head the loss changes by −this")
        unseen = [h for h, zero in zip(self.heads, (size == 0).tolist(), strict=True) if zero]
        reasons = {name: dict.fromkeys(unseen, UNSEEN) for name in columns if unseen}
        if not int(self._moments.count[0].max()):
            reasons |= {name: dict.fromkeys(self.heads, NOTHING) for name in columns}
        none = error_reasons(self.heads, error)
        reasons |= {"importance_error": none} if none else {}
        about = {
            "loss": self.loss.name,
            "documents": int(self._moments.count[0].max()),
            "notes": list(self.notes),
            "normalised": self.normalise,
        } | ({"probes": self.probes} if own else {})
        return HeadTable(tuple(self.heads), columns, meaning, reasons, about)

    def _norms(self, size: Float[Tensor, " head"]) -> Float[Tensor, " head"]:
        """√Σ importance² of each head's layer; 1 where that is 0."""
        parts = [part.norm().expand(len(part)) for part in size.split(self._layers)]
        norm = torch.cat(parts)
        return torch.where(norm > 0, norm, torch.ones_like(norm))


class _DocumentGates:
    """A gate for every head and document: z ← g z with g = 1, whose gradients stay apart."""

    def __init__(self, model: nn.Module, documents: int) -> None:
        self.model, self.documents = model, documents
        self.of: dict[Key, Float[Tensor, "document head"]] = {}

    def listen(self, call: Call, run: Compute) -> HeadOutputs:
        heads, key, frame = run(), call.key, call.problem.frame
        if frame.batch != self.documents > 1:
            raise MultiheadError(
                f"{call.path} attends in {frame.batch} rows, the batch has {self.documents} documents: whose they "
                "are cannot be told",
                hint="one document at a time: batch_size=1; the batch axis of a model comes first",
            )
        if key not in self.of:
            note(self.model, call)
            like = heads.new_empty(0, dtype=torch.promote_types(heads.dtype, torch.float32))
            self.of[key] = like.new_ones(self.documents, heads.shape[1]).requires_grad_()
        gate = self.of[key].to(heads.dtype)
        packing = call.problem.packing
        if packing is None:
            return heads * gate[:, :, None, None]
        lengths = torch.tensor(list(packing), device=heads.device).diff()
        return heads * gate.repeat_interleave(lengths, dim=0).T[None, :, :, None]

    def slopes(self, s: PerDocument, target: Target) -> Float[Tensor, "head document"]:
        """∂s_d/∂g of every head; NaN for documents that do not count. A row depends on no other row's gates."""
        total = s.masked_fill(~target.counts, 0.0).sum()
        gates = list(self.of.values())
        if not total.requires_grad:
            raise MultiheadError(
                "the loss has no gradient: it does not depend on any head, or was detached",
                hint="compute the loss from the model's output without .detach(), .item() or torch.no_grad()",
            )
        found: list[Tensor | None] = [*torch.autograd.grad(total, gates, retain_graph=True, allow_unused=True)]
        each = [torch.zeros_like(g) if d is None else d for g, d in zip(gates, found, strict=True)]
        return torch.cat(each, dim=1).T.double().masked_fill(~target.counts, torch.nan)
