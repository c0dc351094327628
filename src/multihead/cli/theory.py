"""`multihead theory MODEL`: every statement of the theory, tested on the layers of a model."""

from __future__ import annotations

import argparse
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
from multihead.cli.output import note, out, write_json

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
    json: bool = option(False, "print all numbers of all layers as JSON")


def add(commands: Any) -> None:
    """Add `multihead theory` to the commands."""
    parser = add_command(
        commands, "theory", "Compute both sides of every statement of the theory on the layers of a model.", _EPILOG
    )
    add_model(parser)
    TheoryOptions.add(parser, "what it tests")
    add_documents(parser)


def run(args: argparse.Namespace) -> int:
    """Run `multihead theory`: print the table, or all numbers."""
    options, texts, files = TheoryOptions.of(args), TextOptions.of(args), FileOptions.of(args)
    from multihead.corpus.python_manual import python_manual
    from multihead.statements.theory import theory

    loaded = ModelOptions.of(args).load(args.model, "mh.theory(model, {})")
    documents = files.documents(loaded, text=texts.text, corpus=texts.corpus)
    chosen = texts.text or texts.corpus or files.ids or files.limit
    result = theory(
        loaded.model,
        documents if chosen else chain(documents, python_manual()),
        tokenizer=loaded.tokenizer,
        only=names(options.only) or None,
        layers=names(options.layers) or None,
        tokens=options.tokens,
        seed=options.seed,
        progress=True,
    )
    if options.json:
        write_json(result.to_json())
        return 0
    out().print(result, soft_wrap=True)
    only = f" --only {','.join(options.only)}" if options.only else ""
    note(f"\nall numbers: multihead theory {args.model} --json{only}")
    return 0
