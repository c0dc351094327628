"""What `multihead measure` measures: options, accumulators, and the passes over the corpus that they take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.cli.load import Loaded
    from multihead.corpus.accumulator import Accumulator, Inputs
    from multihead.corpus.checkpoint import Checkpoint
    from multihead.corpus.documents import Corpus
    from multihead.corpus.ranks import Ranks
    from multihead.corpus.run import Summary
    from multihead.measures.kinds.kinds import KindsMeasure
    from multihead.measures.measure import StatisticsSum
    from multihead.table.table import HeadTable

IMPORTANCE = ("none", "gradient", "ablation", "all")


def add_stages(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it measures, besides the statistics of attention")
    group.add_argument(
        "--kinds",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="name what each head does, with evidence (default; takes 5 documents or more)",
    )
    group.add_argument(
        "--importance",
        choices=IMPORTANCE,
        default="none",
        help="what the model loses without each head: by gradients, by ablation (slow, exact), or both",
    )
    group.add_argument("--similarity", action="store_true", help="which heads are similar to which")
    group.add_argument("--conllu", metavar="FILE", help="parsed sentences: which heads follow which relation")
    group.add_argument("--seed", type=int, default=0, help="of random draws: shuffles, probes (default: 0)")


@dataclass
class Measures:
    """The accumulators of a run. Those of `first` share a pass over the corpus; `second` needs its results."""

    statistics: StatisticsSum
    first: list[Accumulator]
    second: list[Accumulator] = field(default_factory=list["Accumulator"])
    kinds: KindsMeasure | None = None
    columns_of: list[Accumulator] = field(default_factory=list["Accumulator"])

    @staticmethod
    def of(args: argparse.Namespace, loaded: Loaded, first: Callable[[], Inputs]) -> Measures:
        """The accumulators that the options ask for."""
        from multihead.measures.measure import StatisticsSum, with_special
        from multihead.model.statistics.options import Statistics

        model, tokenizer = loaded.model, loaded.tokenizer
        statistics = StatisticsSum(with_special(Statistics(), tokenizer))
        measures = Measures(statistics, [statistics], columns_of=[statistics])
        if args.kinds:
            from multihead.measures.kinds.kinds import KindsMeasure, kinds_options

            measures.kinds = KindsMeasure(model, kinds_options(tokenizer), seed=args.seed)
            measures.first += measures.kinds.accumulators
        if args.importance != "none":
            measures._add_importance(args, loaded, first())
        if args.similarity:
            from multihead.measures.similarity.ov_circuits import find_weights
            from multihead.measures.similarity.similarity import SimilaritySum

            weights = find_weights(model)
            weights = find_weights(model, first()) if weights.reason else weights
            measures.first.append(SimilaritySum(weights, seed=args.seed))
            measures.columns_of.append(measures.first[-1])
        return measures

    def _add_importance(self, args: argparse.Namespace, loaded: Loaded, inputs: Inputs) -> None:
        from multihead.measures.importance.ablation import Ablation, MeanOutputs
        from multihead.measures.importance.choose_loss import loss_for
        from multihead.measures.importance.gradients import Gradients

        loss = loss_for(loaded.model, inputs, loaded.tokenizer, seed=args.seed)
        if args.importance in ("gradient", "all"):
            self.first.append(Gradients(loss, seed=args.seed))
            self.columns_of.append(self.first[-1])
        if args.importance in ("ablation", "all"):
            means = MeanOutputs()
            self.first.append(means)
            self.second.append(Ablation(loss, ("zero", "mean"), means=means))
            self.columns_of += self.second

    @property
    def accumulators(self) -> list[Accumulator]:
        return [*self.first, *self.second]

    @property
    def names(self) -> str:
        return ", ".join(one.name for one in self.accumulators)

    def run(
        self,
        loaded: Loaded,
        corpus: Corpus,
        checkpoint: Checkpoint,
        ranks: Ranks,
        progress: Callable[[str, float], None] | None = None,
    ) -> Summary:
        """Run all passes, or what is left of them."""
        from multihead.corpus.run import run

        summary = None
        for accumulators in (self.first, self.second):
            if accumulators:
                name = accumulators[0].name

                def tell(done: float, name: str = name) -> None:
                    if progress is not None:
                        progress(name, done)

                found = run(loaded.model, corpus, accumulators, checkpoint=checkpoint, ranks=ranks, progress=tell)
                summary = summary or found
            if self.kinds is not None and accumulators is self.first:
                self.kinds.run_repeats(checkpoint=checkpoint, ranks=ranks)
        assert summary is not None
        return summary

    def columns(self) -> HeadTable:
        """The columns of everything; `about` has an entry for each."""
        from multihead.table.table import HeadTable

        tables = {one.name: one.columns() for one in self.columns_of}
        if self.kinds is not None:
            tables = {"statistics": tables.pop("statistics"), "kinds": self.kinds.result().table, **tables}
        apart = [replace(table, about={name: dict(table.about)}) for name, table in tables.items()]
        return reduce(HeadTable.join, apart)


def treebank(args: argparse.Namespace, loaded: Loaded) -> Any:
    """The parsed sentences of --conllu, read before the work begins; None without."""
    if args.conllu is None:
        return None
    from multihead.measures.syntax.conllu import read_conllu

    if not Path(args.conllu).is_file():
        raise MultiheadError(f"there is no file {args.conllu}", hint="--conllu FILE: a treebank in CoNLL-U")
    if not getattr(loaded.tokenizer, "is_fast", False):
        raise MultiheadError(
            f"{loaded.name} has no fast tokenizer, so the words of a treebank cannot be aligned with its tokens",
            hint="use a folder with tokenizer.json, or omit --conllu",
        )
    return read_conllu(Path(args.conllu))


def finished(table: HeadTable, loaded: Loaded, sentences: Any) -> HeadTable:
    """The table with syntax, which reads a treebank, and the rank by importance."""
    from multihead.measures.importance.importance import RANKED_BY, ranked

    if sentences is not None:
        from multihead.measures.syntax.syntax import syntax

        relations = syntax(loaded.model, sentences, tokenizer=loaded.tokenizer).table
        table = table.join(replace(relations, about={}))
    return ranked(table) if any(column in table.columns for column in RANKED_BY) else table
