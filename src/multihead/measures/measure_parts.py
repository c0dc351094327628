"""The parts of a measurement: accumulators, the passes over the corpus that they take, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from torch import nn

from multihead._base.arguments import check_list
from multihead.corpus.accumulator import Accumulator, Inputs
from multihead.corpus.checkpoint import Checkpoint
from multihead.corpus.documents import Corpus
from multihead.corpus.ranks import Ranks
from multihead.corpus.run import Summary, run
from multihead.errors import SizeError
from multihead.measures.importance.ablation import Ablation, MeanOutputs
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.importance import METHODS
from multihead.measures.kinds.kinds import KindsMeasure, kinds_options
from multihead.measures.similarity.ov_circuits import find_weights
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.measures.statistics_sum import StatisticsSum, with_special
from multihead.model.statistics.statistics_options import Statistics
from multihead.table.table import HeadTable

PARTS = ("statistics", "kinds", "importance", "similarity")
"""What `mh.measure(parts=...)` can measure."""


@dataclass
class Parts:
    """The accumulators of a run. Those of `first` share a pass over the corpus; `second` needs its results."""

    model: nn.Module
    statistics: StatisticsSum
    first: list[Accumulator]
    second: list[Accumulator] = field(default_factory=list["Accumulator"])
    kinds: KindsMeasure | None = None
    in_table: list[Accumulator] = field(default_factory=list["Accumulator"])

    @staticmethod
    def of(
        model: nn.Module,
        tokenizer: Any,
        names: Sequence[str],
        first_inputs: Callable[[], Inputs],
        *,
        statistics: Statistics | None = None,
        importance: str = "gradient",
        seed: int = 0,
    ) -> Parts:
        """The accumulators of the parts to measure, some of `PARTS`; the statistics are always among them."""
        names = check_parts(names, importance)
        sums = StatisticsSum(with_special(statistics or Statistics(), tokenizer))
        parts = Parts(model, sums, [sums], in_table=[sums])
        if "kinds" in names:
            parts.kinds = KindsMeasure(model, kinds_options(tokenizer), seed=seed)
            parts.first += parts.kinds.accumulators
        if "importance" in names:
            parts._add_importance(tokenizer, importance, first_inputs(), seed)
        if "similarity" in names:
            weights = find_weights(model)
            weights = find_weights(model, first_inputs()) if weights.reason else weights
            parts.first.append(SimilaritySum(weights, seed=seed))
            parts.in_table.append(parts.first[-1])
        return parts

    def _add_importance(self, tokenizer: Any, method: str, inputs: Inputs, seed: int) -> None:
        """Add the accumulators of importance, by gradients, ablation or both."""
        loss = loss_for(self.model, inputs, tokenizer, seed=seed)
        if method in ("gradient", "all"):
            self.first.append(Gradients(loss, seed=seed))
            self.in_table.append(self.first[-1])
        if method in ("ablation", "all"):
            means = MeanOutputs()
            self.first.append(means)
            self.second.append(Ablation(loss, ("zero", "mean"), means=means))
            self.in_table += self.second

    @property
    def passes(self) -> list[list[Accumulator]]:
        return [accumulators for accumulators in (self.first, self.second) if accumulators]

    @property
    def pass_names(self) -> list[str]:
        """What progress is reported as."""
        return [accumulators[0].name for accumulators in self.passes]

    @property
    def names(self) -> str:
        return ", ".join(one.name for accumulators in self.passes for one in accumulators)

    def forwards(self, heads: int) -> list[float]:
        """About how many plain forward passes each pass of the parts takes per batch."""
        passes = [sum(_forwards(one, heads) for one in accumulators) for accumulators in self.passes]
        if self.kinds is not None:
            passes[0] += self.kinds.shares.forwards  # over pieces of the same text
        return passes

    @property
    def every_layer(self) -> bool:
        """Whether the activations of all layers are held."""
        deep = ("gradients", "ablation", "similarity")
        return any(one.name in deep for accumulators in self.passes for one in accumulators)

    def run(
        self,
        corpus: Corpus,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Summary:
        """Run all passes of the parts, or those that remain."""
        summaries: list[Summary] = []
        for accumulators in self.passes:
            name = accumulators[0].name

            def report(batches: float, name: str = name) -> None:
                if progress is not None:
                    progress(name, batches)

            summaries.append(
                run(self.model, corpus, accumulators, checkpoint=checkpoint, ranks=ranks, progress=report)
            )
            if self.kinds is not None and accumulators is self.first:
                self.kinds.finish(corpus, checkpoint=checkpoint, ranks=ranks)
        return summaries[0]

    def columns(self) -> HeadTable:
        """The columns of all measured parts; `about` has an entry for each."""
        tables = {one.name: one.columns() for one in self.in_table}
        if self.kinds is not None:
            tables = {"statistics": tables.pop("statistics"), "kinds": self.kinds.result().table, **tables}
        apart = [replace(table, about={name: dict(table.about)}) for name, table in tables.items()]
        return reduce(HeadTable.join, apart)


def check_parts(names: str | Sequence[str], importance: str) -> tuple[str, ...]:
    """The names of the parts to measure, one name or several; raises unless they can be measured."""
    names = [names] if isinstance(names, str) else names
    check_list("parts", names, "parts", hint=f"choose from {', '.join(PARTS)}")
    names = tuple(names)
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        raise SizeError(f"parts must be some of {', '.join(PARTS)}, got {names!r}", hint='parts=("statistics",)')
    if importance not in METHODS:
        raise SizeError(
            f"importance must be one of {', '.join(METHODS)}, got {importance!r}", hint='importance="gradient"'
        )
    return names


def _forwards(accumulator: Accumulator, heads: int) -> float:
    replacements = getattr(accumulator, "replace", ())  # an ablation does not know the heads before it runs
    return len(replacements) * heads / 2 if replacements else accumulator.forwards
