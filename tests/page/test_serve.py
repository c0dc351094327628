"""The page over a server: who may ask, what it gives, texts of thousands of tokens, and a text of one's own."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.errors import SizeError
from multihead.show import map_store
from multihead.show.encode import NEAR
from multihead.show.map_store import MapStore
from multihead.show.map_tiles import HeadMap, Part, Stopped
from multihead.show.server import MAX_TEXT_BYTES, PAIRS, Server, redirect_file
from page.conftest import TEXT, Open, Page, maps_of
from page.served import Served, serve

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


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Two short texts and one of 4,099 tokens."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda n: torch.randint(0, 53, (n,), generator=generator).tolist()
    made, thread = serve(_llama(), [draw(23), draw(31), draw(LONG)])
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)
    assert not thread.is_alive()


# ---- who may ask ------------------------------------------------------------------------------


def test_bound_to_this_machine(served: Served) -> None:
    assert served.server.server_address[0] == "127.0.0.1"
    assert len(served.server.token) >= 32
    with Server(served.store, str) as other:
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
     "map?text=0&layer=L0&head=0&x=0&y=0&w=2&h=2&width=0&height=2", "row", "norms?text=0&layer=&head=0",
     "row?text=0&layer=L0&head=0&i=", "row?text=0&text=9&layer=L0&head=0&i=0", "pairs?text=0&head=0",
     "row?text=0&layer=</script>&head=0&i=0", "column?text=0&layer=L0\0&head=0&i=1"],
)  # fmt: skip
def test_bad_questions(asked: str, served: Served) -> None:
    from urllib.parse import quote

    status, headers, body = served.get(served.base + quote(asked, safe="?&=-"))
    assert status == 400, body
    assert headers["content-type"].startswith("text/plain")
    assert b"Traceback" not in body


@pytest.mark.parametrize(
    ("request_", "status"),
    [("GET\n\n", 400), ("GET / HTTP/9.9\n\n", 505), ("GET / HTTP/x\n\n", 400), ("\x16\x03\x01 x y z\n\n", 400),
     ("GET /" + "x" * 70_000 + " HTTP/1.1\n\n", 414), ("GET / HTTP/1.1\n" + "a: b\n" * 200 + "\n", 431)],
)  # fmt: skip
def test_what_is_no_request(request_: str, status: int, served: Served) -> None:
    """http.server answers these itself: in plain text here, with the headers of every answer."""
    got, headers, body = served.ask(request_)
    assert got == status
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers["x-content-type-options"] == "nosniff"
    assert b"<" not in body


def test_a_text_that_ends_early(served: Served) -> None:
    head = f"POST {served.base}text HTTP/1.1\nHost: 127.0.0.1:{served.server.port}\nContent-Length: 9\n\n"
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as wire:
        wire.sendall(head.replace("\n", "\r\n").encode() + b"a cat")
        wire.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: wire.recv(65536), b""))
    assert b" 400 " in got.split(b"\r\n")[0]
    assert got.endswith(b"the text ended after 5 of 9 bytes")


@pytest.mark.parametrize("traceback", [False, True])
def test_a_fault_of_ours_is_written_to_stderr(
    traceback: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _llama()
    made, thread = serve(model, [[1, 2, 3, 4, 5]], cache_bytes=1)
    if traceback:
        monkeypatch.setenv("MULTIHEAD_TRACEBACK", "1")
    else:
        monkeypatch.delenv("MULTIHEAD_TRACEBACK", raising=False)
    try:
        model.layers[0].register_forward_hook(lambda *_: 1 / 0)
        status, _, body = made.get(f"{made.base}row?text=0&layer=L1&head=0&i=1")
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(10)
    err = capsys.readouterr().err
    assert status == 500
    assert body == b"ZeroDivisionError: division by zero"
    assert ("Traceback" in err) is traceback
    assert "ZeroDivisionError: division by zero" in err
    assert ("MULTIHEAD_TRACEBACK=1" in err) is not traceback
    assert made.server.token not in err


def test_the_redirect_file_is_the_owners_alone() -> None:
    """The browser's arguments are visible to every user: the address with the token is in a file instead."""
    with redirect_file('http://127.0.0.1:1/a&b"<>/') as file:
        assert file.stat().st_mode & 0o777 == 0o600
        text = file.read_text(encoding="utf-8")
        assert text.count("http://127.0.0.1:1/a&amp;b&quot;&lt;&gt;/") == 2
    assert not file.exists()


