"""Installing heads: sizes and attributes, records and replays, what is refused and how it is said."""

from __future__ import annotations

import copy
import json
import pickle
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from multihead import position
from multihead.edit.surgery.head_order import Pack
from multihead.edit.surgery.install import arranged, install
from multihead.edit.surgery.record import Record, record_of
from multihead.edit.surgery.steps import Step, apply
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import Groups
from multihead.model.anatomy import anatomy
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy
from zoo import ZOO, model
from zoo_cut import cut_model, layers, made, outputs, shared, uneven


def kept(name: str, heads: list[int], at: int = 0) -> tuple[nn.Module, LayerAnatomy]:
    small, layer = ZOO[name].build(), layers(name)[at]
    install(small, layer, HeadWeights.of(layer).keep(heads), inputs=ZOO[name].inputs(small))
    return small, layer


# ---- closed form ------------------------------------------------------------------------------


def test_rows_and_columns_that_stay_are_the_model_s_own() -> None:
    small, layer = kept("bert", [2, 0])
    full, self_, out = model("bert"), f"{layer.path}.", layer.weights["o"].parameter
    rows = [*range(16, 24), *range(8)]
    for leaf in ("query", "key", "value"):
        assert torch.equal(
            small.get_parameter(self_ + leaf + ".weight"), full.get_parameter(self_ + leaf + ".weight")[rows]
        )
        assert torch.equal(
            small.get_parameter(self_ + leaf + ".bias"), full.get_parameter(self_ + leaf + ".bias")[rows]
        )
    assert torch.equal(small.get_parameter(out), full.get_parameter(out)[:, rows])


def test_modules_say_their_new_sizes() -> None:
    bert, layer = kept("bert", [2])
    module: Any = bert.get_submodule(layer.path)
    assert (module.num_attention_heads, module.all_head_size) == (1, 8)
    assert (module.query.in_features, module.query.out_features) == (24, 8)
    assert bert.get_submodule(layer.weights["o"].module).in_features == 8
    gpt2, layer = kept("gpt2", [0, 2])
    module = gpt2.get_submodule(layer.path)
    assert (module.num_heads, module.split_size, module.c_attn.nf, module.c_proj.nx) == (2, 16, 48, 16)
    llama, layer = kept("llama", [0, 1, 3, 4])
    module = llama.get_submodule(layer.path)
    assert (module.num_key_value_groups, module.k_proj.out_features, module.o_proj.in_features) == (2, 8, 16)
    mha, layer = kept("torch-encoder", [1])
    module = mha.get_submodule(layer.path)
    assert (module.num_heads, module.head_dim, module.embed_dim) == (1, 8, 24)
    assert isinstance(module, nn.MultiheadAttention)
    assert type(module).__name__ == "MultiheadAttention"
    ours, layer = kept("multihead", [0, 3, 4])
    module = ours.get_submodule(layer.path)
    assert (module.num_heads, module.num_kv_heads, module.kv_of_head) == (3, 2, (0, 1, 1))


@pytest.mark.parametrize("letters", ["qkv", "kv"])
def test_orders_of_packed_rows(letters: str) -> None:
    groups = Groups((0, 0, 1), 2)
    blocks = [
        piece
        for piece in (("q", 0), ("q", 1), ("q", 2), ("k", 0), ("k", 1), ("v", 0), ("v", 1))
        if piece[0] in letters
    ]
    grouped = [
        piece
        for piece in (("q", 0), ("q", 1), ("k", 0), ("v", 0), ("q", 2), ("k", 1), ("v", 1))
        if piece[0] in letters
    ]
    assert Pack("w", letters, 0, "blocks").pieces(groups) == blocks
    assert Pack("w", letters, 0, "grouped").pieces(groups) == grouped


def test_readers_of_a_kv_head_stand_side_by_side() -> None:
    own = HeadWeights.of(layers("bert")[0])
    mixed = HeadWeights(
        own.q, own.k[:2], own.v[:2], own.o, own.b_q, None, None, own.b_o, Groups((1, 0, 1), 2), (0, 1, 2), (0, 1)
    )
    new = arranged(mixed)
    assert (new.groups.kv_of_head, new.origin) == ((0, 1, 1), (1, 0, 2))
    assert torch.equal(new.q, own.q[[1, 0, 2]])
    assert torch.equal(new.o, own.o[[1, 0, 2]])
    assert arranged(new) is new


