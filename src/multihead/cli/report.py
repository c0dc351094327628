"""`multihead report [MODEL]`: one page that tells what every head does, and a summary in the terminal."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.cli.console import duration, err, note, out, size, write_json
from multihead.cli.estimate import PROCESS
from multihead.cli.load import Loaded, add_model, load_model, piece_length
from multihead.cli.texts import SPLITS, Texts, texts
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.page.gather import Gathered

PARTS = ("measure", "kinds", "worth", "redundancy", "curve", "claims", "cost")
SHOWN = (0, 7, 8)
"""Documents of the sample whose maps are shown when no text is given: a story, nested clauses, repeats."""

ROOM = 400e6
"""What is held beside the weights: activations of a batch, q and k of the texts, covariances."""

_RUNS = {"measure": 3.0, "kinds": 8.0, "redundancy": 6.0, "curve": 14.0, "claims": 25.0}
"""About how many plain runs over the documents a part takes; worth depends on the heads."""

_EPILOG = """examples:
  multihead report                                a small model that comes in a package
  multihead report minilm --text "The keys that he lost were on the table." -o keys.html --open
  multihead report path/to/model --text letter.txt --corpus texts/
  multihead report path/to/model --only measure,kinds   quick: no worth, no twins, no theory

Maps are of --text, numbers are over --corpus. The page is one file that needs no network. Ctrl-C writes a page of
what was finished so far."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "report",
        help="one page that tells what every head does",
        description="Measure a model and write one HTML file: every head, its kind, worth, twins and maps.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser, default="minilm")
    group = parser.add_argument_group("what it reads (default: a sample of English that comes with the package)")
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
    group.add_argument("--max-tokens", type=int, metavar="N", help="cut longer documents into pieces of N tokens")
    group = parser.add_argument_group("what it measures")
    group.add_argument(
        "--only", metavar="PARTS", help=f"some of {','.join(PARTS)} (default: all; maps are always there)"
    )
    group.add_argument(
        "--worth",
        choices=("auto", "gradient", "ablation"),
        default="auto",
        help="by a backward pass, or by taking each head out; auto: taking out, up to 256 heads",
    )
    group.add_argument("--heads", metavar="NAMES", help="keep maps of these heads only: 3.7,L0H2")
    group.add_argument("--batch-size", type=int, default=8, metavar="N", help="documents at a time (default: 8)")
    group.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    group = parser.add_argument_group("the page")
    group.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html")
    group.add_argument("--open", action="store_true", help="show it in a browser")
    group.add_argument("--force", action="store_true", help="over a page that is there")
    group.add_argument("--json", action="store_true", help="the summary for a program, on stdout")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def run(args: argparse.Namespace) -> int:
    parts = _check(args)
    given = [given_text(name) for name in args.text]
    say: Callable[[str], None] = _silent if args.quiet else note
    loaded = load_model(args)
    _one_sequence(loaded)
    documents = texts(argparse.Namespace(**{**vars(args), "text": []}), loaded.tokenizer)
    if given and loaded.tokenizer is None:
        raise MultiheadError(f"{loaded.name} has no tokenizer, so text cannot be read", hint="leave --text out")
    longest = args.max_tokens or piece_length(loaded.model)
    heads = _heads(args.heads, loaded)
    for line in _estimate(loaded, documents, parts, longest, args):
        say(line)
    found = _gathered(args, loaded, documents, given or _default(args, documents), parts, longest, heads)

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


def _check(args: argparse.Namespace) -> tuple[str, ...]:
    """What can be said before anything is loaded; the parts that are asked for."""
    if args.out.is_dir():
        raise MultiheadError(f"{args.out} is a folder", hint=f"-o {args.out / 'report.html'}")
    if args.out.exists() and not args.force:
        raise MultiheadError(f"{args.out} is there already", hint="--force writes over it, or choose another -o")
    above = next(folder for folder in (*args.out.parents, Path("/")) if folder.exists())
    if not above.is_dir():
        raise MultiheadError(f"{above} is a file, so {args.out} cannot be in it", hint="choose another -o")
    for option in ("batch_size", "max_tokens"):
        value: int | None = getattr(args, option)
        if value is not None and value < 1:
            raise MultiheadError(f"--{option.replace('_', '-')} {value} is less than 1")
    if args.only is None:
        return PARTS
    asked = [word.strip() for word in args.only.split(",") if word.strip()]
    wrong = next((word for word in asked if word not in PARTS), None)
    if wrong is not None or not asked:
        raise MultiheadError(f"--only {args.only}: there is no part {wrong!r}", hint=f"some of {','.join(PARTS)}")
    return tuple(part for part in PARTS if part in asked)


def given_text(name: str) -> str:
    """A file, stdin, or the words themselves."""
    path = Path(name)
    if name == "-":
        found = sys.stdin.read()
    elif len(name) < 256 and "\0" not in name and path.is_file():
        try:
            found = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as wrong:
            raise MultiheadError(f"{name} is not UTF-8 text: {wrong}", hint=f"iconv -t UTF-8 {name}") from wrong
    elif len(name.split()) > 1:
        found = name
    else:
        raise MultiheadError(f"there is no file {name!r}", hint='--text FILE, - for stdin, or "several words"')
    if not found.strip():
        raise MultiheadError(f"there is no word in --text {name!r}", hint="a text has at least one word")
    return found.strip()


def _one_sequence(loaded: Loaded) -> None:
    if getattr(getattr(loaded.model, "config", None), "is_encoder_decoder", False):
        raise MultiheadError(
            f"{loaded.name} reads two sequences, and the command line gives it one",
            hint="in Python: mh.report(model, [{'input_ids': ..., 'decoder_input_ids': ...}], 'report.html')",
        )


