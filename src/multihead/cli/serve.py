"""`multihead serve [MODEL]`: the page over a local server, its maps computed as they are looked at."""

from __future__ import annotations

import socket
import sys
import webbrowser
from contextlib import nullcontext
from dataclasses import dataclass

from multihead.cli.options import option
from multihead.cli.output import write
from multihead.cli.report_and_serve import PageOptions, arguments_of
from multihead.errors import MultiheadError
from multihead.show.report_estimate import SERVED_PARTS
from multihead.sources.pretrained import default_source

EXAMPLES = f"""examples:
  multihead serve                               # a small model that comes in a package; then type a text
  multihead serve path/to/model --text book.txt --open
  multihead serve path/to/model --context 8192 --only measure,kinds,importance
  multihead serve path/to/translator --text "The house is small." --decoder "Das Haus"
  multihead serve path/to/vit --inputs images.safetensors

Without --only it measures {",".join(SERVED_PARTS)}.
The page asks this server for the maps that you look at, and the model computes them: long texts need no large file.
Its tab Switches runs the model with heads switched off or scaled, and compares what it predicts.
Only programs on this machine can reach it, and only with the address that is printed. Ctrl-C ends it."""


@dataclass(frozen=True, kw_only=True)
class ServeOptions(PageOptions, title="the server"):
    """The page of `multihead report` from a server on this machine; maps are computed on demand."""

    context: int | None = option(
        None, "tokens of a text that are shown at once (default: the positions of the model, at most 16,384)",
        least=1, metavar="N",
    )  # fmt: skip
    port: int = option(0, "0 chooses a free port", least=0, metavar="N")

    default_parts = SERVED_PARTS

    def check(self) -> None:
        """Raise if the port cannot be used, before the model is loaded and measured."""
        super().check()
        from multihead.show.server import HOST

        if self.port >= 65536:
            raise MultiheadError(f"--port must be at most 65535, got {self.port}", hint="0 chooses a free port")
        with socket.socket() as probe:
            try:
                probe.bind((HOST, self.port))
            except OSError as error:
                raise self.unusable(error) from error

    def unusable(self, error: OSError) -> MultiheadError:
        """The error for a port that is taken or not allowed."""
        return MultiheadError(f"--port {self.port} cannot be used: {error.strerror}", hint="omit --port")


OPTIONS = ServeOptions


def run(options: ServeOptions) -> int:
    """Run `multihead serve` until Ctrl-C."""
    from multihead.show.serve import serve
    from multihead.show.server import redirect_file

    loaded, arguments = arguments_of(options, options.model or default_source(options.say))
    try:
        server = serve(loaded.model, context=options.context, port=options.port, **arguments)
    except OSError as error:
        raise options.unusable(error) from error
    with server, redirect_file(server.address) if options.open else nullcontext() as redirect:
        for text in server.report.notes if server.report is not None else ():
            options.say(f"note: {text}")
        write(server.address)
        sys.stdout.flush()
        options.say("open it in a browser on this machine; Ctrl-C ends it")
        if redirect is not None:
            webbrowser.open(redirect.as_uri())  # not the address: see redirect_file
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            options.say("ended")
    return 0
