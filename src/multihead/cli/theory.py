"""`multihead theory MODEL`: every statement of the theory, tested on the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass

from multihead.cli.options import JsonOptions, ModelOptions, Options, TextOptions, names, option
from multihead.cli.output import note

EXAMPLES = """examples:
  multihead theory minilm                    # all statements, all layers: about a minute
  multihead theory minilm --layer L3 --only 1,2,6
  multihead theory path/to/model --text book.txt --json

Without a text: the sample text of the package, and the manual inside Python (pydoc_data)."""


@dataclass(frozen=True, kw_only=True)
class StatementOptions(Options, title="what it tests"):
    """Of `multihead.theory`."""

    layers: tuple[str, ...] = option((), "only these layers; may be repeated", "--layer", metavar="L0,L3")
    only: tuple[str, ...] = option((), "only these statements; may be repeated", metavar="1,2,6")
    tokens: int = option(4096, "look at about N tokens", least=1, metavar="N")
    seed: int = option(0, "random seed", metavar="N")


@dataclass(frozen=True, kw_only=True)
class TheoryOptions(ModelOptions, StatementOptions, JsonOptions, TextOptions):
    """Compute both sides of every statement of the theory on the layers of a model."""


OPTIONS = TheoryOptions


def run(options: TheoryOptions) -> int:
    """Run `multihead theory`: print the table, or all numbers."""
    from multihead.statements.theory import theory

    loaded = options.load(options.model)
    texts = options.text or options.corpus or options.ids or options.inputs or loaded.inputs or options.limit
    own = texts or loaded.tokenizer is None
    result = theory(
        loaded.model,
        options.documents(loaded, text=options.text, corpus=options.corpus) if own else None,
        tokenizer=loaded.tokenizer,
        only=names(options.only) or None,
        layers=names(options.layers) or None,
        tokens=options.tokens,
        seed=options.seed,
        progress=True,
    )
    options.print(result, result.to_json(), soft_wrap=True)
    if not options.json:
        only = f" --only {','.join(options.only)}" if options.only else ""
        note(f"\nall numbers: multihead theory {options.model}{options.typed_data()} --json{only}")
    return 0
