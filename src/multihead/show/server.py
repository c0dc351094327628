"""The page over HTTP, for this machine alone: bound to 127.0.0.1, a token in the address, strict headers.

| request | response |
|---|---|
| `/TOKEN/` | the page |
| `/TOKEN/map?text=0&layer=L3&head=7&x=0&y=0&w=99&h=99&width=99&height=99` | 255 √p of a part, row by row |
| `/TOKEN/row?…&i=5`, `/TOKEN/column?…&i=5` | weights of a query or of a key: 32-bit floats, little-endian |
| `/TOKEN/norms?…` | the norm of every key's contribution, for norm-weighted attention |
| `/TOKEN/pairs?…` | the strongest pairs, JSON |
| POST `/TOKEN/text` | takes a `TextRequest` as JSON, runs the model on it, returns its tokens as JSON |
| POST `/TOKEN/switches` | takes a `SwitchRequest` as JSON, returns the predictions with and without scaled heads |

Everything else is refused: other methods with 405; a wrong token, a Host other than this server (DNS rebinding)
or a foreign Origin with 403. A request that cannot be answered gets 400 and one line that says why.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.show.map_store import MapStore
>>> from multihead.show.server import Server
>>> store = MapStore(GPT2Model(GPT2Config(n_layer=1, n_head=3, n_embd=24, vocab_size=50)).eval())
>>> with Server(store, lambda: "<!doctype html>") as server:  # server.serve_forever() would answer
...     server.address.startswith("http://127.0.0.1:"), len(server.token)
(True, 32)
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from multihead.errors import MultiheadError
from multihead.show.map_store import MapStore
from multihead.show.map_tiles import HeadMap, Part, Stopped
from multihead.show.report import Report
from multihead.show.switch_request import SwitchRequest, TextRequest
from multihead.show.switches import Switches

HOST = "127.0.0.1"
MAX_TEXT_BYTES = 4_000_000
MAX_SWITCHES_BYTES = 400_000
MAX_PICTURE_SIDE = 4096
MAX_REASON = 500
"""Characters of a message about a request."""

PAIRS = 24
TIMEOUT = 30.0
"""Seconds that a connection may be silent."""

LINGER = 2.0
"""The same once a request has been refused."""

MAX_DISCARDED = 64_000_000
"""Bytes of a refused request that are read and dropped."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
TEXT, BYTES, JSON = "text/plain; charset=utf-8", "application/octet-stream", "application/json"


class Server(ThreadingHTTPServer):
    """Serves `page()` and the maps of a store until `shutdown`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False

    def __init__(
        self, store: MapStore, page: Callable[[], str], port: int = 0, *, report: Report | None = None
    ) -> None:
        self.store, self.page, self.switches, self.report = store, page, Switches(store), report
        self.token = secrets.token_urlsafe(24)
        self.computing = BoundedSemaphore(2)
        super().__init__((HOST, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def names(self) -> tuple[str, ...]:
        """The values of Host that mean this server."""
        return (f"{HOST}:{self.port}", f"localhost:{self.port}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of an exception outside a request; a browser that hangs up is not a fault."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            _log_failure(error)


@contextmanager
def redirect_file(address: str) -> Generator[Path]:
    """A page that leads to `address`, readable by its owner only (mode 0600).

    A browser is started with the name of this file: its arguments are visible to every user of the machine, so the
    token must not be one of them.
    """
    handle, name = tempfile.mkstemp(prefix="multihead-", suffix=".html")
    link = escape(address)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><title>multihead</title>'
            f'<meta http-equiv="refresh" content="0;url={link}"><a href="{link}">Open the report</a>\n'
        )
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _log_failure(error: BaseException) -> None:
    """One line on stderr, or the traceback where MULTIHEAD_TRACEBACK is set. Neither holds the address."""
    if os.environ.get("MULTIHEAD_TRACEBACK"):
        traceback.print_exception(error)
    else:
        sys.stderr.write(f"multihead: {_one_line(error)} (MULTIHEAD_TRACEBACK=1 shows where it came from)\n")
        sys.stderr.flush()


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


def _bad(reason: str) -> NoReturn:
    raise _Refused(HTTPStatus.BAD_REQUEST, reason)


@dataclass(frozen=True)
class _Query:
    """The part of an address after "?"."""

    values: dict[str, str]

    def integer(self, name: str) -> int:
        """The integer of this name in a request's query."""
        value = self.values.get(name, "")
        if name not in self.values:
            _bad(f"{name} is missing")
        if not value.isdecimal() or not value.isascii() or len(value) > 9:
            _bad(f"{name} must be an integer from 0, got {value[:40]!r}")
        return int(value)

    def flag(self, name: str) -> bool:
        return self.values.get(name) == "1"


