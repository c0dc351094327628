"""`multihead report [MODEL]`: one page that tells what every head does, and a summary in the terminal."""

from __future__ import annotations

import shlex
import signal
import webbrowser
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multihead._base.atomic_files import check_new, check_writable
from multihead._base.estimate import size
from multihead.cli.options import OutputOptions, names, option
from multihead.cli.output import note
from multihead.cli.prune_and_group import METHODS
from multihead.cli.report_and_serve import PageOptions, arguments_of
from multihead.sources.pretrained import default_source

if TYPE_CHECKING:
    from multihead.show.report import Report


EXAMPLES = """examples:
  multihead report                              # a small model that comes in a package
  multihead report minilm --text "The keys that he lost were on the table." -o keys.html --open
  multihead report path/to/model --text letter.txt --corpus texts/
  multihead report path/to/model --only measure,kinds  # quick: no importance, similarity or theory
  multihead report path/to/vit --inputs images.safetensors

Without --only it measures all parts. Maps are of --text, numbers are over --corpus. The page is one file that needs
no network. Ctrl-C writes a page with the parts that are finished."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(PageOptions, OutputOptions, title="the page"):
    """Measure a model and write one HTML file: every head, its kind and its maps."""

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

    def check(self) -> None:
        """Raise unless the options of `multihead report` fit together, and the page may be written."""
        super().check()
        check_new(self.out, self.force)
        check_writable(self.out)


OPTIONS = ReportOptions


def run(options: ReportOptions) -> int:
    """Run `multihead report`: write the page, print a summary."""
    from multihead.corpus.stopping import sigterm_as_interrupt
    from multihead.show.make_report import report as mh_report

    source = options.model or default_source(options.say)
    loaded, arguments = arguments_of(options, source)
    with sigterm_as_interrupt() as received:
        report = mh_report(
            loaded.model,
            path=options.out,
            force=options.force,
            heads=names(options.heads) or None,
            windows=options.windows,
            cut=METHODS if options.curve else (),
            **arguments,
        )
    written = options.out.stat().st_size
    data = {**report.to_json(), "page": str(options.out), "bytes": written}
    options.print(report.summary(), data)
    for text in report.notes:
        options.say(f"note: {text}")
    options.say(f"{options.out}: {size(written)}; open it in a browser")
    if report.stopped:
        note(f"multihead: stopped. {options.out} has the finished parts")
        return 128 + (received[0] if received else signal.SIGINT)
    options.say(f"next: {_next(source, options, report, reads_text=loaded.tokenizer is not None)}")
    if options.open:
        webbrowser.open(options.out.resolve().as_uri())
    return 0


def _next(source: str, options: ReportOptions, report: Report, *, reads_text: bool) -> str:
    """The next useful command after `multihead report`."""
    model, texts, data = shlex.quote(source), options.text, options.typed_data()
    stored = Counter(text.source for text in report.texts)
    if any(stored[text.source] < text.window[1] for text in report.texts):
        text = shlex.quote(texts[0]) if texts and len(texts[0]) < 60 else "FILE"
        return f"multihead serve {model} --text {text}   (all windows of a long text)"
    if not texts and reads_text:
        return f'multihead report {model} --text "words of your own" -o mine.html'
    if report.curve is not None and report.curve.prunable:
        keep = (report.curve.heads - report.curve.prunable) / report.curve.heads
        calibration = data or (" --calibration TEXT" if reads_text else "")
        return f"multihead prune {model} --keep {keep:.2g}{calibration} -o smaller/"
    return f"multihead measure {model}{data} -o run"
