"""Switches on served pages of models that read two texts, images, sound or vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import multihead as mh
from cli.conftest import tokenizer
from multihead.corpus.two_texts import decoder_ids, shifted_right, two_texts
from multihead.errors import MultiheadError, SizeError
from multihead.model.find_sites import find_sites
from multihead.show.encode import NEAR, map_from_text
from multihead.show.map_store import MapStore
from multihead.show.switch_request import SwitchRequest
from multihead.show.switches import Switches
from page.conftest import Open
from page.served import Served, serve
from page.test_serve_switches import ask

LETTERS = 31
"""Words of the tokenizer."""

SOURCE, TARGET = "the old cat sat on the mat", "the dog ran"


def _t5(**config: Any) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(2)
    shape = {"d_model": 24, "d_kv": 7, "d_ff": 16, "num_layers": 2, "num_heads": 3, "initializer_factor": 1.0}
    ids = {"vocab_size": LETTERS, "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**(shape | ids | config))).eval()


def _bart_config() -> dict[str, Any]:
    stacks = {f"{stack}_{name}": n for stack in ("encoder", "decoder") for name, n in
              (("layers", 2), ("attention_heads", 3), ("ffn_dim", 16))}  # fmt: skip
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3}
    shape = {"vocab_size": LETTERS, "d_model": 24, "max_position_embeddings": 37, "init_std": 0.4}
    return stacks | shape | ids | {"forced_eos_token_id": None}


def _bart() -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(3)
    return BartForConditionalGeneration(BartConfig(**_bart_config())).eval()


def _marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(4)
    return MarianMTModel(MarianConfig(**_bart_config())).eval()


def _vit(**config: Any) -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(5)
    shape = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16,
             "image_size": 12, "patch_size": 4, "initializer_range": 0.4}  # fmt: skip
    names = {"id2label": dict(enumerate(("cat", "dog", "ferry", "key", "</script>")))}
    return ViTForImageClassification(ViTConfig(**(shape | names | config))).eval()


def _whisper() -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(6)
    config = _bart_config() | {"max_source_positions": 11, "max_target_positions": 23, "num_mel_bins": 5}
    return WhisperForConditionalGeneration(WhisperConfig(**config)).eval()


def _sound() -> Any:
    from transformers import ASTConfig, ASTForAudioClassification

    torch.manual_seed(7)
    shape = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16,
             "patch_size": 4, "frequency_stride": 4, "time_stride": 4, "max_length": 20, "num_mel_bins": 8,
             "initializer_range": 0.4, "num_labels": 7}  # fmt: skip
    return ASTForAudioClassification(ASTConfig(**shape)).eval()


class _Plain(nn.Module):
    """A module without a config, whose forward takes vectors and returns a tensor."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 3, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))


def _gated(model: Any, scales: dict[str, float]) -> Any:
    """mh.gate as a user would call it."""
    sites = find_sites(model)
    gates: dict[str, torch.Tensor] = {}
    for name, scale in scales.items():
        label, _, head = name.rpartition("H")
        site = next(site for site in sites if site.label == label)
        gates.setdefault(label, torch.ones(site.heads))[int(head)] = scale
    return mh.gate(model, gates)


PAIRS = {"t5": _t5, "bart": _bart, "marian": _marian}


