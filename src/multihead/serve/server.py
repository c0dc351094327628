"""The page over HTTP, for this machine alone: bound to 127.0.0.1, a token in the address, strict headers.

| address | gives |
|---|---|
| `/TOKEN/` | the page |
| `/TOKEN/map?text=0&layer=L3&head=7&x=0&y=0&w=99&h=99&width=99&height=99` | 255 √p of a part, bytes, by rows |
| `/TOKEN/row?…&i=5`, `/TOKEN/column?…&i=5` | weights of a query or a key: 32-bit floats, little end first |
| `/TOKEN/norms?…` | what norm-weighted attention is weighted with |
| `/TOKEN/pairs?…` | the strongest pairs, JSON |
| POST `/TOKEN/text` | a text, UTF-8: its tokens, JSON; the model runs on it |

Everything else is refused: other methods 405, a wrong or missing token 403, another Host than this server's own
403 (an attacker's page whose name is made to point at 127.0.0.1 sends its own), another Origin 403.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.serve.desk import Desk
>>> from multihead.serve.server import Server
>>> desk = Desk(GPT2Model(GPT2Config(n_layer=1, n_head=3, n_embd=24, vocab_size=50)).eval())
>>> with Server(desk, lambda: "<!doctype html>") as server:  # server.serve_forever() would answer
...     server.address.startswith("http://127.0.0.1:"), len(server.token)
(True, 32)
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from multihead.errors import MultiheadError
from multihead.serve.desk import Desk
from multihead.serve.tiles import HeadMap, Part, Stopped

HOST = "127.0.0.1"
LONGEST = 4_000_000
"""Bytes of a text that is sent."""
WIDEST = 4096
"""Cells of a side of a picture."""
PAIRS = 7
WAITING = 30.0
"""Seconds that a connection may say nothing."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Serves `page()` and the maps of a desk until `shutdown`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False

    def __init__(self, desk: Desk, page: Callable[[], str], port: int = 0) -> None:
        self.desk, self.page = desk, page
        self.token = secrets.token_urlsafe(24)
        self.working = BoundedSemaphore(2)
        super().__init__((HOST, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    @property
    def names(self) -> tuple[str, ...]:
        """What a browser may call this server."""
        return (f"{HOST}:{self.port}", f"localhost:{self.port}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error of ours, and a traceback helps nobody."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = WAITING
    server_version = "multihead"
    sys_version = ""

    # ---- what may be asked ----------------------------------------------------------------------

    def do_GET(self) -> None:
        self._answered({"": self._page, "map": self._map, "row": self._row, "column": self._column,
                        "norms": self._norms, "pairs": self._pairs})  # fmt: skip

    def do_POST(self) -> None:
        self._answered({"text": self._text})

    def __getattr__(self, name: str) -> Any:
        """http.server asks for do_METHOD: every other method is refused the same way."""
        if name.startswith("do_"):
            return self._other
        raise AttributeError(name)

    def _other(self) -> None:
        self._answered({})

    def _answered(self, known: dict[str, Callable[[dict[str, str]], tuple[str, bytes]]]) -> None:
        try:
            place, asked = self._allowed()
            if place not in known:
                there = place in ("", "map", "row", "column", "norms", "pairs", "text")
                raise _Refused(
                    *(
                        (HTTPStatus.METHOD_NOT_ALLOWED, "not this way")
                        if there
                        else (HTTPStatus.NOT_FOUND, "nothing")
                    )
                )
            kind, body = known[place](asked)
            self._send(HTTPStatus.OK, kind, body)
        except _Refused as refused:
            self._send(refused.status, "text/plain; charset=utf-8", refused.text.encode())
        except MultiheadError as wrong:
            said = " ".join(str(wrong).split())
            self._send(HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", said.encode(errors="replace"))
        except (Stopped, ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as wrong:  # noqa: BLE001  # a line in the browser, and the server goes on
            said = f"{type(wrong).__name__}: {' '.join(str(wrong).split())[:300]}"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", said.encode(errors="replace"))

    def _allowed(self) -> tuple[str, dict[str, str]]:
        """The place that is asked for, and with what; refused unless host, origin and token are right."""
        names = self.server.names
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in names:
            raise _Refused(HTTPStatus.FORBIDDEN, "this server has another name")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in [f"http://{name}" for name in names]:
            raise _Refused(HTTPStatus.FORBIDDEN, "another page asks")
        try:
            address = urlsplit(self.path)
        except ValueError as wrong:
            raise _Refused(HTTPStatus.FORBIDDEN, "this is no address") from wrong
        token, slash, place = address.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token.encode()) or not slash:
            raise _Refused(HTTPStatus.FORBIDDEN, "the address that `multihead serve` wrote has a token in it")
        return place, {name: values[-1] for name, values in parse_qs(address.query).items()}

    # ---- answers --------------------------------------------------------------------------------

    def _page(self, asked: dict[str, str]) -> tuple[str, bytes]:
        return "text/html; charset=utf-8", self.server.page().encode(errors="replace")

    def _map(self, asked: dict[str, str]) -> tuple[str, bytes]:
        part = Part(*(_number(asked, name) for name in ("x", "y", "w", "h")))
        width, height = (_number(asked, name) for name in ("width", "height"))
        if max(width, height) > WIDEST:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"a picture has at most {WIDEST} cells on a side")
        with self.server.working:
            drawn = self._head(asked).tile(part, width, height, thin=asked.get("thin") == "1")
        return "application/octet-stream", drawn.numpy().tobytes()

    def _row(self, asked: dict[str, str]) -> tuple[str, bytes]:
        return self._line(asked, HeadMap.row, 0)

    def _column(self, asked: dict[str, str]) -> tuple[str, bytes]:
        return self._line(asked, HeadMap.column, 1)

    def _line(self, asked: dict[str, str], read: Callable[[HeadMap, int], Tensor], axis: int) -> tuple[str, bytes]:
        at = _number(asked, "i")
        with self.server.working:
            head = self._head(asked)
            if at >= head.shape[axis]:
                raise _Refused(HTTPStatus.BAD_REQUEST, f"there is no token {at} of {head.shape[axis]}")
            return "application/octet-stream", _floats(read(head, at))

    def _norms(self, asked: dict[str, str]) -> tuple[str, bytes]:
        found = self.server.desk.norms(_number(asked, "text"), asked.get("layer", ""))
        head = _number(asked, "head")
        if head >= len(found):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"there is no head {head} of {len(found)}")
        return "application/octet-stream", _floats(found[head])

    def _pairs(self, asked: dict[str, str]) -> tuple[str, bytes]:
        head = self._head(asked)
        text = self.server.desk.texts[_number(asked, "text")]
        layer = next(layer for layer in text["layers"] if layer["label"] == asked["layer"])
        special = [torch.tensor(text["sequences"][layer[side]]["special"]) for side in ("rows", "columns")]
        square = layer["rows"] == layer["columns"]
        with self.server.working:
            found = head.strongest(PAIRS, ~special[0], ~special[1], square=square)
        return "application/json", json.dumps(found).encode()

    def _text(self, asked: dict[str, str]) -> tuple[str, bytes]:
        said = self.headers.get("Content-Length", "")
        if not said.isdecimal() or len(said) > 12:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "how long is the text?")
        if int(said) > LONGEST:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the text has {said} bytes, above {LONGEST}")
        try:
            text = self.rfile.read(int(said)).decode()
        except UnicodeDecodeError as wrong:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the text is not UTF-8: {wrong}") from wrong
        if not text.strip():
            raise _Refused(HTTPStatus.BAD_REQUEST, "there is no word in the text")
        if self.server.desk.tokenizer is None:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the model has no tokenizer, so text cannot be read")
        texts, _ = self.server.desk.show([text.strip()])
        return "application/json", json.dumps({"first": texts[0]["at"], "texts": texts}).encode()

    def _head(self, asked: dict[str, str]) -> HeadMap:
        return self.server.desk.head_map(
            _number(asked, "text"),
            asked.get("layer", ""),
            _number(asked, "head"),
            norm=asked.get("norm") == "1",
            hide=asked.get("hide") == "1",
            stopped=self._gone,
        )

    def _gone(self) -> bool:
        """Whether the browser has hung up: it asked for something else meanwhile."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        try:
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            if status == HTTPStatus.METHOD_NOT_ALLOWED:
                self.send_header("Allow", "POST" if self.path.partition("?")[0].endswith("/text") else "GET")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:  # nobody listens any more
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Addresses hold the token: nothing is written anywhere."""


def _number(asked: dict[str, str], name: str) -> int:
    """A whole number from 0."""
    said = asked.get(name, "")
    if not said.isdecimal() or not said.isascii() or len(said) > 9:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} is no whole number")
    return int(said)


def _floats(x: Tensor) -> bytes:
    return x.float().cpu().contiguous().numpy().astype("<f4").tobytes()
