"""Weights in other layouts: there and back bit for bit, recognised by their keys, refused where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead import interop, mask, position
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import QKNorm, Sinks, dropin, init
from multihead.layer._layouts import LAYOUTS, linears

BATCH, HEADS, KV, DIM, TOKENS, KEYS, WIDTH = 3, 6, 2, 5, 7, 11, 31


@pytest.fixture(autouse=True)
def _double(fp64: None) -> None:
    """Every test of this file is in float64."""


def _layer(**options: Any) -> mh.MultiHeadAttention:
    attn = mh.MultiHeadAttention(WIDTH, HEADS, **({"head_dim": DIM} | options), init=init.XavierPerHead(3.0))
    for name, p in attn.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(p)
    return attn


# ---- every layout, there and back -------------------------------------------------------------

VARIANTS: dict[str, dict[str, Any]] = {
    "multi-head": {},
    "grouped": {"num_kv_heads": KV},
    "multi-query": {"num_kv_heads": 1},
    "no bias": {"num_kv_heads": KV, "bias": False},
    "other widths": {"d_key": 13, "d_value": 17, "d_out": 19},
}


# One matrix for q, k and v has one input width.
CASES = [(name, v) for name, row in LAYOUTS.items() for v in VARIANTS if v != "other widths" or "k" in row.weights]


@pytest.mark.parametrize("name, variant", CASES)
def test_there_and_back_is_bit_equal(name: str, variant: str) -> None:
    options = VARIANTS[variant]
    attn = _layer(**options)
    state = interop.to_state_dict(attn, name, prefix="a.b.")
    kv_heads = options.get("num_kv_heads", HEADS)
    read = interop.from_state_dict(state | {"a.c": torch.zeros(1)}, num_heads=HEADS, layout=name, prefix="a.b.")
    assert (read.num_kv_heads, read.head_dim, read.value_dim) == (kv_heads, DIM, DIM)
    want, got = attn.state_dict(), read.state_dict()
    assert list(got) == list(want)
    assert all(torch.equal(got[key], want[key]) for key in want)
    again = interop.to_state_dict(read, name, prefix="a.b.")
    assert all(torch.equal(again[key], state[key]) for key in state)
    assert all(x.is_contiguous() for x in state.values())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_recognised_by_its_keys(name: str, bias: bool) -> None:
    state = interop.to_state_dict(_layer(num_kv_heads=KV, bias=bias), name)
    assert interop.recognise(state).name == name
    read = interop.from_state_dict(state, num_heads=HEADS)
    assert read.num_kv_heads == KV


@given(
    kv_heads=st.sampled_from([1, 2, 3, 6]),
    value_dim=st.sampled_from([None, 3, 7]),
    bias=st.sampled_from([True, False, "qkv", "o"]),
    name=st.sampled_from(sorted(LAYOUTS)),
    order=st.sampled_from(["consecutive", "modulo"]),
)
def test_drawn_there_and_back(
    kv_heads: int, value_dim: int | None, bias: bool | str, name: str, order: Any
) -> None:
    grouped = LAYOUTS[name].packing == "grouped"
    if grouped and (value_dim is not None or order == "modulo"):
        return
    attn = _layer(num_kv_heads=kv_heads, value_dim=value_dim, bias=bias)
    state = interop.to_state_dict(attn, name, order=order)
    sizes = {"num_heads": HEADS, "num_kv_heads": kv_heads, "head_dim": DIM}
    read = interop.from_state_dict(state, layout=name, order=order, **sizes)
    want, got = attn.state_dict(), read.state_dict()
    assert list(got) == list(want)
    assert all(torch.equal(got[key], want[key]) for key in want)


def test_our_own_layout_is_our_own_state_dict() -> None:
    options: dict[str, Any] = {
        "num_kv_heads": KV, "qk_norm": QKNorm(), "sinks": Sinks(1.5), "position": position.RelativeBias(HEADS)
    }  # fmt: skip
    attn = _layer(**options)
    state = interop.to_state_dict(attn)
    assert set(state) == set(attn.state_dict())
    assert all(torch.equal(state[key], x) for key, x in attn.state_dict().items())
    options["position"] = position.RelativeBias(HEADS)
    read = interop.from_state_dict(state, num_heads=HEADS, **options)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    assert_close(read(x, mask=mask.causal()), attn(x, mask=mask.causal()))


def test_copies_share_no_memory_and_spend_no_random_numbers() -> None:
    attn = _layer()
    random = torch.get_rng_state()
    for name in ("split", "grouped"):
        state = interop.to_state_dict(attn, name)
        read = interop.from_state_dict(state, num_heads=HEADS)
        owners = [*attn.parameters(), *state.values(), *read.parameters()]
        assert len({x.untyped_storage().data_ptr() for x in owners}) == len(owners)
    assert torch.equal(torch.get_rng_state(), random)
    read.reset_parameters()  # draws as a fresh layer does
    assert not torch.equal(read.q_proj.weight, attn.q_proj.weight)


# ---- what the rows of each packing are --------------------------------------------------------


def _numbered() -> dict[str, Tensor]:
    """W_Q, W_K, W_V of 4 query heads on 2 kv heads, size 1: rows are 1.. , 10.., 100.. ."""
    rows = {"q": [1, 2, 3, 4], "k": [10, 20], "v": [100, 200]}
    state = {f"{x}_proj.weight": torch.tensor(r)[:, None].double() for x, r in rows.items()}
    return state | {"o_proj.weight": torch.tensor([[1.0, 2.0, 3.0, 4.0]]).double()}


@pytest.mark.parametrize(
    "name, rows",
    [
        ("torch", [1, 2, 3, 4, 10, 20, 100, 200]),  # (H + kv + kv) blocks
        ("packed-qkv_proj", [1, 2, 3, 4, 10, 20, 100, 200]),
        ("grouped", [1, 2, 10, 100, 3, 4, 20, 200]),  # (kv_head, group + 2): heads 0, 1 read kv head 0
    ],
)
def test_order_of_packed_rows(name: str, rows: list[int]) -> None:
    attn = interop.from_state_dict(_numbered(), num_heads=4)
    packed = interop.to_state_dict(attn, name)[LAYOUTS[name].weights["qkv"]]
    assert packed.flatten().tolist() == rows


def test_interleaved_per_head_where_each_head_has_its_own() -> None:
    rows = torch.arange(12.0).view(12, 1)  # (head, 3, dim) of 2 heads, size 2
    state = {"query_key_value.weight": rows, "dense.weight": torch.ones(1, 4)}
    attn = interop.from_state_dict(state, num_heads=2)
    assert attn.q_proj.weight.flatten().tolist() == [0, 1, 6, 7]
    assert attn.k_proj.weight.flatten().tolist() == [2, 3, 8, 9]
    assert attn.v_proj.weight.flatten().tolist() == [4, 5, 10, 11]


def test_modulo_sorts_the_query_heads() -> None:
    # Written so that head h reads kv head h % 2: heads 0 and 2 belong together, 1 and 3 do.
    attn = interop.from_state_dict(_numbered(), num_heads=4, order="modulo")
    assert attn.q_proj.weight.flatten().tolist() == [1, 3, 2, 4]
    assert attn.o_proj.weight.flatten().tolist() == [1, 3, 2, 4]
    assert attn.k_proj.weight.flatten().tolist() == [10, 20]
    back = interop.to_state_dict(attn, order="modulo")
    assert all(torch.equal(back[key], x) for key, x in _numbered().items())


def test_modulo_computes_what_the_map_says() -> None:
    attn = _layer(kv_of_head=[h % KV for h in range(HEADS)])
    read = interop.from_state_dict(attn.state_dict(), num_heads=HEADS, order="modulo")
    x = torch.randn(BATCH, TOKENS, WIDTH)
    assert_close(read(x), attn(x))


def test_modulo_refuses_what_belongs_to_single_heads() -> None:
    for options in ({"sinks": Sinks()}, {"position": position.ALiBi(HEADS)}):
        attn = _layer(num_kv_heads=KV, **options)
        with pytest.raises(SizeError, match=f"query heads, and {next(iter(options))}"):
            interop.to_state_dict(attn, order="modulo")
        assert interop.to_state_dict(_layer(num_kv_heads=1, **options), order="modulo")  # moves nothing
    with pytest.raises(SizeError, match=r"order='modulo' .*layout 'grouped'"):
        interop.to_state_dict(_layer(num_kv_heads=KV), "grouped", order="modulo")


def test_uneven_groups_travel_with_their_map() -> None:
    kv_of_head = [0, 0, 0, 1, 1, 0]
    attn = _layer(kv_of_head=kv_of_head)
    for name in ("split", "packed-qkv_proj"):
        read = interop.from_state_dict(interop.to_state_dict(attn, name), num_heads=HEADS, kv_of_head=kv_of_head)
        x = torch.randn(BATCH, TOKENS, WIDTH)
        assert_close(read(x), attn(x))
    with pytest.raises(SizeError, match=r"kv_of_head=\[0, 0, 0, 1, 1, 0\]"):
        interop.to_state_dict(attn, "grouped")


def test_zero_heads() -> None:
    attn = mh.MultiHeadAttention(WIDTH, 0, head_dim=DIM)
    read = interop.from_state_dict(interop.to_state_dict(attn), num_heads=0, head_dim=DIM)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    assert_close(read(x), attn(x))


def test_a_layout_of_your_own() -> None:
    mine = linears("mine", {"qkv": "fused", "o": "back"}, packing="grouped")
    attn = _layer(num_kv_heads=KV)
    state = interop.to_state_dict(attn, mine)
    assert set(state) == {"fused.weight", "fused.bias", "back.weight", "back.bias"}
    read = interop.from_state_dict(state, num_heads=HEADS, layout=mine)
    assert torch.equal(read.k_proj.weight, attn.k_proj.weight)
    blocks = interop.to_state_dict(attn, replace(mine, packing="blocks"))
    assert not torch.equal(blocks["fused.weight"], state["fused.weight"])


def test_dtype_is_kept() -> None:
    attn = _layer().to(torch.bfloat16)
    read = interop.from_state_dict(interop.to_state_dict(attn, "conv1d"), num_heads=HEADS)
    assert read.q_proj.weight.dtype == torch.bfloat16


# ---- torch ------------------------------------------------------------------------------------


def test_methods_and_functions_are_the_same() -> None:
    theirs = nn.MultiheadAttention(WIDTH - 1, HEADS)
    for attn in (mh.MultiHeadAttention.from_torch(theirs), interop.from_torch(theirs)):
        for back in (attn.to_torch(), interop.to_torch(attn)):
            assert torch.equal(back.in_proj_weight, theirs.in_proj_weight)
            assert back.batch_first == theirs.batch_first
    assert interop.from_torch(dropin.MultiheadAttention(WIDTH - 1, HEADS)).num_heads == HEADS


class _Layer(mh.MultiHeadAttention):
    """A layer of a user."""


def test_from_torch_of_a_subclass_returns_the_subclass() -> None:
    theirs = nn.MultiheadAttention(WIDTH - 1, HEADS)
    attn = _Layer.from_torch(theirs)
    assert type(attn) is _Layer
    assert torch.equal(attn.to_torch().in_proj_weight, theirs.in_proj_weight)
    assert type(interop.from_torch(theirs)) is mh.MultiHeadAttention


def test_torch_learned_key_is_refused() -> None:
    with pytest.raises(SizeError, match=r"got add_bias_kv=True") as caught:
        interop.from_torch(nn.MultiheadAttention(WIDTH - 1, HEADS, add_bias_kv=True))
    assert "dropin" in str(caught.value.hint)


def test_torch_zero_key_is_a_sink_that_does_not_train() -> None:
    theirs = nn.MultiheadAttention(WIDTH - 1, HEADS, add_zero_attn=True)
    attn = interop.from_torch(theirs)
    assert attn.sink_logits is not None
    assert not attn.sink_logits.requires_grad
    assert attn.to_torch().add_zero_attn


@pytest.mark.parametrize(
    "options, words",
    [
        ({"num_kv_heads": 2}, ["kv_of_head=[0, 0, 0, 1, 1, 1]", "6 heads on 2 kv heads"]),
        ({"head_dim": 7}, ["head_dim=7", "30/6"]),
        ({"value_dim": 7}, ["value_dim=7", "30/6"]),
        ({"d_out": 29}, ["d_out=29", "d_model=30"]),
        ({"bias": "qkv"}, ["bias on qkv only"]),
        ({"position": position.ALiBi(HEADS)}, ["position=ALiBi"]),
        ({"qk_norm": QKNorm()}, ["qk_norm=QKNorm"]),
        ({"scale": 1.0}, ["scale=1, not 0.447214"]),
        ({"softcap": 30.0}, ["softcap=30.0"]),
        ({"sinks": Sinks(0.5)}, ["sinks whose logits are not 0"]),
        ({"softcap": 30.0, "scale": 1.0}, ["scale=1, not 0.447214", "softcap=30.0"]),
    ],
)
def test_what_torch_cannot_hold(options: dict[str, Any], words: list[str]) -> None:
    attn = mh.MultiHeadAttention(30, HEADS, **options)
    with pytest.raises(SizeError, match="cannot hold this layer") as caught:
        interop.to_torch(attn)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_batch_first_can_be_chosen() -> None:
    attn = mh.MultiHeadAttention(30, HEADS)
    assert attn.to_torch().batch_first
    assert not attn.to_torch(batch_first=False).batch_first
    assert not interop.to_torch(attn, batch_first=False).batch_first


# ---- bad input --------------------------------------------------------------------------------


def _said(error: type[MultiheadError], words: list[str], call: Any) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.hint


def _read(name: str = "split", options: dict[str, Any] | None = None, **given: Any) -> mh.MultiHeadAttention:
    state = interop.to_state_dict(_layer(num_kv_heads=KV, **(options or {})), name)
    return interop.from_state_dict(state, **({"num_heads": HEADS} | given))


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("split", {"num_heads": 7}, ["num_heads=7", "30 columns", "o_proj.weight"]),
        ("split", {"head_dim": 6}, ["30 rows", "num_heads=6", "head_dim=6"]),
        ("split", {"num_kv_heads": 3}, ["k_proj.weight", "10 rows", "num_kv_heads=3"]),
        ("grouped", {"num_kv_heads": 6}, ["query_key_value.weight", "50 rows", "num_kv_heads=6"]),
        ("torch", {"num_heads": 5}, ["in_proj_weight", "50 rows", "num_heads=5", "key size 6"]),
        ("split", {"layout": "nope"}, ["layout 'nope'", "split-out_proj"]),
        ("split", {"layout": "torch"}, ["'torch' needs in_proj_weight", "q_proj.weight"]),
        ("split", {"prefix": "model."}, ["no layout", "'model.'", "nothing", "prefix="]),
        ("split", {"num_heads": 0}, ["num_heads=0", "head_dim"]),
        ("split", {"order": "backwards"}, ["order", "'backwards'", "'modulo'"]),
    ],
)
def test_sizes_and_names_that_do_not_fit(name: str, given: dict[str, Any], words: list[str]) -> None:
    _said(SizeError, words, lambda: _read(name, **given))


def test_unknown_keys_are_listed_with_the_known_layouts() -> None:
    state = {"query_weights": torch.zeros(2, 2), "key_weights": torch.zeros(2, 2)}
    _said(
        SizeError,
        ["key_weights, query_weights", "grouped: query_key_value.weight, dense.weight"],
        lambda: interop.from_state_dict(state, num_heads=1),
    )


def test_two_layouts_at_once_are_ambiguous() -> None:
    attn = _layer(num_kv_heads=KV)
    both = interop.to_state_dict(attn) | interop.to_state_dict(attn, "grouped")
    _said(SizeError, ["split, grouped", "layout="], lambda: interop.from_state_dict(both, num_heads=HEADS))
    read = interop.from_state_dict(both, num_heads=HEADS, layout="grouped", strict=False)
    assert torch.equal(read.q_proj.weight, attn.q_proj.weight)


def test_what_would_be_dropped_is_said() -> None:
    options = {"qk_norm": QKNorm()}
    _said(SizeError, ["q_norm.weight", "qk_norm=", "strict=False"], lambda: _read(options=options))
    _said(SizeError, ["missing keys: ['q_norm.weight', 'k_norm.weight']"], lambda: _read(qk_norm=QKNorm()))
    assert _read(options=options, strict=False).q_norm is None
    assert _read(options=options, qk_norm=QKNorm()).q_norm is not None


def test_packing_needs_one_width_and_all_biases() -> None:
    _said(
        SizeError,
        ["in_proj_bias", "'q_proj.bias': (30,)", "zeros"],
        lambda: interop.to_state_dict(_layer(bias="q"), "torch"),
    )
    _said(
        SizeError, ["c_attn.weight", "(30, 31)", "(30, 13)"],
        lambda: interop.to_state_dict(_layer(d_key=13), "conv1d"),
    )  # fmt: skip
    _said(SizeError, ["key size 5", "value size 7"], lambda: interop.to_state_dict(_layer(value_dim=7), "grouped"))


def test_dtypes_do_not_mix() -> None:
    state = interop.to_state_dict(_layer())
    state["k_proj.bias"] = state["k_proj.bias"].float()
    _said(
        TypeMismatchError, ["'k_proj.bias' as torch.float32", "torch.float64"],
        lambda: interop.from_state_dict(state, num_heads=HEADS),
    )  # fmt: skip
    whole = {key: x.long() for key, x in state.items()}
    _said(TypeMismatchError, ["torch.int64"], lambda: interop.from_state_dict(whole, num_heads=HEADS))


def test_an_adapter_is_not_lost_in_silence() -> None:
    attn: Any = _layer()
    attn.v_proj = nn.Sequential(attn.v_proj)
    _said(TypeMismatchError, ["v_proj", "got Sequential", "merge"], lambda: interop.to_state_dict(attn))


@pytest.mark.parametrize("wrong", [None, [], [("q_proj.weight", torch.zeros(2, 2))], nn.Linear(2, 2), "model.pt"])
def test_states_that_are_not_a_state_dict(wrong: Any) -> None:
    words = ["state must be a dict of tensors", "got ", "from_module"]
    _said(TypeMismatchError, words, lambda: interop.from_state_dict(wrong, num_heads=HEADS))


def test_states_without_tensors() -> None:
    state: dict[str, Any] = {"state_dict": interop.to_state_dict(_layer())}
    words = ["state['state_dict'] must be a tensor, got the dict"]
    _said(TypeMismatchError, words, lambda: interop.from_state_dict(state, num_heads=HEADS))
    extra: dict[str, Any] = state["state_dict"] | {"_extra_state": None}
    assert interop.from_state_dict(extra, num_heads=HEADS, strict=False).num_heads == HEADS
    _said(SizeError, ["no layout", "nothing"], lambda: interop.from_state_dict({}, num_heads=HEADS))


@pytest.mark.parametrize("name", ["num_heads", "num_kv_heads", "head_dim"])
@pytest.mark.parametrize("wrong", ["6", 6.0, True, [6]])
def test_counts_that_are_not_integers(name: str, wrong: Any) -> None:
    with pytest.raises(TypeMismatchError, match=f"{name} must be an integer, got "):
        _read(**{name: wrong})


def test_other_arguments_of_the_wrong_kind() -> None:
    _said(TypeMismatchError, ["prefix must be a string, got None"], lambda: _read(prefix=None))
    _said(SizeError, ["layout ['split']", "split-out_proj"], lambda: _read(layout=["split"]))
    for wrong in (None, nn.Linear(2, 2), nn.MultiheadAttention, {}):
        words = ["mha must be an nn.MultiheadAttention, got ", "from_module", "from_state_dict"]
        _said(TypeMismatchError, words, lambda x=wrong: interop.from_torch(x))
        _said(TypeMismatchError, words, lambda x=wrong: mh.MultiHeadAttention.from_torch(x))
        for convert in (interop.to_torch, interop.to_state_dict):
            _said(TypeMismatchError, ["attn must be a MultiHeadAttention, got "], lambda f=convert, x=wrong: f(x))


@pytest.mark.parametrize(
    "key, shape, words",
    [
        ("q_proj.weight", (30,), ["'q_proj.weight' must be 2-D", "(30,)"]),
        ("v_proj.weight", (2, 5, 31), ["'v_proj.weight' must be 2-D", "(2, 5, 31)"]),
        ("k_proj.bias", (2, 5), ["'k_proj.bias' must be 1-D", "(2, 5)"]),
        ("o_proj.bias", (30,), ["'o_proj.bias' has 30 rows", "needs 31"]),
    ],
)
def test_shapes_that_are_not_of_a_linear(key: str, shape: tuple[int, ...], words: list[str]) -> None:
    state = interop.to_state_dict(_layer(num_kv_heads=KV)) | {key: torch.zeros(shape)}
    _said(SizeError, words, lambda: interop.from_state_dict(state, num_heads=HEADS))


@pytest.mark.parametrize("name", ["grouped", "packed-qkv", "conv1d"])
def test_packed_weights_the_wrong_way_round(name: str) -> None:
    weights = LAYOUTS[name].weights
    shape = (90, 30) if name == "conv1d" else (30, 90)
    state = {weights["qkv"]: torch.zeros(shape), weights["o"]: torch.zeros(30, 30)}
    words = [weights["qkv"], "30 rows", "0 rows remain"]
    _said(SizeError, words, lambda: interop.from_state_dict(state, num_heads=HEADS, layout=name))
    state[weights["qkv"]] = torch.zeros(90)
    words = [weights["qkv"], "must be 2-D"]
    _said(SizeError, words, lambda: interop.from_state_dict(state, num_heads=HEADS, layout=name))
