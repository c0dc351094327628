"""`multihead show RUN`: print a table; `multihead show MODEL HEAD`: draw the attention map of one head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from multihead._base.atomic_files import check_new
from multihead._base.plural import plural
from multihead.cli.options import LoadOptions, Options, names, option, positional
from multihead.cli.output import note, out, write, write_json
from multihead.errors import MultiheadError
from multihead.sources.pretrained import PACKAGED, SOURCES, check_source

if TYPE_CHECKING:
    from multihead.table.table import HeadTable

TEXT = "The cat that I saw yesterday ran away"

EXAMPLES = """examples:
  multihead show minilm L3H7 --text "The keys that he lost were on the table."   # where a head looks
  multihead show run --sort previous --top 10        # largest first; --ascending: smallest first
  multihead show run --where 'kind=previous' --columns kind,kind_score,distance
  multihead show run --json | jq '.rows[] | select(.entropy < 1) | .name'
  multihead show run -o heads.parquet

Without conditions, a grid first shows what decides where each head looks: a letter for the share that leads.

A map has queries down and keys across, and shows as many tokens as the terminal is wide. NO_COLOR=1 draws it in
shades, --digits in numbers. A condition is COLUMN, one of < <= > >= = !=, and a number (0.1 or 10%) or a word."""


@dataclass(frozen=True, kw_only=True)
class MapOptions(LoadOptions, title="a map"):
    """Of the map of a head."""

    text: str = option(TEXT, "a text: a file, - for stdin, or the words themselves", metavar="FILE|-|TEXT")
    start: int = option(0, "begin at token N, counted from 0", "--from", least=0, metavar="N")
    digits: bool = option(False, "draw tenths as digits instead of colours or shades")


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options, title="a table"):
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


@dataclass(frozen=True, kw_only=True)
class ShowOptions(TableOptions, MapOptions):
    """Print the table of a run: a row per head, as many columns as fit. Or draw the attention map of one head."""

    run: str = positional("a folder of multihead measure, a table file, or a model", metavar="RUN|MODEL")
    head: str | None = positional("the head of a model to draw, or of a table: 3.7", default=None, metavar="HEAD")


OPTIONS = ShowOptions


def run(options: ShowOptions) -> int:
    """Run `multihead show`: print a table, or draw the map of a head."""
    if not _is_table(options.run, options.head):
        return _show_map(options)
    from multihead.show.terminal_grid import TerminalHeadGrid
    from multihead.table.head_grid import head_grid
    from multihead.table.table import HeadTable
    from multihead.table.view import BlockView, MeaningView, RichView, has_shares

    if options.head is not None:
        options = replace(options, heads=(options.head,), all=True)
    table = options.chosen(HeadTable.load(Path(options.run)))
    if options.out is not None:
        check_new(options.out, options.force)
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
    if head is None and name not in PACKAGED:
        try:
            check_source(name)
        except MultiheadError as error:
            raise MultiheadError(
                f"there is no run, no table and no model {name}",
                hint=f"RUN is a folder of multihead measure, or a table file; MODEL is {SOURCES}",
            ) from error
    return False


def _show_map(options: ShowOptions) -> int:
    """Draw the attention map of one head, for `multihead show MODEL HEAD`."""
    from multihead.corpus.read_texts import read_text
    from multihead.show.terminal_head_map import TerminalHeadMap

    if options.head is None:
        raise MultiheadError(
            f"{options.run} is a model: name the head to draw",
            hint=f"multihead show {options.run} 3.7, or measure it: multihead measure {options.run} -o run",
        )
    text = read_text(options.text)
    loaded = options.load(options.run)
    head_map = TerminalHeadMap.of(loaded.model, loaded.tokenizer, options.head, text)
    if options.json:
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
