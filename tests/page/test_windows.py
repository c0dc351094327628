"""Texts longer than a model takes: windows of them, each with its own words, chosen on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from multihead.show import collect_parts as collect_module
from multihead.show.encode import NEAR
from multihead.show.make_report import report
from multihead.show.text_maps import windows_of
from page.conftest import TEXT, Open, Page, maps_of


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    return GPT2Model(
        GPT2Config(n_layer=1, n_head=3, n_embd=24, vocab_size=50, n_positions=13, initializer_range=0.4)
    ).eval()


def test_windows_are_the_text_piece_by_piece() -> None:
    ids = [i % 50 for i in range(31)]
    cut = windows_of(_gpt2(), ids)
    assert [w.batch["input_ids"][0].tolist() for w in cut] == [ids[:13], ids[13:26], ids[26:]]
    assert [(w.at, w.count, w.longest) for w in cut] == [(0, 3, 13), (1, 3, 13), (2, 3, 13)]
    assert cut[1].note == "window 2 of 3, of 13 tokens each"
    assert [len(w.batch["input_ids"][0]) for w in windows_of(_gpt2(), ids, max_tokens=7)] == [7, 7, 7, 7, 3]
    (whole,) = windows_of(_gpt2(), ids[:13])
    assert whole.note == ""


def test_maps_of_every_window_are_the_models_own(opened: Open, tmp_path: Path) -> None:
    model, ids = _gpt2(), [(7 * i) % 50 for i in range(31)]
    found = report(model, [ids[:5]], text=ids, parts=())
    assert [t.window for t in found.texts] == [(0, 3), (1, 3), (2, 3)]
    assert found.notes[-1].endswith("is longer than the model can read at once: 3 windows, all are in the page")
    shown = opened(found.save(tmp_path / "w.html"), "layer=0&head=1&text=2")
    want = maps_of(Page(found, tmp_path, model), torch.tensor([ids[26:]]))["L0H1"]
    assert (shown.weights("L0H1", 2) - want).abs().max() < NEAR
    assert "Window 3 of 3" in shown.text(".textside")
    assert shown.options("Text") == [], "there is one text, of which windows are chosen"
    assert shown.options("Window") == ["1 of 3", "2 of 3", "3 of 3"]
    shown.choose("Window", "1")
    assert shown.page.locator(".token").all_inner_texts() == [str(i) for i in ids[13:26]]
    shown.go("view=tokens&text=1")
    assert shown.page.locator(".token").count() == 13
    shown.shot("windows")


def test_words_of_a_later_window_are_those_of_the_text(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    found = report(model, [TEXT], tokenizer=tokenizer, text=TEXT, parts=(), max_tokens=17, heads=["L0H0"])
    words = [t.sequences[0] for t in found.texts]
    spoken: list[str] = []
    for one in words:
        assert one.special[0]
        assert one.special[-1]
        spoken += one.shown[1:-1]
    whole = report(model, [TEXT], tokenizer=tokenizer, text=TEXT, parts=(), heads=["L0H0"]).texts[0]
    assert spoken == whole.sequences[0].shown[1:-1]
    assert "The" in spoken, "capitals are the text's, not the vocabulary's"


def test_how_many_windows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = _gpt2(), [i % 50 for i in range(131)]
    kept = lambda **options: report(model, [ids, ids[:5]], parts=(), max_tokens=13, **options)
    found = kept(windows=2)
    assert [(t.source, t.window) for t in found.texts] == [(0, (0, 11)), (0, (1, 11)), (1, (0, 1))]
    assert found.notes[-1].endswith("11 windows, the first 2 are in the page")
    assert len(kept().texts) == collect_module.WINDOWS + 1
    assert len(kept(windows=99).texts) == 12
    monkeypatch.setattr(collect_module, "WINDOW_SIZE", 1)
    found = kept()
    assert len(found.texts) == 2, "one window is kept however large it is"
    assert found.notes[-1].endswith("11 windows, the first is in the page")
