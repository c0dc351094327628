"""`multihead report [MODEL]`: one page that tells what every head does, and a summary in the terminal."""

from __future__ import annotations

import argparse
import shlex
import webbrowser
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from multihead.cli.console import note, out, size, write_json
from multihead.cli.load import Loaded, add_model
from multihead.cli.reading import CUTS, PARTS, Reading, add_measuring, add_reading, silent
from multihead.cli.reading import given_text as given_text
from multihead.cli.stopping import kind_end
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.page.gather import Gathered

LEAST_DISK = 20e6
"""Bytes that are free on the disk, or nothing is begun."""

_EPILOG = """examples:
  multihead report                              # a small model that comes in a package
  multihead report minilm --text "The keys that he lost were on the table." -o keys.html --open
  multihead report path/to/model --text letter.txt --corpus texts/
  multihead report path/to/model --only measure,kinds  # quick: no importance, similarity or theory
  multihead report path/to/model --corpus texts/ --curve  # what real cuts cost, by three methods

Maps are of --text, numbers are over --corpus. The page is one file that needs no network. Ctrl-C writes a page of
what was finished so far."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "report",
        help="one page that tells what every head does",
        description="Measure a model and write one HTML file: every head, kind, importance, similarity, maps.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser, default="minilm")
    add_reading(parser)
    group = add_measuring(parser, PARTS)
    group.add_argument(
        "--curve",
        action="store_true",
        help="really cut the model at six sizes by three methods, fit it again, time it (default: heads are "
        "only ablated, which is quick)",
    )
    group.add_argument("--heads", metavar="NAMES", help="keep maps of these heads only: 3.7,L0H2")
    group.add_argument(
        "--windows",
        type=int,
        metavar="N",
        help="of a text longer than the model takes, keep N windows (default: as many as stay small)",
    )
    group = parser.add_argument_group("the page")
    group.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html")
    group.add_argument("--open", action="store_true", help="show it in a browser")
    group.add_argument("--force", action="store_true", help="over a page that is there")
    group.add_argument("--json", action="store_true", help="the summary for a program, on stdout")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def run(args: argparse.Namespace) -> int:
    _check(args)
    reading = Reading.of(args, PARTS)
    say: Callable[[str], None] = silent if args.quiet else note
    heads = _heads(args.heads, reading.loaded)
    first, second = reading.estimate(args)
    say(first)
    say(f"{second}; Ctrl-C writes what is there")
    with kind_end():
        found = reading.gather(args, heads=heads, windows=args.windows, cut=CUTS if args.curve else ())

    from multihead.page.build import write_page

    page = write_page(found, args.out)
    if args.json:
        write_json(_json(found, page))
    else:
        _show(found)
    for text in found.notes:
        say(f"note: {text}")
    say(f"{page}: {size(page.stat().st_size)}; open it in a browser")
    if found.stopped:
        note(f"multihead: stopped. {page} holds what was finished")
        return 130
    say(_next(args, found))
    if args.open:
        webbrowser.open(page.resolve().as_uri())
    return 0


# ---- before -----------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> None:
    """What can be said of the page before anything is loaded."""
    if args.out.is_dir():
        raise MultiheadError(f"{args.out} is a folder", hint=f"-o {args.out / 'report.html'}")
    if args.out.exists() and not args.force:
        raise MultiheadError(f"{args.out} is there already", hint="--force writes over it, or choose another -o")
    above = next(folder for folder in (*args.out.parents, Path("/")) if folder.exists())
    if not above.is_dir():
        raise MultiheadError(f"{above} is a file, so {args.out} cannot be in it", hint="choose another -o")
    if args.windows is not None and args.windows < 1:
        raise MultiheadError(f"--windows {args.windows} is less than 1", hint="--windows 1 keeps the first")
    try:
        with TemporaryFile(dir=above):
            pass
    except OSError as wrong:
        raise MultiheadError(
            f"nothing can be written to {above}: {wrong.strerror}", hint="choose another -o"
        ) from wrong
    free = disk_usage(above).free
    if free < LEAST_DISK:
        raise MultiheadError(
            f"there is no room on the disk of {args.out}: {size(free)} are free, a page takes some MB",
            hint="choose another -o",
        )


def _heads(names: str | None, loaded: Loaded) -> list[str] | None:
    """The heads whose maps are kept, by their full names."""
    if names is None:
        return None
    from multihead.model.find_sites import find_sites
    from multihead.model.sites import find

    sites = find_sites(loaded.model)
    found = [find(name.strip(), sites) for name in names.split(",") if name.strip()]
    return [site.name(head) for site, head in found]


# ---- after ------------------------------------------------------------------------------------


def _show(found: Gathered) -> None:
    """Card, findings, and a line per kind."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from multihead.page.build import card
    from multihead.page.findings import findings

    console = out()
    console.print(Text(f"{found.model['name']}: {card(found)}", "bold"))
    claims = None if found.claims is None else found.claims["statements"]
    for sentence in findings(found.table, found.similarity, found.curve, claims):
        console.print(Text(f"  • {sentence.text}"))
    rows = _kinds(found)
    if not rows:
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    measured = any(importance is not None for _, _, importance in rows)
    drawn.add_column("kind")
    drawn.add_column("heads", justify="right")
    if measured:
        drawn.add_column("mean importance", justify="right")
    drawn.add_column("which")
    for kind, names, importance in rows:
        some = " ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        middle = ["–" if importance is None else f"{importance:.3g}"] if measured else []
        drawn.add_row(Text(kind, "bold"), str(len(names)), *middle, Text(some))
    console.print(drawn)


