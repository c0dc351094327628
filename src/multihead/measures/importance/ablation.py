"""ΔL(head) = L(the model without the head) − L(the model), exact, for every head, with its standard error.

Every head is ablated alone, over the same documents. Nothing that comes before a head is computed again for it, and
several heads of a layer run side by side along the batch axis where batches are small (see `model.reruns`). This
takes about half of layers × heads forward passes.

>>> import torch
>>> from torch import nn
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> from multihead.measures.importance.ablation import Ablation
>>> from multihead.measures.importance.losses import OutputDistance
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> ablation = Ablation(OutputDistance())
>>> _ = run(model, Corpus(model, {"src": torch.randn(5, 7, 12)}), [ablation])
>>> bool((ablation.columns()["ablation_zero"] > 0).all())
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs, PerSite, State
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.head_moments import NO_DOCUMENT, NO_EFFECT, HeadMoments, check_documents
from multihead.measures.importance.losses import Loss, PerDocument, Target
from multihead.model.call import Call
from multihead.model.model_inputs import documents_in
from multihead.model.rerun_from_attention import Change
from multihead.model.rerun_strategies import STRATEGIES, Reruns, Variant
from multihead.model.sites import Key, Site
from multihead.model.statistics.output_means import OutputMeans
from multihead.model.statistics.stream_moments import StreamMoments
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

Replacement = Literal["zero", "mean"]


class MeanOutputs(PerSite[OutputMeans]):
    """E[z] of every head over the real tokens of a corpus."""

    name = "means"

    def make(self, site: Site) -> OutputMeans:
        return OutputMeans(site.heads)

    def restore(self, site: Site, state: State) -> OutputMeans:
        outputs = OutputMeans(site.heads)
        outputs.load(state)
        return outputs

    def add(self, call: Call, out: HeadOutputs) -> None:
        self.of_call(call).add(out, call.real_rows[:, None].expand(out.shape[:3]))

    def mean(self, key: Key) -> Float[Tensor, "head value_dim"]:
        return self.of[key].mean()


class LossChanges:
    """The loss of every document with sets of heads ablated, for one batch after another."""

    def __init__(self, loss: Loss, *, means: MeanOutputs | None = None, reruns: Reruns | None = None) -> None:
        self.loss, self.means = loss, means
        self.reruns = reruns or Reruns()

    def intact(self, batch: Batch, run: BatchRun) -> tuple[Tensor, Target, PerDocument]:
        """Before ablation: the output that the loss reads, its target, and its value per document."""
        documents, rows = documents_in(run.inputs), run.forward.recorded.rows
        windows = rows % documents == 0 and not _batch_second(
            run.forward.model
        )  # attention in windows of a document
        check_documents(documents, documents if windows else rows)
        seen = self.loss.read(run.output)
        target = self.loss.target(batch.inputs, run.inputs, seen)
        return seen, target, self.loss.checked(seen, target, batch.index).double()

    def without(
        self,
        batch: Batch,
        run: BatchRun,
        ablated: Sequence[tuple[Mapping[Key, Sequence[int]], str]],
        seen: Tensor,
        target: Target,
    ) -> Float[Tensor, "variant document"]:
        """The loss with each set of heads ablated; NaN for documents that do not count."""
        variants = [self._variant(heads, replace) for heads, replace in ablated]
        outputs = self.reruns.outputs(
            run.forward,
            variants,
            self.loss.read,
            seen,
            splits=self.loss.splits,
            batch=batch.index,
            progress=run.progress,
        )
        return torch.stack([self.loss.checked(out, target, batch.index).double() for out in outputs])

    def _variant(self, heads: Mapping[Key, Sequence[int]], replace: str) -> Variant:
        return {key: self._replaced(key, some, replace) for key, some in heads.items()}

    def _replaced(self, key: Key, heads: Sequence[int], replace: str) -> Change:
        """The ablation of some heads of an attention: zeros or mean outputs in their place."""

        def change(outputs: HeadOutputs) -> HeadOutputs:
            """Replace the outputs of ablated heads by zeros or by means."""
            outputs = outputs.clone()
            for head in heads:
                mean = 0.0 if replace == "zero" or self.means is None else self.means.mean(key)[head].to(outputs)
                outputs[:, head] = mean
            return outputs

        return change


class Ablation(HeadMoments):
    """The change of the loss without each head, over documents.

    `replace` is the substitute for the output of an ablated head: "zero", or its "mean" over the corpus, taken from
    `means`. Memory: the recording of one batch, see `rerun_from_attention`.
    """

    name = "ablation"
    record = True

    def __init__(
        self,
        loss: Loss,
        replace: Replacement | Sequence[Replacement] = "zero",
        *,
        means: MeanOutputs | None = None,
        reruns: Reruns | None = None,
    ) -> None:
        replacements = (replace,) if isinstance(replace, str) else tuple(replace)
        super().__init__(len(replacements))
        self.loss = loss
        self.replace: tuple[Replacement, ...] = replacements  # pyright: ignore[reportAttributeAccessIssue]  # a str is one of the two
        if not self.replace or any(one not in ("zero", "mean") for one in self.replace):
            raise SizeError(
                f"replace must be zero, mean or both, got {replace!r}", hint='replace="zero" is pruning'
            )
        if "mean" in self.replace and means is None:
            raise MultiheadError(
                'replace="mean" needs the mean outputs of the heads',
                hint="run(model, corpus, [means := MeanOutputs()]) first, then pass means=means",
            )
        self.changes = LossChanges(loss, means=means, reruns=reruns)
        self.strategy = ""
        self._intact = StreamMoments([None], 1)

    @property
    def forwards(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Half of the layers run again for each head, on average."""
        return 1.0 + len(self.replace) * max(len(self.heads), 1) / 2

    def inputs(self, batch: Batch) -> Inputs:
        return self.loss.inputs(batch.inputs, batch.index)

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Ablate every head on this batch, and add the changes of the loss."""
        seen, target, intact = self.changes.intact(batch, run)
        sites = run.forward.recorded.sites
        names = [name for site in sites for name in site.names]
        ablated = [
            ({site.key: [head]}, replace)
            for replace in self.replace
            for site in sites
            for head in range(site.heads)
        ]
        losses = self.changes.without(batch, run, ablated, seen, target)
        self.add_documents(names, losses.view(len(self.replace), len(names), -1) - intact)
        self._intact.add(intact.view(1, 1, -1).cpu(), slice(0, 1), [0])
        self.strategy = self.changes.reruns.strategy
        self.note(self.changes.reruns.notes)

    # ---- states and columns -------------------------------------------------------------------

    def merge(self, later: Ablation) -> None:
        """Add the ablations of a later part of the corpus."""
        both = self.batches > 0 and later.batches > 0
        super().merge(later)
        if both:
            self._intact.merge(later._intact)
            self.strategy = max(self.strategy, later.strategy, key=STRATEGIES.index)

    def state(self) -> dict[str, Any]:
        options = {"replace": list(self.replace), "strategy": self.strategy, "intact": self._intact.state()}
        return super().state() | options

    def load(self, state: State) -> None:
        """Restore the state of an ablation with the same options."""
        if tuple(state["replace"]) != self.replace:
            raise MultiheadError(
                f"the state is of replace={tuple(state['replace'])}, this is replace={self.replace}",
                hint="resume with the same options",
            )
        super().load(state)
        self.strategy, self._intact = state["strategy"], StreamMoments([None], 1)
        self._intact.load(state["intact"])
        reruns = self.changes.reruns.resumed(state["strategy"])
        self.changes = LossChanges(self.loss, means=self.changes.means, reruns=reruns)

    @property
    def documents(self) -> int:
        """Documents that count."""
        return int(self._intact.count[0, 0])

    def columns(self) -> HeadTable:
        """The table's columns of ablation: mean change of the loss, and its standard error."""
        columns: dict[str, Tensor] = {}
        meaning: dict[str, ColumnInfo] = {}
        reasons: dict[str, dict[str, str]] = {}
        for index, replace in enumerate(self.replace):
            mean, error = self.mean_and_error(index)
            stand_in = "0" if replace == "zero" else "its mean over the corpus"
            name = f"ablation_{replace}"
            columns |= {name: mean, f"{name}_error": error}
            meaning |= {
                name: ColumnInfo("loss", f"change of the loss with {stand_in} in place of the head's output"),
                f"{name}_error": ColumnInfo("loss", f"standard error of {name} over documents"),
            }
            no_effect = ((mean == 0) & (self.moments.squares[index] == 0)).tolist()
            reasons[name] = {head: NO_EFFECT for head, none in zip(self.heads, no_effect, strict=True) if none}
            reasons[name] |= dict.fromkeys(self.heads, NO_DOCUMENT) if not self.documents else {}
            reasons[f"{name}_error"] = self.error_reasons(error)
        about = {
            "loss": self.loss.name,
            "loss_intact": float(self._intact.mean[0, 0]),
            "documents": self.documents,
            "ablation_runs": self.strategy,
            "notes": list(self.notes),
        }
        return HeadTable(tuple(self.heads), columns, meaning, {n: r for n, r in reasons.items() if r}, about)


