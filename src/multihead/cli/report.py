"""`multihead report [MODEL]`: one page that tells what every head does, and a summary in the terminal."""

from __future__ import annotations

import argparse
import shlex
import signal
import webbrowser
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.atomic_files import check_writable
from multihead._base.estimate import size
from multihead.cli.options import OutputOptions, TextOptions, add_command, names, option
from multihead.cli.output import note, out, speaker, write_json
from multihead.cli.prune_and_group import METHODS
from multihead.cli.report_and_serve import Reading, add_reading
from multihead.errors import MultiheadError
from multihead.show.report_estimate import PARTS
from multihead.sources.pretrained import check_source, default_source

if TYPE_CHECKING:
    from multihead.show.report import Report


_EPILOG = """examples:
  multihead report                              # a small model that comes in a package
  multihead report minilm --text "The keys that he lost were on the table." -o keys.html --open
  multihead report path/to/model --text letter.txt --corpus texts/
  multihead report path/to/model --only measure,kinds  # quick: no importance, similarity or theory
  multihead report path/to/model --corpus texts/ --curve  # what real cuts cost, by three methods

Maps are of --text, numbers are over --corpus. The page is one file that needs no network. Ctrl-C writes a page of
what was finished so far."""


@dataclass(frozen=True)
class PageOptions(OutputOptions):
    """Of `multihead.report`: the page."""

    curve: bool = option(
        False, "cut the model at six sizes by three methods, refit and time it (default: heads are ablated, fast)"
    )
    heads: tuple[str, ...] = option((), "keep maps of these heads only; may be repeated", metavar="3.7,L0H2")
    windows: int | None = option(
        None, "of a text longer than the model can read, keep N windows (default: as many as stay small)",
        least=1, metavar="N",
    )  # fmt: skip
    out: Path = option(Path("report.html"), "the page", "-o", "--out", metavar="FILE")
    force: bool = option(False, "overwrite an existing page")
    open: bool = option(False, "show the page in a browser")


def add(commands: Any) -> None:
    """Add `multihead report` to the commands."""
    parser = add_command(
        commands, "report", "Measure a model and write one HTML file: every head, its kind and its maps.", _EPILOG
    )
    add_reading(parser, PARTS)
    PageOptions.add(parser, "the page")


def run(args: argparse.Namespace) -> int:
    """Run `multihead report`: write the page, print a summary."""
    from multihead.corpus.stopping import sigterm_as_interrupt

    options, texts = PageOptions.of(args), TextOptions.of(args).text
    say, source = speaker(options.quiet), args.model
    if source is not None:
        check_source(source)
    if options.out.is_file() and not options.force:
        raise MultiheadError(f"{options.out} exists already", hint="--force overwrites it, or choose another -o")
    check_writable(options.out)
    reading = Reading.of(args, source or default_source(say), PARTS, "mh.report(model, {}, 'report.html')")
    cut = METHODS if options.curve else ()
    first, second = reading.estimate(cut=cut)
    say(first)
    say(f"{second}; Ctrl-C writes what is finished")
    with sigterm_as_interrupt() as received:
        report = reading.report(
            path=options.out,
            heads=names(options.heads) or None,
            windows=options.windows,
            cut=cut,
            progress=not options.quiet,
        )
    written = options.out.stat().st_size
    if options.json:
        write_json({**report.to_json(), "page": str(options.out), "bytes": written})
    else:
        out().print(report.summary(), markup=False, soft_wrap=True)
    for text in report.notes:
        say(f"note: {text}")
    say(f"{options.out}: {size(written)}; open it in a browser")
    if report.stopped:
        note(f"multihead: stopped. {options.out} holds what was finished")
        return 128 + (received[0] if received else signal.SIGINT)
    say(_next(reading.source, texts, report))
    if options.open:
        webbrowser.open(options.out.resolve().as_uri())
    return 0


def _next(source: str, texts: tuple[str, ...], report: Report) -> str:
    """The next useful command after `multihead report`."""
    model = shlex.quote(source)
    stored = Counter(text.source for text in report.texts)
    if any(stored[text.source] < text.window[1] for text in report.texts):
        text = shlex.quote(texts[0]) if texts and len(texts[0]) < 60 else "FILE"
        return f"next: multihead serve {model} --text {text}   (all windows of a long text)"
    if not texts:
        return f'next: multihead report {model} --text "words of your own" -o mine.html'
    if report.curve is not None and report.curve.prunable:
        keep = (report.curve.heads - report.curve.prunable) / report.curve.heads
        return f"next: multihead prune {model} --keep {keep:.2g} --calibration TEXT -o smaller/"
    return f"next: multihead measure {model} -o run"