# ---- the original, the config, the record -----------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "llama", "phi3", "t5", "bloom"])
def test_the_original_and_the_config_stay_as_they_are(name: str) -> None:
    full = ZOO[name].build()
    before = copy.deepcopy(full.state_dict())
    config: Any = full.config
    said = config.to_dict()
    small: Any = copy.deepcopy(full)
    for i, layer in enumerate(layers(name)):
        install(small, layer, shared(layer, i))
    assert {k: v.shape for k, v in before.items()} == {k: v.shape for k, v in full.state_dict().items()}
    assert all(torch.equal(v, before[k]) for k, v in full.state_dict().items())
    assert config.to_dict() == said
    assert small.config.to_dict() == said
    assert record_of(full) is None


REPLAYED = ["bert", "gpt2", "gpt-neox", "bloom", "falcon-alibi", "llama", "olmo2", "stablelm-qk-norm", "gpt-oss",
            "t5", "whisper", "torch-cross", "timm", "nanogpt", "multihead"]  # fmt: skip


@pytest.mark.parametrize("name", REPLAYED)
@pytest.mark.parametrize("how", [uneven, shared])
def test_steps_replayed_on_a_skeleton_take_the_state_dict(name: str, how: Any) -> None:
    small = cut_model(name, made(name, how))
    record = record_of(small)
    assert record is not None
    steps = Record.from_json(json.loads(json.dumps(record.to_json()))).steps
    with torch.device("meta"):
        bones = ZOO[name].make()
    apply(bones, steps)
    assert {k: v.shape for k, v in bones.state_dict().items()} == {
        k: v.shape for k, v in small.state_dict().items()
    }
    fresh = ZOO[name].make().eval()
    apply(fresh, steps)
    fresh.load_state_dict(small.state_dict())
    batch = ZOO[name].inputs(small)
    assert torch.equal(outputs(fresh, batch), outputs(small, batch))
    assert torch.equal(outputs(copy.deepcopy(small), batch), outputs(small, batch))
    assert apply(small, [s for s in steps if s.do != "choose"]) == []


def test_other_numbers_change_no_structure() -> None:
    """The refit of values writes the same heads again."""
    small, layer = ZOO["llama"].build(), layers("llama")[0]
    new = HeadWeights.of(layer).keep([0, 3, 4])
    installed = install(small, layer, new)
    record = record_of(small)
    assert record is not None
    steps = list(record.steps)
    other = HeadWeights(
        new.q, new.k, new.v, 2 * new.o, None, None, None, None, new.groups, new.origin, new.kv_origin
    )
    installed.write(other)
    assert record.steps == steps == installed.steps
    assert torch.equal(small.get_parameter(layer.weights["o"].parameter)[:, :4], 2 * new.o[0])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "name", ["gpt-oss", "t5", "bloom", "stablelm-qk-norm", "olmo2", "torch-encoder", "nanogpt"]
)
def test_heads_that_changed_places_are_written_twice(name: str, in_place: bool) -> None:
    """All stay, in another order: what is per head must not change places again."""
    small = ZOO[name].build()
    batch = ZOO[name].inputs(small)
    own = anatomy(small, batch) if in_place else layers(name)
    layer = next(x for x in own if x.path == layers(name)[0].path)
    new = shared(layer, 1)
    installed = install(small, layer, new, inputs=batch)
    once = outputs(small, batch)
    installed.write(installed.weights)
    assert torch.equal(outputs(small, batch), once)
    found = next(x for x in anatomy(small, batch) if x.path == layer.path)
    assert install(small, found, HeadWeights.of(found), inputs=batch).steps == []
    assert torch.equal(outputs(small, batch), once)


CUT_AGAIN = ["bert", "mpnet", "gpt2", "gpt-neox", "bloom", "llama", "olmo2", "stablelm-qk-norm", "gpt-oss", "t5",
             "torch-encoder", "timm", "nanogpt", "multihead"]  # fmt: skip


@pytest.mark.parametrize("name", CUT_AGAIN)
def test_a_cut_model_is_cut_again(name: str) -> None:
    batch = ZOO[name].inputs(model(name))
    full = layers(name)[-1]
    staying = [h for h in range(full.num_heads) if h != 1]
    twice, _ = kept(name, staying, at=-1)
    found = next(x for x in reversed(anatomy(twice, batch)) if x.path == full.path)
    install(twice, found, HeadWeights.of(found).keep(range(1, len(staying))), inputs=batch)
    once, _ = kept(name, staying[1:], at=-1)
    torch.testing.assert_close(outputs(twice, batch), outputs(once, batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "torch-encoder"])
def test_a_cut_model_is_pickled(name: str) -> None:
    batch = ZOO[name].inputs(model(name))
    for heads in ([], [1]):
        small, _ = kept(name, heads)
        again = pickle.loads(pickle.dumps(small))
        assert torch.equal(outputs(again, batch), outputs(small, batch))


