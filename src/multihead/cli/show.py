"""`multihead show RUN`: look at a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from multihead.cli.console import note, out, write
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.measures.tables.table import HeadTable

_EPILOG = """examples:
  multihead show run --sort previous --top 10          largest first; --ascending: smallest first
  multihead show run --where 'kind=previous' --columns kind,kind_score,distance
  multihead show run --heads 3.7,L0H2 --all            every column of two heads
  multihead show run --json | jq '.rows[] | select(.entropy < 1) | .name'
  multihead show run -o heads.parquet

A condition is COLUMN, one of < <= > >= = !=, and a number (0.1 or 10%) or a word."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "show",
        help="look at a table: sort, filter, choose columns",
        description="Show the table of a run: a row per head, as many columns as fit.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a folder of multihead measure, or a table file")
    parser.add_argument("--sort", metavar="COLUMN", help="largest first, or by the alphabet")
    parser.add_argument("--ascending", action="store_true", help="smallest first")
    parser.add_argument("--top", type=int, metavar="N", help="the first N heads")
    parser.add_argument(
        "--where", action="append", default=[], metavar="CONDITION", help="only heads that meet it; may be repeated"
    )
    parser.add_argument("--heads", metavar="NAMES", help="only these heads: 3.7,L0H2")
    parser.add_argument("--columns", metavar="NAMES", help="these columns, by commas")
    parser.add_argument("--all", action="store_true", help="every column, a block per head")
    parser.add_argument("--meaning", action="store_true", help="what the columns mean, instead of the numbers")
    parser.add_argument("--json", action="store_true", help="for a program, exact")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="write it to a .json or .parquet file")
    parser.add_argument("--force", action="store_true", help="with -o: over a file that is there")


def run(args: argparse.Namespace) -> int:
    from multihead.measures.tables.table import HeadTable
    from multihead.measures.tables.view import RichView

    table = _chosen(args, HeadTable.load(args.run))
    if args.out is not None:
        if args.out.exists() and not args.force:
            raise MultiheadError(f"{args.out} is there already", hint="--force writes over it")
        note(f"{len(table)} heads, {len(table.columns)} columns → {table.save(args.out)}")
    elif args.json:
        write(table.to_json())
    elif args.meaning:
        _print_meaning(table)
    elif args.all:
        _print_all(table)
    else:
        names = None if args.columns is None else list(table.columns)
        out().print(RichView(table, names, first=args.sort))
    return 0


def _chosen(args: argparse.Namespace, table: HeadTable) -> HeadTable:
    """The rows and columns that were asked for."""
    if args.top is not None and args.top < 1:
        raise MultiheadError(f"--top {args.top} shows nothing", hint="--top 10")
    table = table.filter(*args.where, heads=_names(args.heads))
    if args.sort is not None:
        words = isinstance(table[args.sort], tuple)
        table = table.sort(args.sort, descending=not args.ascending and not words)
    if args.top is not None:
        table = table.filter(heads=table.heads[: args.top]) if len(table) else table
    return table if args.columns is None else table.select(_names(args.columns))


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _print_meaning(table: HeadTable) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("column", "unit", "meaning"):
        drawn.add_column(title)
    for name in table.columns:
        said = table.meaning[name]
        drawn.add_row(Text(name, "bold"), Text(said.unit), Text(said.text))
    out().print(drawn)


def _print_all(table: HeadTable) -> None:
    from rich.table import Table
    from rich.text import Text

    from multihead.measures.tables.view import word

    console = out()
    for at, head in enumerate(table.heads):
        console.print(Text(f"{head}", "bold"))
        drawn = Table.grid(padding=(0, 2))
        for name, column in table.columns.items():
            why = table.why(name, head)
            drawn.add_row(Text(f"  {name}"), Text(word(column, at)), Text(why or table.meaning[name].text, "dim"))
        console.print(drawn)
