"""The stages of `multihead measure`, and about how many runs of the model each of them takes per batch."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.cli.load import Loaded
    from multihead.corpus.accumulator import Batch, Mergeable, Steps
    from multihead.table.table import HeadTable

WORTH = ("none", "gradient", "ablation", "all")


def add_stages(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it measures, beside the statistics of attention")
    group.add_argument(
        "--kinds",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="name what each head does, with evidence (default; takes 5 documents or more)",
    )
    group.add_argument(
        "--importance",
        choices=WORTH,
        default="none",
        help="what the model loses without each head: by gradients, by taking it out (slow, exact), or both ways",
    )
    group.add_argument("--similarity", action="store_true", help="which heads are copies of which")
    group.add_argument("--conllu", metavar="FILE", help="parsed sentences: which heads follow which relation")
    group.add_argument(
        "--seed", type=int, default=0, help="of what is drawn at random: shuffles, probes (default: 0)"
    )


def build(args: argparse.Namespace, loaded: Loaded, first: Callable[[], Batch]) -> list[Mergeable]:
    """The stages that were asked for, in the order in which they run."""
    from multihead.measures.measure import StatisticsStage, with_special
    from multihead.model.statistics.options import Statistics

    model, tokenizer = loaded.model, loaded.tokenizer
    stages: list[Any] = [StatisticsStage(model, with_special(Statistics(), tokenizer))]
    if args.kinds:
        from multihead.measures.kinds.kinds import KindsStage, kinds_options

        stages.append(KindsStage(model, kinds_options(tokenizer), seed=args.seed))
    if args.importance != "none":
        stages += _importance(args, loaded, first())
    if args.similarity:
        from multihead.measures.similarity.similarity import SimilarityStage

        stages.append(SimilarityStage(model, seed=args.seed))
    return stages


def _importance(args: argparse.Namespace, loaded: Loaded, first: Batch) -> list[Any]:
    from multihead.measures.importance.ablation import Ablation
    from multihead.measures.importance.choose_loss import loss_for
    from multihead.measures.importance.gradients import Gradients
    from multihead.measures.importance.mean_outputs import MeanOutputs

    loss = loss_for(loaded.model, first, loaded.tokenizer, seed=args.seed)
    stages: list[Any] = []
    if args.importance in ("gradient", "all"):
        stages.append(Gradients(loaded.model, loss, seed=args.seed))
    if args.importance in ("ablation", "all"):
        means = MeanOutputs(loaded.model)
        stages += [means, Ablation(loaded.model, loss, ("zero", "mean"), means=means)]
    return stages


def treebank(args: argparse.Namespace, loaded: Loaded) -> Any:
    """The parsed sentences of --conllu, read before the work begins; None without."""
    if args.conllu is None:
        return None
    from multihead.measures.syntax.conllu import read_conllu

    if not Path(args.conllu).is_file():
        raise MultiheadError(f"there is no file {args.conllu}", hint="--conllu FILE: a treebank in CoNLL-U")
    if not getattr(loaded.tokenizer, "is_fast", False):
        raise MultiheadError(
            f"{loaded.name} has no fast tokenizer, so words of a treebank cannot be found in its tokens",
            hint="a folder with tokenizer.json; or leave --conllu out",
        )
    return read_conllu(Path(args.conllu))


def finished(table: HeadTable, loaded: Loaded, sentences: Any) -> HeadTable:
    """The table with what comes after the stages: syntax, which reads a treebank, and the rank by importance."""
    from multihead.measures.importance.importance import RANKED_BY, ranked

    if sentences is not None:
        from multihead.measures.syntax.syntax import syntax

        found = syntax(loaded.model, sentences, tokenizer=loaded.tokenizer).table
        table = table.join(replace(found, about={}))
    return ranked(table) if any(column in table.columns for column in RANKED_BY) else table


def runs(stage: Steps, heads: int) -> float:
    """About how many plain runs of the model a stage takes per batch, for an estimate."""
    ablations = len(getattr(stage, "replace", ())) * heads / 2
    probes: int = getattr(stage, "probes", 1)
    return {"kinds": 5.0, "gradients": 3.0 * probes, "ablation": ablations, "similarity": 4.0}.get(stage.name, 1.5)


def names(stages: Sequence[Steps]) -> str:
    return ", ".join(stage.name for stage in stages)
