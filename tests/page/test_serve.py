"""The page over a server: who may ask, what it gives, texts of thousands of tokens, and a text of one's own."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.errors import MultiheadError, SizeError
from multihead.page.build import page
from multihead.page.encode import NEAR
from multihead.page.gather import gather
from multihead.serve import desk as desk_module
from multihead.serve.desk import Desk
from multihead.serve.server import LONGEST, Server
from multihead.serve.tiles import HeadMap, Part, Stopped
from page.conftest import TEXT, Open, Page, maps_of

LONG = 4099


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(1)
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 3}
    return LlamaModel(
        LlamaConfig(
            vocab_size=53,
            hidden_size=32,
            intermediate_size=8,
            initializer_range=0.3,
            max_position_embeddings=2 * LONG,
            **shape,
        )
    ).eval()


@dataclass(frozen=True)
class Served:
    desk: Desk
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


def _served(model: Any, documents: list[Any], tokenizer: Any = None, **options: Any) -> tuple[Served, Thread]:
    desk = Desk(model, tokenizer, **options)
    found = gather(model, documents[:1], tokenizer=tokenizer, text=None, name="served", parts=(), maps=desk.show)
    desk.show(documents[1:])
    server = Server(desk, lambda: page(replace(found, texts=desk.texts), served=True))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    return Served(desk, server, model), thread


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Two short texts and one of 4,099 tokens."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda n: torch.randint(0, 53, (n,), generator=generator).tolist()
    made, thread = _served(_llama(), [draw(23), draw(31), draw(LONG)])
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)
    assert not thread.is_alive()


# ---- who may ask ------------------------------------------------------------------------------


def test_bound_to_this_machine(served: Served) -> None:
    assert served.server.server_address[0] == "127.0.0.1"
    assert len(served.server.token) >= 32
    with Server(served.desk, str) as other:
        assert other.token != served.server.token
        assert other.port != served.server.port


@pytest.mark.parametrize(
    "place",
    ["/", "//", "/wrong/", "/{short}/", "/{token}", "/{token}x/", "/x{token}/", "/{upper}/", "/wrong/../{token}/",
     "/map?text=0", "/{token}%2F", "/%00/", "/../../etc/passwd", "/favicon.ico"],
)  # fmt: skip
def test_no_token_no_answer(place: str, served: Served) -> None:
    token = served.server.token
    asked = place.format(token=token, short=token[:-1], upper=token.swapcase())
    status, headers, body = served.get(asked)
    assert status == 403
    assert token.encode() not in body
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "evil.example:{port}", ""]
)
def test_another_name_is_refused(host: str, served: Served) -> None:
    """DNS rebinding: an attacker's name that points here sends that name."""
    assert served.get(served.base, Host=host.format(port=served.server.port))[0] == 403


def test_two_hosts_or_none(served: Served) -> None:
    own = f"Host: 127.0.0.1:{served.server.port}\n"
    assert served.ask(f"GET {served.base} HTTP/1.1\n{own}Host: evil.example\n\n")[0] == 403
    assert served.ask(f"GET {served.base} HTTP/1.0\n\n")[0] == 403
    assert served.ask(f"GET {served.base} HTTP/1.1\n{own}\n")[0] == 200
    assert served.get(served.base, Host=f"localhost:{served.server.port}")[0] == 200


def test_another_origin_is_refused(served: Served) -> None:
    assert served.get(served.base, Origin="http://evil.example")[0] == 403
    assert served.get(served.base, Origin="null")[0] == 403
    assert served.get(served.base, Origin=f"http://127.0.0.1:{served.server.port}")[0] == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "CONNECT", "BREW"]
)
def test_only_get(method: str, served: Served) -> None:
    own = f"Host: 127.0.0.1:{served.server.port}\nContent-Length: 0\n"
    status, headers, body = served.ask(f"{method} {served.base} HTTP/1.1\n{own}\n")
    assert status == 405
    assert headers["allow"] == "GET"
    assert len(body) == (0 if method == "HEAD" else int(headers["content-length"]))


def test_nothing_else_is_there(served: Served) -> None:
    for place in ("etc/passwd", "../", "./", "map/", "text", "page.html", "%2e%2e/"):
        assert served.get(served.base + place)[0] in (404, 405), place


def test_headers_and_policy(served: Served) -> None:
    status, headers, body = served.get(served.base)
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "python" not in headers["server"].lower()
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', body.decode())
    assert found is not None
    policy = dict(part.strip().split(" ", 1) for part in found[1].split(";"))
    assert policy["connect-src"] == "'self'"
    assert policy["default-src"] == "'none'"
    assert served.server.token.encode() not in body, "the page does not know its own address"


