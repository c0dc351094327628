"""`multihead play`: a page that runs the embedded model, with a switch on every head."""

from __future__ import annotations

import argparse
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multihead._base.atomic_files import check_writable
from multihead._base.estimate import size
from multihead.cli.options import Options, add_command, option
from multihead.cli.output import speaker
from multihead.errors import MultiheadError

_EPILOG = """examples:
  multihead play --open
  multihead play -o lesson.html

The page is one file that needs no network. The model inside it runs in the browser: type words, switch heads off,
set where they look, follow every number of the computation. Seven lessons check what you do."""


@dataclass(frozen=True)
class PlayOptions(Options):
    """Of `multihead.play`."""

    out: Path = option(Path("play.html"), "the page", "-o", "--out", metavar="FILE")
    force: bool = option(False, "overwrite an existing page")
    open: bool = option(False, "show the page in a browser")
    quiet: bool = option(False, "no notes")


def add(commands: Any) -> None:
    """Add `multihead play` to the commands."""
    parser = add_command(
        commands, "play", "Write one HTML file with a small transformer that runs in it: switch its heads.", _EPILOG
    )
    PlayOptions.add(parser, "the page")


def run(args: argparse.Namespace) -> int:
    """Run `multihead play`: write the page."""
    options = PlayOptions.of(args)
    say = speaker(options.quiet)
    if options.out.is_file() and not options.force:
        raise MultiheadError(f"{options.out} exists already", hint="--force overwrites it, or choose another -o")
    check_writable(options.out, least=2e6)

    from multihead.show.play import play

    play(options.out)
    say(f"{options.out}: {size(options.out.stat().st_size)}; open it in a browser")
    say("next: multihead report embedded   (what every head of this model does)")
    if options.open:
        webbrowser.open(options.out.resolve().as_uri())
    return 0