def test_a_silent_caller_does_not_keep_others_waiting(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port)) as silent:
        silent.sendall(b"GET / HT")
        assert served.get(served.base)[0] == 200


def test_text_that_is_sent(served: Served) -> None:
    own = f"Host: 127.0.0.1:{served.server.port}\n"
    ask = lambda lines, body=b"": served.ask(f"POST {served.base}text HTTP/1.1\n{own}{lines}\n", body)[0]
    assert ask("") == 411
    assert ask(f"Content-Length: {MAX_TEXT_BYTES + 1}\n") == 413
    assert ask("Content-Length: 2\n", b"\xff\xfe") == 400
    assert ask("Content-Length: 14\n", b'{"text": "  "}') == 400
    assert ask("Content-Length: 5\n", b"a cat") == 400, "no JSON"
    assert ask("Content-Length: 17\n", b'{"text": "a cat"}') == 400, "this model has no tokenizer"
    assert served.ask(f"POST /wrong/text HTTP/1.1\n{own}Content-Length: 5\n\n", b"a cat")[0] == 403
    assert len(served.store.texts) == 3


@pytest.mark.parametrize("place", ["{base}text", "{base}map", "/wrong/text"])
def test_a_refused_request_is_read_to_its_end(place: str, served: Served) -> None:
    """A connection closed before is reset while the browser still sends, and the browser sees no answer."""
    body = b"a" * (3 * MAX_TEXT_BYTES)
    lines = f"Host: 127.0.0.1:{served.server.port}\nContent-Length: {len(body)}\n\n"
    status, _, reason = served.ask(f"POST {place.format(base=served.base)} HTTP/1.1\n{lines}", body)
    assert status == {"{base}text": 413, "{base}map": 405, "/wrong/text": 403}[place]
    assert reason.decode() in (
        "the text must have at most 4,000,000 bytes, got 12,000,000",
        "use GET",
        "use the complete address that `multihead serve` printed",
    )


def test_a_long_name_is_not_repeated(served: Served) -> None:
    status, _, reason = served.get(f"{served.base}norms?text=0&layer={'L' * 9999}&head=0")
    assert status == 400
    assert reason.startswith(b"unknown layer 'LLL")
    assert len(reason) == 500


# ---- what it gives ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def maps(served: Served) -> list[dict[str, torch.Tensor]]:
    """The model's own maps of the two short texts."""
    found = []
    for text in served.store.texts[:2]:
        ids = [int(i) for i in text.sequences[0].shown]
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
    best = want.clone().fill_diagonal_(-1).flatten().topk(PAIRS)
    assert [p[0] for p in pairs] == pytest.approx(best.values.tolist(), abs=1e-6)
    assert [31 * i + j for _, i, j in pairs] == best.indices.tolist()


def test_small_pictures_show_the_strongest(served: Served, maps: list[dict[str, torch.Tensor]]) -> None:
    one = served.store.head_map(1, "L1", 0)
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
    store = MapStore(model, tokenizer)
    store.add([TEXT])
    plain = store.head_map(0, "L2", 9)
    norms = store.norms(0, "L2", 9)
    want = plain.row(5) * norms
    want[[0, -1]] = 0.0
    got = store.head_map(0, "L2", 9, norm=True, hide=True).row(5)
    assert torch.allclose(got, want / want.sum(), atol=1e-6)
    assert float(got[0]) == 0.0
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as heads:
        model(**tokenizer(TEXT, return_tensors="pt"))
    value = heads["L2H9"].value()[0]
    assert torch.allclose(norms, (value @ mh.anatomy(model)["L2"].W_O[9].T).norm(dim=1), rtol=1e-4)


