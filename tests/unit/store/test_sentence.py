"""A sentence-transformers folder stays one: it loads, and encodes as the cut model does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

import multihead as mh
from multihead.edit.surgery.install import install
from multihead.errors import MultiheadError
from multihead.model.head_weights import HeadWeights
from multihead.sources.pretrained import model_folder
from multihead.store.encoder import encoder
from multihead.store.formats.sentence import OURS, THEIRS
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import bytes_of, same_state

SOURCE = model_folder("minilm")
TEXTS = ["A head is cut.", "Nobody misses it, and the model becomes a little faster for that.", "Yes?"]


@pytest.fixture(scope="module")
def small() -> nn.Module:
    """MiniLM with 12, 11, …, 7 heads."""
    model: nn.Module = AutoModel.from_pretrained(SOURCE).eval()
    for i, layer in enumerate(mh.anatomy(model)):
        install(model, layer, HeadWeights.of(layer).keep(range(i, 12)))
    return model


@pytest.fixture(scope="module")
def folder(small: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sentence") / "small"
    assert not save(small, made, source=SOURCE).stock
    return made


@pytest.fixture(scope="module")
def library() -> Any:
    import sentence_transformers

    return sentence_transformers


def by_hand(model: nn.Module) -> Tensor:
    """Mean over real tokens, of length 1: what the folder's other modules do."""
    tokenizer: Any = AutoTokenizer.from_pretrained(SOURCE)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    kept = batch["attention_mask"][..., None]
    return nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=-1)


def test_the_folder_is_one_of_theirs(folder: Path, small: nn.Module) -> None:
    there = set(bytes_of(folder))
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json"} <= there
    assert "model.safetensors" not in there
    types = [m["type"] for m in json.loads((folder / "modules.json").read_text())]
    assert types[0] == OURS
    assert types[1:] == [m["type"] for m in json.loads((SOURCE / "modules.json").read_text())][1:]
    assert same_state(load(folder), small)


def test_it_loads_and_encodes(folder: Path, small: nn.Module, library: Any) -> None:
    model = library.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
    torch.testing.assert_close(torch.from_numpy(model.encode(TEXTS)), by_hand(small))
    assert model.max_seq_length == 256


def test_it_asks_before_a_class_of_ours_is_imported(folder: Path, library: Any) -> None:
    """Their rule, which we do not go around."""
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        library.SentenceTransformer(str(folder), device="cpu")


def test_without_the_flag_by_our_function(folder: Path, small: nn.Module, library: Any) -> None:
    model = encoder(folder, device="cpu")
    assert isinstance(model, library.SentenceTransformer)
    torch.testing.assert_close(torch.from_numpy(model.encode(TEXTS)), by_hand(small))


def test_what_they_save_they_load(folder: Path, small: nn.Module, library: Any, tmp_path: Path) -> None:
    library.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu").save(str(tmp_path / "b"))
    assert same_state(load(tmp_path / "b"), small)
    again = library.SentenceTransformer(str(tmp_path / "b"), trust_remote_code=True, device="cpu")
    torch.testing.assert_close(torch.from_numpy(again.encode(TEXTS)), by_hand(small))


def test_another_dtype(folder: Path, library: Any) -> None:
    model = encoder(folder, device="cpu")
    half = library.SentenceTransformer(
        str(folder), trust_remote_code=True, device="cpu", model_kwargs={"dtype": torch.bfloat16}
    )
    assert half.encode(TEXTS, convert_to_tensor=True).dtype == torch.bfloat16
    assert model.encode(TEXTS, convert_to_tensor=True).dtype == torch.float32


def test_what_transformers_can_express_needs_nothing_of_ours(library: Any, tmp_path: Path) -> None:
    """Also where the folder came from a cut that it could not express."""
    model = AutoModel.from_pretrained(SOURCE).eval()
    assert save(model, tmp_path / "a", source=SOURCE).stock
    listed = json.loads((tmp_path / "a" / "modules.json").read_text())
    assert [m["type"] for m in listed] == [m["type"] for m in json.loads((SOURCE / "modules.json").read_text())]
    stock = library.SentenceTransformer(str(tmp_path / "a"), device="cpu")
    torch.testing.assert_close(torch.from_numpy(stock.encode(TEXTS)), by_hand(model))


def test_the_first_module_is_put_back(folder: Path, tmp_path: Path) -> None:
    save(AutoModel.from_pretrained(SOURCE).eval(), tmp_path / "a", source=folder)
    assert json.loads((tmp_path / "a" / "modules.json").read_text())[0]["type"] == THEIRS


def test_a_class_of_nobody_is_not_imported(folder: Path, library: Any, tmp_path: Path) -> None:
    listed = json.loads((folder / "modules.json").read_text())
    listed[1]["type"] = "os.system"
    (tmp_path / "modules.json").write_text(json.dumps([listed[1]]))
    with pytest.raises(MultiheadError, match=r"needs the class os.system, which is not of"):
        encoder(tmp_path)


def test_a_folder_without_modules(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match=r"has no modules.json"):
        encoder(tmp_path)


def test_a_first_module_that_is_no_transformer(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    (tmp_path / "source" / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(
        MultiheadError, match=r"the first module of modules.json must be a Transformer, got .*StaticEmbedding"
    ):
        save(nn.Linear(2, 3), tmp_path / "a", source=tmp_path / "source")
