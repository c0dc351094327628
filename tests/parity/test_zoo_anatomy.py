"""Every family: the heads are found, by row and by the finder alike, and the views are the model's own weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from multihead.model.anatomy import anatomy
from multihead.model.call import Call, Compute
from multihead.model.families import ROWS
from multihead.model.intercept import intercept
from multihead.model.layer_anatomy import Anatomy, LayerAnatomy
from zoo import COVERING, ZOO, Entry, model

MADE_UP_INPUTS = ("bert", "llama", "t5", "whisper", "vit", "siglip", "torch-encoder", "torch-transformer")
BY_FINDER_ONLY = {"timm", "nanogpt"}  # layouts of no class that we know

pytestmark = pytest.mark.fast(*COVERING)


def layouts(name: str) -> set[tuple[str, str]]:
    """(weight layout, position scheme) of an architecture; a layout that no class is known for has its own name."""
    rows = {kind: row for row in ROWS for kind in row.classes.split()}
    classes = {type(m).__name__ for m in model(name).modules()} & set(rows)
    position = next((tag for tag in ("rotary", "bias") if tag in ZOO[name].tags), "absolute")
    return {(layout.name, position) for kind in classes for layout in rows[kind].layouts} or {(name, position)}


def test_the_fast_tier_covers_every_layout_and_position() -> None:
    assert {pair for name in ZOO for pair in layouts(name)} == {pair for name in COVERING for pair in layouts(name)}
    assert {tag for entry in ZOO.values() for tag in entry.tags} == {t for name in COVERING for t in ZOO[name].tags}


@pytest.fixture(scope="module", params=list(ZOO))
def entry(request: pytest.FixtureRequest) -> Entry:
    """Of module scope, so that the tests of one entry stand together and share what was found."""
    return ZOO[request.param]


@cache
def found(name: str, families: bool = True) -> Anatomy:
    """By row on a padded batch, where there is one, and by the finder on a plain one."""
    entry = ZOO[name]
    plain, padded = entry.inputs(model(name)), entry.padded(model(name))
    return anatomy(model(name), padded if families and padded is not None else plain, families=families)


def kernel_inputs(entry: Entry, of: torch.nn.Module) -> dict[tuple[str, int], Call]:
    """{(path, turn): the call} of one plain run."""
    calls: dict[tuple[str, int], Call] = {}

    def listen(call: Call, run: Compute) -> Tensor:
        calls[call.key] = call
        return run()

    with torch.no_grad(), intercept(of, listen):
        of(**entry.inputs(of))
    return calls


def test_logits_of_the_zoo_are_spread(entry: Entry) -> None:
    """Else a test on it would pass with the wrong scale or without a rotation."""
    for call in kernel_inputs(entry, model(entry.name)).values():
        p = call.problem
        logits = p.q @ p.groups.expand(p.k).mT * p.scores.scale
        assert logits.std() > 0.9, call.path


def test_heads_are_as_written_by_hand(entry: Entry) -> None:
    layers = found(entry.name)
    expected: Counter[tuple[int, int, int, int, bool]] = Counter()
    for s in entry.stacks:
        expected[s.heads, s.kv_heads, s.head_dim, s.head_dim, s.cross] += s.sites * s.turns
    assert Counter((x.num_heads, x.num_kv_heads, x.key_dim, x.value_dim, x.site.cross) for x in layers) == expected
    assert len({x.path for x in layers}) == entry.sites
    assert len({x.name for x in layers}) == len(layers)


def test_row_and_finder_agree_and_padding_changes_nothing(entry: Entry) -> None:
    by_row, by_finder = found(entry.name), found(entry.name, families=False)
    assert {x.found_by for x in by_row} == {"finder" if entry.name in BY_FINDER_ONLY else "row"}
    assert {x.found_by for x in by_finder} == {"finder"}
    assert [x.storage for x in by_row] == [x.storage for x in by_finder]


def test_numbers_are_proven_well_within_the_tolerance(entry: Entry) -> None:
    for layer in (*found(entry.name), *found(entry.name, families=False)):
        assert max(vars(layer.proof).values()) < 1e-5


def views(layer: LayerAnatomy) -> list[Tensor]:
    biases = [b for part in (layer.b_Q, layer.b_K, layer.b_V) if part is not None for b in part]
    return [*layer.W_Q, *layer.W_K, *layer.W_V, *layer.W_O, *biases, *([] if layer.b_O is None else [layer.b_O])]


def test_views_are_the_parameters_memory(entry: Entry) -> None:
    storages = {p.untyped_storage().data_ptr() for p in model(entry.name).parameters()}
    for layer in found(entry.name):
        assert all(v.untyped_storage().data_ptr() in storages for v in views(layer))
        widths = {w.shape[1] for w in layer.W_Q}
        assert len(widths) == 1
        assert all(w.shape == (layer.key_dim, *widths) for w in layer.W_Q)
        assert all(w.shape[0] == layer.key_dim for w in layer.W_K)
        assert all(w.shape[0] == layer.value_dim for w in layer.W_V)
        assert all(w.shape[1] == layer.value_dim for w in layer.W_O)


def test_views_cover_each_weight_once(entry: Entry) -> None:
    """No row is two heads', and none of q, k, v is left over."""
    for layer in found(entry.name):
        taken: dict[str, list[int]] = {}
        for part in layer.weights.values():
            taken.setdefault(part.parameter, []).extend(i for s in part.heads for i in s.indices())
        for name, indices in taken.items():
            axis = next(part.axis for part in layer.weights.values() if part.parameter == name)
            assert sorted(indices) == list(range(layer.parameters[name].shape[axis])), name


