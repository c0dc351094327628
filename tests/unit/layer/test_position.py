"""Rotary, its scalings, ALiBi and T5's relative bias: against transformers, and against what they promise."""

from __future__ import annotations

import copy
import math
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from multihead import position
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer import _rope_scaling as scaling
from multihead.layer import _rotary as rotary

transformers = import_module("transformers")
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402
from transformers.models.bloom.modeling_bloom import build_alibi_tensor  # noqa: E402
from transformers.models.gptj import modeling_gptj  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402
from transformers.models.t5.modeling_t5 import T5Attention  # noqa: E402

BATCH, HEADS, TOKENS, DIM = 3, 5, 17, 14
FAR = 3000  # where a wrong last bit of a frequency shows

SCALINGS = {
    "linear": (position.Linear(2.5), {"rope_type": "linear", "factor": 2.5}),
    "yarn": (
        position.YaRN(7.0, original=211),
        {"rope_type": "yarn", "factor": 7.0, "original_max_position_embeddings": 211},
    ),
    "yarn, all said": (
        position.YaRN(4.0, original=97, beta_fast=19.0, beta_slow=2.0, attention_factor=1.3),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 97,
            "beta_fast": 19.0,
            "beta_slow": 2.0,
            "attention_factor": 1.3,
        },
    ),
    "yarn, not truncated": (
        position.YaRN(32.0, original=4096, truncate=False),
        {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False},
    ),
    "llama3": (
        position.Llama3(8.0, low=1.0, high=4.0, original=389),
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 389,
        },
    ),
}


def llama_rotary(rope: dict[str, object], dim: int = DIM, limit: int = 53) -> modeling_llama.LlamaRotaryEmbedding:
    config = transformers.LlamaConfig(
        hidden_size=HEADS * dim,
        num_attention_heads=HEADS,
        head_dim=dim,
        max_position_embeddings=limit,
        rope_parameters={"rope_theta": 10_000.0} | rope,
    )
    return modeling_llama.LlamaRotaryEmbedding(config)


def by_llama(x: torch.Tensor, positions: torch.Tensor, rope: dict[str, object] | None = None) -> torch.Tensor:
    module = llama_rotary(rope or {"rope_type": "default"}, x.shape[-1])
    cos, sin = module(x, positions if positions.dim() == 2 else positions[None])
    return modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)[0]


def queries(tokens: int = TOKENS, dim: int = DIM, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(BATCH, HEADS, tokens, dim, dtype=dtype)


# ---- rotary against transformers ----------------------------------------------------------------


def test_the_half_layout_is_llamas() -> None:
    x, places = queries(), torch.arange(TOKENS) + FAR
    assert_close(position.Rotary()(x, places), by_llama(x, places))


@pytest.mark.parametrize("name", SCALINGS)
def test_scalings_are_those_of_transformers(name: str) -> None:
    ours, theirs = SCALINGS[name]
    x, places = queries(dim=34), torch.arange(TOKENS) + FAR
    assert_close(position.Rotary(scaling=ours)(x, places), by_llama(x, places, theirs))


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("dim", [34, 64, 128])
def test_frequencies_agree_to_the_last_bit_or_nearly(name: str, dim: int) -> None:
    ours, theirs = SCALINGS[name]
    module = llama_rotary(theirs, dim)
    expected, gain = ROPE_INIT_FUNCTIONS[str(theirs["rope_type"])](module.config, "cpu")
    got = torch.tensor(ours.frequencies(10_000.0, dim, scaling.to_float32), dtype=torch.float32)
    assert ours.gain == pytest.approx(gain, abs=0)
    assert_close(got, expected, rtol=1.3e-7, atol=0)  # one unit in the last place ...
    assert (got != expected).sum() <= dim // 16  # ... in a few, where torch's power is not correctly rounded


@pytest.mark.parametrize("limit", [53, 11])
def test_dynamic_ntk_is_that_of_transformers(limit: int) -> None:
    x, places = queries(tokens=37), torch.arange(37)
    theirs = llama_rotary({"rope_type": "dynamic", "factor": 3.0}, limit=limit)
    cos, sin = theirs(x, places[None])
    expected = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)[0]
    turn = position.Rotary(scaling=position.DynamicNTK(3.0, original=limit))
    assert_close(turn(x, places), expected)
    assert_close(turn(x, 0), expected)


