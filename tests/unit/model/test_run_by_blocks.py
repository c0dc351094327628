"""Runs from block to block: the same values as from the start, less work, bounded memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    T5Config,
    T5Model,
)

import multihead as mh
from multihead.edit import Plan
from multihead.edit.calibration import Calibration
from multihead.edit.kv_sharing.input_moments import moments_of
from multihead.model import activation_cache
from multihead.model.forward import Forward
from multihead.model.run_by_blocks import BlockRun, blocks_of, fronts_of
from unit.edit.sharp import sharp

SMALL: dict[str, Any] = {
    "hidden_size": 30, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 23, "vocab_size": 53,
}  # fmt: skip
IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(5 + i % 7)] for i in range(40)]


def _padded(rows: list[list[int]]) -> dict[str, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def _two(rows: list[list[int]]) -> dict[str, Tensor]:
    return {**_padded(rows), "decoder_input_ids": _padded(rows)["input_ids"].flip(1)}


def _vectors(rows: list[list[int]]) -> dict[str, Tensor]:
    torch.manual_seed(len(rows))
    return {"src": torch.randn(len(rows), 7, 14)}


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[list[list[int]]], dict[str, Tensor]]]] = {
    "bert": (lambda: BertModel(BertConfig(**SMALL)), _padded),
    "gpt2": (lambda: GPT2Model(GPT2Config(n_layer=3, n_head=5, n_embd=30, vocab_size=53)), _padded),
    "llama": (lambda: LlamaModel(LlamaConfig(**SMALL, num_key_value_heads=5, head_dim=6)), _padded),
    "t5": (
        lambda: T5Model(
            T5Config(d_model=30, d_kv=6, d_ff=23, num_layers=2, num_decoder_layers=2, num_heads=5, vocab_size=53)
        ),
        _two,
    ),
    "torch": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(14, 2, 11, batch_first=True), 3, enable_nested_tensor=False
        ),
        _vectors,
    ),
}


def test_the_block_of_an_attention_holds_no_other() -> None:
    paths = ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
    assert blocks_of(paths) == {paths[0]: "encoder.layer.0", paths[1]: "encoder.layer.1"}
    two = ["d.0.self_attn", "d.0.cross_attn", "d.1.self_attn"]
    assert blocks_of(two) == {two[0]: "d.0.self_attn", two[1]: "d.0.cross_attn", two[2]: "d.1"}
    assert blocks_of(["self_attn"]) == {"self_attn": ""}


def _attended(model: nn.Module, path: str, run: Any, batch: Mapping[str, Any]) -> Tensor:
    """The heads of one attention."""
    heads: list[Tensor] = []

    def listen(call: Any, compute: Any) -> Tensor:
        out = compute()
        if call.path == path:
            heads.append(out)
        return out

    forward = Forward(model)
    with forward.listening(listen):
        run(forward, batch)
    return heads[-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_is_seen_as_from_the_start(family: str) -> None:
    """Forward through the layers, each changed once it was passed: a plain run of that moment sees the same."""
    make, batch_of = FAMILIES[family]
    torch.manual_seed(0)
    model = sharp(0.4, make())
    batches, example = [batch_of(IDS[:5]), batch_of(IDS[5:16])], batch_of(IDS[16:18])
    anatomy = mh.anatomy(model, example)
    blocks = blocks_of([layer.path for layer in anatomy])
    run = BlockRun([model], list(blocks.values()), example)
    assert list(run.fronts) == list(blocks.values())
    for layer in anatomy:
        run.advance(blocks[layer.path])
        for _ in range(2):
            for batch in batches:
                resumed = _attended(model, layer.path, run, batch)
                assert torch.equal(resumed, _attended(model, layer.path, Forward.run, batch))
        with torch.no_grad():
            model.get_parameter(layer.weights["o"].parameter).mul_(0.7)
        run.weights_changed(model)
    assert run.cache.size > 0, "it was run from the start all the time"


MAPS = {
    "bert": ("attention.output.dense", "output.dense"),
    "gpt2": ("attn.c_proj", "mlp.c_proj"),
    "llama": ("self_attn.o_proj", "mlp.down_proj"),
    "t5": ("SelfAttention.o", "EncDecAttention.o", "wo"),
    "torch": ("linear2",),
}


@pytest.mark.fast("llama", "bert")
@pytest.mark.parametrize("family", FAMILIES)
def test_runs_start_inside_a_block(family: str) -> None:
    """At every output map, each changed once it was passed: nothing in front of it runs again."""
    make, batch_of = FAMILIES[family]
    torch.manual_seed(0)
    model = sharp(0.4, make())
    batches, example = [batch_of(IDS[:5]), batch_of(IDS[5:16])], batch_of(IDS[16:18])
    blocks = list(blocks_of([layer.path for layer in mh.anatomy(model, example)]).values())
    inside = [name for name, _ in model.named_modules() if name.endswith(MAPS[family])]
    run = BlockRun([model], blocks, example, fronts=fronts_of(model, [*blocks, *inside], example))
    assert set(run.fronts) == {*blocks, *inside}
    computed = {name: _forwards(model, name) for name in inside}
    for stop in run.fronts:
        run.advance(stop)
        for batch in batches:
            _of_module(model, stop, run, batch)
        for calls in computed.values():
            calls.clear()
        resumed = [_of_module(model, stop, run, batch) for batch in batches]
        earlier = list(run.fronts)[: list(run.fronts).index(stop)]
        assert [name for name in inside if computed[name] and name in earlier] == []
        for x, batch in zip(resumed, batches, strict=True):
            assert torch.equal(x, _of_module(model, stop, Forward.run, batch))
        if stop in inside:
            with torch.no_grad():
                model.get_parameter(f"{stop}.weight").mul_(0.7)
        run.weights_changed(model)


def _forwards(model: nn.Module, path: str) -> list[int]:
    """A 1 for every run of a module's code; hooks also run where an answer takes its place."""
    calls: list[int] = []
    module = model.get_submodule(path)
    forward = module.forward

    def count(*args: Any) -> Any:
        calls.append(1)
        return forward(*args)

    module.forward = count
    return calls


