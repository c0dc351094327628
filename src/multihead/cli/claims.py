"""`multihead claims MODEL`: every statement of the theory, put to the test on a model's own layers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from multihead._base.progress import progress_bars
from multihead.cli.console import err

_EPILOG = """examples:
  multihead claims minilm                    # all statements, all layers: about a minute
  multihead claims minilm --layer L3 --only 1,2,6
  multihead claims path/to/model --text book.txt --json

Without a text: paragraphs that come with the package, and the manual inside Python (pydoc_data).
docs/claims has a page for each statement: what is computed, and when it is true."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    from multihead.cli.load import add_model
    from multihead.cli.texts import add_texts

    parser = commands.add_parser(
        "claims",
        help="put the statements of the theory to the test on a model",
        description="Compute both sides of every statement of the theory on the layers of a model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument("--layer", action="append", metavar="L3", help="only this layer; may be repeated, or L0,L3")
    parser.add_argument("--only", action="append", metavar="1,2,6", help="only these statements")
    parser.add_argument(
        "--tokens", type=int, default=4096, metavar="N", help="look at about N tokens (default: 4096)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    parser.add_argument("--json", action="store_true", help="all numbers of all layers, for a program")
    add_texts(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table, or all numbers."""
    from multihead.cli.load import load_model
    from multihead.cli.texts import texts
    from multihead.errors import MultiheadError
    from multihead.statements.run import claims

    if args.tokens < 1:
        raise MultiheadError(f"--tokens {args.tokens} leaves nothing to look at", hint="4096 is the default")
    loaded = load_model(args)
    given = bool(args.text or args.corpus or args.ids)
    read = texts(args, loaded.tokenizer)
    documents = read if given or args.limit else chain(read, manual())
    with progress_bars(err()) as progress:
        found = claims(
            loaded.model,
            documents,
            tokenizer=loaded.tokenizer,
            only=_words(args.only),
            layers=_words(args.layer),
            tokens=args.tokens,
            seed=args.seed,
            progress=progress,
        )
    if args.json:
        sys.stdout.write(json.dumps(found.to_json(), indent=1) + "\n")
        return 0
    _show(found.text(), sys.stdout)
    where = f"multihead claims {args.model} --json" + (f" --only {','.join(args.only)}" if args.only else "")
    sys.stderr.write(f"\nall numbers: {where}\n")
    return 0


def manual() -> Iterator[str]:
    """Paragraphs of the manual that is inside Python: English that every machine has."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # a Python without its documentation
        return
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            text = " ".join(paragraph.split())
            letters = sum(c.isalpha() or c == " " for c in text)
            if len(text) > 200 and letters > 0.9 * len(text):  # prose, no grammar and no code
                yield text


def _words(given: list[str] | None) -> list[str] | None:
    return None if given is None else [word.strip() for part in given for word in part.split(",") if word.strip()]


def _show(text: str, out: Any) -> None:
    """The table, verdicts coloured on a terminal."""
    from rich.console import Console
    from rich.text import Text

    shown = Text(text)
    for words, colour in (
        ("fails", "red"),
        ("holds", "green"),
        ("conditional|not enough data|not applicable", "yellow"),
    ):
        shown.highlight_regex(rf"(?m)(?<=  )({words})( in \d+ of \d+)?$", colour)
    Console(file=out, highlight=False, soft_wrap=True).print(shown)