def test_ntk_is_dynamic_ntk_at_one_length() -> None:
    tokens, original, factor = 29, 7, 2.0
    x = queries(tokens)
    fixed = position.NTK(factor * tokens / original - (factor - 1))
    dynamic = position.DynamicNTK(factor, original)
    assert_close(position.Rotary(scaling=fixed)(x), position.Rotary(scaling=dynamic)(x))


def test_the_interleaved_layout_is_gptjs() -> None:
    x, places = queries(), torch.arange(TOKENS)
    table = modeling_gptj.create_sinusoidal_positions(TOKENS, DIM)
    sin, cos = table[places][None].chunk(2, dim=-1)
    expected = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)
    assert_close(position.Rotary(interleaved=True)(x, places), expected)


@pytest.mark.parametrize("family", ["gpt_neox", "phi"])
@pytest.mark.parametrize("dim", [4, 0.4])
def test_partial_rotary_is_that_of_neox_and_phi(family: str, dim: float) -> None:
    head_dim = 11
    x, places = queries(dim=head_dim), torch.arange(TOKENS) + 100
    if family == "gpt_neox":
        from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding, apply_rotary_pos_emb

        config = transformers.GPTNeoXConfig(hidden_size=head_dim * HEADS, num_attention_heads=HEADS, rotary_pct=0.4)
        cos, sin = GPTNeoXRotaryEmbedding(config)(x, places[None])
        expected = apply_rotary_pos_emb(x[..., : cos.shape[-1]], x[..., : cos.shape[-1]], cos, sin)[0]
        expected = torch.cat((expected, x[..., cos.shape[-1] :]), -1)
    else:
        from transformers.models.phi.modeling_phi import PhiRotaryEmbedding, apply_rotary_pos_emb

        config = transformers.PhiConfig(
            hidden_size=head_dim * HEADS, num_attention_heads=HEADS, partial_rotary_factor=0.4
        )
        cos, sin = PhiRotaryEmbedding(config)(x, places[None])
        expected = apply_rotary_pos_emb(x[..., : cos.shape[-1]], x[..., : cos.shape[-1]], cos, sin)[0]
        expected = torch.cat((expected, x[..., cos.shape[-1] :]), -1)
    assert_close(position.Rotary(dim=dim)(x, places), expected)


def test_float32_angles_are_transformers_also_for_float64_input() -> None:
    x, places = queries(dtype=torch.float64), torch.arange(TOKENS) + FAR
    assert_close(position.Rotary(angle_dtype=torch.float32)(x, places), by_llama(x, places))


def test_float64_angles_keep_far_positions_exact() -> None:
    x = queries()
    exact = position.Rotary()(x.double(), 100_003).float()
    assert_close(position.Rotary(angle_dtype=torch.float64)(x, 100_003), exact)
    assert (position.Rotary()(x, 100_003) - exact).abs().max() > 1e-3  # which float32 angles do not


# ---- what a rotation promises -------------------------------------------------------------------

turns = st.builds(
    position.Rotary,
    st.sampled_from([10.0, 10_000.0, 500_000.0]),
    interleaved=st.booleans(),
    dim=st.sampled_from([None, 6, 0.5]),
    scaling=st.sampled_from([None, position.NTK(3.0), position.Linear(2.0), position.Llama3(8.0, 1.0, 4.0, 97)]),
)


@given(turn=turns, start=st.integers(-50, 5000))
def test_norms_stay(turn: position.Rotary, start: int) -> None:
    x = torch.randn(2, 3, 7, 12, dtype=torch.float64)
    assert_close(turn(x, start).norm(dim=-1), x.norm(dim=-1))