@pytest.mark.parametrize("head", ["encoder.L0H1", "decoder.L1H2", "cross.L0H0"])
@pytest.mark.parametrize("which", PAIRS)
def test_the_next_token_of_a_decoder_is_that_of_gate(which: str, head: str) -> None:
    model, words = PAIRS[which](), tokenizer()
    answer = Switches(MapStore(model, words)).compare(SwitchRequest(SOURCE, {head: 0.25}, 1, head, TARGET))
    batch = two_texts(model, words, SOURCE, TARGET)
    with torch.no_grad():
        before = model(**batch).logits[0]
        with _gated(model, {head: 0.25}), mh.capture(model, statistics=None, keep="qk") as heads:
            after = model(**batch).logits[0]
    ids = batch["decoder_input_ids"][0].tolist()
    assert answer["reading"] == "next"
    assert answer["shown"] == words.convert_ids_to_tokens(ids)  # type: ignore[attr-defined]
    assert answer["shown"][-3:] == TARGET.split(), "the last prediction is that of the token after the words"
    assert answer["actual"] == ids[2]
    for row in answer["top"]:
        assert row["before"] == pytest.approx(float(before[1].softmax(-1)[row["id"]]), rel=1e-4, abs=1e-7)
        assert row["after"] == pytest.approx(float(after[1].softmax(-1)[row["id"]]), rel=1e-4, abs=1e-7)
    assert any(abs(row["before"] - row["after"]) > 1e-3 for row in answer["top"])
    changed = (before.argmax(-1) != after.argmax(-1)).nonzero().flatten().tolist()
    assert [row["token"] for row in answer["changed"]] == changed
    want = heads[head].weights()[0]
    assert (map_from_text(answer["map"], *want.shape) - want).abs().max() < NEAR


def test_the_decoder_reads_what_the_model_writes() -> None:
    model, words = _t5(), tokenizer()
    batch = two_texts(model, words, SOURCE)
    ids = batch["decoder_input_ids"][0].tolist()
    assert ids[0] == 0
    assert len(ids) > 1
    with torch.no_grad():
        best = model(**batch).logits[0].argmax(-1).tolist()
    assert best[:-1] == ids[1:], "every token is the likeliest one"
    answer = Switches(MapStore(model, words)).compare(SwitchRequest(SOURCE, {}))
    assert answer["shown"] == words.convert_ids_to_tokens(ids)  # type: ignore[attr-defined]


def test_inputs_of_a_decoder() -> None:
    model, words = _bart(), tokenizer()
    assert decoder_ids(model, words, "the cat").tolist() == [[3, 2, 4, 6]]
    assert decoder_ids(model, words, "").tolist() == [[3, 2]]
    words.post_processor = None  # type: ignore[attr-defined]
    words.backend_tokenizer.post_processor = None  # type: ignore[attr-defined]
    assert decoder_ids(model, words, "the cat").tolist() == [[3, 4, 6]], "no token is lost without an end token"
    with pytest.raises(SizeError, match="at most 37 tokens"):
        two_texts(model, words, "cat " * 38, "")
    with pytest.raises(SizeError, match="decoder text must have at most 37"):
        two_texts(model, words, "cat", "cat " * 40)

    class Bare(nn.Module):
        config = type("Config", (), {"decoder_start_token_id": 9})()

    assert shifted_right(Bare(), torch.tensor([[5, 6]])).tolist() == [[9, 5]]
    Bare.config.decoder_start_token_id = None
    with pytest.raises(MultiheadError, match="no decoder_start_token_id"):
        shifted_right(Bare(), torch.tensor([[5, 6]]))


def test_labels_stand_for_the_decoder() -> None:
    model, ids, labels = _t5(), torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9, 3]])
    store = MapStore(model)
    store.add([{"input_ids": ids, "labels": labels}])
    answer = Switches(store).compare(SwitchRequest(0, {"cross.L1H0": 0.0}, 0))
    assert answer["shown"] == ["0", "8", "9"]
    with torch.no_grad():
        want = model(input_ids=ids, labels=labels).logits[0, 0].softmax(-1)
    assert answer["top"][0]["before"] == pytest.approx(float(want[answer["top"][0]["id"]]), rel=1e-4)
    assert answer["actual"] == 8


