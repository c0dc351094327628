"""`multihead measure MODEL -o RUN`: write a table of what every head does and how important it is."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.cli.options import (
    BatchOptions,
    FileOptions,
    ModelOptions,
    Options,
    OutputOptions,
    TextOptions,
    add_command,
    add_documents,
    add_model,
    option,
)
from multihead.cli.output import note, speaker, write
from multihead.errors import MultiheadError
from multihead.sources.pretrained import check_source

if TYPE_CHECKING:
    from multihead.corpus.ranks import Ranks
    from multihead.table.table import HeadTable

_EPILOG = """examples:
  multihead measure minilm -o run                     # the packaged model, the packaged text
  multihead measure path/to/model --corpus texts/ -o run
  cat letter.txt | multihead measure minilm --text - -o run
  multihead measure minilm --importance ablation --similarity -o run
  torchrun --nproc-per-node 4 -m multihead measure path/to/model --corpus texts/ -o run

RUN is a folder; the table is RUN/table.json. Until it is written, RUN/state holds what was learned so far: after
Ctrl-C or a crash, the same command with --resume continues, and the table is the same to the last bit, with any
number of processes. Under torchrun they share the documents; RUN must be a folder that all of them see."""


@dataclass(frozen=True)
class MeasureOptions(Options):
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
        """The options of `multihead measure` as arguments of `mh.measure`."""
        parts = (
            ["kinds"] * self.kinds + ["importance"] * (self.importance != "none") + ["similarity"] * self.similarity
        )
        method = "gradient" if self.importance == "none" else self.importance
        parts = ["statistics", *parts]
        return {"parts": parts, "importance": method, "treebank": self.treebank, "seed": self.seed}


@dataclass(frozen=True)
class RunOptions(Options):
    """Of `multihead.measure`: the folder of the run."""

    out: Path | None = option(None, "folder to write to", "-o", "--out", required=True, metavar="RUN")
    resume: bool = option(False, "continue a run that was stopped")
    force: bool = option(False, "measure again, replacing what RUN holds")
    window: int = option(
        16, "batches of documents that are sorted by length, to pad less; 1 does not sort", least=1, metavar="N"
    )
    save_every: float = option(30.0, "seconds between two saves of the state", least=0, metavar="S")
    rank_timeout: float = option(
        120.0, "seconds without a sign of life after which another process counts as dead", least=1, metavar="S"
    )


def add(commands: Any) -> None:
    """Add `multihead measure` to the commands."""
    parser = add_command(
        commands,
        "measure",
        "Measure every attention head of a model over some text, in memory linear in tokens.",
        _EPILOG,
    )
    add_model(parser)
    add_documents(parser)
    MeasureOptions.add(parser, "what it measures, besides the statistics of attention")
    RunOptions.add(parser, "the run")
    OutputOptions.add(parser, "output")


def run(args: argparse.Namespace) -> int:
    """Run `multihead measure`; under torchrun, this rank's part of it."""
    options, files, texts, output = (
        RunOptions.of(args), FileOptions.of(args), TextOptions.of(args), OutputOptions.of(args)
    )  # fmt: skip
    measured = MeasureOptions.of(args).measured() | BatchOptions.of(args).arguments() | options.arguments()
    check_source(args.model)
    from multihead.corpus.ranks import FollowerError, Ranks
    from multihead.corpus.read_on_ranks import read_once
    from multihead.corpus.run_folder import RunFolder
    from multihead.corpus.stopping import Interrupted
    from multihead.measures.measure import measure

    assert options.out is not None
    with Ranks.started(options.rank_timeout) as ranks:
        say = speaker(output.quiet or not ranks.leads)
        try:
            RunFolder(options.out, ranks, options.resume, options.force, options.save_every).check()
            model, tokenizer = loaded = _on_own_device(ModelOptions.of(args)).load(
                args.model, "mh.measure(model, {})"
            )
            documents = read_once(
                ranks, partial(files.documents, loaded), options.out, text=texts.text, corpus=texts.corpus
            )
            table = measure(
                model,
                documents,
                tokenizer=tokenizer,
                name=loaded.name,
                progress=not output.quiet,
                say=say,
                ranks=ranks,
                **measured,
            )
        except FollowerError:
            return 2
        except Interrupted as stop:
            if ranks.leads:
                note(f"multihead: stopped. To continue: {_again(args, ranks)}")
            return 128 + stop.signal
        except MultiheadError as error:
            if ranks.leads:
                raise
            raise MultiheadError(f"rank {ranks.rank}: {error.message}", hint=error.hint) from error
        say(f"next: multihead show {shlex.quote(str(options.out))} --sort {_interesting(table)}")
        if output.json and ranks.leads:
            write(table.to_json())
    return 0


def _on_own_device(options: ModelOptions) -> ModelOptions:
    """--device cuda is, under torchrun, the device of this process."""
    local = os.environ.get("LOCAL_RANK")
    return replace(options, device=f"cuda:{local}") if options.device == "cuda" and local else options


def _again(args: argparse.Namespace, ranks: Ranks) -> str:
    words = [word for word in args.words if word not in ("--resume", "--force")]
    torchrun = "torchrun ... -m " if ranks.size > 1 else ""
    return f"{torchrun}multihead {' '.join(map(shlex.quote, words))} --resume"


def _interesting(table: HeadTable) -> str:
    """A column that the next command, after `multihead measure`, may sort by, and how."""
    if "rank" in table.columns:
        return "rank --ascending --top 10"
    return f"{'kind_score' if 'kind_score' in table.columns else 'previous'} --top 10"
