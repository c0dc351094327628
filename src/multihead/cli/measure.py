"""`multihead measure MODEL -o RUN`: fill a table with what every head does and how important it is."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.progress import progress_bars
from multihead.cli.console import err, note, write
from multihead.cli.estimate import Estimate
from multihead.cli.load import Loaded, add_model, load_model, one_sequence
from multihead.cli.stages import Measures, add_stages, finished, treebank
from multihead.cli.stopping import Interrupted, stoppable
from multihead.cli.texts import Texts, add_texts, texts
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.corpus.checkpoint import Checkpoint
    from multihead.corpus.documents import Corpus
    from multihead.corpus.ranks import Ranks
    from multihead.table.table import HeadTable

STATE = "state"

_EPILOG = """examples:
  multihead measure minilm -o run                     # the packaged model, the packaged text
  multihead measure path/to/model --corpus texts/ -o run
  cat letter.txt | multihead measure minilm --text - -o run
  multihead measure minilm --importance ablation --similarity -o run
  torchrun --nproc-per-node 4 -m multihead measure path/to/model --corpus texts/ -o run

RUN is a folder; the table is RUN/table.json. Until it is there, RUN/state holds what was taken in so far: after
Ctrl-C, or worse, the same command with --resume goes on, and the table is the same to the last bit, also with
another number of processes. Under torchrun they share the documents; RUN must be a folder that all of them see."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "measure",
        help="fill a table: what every head of a model does, and how important it is",
        description="Measure every attention head of a model over some text, in memory linear in tokens.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    add_texts(parser)
    add_stages(parser)
    group = parser.add_argument_group("the run")
    group.add_argument("-o", "--out", required=True, type=Path, metavar="RUN", help="folder to write to")
    group.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    group.add_argument("--force", action="store_true", help="measure again, over what RUN holds")
    group.add_argument("--batch-size", type=int, default=8, metavar="N", help="documents at a time (default: 8)")
    group.add_argument(
        "--window",
        type=int,
        default=16,
        metavar="N",
        help="batches of documents that are sorted by length, so that less is padded (default: 16; 1: none)",
    )
    group.add_argument(
        "--save-every", type=float, default=30.0, metavar="S", help="seconds between two states (default: 30)"
    )
    group.add_argument(
        "--patience",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds without a sign of life after which another process counts as dead (default: 120)",
    )
    group.add_argument("--json", action="store_true", help="also print the table, as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def run(args: argparse.Namespace) -> int:
    """The command; under torchrun, this rank's part of it."""
    _check(args)
    from multihead.corpus.ranks import FollowerError, Ranks

    with Ranks.started(args.patience) as ranks:
        try:
            return _run(args, ranks)
        except FollowerError:
            return 2
        except MultiheadError as wrong:
            if ranks.leads:
                raise
            raise MultiheadError(f"rank {ranks.rank}: {wrong.message}", hint=wrong.hint) from wrong


def _run(args: argparse.Namespace, ranks: Ranks) -> int:
    from multihead.corpus.lock import locked

    args.resume = args.resume or _goes_on(args)
    say = note if ranks.leads and not args.quiet else _silent
    loaded = load_model(_on_own_device(args))
    with ExitStack() as stack:
        ranks.on_rank_zero(lambda: _prepare_folder(args, lambda: stack.enter_context(locked(args.out))))
        work = _prepared(args, loaded, ranks)
        table = _done_before(args, work)
        if table is None:
            try:
                table = _measured(args, work, say)
            except Interrupted as stopped:
                if ranks.leads:
                    note(f"multihead: stopped. To go on: {_again(args, ranks)}")
                return 128 + stopped.signal
            if table is None:
                return 0
            table.save(args.out / "table.json")
            work.checkpoint.forget()
            for left in (*args.out.glob(".table.json.*.part"), *args.out.glob(".stdin-*")):
                left.unlink(missing_ok=True)  # halves of files that a kill has left, and what was read from stdin
            say(f"{len(table)} heads, {len(table.columns)} columns → {args.out / 'table.json'}")
        else:
            say(f"{args.out} is finished: {len(table)} heads, {len(table.columns)} columns")
    if ranks.leads:
        say(f"next: multihead show {shlex.quote(str(args.out))} --sort {_interesting(table)}")
        if args.json:
            write(table.to_json())
    return 0


# ---- before -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """All that a run needs: the model, the documents, the batches, and what makes this run this run."""

    loaded: Loaded
    documents: Texts
    corpus: Corpus
    measures: Measures
    checkpoint: Checkpoint
    ranks: Ranks
    about: dict[str, Any]
    sentences: Any
    """a treebank, or None"""


def _check(args: argparse.Namespace) -> None:
    """What can be said before anything is loaded."""
    if args.resume and args.force:
        raise MultiheadError("--resume goes on and --force starts again: only one of them")
    for option in ("batch_size", "max_tokens", "window"):
        value: int | None = getattr(args, option)
        if value is not None and value < 1:
            raise MultiheadError(f"--{option.replace('_', '-')} {value} is less than 1")
    if args.out.exists() and not args.out.is_dir():
        raise MultiheadError(f"{args.out} is a file", hint="-o takes a folder")
    if int(os.environ.get("RANK", "0")) == 0:  # the others follow
        _check_out(args)


def _goes_on(args: argparse.Namespace) -> bool:
    """Whether torchrun has started this again (--max-restarts): whatever the words were, the run goes on.

    Not every machine is told of a restart; but the state in RUN says which job has begun it.
    """
    from multihead.corpus.ranks import job, restarted

    try:
        begun = json.loads((args.out / STATE / "run.json").read_bytes()).get("job", "")
    except (OSError, ValueError):
        begun = ""
    return restarted() or (begun != "" and begun == job())


def _check_out(args: argparse.Namespace) -> None:
    if args.resume or args.force or _goes_on(args):
        return
    if (args.out / STATE).exists():
        raise MultiheadError(
            f"{args.out} holds a run that was stopped", hint="--resume goes on with it, --force starts again"
        )
    if (args.out / "table.json").exists():
        raise MultiheadError(f"{args.out} holds a table", hint="--force measures again, or choose another -o")


def _prepare_folder(args: argparse.Namespace, lock: Callable[[], None]) -> None:
    """Create and lock the folder."""
    args.out.mkdir(parents=True, exist_ok=True)
    lock()
    _check_out(args)  # once more: another run may have ended meanwhile
    if args.force and not args.resume:
        shutil.rmtree(args.out / STATE, ignore_errors=True)


def _on_own_device(args: argparse.Namespace) -> argparse.Namespace:
    """--device cuda is, under torchrun, the device of this process."""
    local = os.environ.get("LOCAL_RANK")
    if args.device != "cuda" or local is None:
        return args
    return argparse.Namespace(**{**vars(args), "device": f"cuda:{local}"})


def _documents(args: argparse.Namespace, tokenizer: Any, ranks: Ranks) -> Texts:
    """Rank 0 reads and counts once; the others are told. stdin is put into RUN, so that all can read it."""
    asked = args
    if ranks.size > 1 and "-" in (*args.text, *args.corpus):
        spool = args.out / f".stdin-{os.environ.get('TORCHELASTIC_RUN_ID', 'run')}.txt"

        def copy() -> None:
            if _goes_on(args) and spool.exists():  # stdin was read by the process before
                return
            with spool.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)

        ranks.on_rank_zero(copy)
        named = {
            key: [str(spool) if name == "-" else name for name in getattr(args, key)] for key in ("text", "corpus")
        }
        asked = argparse.Namespace(**{**vars(args), **named})
    made: list[Texts] = []

    def count() -> dict[str, Any]:
        made.append(texts(asked, tokenizer))
        return made[0].counted()

    counted = ranks.on_rank_zero(count)
    found = made[0] if made else texts(asked, tokenizer, counted)
    return replace(found, name=", ".join([*args.text, *args.corpus])) if asked is not args else found


