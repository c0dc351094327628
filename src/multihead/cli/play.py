"""`multihead play`: a page that runs the embedded model, with a switch on every head."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from multihead._base.estimate import size
from multihead.cli.options import QuietOptions, option

EXAMPLES = """examples:
  multihead play --open
  multihead play -o lesson.html

The page is one file that needs no network. The model inside it runs in the browser: type words, switch heads off,
set where they look, follow every number of the computation. Seven lessons check what you do."""


@dataclass(frozen=True, kw_only=True)
class PlayOptions(QuietOptions, title="the page"):
    """Write one HTML file with a small transformer that runs in it: switch its heads."""

    out: Path = option(Path("play.html"), "the page", "-o", "--out", metavar="FILE")
    force: bool = option(False, "overwrite an existing page")
    open: bool = option(False, "show the page in a browser")


OPTIONS = PlayOptions


def run(options: PlayOptions) -> int:
    """Run `multihead play`: write the page."""
    from multihead.show.play import play

    play(options.out, force=options.force)
    options.say(f"{options.out}: {size(options.out.stat().st_size)}; open it in a browser")
    options.say("next: multihead report embedded   (what every head of this model does)")
    if options.open:
        webbrowser.open(options.out.resolve().as_uri())
    return 0