def test_the_layer_of_an_uncut_model_is_refused_by_a_cut_one() -> None:
    small, layer = kept("gpt-oss", [0, 3])
    with pytest.raises(SizeError, match=r"must have shape \(\d+.*, as when mh.anatomy found L0, got \(") as refused:
        install(small, layer, HeadWeights.of(layer).keep([0, 1]))
    assert "mh.anatomy" in str(refused.value)


# ---- kernels and gradients --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "gpt2", "opt", "llama", "qwen3", "t5", "whisper"])
@pytest.mark.parametrize("how", [uneven, shared])
def test_eager_and_sdpa_agree_also_when_chosen_later(name: str, how: Any) -> None:
    small: Any = cut_model(name, made(name, how))
    batch = ZOO[name].inputs(small)
    small.set_attn_implementation("sdpa")
    fused = outputs(small, batch)
    small.set_attn_implementation("eager")
    torch.testing.assert_close(outputs(small, batch), fused, atol=1e-5 * float(fused.abs().max()), rtol=0)
    with mh.capture(small) as heads:
        small(**batch)
    assert len(heads)
    assert small.config._attn_implementation == "eager"
    torch.testing.assert_close(outputs(small, batch), fused, atol=1e-5 * float(fused.abs().max()), rtol=0)


def test_maps_of_shared_heads_can_be_asked_for() -> None:
    small: Any = cut_model("bert", made("bert", shared))
    small.set_attn_implementation("eager")
    maps = small(**ZOO["bert"].inputs(small), output_attentions=True).attentions
    assert [x.shape[1] for x in maps] == [3, 3]


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt-neox", "llama", "t5", "torch-encoder", "timm"])
def test_gradients_reach_every_weight(name: str) -> None:
    small = cut_model(name, made(name, shared)).train()
    out = small(**ZOO[name].inputs(small))
    (out if isinstance(out, Tensor) else out.logits).square().sum().backward()
    for layer in layers(name):
        for parameter in layer.parameters:
            gradient = small.get_parameter(parameter).grad
            assert gradient is not None
            assert float(gradient.abs().max()) > 0


def test_the_fast_path_of_torch_is_left_alone() -> None:
    """nn.TransformerEncoderLayer would read our weights as if all heads were there."""
    small, _ = kept("torch-encoder-fast", [0, 2])
    batch = ZOO["torch-encoder-fast"].inputs(small)
    with torch.no_grad():
        fast = small(**batch)
    torch.testing.assert_close(fast, small(**batch).detach())


@pytest.mark.parametrize("learned", [False, True])
def test_a_bias_of_our_own_layer_goes_with_its_head(learned: bool) -> None:
    """Also where two layers share one."""
    alibi = position.ALiBi(4, learned=learned)
    stack = nn.Sequential(*(mh.MultiHeadAttention(20, 4, position=alibi) for _ in range(2))).eval()
    x = torch.randn(2, 7, 20)
    layer = anatomy(stack, x)[0]
    small = copy.deepcopy(stack)
    install(small, layer, HeadWeights.of(layer).keep([1, 3]))
    with mh.ablate(stack, ["L0H0", "L0H2"]):
        expected = stack(x)
    torch.testing.assert_close(small(x), expected)


@pytest.mark.parametrize("name", ["falcon-grouped", "phi3"])
def test_a_config_that_says_eager(name: str) -> None:
    """Falcon asks its config itself; Phi-3 has a view of its own of the config."""
    small: Any = cut_model(name, made(name, uneven))
    batch = ZOO[name].inputs(small)
    fused = outputs(small, batch)
    small.config._attn_implementation = "eager"
    assert small.get_submodule(layers(name)[0].path).config._attn_implementation == "eager"
    torch.testing.assert_close(outputs(small, batch), fused, atol=1e-5 * float(fused.abs().max()), rtol=0)


# ---- what is refused --------------------------------------------------------------------------


def test_quantised_weights_are_refused() -> None:
    quantization = import_module("torchao.quantization")
    small, layer = ZOO["llama"].build(), layers("llama")[0]
    quantization.quantize_(small, quantization.Int8WeightOnlyConfig())
    with pytest.raises(TypeMismatchError, match=r"self_attn\): .*weight is a .* rows cannot be cut") as refused:
        install(small, layer, HeadWeights.of(layer).keep([0, 3]))
    assert "before it is quantised" in str(refused.value)


def test_integers_are_refused() -> None:
    small, layer = ZOO["bert"].build(), layers("bert")[0]
    linear: Any = small.get_submodule(layer.weights["q"].module)
    linear.weight = nn.Parameter(linear.weight.detach().round().to(torch.int8), requires_grad=False)
    with pytest.raises(TypeMismatchError, match=r"query.weight is a Parameter of torch.int8"):
        install(small, layer, HeadWeights.of(layer).keep([0]))