class AblatedSets(Accumulator):
    """The mean loss over documents with each of some sets of heads ablated, and with none."""

    name = "curve"
    record = True

    def __init__(self, loss: Loss, sets: Sequence[Sequence[str]], reruns: Reruns | None = None) -> None:
        super().__init__()
        self.loss, self.changes = loss, LossChanges(loss, reruns=reruns)
        self.sets = list(sets)
        self.forwards = 1.0 + len(sets)
        self.documents = 0
        self.total = torch.zeros(len(sets) + 1, dtype=torch.double)  # the intact model last

    def inputs(self, batch: Batch) -> Inputs:
        return self.loss.inputs(batch.inputs, batch.index)

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Ablate each set of heads on this batch."""
        seen, target, intact = self.changes.intact(batch, run)
        ablated = [(run.forward.sites.resolve_heads(heads), "zero") for heads in self.sets]
        losses = self.changes.without(batch, run, ablated, seen, target)
        counted = torch.cat([losses, intact[None]])[:, target.counts]
        self.total = self.total + counted.sum(1).cpu()
        self.documents += counted.shape[1]

    def increase(self) -> list[float]:
        """By how much the mean loss grows without each set."""
        mean = self.total / max(self.documents, 1)
        return (mean[:-1] - mean[-1]).tolist()

    def merge(self, later: AblatedSets) -> None:
        self.total, self.documents = self.total + later.total, self.documents + later.documents

    def state(self) -> State:
        return {"total": self.total.clone(), "documents": self.documents}

    def load(self, state: State) -> None:
        self.total, self.documents = state["total"], int(state["documents"])


def _batch_second(model: nn.Module) -> bool:
    """Whether an attention of torch.nn takes (token, batch, width)."""
    return any(getattr(module, "batch_first", True) is False for module in model.modules())