IMAGE = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("many", [False, True])
def test_classes_of_an_image(many: bool) -> None:
    model = _vit(problem_type="multi_label_classification" if many else None)
    store, scales = MapStore(model), {"L0H1": 0.0, "L1H2": 0.4}
    texts, _ = store.add([{"pixel_values": IMAGE}, {"pixel_values": -IMAGE}])
    assert [text.name for text in texts] == ["input 1", "input 2"]
    answer = Switches(store).compare(SwitchRequest(1, scales, 9, "L1H2"))
    with torch.no_grad():
        before = model(pixel_values=-IMAGE).logits[0]
        with _gated(model, scales):
            after = model(pixel_values=-IMAGE).logits[0]
    assert answer["reading"] == "classes"
    assert len(answer["shown"]) == 10
    assert {row["word"] for row in answer["top"]} == {"cat", "dog", "ferry", "key", "</script>"}
    probabilities = (lambda x: x.sigmoid()) if many else (lambda x: x.softmax(-1))
    for row in answer["top"]:
        assert row["before"] == pytest.approx(float(probabilities(before)[row["id"]]), rel=1e-4)
        assert row["after"] == pytest.approx(float(probabilities(after)[row["id"]]), rel=1e-4)
    assert answer["actual"] is None
    flips = int(before.argmax()) != int(after.argmax())
    assert len(answer["changed"]) == flips


def test_classes_of_sound() -> None:
    model, store = _sound(), MapStore(_sound())
    sound = torch.randn(1, 20, 8, generator=torch.Generator().manual_seed(2))
    store.add([{"input_values": sound}])
    answer = Switches(store).compare(SwitchRequest(0, {"L0H0": 0.0}))
    with torch.no_grad():
        want = model(input_values=sound).logits[0].softmax(-1)
    assert answer["reading"] == "classes"
    assert answer["top"][0]["word"].startswith("LABEL_")
    assert answer["top"][0]["before"] == pytest.approx(float(want[answer["top"][0]["id"]]), rel=1e-4)


def test_classes_of_every_token() -> None:
    from transformers import BertConfig, BertForTokenClassification

    torch.manual_seed(8)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16}
    config = BertConfig(**sizes, vocab_size=LETTERS, num_labels=5, initializer_range=0.4)
    model = BertForTokenClassification(config).eval()
    store = MapStore(model)
    store.add([[3, 1, 4, 1, 5]])
    scales = {"L0H0": 0.0, "L1H1": 0.0}
    answer = Switches(store).compare(SwitchRequest(0, scales, 2))
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        before = model(input_ids=ids).logits[0]
        with _gated(model, scales):
            after = model(input_ids=ids).logits[0]
    assert answer["rows"] == 5
    assert answer["top"][0]["before"] == pytest.approx(
        float(before[2].softmax(-1)[answer["top"][0]["id"]]), rel=1e-4
    )
    changed = (before.argmax(-1) != after.argmax(-1)).nonzero().flatten().tolist()
    assert [row["token"] for row in answer["changed"]] == changed


def test_a_decoder_that_reads_sound() -> None:
    model, words = _whisper(), tokenizer()
    sound = torch.randn(1, 5, 22, generator=torch.Generator().manual_seed(3))
    store = MapStore(model, words)
    assert store.reads == ("decoder",)
    batch = {"input_features": sound, "decoder_input_ids": torch.tensor([[3, 4, 6]])}
    store.add([batch])
    answer = Switches(store).compare(SwitchRequest(0, {"cross.L1H1": 0.0, "encoder.L0H2": 0.5}, head="cross.L1H1"))
    with torch.no_grad():
        want = model(**batch).logits[0, -1].softmax(-1)
    assert answer["reading"] == "next"
    assert answer["top"][0]["before"] == pytest.approx(float(want[answer["top"][0]["id"]]), rel=1e-4)
    assert map_from_text(answer["map"], 3, 11).shape == (3, 11)
    other = Switches(store).compare(SwitchRequest(0, {}, decoder=TARGET))
    assert other["shown"][-3:] == TARGET.split()
    with pytest.raises(MultiheadError, match="it reads input_features"):
        Switches(store).compare(SwitchRequest(SOURCE, {}))