def test_adapters_are_refused() -> None:
    peft = import_module("peft")
    small, layer = ZOO["bert"].build(), layers("bert")[0]
    wrapped = peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["query", "value"], r=3), small)
    with pytest.raises(MultiheadError, match=r"has .*query.base_layer.bias instead of .*query.bias") as refused:
        install(wrapped, layer, HeadWeights.of(layer).keep([0]))
    assert "merge" in str(refused.value)


def test_weights_of_two_layers_are_refused() -> None:
    tied: Any = ZOO["bert"].build()
    first, second = (layer.path for layer in layers("bert"))
    tied.get_submodule(second).query.weight = tied.get_submodule(first).query.weight
    layer = layers("bert")[0]
    with pytest.raises(MultiheadError, match=rf"query.weight is also {second}.query.weight"):
        install(tied, layer, HeadWeights.of(layer).keep([0]))


def test_another_model_is_refused() -> None:
    layer = layers("bert")[0]
    with pytest.raises(MultiheadError, match=r"LlamaForCausalLM has no parameter bert.*, which L0 .* is made of"):
        install(ZOO["llama"].build(), layer, HeadWeights.of(layer).keep([0]))


def test_heads_of_another_size_are_refused() -> None:
    layer = layers("bert")[0]
    other = HeadWeights.of(layers("llama")[0])
    with pytest.raises(SizeError, match=r"must have sizes \(8, 8\) of keys and values, got \(4, 4\)"):
        install(ZOO["bert"].build(), layer, other)


def test_a_bias_that_has_no_place_is_refused() -> None:
    layer = layers("llama")[0]
    own = HeadWeights.of(layer)
    with pytest.raises(SizeError, match=r"a bias of o was given, the layer has none"):
        install(ZOO["llama"].build(), layer, HeadWeights(
            own.q, own.k, own.v, own.o, None, None, None, torch.ones(36), own.groups, own.origin, own.kv_origin
        ))  # fmt: skip


def test_a_forward_put_beside_the_class_is_refused() -> None:
    """As accelerate does to models that it spreads over devices: the class could then change without effect."""
    small: Any = ZOO["olmo2"].build()
    norm = small.model.layers[0].self_attn.q_norm
    norm.forward = norm.forward
    layer = layers("olmo2")[0]
    with pytest.raises(MultiheadError, match=r"this Olmo2RMSNorm has its own forward"):
        install(small, layer, HeadWeights.of(layer).keep([0, 3]))


class Stubborn(nn.Module):
    """Its number of heads is in its code."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (linear(x).view(*x.shape[:2], 3, 4).transpose(1, 2) for linear in (self.q, self.k, self.v))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_code_that_takes_no_other_heads_is_refused_and_left_as_it_was() -> None:
    block, x = Stubborn().eval(), torch.randn(2, 5, 12)
    layer, before = anatomy(block, x)[0], block(x)
    with pytest.raises(
        MultiheadError, match=r"Stubborn does not take 2 heads on 2 kv heads instead of 3 on 3; tried"
    ):
        install(block, layer, HeadWeights.of(layer).keep([0, 2]), inputs=x)
    assert torch.equal(block(x), before)
    assert record_of(block) is None
    install(block, layer, shared(layer, 0), inputs=x)  # as many heads, fewer keys: by copies
    assert block.k.weight.shape == (8, 12)


def test_an_attention_that_is_the_model_is_named_and_other_modules_code_is_not_tried() -> None:
    block, x = Stubborn().eval(), torch.randn(2, 5, 12)
    layer = anatomy(block, x)[0]
    with pytest.raises(MultiheadError, match=r"^L0 \(the model itself\): the code of Stubborn") as refused:
        install(block, layer, HeadWeights.of(layer).keep([0, 2]), inputs=x)
    assert "split_with_sizes" not in str(refused.value), "the code of timm has one projection for q, k and v"


def test_steps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MultiheadError, match=r"unknown step 'melt' at 0"):
        apply(nn.Sequential(nn.Linear(2, 2)), [Step("melt", "0", "weight", None)])
    with pytest.raises(MultiheadError, match=r"Sequential has no module '7', in which weight was to resize"):
        apply(nn.Sequential(nn.Linear(2, 2)), [Step("resize", "7", "weight", [1, 2])])
    with pytest.raises(SizeError, match=r"Linear.weight has shape \(2, 2\) and was to get \(2,\)"):
        apply(nn.Sequential(nn.Linear(2, 2)), [Step("resize", "0", "weight", [2])])
    with pytest.raises(MultiheadError, match=r"unknown patch 'egg'"):
        apply(nn.Sequential(nn.Linear(2, 2)), [Step("patch", "0", "egg", {})])
    with pytest.raises(MultiheadError, match=r"a step must be .* got \{'do': 'set'\}"):
        Step.from_json({"do": "set"})