@pytest.mark.parametrize(
    "asked",
    ["map?text=0",
     "map?text=99&layer=L0&head=0&x=0&y=0&w=2&h=2&width=2&height=2", "row?text=0&layer=L0&head=0&i=23",
     "row?text=0&layer=L9&head=0&i=0", "row?text=0&layer=L0&head=4&i=0", "row?text=-1&layer=L0&head=0&i=0",
     "row?text=0&layer=L0&head=0&i=1e9", "row?text=0&layer=L0&head=0&i=٣", "norms?text=0&layer=L0&head=9",
     "map?text=0&layer=L0&head=0&x=20&y=0&w=9&h=2&width=2&height=2", "column?text=0&layer=L0&head=0&i=999999999999",
     "map?text=2&layer=L0&head=0&x=0&y=0&w=4099&h=1&width=4099&height=1", "pairs?text=7&layer=L0&head=0",
     "map?text=0&layer=L0&head=0&x=0&y=0&w=2&h=2&width=3&height=2",
     "map?text=0&layer=L0&head=0&x=0&y=0&w=2&h=2&width=0&height=2"],
)  # fmt: skip
def test_bad_questions(asked: str, served: Served) -> None:
    from urllib.parse import quote

    status, headers, body = served.get(served.base + quote(asked, safe="?&=-"))
    assert status == 400, body
    assert headers["content-type"].startswith("text/plain")
    assert b"Traceback" not in body


def test_a_silent_caller_does_not_keep_others_waiting(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port)) as silent:
        silent.sendall(b"GET / HT")
        assert served.get(served.base)[0] == 200


def test_text_that_is_sent(served: Served) -> None:
    own = f"Host: 127.0.0.1:{served.server.port}\n"
    ask = lambda lines, body=b"": served.ask(f"POST {served.base}text HTTP/1.1\n{own}{lines}\n", body)[0]
    assert ask("") == 411
    assert ask(f"Content-Length: {LONGEST + 1}\n") == 413
    assert ask("Content-Length: 2\n", b"\xff\xfe") == 400
    assert ask("Content-Length: 2\n", b"  ") == 400
    assert ask("Content-Length: 5\n", b"a cat") == 400, "this model has no tokenizer"
    assert served.ask(f"POST /wrong/text HTTP/1.1\n{own}Content-Length: 5\n\n", b"a cat")[0] == 403
    assert len(served.desk.texts) == 3


# ---- what it gives ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maps(served: Served) -> list[dict[str, torch.Tensor]]:
    """The model's own maps of the two short texts."""
    found = []
    for text in served.desk.texts[:2]:
        ids = [int(i) for i in text["sequences"][0]["shown"]]
        found.append(maps_of(Page(None, Path(), served.model), torch.tensor([ids])))  # type: ignore[arg-type]
    return found


def test_numbers_are_the_models_own(served: Served, maps: list[dict[str, torch.Tensor]]) -> None:
    where = f"{served.base}%s?text=1&layer=L2&head=3"
    want = maps[1]["L2H3"]
    row = torch.frombuffer(bytearray(served.get(f"{where % 'row'}&i=30")[2]), dtype=torch.float32)
    assert torch.allclose(row.double(), want[30], atol=1e-6)
    column = torch.frombuffer(bytearray(served.get(f"{where % 'column'}&i=7")[2]), dtype=torch.float32)
    assert torch.allclose(column.double(), want[:, 7], atol=1e-6)
    part = served.get(f"{where % 'map'}&x=3&y=11&w=13&h=17&width=13&height=17")[2]
    coded = torch.frombuffer(bytearray(part), dtype=torch.uint8).view(17, 13)
    assert ((coded / 255.0) ** 2 - want[11:28, 3:16]).abs().max() < NEAR
    pairs = json.loads(served.get(where % "pairs")[2])
    best = want.clone().fill_diagonal_(-1).flatten().topk(7)
    assert [p[0] for p in pairs] == pytest.approx(best.values.tolist(), abs=1e-6)
    assert [31 * i + j for _, i, j in pairs] == best.indices.tolist()


