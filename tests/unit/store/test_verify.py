"""Every save is reloaded and compared with the model in memory; saving changes nothing else."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

import multihead as mh
import warm
from multihead._base.atomic_files import write_atomically
from multihead.errors import MultiheadError
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import drop, equal, even, outputs, same_state, uneven
from zoo import ZOO


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
@pytest.mark.parametrize("keep", [even, uneven])
def test_outputs_are_compared(tmp_path: Path, name: str, keep: Any) -> None:
    saved = save(drop(ZOO[name].build(), keep), tmp_path / "a")
    assert saved.verified == "tensors and outputs"
    assert str(saved).endswith("(reloaded: same tensors and outputs)")


@pytest.mark.parametrize("keep", [None, uneven])
def test_an_attribute_that_the_folder_does_not_hold(tmp_path: Path, keep: Any) -> None:
    """All tensors and shapes are the same; only the outputs differ."""
    model = ZOO["bert"].build()
    model = model if keep is None else drop(model, keep)
    model.bert.encoder.layer[1].attention.self.scaling *= 3  # type: ignore[union-attr,index]
    with pytest.raises(MultiheadError, match=r"BertForMaskedLM is not the one in memory.* relative distance of \d"):
        save(model, tmp_path / "a")
    assert not any(tmp_path.iterdir())


def test_inside_an_intervention(tmp_path: Path) -> None:
    model = ZOO["bert"].build()
    with mh.ablate(model, ["L0H1"]), pytest.raises(MultiheadError, match=r"not the one in memory"):
        save(model, tmp_path / "a")
    assert save(model, tmp_path / "a").stock


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_file_that_is_written_wrong(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    real = safetensors.torch.save_file

    def wrong(tensors: dict[str, Tensor], file: Path, metadata: Any) -> None:
        first = max(tensors, key=lambda n: tensors[n].numel())
        real(tensors | {first: tensors[first] + 1e-7}, file, metadata)

    monkeypatch.setattr(safetensors.torch, "save_file", wrong)
    with pytest.raises(MultiheadError, match=r"not the one in memory.* the stored \S+ differs"):
        save(drop(ZOO[name].build(), uneven), tmp_path / "a")
    assert not any(tmp_path.iterdir())


class Noisy(nn.Module):
    """Random in eval mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + torch.randn(3)


def test_a_class_that_load_cannot_build(tmp_path: Path) -> None:
    model, state = Noisy(), torch.get_rng_state()
    assert save(model, tmp_path / "a").verified == "tensors"
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(load(tmp_path / "a", model=Noisy()), Noisy)


class Failing(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        raise ZeroDivisionError


def test_a_model_that_does_not_run(tmp_path: Path) -> None:
    assert save(Failing(), tmp_path / "a").verified == "tensors"
    assert isinstance(load(tmp_path / "a", model=Failing()), Failing)


def test_not_a_number_equals_itself(tmp_path: Path) -> None:
    model = drop(ZOO["bert"].build(), uneven)
    model.bert.embeddings.word_embeddings.weight.data[50] = float("nan")  # type: ignore[union-attr,operator]
    save(model, tmp_path / "a")
    assert load(tmp_path / "a").bert.embeddings.word_embeddings.weight[50].isnan().all()  # type: ignore


# ---- the model and the process stay as they were ----------------------------------------------


@pytest.mark.parametrize("keep", [even, uneven])
def test_the_mode_of_every_submodule(tmp_path: Path, keep: Any) -> None:
    model = drop(ZOO["llama"].build(), keep).train()
    model.model.layers[0].eval()  # type: ignore[union-attr,operator,index]
    model.lm_head.weight.requires_grad = False  # type: ignore[union-attr]
    before = {name: m.training for name, m in model.named_modules()}
    save(model, tmp_path / "a")
    assert {name: m.training for name, m in model.named_modules()} == before
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["lm_head.weight"]


OFFLINE = """
import os, sys
os.environ.pop("HF_HUB_OFFLINE", None)
from multihead.store.load import load
from multihead.store.save import save
from transformers import BertConfig, BertModel
before = dict(os.environ)
model = BertModel(BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=1, num_attention_heads=3))
save(model, sys.argv[1])
load(sys.argv[1])
assert dict(os.environ) == before, set(os.environ) ^ set(before)
"""


def test_the_environment(tmp_path: Path) -> None:
    done = warm.run(OFFLINE, tmp_path / "a")
    assert done.returncode == 0, done.stderr


def test_the_umask(tmp_path: Path) -> None:
    """It belongs to the process: to read it is to set it, for a moment and for every thread."""
    called: list[str] = []

    def profile(_: Any, event: str, function: Any) -> None:
        if event == "c_call" and function is os.umask:
            called.append(event)

    sys.setprofile(profile)
    try:
        write_atomically(tmp_path / "file", b"x")
        save(nn.Linear(2, 3), tmp_path / "a")
    finally:
        sys.setprofile(None)
    assert not called
    (tmp_path / "other").touch()
    written = [tmp_path / "file", *(tmp_path / "a").iterdir()]
    assert {path.stat().st_mode for path in written} == {(tmp_path / "other").stat().st_mode}


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, b"x")
    assert caught.value.filename == str(path)


# ---- save_pretrained --------------------------------------------------------------------------


def test_save_pretrained_of_a_cut_model(tmp_path: Path) -> None:
    model = drop(ZOO["llama"].build(), even)
    save(model, tmp_path / "a")
    for small in (model, copy.deepcopy(model), load(tmp_path / "a")):
        with pytest.raises(MultiheadError, match=r"save_pretrained .*\n\nhint: mh.save"):
            small.save_pretrained(tmp_path / "b")  # type: ignore[operator]
    assert not (tmp_path / "b").exists()
    stock = AutoModelForCausalLM.from_pretrained(tmp_path / "a").eval()
    stock.save_pretrained(tmp_path / "c")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "c").eval()
    given = ZOO["llama"].inputs(model)
    assert equal(outputs(again, given)[:1], outputs(model, given)[:1])


def test_save_pretrained_of_a_model_that_was_not_cut(tmp_path: Path) -> None:
    model = ZOO["llama"].build()
    small = mh.cut(model, mh.plan(model, [[5, 6, 7, 8]] * 8, remove=["L0H0"], method="random"), refit=False)
    assert "save_pretrained" in vars(small)
    model.save_pretrained(tmp_path / "a")  # type: ignore[operator]
    assert same_state(AutoModelForCausalLM.from_pretrained(tmp_path / "a"), model)
