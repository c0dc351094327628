"""Calibration text: what is fitted to, what is held out, and what is said of text that will not do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.text_sketch import SIZE
from multihead.errors import MultiheadError, SizeError
from page.test_serve_models import _vit

DOCUMENTS = [[(7 * i + j) % 41 + 1 for j in range(3 + i % 11)] for i in range(67)]


@pytest.fixture(scope="module")
def model() -> GPT2Model:
    return GPT2Model(GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=50, n_positions=13)).eval()


def _documents(batches: list[dict[str, torch.Tensor]]) -> list[list[int]]:
    found: list[list[int]] = []
    for batch in batches:
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        found += [row[mask.bool()].tolist() for row, mask in zip(batch["input_ids"], real, strict=True)]
    return found


def test_every_document_is_in_one_part(model: GPT2Model) -> None:
    text = Calibration(model, DOCUMENTS, batch_size=5, held_out=0.25)
    fit, held = _documents(list(text.fit())), _documents(list(text.held_out()))
    assert len(held) == round(0.25 * len(DOCUMENTS))
    assert sorted(fit + held) == sorted(DOCUMENTS)
    assert text.tokens == sum(map(len, fit))
    assert text.tokens_held_out == sum(map(len, held))
    assert text.documents == len(DOCUMENTS)
    assert text.documents_to_fit == len(fit)


def test_batches_are_of_like_length_and_the_same_every_time(model: GPT2Model) -> None:
    text = Calibration(model, DOCUMENTS, batch_size=5)
    spread = [max(map(len, rows)) - min(map(len, rows)) for rows in (_documents([b]) for b in text.fit())]
    assert max(spread) <= 2
    lengths = [b["input_ids"].shape[1] for b in text.fit()]
    assert lengths != sorted(lengths)
    assert lengths != sorted(lengths, reverse=True)
    again = Calibration(model, DOCUMENTS, batch_size=5)
    for a, b in zip(text.fit(), again.fit(), strict=True):
        assert torch.equal(a["input_ids"], b["input_ids"])


@pytest.mark.parametrize(("length", "batch_size", "rows"), [(5, None, 64), (13, None, 64), (5, 7, 7)])
def test_a_batch_size_bounds_a_batch(model: GPT2Model, length: int, batch_size: int | None, rows: int) -> None:
    documents = [[i % 47, *[i // 47] * (length - 1)] for i in range(160)]
    text = Calibration(model, documents, batch_size=batch_size)
    assert max(len(batch["input_ids"]) for batch in text.fit()) == rows


def test_a_batch_of_long_documents_has_2048_tokens() -> None:
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50, n_positions=200)).eval()
    text = Calibration(model, [[i % 47, *[i // 47] * 99] for i in range(60)])
    assert max(len(batch["input_ids"]) for batch in text.fit()) == 2048 // 100


def test_long_documents_are_cut_to_the_models_positions(model: GPT2Model) -> None:
    text = Calibration(model, [list(range(1, 31)), [5, 6]], held_out=0.25)
    assert max(b["input_ids"].shape[1] for b in [*text.fit(), *text.held_out()]) == 13
    assert text.documents == 4  # three pieces and a short one


@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_one_document_are_on_one_side(model: GPT2Model, seed: int) -> None:
    documents = [[1 + i] * (40 + 7 * i) for i in range(7)]
    text = Calibration(model, documents, held_out=0.3, batch_size=3, seed=seed)
    fit, held = ({row[0] for row in _documents(list(part))} for part in (text.fit(), text.held_out()))
    assert len(held) == 2
    assert not fit & held
    assert fit | held == {d[0] for d in documents}


def test_one_long_document_is_cut_in_two_before_it_is_cut_into_pieces(model: GPT2Model) -> None:
    text = Calibration(model, [[i % 47 for i in range(100)]], held_out=0.2, batch_size=1)
    rows = sorted(_documents(list(text.fit())), key=len), _documents(list(text.held_out()))
    assert (sum(map(len, rows[0])), sum(map(len, rows[1]))) == (80, 20)
    assert {i for row in rows[1] for i in row} <= {i % 47 for i in range(80, 100)}


def test_the_sketch_of_the_text_does_not_grow_and_does_not_depend_on_pieces(model: GPT2Model) -> None:
    many = [[i // 40, i % 40, 3] for i in range(1600)]
    sketch = Calibration(model, many).sketch
    assert (sketch.documents, len(sketch.hashes)) == (1600, SIZE)
    assert sketch.overlap([[45, 45, i % 45] for i in range(300)]) == 0
    assert sketch.overlap(many[:400]) == pytest.approx(400, rel=0.15)
    long = [[1 + i % 40, *range(1, 13), *range(20)] for i in range(8)]
    assert Calibration(model, long, max_tokens=13).sketch.overlap(long) == 8


def test_the_structure_is_found_once_and_again_when_parameters_are_replaced() -> None:
    model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50)).eval()
    text = Calibration(model, DOCUMENTS)
    first, mark = text.anatomy, text.fingerprint
    assert text.anatomy is first
    assert mh.plan(model, text, remove=["L0H0"]).fingerprint == mark == text.fingerprint
    with torch.no_grad():
        model.h[0].mlp.c_proj.weight.data.mul_(0.5)
    assert text.fingerprint != mark
    attention = model.h[0].attn.c_proj
    attention.weight = nn.Parameter(attention.weight.detach().clone())
    assert text.anatomy is not first


def test_short_text_is_spliced_on_request_and_only_to_fit(model: GPT2Model) -> None:
    documents = [[i] * 5 + [i + 20] * 3 for i in range(1, 18)]
    text = Calibration(model, documents, batch_size=5)
    held, plain = _documents(list(text.held_out())), _documents(list(text.fit()))
    fit = _documents(list(text.fit(spliced=True)))
    assert (len(plain), len(fit)) == (15, 30)
    made = [x for x in fit if x not in documents]
    assert made
    for document in made:
        assert document[:4] == [document[0]] * 4
        assert document[4:] in [x[4:] for x in documents if x not in held]
    assert _documents(list(text.fit(spliced=True))) == fit, "the same every time"


def test_one_document_is_cut_in_two(model: GPT2Model) -> None:
    text = Calibration(model, [[1, 2, 3, 4, 5, 6, 7, 8]])
    assert _documents(list(text.fit())) == [[1, 2, 3, 4, 5, 6, 7]]
    assert _documents(list(text.held_out())) == [[8]]
    with pytest.raises(SizeError, match="one document of 3 tokens"):
        Calibration(model, [[1, 2, 3]])


def test_ready_batches_are_held_out_whole_or_by_rows(model: GPT2Model) -> None:
    batch = {"input_ids": torch.arange(1, 23).view(11, 2), "attention_mask": torch.ones(11, 2, dtype=torch.long)}
    text = Calibration(model, batch)
    assert [tuple(b["input_ids"].shape) for b in text.fit()] == [(10, 2)]
    assert [tuple(b["attention_mask"].shape) for b in text.held_out()] == [(1, 2)]
    many = Calibration(model, [batch] * 16)
    assert (len(list(many.fit())), len(list(many.held_out()))) == (14, 2)
    with pytest.raises(SizeError, match="nothing of it can be held out: it is one document"):
        Calibration(model, {"input_ids": torch.tensor([[1, 2, 3]])})


def test_tokens_of_images_are_patches() -> None:
    images = torch.randn(13, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    text = Calibration(_vit(), {"pixel_values": images})
    assert (text.documents, text.tokens, text.tokens_held_out) == (13, 11 * 10, 2 * 10)
    assert text.summary == "13 documents, 130 tokens"
    with pytest.warns(UserWarning, match="110 tokens for the 24 input columns of L0.*600 tokens"):
        text.check(24, "L0")


def test_few_tokens_are_said_once_with_numbers(model: GPT2Model) -> None:
    text = Calibration(model, DOCUMENTS)
    with pytest.warns(UserWarning, match=rf"{text.tokens} tokens for the 97 input columns of L3.*2425 tokens"):
        text.check(97, "L3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text.check(97, "L4")
        Calibration(model, DOCUMENTS).check(5, "L0")


class _Foreign:
    """A tokenizer to which most words are unknown."""

    unk_token_id, pad_token_id, is_fast = 0, 49, False

    def __call__(self, text: str, verbose: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [len(word) if word.isascii() else 0 for word in text.split()]}


def test_text_in_another_language_is_said(model: GPT2Model) -> None:
    texts = ["das ist ein Übermaß äöü", "größe üben"] * 4
    with pytest.warns(UserWarning, match="are copies|are unknown") as said:
        Calibration(model, texts, tokenizer=_Foreign())
    assert "6 of 8 calibration documents are copies" in str(said[0].message)
    assert "4 of 7 tokens (57%) are unknown" in str(said[1].message)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"held_out": 1.5}, r"held_out .*1\.5"),
    ({"held_out": 0}, "held_out must be above 0, got 0"),
    ({"held_out": "half"}, "held_out must be a number, got 'half'"),
    ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ({"batch_size": "8"}, "batch_size must be an integer, got '8'"),
    ({"seed": "a"}, "seed must be an integer, got 'a'"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"data": None}, "data must be documents or batches, got None"),
    ({"data": 5}, "data must be documents or batches, got the int 5"),
    ({"data": {"input_ids": torch.full((4, 6), 99)}}, "(?s)^input_ids .*token id 99"),
    ({"data": {"words": torch.ones(2, 3)}}, "^GPT2Model cannot run without input_ids"),
]


def test_what_is_no_calibration_text_is_refused(model: GPT2Model) -> None:
    with pytest.raises(MultiheadError, match="got one text"):
        Calibration(model, "a text")
    for wrong, message in WRONG:
        with pytest.raises(MultiheadError, match=message):
            Calibration(model, **{"data": DOCUMENTS, **wrong})
    with pytest.raises(MultiheadError, match="nothing to measure"):
        Calibration(model, [])
    with pytest.raises(SizeError, match="token id 77"):
        Calibration(model, [[77, 1], [2]])


class _Unpadded(nn.Module):
    """A model of somebody's own: ids in, and no word about padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(53, 14), nn.Linear(14, 53)
        block = nn.TransformerEncoderLayer(14, 2, 11, batch_first=True)
        self.encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(input_ids)))