Response = tuple[str, bytes]
"""Content type and body."""


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = TIMEOUT
    server_version = "multihead"
    sys_version = ""

    # ---- requests -------------------------------------------------------------------------------

    def do_GET(self) -> None:
        self._respond()

    def __getattr__(self, name: str) -> Any:
        """http.server looks up do_METHOD: all methods are answered, and refused, in one place."""
        if name.startswith("do_"):
            return self._respond
        raise AttributeError(name)

    def _respond(self) -> None:
        """Answer a request, with an error page of one line if it fails."""
        try:
            self._send(HTTPStatus.OK, *self._response())
        except _Refused as refused:
            self._send(refused.status, TEXT, refused.reason.encode(errors="replace"), **refused.headers)
            self._discard_rest()
        except MultiheadError as error:
            reason = " ".join(str(error).split())[:MAX_REASON]
            self._send(HTTPStatus.BAD_REQUEST, TEXT, reason.encode(errors="replace"))
        except (Stopped, ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:  # noqa: BLE001  # the server goes on
            _log_failure(error)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, _one_line(error).encode(errors="replace"))

    def _response(self) -> Response:
        """The response to a request, by its route."""
        path, query = self._authorized()
        if path not in ROUTES:
            raise _Refused(HTTPStatus.NOT_FOUND, "this address does not exist")
        method, answer = ROUTES[path]
        if self.command != method:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"use {method}", Allow=method)
        return answer(self, query)

    def _authorized(self) -> tuple[str, _Query]:
        """The path behind the token, and the query; refused unless host, origin and token are right."""
        names = self.server.names
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in names:
            raise _Refused(HTTPStatus.FORBIDDEN, "the Host header must name this server")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in [f"http://{name}" for name in names]:
            raise _Refused(HTTPStatus.FORBIDDEN, "cross-origin request refused")
        try:
            address = urlsplit(self.path)
        except ValueError as error:
            raise _Refused(HTTPStatus.FORBIDDEN, "the address cannot be parsed") from error
        token, slash, path = address.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token.encode()) or not slash:
            raise _Refused(HTTPStatus.FORBIDDEN, "use the complete address that `multihead serve` printed")
        return path, _Query({name: values[-1] for name, values in parse_qs(address.query).items()})

    # ---- responses ------------------------------------------------------------------------------

    def page(self, query: _Query) -> Response:
        return "text/html; charset=utf-8", self.server.page().encode(errors="replace")

    def map(self, query: _Query) -> Response:
        """The server's response with a tile of a map."""
        part = Part(*(query.integer(name) for name in ("x", "y", "w", "h")))
        width, height = (query.integer(name) for name in ("width", "height"))
        if max(width, height) > MAX_PICTURE_SIDE:
            _bad(f"width and height must be at most {MAX_PICTURE_SIDE}, got {width} and {height}")
        with self.server.computing:
            picture = self._head_map(query).tile(part, width, height, thin=query.flag("thin"))
        return BYTES, picture.numpy().tobytes()

    def row(self, query: _Query) -> Response:
        return self._weights(query, HeadMap.row, 0)

    def column(self, query: _Query) -> Response:
        return self._weights(query, HeadMap.column, 1)

    def _weights(self, query: _Query, read: Callable[[HeadMap, int], Tensor], axis: int) -> Response:
        """The server's response with a row or a column of weights."""
        token = query.integer("i")
        with self.server.computing:
            head_map = self._head_map(query)
            if token >= head_map.shape[axis]:
                _bad(f"i must be below {head_map.shape[axis]}, the number of tokens, got {token}")
            return BYTES, _floats(read(head_map, token))

    def norms(self, query: _Query) -> Response:
        text, layer, head = query.integer("text"), query.values.get("layer", ""), query.integer("head")
        return BYTES, _floats(self.server.store.norms(text, layer, head))

    def pairs(self, query: _Query) -> Response:
        """The server's response with the strongest pairs of a head."""
        head_map = self._head_map(query)
        text = self.server.store.text(query.integer("text"))
        layer = next(layer for layer in text.layers if layer.label == query.values["layer"])
        special = [torch.tensor(text.sequences[side].special) for side in (layer.rows, layer.columns)]
        square = layer.rows == layer.columns
        with self.server.computing:
            pairs = head_map.strongest(PAIRS, ~special[0], ~special[1], square=square)
        return JSON, json.dumps(pairs).encode()

    def text(self, query: _Query) -> Response:
        request = TextRequest.of(self._body("text", MAX_TEXT_BYTES))
        texts = self.server.store.add_typed(request.text, request.decoder)
        return JSON, json.dumps({"first": texts[0].number, "texts": [one.to_json() for one in texts]}).encode()

    def switched(self, query: _Query) -> Response:
        request = SwitchRequest.of(self._body("request", MAX_SWITCHES_BYTES))
        answer = self.server.switches.compare(request, stopped=self._hung_up)
        return JSON, json.dumps(answer, allow_nan=False).encode()

    def _body(self, name: str, most: int) -> bytes:
        """The body of a request to the server, of at most so many bytes."""
        length = self.headers.get("Content-Length", "")
        if not (length.isdecimal() and length.isascii()) or len(length) > 12:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the request must have a Content-Length")
        if int(length) > most:
            reason = f"the {name} must have at most {most:,} bytes, got {int(length):,}"
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            _bad(f"the {name} ended after {len(body)} of {length} bytes")
        return body

    def _discard_rest(self) -> None:
        """Read what is still sent: a connection closed before is reset, and the browser does not get the answer."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER)
            count = 0
            while count < MAX_DISCARDED and (data := self.connection.recv(65536)):
                count += len(data)

    def _head_map(self, query: _Query) -> HeadMap:
        """The map that the query of a request names."""
        return self.server.store.head_map(
            query.integer("text"),
            query.values.get("layer", ""),
            query.integer("head"),
            norm=query.flag("norm"),
            hide=query.flag("hide"),
            stopped=self._hung_up,
        )

    def _hung_up(self) -> bool:
        """Whether the browser no longer waits: it has asked for something else meanwhile."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _send(self, status: HTTPStatus, kind: str, body: bytes, **more: str) -> None:
        """Send a response to the browser."""
        headers = HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))} | more
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:  # the browser has hung up
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Of http.server itself, for a request that it cannot parse."""
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # of a request that it cannot parse it is 0.9, which has no headers
        self._send(HTTPStatus(code), TEXT, HTTPStatus(code).phrase.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Addresses hold the token: they are written nowhere."""


ROUTES: dict[str, tuple[str, Callable[[_Handler, _Query], Response]]] = {
    "": ("GET", _Handler.page),
    "map": ("GET", _Handler.map),
    "row": ("GET", _Handler.row),
    "column": ("GET", _Handler.column),
    "norms": ("GET", _Handler.norms),
    "pairs": ("GET", _Handler.pairs),
    "text": ("POST", _Handler.text),
    "switches": ("POST", _Handler.switched),
}
"""Path → method and answer."""


def _floats(values: Tensor) -> bytes:
    return values.float().cpu().contiguous().numpy().astype("<f4").tobytes()
