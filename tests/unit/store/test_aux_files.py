"""Tokenizer, generation config, licence: what lies beside the weights comes along, other weights do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from multihead.errors import MultiheadError
from multihead.sources.pretrained import model_folder
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import bytes_of, drop, same_state, uneven
from zoo import ZOO


def source(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_what_belongs_to_a_model_is_copied_and_nothing_else(tmp_path: Path) -> None:
    given = source(
        tmp_path / "source",
        dict.fromkeys(
            ["tokenizer.json", "tokenizer.model", "vocab.txt", "LICENSE", "chat_template.jinja", "notes.txt",
             "pytorch_model.bin", "model.safetensors", "tokenizer.bin", "onnx/model.onnx", "config.json",
             "multihead.json", "data/tokenizer.json"],
            "x",
        ),
    )  # fmt: skip
    model = drop(ZOO["bert"].build(), uneven)
    save(model, tmp_path / "a", source=given)
    assert set(bytes_of(tmp_path / "a")) == {
        "tokenizer.json", "tokenizer.model", "vocab.txt", "LICENSE", "chat_template.jinja",
        "config.json", "multihead.json", "multihead.safetensors",
    }  # fmt: skip
    assert same_state(load(tmp_path / "a"), model)
    assert json.loads((tmp_path / "a" / "config.json").read_text())["model_type"] == "bert"


def test_it_can_be_the_source_of_itself(tmp_path: Path) -> None:
    given = source(tmp_path / "source", {"tokenizer.json": "x"})
    save(drop(ZOO["bert"].build(), uneven), tmp_path / "a", source=given)
    before = bytes_of(tmp_path / "a")
    save(load(tmp_path / "a"), tmp_path / "a", source=tmp_path / "a", force=True)
    assert bytes_of(tmp_path / "a") == before


def test_a_source_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match=r"there is no folder .*nowhere to copy the tokenizer from"):
        save(ZOO["bert"].build(), tmp_path / "a", source=tmp_path / "nowhere")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["..", "/etc", "a/b"])
def test_modules_outside_of_the_source(tmp_path: Path, place: str) -> None:
    listed = [{"idx": 0, "name": "0", "path": place, "type": "sentence_transformers.models.Transformer"}]
    given = source(tmp_path / "source", {"modules.json": json.dumps(listed)})
    with pytest.raises(MultiheadError, match="must be inside"):
        save(ZOO["bert"].build(), tmp_path / "a", source=given)


@pytest.mark.parametrize("listed", ["", "{}x", "[1]", '[{"path": ""}]'])
def test_modules_that_are_none(tmp_path: Path, listed: str) -> None:
    given = source(tmp_path / "source", {"modules.json": listed})
    with pytest.raises(MultiheadError, match=r"modules.json is (damaged|not JSON)"):
        save(ZOO["bert"].build(), tmp_path / "a", source=given)


def test_a_tokenizer_is_written_along(tmp_path: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(model_folder("minilm"))
    save(ZOO["bert"].build(), tmp_path / "a", tokenizer=tokenizer)
    again: Any = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert again("Heads are cut.")["input_ids"] == tokenizer("Heads are cut.")["input_ids"]