def test_a_model_that_knows_no_padding_gets_batches_of_one_length() -> None:
    torch.manual_seed(0)
    model = _Unpadded().eval()
    rows = [[(7 * i + j * j) % 53 for j in range(5 + i % 3)] for i in range(40)]
    text = Calibration(model, rows, batch_size=7)
    assert all(set(batch) == {"input_ids"} for batch in text.fit())
    assert any(len(batch["input_ids"]) > 1 for batch in text.fit())
    small = mh.cut(model, mh.plan(model, text, keep=0.5))
    assert sum(layer.num_heads for layer in mh.anatomy(small, text.example())) == 2


class _Patches(nn.Module):
    """Reads the patches of all images along one axis, and the sizes of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(12, 3, batch_first=True)

    def forward(self, src: Tensor, sizes: Tensor) -> Tensor:
        return self.encoder(src)


def test_a_batch_without_a_row_for_every_document_is_not_split() -> None:
    """Vision models get the patches of all images along one axis, and the sizes of the images along another."""
    model = _Patches()
    images = {"src": torch.randn(30, 7, 12), "sizes": torch.tensor([[3, 5], [3, 5]])}
    with pytest.raises(SizeError, match=r"30, 7, 12.*2, 2"):
        Calibration(model, images)
    several = Calibration(model, [images, dict(images)])
    assert several.example()["src"].shape == (30, 7, 12)
    assert several.tokens == several.tokens_held_out == 30 * 7


class _Video(nn.Module):
    """Reads the rows of a batch in pairs: the frames of a video."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(12, 3, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:
        videos, tokens, width = len(frames) // 2, *frames.shape[1:]
        return self.encoder(frames.view(videos, 2 * tokens, width))


def test_a_batch_is_not_split_if_the_model_does_not_run_on_a_row() -> None:
    model, frames = _Video().eval(), {"frames": torch.randn(4, 7, 12)}
    with pytest.raises(SizeError, match=r"4, 7, 12.*_Video does not run on frames of shape \(1, 7, 12\)"):
        Calibration(model, frames)
    several = Calibration(model, [frames, dict(frames)])
    assert several.example()["frames"].shape == (4, 7, 12)
