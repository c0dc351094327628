"""`multihead serve [MODEL]`: the page over a local server, its maps computed as they are looked at."""

from __future__ import annotations

import argparse
import socket
import sys
import webbrowser
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from multihead.cli.options import Options, add_command, option
from multihead.cli.output import speaker, write
from multihead.cli.report_and_serve import Reading, add_reading
from multihead.errors import MultiheadError
from multihead.show.report_estimate import SERVED_PARTS
from multihead.sources.pretrained import default_source

_EPILOG = """examples:
  multihead serve                               # a small model that comes in a package; then type a text
  multihead serve path/to/model --text book.txt --open
  multihead serve path/to/model --context 8192 --only measure,kinds,importance
  multihead serve path/to/translator --text "The house is small." --decoder "Das Haus"

The page asks this server for the maps that you look at, and the model computes them: long texts need no large file.
Its tab Switches runs the model with heads switched off or scaled, and compares what it predicts.
Only programs on this machine can reach it, and only with the address that is printed. Ctrl-C ends it."""


@dataclass(frozen=True)
class ServerOptions(Options):
    """Of `multihead.show.server`."""

    context: int | None = option(
        None, "tokens of a text that are shown at once (default: the positions of the model, at most 16,384)",
        least=1, metavar="N",
    )  # fmt: skip
    port: int = option(0, "0 chooses a free port", least=0, metavar="N")
    open: bool = option(False, "show the page in a browser")
    quiet: bool = option(False, "no progress, no notes")


def add(commands: Any) -> None:
    """Add `multihead serve` to the commands."""
    parser = add_command(
        commands,
        "serve",
        "The page of `multihead report` from a server on this machine; maps are computed on demand.",
        _EPILOG,
    )
    add_reading(parser, SERVED_PARTS)
    ServerOptions.add(parser, "the server")


def run(args: argparse.Namespace) -> int:
    """Run `multihead serve` until Ctrl-C."""
    options = ServerOptions.of(args)
    if options.port >= 65536:
        raise MultiheadError(f"--port must be at most 65535, got {options.port}", hint="0 chooses a free port")
    _check_port(options.port)
    say = speaker(options.quiet)
    reading = Reading.of(
        args, args.model or default_source(say), SERVED_PARTS, "multihead.show.serve.serve(model, {})"
    )

    from multihead.show.map_store import window_length
    from multihead.show.server import redirect_file

    window_length(
        reading.loaded.model, options.context
    )  # a wrong --context is an error before anything is measured
    for line in reading.estimate():
        say(line)
    try:
        server = reading.serve(context=options.context, port=options.port, progress=not options.quiet)
    except OSError as error:
        raise _unusable(options.port, error) from error
    with server, redirect_file(server.address) if options.open else nullcontext() as redirect:
        for text in server.report.notes if server.report is not None else ():
            say(f"note: {text}")
        write(server.address)
        sys.stdout.flush()
        say("open it in a browser on this machine; Ctrl-C ends it")
        if redirect is not None:
            webbrowser.open(redirect.as_uri())  # not the address: see redirect_file
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("ended")
    return 0


def _check_port(port: int) -> None:
    """Raise if the port is taken, before the model is loaded and measured."""
    from multihead.show.server import HOST

    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise _unusable(port, error) from error


def _unusable(port: int, error: OSError) -> MultiheadError:
    return MultiheadError(f"--port {port} cannot be used: {error.strerror}", hint="omit --port")
