"""`multihead measure MODEL -o RUN`: write a table of what every head does and how important it is."""

from __future__ import annotations

import shlex
from dataclasses import MISSING, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.cli.options import BatchOptions, ModelOptions, Options, OutputOptions, TextOptions, option
from multihead.cli.output import note, write

if TYPE_CHECKING:
    from multihead.corpus.ranks import Ranks
    from multihead.table.table import HeadTable

EXAMPLES = """examples:
  multihead measure minilm -o run                     # the packaged model, the packaged text
  multihead measure path/to/model --corpus texts/ -o run
  multihead measure minilm --importance ablation --similarity -o run
  torchrun --nproc-per-node 4 -m multihead measure path/to/model --corpus texts/ -o run

RUN is a folder; the table is RUN/table.json. Until it is written, RUN/state holds the progress. After Ctrl-C or a
crash, the same command with --resume continues, and the table is the same to the last bit, with any number of
processes. Under torchrun they share the documents; RUN must be a folder that all of them see."""


@dataclass(frozen=True, kw_only=True)
class PartOptions(Options, title="what it measures, besides the statistics of attention"):
    """Of `multihead.measure`: what is measured."""

    kinds: bool = option(True, "name what each head does, with evidence; needs 5 documents or more (default: on)")
    importance: str = option(
        "none",
        "what the model loses without each head: by gradients, by ablation (slow, exact), or both",
        choices=("none", "gradient", "ablation", "all"),
    )
    similarity: bool = option(False, "which heads do the same")
    treebank: str | None = option(
        None, "parsed sentences (CoNLL-U): which heads follow which relation", "--conllu", metavar="FILE"
    )
    seed: int = option(0, "random seed: of shuffles and probes", metavar="N")

    def measured(self) -> dict[str, Any]:
        """What is measured, as arguments of `mh.measure`."""
        parts = {"kinds": self.kinds, "importance": self.importance != "none", "similarity": self.similarity}
        return {
            "parts": ["statistics", *(part for part, wanted in parts.items() if wanted)],
            "importance": "gradient" if self.importance == "none" else self.importance,
            "treebank": self.treebank,
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options, title="the run"):
    """Of `multihead.measure`: the folder of the run."""

    out: Path = option(MISSING, "folder to write to", "-o", "--out", required=True, metavar="RUN")
    resume: bool = option(False, "continue a run that was stopped")
    force: bool = option(False, "measure again, replacing what RUN holds")
    window: int = option(
        16, "batches of documents that are sorted by length, to pad less; 1 does not sort", least=1, metavar="N"
    )
    save_every: float = option(30.0, "seconds between two saves of the state", least=0, metavar="S")
    rank_timeout: float = option(
        120.0, "seconds without a sign of life after which another process counts as dead", least=1, metavar="S"
    )


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(ModelOptions, PartOptions, RunOptions, TextOptions, OutputOptions):
    """Measure every attention head of a model over some text, in memory linear in tokens."""


OPTIONS = MeasureOptions


def run(options: MeasureOptions) -> int:
    """Run `multihead measure`; under torchrun, this rank's part of it."""
    from multihead.corpus.ranks import Ranks
    from multihead.corpus.read_on_ranks import read_once
    from multihead.corpus.run_folder import RunFolder
    from multihead.corpus.stopping import Interrupted
    from multihead.measures.measure import measure

    with Ranks.started(options.rank_timeout) as ranks:
        if not ranks.leads:
            options = replace(options, quiet=True, json=False)
        RunFolder(options.out, ranks, options.resume, options.force, options.save_every).check()
        loaded = options.load(options.model)
        read = partial(options.documents, loaded)
        try:
            table = measure(
                loaded.model,
                read_once(ranks, read, options.out, text=options.text, corpus=options.corpus),
                tokenizer=loaded.tokenizer,
                name=loaded.name,
                progress=not options.quiet,
                say=options.say,
                ranks=ranks,
                **options.measured(),
                **options.arguments(BatchOptions),
                **options.arguments(RunOptions),
            )
        except Interrupted as stop:
            if ranks.leads:
                note(f"multihead: stopped. To continue: {_again(options, ranks)}")
            return 128 + stop.signal
    options.say(f"next: multihead show {shlex.quote(str(options.out))} --sort {_interesting(table)}")
    if options.json:
        write(table.to_json())
    return 0


def _again(options: MeasureOptions, ranks: Ranks) -> str:
    words = [word for word in options.words if word not in ("--resume", "--force")]
    torchrun = "torchrun ... -m " if ranks.size > 1 else ""
    return f"{torchrun}multihead {' '.join(map(shlex.quote, words))} --resume"


def _interesting(table: HeadTable) -> str:
    """A column that the next command, after `multihead measure`, may sort by, and how."""
    if "rank" in table.columns:
        return "rank --ascending --top 10"
    return f"{'kind_score' if 'kind_score' in table.columns else 'previous'} --top 10"