def _of_module(model: nn.Module, path: str, run: Any, batch: Mapping[str, Any]) -> Tensor:
    """The first output of a module."""
    outputs: list[Tensor] = []
    handle = model.get_submodule(path).register_forward_hook(
        lambda _, __, out: outputs.append((out if isinstance(out, Tensor) else out[0]).clone())
    )
    forward = Forward(model)
    with forward.listening():
        run(forward, batch)
    handle.remove()
    return outputs[-1]


def test_one_model_advances_inside_the_block_and_the_other_stays() -> None:
    torch.manual_seed(0)
    models = [sharp(0.4, FAMILIES["llama"][0]()) for _ in range(2)]
    example, batch = _padded(IDS[16:18]), _padded(IDS[:5])
    blocks, inside = [f"layers.{i}" for i in range(3)], [f"layers.{i}.self_attn.o_proj" for i in range(3)]
    run = BlockRun(models, blocks, example, fronts=fronts_of(models[0], [*blocks, *inside], example))
    run.advance("layers.1")
    run.advance("layers.1.self_attn.o_proj", models[1])
    queries = [_forwards(model, "layers.1.self_attn.q_proj") for model in models]
    for model in models:
        forward = Forward(model)
        with forward.listening():
            for _ in range(3):
                run(forward, batch)
    assert [len(calls) for calls in queries] == [3, 1]


def test_values_that_save_part_of_a_block_leave_room_for_the_states_of_blocks() -> None:
    """And where a new value does not fit, the old one stays."""
    cache = activation_cache.ActivationCache(100)
    assert cache.put("a", "original", 40, share=0.5)
    assert not cache.put("b", "original", 20, share=0.5)
    assert cache.put("c", "state", 60)
    assert not cache.put("c", "larger", 61)
    assert (cache.get("c"), cache.size) == ("state", 100)
    assert cache.put("c", "smaller", 10)
    assert cache.size == 50
    cache.move("a", "c")
    assert (cache.get("a"), cache.get("c"), cache.size) == (None, "original", 40)


