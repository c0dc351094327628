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
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs, PerSite, State, check_same_heads
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.losses import Loss, PerDocument, Target
from multihead.model.call import Call
from multihead.model.eval_mode import documents_in
from multihead.model.partial_run import Change
from multihead.model.reruns import STRATEGIES, Reruns, Variant
from multihead.model.sites import Key, Site
from multihead.model.statistics.moments import Moments
from multihead.model.statistics.output_moments import Outputs
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

Replacement = Literal["zero", "mean"]

NO_DOCUMENT = "no document has a token that the loss is of"
NO_EFFECT = "0: the loss does not depend on this head in any document"


class MeanOutputs(PerSite[Outputs]):
    """E[z] of every head over the real tokens of a corpus."""

    name = "means"

    def make(self, site: Site) -> Outputs:
        return Outputs(site.heads)

    def restore(self, site: Site, state: State) -> Outputs:
        outputs = Outputs(site.heads)
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
        """What the loss reads of the recorded run, its target, and its value for every document."""
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
        """The loss with each set of heads replaced; NaN for documents that do not count."""
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
        def change(outputs: HeadOutputs) -> HeadOutputs:
            outputs = outputs.clone()
            for head in heads:
                mean = 0.0 if replace == "zero" or self.means is None else self.means.mean(key)[head].to(outputs)
                outputs[:, head] = mean
            return outputs

        return change


class Ablation(Accumulator):
    """The change of the loss without each head, over documents.

    `replace` is what stands in for the output of an ablated head: "zero", or its "mean" over the corpus, taken from
    `means`. Memory: the recording of one batch, see `partial_run`.
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
        super().__init__()
        self.loss = loss
        self.replace: tuple[Replacement, ...] = (replace,) if isinstance(replace, str) else tuple(replace)  # pyright: ignore[reportAttributeAccessIssue]  # a str is one of the two
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
        self.batches = 0
        self.heads: list[str] = []
        self.strategy = ""
        self._moments: Moments | None = None
        self._intact = Moments([None], 1)

    @property
    def forwards(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Half of the layers run again for each head, on average."""
        return 1.0 + len(self.replace) * max(len(self.heads), 1) / 2

    def inputs(self, batch: Batch) -> Inputs:
        return self.loss.inputs(batch.inputs, batch.index)

    def end(self, batch: Batch, run: BatchRun) -> None:
        seen, target, intact = self.changes.intact(batch, run)
        sites = run.forward.recorded.sites
        names = [site.name(head) for site in sites for head in range(site.heads)]
        if self._moments is None:
            self.heads, self._moments = names, Moments([None] * len(self.replace), len(names))
        check_same_heads(self.heads, names)
        ablated = [
            ({site.key: [head]}, replace)
            for replace in self.replace
            for site in sites
            for head in range(site.heads)
        ]
        losses = self.changes.without(batch, run, ablated, seen, target)
        changed = losses.view(len(self.replace), len(names), -1) - intact
        self._moments.add(changed.cpu(), slice(0, len(names)), range(len(self.replace)))
        self._intact.add(intact.view(1, 1, -1).cpu(), slice(0, 1), [0])
        self.batches += 1
        self.strategy = self.changes.reruns.strategy
        self.note(self.changes.reruns.notes)

    # ---- states and columns -------------------------------------------------------------------

    def merge(self, later: Ablation) -> None:
        if later._moments is None:
            return
        if self._moments is None:
            self.load(later.state())
            return
        check_same_heads(self.heads, later.heads)
        self._moments.merge(later._moments)
        self._intact.merge(later._intact)
        self.batches += later.batches
        self.note(later.notes)
        self.strategy = max(self.strategy, later.strategy, key=STRATEGIES.index)

    def state(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "replace": list(self.replace),
            "heads": list(self.heads),
            "notes": list(self.notes),
            "strategy": self.strategy,
            "moments": None if self._moments is None else self._moments.state(),
            "intact": self._intact.state(),
        }

    def load(self, state: State) -> None:
        if tuple(state["replace"]) != self.replace:
            raise MultiheadError(
                f"the state is of replace={tuple(state['replace'])}, this is replace={self.replace}",
                hint="resume with the same options",
            )
        self.batches, self.strategy = int(state["batches"]), state["strategy"]
        self.heads, self.notes = list(state["heads"]), list(state["notes"])
        reruns = self.changes.reruns.resumed(state["strategy"])
        self.changes = LossChanges(self.loss, means=self.changes.means, reruns=reruns)
        self._moments, self._intact = None, Moments([None], 1)
        if state["moments"] is not None:
            self._moments = Moments([None] * len(self.replace), len(self.heads))
            self._moments.load(state["moments"])
        self._intact.load(state["intact"])

    @property
    def documents(self) -> int:
        """Documents that count."""
        return int(self._intact.count[0, 0])

    def columns(self) -> HeadTable:
        if self._moments is None:
            raise MultiheadError("no batch has run yet", hint="run(model, corpus, [ablation]) first")
        columns: dict[str, Tensor] = {}
        meaning: dict[str, Meaning] = {}
        reasons: dict[str, dict[str, str]] = {}
        for index, replace in enumerate(self.replace):
            mean, error = mean_and_error(self._moments, index)
            stand_in = "0" if replace == "zero" else "its mean over the corpus"
            name = f"ablation_{replace}"
            columns |= {name: mean, f"{name}_error": error}
            meaning |= {
                name: Meaning("loss", f"change of the loss with {stand_in} in place of the head's output"),
                f"{name}_error": Meaning("loss", f"standard error of {name} over documents"),
            }
            no_effect = ((mean == 0) & (self._moments.squares[index] == 0)).tolist()
            reasons[name] = {head: NO_EFFECT for head, none in zip(self.heads, no_effect, strict=True) if none}
            reasons[name] |= dict.fromkeys(self.heads, NO_DOCUMENT) if not self.documents else {}
            reasons[f"{name}_error"] = error_reasons(self.heads, error)
        about = {
            "loss": self.loss.name,
            "loss_intact": float(self._intact.mean[0, 0]),
            "documents": self.documents,
            "ablation_runs": self.strategy,
            "notes": list(self.notes),
        }
        return HeadTable(tuple(self.heads), columns, meaning, {n: r for n, r in reasons.items() if r}, about)


def _batch_second(model: nn.Module) -> bool:
    """Whether an attention of torch.nn takes (token, batch, width)."""
    return any(getattr(module, "batch_first", True) is False for module in model.modules())


def check_documents(documents: int, rows: int) -> None:
    """Raise where the rows of the attention are not the documents of the batch."""
    if rows != documents > 1:
        raise MultiheadError(
            f"the batch has {documents} documents by its first axis, and attention runs in {rows} rows: which "
            "document a row belongs to cannot be told",
            hint="put the batch axis first (batch_first=True), or run one document at a time: batch_size=1",
        )


def mean_and_error(moments: Moments, index: int) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """The mean of a statistic over documents, and its standard error √(Σ (x − mean)² / (n (n − 1)))."""
    count = moments.count[index]
    mean = moments.mean[index].masked_fill(count == 0, torch.nan)
    error = (moments.squares[index] / (count * (count - 1)).clamp(min=1)).sqrt()
    return mean, error.masked_fill(count < 2, torch.nan)


def error_reasons(heads: Sequence[str], error: Float[Tensor, " head"]) -> dict[str, str]:
    """Why there is no standard error."""
    missing = error.isnan().tolist()
    return {h: "one document has no spread: use two or more" for h, m in zip(heads, missing, strict=True) if m}