@pytest.mark.parametrize("head", [False, True])
def test_vectors_of_a_plain_module(head: bool) -> None:
    torch.manual_seed(9)
    model = (_Plain() if head else _Plain().layers).eval()
    x = torch.randn(1, 7, 24, generator=torch.Generator().manual_seed(4))
    store = MapStore(model)
    store.add([{"x" if head else "src": x}])
    scales = {"L0H1": 0.0, "L1H0": 0.0}
    answer = Switches(store).compare(SwitchRequest(0, scales, head="L1H2"))
    with torch.no_grad():
        before = model(x)[0]
        with _gated(model, scales):
            after = model(x)[0]
    if not head:
        assert answer["cosines"] == pytest.approx(F.cosine_similarity(before, after, dim=-1).tolist(), abs=1e-5)
        before, after = before.mean(0), after.mean(0)
    assert answer["reading"] == "vector"
    assert answer["vector"] == ("output" if head else "output, mean-pooled")
    assert answer["cosine"] == pytest.approx(float(F.cosine_similarity(before, after, dim=0)), abs=1e-5)
    assert answer["change"] == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-4)
    assert answer["change"] > 1e-3
    assert len(answer["shown"]) == 7


# ---- over the wire ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair_served() -> Iterator[Served]:
    model, words = _t5(), tokenizer()
    made, thread = serve(model, [two_texts(model, words, SOURCE, TARGET)], words)
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)


@pytest.fixture(scope="module")
def images_served() -> Iterator[Served]:
    made, thread = serve(_vit(), [{"pixel_values": IMAGE}, {"pixel_values": -IMAGE}])
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)


WRONG_PAIRS: dict[str, tuple[dict[str, Any], str]] = {
    "decoder is a number": ({"text": SOURCE, "decoder": 3}, "decoder must be a string, got 3"),
    "decoder is a list": ({"text": SOURCE, "decoder": ["a"]}, "decoder must be a string"),
    "half a character": ({"text": SOURCE, "decoder": "\ud83d"}, "decoder must be valid Unicode"),
    "long text": ({"text": "cat " * 1030, "decoder": ""}, "too long"),
    "long decoder": ({"text": SOURCE, "decoder": "cat " * 1030}, "too long"),
    "token of the encoder": ({"text": 0, "token": 8}, "token must be below"),
    "head without a stack": ({"text": 0, "scales": {"L0H0": 0}}, "'L0H0' is ambiguous"),
    "unknown stack": ({"text": 0, "scales": {"vision.L0H0": 0}}, "unknown layer"),
}


@pytest.mark.parametrize("name", WRONG_PAIRS)
def test_wrong_requests_to_an_encoder_decoder(name: str, pair_served: Served) -> None:
    body, reason = WRONG_PAIRS[name]
    status, _, answer = ask(pair_served, body)
    assert status == 400, answer
    assert reason in answer.decode()
    assert len(answer) < 500


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"text": "a cat"}, "has no tokenizer"),
        ({"text": 0, "decoder": "a cat"}, "decoder must be omitted"),
        ({"text": 2}, "there is no text 2"),
        ({"text": 0, "token": 10}, "token must be below 10"),
        ({"text": 0, "scales": {"L2H0": 0}}, "unknown layer"),
    ],
)
def test_wrong_requests_to_a_model_of_images(body: dict[str, Any], reason: str, images_served: Served) -> None:
    status, _, answer = ask(images_served, body)
    assert status == 400, answer
    assert reason in answer.decode()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"text": SOURCE, "scales": {}}, "unknown field 'scales'"),
        ({"text": 0}, "decoder is missing"),
        ({"decoder": "a"}, "text must be a string"),
        ({"text": 7, "decoder": "a"}, "there is no text 7"),
    ],
)
def test_wrong_texts(body: dict[str, Any], reason: str, pair_served: Served) -> None:
    status, _, answer = _send(pair_served, body)
    assert status == 400, answer
    assert reason in answer.decode()