def test_a_block_runs_once_if_its_weights_stay() -> None:
    model = sharp(0.4, FAMILIES["llama"][0]())
    run = BlockRun([model], [f"layers.{i}" for i in range(3)], _padded(IDS[16:18]))
    batches = [_padded(IDS[:5]), _padded(IDS[5:16])]
    calls = [_counted(model, f"layers.{i}.mlp") for i in range(3)]
    forward = Forward(model)
    with forward.listening():
        for i in range(3):
            run.advance(f"layers.{i}")
            for batch in batches:
                run(forward, batch)
    assert [len(c) for c in calls] == [2, 2, 2]


def _counted(model: nn.Module, path: str) -> list[int]:
    calls: list[int] = []
    model.get_submodule(path).register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


def test_one_state_per_batch_is_kept_and_does_not_run_again() -> None:
    model = sharp(0.4, FAMILIES["llama"][0]())
    batches = [_padded(IDS[:5]), _padded(IDS[5:16])]
    run = BlockRun([model], [f"layers.{i}" for i in range(3)], _padded(IDS[16:18]))
    run.advance("layers.2")
    first, second, last = (_counted(model, f"layers.{i}.mlp") for i in range(3))
    forward = Forward(model)
    with forward.listening():
        for _ in range(3):
            for batch in batches:
                run(forward, batch)
    assert (len(first), len(second), len(last)) == (2, 2, 6)
    tokens = sum(b["input_ids"].numel() for b in batches)
    rotary = sum(2 * b["input_ids"].shape[1] * 6 * 4 for b in batches)  # cos and sin, which every block reads
    assert run.cache.size == tokens * 30 * 4 + rotary
    run.advance("")
    assert run.cache.size == 0


def test_a_run_ends_in_front_of_the_next_block() -> None:
    model = sharp(0.4, FAMILIES["gpt2"][0]())
    run = BlockRun([model], [f"h.{i}" for i in range(3)], _padded(IDS[16:18]))
    run.advance("h.1")
    later, forward = _counted(model, "h.2.mlp"), Forward(model)
    with forward.listening():
        assert run(forward, _padded(IDS[:5])) is None
    assert run.continues
    assert later == []
    run.advance("h.2")
    assert not run.continues


def test_moments_and_fits_start_from_the_same_states() -> None:
    """One reads batches through `run`, with labels dropped, the other by itself."""
    torch.manual_seed(0)
    model = sharp(0.4, FAMILIES["llama"][0]())
    batches = [_padded(IDS[:5]), _padded(IDS[5:16])]
    layer = mh.anatomy(model, batches[0])[2]
    plain = moments_of(model, layer, batches)
    run = BlockRun([model], [f"layers.{i}" for i in range(3)], _padded(IDS[16:18]))
    run.advance("layers.2")
    for batch in batches:
        _attended(model, layer.path, run, batch)
    kept, first = run.cache.size, _counted(model, "layers.0.mlp")
    resumed = moments_of(model, layer, batches, run=run)
    assert (len(first), run.cache.size) == (0, kept)
    for name in ("context_moment", "attended_key_moment"):
        torch.testing.assert_close(getattr(resumed, name).block, getattr(plain, name).block)