def of_copy(layer: LayerAnatomy, changed: torch.nn.Module) -> LayerAnatomy:
    """The same layer of another copy of the model."""
    return replace(layer, parameters={name: changed.get_parameter(name) for name in layer.parameters})


def test_a_write_through_a_view_moves_that_head_only(entry: Entry) -> None:
    changed = entry.build()
    layer = of_copy(found(entry.name)[0], changed)
    weights = {"q": (layer.W_Q, layer.b_Q), "k": (layer.W_K, layer.b_K), "v": (layer.W_V, layer.b_V)}
    last = {letter: len(heads) - 1 for letter, (heads, _) in weights.items()}
    before = kernel_inputs(entry, changed)[layer.path, 0].problem
    with torch.no_grad():
        for letter, (heads, biases) in weights.items():
            heads[last[letter]].mul_(-1.5)
            if biases is not None:
                biases[last[letter]].mul_(-1.5)
    after = kernel_inputs(entry, changed)[layer.path, 0].problem
    for letter, head in last.items():
        was, got = getattr(before, letter), getattr(after, letter)
        only_last = [h == head for h in range(head + 1)]
        if entry.name == "olmo2" and letter in "qk":
            # One norm over all heads: they all move, and only this one changes its direction.
            turned = torch.cosine_similarity(was.flatten(2), got.flatten(2), dim=-1).mean(0)
            assert (turned < 0).tolist() == only_last
            continue
        assert ((got - was).abs() > 1e-4).any(-1).any(-1).any(0).tolist() == only_last, letter
    torch.testing.assert_close(after.v[:, last["v"]], before.v[:, last["v"]] * -1.5)  # nothing lies between


def test_zeroing_w_o_of_a_head_is_silencing_it(entry: Entry) -> None:
    """Against the head's own output set to zero before W_O, in a run of the whole model."""
    changed = entry.build()
    layer = of_copy(found(entry.name)[-1], changed)

    def ablate(call: Call, run: Compute) -> Tensor:
        heads = run().clone()
        if call.path == layer.path:
            heads[:, 1] = 0.0
        return heads

    with torch.no_grad():
        untouched = first_tensor(changed(**entry.inputs(changed)))
        with intercept(changed, ablate):
            ablated = first_tensor(changed(**entry.inputs(changed)))
        layer.W_O[1].zero_()
        zeroed = first_tensor(changed(**entry.inputs(changed)))
    torch.testing.assert_close(zeroed, ablated, rtol=1e-4, atol=1e-4)
    assert (untouched - ablated).abs().max() > 1e-3


def first_tensor(out: object) -> Tensor:
    if isinstance(out, Tensor):
        return out
    for name in ("logits", "last_hidden_state", "logits_per_image"):
        x = getattr(out, name, None)
        if x is not None:
            return x
    raise AssertionError(type(out))


@pytest.mark.parametrize("name", MADE_UP_INPUTS)
def test_inputs_are_made_up_where_none_are_given(name: str) -> None:
    assert [x.storage for x in anatomy(model(name))] == [x.storage for x in found(name)]


def test_norms_and_sinks_are_named() -> None:
    qwen = found("qwen3")[1]
    assert qwen.between["q"] == ("model.layers.1.self_attn.q_norm.weight",)
    assert qwen.between["v"] == ()
    assert found("gpt-oss")[0].sinks == "model.layers.0.self_attn.sinks"
    assert found("llama")[0].sinks is None
    assert len(found("stablelm-qk-norm")[0].between["q"]) == 6  # a norm for every head


def test_grouped_packing_goes_kv_head_by_kv_head() -> None:
    """Falcon: (kv_head, group + 2, dim): three query heads, their key, their value, then the next group."""
    layer = found("falcon-grouped")[0]
    starts = {x: [s.start // 4 for s in layer.weights[x].heads] for x in "qkv"}
    assert starts == {"q": [0, 1, 2, 5, 6, 7], "k": [3, 8], "v": [4, 9]}
    assert layer.groups.kv_of_head == (0, 0, 0, 1, 1, 1)
    for name in ("gpt-neox", "bloom", "falcon-alibi"):  # (head, 3, dim)
        starts = {x: [s.start // 8 for s in found(name)[0].weights[x].heads] for x in "qkv"}
        assert starts == {"q": [0, 3, 6], "k": [1, 4, 7], "v": [2, 5, 8]}, name


def test_conv1d_is_turned_round() -> None:
    layer, gpt2 = found("gpt2")[0], model("gpt2")
    weight = gpt2.get_parameter("transformer.h.0.attn.c_attn.weight")  # (in, out)
    assert torch.equal(layer.W_K[1], weight[:, 24 + 8 : 24 + 16].T)
    assert layer.weights["k"].axis == 1
    assert torch.equal(layer.W_O[2], gpt2.get_parameter("transformer.h.0.attn.c_proj.weight")[16:24].T)


def test_torchs_one_bias_for_three_weights() -> None:
    layer, cross = found("torch-cross")[0], model("torch-cross")
    assert [s.start for s in layer.weights["k"].heads] == [0, 8, 16]
    assert [s.start for s in layer.weights["k"].bias_heads] == [24, 32, 40]
    assert layer.W_K[0].shape == (8, 13)
    assert layer.W_V[0].shape == (8, 17)
    assert layer.b_V is not None
    assert torch.equal(layer.b_V[2], cross.get_parameter("mha.in_proj_bias")[64:72])