def test_texts_that_are_sent(pair_served: Served) -> None:
    status, _, answer = _send(pair_served, {"text": SOURCE, "decoder": "a tree"})
    assert status == 200
    (text,) = json.loads(answer)["texts"]
    assert text["name"] == SOURCE
    assert [one["shown"][1:3] for one in text["sequences"]] == [["the", "old"], ["[CLS]", "a"]]
    number = json.loads(answer)["first"]
    by_number = json.loads(ask(pair_served, {"text": number, "scales": {"cross.L1H1": 0}})[2])
    by_words = json.loads(ask(pair_served, {"text": SOURCE, "decoder": "a tree", "scales": {"cross.L1H1": 0}})[2])
    assert by_number["top"] == by_words["top"]


def _send(served: Served, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    data = json.dumps(body).encode()
    head = f"Host: 127.0.0.1:{served.server.port}\nContent-Length: {len(data)}\n"
    return served.ask(f"POST {served.base}text HTTP/1.1\n{head}\n", data)


# ---- in a browser -----------------------------------------------------------------------------


def _settled(shown: Any) -> None:
    shown.page.wait_for_selector(".prediction[aria-busy=false]")


def test_an_encoder_decoder_on_a_page(pair_served: Served, opened: Open) -> None:
    shown = opened(pair_served.server.address, "view=switches&text=0", height=1500)
    _settled(shown)
    assert "writes the other word by word" in shown.text(".prediction")
    assert "the old cat sat" in shown.text(".reading >> nth=0")
    assert "the dog ran" in shown.text(".reading >> nth=1")
    assert "ran" in shown.text(".prediction h2")
    bars = [bar.inner_text() for bar in shown.page.locator(".layerbar b").all()]
    assert bars[::2] == ["Encoder layer 0", "Decoder layer 0", "Decoder layer 1"]
    assert "Cross-attention, layer 1" in bars
    shown.page.click("[data-switch='cross.L1H0']")
    shown.page.wait_for_selector(".bar.after")
    _settled(shown)
    want = Switches(pair_served.store).compare(SwitchRequest(0, {"cross.L1H0": 0.0}))
    assert shown.page.locator(".guess").first.get_attribute("data-word") == want["top"][0]["word"]
    assert shown.page.locator(".maps .pane:visible").count() == 2
    shown.page.locator(".maps .pane:visible canvas").last.hover(position={"x": 180, "y": 150})
    assert "looks at" in shown.text(".cellnote")
    shown.page.fill("textarea >> nth=0", "the tree saw the house")
    shown.page.fill("textarea >> nth=1", "it was")
    shown.click("text=Show this text")
    _settled(shown)
    assert "was" in shown.text(".prediction h2")
    assert "tree saw" in shown.text(".reading >> nth=0")
    assert shown.page.input_value("textarea >> nth=1") == "it was", "what was typed can be changed"
    shown.shot("served-encoder-decoder")


def test_images_on_a_page(images_served: Served, opened: Open) -> None:
    shown = opened(images_served.server.address, "view=switches&text=1", width=390, height=900)
    _settled(shown)
    assert shown.text(".prediction h2") == "The class of the input"
    assert shown.page.locator("textarea").count() == 0, "this model reads no text"
    assert shown.options("Input") == ["input 1", "input 2"]
    shown.page.click("[data-switch=L0H1]")
    shown.page.click("[data-switch=L1H0]")
    shown.page.wait_for_selector(".bar.after")
    _settled(shown)
    want = Switches(images_served.store).compare(SwitchRequest(1, {"L0H1": 0.0, "L1H0": 0.0}))
    words = [row.get_attribute("data-word") for row in shown.page.locator(".guess").all()]
    assert words == [row["word"] for row in want["top"]]
    assert "</script>" in words
    assert "likeliest class" in shown.text(".changes")
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    shown.shot("served-images")
