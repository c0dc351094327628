"""ΔL(head) = L(the model without the head) − L(the model), exact, for every head, with its standard error.

All heads are taken out one by one, over the same documents. What one run has computed before a head is not computed
again for it (see `prefix`), and several heads of a layer run side by side along the batch axis where batches are
small: together some half of layers × heads forward passes, in fewer and larger ones.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.importance.ablation import Ablation
>>> from multihead.measures.importance.losses import OutputDistance
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> stage = Ablation(model, OutputDistance())
>>> stage.step({"src": torch.randn(5, 7, 12)})
>>> bool((stage.table["ablation_zero"] > 0).all())
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.losses import Loss, Seen, Target
from multihead.measures.importance.mean_outputs import MeanOutputs
from multihead.measures.importance.prefix import Change, Prefix, Whole
from multihead.model.eval_mode import documents_in, eval_mode, without_cache
from multihead.model.sites import Site
from multihead.model.statistics.moments import Moments
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

Replacement = Literal["zero", "mean"]
Way = Literal["", "side by side", "one by one", "whole"]
WAYS: tuple[Way, ...] = ("", "side by side", "one by one", "whole")
"""the slowest last"""

TOGETHER = 1024
"""Tokens up to which heads run side by side: beyond, larger matrices are no faster, and memory grows."""

NOTHING = "no document counts: none has a token that the loss is of"
UNSEEN = "0: the loss does not depend on this head in any document"


class Ablation:
    """A stage: the change of the loss without each head, over documents.

    `how` is what is put in the place of a head's output: "zero", or its "mean" over the corpus, which `means` has
    taken in before. Memory: what `Prefix` holds of one batch, and one run of at most `TOGETHER` tokens, or of the
    batch where that has more.
    """

    name = "ablation"

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        replace: Replacement | Sequence[Replacement] = "zero",
        *,
        means: MeanOutputs | None = None,
        together: int = TOGETHER,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """`progress(done, all)` is called after every attention of a batch."""
        self.model, self.loss, self.means, self.together = model, loss, means, together
        self.replace: tuple[Replacement, ...] = (replace,) if isinstance(replace, str) else tuple(replace)  # pyright: ignore[reportAttributeAccessIssue]  # a str is one of the two
        self.progress = progress
        wrong = next((h for h in self.replace if h not in ("zero", "mean")), None)
        if wrong is not None or not self.replace:
            raise SizeError(
                f"replace must be zero, mean or both, got {replace!r}", hint='replace="zero" is pruning'
            )
        if "mean" in self.replace and means is None:
            raise MultiheadError(
                "a head cannot be replaced by its mean before that is known",
                hint="run_stage(MeanOutputs(model), batches) first, and pass it as means=",
            )
        self.batches = 0
        self.heads: list[str] = []
        self.notes: list[str] = []
        self.way: Way = ""
        self._changes: Moments | None = None
        self._intact = Moments([None], 1)

    # ---- one batch ----------------------------------------------------------------------------

    def step(self, batch: Batch) -> None:
        with torch.no_grad(), eval_mode(self.model) as notes:
            self._say(notes)
            inputs = without_cache(self.model, self.loss.inputs(batch, self.batches))
            with Prefix(self.model) as prefix:
                run = _Batch(prefix, self.loss, inputs)
                target = self.loss.target(batch, inputs, run.seen)
                intact = self.loss.checked(run.seen, target, self.batches).double()
                names = [site.name(head) for site in run.sites for head in range(site.heads)]
                self._begin(names)
                self._find_way(run)
                changed = None if self.way == "whole" else self._all(run, target)
            if changed is None:
                self._check_same(run)
                changed = self._all(run, target)
        assert self._changes is not None
        self._changes.add((changed - intact).cpu(), slice(0, len(names)), range(len(self.replace)))
        self._intact.add(intact.view(1, 1, -1).cpu(), slice(0, 1), [0])
        self.batches += 1

    def _all(self, run: _Batch, target: Target) -> Float[Tensor, "replacement head document"]:
        """The loss without each head; NaN for documents that do not count, which the moments leave out."""
        found: list[Tensor] = []
        for at, site in enumerate(run.sites):
            found.append(self._site(run, target, site))
            if self.progress is not None:
                self.progress(at + 1, len(run.sites))
        return torch.cat(found, dim=1)

    def _site(self, run: _Batch, target: Target, site: Site) -> Float[Tensor, "replacement head document"]:
        """The loss without each head of one attention."""
        means = None if self.means is None else self.means.mean(site.key)
        variants: list[tuple[Replacement, int]] = [
            (kind, head) for kind in self.replace for head in range(site.heads)
        ]
        # How many run side by side is a rule of sizes, not of the clock: a resumed pass does the same.
        copies = max(self.together // run.tokens, 1) if self.way == "side by side" else 1
        found: list[Tensor] = []
        for start in range(0, len(variants), copies):
            some = variants[start : start + copies]
            for seen in run.changed(site, _ablated_heads(some, means), len(some), self.way):
                found.append(self.loss.checked(seen, target, self.batches).double())
        return torch.stack(found).view(len(self.replace), site.heads, -1)

    def _find_way(self, run: _Batch) -> None:
        """Prove that runs which start in the middle give what whole runs give; else fall back, and say so.

        All starts are tried on the first batch, the last one, which hands out most, on every batch.
        """
        first = not self.way
        sites = run.sites if first else run.sites[-1:]
        ways = WAYS[1:]
        many = self.loss.splits and self.together >= 2 * run.tokens
        for way in ways[ways.index(self.way or ("side by side" if many else "one by one")) :]:
            wrong = None if way == "whole" else run.proof(sites, 2 if way == "side by side" and many else 1, way)
            if wrong is None:
                self.way = way
                return
            self._say([f"batch {self.batches}: heads do not run {way} ({wrong}); the next slower way was taken"])

    def _check_same(self, run: _Batch) -> None:
        """Whole runs are the last resort: they must at least give the same output twice."""
        wrong = run.proof(run.sites[:1], 1, "whole")
        if wrong is not None:
            raise MultiheadError(
                f"batch {self.batches} gives one output now and another in the next run ({wrong}): what changes "
                "without a head cannot be told",
                hint="does the model keep state between calls, or draw random numbers in eval mode?",
            )

    def _begin(self, names: list[str]) -> None:
        if not self.heads:
            self.heads, self._changes = names, Moments([None] * len(self.replace), len(names))
        if names != self.heads:
            raise MultiheadError(
                f"batch {self.batches} ran {len(names)} heads, those before {len(self.heads)}",
                hint="every batch must run the whole model",
            )

    def _say(self, notes: Sequence[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]

    # ---- keeping and reading ------------------------------------------------------------------

    def begin(self, batch: int) -> None:
        self.batches = batch

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        slower = max(first["way"], second["way"], key=WAYS.index)
        return {**merged_importance(first, second, ("changes", "intact")), "way": slower}

    def state(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "replace": list(self.replace),
            "heads": list(self.heads),
            "notes": list(self.notes),
            "way": self.way,
            "changes": None if self._changes is None else self._changes.state(),
            "intact": self._intact.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        if tuple(state["replace"]) != self.replace:
            raise MultiheadError(
                f"the state is of replace={tuple(state['replace'])}, this is replace={self.replace}",
                hint="resume with the same",
            )
        self.batches, self.way = int(state["batches"]), state["way"]
        self.heads, self.notes = list(state["heads"]), list(state["notes"])
        self._changes = None
        if state["changes"] is not None:
            self._changes = Moments([None] * len(self.replace), len(self.heads))
            self._changes.load(state["changes"])
        self._intact.load(state["intact"])

    @property
    def documents(self) -> int:
        """Documents that count."""
        return int(self._intact.count[0, 0])

    @property
    def table(self) -> HeadTable:
        if self._changes is None:
            raise MultiheadError("no batch was taken in yet", hint="stage.step(batch) first")
        columns: dict[str, Tensor] = {}
        meaning: dict[str, Meaning] = {}
        reasons: dict[str, dict[str, str]] = {}
        for at, kind in enumerate(self.replace):
            mean, error = mean_and_error(self._changes, at)
            put = "0" if kind == "zero" else "its mean over the corpus"
            name = f"ablation_{kind}"
            columns |= {name: mean, f"{name}_error": error}
            meaning |= {
                name: Meaning("loss", f"change of the loss with {put} in place of the head's output"),
                f"{name}_error": Meaning("loss", f"standard error of {name} over documents"),
            }
            unseen = (mean == 0) & (self._changes.squares[at] == 0)
            reasons[name] = {head: UNSEEN for head, none in zip(self.heads, unseen.tolist(), strict=True) if none}
            reasons[name] |= dict.fromkeys(self.heads, NOTHING) if not self.documents else {}
            reasons[f"{name}_error"] = error_reasons(self.heads, error)
        about = {
            "loss": self.loss.name,
            "loss_intact": float(self._intact.mean[0, 0]),
            "documents": self.documents,
            "ablation_runs": self.way,
            "notes": list(self.notes),
        }
        return HeadTable(tuple(self.heads), columns, meaning, {n: r for n, r in reasons.items() if r}, about)


def merged_importance(first: Mapping[str, Any], second: Mapping[str, Any], sums: Sequence[str]) -> dict[str, Any]:
    """The state of one pass over what both have taken in: `sums` are the names of its moments."""
    if not first["heads"] or not second["heads"]:
        return dict(first if first["heads"] else second)
    if first["heads"] != second["heads"]:
        raise MultiheadError(
            f"a part ran {len(first['heads'])} heads, another {len(second['heads'])}",
            hint="every batch must run the whole model",
        )
    notes = [*first["notes"], *(note for note in second["notes"] if note not in first["notes"])]
    counted = {"notes": notes, "batches": max(first["batches"], second["batches"])}
    return {**first, **counted, **{name: Moments.merged(first[name], second[name]) for name in sums}}


def mean_and_error(moments: Moments, at: int) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """The mean of a statistic over documents, and its standard error √(Σ (x − mean)² / (n (n − 1)))."""
    count = moments.count[at]
    mean = moments.mean[at].masked_fill(count == 0, torch.nan)
    error = (moments.squares[at] / (count * (count - 1)).clamp(min=1)).sqrt()
    return mean, error.masked_fill(count < 2, torch.nan)


def error_reasons(heads: Sequence[str], error: Float[Tensor, " head"]) -> dict[str, str]:
    """Why there is no standard error."""
    missing = error.isnan().tolist()
    return {h: "one document has no spread: give two or more" for h, m in zip(heads, missing, strict=True) if m}


def _ablated_heads(
    variants: Sequence[tuple[Replacement, int]], means: Float[Tensor, "head value_dim"] | None
) -> Change:
    """Of each copy of the documents another head is ablated."""

    def change(heads: HeadOutputs) -> HeadOutputs:
        heads = heads.clone()
        for part, (kind, head) in zip(heads.chunk(len(variants)), variants, strict=True):
            if kind == "zero":
                part[:, head] = 0.0
            else:
                assert means is not None
                part[:, head] = means[head].to(heads)
        return heads

    return change


class _Batch:
    """One batch: its clean run, and those without heads."""

    def __init__(self, prefix: Prefix, loss: Loss, inputs: Mapping[str, Any]) -> None:
        self.prefix, self.loss, self.inputs = prefix, loss, inputs
        self.documents = documents_in(inputs)
        sizes = [x.shape[0] * x.shape[1] for x in inputs.values() if isinstance(x, Tensor) and x.ndim > 1]
        self.tokens = max(sizes, default=1)
        self.seen = loss.read(prefix.record(inputs))
        self.sites = prefix.sites

    def changed(self, site: Site, change: Change, copies: int, way: Way) -> tuple[Seen, ...]:
        """What the loss reads of each copy."""
        runner = Whole(self.prefix.model) if way == "whole" else self.prefix
        seen = self.loss.read(runner.run(self.inputs, site.key, change, copies=copies))
        return seen.chunk(copies) if copies > 1 else (seen,)

    def proof(self, sites: Sequence[Site], copies: int, way: Way) -> str | None:
        """None if runs that change nothing read the same as the clean run; else what went wrong."""
        room = min(1e3 * torch.finfo(self.seen.dtype).eps, 0.05)
        for site in sites:
            try:
                parts = self.changed(site, lambda heads: heads, copies, way)
            except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, MultiheadError) as failed:
                return f"starting at {site.label}: {str(failed).partition(chr(10))[0]}"
            size = float(self.seen.nan_to_num().abs().max())
            for part in parts:
                same = part.shape == self.seen.shape
                if not same or not torch.allclose(part, self.seen, rtol=0.0, atol=room * size, equal_nan=True):
                    return f"starting at {site.label} the output is another"
        return None