def test_small_pictures_show_the_strongest(served: Served, maps: list[dict[str, torch.Tensor]]) -> None:
    one = served.desk.head_map(1, "L1", 0)
    whole = (maps[1]["L1H0"].float().sqrt() * 255).round()
    got = one.tile(Part(0, 0, 31, 31), 5, 7)
    rows = [range(31 * i // 7, 31 * (i + 1) // 7) for i in range(7)]
    columns = [range(31 * j // 5, 31 * (j + 1) // 5) for j in range(5)]
    want = torch.tensor([[float(whole[list(r)][:, list(c)].max()) for c in columns] for r in rows])
    assert (got - want).abs().max() <= 1
    thin = one.tile(Part(0, 0, 31, 31), 5, 7, thin=True)
    want = torch.tensor([[float(whole[r[0], list(c)].max()) for c in columns] for r in rows])
    assert (thin - want).abs().max() <= 1


def test_norm_weighted_and_without_delimiters(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    desk = Desk(model, tokenizer)
    desk.show([TEXT])
    plain = desk.head_map(0, "L2", 9)
    norms = desk.norms(0, "L2")[9]
    want = plain.row(5) * norms
    want[[0, -1]] = 0.0
    got = desk.head_map(0, "L2", 9, norm=True, hide=True).row(5)
    assert torch.allclose(got, want / want.sum(), atol=1e-6)
    assert float(got[0]) == 0.0
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as heads:
        model(**tokenizer(TEXT, return_tensors="pt"))
    value = heads["L2H9"].value()[0]
    assert torch.allclose(norms, (value @ mh.anatomy(model)["L2"].W_O[9].T).norm(dim=1), rtol=1e-4)


def test_q_and_k_are_held_within_bounds_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = _llama(), list(range(29))
    each = 29 * (4 + 2 + 2) * 16 * 4
    desk = Desk(model, room=2 * each)
    desk.show([ids])
    assert desk.runs == 1
    assert desk.held == 2 * each
    first = desk.head_map(0, "L0", 1)
    assert desk.runs == 2
    assert desk.held <= 2 * each
    want = maps_of(Page(None, Path(), model), torch.tensor([ids]))  # type: ignore[arg-type]
    assert torch.allclose(first.row(28).double(), want["L0H1"][28], atol=1e-6)
    ran: list[str] = []
    for layer in model.layers:
        layer.self_attn.q_proj.register_forward_hook(lambda module, *_: ran.append(f"{module.in_features}"))
    desk.head_map(0, "L1", 1)
    assert len(ran) == 2, "the model runs up to the layer that is asked for"
    with pytest.raises(SizeError, match="unknown layer 'L7'"):
        desk.head_map(0, "L7", 0)


def test_too_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "TEXTS", 2)
    desk = Desk(_llama())
    desk.show([[1, 2, 3], [4, 5]])
    with pytest.raises(MultiheadError, match="2 windows of texts are held, 1 more would be above 2"):
        desk.show([[6, 7]])


def test_work_ends_when_nobody_waits(served: Served) -> None:
    asked = iter([False, True, True])
    one = served.desk.head_map(2, "L0", 0, stopped=lambda: next(asked))
    with pytest.raises(Stopped):
        one.tile(Part(0, 0, LONG, LONG), 7, 7)


def test_memory_is_linear_in_tokens(served: Served) -> None:
    """No block of rows is larger than what was said."""
    from multihead.serve import tiles

    one = served.desk.head_map(2, "L0", 0)
    sizes: list[int] = []
    rows = HeadMap.rows
    try:
        HeadMap.rows = lambda self, some: (sizes.append(len(some) * LONG), rows(self, some))[1]  # type: ignore[method-assign]
        one.tile(Part(0, 0, LONG, LONG), 11, 13, thin=True)
        one.column(5)
    finally:
        HeadMap.rows = rows  # type: ignore[method-assign]
    assert max(sizes) <= tiles.BLOCK
    assert sum(sizes) == LONG * (LONG + 13)


# ---- in a browser -----------------------------------------------------------------------------


def test_short_texts_look_as_in_a_file(served: Served, maps: list[dict[str, torch.Tensor]], opened: Open) -> None:
    shown = opened(served.server.address, "layer=2&head=3&text=1&row=9", height=1700)
    got = shown.weights("L2H3", 1)
    assert (got - maps[1]["L2H3"]).abs().max() < NEAR
    assert "token 9, looks at" in shown.text(".said")
    shown.page.wait_for_function("() => document.querySelectorAll('.slot canvas').length === 4")
    shown.press("ArrowRight")
    assert shown.text("h2") == "L2H0"
    shown.go("view=tokens&text=1&row=9")
    shown.wait_said("token 9")
    assert shown.page.locator(".ties a").count() == 12
    asked = [url for url in shown.requests if "/map?" in url]
    assert asked
    assert all(url.startswith(served.server.address) for url in shown.requests if url.startswith("http"))


def test_a_text_of_4099_tokens(served: Served, opened: Open) -> None:
    shown = opened(served.server.address, "layer=1&head=2&text=2", height=1300)
    shown.page.wait_for_selector(".pairs:not(.often) li")
    picture = "document.querySelector('canvas.map').toDataURL()"
    drawn = lambda: shown.page.wait_for_selector("canvas.map:not([data-waiting])")
    drawn()
    whole = shown.page.evaluate(picture)
    want = served.desk.head_map(2, "L1", 2)
    got = shown.page.evaluate("() => multihead.row('L1H2', 4000, 2)")
    assert torch.allclose(torch.tensor(got), want.row(4000), atol=1e-6)
    shown.go("layer=1&head=2&text=2&row=4000")
    shown.wait_said("looks at")
    assert "tokens 4000 to 4098 of 4099" in shown.text(".part")
    assert shown.page.locator(".token.from").inner_text() == served.desk.texts[2]["sequences"][0]["shown"][4000]
    assert shown.page.locator(".token").count() == 99
    shown.page.click("text=earlier")
    assert "tokens 2000 to 3999" in shown.text(".part")
    shown.page.click("[aria-label='zoom in']")
    shown.page.mouse.move(5, 5)
    drawn()
    assert shown.page.evaluate(picture) != whole
    shown.go("layer=1&head=2&text=2&row=17&dir=seen")
    shown.wait_said("is looked at by")
    got = shown.page.evaluate("() => multihead.row('L1H2', 17, 2, {looks: false})")
    assert torch.allclose(torch.tensor(got), want.column(17), atol=1e-6)
    shown.shot("served-4099")
    assert not any(len(body) > 5e6 for body in [served.get(served.base)[2]]), "the page itself stays small"
    shown.go("view=tokens&text=2&row=7")
    shown.wait_said("token 7")
    shown.go("view=tokens&text=2&row=7&dir=seen")
    shown.wait_said("head by head")


def test_a_text_of_ones_own(minilm: tuple[Any, Any], opened: Open) -> None:
    """Typed into the page: tokenised and read by the model; hostile words stay words; windows where it is long."""
    model, tokenizer = minilm
    made, thread = _served(model, [TEXT], tokenizer, max_tokens=67)
    try:
        shown = opened(made.server.address, "layer=2&head=9")
        shown.page.click("summary >> text=Another text")
        words = "</script><script>window.hit = 1</script> the cat \u202e sat"
        shown.page.fill("textarea", words)
        shown.click("text=Look at it")
        assert "text=1" in shown.page.evaluate("location.hash")
        assert shown.page.evaluate("window.hit") is None
        assert "cat" in shown.text(".tokens")
        ids = tokenizer(words, return_tensors="pt")["input_ids"]
        want = maps_of(Page(None, Path(), model), ids)["L2H9"]  # type: ignore[arg-type]
        assert (shown.weights("L2H9", 1) - want).abs().max() < NEAR
        shown.page.click("summary >> text=Another text")
        shown.page.fill("textarea", " ".join([TEXT] * 4))
        shown.click("text=Look at it")
        assert "text=2" in shown.page.evaluate("location.hash")
        windows = shown.options("Window")
        assert windows == [f"{i} of {len(windows)}" for i in range(1, len(windows) + 1)]
        assert len(windows) > 2
        shown.choose("Window", "4")
        assert "Window 3 of" in shown.text(".textside")
        assert shown.text(".tokens").startswith("[CLS]")
        assert len(made.desk.texts) == 2 + len(windows)
        shown.page.reload()
        shown.ready()
        assert len(shown.options("Text")) == 3, "it is there after a reload"
        shown.shot("served-own-text")
        shown.page.close()  # its small maps may still be on their way from the server that goes now
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(10)


def test_a_server_that_is_gone_is_said(minilm: tuple[Any, Any], opened: Open) -> None:
    made, thread = _served(_llama(), [[1, 2, 3, 4, 5]])
    shown = opened(made.server.address)
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)
    shown.go("layer=0&head=1")
    assert "Is multihead serve still running?" in shown.text("#trouble")
    assert "did not come" in shown.text("main")
    shown.page.wait_for_timeout(300)
    assert shown.errors, "the browser says so too"
    assert not any("Uncaught" in error for error in shown.errors)
    shown.errors.clear()
