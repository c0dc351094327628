"""What `report` and `serve` share: a model, what it is measured over, what is shown of it, which parts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.progress import progress_bars
from multihead.cli.console import duration, err, size
from multihead.cli.estimate import PROCESS, PlainForward
from multihead.cli.load import Loaded, load_model, one_sequence
from multihead.cli.texts import SPLITS, Texts, stdin_text, texts
from multihead.corpus.language import LOOKED_AT, check_language
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.page.gather import Gathered

PARTS = ("measure", "kinds", "pairs", "importance", "similarity", "curve", "claims", "cost")
SHOWN = (0, 7, 8)
"""Documents of the sample whose maps are shown when no text is given: a story, nested clauses, repeats."""

ROOM = 400e6
"""What is held beside the weights: activations of a batch, q and k of the texts, covariances."""

CUTS = ("obs", "fisher", "random")
"""How heads are chosen for --curve."""

_RUNS = {"measure": 3.0, "kinds": 8.0, "pairs": 3.0, "similarity": 6.0, "curve": 14.0, "claims": 25.0}
"""About how many plain runs over the documents a part takes; importance depends on the heads."""

_ONCE = {"measure": 0.2, "kinds": 2.0, "importance": 0.5, "similarity": 0.5, "curve": 0.5, "claims": 10.0}
"""About how many seconds it takes however small the model is: imports, what is trained to test a claim."""


def add_reading(parser: argparse.ArgumentParser) -> None:
    """--text, which is shown, and --corpus, which is measured over."""
    group = parser.add_argument_group("what it reads (default: a sample in English; embedded: in its own language)")
    group.add_argument(
        "--text",
        action="append",
        default=[],
        metavar="FILE|-|TEXT",
        help="what maps are shown of: a file, stdin, or the words themselves; may be repeated",
    )
    group.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="DIR|FILE",
        help='what is measured over: a .txt file, a .jsonl file whose lines have "text", or a folder of such files',
    )
    group.add_argument("--split", choices=SPLITS, help="what a document of a .txt file is (default: auto)")
    group.add_argument("--ids", metavar="FILE", help="token ids in the place of a corpus: JSON, a list of lists")
    group.add_argument("--limit", type=int, metavar="N", help="read only the first N documents of the corpus")
    group.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="cut longer documents into pieces of N tokens (default: the positions of the model)",
    )


def add_measuring(parser: argparse.ArgumentParser, default: Sequence[str]) -> Any:
    """--only, and how it is measured; gives the group of options."""
    said = "all; maps are always there" if tuple(default) == PARTS else ",".join(default)
    group = parser.add_argument_group("what it measures")
    group.add_argument("--only", metavar="PARTS", help=f"some of {','.join(PARTS)} (default: {said})")
    group.add_argument(
        "--importance",
        choices=("auto", "gradient", "ablation"),
        default="auto",
        help="by a backward pass, or by taking each head out; auto: taking out, up to 256 heads",
    )
    group.add_argument("--batch-size", type=int, default=8, metavar="N", help="documents at a time (default: 8)")
    group.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    return group


def asked_parts(args: argparse.Namespace, default: Sequence[str]) -> tuple[str, ...]:
    """The parts that are asked for."""
    for option in ("batch_size", "max_tokens"):
        value: int | None = getattr(args, option)
        if value is not None and value < 1:
            raise MultiheadError(f"--{option.replace('_', '-')} {value} is less than 1")
    if args.only is None:
        return tuple(default)
    asked = [word.strip() for word in args.only.split(",") if word.strip()]
    wrong = next((word for word in asked if word not in PARTS), None)
    if wrong is not None or not asked:
        raise MultiheadError(f"--only {args.only}: there is no part {wrong!r}", hint=f"some of {','.join(PARTS)}")
    return tuple(part for part in PARTS if part in asked)


@dataclass(frozen=True)
class Reading:
    """A model, what it is measured over, what is shown of it, and which parts."""

    loaded: Loaded
    documents: Texts
    shown: list[str] | None
    parts: tuple[str, ...]
    longest: int | None

    @staticmethod
    def of(args: argparse.Namespace, default: Sequence[str]) -> Reading:
        """Of the arguments that `report` and `serve` share; what can be is checked before the model loads."""
        parts = asked_parts(args, default)
        given = [given_text(name) for name in args.text]
        loaded = load_model(args)
        one_sequence(loaded, "mh.report(model, {}, 'report.html')")
        documents = texts(argparse.Namespace(**{**vars(args), "text": []}), loaded.tokenizer)
        if given and loaded.tokenizer is None:
            raise MultiheadError(f"{loaded.name} has no tokenizer, so text cannot be read", hint="leave --text out")
        check_language(loaded.tokenizer, [*given, *islice(documents, LOOKED_AT)], "the text")
        from multihead.corpus.batches import default_max_tokens

        longest = args.max_tokens or default_max_tokens(loaded.model)
        return Reading(loaded, documents, given or _default(args, documents), parts, longest)

    def estimate(self, args: argparse.Namespace) -> list[str]:
        """What will run, about how long, about how much memory."""
        return _estimate(self.loaded, self.documents, self.parts, self.longest, args)

    def gather(self, args: argparse.Namespace, **options: Any) -> Gathered:
        """Run the parts, with a bar."""
        from multihead.page.gather import gather

        bars = [part for part in ("maps", *self.parts) if part != "cost"]
        with progress_bars(err(), bars, shown=not args.quiet) as progress:
            return gather(
                self.loaded.model,
                self.documents,
                tokenizer=self.loaded.tokenizer,
                text=self.shown,
                name=self.loaded.name,
                corpus=self.documents.name,
                parts=self.parts,
                importance=args.importance,
                batch_size=args.batch_size,
                max_tokens=self.longest,
                seed=args.seed,
                progress=progress,
                **options,
            )


def given_text(name: str) -> str:
    """A file, stdin, or the words themselves."""
    path = Path(name)
    if name == "-":
        found = stdin_text()
    elif len(name) < 256 and "\0" not in name and path.is_file():
        try:
            found = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as wrong:
            raise MultiheadError(f"{name} is not UTF-8 text: {wrong}", hint=f"iconv -t UTF-8 {name}") from wrong
    elif len(name.split()) > 1:
        found = name
    elif name and path.is_dir():
        raise MultiheadError(
            f"{name} is a folder", hint=f"--text takes a file; --corpus {name} reads all its files"
        )
    elif not name.strip():
        raise MultiheadError("--text is empty", hint='--text FILE, - for stdin, or "several words"')
    else:
        raise MultiheadError(f"there is no file {name!r}", hint='--text FILE, - for stdin, or "several words"')
    if not found.strip():
        raise MultiheadError(f"there is no word in --text {name!r}", hint="a text has at least one word")
    return found.strip()


def _default(args: argparse.Namespace, documents: Texts) -> list[str] | None:
    """Some paragraphs of the sample that show more than the first ones; None: the first documents."""
    if args.corpus or args.ids:
        return None
    every = [d for d in documents if isinstance(d, str)]
    return [every[at] for at in SHOWN if at < len(every)] or None


def _estimate(
    loaded: Loaded, documents: Texts, parts: Sequence[str], longest: int | None, args: argparse.Namespace
) -> list[str]:
    """What will run, about how long, about how much memory."""
    from multihead.corpus.documents import Corpus

    corpus = Corpus(
        loaded.model, documents, tokenizer=loaded.tokenizer, batch_size=args.batch_size, max_tokens=longest
    )
    plain, batches = PlainForward.of(loaded.model, corpus.first().inputs), corpus.count_batches()
    once, heads = plain.seconds, plain.heads
    exact = args.importance == "ablation" or (args.importance == "auto" and heads <= 256)
    runs = _RUNS | {"importance": heads / 3 if exact else 4.0}
    if getattr(args, "curve", False):
        runs["curve"] = len(CUTS) * 6 * (6 + 4.0 * plain.layers)  # as `multihead curve` says
    seconds = sum(_ONCE.get(part, 0.0) + once * batches * runs.get(part, 0.0) for part in parts)
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    parameters = sum(p.numel() for p in loaded.model.parameters())
    return [
        f"{loaded.name}: {heads} heads, {parameters / 1e6:.3g} M parameters; {documents.name}: "
        f"{documents.documents} documents; {', '.join(('maps', *parts))}",
        f"about {duration(seconds)}, about {size(PROCESS + ROOM + weights)} of memory",
    ]


def silent(text: str) -> None:
    """--quiet"""
