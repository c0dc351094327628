"""The original's streams are kept from the choice of heads to the cut: less work, the same model, bounded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.model import activation_cache
from unit.edit.sharp import sharp

SMALL: dict[str, Any] = {
    "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 23, "vocab_size": 53,
}  # fmt: skip
IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(5 + i % 7)] for i in range(40)]
FAMILIES = {
    "bert": lambda: BertModel(BertConfig(**SMALL)),
    "gpt2": lambda: GPT2Model(GPT2Config(n_layer=3, n_head=5, n_embd=30, vocab_size=53)),
    "llama": lambda: LlamaModel(LlamaConfig(**SMALL, num_key_value_heads=5, head_dim=6)),
}
QUERIES = {
    "bert": "encoder.layer.1.attention.self.query", "gpt2": "h.1.attn.c_attn", "llama": "layers.1.self_attn.q_proj",
}  # fmt: skip


def _model(family: str) -> nn.Module:
    torch.manual_seed(0)
    return sharp(0.4, FAMILIES[family]())


def _rows_of(model: nn.Module, path: str) -> list[int]:
    """The rows of every batch that a module of this model runs on, not one of a copy of it."""
    rows: list[int] = []
    watched = model.get_submodule(path)

    def count(module: nn.Module, args: Any) -> None:
        if module is watched:
            rows.append(args[0].shape[0])

    watched.register_forward_pre_hook(count)
    return rows


def _same(a: nn.Module, b: nn.Module) -> None:
    for (name, x), (_, y) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.fast("bert")
@pytest.mark.parametrize("family", FAMILIES)
def test_after_the_choice_of_heads_the_original_runs_on_held_out_text_only(family: str) -> None:
    model = _model(family)
    text = Calibration(model, IDS, batch_size=7, held_out=0.2)
    plan = mh.plan(model, text, keep=0.5)
    tokens, width = text.tokens, 30
    assert 2 * 3 * 4 * tokens * width <= text.originals.cache.size <= 3 * 3 * 4 * tokens * width
    _ = text.fronts  # found on an example
    rows = _rows_of(model, QUERIES[family])
    small = mh.cut(model, plan)
    assert sum(rows) == sum(batch["input_ids"].shape[0] for batch in text.held_out())
    assert text.originals.cache.size == 0
    again = mh.cut(model, plan)
    assert sum(rows) > len(IDS)
    _same(small, again)


def test_what_is_kept_of_a_block_is_freed_when_it_is_fitted() -> None:
    model = _model("bert")
    text = Calibration(model, IDS, batch_size=7)
    plan = mh.plan(model, text, remove=["L0H0"])
    _ = text.covariance
    sizes: dict[str, int] = {}
    mh.cut(model, plan, progress=lambda step, *_: sizes.setdefault(step, text.originals.cache.size))
    sizes = {step: size for step, size in sizes.items() if ".output.dense.weight" not in step}
    first, second, third = (sizes[f"refit L{i}"] for i in range(3))
    assert 3 * third == pytest.approx(first, rel=0.01)
    assert 3 * second == pytest.approx(2 * first, rel=0.01)


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the cache at most, whole batches only; the runs of the cut get what is left."""
    model = _model("bert")
    monkeypatch.setattr(activation_cache, "CACHE_BYTES", 1)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    text = Calibration(model, IDS, batch_size=7)
    plan = mh.plan(model, text, keep=0.5)
    kept = text.originals.cache
    assert 0 < kept.size <= kept.limit == weights // 2
    whole = [text.originals.get(block, batch) is not None for batch in text.fit() for block in text.blocks]
    assert 0 < sum(whole) < len(whole)
    assert {sum(whole[i : i + 3]) for i in range(0, len(whole), 3)} == {0, 3}
    assert text.block_run(model).cache.limit == weights - kept.size
    small = mh.cut(model, plan)
    monkeypatch.setattr(activation_cache.ActivationCache, "put", lambda self, key, value, size, share=1.0: False)
    _same(small, mh.cut(model, plan))


def test_streams_of_other_weights_are_not_used() -> None:
    model = _model("bert")
    text = Calibration(model, IDS, batch_size=7)
    mh.plan(model, text, keep=0.5)
    with torch.no_grad():
        model.get_submodule("encoder.layer.1.output.dense").weight.mul_(0.5)
    remove = ["L0H1", "L1H0"]
    small = mh.cut(model, mh.plan(model, text, remove=remove))
    _same(small, mh.cut(model, mh.plan(model, Calibration(model, IDS, batch_size=7), remove=remove)))


def test_a_plan_after_a_change_of_weights_is_that_of_a_new_calibration() -> None:
    model = _model("gpt2")
    text = Calibration(model, IDS, batch_size=7)
    before = mh.plan(model, text, keep=0.5)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.flip(0))
    again, new = mh.plan(model, text, keep=0.5), mh.plan(model, Calibration(model, IDS, batch_size=7), keep=0.5)
    assert again.scores != before.scores
    assert again.layers == new.layers
    assert again.scores == new.scores
    _same(mh.cut(model, again), mh.cut(model, new))


def test_a_plan_is_refused_after_weights_have_changed_places() -> None:
    model = _model("gpt2")
    plan = mh.plan(model, IDS, keep=0.5)
    weight = model.get_submodule("h.1.mlp.c_fc").weight
    with torch.no_grad():
        weight.copy_(weight.flip(0))
    with pytest.raises(mh.MultiheadError, match="fingerprint"):
        mh.cut(model, plan)