@given(turn=turns, near=st.integers(0, 400), shift=st.integers(0, 5000))
def test_scores_depend_on_distance_only(turn: position.Rotary, near: int, shift: int) -> None:
    q, k = torch.randn(2, 1, 3, 7, 12, dtype=torch.float64)
    there = turn(q, near) @ turn(k, 0).mT
    further = turn(q, near + shift) @ turn(k, shift).mT
    assert_close(there, further)


@given(start=st.integers(0, 2000), dim=st.sampled_from([None, 4]))
def test_interleaved_is_half_after_a_permutation(start: int, dim: int | None) -> None:
    x = queries(dim=10)
    n = dim or 10
    order = torch.cat((torch.arange(0, n, 2), torch.arange(1, n, 2), torch.arange(n, 10)))
    interleaved = position.Rotary(interleaved=True, dim=dim)(x, start)
    assert_close(interleaved[..., order], position.Rotary(dim=dim)(x[..., order], start))


def test_yarns_gain_multiplies_what_turns() -> None:
    x = queries(dtype=torch.float64)
    gain = 0.1 * math.log(7) + 1
    turned = position.Rotary(dim=6, scaling=position.YaRN(7.0, 211))(x)
    assert_close(turned[..., :6].norm(dim=-1), gain * x[..., :6].norm(dim=-1))
    assert_close(turned[..., 6:], x[..., 6:])


# ---- one meaning, however it is asked for -------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [None, 6])
@pytest.mark.parametrize("tokens", [TOKENS, 701])  # below and above the size that goes by blocks
def test_every_way_to_give_positions_is_the_same(interleaved: bool, dim: int | None, tokens: int) -> None:
    turn = position.Rotary(interleaved=interleaved, dim=dim)
    x, start = queries(tokens), 23
    assert x.numel() > rotary.BLOCK or tokens == TOKENS
    places = torch.arange(start, start + tokens)
    expected = rotary._rotate_unpacked(x, *turn._angles(x, places, dim or DIM, None), interleaved=interleaved)
    shuffled = torch.randperm(tokens)
    assert_close(turn(x, start), expected)
    assert_close(turn(x, places), expected)
    assert_close(turn(x, places.int()), expected)
    assert_close(turn(x, places[None]), expected)
    assert_close(turn(x, places.expand(BATCH, -1)), expected)
    assert_close(turn(x, places.repeat(BATCH, 1)), expected)
    assert_close(turn(x[:, :, shuffled], places[shuffled]), expected[:, :, shuffled])
    assert_close(turn(x.transpose(1, 2).contiguous().transpose(1, 2), start), expected)  # as projections come
    assert_close(turn(torch.stack((x, x), -1)[..., 0], start), expected)  # last stride is 2


def test_rows_may_stand_at_different_positions() -> None:
    x, turn = queries(), position.Rotary()
    places = torch.tensor([[0], [7], [101]]) + torch.arange(TOKENS)
    by_row = torch.cat([turn(x[i : i + 1], int(places[i, 0])) for i in range(BATCH)])
    assert_close(turn(x, places), by_row)


