"""`multihead show RUN`: print a table; `multihead show MODEL HEAD`: draw the attention map of one head."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.plural import plural
from multihead.cli.options import ModelOptions, Options, add_command, names, option
from multihead.cli.output import note, out, write, write_json
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.table.table import HeadTable

TEXT = "The cat that I saw yesterday ran away"

_EPILOG = """examples:
  multihead show minilm 0.2                          # where a head looks, drawn in the terminal
  multihead show minilm L3H7 --text "The keys that he lost were on the table."
  multihead show run --sort previous --top 10        # largest first; --ascending: smallest first
  multihead show run --where 'kind=previous' --columns kind,kind_score,distance
  multihead show run --heads 3.7,L0H2 --all          # every column of two heads
  multihead show run --json | jq '.rows[] | select(.entropy < 1) | .name'
  multihead show run -o heads.parquet

Without conditions, a grid first shows what decides where each head looks: a letter for the share that leads.

A map has queries down and keys across, and shows as many tokens as the terminal is wide. NO_COLOR=1 draws it in
shades, --digits in numbers. A condition is COLUMN, one of < <= > >= = !=, and a number (0.1 or 10%) or a word."""


@dataclass(frozen=True)
class MapOptions(Options):
    """Of the map of a head."""

    text: str = option(TEXT, "a text: a file, - for stdin, or the words themselves", metavar="FILE|-|TEXT")
    start: int = option(0, "begin at token N, counted from 0", "--from", least=0, metavar="N")
    digits: bool = option(False, "draw tenths as digits instead of colours or shades")


@dataclass(frozen=True)
class TableOptions(Options):
    """Of the table of a run."""

    sort: str | None = option(None, "largest first, or by the alphabet", metavar="COLUMN")
    ascending: bool = option(False, "smallest first")
    top: int | None = option(None, "the first N heads", least=1, metavar="N")
    where: tuple[str, ...] = option((), "only heads that meet it; may be repeated", metavar="CONDITION")
    heads: tuple[str, ...] = option((), "only these heads; may be repeated", metavar="3.7,L0H2")
    columns: tuple[str, ...] = option((), "only these columns; may be repeated", metavar="NAMES")
    all: bool = option(False, "every column, a block per head")
    meaning: bool = option(False, "what the columns mean, instead of their values")
    json: bool = option(False, "print exact values as JSON")
    out: Path | None = option(None, "write to a .json or .parquet file", "-o", "--out", metavar="FILE")
    force: bool = option(False, "overwrite FILE")

    @property
    def all_heads(self) -> bool:
        """Whether every head is shown, in the order of the model."""
        return not (self.where or self.heads or self.sort or self.columns) and self.top is None

    def chosen(self, table: HeadTable) -> HeadTable:
        """The rows and columns that `multihead show` prints."""
        table = table.filter(*self.where, heads=names(self.heads))
        if self.sort is not None:
            words = isinstance(table[self.sort], tuple)
            table = table.sort(self.sort, descending=not self.ascending and not words)
        if self.top is not None:
            table = table.filter(heads=table.heads[: self.top]) if len(table) else table
        return table.select(names(self.columns)) if self.columns else table


def add(commands: Any) -> None:
    """Add `multihead show` to the commands."""
    parser = add_command(
        commands,
        "show",
        "Print the table of a run: a row per head, as many columns as fit. Or draw the attention map of one head.",
        _EPILOG,
    )
    parser.add_argument("run", metavar="RUN|MODEL", help="a folder of multihead measure, a table file, or a model")
    parser.add_argument("head", nargs="?", metavar="HEAD", help="the head of a model to draw, or of a table: 3.7")
    MapOptions.add(parser, "a map")
    ModelOptions.add(parser, "the model of a map")
    TableOptions.add(parser, "a table")


def run(args: argparse.Namespace) -> int:
    """Run `multihead show`: print a table, or draw the map of a head."""
    options = TableOptions.of(args)
    if not _is_table(args.run, args.head):
        return _show_map(args, MapOptions.of(args), options.json)
    from multihead.show.terminal_grid import TerminalHeadGrid
    from multihead.table.head_grid import head_grid
    from multihead.table.table import HeadTable
    from multihead.table.view import BlockView, MeaningView, RichView, has_shares

    if args.head is not None:
        options = replace(options, heads=(args.head,), all=True)
    table = options.chosen(HeadTable.load(Path(args.run)))
    if options.out is not None:
        if options.out.exists() and not options.force:
            raise MultiheadError(f"{options.out} exists", hint="--force overwrites it")
        note(f"{plural(len(table), 'head')}, {plural(len(table.columns), 'column')} → {table.save(options.out)}")
    elif options.json:
        write(table.to_json())
    elif options.meaning:
        out().print(MeaningView(table))
    elif options.all:
        out().print(BlockView(table))
    else:
        if options.all_heads and has_shares(table):
            out().print(TerminalHeadGrid(head_grid(table)))
        out().print(RichView(table, list(table.columns) if options.columns else None, first=options.sort))
    return 0


# ---- a map ------------------------------------------------------------------------------------


def _is_table(name: str, head: str | None) -> bool:
    """Whether `multihead show` was given a table; else it is a model."""
    path = Path(name)
    if path.is_dir():
        table = any((path / file).exists() for file in ("table.json", "table.parquet"))
        return table or not any((path / file).is_file() for file in ("config.json", "multihead.json"))
    if path.exists() or path.suffix in (".json", ".parquet"):
        return True
    from multihead.sources.pretrained import PACKAGED

    return head is None and name not in PACKAGED and "/" not in name and ":" not in name


def _show_map(args: argparse.Namespace, options: MapOptions, json: bool) -> int:
    """Draw the attention map of one head, for `multihead show MODEL HEAD`."""
    from multihead.corpus.batches import default_max_tokens
    from multihead.corpus.read import read_text
    from multihead.show.terminal_head_map import HeadMap

    if args.head is None:
        raise MultiheadError(
            f"{args.run} is a model: name the head to draw",
            hint=f"multihead show {args.run} 3.7, or measure it: multihead measure {args.run} -o run",
        )
    text = read_text(options.text)
    loaded = ModelOptions.of(args).load(args.run, "mh.capture(model)")
    if loaded.tokenizer is None:
        raise MultiheadError(
            f"{loaded.name} has no tokenizer, so text cannot be read",
            hint="in Python: mh.capture(model, keep='qk'), then mh.figure.attention(heads['L3H7'])",
        )
    head_map = HeadMap.of(loaded.model, loaded.tokenizer, args.head, text, default_max_tokens(loaded.model))
    if json:
        write_json({"model": loaded.name, "text": text, **head_map.plain()})
        return 0
    if options.start >= len(head_map.tokens):
        raise MultiheadError(
            f"--from must be less than {len(head_map.tokens)}, the number of tokens, got {options.start}",
            hint="tokens are counted from 0",
        )
    console = out()
    head_map.print(console, loaded.name, start=options.start, digits=options.digits)
    for line in head_map.notes(console.width, start=options.start, digits=options.digits):
        note(f"note: {line}")
    return 0