def test_q_and_k_are_held_within_bounds_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = _llama(), list(range(29))
    each = 29 * (4 + 2 + 2) * 16 * 4
    store = MapStore(model, cache_bytes=2 * each)
    store.add([ids])
    assert store.runs == 1
    assert store.cached == 2 * each
    first = store.head_map(0, "L0", 1)
    assert store.runs == 2
    assert store.cached <= 2 * each
    want = maps_of(Page(None, Path(), model), torch.tensor([ids]))  # type: ignore[arg-type]
    assert torch.allclose(first.row(28).double(), want["L0H1"][28], atol=1e-6)
    ran: list[str] = []
    for layer in model.layers:
        layer.self_attn.q_proj.register_forward_hook(lambda module, *_: ran.append(f"{module.in_features}"))
    store.head_map(0, "L1", 1)
    assert len(ran) == 2, "the model runs up to the layer that is asked for"
    with pytest.raises(SizeError, match="unknown layer 'L7'"):
        store.head_map(0, "L7", 0)


def test_the_oldest_windows_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_store, "MAX_WINDOWS", 2)
    store = MapStore(_llama())
    store.add([[1, 2, 3], [4, 5]])
    texts, _ = store.add([[6, 7]])
    assert [text.number for text in texts] == [2]
    assert [text.name for text in store.texts] == ["4 5", "6 7"]
    assert store.head_map(2, "L0", 1).row(1).sum() == pytest.approx(1)
    with pytest.raises(SizeError, match="no text 0: texts are 1 to 2"):
        store.head_map(0, "L0", 1)
    with pytest.raises(SizeError, match="2 windows of 5 tokens, got 3"):
        MapStore(_llama(), max_tokens=5).add([list(range(11))])