@pytest.mark.parametrize("interleaved", [False, True])
def test_positions_beyond_the_table_and_below_zero(interleaved: bool) -> None:
    x, turn = queries(dtype=torch.float64), position.Rotary(interleaved=interleaved)
    start = rotary.TABLE_LIMIT - 5
    at_zero = turn(x[:, :, :1], 0) @ turn(x, 0).mT
    assert_close(turn(x[:, :, :1], start) @ turn(x, start).mT, at_zero)
    assert_close(turn(x[:, :, :1], -5) @ turn(x, torch.arange(TOKENS) - 5).mT, at_zero)
    assert all(table.shape[-2] <= rotary.TABLE_LIMIT for table in rotary._TABLES._entries.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("interleaved", [False, True])
def test_half_precision_is_turned_in_float32_and_rounded_once(dtype: torch.dtype, interleaved: bool) -> None:
    x, turn = queries().to(dtype), position.Rotary(interleaved=interleaved)
    got = turn(x, FAR)
    assert got.dtype == dtype
    assert torch.equal(got, turn(x.float(), FAR).to(dtype))


@pytest.mark.parametrize("tokens", [0, 1])
def test_empty_and_single(tokens: int) -> None:
    x = queries(tokens)
    assert_close(position.Rotary()(x, torch.arange(tokens)), x)
    assert position.Rotary()(x[:0], torch.arange(tokens)).shape == (0, HEADS, tokens, DIM)


def test_input_is_left_alone() -> None:
    x = queries(701)
    before = x.clone()
    position.Rotary()(x, 3)
    position.Rotary(interleaved=True)(x, 3)
    assert torch.equal(x, before)


# ---- gradients ----------------------------------------------------------------------------------


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send even the smallest input the way of large ones."""
    monkeypatch.setattr(rotary, "BLOCK", 0)


@pytest.mark.fast(2)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [None, 2])
@pytest.mark.parametrize("large", [False, True])
def test_gradients(interleaved: bool, dim: int | None, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(rotary, "BLOCK", 0)
    turn = position.Rotary(interleaved=interleaved, dim=dim, scaling=position.YaRN(7.0, 211))
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(turn, (x, torch.arange(5) + 3), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(turn, (x, torch.arange(5) + 3))


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("interleaved", [False, True])
def test_function_transforms(interleaved: bool) -> None:
    turn = position.Rotary(interleaved=interleaved)
    x = torch.randn(2, 3, 5, 7, 6)  # the middle axis is mapped over
    got = torch.vmap(lambda one: turn(one, 3), in_dims=2, out_dims=2)(x)
    assert_close(got, torch.stack([turn(one, 3) for one in x.unbind(2)], 2))
    loss = lambda one: turn(one, 3).pow(3).sum()
    each = torch.vmap(torch.func.grad(loss), in_dims=2, out_dims=2)(x)
    assert_close(each, torch.stack([torch.func.grad(loss)(one) for one in x.unbind(2)], 2))


def test_a_table_born_in_inference_mode_serves_training() -> None:
    turn = position.Rotary(base=1234.5)  # no table yet
    with torch.inference_mode():
        turn(queries())
    x = queries().requires_grad_()
    turn(x).sum().backward()
    assert x.grad is not None


# ---- compiled, exported, moved ------------------------------------------------------------------


@pytest.fixture
def fresh_compiler() -> None:
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("scale", [None, position.YaRN(7.0, 211), position.DynamicNTK(2.0, 5)])
def test_compiles_without_a_break(interleaved: bool, scale: position.Scaling | None) -> None:
    turn = position.Rotary(interleaved=interleaved, dim=6, scaling=scale)
    compiled = torch.compile(turn, fullgraph=True, backend="aot_eager")
    for places in ((torch.arange(TOKENS) + 3).repeat(BATCH, 1), 3):
        x = queries().requires_grad_()
        y = x.detach().clone().requires_grad_()
        got, expected = compiled(x, places), turn(y, places)
        assert_close(got, expected)
        got.pow(2).sum().backward()
        expected.pow(2).sum().backward()
        assert_close(x.grad, y.grad)


def test_exports_with_free_length() -> None:
    turn = position.Rotary(dim=6)
    tokens = torch.export.Dim("tokens", min=2, max=999)
    program = torch.export.export(
        turn, (queries(), torch.arange(TOKENS)), dynamic_shapes=({2: tokens}, {0: tokens})
    )
    x, places = queries(31), torch.arange(31) + 5
    assert_close(program.module()(x, places), turn(x, places))


def test_fake_tensors_leave_no_trace() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    turn = position.Rotary(base=4321.0)
    with FakeTensorMode():
        assert turn(queries(), 0).shape == (BATCH, HEADS, TOKENS, DIM)
    assert turn(queries().to("meta"), 0).device.type == "meta"
    x = queries()
    assert_close(turn(x, 2), turn(x, torch.arange(TOKENS) + 2))


def test_casting_and_copying_a_model_does_not_round_frequencies() -> None:
    turn = position.Rotary()
    assert not turn.state_dict()
    x = queries()
    expected = turn(x, FAR)
    assert torch.equal(copy.deepcopy(turn).bfloat16()(x, FAR), expected)
    assert torch.equal(position.Rotary().to("meta").to_empty(device="cpu")(x, FAR), expected)


# ---- ALiBi --------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 8, 12, 16, 71])
def test_slopes_are_blooms(heads: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    assert_close(position.ALiBi(heads).slopes.float(), theirs)


def test_alibi_after_softmax_is_blooms() -> None:
    heads, n = 7, 13
    scores = torch.randn(1, heads, n, n).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    theirs = (scores + build_alibi_tensor(torch.ones(1, n), heads, torch.float32)).softmax(-1)
    places = torch.arange(n)[None]
    assert_close((scores + position.ALiBi(heads).bias(places, places)).softmax(-1), theirs)


def test_alibi_is_minus_slope_times_distance() -> None:
    alibi = position.ALiBi(slopes=[0.5, 0.25, 2.0])
    q, k = torch.tensor([[4, 5], [9, 1]]), torch.tensor([[0, 4, 7]])
    got = alibi.bias(q, k, torch.float64)
    expected = -torch.tensor([0.5, 0.25, 2.0], dtype=torch.float64)[None, :, None, None] * torch.tensor(
        [[[4, 0, 3], [5, 1, 2]], [[9, 5, 2], [1, 3, 6]]], dtype=torch.float64
    ).unsqueeze(1)
    assert_close(got, expected)


def test_learned_slopes_learn_and_reset() -> None:
    alibi = position.ALiBi(5, learned=True)
    places = torch.arange(7)[None]
    alibi.bias(places, places).sum().backward()
    total = float((places.mT - places).abs().sum())
    assert_close(alibi.weight.grad, torch.full((5,), -total))
    fresh = position.ALiBi(5, learned=True, device="meta").to_empty(device="cpu")
    fresh.reset_parameters()
    assert_close(fresh.slopes, position.ALiBi(5).slopes.float())
    assert not position.ALiBi(5).state_dict()


# ---- T5 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets, reach", [(32, 128), (32, 20), (7, 97), (4, 3), (64, 512), (128, 800)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_are_t5s(buckets: int, reach: int, bidirectional: bool) -> None:
    distance = torch.arange(-2 * reach, 2 * reach + 1)
    ours = position.RelativeBias(3, buckets=buckets, max_distance=reach, bidirectional=bidirectional)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional, buckets, reach)
    assert torch.equal(ours.bucket(distance), theirs)


@pytest.mark.parametrize("decoder", [False, True])
def test_the_bias_is_t5s(decoder: bool) -> None:
    config = transformers.T5Config(
        d_model=15, num_heads=5, d_kv=3, relative_attention_max_distance=23, is_decoder=decoder
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = position.RelativeBias(5, max_distance=23, bidirectional=not decoder)
    ours.load_state_dict(theirs.relative_attention_bias.state_dict())
    places = torch.arange(61)[None]
    assert_close(ours.bias(places[:, 42:], places), theirs.compute_bias(19, 61, past_seen_tokens=42))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_block_of_the_bias_is_a_block_of_the_whole(bidirectional: bool) -> None:
    ours = position.RelativeBias(5, max_distance=17, bidirectional=bidirectional)
    places = torch.arange(41)[None]
    whole = ours.bias(places, places)
    rows, columns = torch.tensor([3, 11, 5]), torch.tensor([40, 2, 19, 20])
    assert_close(ours.bias(places[:, 7:11], places[:, 13:30]), whole[:, :, 7:11, 13:30])
    assert_close(ours.bias(rows[None], columns[None]), whole[:, :, rows][..., columns])
    stacked = ours.bias(torch.stack((rows, rows + 1)), columns[None])
    assert_close(stacked, torch.cat((whole[:, :, rows], whole[:, :, rows + 1]))[..., columns])


def test_diagonals_and_gathers_have_the_same_gradient() -> None:
    ours = position.RelativeBias(5, max_distance=17, dtype=torch.float64)
    places = torch.arange(23)[None]
    weights = torch.randn(1, 5, 23, 23, dtype=torch.float64)
    (slid,) = torch.autograd.grad((ours.bias(places, places, torch.float64) * weights).sum(), ours.weight)
    order = torch.randperm(23)
    shuffled = ours.bias(places[:, order], places, torch.float64)
    (gathered,) = torch.autograd.grad((shuffled * weights[:, :, order]).sum(), ours.weight)
    assert_close(slid, gathered)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", [position.ALiBi(5), position.ALiBi(5, learned=True), position.RelativeBias(5)])
def test_biases_compile_and_take_nothing(kind: position.PositionBias) -> None:
    assert isinstance(kind, position.PositionBias)
    places = torch.arange(13)[None]
    compiled = torch.compile(kind.bias, fullgraph=True, backend="aot_eager")
    assert_close(compiled(places[:, 7:], places), kind.bias(places[:, 7:], places))
    assert kind.bias(places[:, :0], places).shape == (1, 5, 0, 13)
    assert kind.bias(places, places[:, :0]).shape == (1, 5, 13, 0)


# ---- bad input, and how they print --------------------------------------------------------------


@pytest.mark.parametrize(
    "make, values",
    [
        (lambda: position.Rotary(dim=7), ["dim", "got 7", "8"]),
        (lambda: position.Rotary(dim=1.5), ["dim", "got 1.5", "dim=1"]),
        (lambda: position.Rotary(base=0.5), ["base", "0.5"]),
        (lambda: position.Rotary()(queries(dim=7)), ["dim=7", "head_dim=7", "dim=6"]),
        (lambda: position.Rotary(dim=16)(queries()), ["dim=16", "head_dim=14"]),
        (lambda: position.Rotary()(queries(), torch.arange(5)), ["(5,)", "tokens=17"]),
        (lambda: position.Rotary()(queries(), torch.zeros(2, TOKENS).long()), ["(2, 17)", "batch=3"]),
        (lambda: position.Rotary(scaling=position.NTK(2.0))(queries(dim=2)), ["dim > 2", "got 2"]),
        (lambda: position.Linear(0.0), ["factor", "0.0"]),
        (lambda: position.Llama3(8, low=4, high=1, original=97), ["high", "4", "got 1"]),
        (lambda: position.YaRN(8, 97, beta_fast=1, beta_slow=2), ["beta_fast", "2", "got 1"]),
        (lambda: position.ALiBi(), ["num_heads", "slopes"]),
        (lambda: position.ALiBi(3, slopes=[1.0, 2.0]), ["num_heads", "slopes, 2, got 3"]),
        (lambda: position.RelativeBias(5, buckets=3), ["buckets", ">= 4", "got 3"]),
        (lambda: position.RelativeBias(5, max_distance=8), ["max_distance must be > 8", "got 8"]),
    ],
)
def test_errors_say_both_values_and_what_to_do(make: object, values: list[str]) -> None:
    with pytest.raises(SizeError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.hint
    for value in values:
        assert value in str(caught.value)


def test_wrong_kinds_are_named() -> None:
    with pytest.raises(TypeMismatchError, match=r"bfloat16[\s\S]*hint"):
        position.Rotary(angle_dtype=torch.bfloat16)
    with pytest.raises(TypeMismatchError, match=r"float32[\s\S]*hint"):
        position.Rotary()(queries(), torch.arange(TOKENS).float())


def test_they_print_what_they_are() -> None:
    assert repr(position.Rotary()) == "Rotary(base=10000)"
    full = position.Rotary(5e5, interleaved=True, dim=0.5, scaling=position.Linear(2), angle_dtype=torch.float64)
    assert repr(full) == (
        "Rotary(base=500000, interleaved, dim=0.5, scaling=Linear(factor=2), angle_dtype=torch.float64)"
    )
    assert repr(position.ALiBi(3)) == "ALiBi(3)"
    assert repr(position.ALiBi(3, learned=True)) == "ALiBi(3, learned)"
    assert repr(position.RelativeBias(3)) == "RelativeBias(3, buckets=32, max_distance=128, both ways)"
