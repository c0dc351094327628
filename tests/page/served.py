"""A page over a real server, and requests as bytes on the wire."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any

from multihead.show.make_report import report
from multihead.show.map_store import MapStore
from multihead.show.server import Server


@dataclass(frozen=True)
class Served:
    store: MapStore
    server: Server
    model: Any

    def ask(self, request: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """Bytes as they go over the wire: (status, headers, body)."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as wire:
            wire.sendall(request.replace("\n", "\r\n").encode("latin-1") + body)
            got = b""
            while more := wire.recv(65536):
                got += more
        head, _, rest = got.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        return int(first.split()[1]), {n.lower(): v for n, _, v in (x.partition(": ") for x in lines)}, rest

    def get(self, place: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        said = {"Host": f"127.0.0.1:{self.server.port}"} | {n.replace("_", "-"): v for n, v in headers.items()}
        lines = "".join(f"{n}: {v}\n" for n, v in said.items())
        return self.ask(f"GET {place} HTTP/1.1\n{lines}\n")

    @property
    def base(self) -> str:
        return f"/{self.server.token}/"


def serve(model: Any, documents: list[Any], tokenizer: Any = None, **options: Any) -> tuple[Served, Thread]:
    store = MapStore(model, tokenizer, **options)
    found = report(model, documents[:1], tokenizer=tokenizer, text=None, name="served", parts=(), maps=store.add)
    store.add(documents[1:])
    server = Server(store, lambda: replace(found, texts=store.texts).html(served=store.reads))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    return Served(store, server, model), thread