def _prepared(args: argparse.Namespace, loaded: Loaded, ranks: Ranks) -> _Work:
    import torch

    from multihead import __version__
    from multihead.corpus.batches import default_max_tokens
    from multihead.corpus.checkpoint import Checkpoint
    from multihead.corpus.documents import Corpus
    from multihead.model.fingerprint import fingerprint

    documents = _documents(args, loaded.tokenizer, ranks)
    longest = args.max_tokens or default_max_tokens(loaded.model)
    one_sequence(loaded, "mh.measure(model, {})")
    corpus = Corpus(
        loaded.model,
        documents,
        count=documents.documents,
        tokenizer=loaded.tokenizer,
        batch_size=args.batch_size,
        max_tokens=longest,
        window=args.window,
        repeated=frozenset(documents.copies),
    )
    sentences = treebank(args, loaded)
    measures = Measures.of(args, loaded, lambda: corpus.first().inputs)
    identity = {
        "model": f"{loaded.name} ({type(loaded.model).__name__}, weights {fingerprint(loaded.model)})",
        "text": f"{documents.name} ({documents.documents} documents, {documents.fingerprint})",
        "stages": measures.names,
        "batch size": args.batch_size,
        "tokens of a piece": longest,
        "window": args.window,
        "parts": len(corpus.ranges()),
        "treebank": args.conllu and f"{args.conllu} ({sha256(Path(args.conllu).read_bytes()).hexdigest()[:16]})",
        "seed": args.seed,
        "device": args.device,
        "dtype": args.dtype,
        "multihead": __version__,
        "torch": str(torch.__version__),
    }
    ranks.check_equal(identity)
    checkpoint = Checkpoint(args.out / STATE, identity, every=args.save_every)
    about = {"run": identity, "parameters": sum(p.numel() for p in loaded.model.parameters())}
    about |= {"documents": documents.documents}
    return _Work(loaded, documents, corpus, measures, checkpoint, ranks, about, sentences)


