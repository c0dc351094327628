"""`multihead theory MODEL`: every statement of the theory, tested on the layers of a model."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import chain
from typing import Any

from multihead.cli.options import (
    FileOptions,
    ModelOptions,
    Options,
    TextOptions,
    add_command,
    add_documents,
    add_model,
    names,
    option,
)
from multihead.cli.output import bars, note, write_json

_EPILOG = """examples:
  multihead theory minilm                    # all statements, all layers: about a minute
  multihead theory minilm --layer L3 --only 1,2,6
  multihead theory path/to/model --text book.txt --json

Without a text: the sample text of the package, and the manual inside Python (pydoc_data)."""


@dataclass(frozen=True)
class TheoryOptions(Options):
    """Of `multihead.theory`."""

    layers: tuple[str, ...] = option((), "only these layers; may be repeated", "--layer", metavar="L0,L3")
    only: tuple[str, ...] = option((), "only these statements; may be repeated", metavar="1,2,6")
    tokens: int = option(4096, "look at about N tokens", least=1, metavar="N")
    seed: int = option(0, "random seed", metavar="N")


def add(commands: Any) -> None:
    parser = add_command(
        commands, "theory", "Compute both sides of every statement of the theory on the layers of a model.", _EPILOG
    )
    add_model(parser)
    TheoryOptions.add(parser, "what it tests").add_argument(
        "--json", action="store_true", help="print all numbers of all layers as JSON"
    )
    add_documents(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table, or all numbers."""
    options, texts, files = TheoryOptions.of(args), TextOptions.of(args), FileOptions.of(args)
    from multihead.corpus.python_manual import python_manual
    from multihead.statements.run import theory

    loaded = ModelOptions.of(args).load(args.model, "mh.theory(model, {})")
    documents = files.documents(loaded, text=texts.text, corpus=texts.corpus)
    chosen = texts.text or texts.corpus or files.ids or files.limit
    with bars(quiet=False) as progress:
        result = theory(
            loaded.model,
            documents if chosen else chain(documents, python_manual()),
            tokenizer=loaded.tokenizer,
            only=names(options.only) or None,
            layers=names(options.layers) or None,
            tokens=options.tokens,
            seed=options.seed,
            progress=progress,
        )
    if args.json:
        write_json(result.to_json())
        return 0
    _show(result.text(), sys.stdout)
    only = f" --only {','.join(options.only)}" if options.only else ""
    note(f"\nall numbers: multihead theory {args.model} --json{only}")
    return 0


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
