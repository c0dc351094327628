"""`multihead serve [MODEL]`: the page over a local server, its maps computed as they are looked at."""

from __future__ import annotations

import argparse
import webbrowser
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from multihead.cli.console import note, write
from multihead.cli.load import add_model
from multihead.cli.reading import Reading, add_measuring, add_reading, silent
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.cli.load import Loaded

PARTS = ("measure", "kinds", "pairs", "cost")
LONGEST = 16_384
"""Tokens of a text that are shown at once, where the model takes as many and nothing else is said."""

_EPILOG = """examples:
  multihead serve                               # a small model that comes in a package; then type a text
  multihead serve path/to/model --text book.txt --open
  multihead serve path/to/model --longest 8192 --only measure,kinds,importance

The page asks this server for the maps that you look at, and the model computes them: long texts need no large file.
Only programs on this machine can reach it, and only with the address that is printed. Ctrl-C ends it."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "serve",
        help="the page over a local server: long texts, and texts of your own",
        description="The page of `multihead report` over a server on this machine; maps are computed on demand.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser, default="minilm")
    add_reading(parser)
    add_measuring(parser, PARTS)
    group = parser.add_argument_group("the server")
    group.add_argument(
        "--longest",
        type=int,
        metavar="N",
        help=f"tokens of a text that are shown at once (default: what the model takes, at most {LONGEST:,})",
    )
    group.add_argument("--port", type=int, default=0, metavar="N", help="default: one that is free")
    group.add_argument("--open", action="store_true", help="show it in a browser")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.port < 65536:
        raise MultiheadError(f"--port {args.port} is none", hint="0 to 65535; 0 takes one that is free")
    if args.longest is not None and args.longest < 1:
        raise MultiheadError(f"--longest {args.longest} is less than 1")
    reading = Reading.of(args, PARTS)
    say = silent if args.quiet else note

    from multihead.page.build import page
    from multihead.serve.desk import Desk
    from multihead.serve.server import Server

    desk = Desk(reading.loaded.model, reading.loaded.tokenizer, max_tokens=_longest(args, reading.loaded))
    for line in reading.estimate(args):
        say(line)
    found = reading.gather(args, maps=desk.show)
    if found.stopped:
        raise KeyboardInterrupt
    try:
        server = Server(desk, lambda: page(replace(found, texts=desk.texts), served=True), args.port)
    except OSError as taken:
        raise MultiheadError(
            f"--port {args.port} cannot be used: {taken.strerror}", hint="leave --port out"
        ) from taken
    with server:
        for text in found.notes:
            say(f"note: {text}")
        write(server.address)
        _flush()
        say("open it in a browser on this machine; Ctrl-C ends it")
        if args.open:
            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("ended")
    return 0


def _flush() -> None:
    import sys

    sys.stdout.flush()


def _longest(args: argparse.Namespace, loaded: Loaded) -> int:
    """--longest, as far as the model takes it; else what it takes."""
    from multihead.model.call_tokens import learned_positions

    learned = learned_positions(loaded.model)
    if args.longest is not None and learned is not None and args.longest > learned:
        raise MultiheadError(
            f"--longest {args.longest} is more than {loaded.name} takes: it has positions for {learned}",
            hint="longer texts are shown in windows; leave --longest out",
        )
    said: Any = getattr(getattr(loaded.model, "config", None), "max_position_embeddings", None)
    takes = learned or (said if isinstance(said, int) and said > 0 else LONGEST)
    return int(args.longest or min(LONGEST, takes))