def _done_before(args: argparse.Namespace, work: _Work) -> HeadTable | None:
    """The table of a run that is finished, or the run put back to where it was stopped."""
    from multihead.corpus.checkpoint import check_identity
    from multihead.table.table import HeadTable

    def found() -> str:
        table = args.out / "table.json"
        if work.checkpoint.file.exists():
            work.checkpoint.resume()
            return "state"
        if table.exists() and not args.force:
            check_identity(HeadTable.load(table).about.get("run", {}), work.checkpoint.identity, table)
            return "table"
        if args.resume:
            note(f"nothing to go on with in {args.out}: this is a new run")
        return ""

    what = work.ranks.on_rank_zero(found)
    if what == "state":
        work.checkpoint.resume()
    return HeadTable.load(args.out / "table.json") if what == "table" else None


# ---- during -----------------------------------------------------------------------------------


def _silent(text: str) -> None:
    """--quiet"""


def _measured(args: argparse.Namespace, work: _Work, say: Callable[[str], None]) -> HeadTable | None:
    """The table, on rank 0."""
    ranks, batches = work.ranks, 1
    if ranks.leads:
        estimate = Estimate.of(work.loaded, work.documents, work.corpus, work.measures, work.checkpoint, ranks)
        batches = estimate.batches
        for line in estimate.lines(work.loaded, work.documents, work.measures, ranks):
            say(line)
        parts = len(work.corpus.ranges())
        if parts < ranks.size:
            say(f"{parts} of {ranks.size} ranks have work: the text makes no more parts")
    passes = [some[0].name for some in (work.measures.first, work.measures.second) if some]
    shown = ranks.leads and not args.quiet
    with stoppable(work.checkpoint, ranks), progress_bars(err(), passes, shown=shown) as report:
        summary = work.measures.run(
            work.loaded, work.corpus, work.checkpoint, ranks, lambda name, done: report(name, done, batches)
        )
    if not ranks.leads:
        return None
    table = work.measures.columns()
    say(f"batches: {summary.padding}")
    tokens = work.measures.statistics.capture.tokens
    about = {**work.about, "batching": summary.padding.about(), "tokens": tokens, "stages": dict(table.about)}
    whole = replace(table, about=about)
    if work.sentences is not None:
        say(f"syntax: {len(work.sentences)} parsed sentences")
    return finished(whole, work.loaded, work.sentences)


# ---- after ------------------------------------------------------------------------------------


def _again(args: argparse.Namespace, ranks: Ranks) -> str:
    words = [w for w in args.words if w not in ("--resume", "--force")]
    how = "torchrun ... -m " if ranks.size > 1 else ""
    return f"{how}multihead {' '.join(map(shlex.quote, words))} --resume"


def _interesting(table: HeadTable) -> str:
    """A column worth sorting by, and how."""
    if "rank" in table.columns:
        return "rank --ascending --top 10"
    return f"{'kind_score' if 'kind_score' in table.columns else 'previous'} --top 10"
