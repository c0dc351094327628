"""`multihead show RUN`: look at a table; `multihead show MODEL HEAD`: look at where one head looks."""

from __future__ import annotations

import argparse
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from multihead.cli.console import note, out, write, write_json
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.cli.heatmap import Heatmap
    from multihead.cli.load import Loaded
    from multihead.table.table import HeadTable

TEXT = "The cat that I saw yesterday ran away"

STATISTICS = ("entropy", "effective_keys", "distance", "first", "self", "previous", "next", "special")
"""What is said of a head beside its map."""

_EPILOG = """examples:
  multihead show minilm 0.2                          # where a head looks, drawn in the terminal
  multihead show minilm L3H7 --text "The keys that he lost were on the table."
  multihead show run --sort previous --top 10        # largest first; --ascending: smallest first
  multihead show run --where 'kind=previous' --columns kind,kind_score,distance
  multihead show run --heads 3.7,L0H2 --all          # every column of two heads
  multihead show run --json | jq '.rows[] | select(.entropy < 1) | .name'
  multihead show run -o heads.parquet

A map has queries down and keys across, and shows as many tokens as the terminal is wide. NO_COLOR=1 draws it in
shades, --digits in numbers. A condition is COLUMN, one of < <= > >= = !=, and a number (0.1 or 10%) or a word."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "show",
        help="look at a table, or at where one head looks",
        description="Show the table of a run: a row per head, as many columns as fit. Or draw the map of one head.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN|MODEL", help="a folder of multihead measure, a table file, or a model")
    parser.add_argument(
        "head", nargs="?", metavar="HEAD", help="the head of a model whose map is drawn: 3.7 or L3H7"
    )
    group = parser.add_argument_group("a map")
    group.add_argument(
        "--text",
        metavar="FILE|-|TEXT",
        help=f'what the model reads: a file, stdin, or the words (default: "{TEXT}")',
    )
    group.add_argument("--from", dest="start", type=int, default=0, metavar="N", help="begin at token N, from 0")
    group.add_argument("--digits", action="store_true", help="tenths as digits instead of colours or shades")
    group.add_argument(
        "--trust-remote-code", action="store_true", help="run the Python code that lies in the model's folder"
    )
    group = parser.add_argument_group("a table")
    group.add_argument("--sort", metavar="COLUMN", help="largest first, or by the alphabet")
    group.add_argument("--ascending", action="store_true", help="smallest first")
    group.add_argument("--top", type=int, metavar="N", help="the first N heads")
    group.add_argument(
        "--where", action="append", default=[], metavar="CONDITION", help="only heads that meet it; may be repeated"
    )
    group.add_argument("--heads", metavar="NAMES", help="only these heads: 3.7,L0H2")
    group.add_argument("--columns", metavar="NAMES", help="these columns, by commas")
    group.add_argument("--all", action="store_true", help="every column, a block per head")
    group.add_argument("--meaning", action="store_true", help="what the columns mean, instead of the numbers")
    parser.add_argument("--json", action="store_true", help="for a program, exact")
    group.add_argument("-o", "--out", type=Path, metavar="FILE", help="write it to a .json or .parquet file")
    group.add_argument("--force", action="store_true", help="with -o: over a file that is there")


def run(args: argparse.Namespace) -> int:
    if not _is_run(args.run, args.head):
        return _show_map(args)
    from multihead.table.table import HeadTable
    from multihead.table.view import RichView

    if args.head is not None:
        args.heads, args.all = args.head, True
    table = _chosen(args, HeadTable.load(Path(args.run)))
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

    from multihead.table.view import word

    console = out()
    for at, head in enumerate(table.heads):
        console.print(Text(f"{head}", "bold"))
        drawn = Table.grid(padding=(0, 2))
        for name, column in table.columns.items():
            why = table.why(name, head)
            drawn.add_row(Text(f"  {name}"), Text(word(column, at)), Text(why or table.meaning[name].text, "dim"))
        console.print(drawn)


# ---- a map ------------------------------------------------------------------------------------


def _is_run(name: str, head: str | None) -> bool:
    """Whether it is a table; else it is a model."""
    path = Path(name)
    if path.is_dir():
        table = any((path / file).exists() for file in ("table.json", "table.parquet"))
        return table or not any((path / file).is_file() for file in ("config.json", "multihead.json"))
    if path.exists() or path.suffix in (".json", ".parquet"):
        return True
    from multihead.cli.load import PACKAGED

    return head is None and name not in PACKAGED and "/" not in name and ":" not in name


def _show_map(args: argparse.Namespace) -> int:
    from multihead.cli.heatmap import Heatmap
    from multihead.cli.load import load_model
    from multihead.cli.report import given_text
    from multihead.corpus.batches import default_max_tokens

    if args.head is None:
        raise MultiheadError(
            f"{args.run} is a model: which of its heads is to be shown?",
            hint=f"multihead show {args.run} 3.7, or measure it: multihead measure {args.run} -o run",
        )
    text = TEXT if args.text is None else given_text(args.text)
    loaded = load_model(argparse.Namespace(**{**vars(args), "model": args.run}))
    if loaded.tokenizer is None:
        raise MultiheadError(
            f"{loaded.name} has no tokenizer, so text cannot be read",
            hint="in Python: mh.capture(model, keep='qk'), then mh.figure.map(heads['L3H7'])",
        )
    found = _seen(loaded, args.head, text, default_max_tokens(loaded.model))
    if args.json:
        write_json({"model": loaded.name, "text": text, **found})
        return 0
    if not 0 <= args.start < len(found["tokens"]):
        raise MultiheadError(
            f"--from {args.start}: there are {len(found['tokens'])} tokens", hint="they count from 0"
        )
    import torch

    drawn = Heatmap(
        torch.tensor(found["weights"]), found["tokens"], found["tokens"], start=args.start, digits=args.digits
    )
    _print_map(drawn, f"{loaded.name} {found['head']}", found)
    return 0


def _seen(loaded: Loaded, name: str, text: str, longest: int | None) -> dict[str, Any]:
    """One run of the model: the head, its tokens, weights and statistics."""
    from multihead.corpus.batches import batches
    from multihead.measures.measure import with_special
    from multihead.model.capture import capture
    from multihead.model.find_sites import find_sites
    from multihead.model.forward import Forward
    from multihead.model.keep import Keep
    from multihead.model.sites import find
    from multihead.model.statistics.options import Statistics
    from multihead.page.words import Words

    site, at = find(name, find_sites(loaded.model))
    pieces = list(batches(loaded.model, [text], tokenizer=loaded.tokenizer, batch_size=1, max_tokens=longest))
    asked = with_special(Statistics(), loaded.tokenizer)
    with capture(loaded.model, statistics=asked, keep=Keep(qk=[site.label])) as heads:
        Forward(loaded.model)(pieces[0])
    head, ids = heads[site.name(at)], pieces[0]["input_ids"][0].tolist()
    numbers = {n: head.mean(n) for n in STATISTICS}
    return {
        "head": head.name,
        "tokens": Words.of(ids, loaded.tokenizer, text).shown,
        "weights": head.weights()[0].float().tolist(),
        "statistics": {n: x if x == x else None for n, x in numbers.items()},
        "pieces": len(pieces),
    }


def _print_map(drawn: Heatmap, title: str, found: dict[str, Any]) -> None:
    from rich.text import Text

    console = out()
    console.print(Text(f"{title}: each token, and where it looks", "bold"))
    console.print(drawn)
    console.print(drawn.scale(console))
    numbers = ", ".join(f"{n} {x:.2g}" for n, x in found["statistics"].items() if x is not None)
    for line in wrap(numbers, console.width, initial_indent="  ", subsequent_indent="  "):
        console.print(Text(line, "dim"))
    shown = drawn.shown(console.width)
    if found["pieces"] > 1:
        note(f"note: the text is longer than the model takes: this is the first of {found['pieces']} windows of it")
    if len(shown) < len(drawn.keys):
        more = f"; --from {shown.stop} shows the next" if shown.stop < len(drawn.keys) else ""
        note(f"note: tokens {shown.start} to {shown.stop - 1} of {len(drawn.keys)}, as many as fit{more}")