def test_no_more_is_kept_than_there_is_room_for() -> None:
    model = sharp(0.4, FAMILIES["bert"][0]())
    batches = [_padded(IDS[:5]), _padded(IDS[5:10]), _padded(IDS[10:15])]
    blocks, example = [f"encoder.layer.{i}" for i in range(3)], _padded(IDS[16:18])
    one = batches[0]["input_ids"].numel() * 30 * 4
    for limit in (2 * one + one // 2, 0):
        run = BlockRun([model], blocks, example, activation_cache_bytes=limit)
        run.advance("encoder.layer.2")
        forward = Forward(model)
        with forward.listening():
            for _ in range(2):
                for batch in batches:
                    assert torch.equal(run(forward, batch)[0], model(**batch)[0])
                    assert run.cache.size <= limit
        assert (run.cache.size > 0) == (limit > 0)


def test_going_back_forgets() -> None:
    """States in front of a later block depend on weights that may now change."""
    model = sharp(0.4, FAMILIES["gpt2"][0]())
    batch = _padded(IDS[:5])
    run = BlockRun([model], [f"h.{i}" for i in range(3)], _padded(IDS[16:18]))
    forward = Forward(model)
    with forward.listening():
        run.advance("h.2")
        run(forward, batch)
        run.advance("h.1")
        assert run.cache.size == 0
        model.h[1].mlp.c_proj.weight.mul_(0.5)
        run(forward, batch)
        run.advance("h.2")
        assert torch.equal(run(forward, batch)[0], model(**batch)[0])


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(14, 2, batch_first=True), nn.Linear(14, 14)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.last(x + self.attention(x, x, x, need_weights=False)[0])


class _Skips(nn.Module):
    """The last block reads what the first one gave, too; `tell` gives all states out."""

    def __init__(self, *, tell: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.third, self.tell = _Block(), _Block(), _Block(), tell

    def forward(self, src: Tensor) -> Mapping[str, Any]:
        one = self.first(src)
        two = self.second(one)
        three = self.third(two + one)
        return {"out": three, **({"all": (one, two)} if self.tell else {})}


def test_outputs_that_a_later_block_reads_are_kept() -> None:
    torch.manual_seed(0)
    model, batch = _Skips().eval(), {"src": torch.randn(3, 5, 14)}
    blocks, example = ["first", "second", "third"], {"src": torch.randn(1, 3, 14)}
    assert fronts_of(model, blocks, example)["third"] == {("first", 0), ("second", 0)}
    run = BlockRun([model], blocks, example)
    run.advance("second")
    calls = _counted(model, "first.last")
    forward = Forward(model)
    with forward.listening():
        run(forward, batch)
        run.advance("third")
        for _ in range(2):
            assert torch.equal(run(forward, batch)["out"], model(**batch)["out"])
    assert run.cache.size == 2 * 3 * 5 * 14 * 4
    assert len(calls) == 1 + 2  # for the batch, and twice from the start


def test_outputs_that_only_the_caller_reads_are_not_kept() -> None:
    """What a block computes is compared, not what the model returns."""
    model, example = _Skips(tell=True).eval(), {"src": torch.randn(1, 3, 14)}
    assert list(fronts_of(model, ["first", "second", "third"], example)) == ["first", "second", "third"]


def test_a_block_that_runs_several_times_is_no_place_to_start() -> None:
    class Twice(_Skips):
        def forward(self, src: Tensor) -> Mapping[str, Any]:
            return {"out": self.third(self.second(self.second(self.first(src))))}

    model, example = Twice().eval(), {"src": torch.randn(1, 3, 14)}
    assert list(fronts_of(model, ["first", "second", "third"], example)) == ["first", "third"]


@pytest.mark.fast("bert")
@pytest.mark.parametrize(
    "family, asked", [("bert", {"keep": 0.5}), ("llama", {"keep": 0.4, "kv_heads": 1}), ("t5", {"keep": 0.5})]
)
def test_a_cut_is_the_same_with_nothing_kept(
    family: str, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, batch_of = FAMILIES[family]
    torch.manual_seed(1)
    model = sharp(0.4, make())
    data = [batch_of(IDS[i : i + 5]) for i in range(0, 40, 5)] if family == "t5" else IDS
    text = Calibration(model, data, batch_size=7)
    _same_without_cache(model, mh.plan(model, text, **asked), monkeypatch)


def test_a_cut_layer_without_heads_knows_its_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maps behind it have no attention before them in a run that starts there."""
    torch.manual_seed(1)
    model = sharp(0.4, FAMILIES["bert"][0]())
    text = Calibration(model, IDS, batch_size=7)
    plan = mh.plan(model, text, keep=1.0).edit(remove=[f"L1H{h}" for h in range(5)])
    _same_without_cache(model, plan, monkeypatch)


def _same_without_cache(model: nn.Module, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = mh.cut(model, plan)
    monkeypatch.setattr(activation_cache.ActivationCache, "put", lambda self, key, value, size, share=1.0: False)
    plain = mh.cut(copy.deepcopy(model), plan)
    for (name, a), (_, b) in zip(plain.state_dict().items(), cached.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=name)