def _heads(names: str | None, loaded: Loaded) -> list[str] | None:
    """The heads whose maps are kept, by their full names."""
    if names is None:
        return None
    from multihead.model.known import sites_of
    from multihead.model.sites import find

    sites = list(sites_of(loaded.model).values())
    found = [find(name.strip(), sites) for name in names.split(",") if name.strip()]
    return [site.name(head) for site, head in found]


def _default(args: argparse.Namespace, documents: Texts) -> list[str] | None:
    """Some paragraphs of the sample that show more than the first ones; None: the first documents."""
    if args.corpus or args.ids:
        return None
    every = [d for d in documents if isinstance(d, str)]
    return [every[at] for at in SHOWN if at < len(every)] or None


def _estimate(
    loaded: Loaded, documents: Texts, parts: Sequence[str], longest: int, args: argparse.Namespace
) -> list[str]:
    """What will run, about how long, about how much memory."""
    import torch

    from multihead.measures.corpus import batches
    from multihead.model.known import sites_of

    read = list(
        batches(loaded.model, documents, tokenizer=loaded.tokenizer, batch_size=args.batch_size, max_tokens=longest)
    )
    with torch.no_grad():
        loaded.model(**read[0])  # the first run is slower than the others
        start = time.perf_counter()
        loaded.model(**read[0])
        once = time.perf_counter() - start
    heads = sum(site.heads for site in sites_of(loaded.model).values())
    exact = args.worth == "ablation" or (args.worth == "auto" and heads <= 256)
    runs = _RUNS | {"worth": heads / 3 if exact else 4.0}
    seconds = once * len(read) * sum(runs.get(part, 0.0) for part in parts)
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    parameters = sum(p.numel() for p in loaded.model.parameters())
    return [
        f"{loaded.name}: {heads} heads, {parameters / 1e6:.3g} M parameters; {documents.name}: "
        f"{documents.documents} documents; {', '.join(('maps', *parts))}",
        f"about {duration(seconds)}, about {size(PROCESS + ROOM + weights)} of memory; Ctrl-C writes what is there",
    ]


# ---- during -----------------------------------------------------------------------------------


def _silent(text: str) -> None:
    """--quiet"""


def _gathered(
    args: argparse.Namespace,
    loaded: Loaded,
    documents: Texts,
    shown: list[str] | None,
    parts: tuple[str, ...],
    longest: int,
    heads: list[str] | None,
) -> Gathered:
    from multihead.page.gather import gather

    with _bar(args, parts) as progress:
        return gather(
            loaded.model,
            documents,
            tokenizer=loaded.tokenizer,
            text=shown,
            name=loaded.name,
            corpus=documents.name,
            parts=parts,
            how=args.worth,
            heads=heads,
            batch_size=args.batch_size,
            max_tokens=longest,
            seed=args.seed,
            progress=progress,
        )


@contextmanager
def _bar(args: argparse.Namespace, parts: Sequence[str]) -> Generator[Callable[[str, int, int], None]]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = err()
    shown = console.is_terminal and not args.quiet
    columns = (TextColumn("{task.description:>10}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not shown) as bar:
        tasks = {part: bar.add_task(part, total=None, start=False) for part in ("maps", *parts) if part != "cost"}

        def progress(part: str, done: int, every: int) -> None:
            if not bar.tasks[tasks[part]].started:
                bar.start_task(tasks[part])
            bar.update(tasks[part], completed=done, total=max(done, every))

        yield progress


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
    for sentence in findings(found.table, found.redundancy, found.curve, claims):
        console.print(Text(f"  • {sentence.text}"))
    rows = _kinds(found)
    if not rows:
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    measured = any(worth is not None for _, _, worth in rows)
    drawn.add_column("kind")
    drawn.add_column("heads", justify="right")
    if measured:
        drawn.add_column("mean worth", justify="right")
    drawn.add_column("which")
    for kind, names, worth in rows:
        some = " ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        middle = ["–" if worth is None else f"{worth:.3g}"] if measured else []
        drawn.add_row(Text(kind, "bold"), str(len(names)), *middle, Text(some))
    console.print(drawn)


def _kinds(found: Gathered) -> list[tuple[str, list[str], float | None]]:
    """Each kind, its heads and their mean worth, the most frequent first."""
    from multihead.page.findings import worth_column

    table = found.table
    if table is None or "kind" not in table.columns:
        return []
    by = worth_column(table)
    rows: list[tuple[str, list[str], float | None]] = []
    for kind, _ in Counter(table["kind"]).most_common():
        at = [i for i, k in enumerate(table["kind"]) if k == kind]
        worth = None if by is None else float(table[by][at].nanmean())
        rows.append((kind, [table.heads[i] for i in at], worth))
    return rows


def _json(found: Gathered, page: Path) -> dict[str, Any]:
    from multihead.page.findings import findings

    said = findings(found.table, found.redundancy, found.curve)
    return {
        "model": found.model,
        "corpus": found.corpus,
        "heads": len(found.heads),
        "findings": [vars(f) for f in said],
        "kinds": {kind: names for kind, names, _ in _kinds(found)},
        "can_go": None if found.curve is None else found.curve["can_go"],
        "notes": found.notes,
        "stopped": found.stopped,
        "page": str(page),
        "bytes": page.stat().st_size,
    }


def _next(args: argparse.Namespace, found: Gathered) -> str:
    model = shlex.quote(args.model)
    if not args.text:
        return f'next: multihead report {model} --text "words of your own" -o mine.html'
    return f"next: multihead measure {model} -o run"
