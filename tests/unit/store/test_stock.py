"""Folders that stock transformers loads: which cuts it can express, proven without multihead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import multihead as mh
import warm
from multihead.edit.surgery.install import install
from multihead.layer import Groups
from multihead.model.head_weights import HeadWeights
from multihead.store.formats import stock as stock_format
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import drop, equal, even, outputs, same_state, uneven
from zoo import ZOO

# What FACTS say of transformers 5.22: heads of their own size, or kv heads of their own number.
CAN = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "cohere", "smollm3", "vit"]
CANNOT = ["bert", "modernbert", "gpt2", "opt", "gpt-neox", "bloom", "stablelm", "whisper"]


@pytest.mark.parametrize("name", CAN)
def test_what_it_can_express_it_loads(tmp_path: Path, name: str) -> None:
    """`verify` has loaded it already; the numbers are compared here once more, by the folder alone."""
    import transformers

    entry = ZOO[name]
    model = drop(entry.build(), even)
    saved = save(model, tmp_path / "a")
    assert saved.stock, saved.reason
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    stock = getattr(transformers, config["architectures"][0]).from_pretrained(tmp_path / "a").eval()
    given = entry.inputs(model)
    torch.testing.assert_close(outputs(stock, given)[0], outputs(model, given)[0])
    assert type(stock) is type(model)
    again = load(tmp_path / "a")
    assert same_state(again, model)
    assert again.config.num_attention_heads == ZOO[name].build().config.num_attention_heads  # type: ignore


@pytest.mark.parametrize("name", CANNOT)
def test_what_it_cannot_express_it_does_not_find(tmp_path: Path, name: str) -> None:
    import transformers

    saved = save(drop(ZOO[name].build(), even), tmp_path / "a")
    assert not saved.stock
    assert saved.reason.startswith("transformers cannot express it: ")
    assert not list((tmp_path / "a").glob("model*"))
    with pytest.raises(OSError, match=r"no file named model.safetensors"):
        transformers.AutoModel.from_pretrained(tmp_path / "a")


@pytest.mark.parametrize("name", ["llama", "vit", "t5"])
def test_layers_that_differ_are_no_config(tmp_path: Path, name: str) -> None:
    saved = save(drop(ZOO[name].build(), uneven), tmp_path / "a")
    assert not saved.stock
    assert "layers differ, and a config has one size for all: " in saved.reason


def test_groups_of_different_sizes_are_no_config(tmp_path: Path) -> None:
    model = drop(ZOO["llama"].build(), lambda i, heads, group: [0, 1, 3, 4, 5])
    saved = save(model, tmp_path / "a")
    assert (saved.stock, saved.reason) == (False, "L0 has 5 heads in groups of different sizes on 2 kv heads")
    assert same_state(load(tmp_path / "a"), model)


def test_no_heads_at_all_are_no_config(tmp_path: Path) -> None:
    for name in ("gpt2", "llama"):
        saved = save(drop(ZOO[name].build(), lambda *_: []), tmp_path / name)
        assert not saved.stock
        assert "no attention was seen" in saved.reason


def llama(heads: int = 4) -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=101, hidden_size=32, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=20,
        max_position_embeddings=37, pad_token_id=1, rope_parameters={"rope_type": "default", "rope_theta": 77.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for p in model.parameters():
        p.data.add_(torch.randn_like(p) * 0.2)
    return model


def test_three_heads_of_a_llama_are_a_mistral(tmp_path: Path) -> None:
    """hidden_size 32 is no multiple of 3, which LLaMA wants."""
    model = drop(llama(), lambda i, heads, group: [0, 1, 3])
    saved = save(model, tmp_path / "a")
    assert (saved.stock, saved.reason) == (True, "transformers loads it as MistralForCausalLM")
    stock = AutoModelForCausalLM.from_pretrained(tmp_path / "a").eval()
    assert type(stock).__name__ == "MistralForCausalLM"
    given = ZOO["llama"].inputs(model)
    assert equal(outputs(stock, given)[:1], outputs(model, given)[:1])
    again = load(tmp_path / "a")
    assert type(again) is LlamaForCausalLM
    assert same_state(again, model)


def test_fewer_kv_heads_are_a_number_in_the_config(tmp_path: Path) -> None:
    model = llama()
    for layer in mh.anatomy(model):
        own = HeadWeights.of(layer)
        fewer = replace(own, k=own.k[:2], v=own.v[:2], groups=Groups.even(4, 2), kv_origin=(0, 1))
        install(model, layer, fewer)
    saved = save(model, tmp_path / "a")
    assert saved.stock, saved.reason
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 8)


def test_what_computes_something_else_is_noticed(tmp_path: Path, monkeypatch: Any) -> None:
    """The shapes fit; only a run tells."""
    wrong = replace(stock_format.STAND_INS[0], changes={"sliding_window": 2})
    monkeypatch.setattr(stock_format, "STAND_INS", (wrong,))
    model = drop(llama(), lambda i, heads, group: [0, 1, 3])
    saved = save(model, tmp_path / "a")
    assert not saved.stock
    assert saved.reason.startswith("transformers loads a model that computes outputs with a relative distance of ")
    assert not list((tmp_path / "a").glob("model*")), "nor is it left for others to load"
    assert json.loads((tmp_path / "a" / "config.json").read_text())["model_type"] == "llama"
    assert same_state(load(tmp_path / "a"), model)


def test_biases_that_a_stand_in_lacks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=101, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=20,
        attention_bias=True,
    )  # fmt: skip
    saved = save(drop(LlamaForCausalLM(config).eval(), lambda *_: [0, 1, 3]), tmp_path / "a")
    assert not saved.stock
    assert "The hidden size (32) is not a multiple of the number of attention heads (3)" in saved.reason


# ---- in a fresh process, where multihead cannot be imported -----------------------------------

ALONE = """
import json, sys
class Forbidden:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "multihead":
            raise ImportError("multihead is not installed here")
sys.meta_path.insert(0, Forbidden())
try:
    import multihead
    sys.exit("it could be imported")
except ImportError:
    pass
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
ids = torch.tensor(json.loads(sys.argv[2]))
with torch.no_grad():
    logits = model(ids).logits
made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, do_sample=False)
torch.set_printoptions(profile="full")
print(json.dumps([type(model).__name__, logits.flatten().tolist(), made.tolist()]))
assert not any(name.partition(".")[0] == "multihead" for name in sys.modules)
"""


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_it_is_loaded_without_multihead(tmp_path: Path, name: str) -> None:
    model = drop(llama(), lambda *_: [0, 1, 3]) if name == "mistral" else drop(ZOO["llama"].build(), even)
    assert save(model, tmp_path / "a").stock
    ids = ZOO["llama"].inputs(model)["input_ids"]
    done = warm.run(ALONE, tmp_path / "a", json.dumps(ids.tolist()))
    assert done.returncode == 0, done.stderr
    kind, logits, made = json.loads(done.stdout.splitlines()[-1])
    assert kind == {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}[name]
    expected = outputs(model, {"input_ids": ids})[0]
    torch.testing.assert_close(torch.tensor(logits).view_as(expected), expected)
    ours = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, do_sample=False)  # type: ignore
    assert made == ours.tolist()
