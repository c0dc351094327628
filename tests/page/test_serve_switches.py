"""Heads switched on a served page: answers are those of mh.gate, wrong requests are refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import multihead as mh
from multihead.errors import MultiheadError, SizeError
from multihead.model.capture import capture
from multihead.show import switches as switches_module
from multihead.show.encode import NEAR, map_from_text
from multihead.show.map_store import MapStore
from multihead.show.map_tiles import Stopped
from multihead.show.serve import serve as make_server
from multihead.show.server import MAX_SWITCHES_BYTES
from multihead.show.switch_request import SwitchRequest
from multihead.show.switches import Switches
from page.conftest import TEXT, Open
from page.served import Served, serve

KEYS = "<now> <town> the keys that the man near the door sees"
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5]


def _gpt2(**config: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(2)
    shape = {"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 53, "n_positions": 64, "initializer_range": 0.4}
    return GPT2LMHeadModel(GPT2Config(**(shape | config))).eval()


def _bert() -> Any:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=53, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.4,
    )  # fmt: skip
    return BertForMaskedLM(config).eval()


class _Digits:
    """A tokenizer whose words are their ids."""

    mask_token_id, unk_token_id, all_special_ids, is_fast = 52, None, [52], False

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(i) for i in ids]


def _gates(model: Any, scales: dict[str, float]) -> Any:
    """mh.gate as a user would call it."""
    if not scales:
        return nullcontext()
    counts = {layer.name: len(layer.W_O) for layer in mh.anatomy(model)}
    gates = {label: torch.ones(count) for label, count in counts.items()}
    for name, scale in scales.items():
        label, _, head = name.partition("H")
        gates[label][int(head)] = scale
    return mh.gate(model, gates)


SCALES: list[dict[str, float]] = [{}, {"L1H0": 0.0}, {"L0H1": 0.0, "L1H2": 0.35, "L0H0": 1.0}]


# ---- what it gives ----------------------------------------------------------------------------


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("which", ["embedded", "gpt2"])
def test_next_tokens_are_those_of_gate(which: str, scales: dict[str, float]) -> None:
    model, tokenizer = mh.embedded() if which == "embedded" else (_gpt2(), None)
    store = MapStore(model, tokenizer)
    document: Any = KEYS if tokenizer else IDS
    store.add([document])
    ids = torch.tensor([tokenizer(KEYS)["input_ids"] if tokenizer else IDS])
    token = 4
    answer = Switches(store).compare(SwitchRequest(0, scales, token, "L1H1"))
    with torch.no_grad():
        before = model(input_ids=ids).logits[0]
        with _gates(model, scales), capture(model, statistics=None, keep="qk") as heads:
            after = model(input_ids=ids).logits[0]
    assert answer["reading"] == "next"
    assert answer["token"] == token
    for row in answer["top"]:
        assert row["before"] == pytest.approx(float(before[token].softmax(-1)[row["id"]]), rel=1e-4, abs=1e-7)
        assert row["after"] == pytest.approx(float(after[token].softmax(-1)[row["id"]]), rel=1e-4, abs=1e-7)
    listed = {row["id"] for row in answer["top"]}
    assert {int(before[token].argmax()), int(after[token].argmax()), int(ids[0, token + 1])} <= listed
    assert answer["actual"] == int(ids[0, token + 1])
    changed = (before.argmax(-1) != after.argmax(-1)).nonzero().flatten().tolist()
    assert [row["token"] for row in answer["changed"]] == changed
    assert bool(changed) is bool(scales), "these scales change something"
    got = map_from_text(answer["map"], ids.shape[1], ids.shape[1])
    assert (got - heads["L1H1"].weights()[0]).abs().max() < NEAR


def test_a_masked_language_model_hides_each_token() -> None:
    model, tokenizer = _bert(), _Digits()
    scales = {"L0H2": 0.0, "L1H0": 0.5}
    switches, text = Switches(MapStore(model, tokenizer)), " ".join(map(str, IDS))
    answer = switches.compare(SwitchRequest(text, scales, 2))
    copies = torch.tensor([IDS] * len(IDS)).fill_diagonal_(tokenizer.mask_token_id)
    each = torch.arange(len(IDS))
    with torch.no_grad():
        before = model(input_ids=copies).logits[each, each]
        with _gates(model, scales):
            after = model(input_ids=copies).logits[each, each]
    assert answer["reading"] == "masked"
    assert answer["actual"] == IDS[2]
    for row in answer["top"]:
        assert row["before"] == pytest.approx(float(before[2].softmax(-1)[row["id"]]), rel=1e-4, abs=1e-7)
        assert row["after"] == pytest.approx(float(after[2].softmax(-1)[row["id"]]), rel=1e-4, abs=1e-7)
    changed = (before.argmax(-1) != after.argmax(-1)).nonzero().flatten().tolist()
    assert [row["token"] for row in answer["changed"]] == changed
    assert changed
    answer = switches.compare(SwitchRequest(text, scales, head="L1H1"))
    with torch.no_grad(), _gates(model, scales), capture(model, statistics=None, keep="qk") as heads:
        model(input_ids=torch.tensor([IDS]))
    got = map_from_text(answer["map"], len(IDS), len(IDS))
    assert (got - heads["L1H1"].weights()[0]).abs().max() < NEAR, "the map is that of the text without masks"


def test_an_encoder_has_the_cosine_of_its_vectors(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    switches = Switches(MapStore(model, tokenizer))
    scales = {"L0H3": 0.0, "L5H11": 0.25}
    answer = switches.compare(SwitchRequest(TEXT, scales))
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        before = model(**inputs).last_hidden_state[0]
        with _gates(model, scales):
            after = model(**inputs).last_hidden_state[0]
    assert answer["reading"] == "vector"
    assert answer["vector"] == "last hidden states, mean-pooled"
    assert answer["cosine"] == pytest.approx(
        float(F.cosine_similarity(before.mean(0), after.mean(0), dim=0)), abs=1e-5
    )
    assert answer["cosines"] == pytest.approx(F.cosine_similarity(before, after, dim=-1).tolist(), abs=1e-5)
    assert answer["cosine"] < 0.9999
    assert switches.compare(SwitchRequest(TEXT, {}))["cosine"] == pytest.approx(1)


def test_the_model_is_left_as_it_was_and_read_once() -> None:
    model, ids = _gpt2(), torch.tensor([IDS])
    store = MapStore(model)
    store.add([IDS])
    switches = Switches(store)
    runs: list[int] = []
    hook = model.transformer.h[0].register_forward_hook(lambda *_: runs.append(1))
    switches.compare(SwitchRequest(0, {"L0H0": 0.0}))
    runs.clear()
    switches.compare(SwitchRequest(0, {"L0H1": 0.5}, 3))
    assert len(runs) == 1, "the intact output of the latest text is held"
    hook.remove()
    want = model(input_ids=ids).logits
    assert torch.allclose(model(input_ids=ids).logits, want)
    with pytest.raises(SizeError):
        switches.compare(SwitchRequest(0, {"L0H9": 0.0}))
    assert torch.allclose(model(input_ids=ids).logits, want)
    assert not model.training
    with pytest.raises(Stopped):
        switches.compare(SwitchRequest(0, {"L0H1": 0.5}), stopped=lambda: True)


def test_a_switch_and_its_map_are_one_run() -> None:
    model = _gpt2(n_layer=3)
    store = MapStore(model)
    store.add([IDS])
    switches = Switches(store)
    switches.compare(SwitchRequest(0, {}))  # the intact output is held from here on
    runs: list[int] = []
    for layer, block in enumerate(model.transformer.h):
        block.register_forward_hook(lambda *_, layer=layer: runs.append(layer))
    for head in ("L0H1", "L2H0"):
        runs.clear()
        answer = switches.compare(SwitchRequest(0, {"L1H0": 0.0}, head=head))
        assert runs == [0, 1, 2]
        with torch.no_grad(), _gates(model, {"L1H0": 0.0}), capture(model, statistics=None, keep="qk") as heads:
            model(input_ids=torch.tensor([IDS]))
        got = map_from_text(answer["map"], len(IDS), len(IDS))
        assert (got - heads[head].weights()[0]).abs().max() < NEAR
    runs.clear()
    assert switches.compare(SwitchRequest(0, {}, head="L1H1"))["map"]
    assert runs == [0], "the intact model runs up to the head alone"


def test_other_requests_wait_while_heads_are_scaled() -> None:
    model = _gpt2()
    store = MapStore(model, cache_bytes=1)  # every map needs a run of the model
    store.add([IDS])
    want = store.head_map(0, "L1", 0).row(3)
    got: list[torch.Tensor] = []
    waited: list[bool] = []
    other = Thread(target=lambda: got.append(store.head_map(0, "L1", 0).row(3)))

    def ask_meanwhile(*_: Any) -> None:
        if not other.ident:
            other.start()
            other.join(0.3)
            waited.append(other.is_alive())

    switches = Switches(store)
    switches.compare(SwitchRequest(0, {}))  # the intact output is held from here on
    model.transformer.h[0].register_forward_hook(ask_meanwhile)
    switches.compare(SwitchRequest(0, {f"L0H{head}": 0.0 for head in range(3)}))
    other.join(20)
    assert waited == [True]
    assert torch.allclose(got[0], want, atol=1e-6), "the map is that of the intact model"


def test_models_that_cannot_be_compared_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MapStore(_gpt2())
    with pytest.raises(MultiheadError, match="no tokenizer"):
        Switches(store).compare(SwitchRequest("words", {}))
    broken = _gpt2()
    torch.nn.init.constant_(broken.transformer.wte.weight, torch.inf)
    store = MapStore(broken)
    store.add([IDS])
    with pytest.raises(MultiheadError, match="NaN or infinity"):
        Switches(store).compare(SwitchRequest(0, {}))
    monkeypatch.setattr(switches_module, "MOST_TOKENS", 8)
    store = MapStore(_gpt2())
    store.add([IDS, IDS[:8]])
    with pytest.raises(SizeError, match="at most 8 tokens, got 9"):
        Switches(store).compare(SwitchRequest(0, {}))
    assert Switches(store).compare(SwitchRequest(1, {}))["token"] == 7


def test_one_token_is_a_text() -> None:
    store = MapStore(_gpt2())
    store.add([[7]])
    answer = Switches(store).compare(SwitchRequest(0, {"L0H0": 0.0}))
    assert answer["reading"] == "next"
    assert answer["actual"] is None


# ---- over the wire ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    model, tokenizer = mh.embedded()
    made, thread = serve(model, [KEYS], tokenizer)
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)


def ask(served: Served, body: bytes | dict[str, Any], method: str = "POST") -> tuple[int, dict[str, str], bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"Host: 127.0.0.1:{served.server.port}\nContent-Length: {len(data)}\n"
    return served.ask(f"{method} {served.base}switches HTTP/1.1\n{head}\n", data)


def test_a_request(served: Served) -> None:
    status, headers, body = ask(served, {"text": KEYS, "scales": {"L1H3": 0}, "head": "L1H3"})
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"
    answer = json.loads(body)
    best = [max(answer["top"], key=lambda row: row[which])["word"] for which in ("before", "after")]
    assert best == ["are", "is"], "without the head that carries the number, the verb is wrong"
    assert answer["shown"][3:5] == ["the", "keys"]
    by_number = json.loads(ask(served, {"text": 0, "scales": {"1.3": 0}})[2])
    assert by_number["top"] == answer["top"]


HOSTILE_NAME = "</script><script>window.hit=1</script>"

WRONG: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"scales", "the request must be JSON"),
    "empty": (b"", "the request must be JSON"),
    "not UTF-8": (b'"\xff\xfe"', "the request must be JSON"),
    "deep": (b"[" * 100_000, "the request must be JSON"),
    "a list": (b"[1, 2]", "must be a JSON object"),
    "null": (b"null", "must be a JSON object"),
    "no text": (b"{}", "text must be a string"),
    "text is a float": (b'{"text": 0.5}', "text must be a string"),
    "text is true": (b'{"text": true}', "text must be a string"),
    "text is negative": (b'{"text": -1}', "text must be a string"),
    "unknown text": (b'{"text": 99}', "there is no text 99"),
    "empty text": (b'{"text": " \\n "}', "the text is empty"),
    "half a character": (b'{"text": "a\\ud83d"}', "valid Unicode"),
    "long text": (json.dumps({"text": "the key " * 900}).encode(), "at most 512 tokens, got 4 windows"),
    "unknown layer": (b'{"text": 0, "scales": {"L9H0": 0}}', "unknown layer"),
    "unknown head": (b'{"text": 0, "scales": {"L0H4": 0}}', "got head 4"),
    "no head name": (b'{"text": 0, "scales": {"all": 0}}', "is not a head name"),
    "hostile name": (json.dumps({"text": 0, "scales": {HOSTILE_NAME: 0}}).encode(), "is not a head name"),
    "long name": (json.dumps({"text": 0, "scales": {"L" * 9999: 0}}).encode(), "is not a head name"),
    "above 1": (b'{"text": 0, "scales": {"L0H0": 1.5}}', "must be in [0, 1], got 1.5"),
    "below 0": (b'{"text": 0, "scales": {"L0H0": -0.1}}', "must be in [0, 1], got -0.1"),
    "NaN": (b'{"text": 0, "scales": {"L0H0": NaN}}', "must be in [0, 1], got nan"),
    "infinite": (b'{"text": 0, "scales": {"L0H0": Infinity}}', "must be in [0, 1], got inf"),
    "huge": (b'{"text": 0, "scales": {"L0H0": 1e999}}', "must be in [0, 1], got inf"),
    "large integer": (b'{"text": 0, "scales": {"L0H0": 1' + b"0" * 400 + b"}}", "must be in [0, 1]"),
    "a word": (b'{"text": 0, "scales": {"L0H0": "0"}}', "must be in [0, 1], got '0'"),
    "true": (b'{"text": 0, "scales": {"L0H0": true}}', "must be in [0, 1], got True"),
    "scales is a list": (b'{"text": 0, "scales": ["L0H0"]}', "scales must be an object"),
    "too many heads": (
        json.dumps({"text": 0, "scales": {f"L0H{i}": 0 for i in range(13)}}).encode(),
        "at most 12 heads, all of the model, got 13",
    ),
    "twice": (b'{"text": 0, "scales": {"L0H1": 0, "0.1": 1}}', "L0H1 is named twice"),
    "token": (b'{"text": 0, "token": 12}', "token must be below 12"),
    "negative token": (b'{"text": 0, "token": -1}', "token must be an integer from 0"),
    "unknown map": (b'{"text": 0, "head": "L3H0"}', "unknown layer"),
    "map of a number": (b'{"text": 0, "head": 3}', "head must be the name"),
    "unknown field": (b'{"text": 0, "scale": {"L0H0": 0}}', "unknown field 'scale'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_requests(name: str, served: Served) -> None:
    body, reason = WRONG[name]
    status, headers, answer = ask(served, body)
    assert status == 400, answer
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert reason in answer.decode()
    assert len(answer) < 500
    assert b"Traceback" not in answer


def test_the_rules_of_the_server_hold(served: Served) -> None:
    body = {"text": 0, "scales": {"L0H0": 0}}
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
        status, headers, _ = ask(served, body, method)
        assert (status, headers["allow"]) == (405, "POST"), method
    data = json.dumps(body)
    port = served.server.port
    lines = f"Content-Length: {len(data)}\n\n"
    send = lambda place, head: served.ask(f"POST {place} HTTP/1.1\n{head}{lines}", data.encode())[0]
    assert send(f"{served.base}switches", f"Host: 127.0.0.1:{port}\n") == 200
    assert send(f"{served.base}switches", "Host: evil.example\n") == 403
    assert send(f"{served.base}switches", f"Host: 127.0.0.1:{port}\nOrigin: http://evil.example\n") == 403
    assert send("/wrong/switches", f"Host: 127.0.0.1:{port}\n") == 403
    own = f"POST {served.base}switches HTTP/1.1\nHost: 127.0.0.1:{port}\n"
    assert served.ask(f"{own}\n")[0] == 411
    assert served.ask(f"{own}Content-Length: {MAX_SWITCHES_BYTES + 1}\n\n")[0] == 413


@pytest.mark.parametrize(
    "text", ["\0", "\u202e\u200f", "<pad> <unk> <s>", "🏴‍☠️" * 9, HOSTILE_NAME, "__proto__ $policy"]
)
def test_hostile_texts(text: str, served: Served) -> None:
    status, _, body = ask(served, {"text": text, "scales": {"L0H0": 0.5}})
    assert status in (200, 400), body
    if status == 200:
        assert not any(ord(letter) < 32 for word in json.loads(body)["shown"] for letter in word)


# ---- in a browser -----------------------------------------------------------------------------


def _settled(shown: Any) -> None:
    shown.page.wait_for_selector(".prediction[aria-busy=false]")


def test_switches_on_a_page(served: Served, opened: Open) -> None:
    shown = opened(served.server.address, "view=switches&text=0&layer=1&head=3", height=1500)
    _settled(shown)
    assert "sees" in shown.text(".prediction h2")
    assert shown.page.locator(".bar.after").count() == 0
    assert shown.page.locator("[data-switch]").count() == 12
    assert shown.page.locator("[data-merge], [data-share], .detail").count() == 0, "only what the server can do"
    best = lambda: shown.page.locator(".guess").first.get_attribute("data-word")
    assert best() == "are"
    shown.page.click("[data-switch=L1H3]")
    shown.page.wait_for_selector(".bar.after")
    _settled(shown)
    assert "changed after" in shown.text(".changes")
    assert shown.page.locator(".token.switched").count() > 0
    assert shown.page.locator(".maps .pane:visible").count() == 2
    want = Switches(served.store).compare(SwitchRequest(0, {"L1H3": 0.0}))
    assert shown.page.locator(".guess").count() == len(want["top"])
    slider = shown.page.locator("[data-scale=L0H1]")
    slider.focus()
    slider.press("Home")  # by keyboard
    _settled(shown)
    shown.page.wait_for_function("() => location.hash.includes('L0H1')")
    address = shown.page.evaluate("decodeURIComponent(location.hash)")
    assert "scale=L0H1:0,L1H3:0" in address
    numbers = shown.text(".predictions")
    again = opened(served.server.address, address[1:])
    _settled(again)
    assert again.text(".predictions") == numbers
    shown.page.click("#undo")
    _settled(shown)
    assert slider.input_value() == "1"
    shown.page.locator("h1").click()
    shown.page.locator("[data-switch=L1H3]").focus()
    shown.page.keyboard.press("Control+z")
    _settled(shown)
    assert shown.page.locator(".bar.after").count() == 0
    shown.page.fill("textarea", "</script><script>window.hit = 1</script> the key")
    shown.click("text=Show this text")
    _settled(shown)
    assert shown.page.evaluate("window.hit") is None
    assert "key" in shown.text(".prediction h2")
    assert "</script>" in shown.page.input_value("textarea"), "what was typed can be changed"
    shown.shot("served-switches")


def test_notes_on_a_text_are_shown(served: Served, opened: Open) -> None:
    texts = served.store.add_typed("the zebra sees " + "the key near the door " * 15)
    shown = opened(served.server.address, f"view=switches&text={texts[0].number}")
    _settled(shown)
    note = shown.text(".textnote")
    assert "trained on texts of at most 72 tokens, this one has 79" in note
    assert "<unk>" in note
    assert "zebra" in note
    shown.go("view=switches&text=0")
    assert shown.page.locator(".textnote").count() == 0


def test_a_kind_is_beside_its_switch_and_defined(served: Served, opened: Open) -> None:
    model, tokenizer = mh.embedded()
    with make_server(model, tokenizer.sample_texts(), tokenizer=tokenizer, parts=("kinds",)) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        for width in (1280, 360):
            shown = opened(server.address, "view=switches", width=width)
            _settled(shown)
            for cell in shown.page.locator(".switch").all():
                name, box = (
                    cell.locator(part).bounding_box() for part in (".headname small", "input[type=checkbox]")
                )
                assert box["y"] >= name["y"] + name["height"] - 1, "the name is above its checkbox"
                assert name["x"] + name["width"] <= cell.bounding_box()["x"] + cell.bounding_box()["width"]
            shown.page.click(".kindkey:has-text('induction') button.help")
            assert "what followed the same token before" in shown.text("#definition")
        shown.page.close()
        server.shutdown()


def test_an_encoder_on_a_page(minilm_served: Served, opened: Open) -> None:
    shown = opened(
        minilm_served.server.address, "view=switches&scale=L0H3:0,L9H9:0,L1H1:7,x", width=390, height=900
    )
    _settled(shown)
    assert "predicts no words" in shown.text(".prediction")
    want = Switches(minilm_served.store).compare(SwitchRequest(0, {"L0H3": 0.0}))
    assert float(shown.text("[data-cosine=after]")) == pytest.approx(want["cosine"], abs=1e-4)
    assert shown.page.locator(".suggestion").count() > 3
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    shown.shot("served-switches-encoder")


def test_a_file_has_no_switches(embedded: Any, opened: Open) -> None:
    shown = opened(embedded.file, "view=switches")
    assert shown.page.locator("#views a >> text=Switches").count() == 0
    assert shown.page.locator("[data-switch]").count() == 0