def test_norms_of_one_head_alone(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    store = MapStore(model, tokenizer)
    store.add([TEXT])
    want = store.norms(0, "L2", 9)
    projections = store.output_projections["L2"]
    projections[:] = [w if h == 9 else torch.full_like(w, torch.nan)[:1, :1] for h, w in enumerate(projections)]
    assert torch.equal(store.norms(0, "L2", 9), want)


def test_work_ends_when_nobody_waits(served: Served) -> None:
    asked = iter([False, True, True])
    one = served.store.head_map(2, "L0", 0, stopped=lambda: next(asked))
    with pytest.raises(Stopped):
        one.tile(Part(0, 0, LONG, LONG), 7, 7)


def test_memory_is_linear_in_tokens(served: Served) -> None:
    """No block of rows is larger than what was said."""
    from multihead.show import map_tiles

    one = served.store.head_map(2, "L0", 0)
    sizes: list[int] = []
    rows = HeadMap.rows
    try:
        HeadMap.rows = lambda self, some: (sizes.append(len(some) * LONG), rows(self, some))[1]  # type: ignore[method-assign]
        one.tile(Part(0, 0, LONG, LONG), 11, 13, thin=True)
        one.column(5)
    finally:
        HeadMap.rows = rows  # type: ignore[method-assign]
    assert max(sizes) <= map_tiles.BLOCK
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
    want = served.store.head_map(2, "L1", 2)
    got = shown.page.evaluate("() => multihead.row('L1H2', 4000, 2)")
    assert torch.allclose(torch.tensor(got), want.row(4000), atol=1e-6)
    shown.go("layer=1&head=2&text=2&row=4000")
    shown.wait_said("looks at")
    assert "tokens 4000 to 4098 of 4099" in shown.text(".part")
    assert shown.page.locator(".token.from").inner_text() == served.store.texts[2].sequences[0].shown[4000]
    assert shown.page.locator(".token").count() == 99
    shown.page.click("text=earlier")
    assert "tokens 2000 to 3999" in shown.text(".part")
    shown.page.click("[aria-label='Zoom in']")
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
    shown.wait_said("open a head to see who looks at a token")


def test_a_text_of_ones_own(minilm: tuple[Any, Any], opened: Open) -> None:
    """Typed into the page: tokenised and read by the model; hostile words stay words; windows where it is long."""
    model, tokenizer = minilm
    made, thread = serve(model, [TEXT], tokenizer, max_tokens=67)
    try:
        shown = opened(made.server.address, "layer=2&head=9")
        shown.page.click("summary >> text=Try your own text")
        words = "</script><script>window.hit = 1</script> the cat \u202e sat"
        shown.page.fill("textarea", words)
        shown.click("text=Show this text")
        assert "text=1" in shown.page.evaluate("location.hash")
        assert shown.page.evaluate("window.hit") is None
        assert "cat" in shown.text(".tokens")
        ids = tokenizer(words, return_tensors="pt")["input_ids"]
        want = maps_of(Page(None, Path(), model), ids)["L2H9"]  # type: ignore[arg-type]
        assert (shown.weights("L2H9", 1) - want).abs().max() < NEAR
        shown.page.click("summary >> text=Try your own text")
        shown.page.fill("textarea", " ".join([TEXT] * 4))
        shown.click("text=Show this text")
        assert "text=2" in shown.page.evaluate("location.hash")
        windows = shown.options("Window")
        assert windows == [f"{i} of {len(windows)}" for i in range(1, len(windows) + 1)]
        assert len(windows) > 2
        shown.choose("Window", "4")
        assert "Window 3 of" in shown.text(".textside")
        assert shown.text(".tokens").startswith("[CLS]")
        assert len(made.store.texts) == 2 + len(windows)
        shown.page.reload()
        shown.ready()
        assert len(shown.options("Text")) == 3, "it is there after a reload"
        shown.shot("served-own-text")
        shown.page.close()  # its small maps may still be on their way from the server that goes now
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(10)


HOSTILE_TEXTS = [
    "\0",
    "\u202e\u200f",
    "\u2028\u2029",
    "[CLS]",
    "[PAD] [MASK]",
    "\ufeff",
    "a" * 20_000,
    "🏴‍☠️" * 50,
    "'; --",
]


@pytest.mark.fast(3)
@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts_are_read_or_refused(text: str, minilm_served: Served) -> None:
    body = json.dumps({"text": text}).encode()
    own = f"Host: 127.0.0.1:{minilm_served.server.port}\nContent-Length: {len(body)}\n"
    status, headers, answer = minilm_served.ask(f"POST {minilm_served.base}text HTTP/1.1\n{own}\n", body)
    assert status in (200, 400), answer
    if status == 200:
        shown = "".join(json.loads(answer)["texts"][0]["sequences"][0]["shown"])
        assert not re.search(r"[\x00-\x1f\u2028-\u202e]", shown)
    else:
        assert headers["content-type"].startswith("text/plain")


def test_a_reload_after_texts_were_dropped(
    minilm: tuple[Any, Any], opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_store, "MAX_WINDOWS", 2)
    model, tokenizer = minilm
    made, thread = serve(model, [TEXT], tokenizer)
    try:
        made.store.add(["the first own text", "the second own text"])
        shown = opened(made.server.address, "layer=2&head=9&text=0")
        assert shown.options("Text") == ["the first own text", "the second own text"]
        assert shown.text(".tokens") == "[CLS] the first own text [SEP]"
        shown.go("layer=2&head=9&text=2")
        assert shown.text(".tokens") == "[CLS] the second own text [SEP]"
        ids = tokenizer("the second own text", return_tensors="pt")["input_ids"]
        want = maps_of(Page(None, Path(), model), ids)["L2H9"]  # type: ignore[arg-type]
        assert (shown.weights("L2H9", 2) - want).abs().max() < NEAR
        shown.page.close()
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join(10)


def test_a_server_that_is_gone_is_said(minilm: tuple[Any, Any], opened: Open) -> None:
    made, thread = serve(_llama(), [[1, 2, 3, 4, 5]])
    shown = opened(made.server.address)
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)
    shown.go("layer=0&head=1")
    assert "Is multihead serve still running?" in shown.text("#trouble")
    assert "did not arrive" in shown.text("main")
    shown.page.wait_for_timeout(300)
    assert shown.errors, "the browser says so too"
    assert not any("Uncaught" in error for error in shown.errors)
    shown.errors.clear()