def _kinds(found: Gathered) -> list[tuple[str, list[str], float | None]]:
    """Each kind, its heads and their mean importance, the most frequent first."""
    from multihead.page.findings import importance_column

    table = found.table
    if table is None or "kind" not in table.columns:
        return []
    by = importance_column(table)
    rows: list[tuple[str, list[str], float | None]] = []
    for kind, _ in Counter(table["kind"]).most_common():
        at = [i for i, k in enumerate(table["kind"]) if k == kind]
        importance = None if by is None else float(table[by][at].nanmean())
        rows.append((kind, [table.heads[i] for i in at], importance))
    return rows


def _json(found: Gathered, page: Path) -> dict[str, Any]:
    from multihead.page.findings import findings

    claims = None if found.claims is None else found.claims["statements"]
    said = findings(found.table, found.similarity, found.curve, claims)
    return {
        "model": found.model,
        "corpus": found.corpus,
        "heads": len(found.heads),
        "findings": [vars(f) for f in said],
        "kinds": {kind: names for kind, names, _ in _kinds(found)},
        "prunable": None if found.curve is None else found.curve["prunable"],
        "texts": [
            {
                "name": text["name"],
                "tokens": len(text["sequences"][0]["shown"]) if text["sequences"] else 0,
                "window": text["window"][0],
                "windows": text["window"][1],
            }
            for text in found.texts
        ],
        "notes": found.notes,
        "stopped": found.stopped,
        "page": str(page),
        "bytes": page.stat().st_size,
    }


def _next(args: argparse.Namespace, found: Gathered) -> str:
    """What to try after this."""
    model = shlex.quote(args.model)
    if any(len(some) < some[0]["window"][1] for some in _sources(found)):
        text = shlex.quote(args.text[0]) if args.text and len(args.text[0]) < 60 else "FILE"
        return f"next: multihead serve {model} --text {text}   (all windows of a long text)"
    if not args.text:
        return f'next: multihead report {model} --text "words of your own" -o mine.html'
    if found.curve is not None and found.curve["prunable"]:
        heads = len(found.heads)
        keep = (heads - found.curve["prunable"]) / heads
        return f"next: multihead prune {model} --keep {keep:.2g} --calib TEXT -o smaller/"
    return f"next: multihead measure {model} -o run"


def _sources(found: Gathered) -> list[list[dict[str, Any]]]:
    """The windows that are kept of each text."""
    kept: dict[int, list[dict[str, Any]]] = {}
    for text in found.texts:
        kept.setdefault(text["source"], []).append(text)
    return list(kept.values())
