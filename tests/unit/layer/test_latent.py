"""Multi-head latent attention: against DeepSeek's modules, and its two forms against each other."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from multihead import cache, mask, position
from multihead.errors import SizeError
from multihead.layer.latent import LatentAttention

transformers = import_module("transformers")
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2  # noqa: E402
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3  # noqa: E402

SIZES = {"latent_dim": 14, "nope_dim": 10, "rope_dim": 6, "value_dim": 7}  # even where DeepSeek-V2 needs it
WIDTH, HEADS, BATCH, TOKENS = 57, 3, 2, 13  # transformers wants WIDTH to be a multiple of HEADS


def make(**options: object) -> LatentAttention:
    attn = LatentAttention(WIDTH, HEADS, **(SIZES | options))  # type: ignore[arg-type]
    with torch.no_grad():
        attn.q_proj.weight.mul_(4)  # so that weights are far from uniform
    return attn.eval()


# ---- against transformers -----------------------------------------------------------------------

RENAMED = {
    "q_a_proj": "q_down",
    "q_a_layernorm": "q_norm",
    "q_b_proj": "q_proj",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm",
    "kv_b_proj": "kv_up",
}


def config_for(kind: type, query_dim: int | None, bias: bool) -> object:
    rotary = {"head_dim": SIZES["rope_dim"]} if kind is transformers.DeepseekV2Config else {}
    return kind(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=query_dim,
        kv_lora_rank=SIZES["latent_dim"],
        qk_nope_head_dim=SIZES["nope_dim"],
        qk_rope_head_dim=SIZES["rope_dim"],
        v_head_dim=SIZES["value_dim"],
        attention_bias=bias,
        attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        **rotary,
    )


@pytest.mark.parametrize("query_dim, bias", [(None, False), (17, False), (17, True)])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("absorb", [False, True])
def test_it_is_deepseeks(version: int, query_dim: int | None, bias: bool, absorb: bool) -> None:
    if version == 2:
        config = config_for(transformers.DeepseekV2Config, query_dim, bias)
        theirs, turn = v2.DeepseekV2Attention(config, 0), v2.DeepseekV2RotaryEmbedding(config)
    else:
        config = config_for(transformers.DeepseekV3Config, query_dim, bias)
        theirs, turn = v3.DeepseekV3Attention(config, 0), v3.DeepseekV3RotaryEmbedding(config)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.25)  # scores of std 2 to 3: far from uniform, not yet one-hot
    ours = make(query_dim=query_dim, bias=bias)
    state = theirs.state_dict()
    ours.load_state_dict(
        {
            ".".join([RENAMED.get(name.split(".")[0], name.split(".")[0]), name.split(".")[1]]): w
            for name, w in state.items()
        }
    )
    x = torch.randn(BATCH, TOKENS, WIDTH)
    hidden = torch.full((TOKENS, TOKENS), -torch.inf).triu(1)[None, None]
    places = torch.arange(TOKENS)[None]
    with torch.no_grad():
        expected = theirs.eval()(hidden_states=x, attention_mask=hidden, position_embeddings=turn(x, places))[0]
        assert_close(ours(x, mask=mask.causal(), absorb=absorb), expected)


# ---- one meaning --------------------------------------------------------------------------------


@pytest.mark.parametrize("query_dim", [None, 17])
def test_both_forms_are_the_same_and_have_the_same_gradients(query_dim: int | None) -> None:
    attn = make(query_dim=query_dim).double()
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.float64, requires_grad=True)
    seen = mask.causal() & mask.ragged([TOKENS, 5])
    results: list[tuple[Tensor, ...]] = []
    for absorb in (False, True):
        out = attn(x, mask=seen, absorb=absorb)
        leaves = (x, *attn.parameters())
        results.append((out, *torch.autograd.grad(out.pow(2).sum(), leaves)))
    for expanded, absorbed in zip(*results, strict=True):
        assert_close(expanded, absorbed)


@pytest.mark.parametrize(
    "kind",
    [
        cache.Growing,
        lambda: cache.Static(BATCH, 1, 19, SIZES["latent_dim"] + SIZES["rope_dim"], 0),
        lambda: cache.Ring(4),
    ],
)
@pytest.mark.parametrize("absorb", [None, False, True])
def test_cached_decode_is_the_full_pass(kind: Callable[[], cache.Cache], absorb: bool | None) -> None:
    attn, kept = make(), kind()
    x = torch.randn(BATCH, TOKENS, WIDTH)
    seen = mask.causal() & mask.window(4) if isinstance(kept, cache.Ring) else mask.causal()
    with torch.no_grad():
        full = attn(x, mask=seen)
        parts = [
            attn(x[:, a:b], mask=seen, cache=kept, absorb=absorb)
            for a, b in ((0, 5), (5, 6), (6, 10), (10, 11), (11, 12), (12, 13))
        ]
    assert_close(torch.cat(parts, 1), full)


def test_rows_of_different_lengths() -> None:
    attn, kept = make(), cache.Growing()
    x, step = torch.randn(BATCH, 7, WIDTH), torch.randn(BATCH, 1, WIDTH)
    with torch.no_grad():
        attn(x, mask=mask.causal() & mask.ragged([7, 3]), cache=kept)
        got = attn(step, mask=mask.causal(), cache=kept)
        for row, n in enumerate((7, 3)):
            text = torch.cat((x[row, :n], step[row]))
            assert_close(got[row], attn(text, mask=mask.causal())[-1:])


def test_the_cache_holds_one_short_vector_per_token() -> None:
    attn, kept = make(), cache.Growing()
    with torch.no_grad():
        attn(torch.randn(BATCH, TOKENS, WIDTH), cache=kept)
    assert kept.used_bytes == BATCH * TOKENS * (SIZES["latent_dim"] + SIZES["rope_dim"]) * 4


def test_the_form_with_fewer_multiplications_is_taken() -> None:
    attn = LatentAttention(64, 16, latent_dim=512, nope_dim=128, rope_dim=64, value_dim=128)
    assert attn._absorbs(1, 1000)
    assert not attn._absorbs(1000, 1000)
    assert not attn._absorbs(1, 1)
    attn.kv_up.register_forward_hook(lambda *_: None)  # somebody looks at it, or changes it
    assert not attn._absorbs(1, 1000)


def test_asking_does_not_change_the_output() -> None:
    attn = make()
    x, gate = torch.randn(BATCH, TOKENS, WIDTH), torch.rand(HEADS)
    with torch.no_grad():
        for absorb in (False, True):
            told = attn(x, mask=mask.causal(), ask=("weights", "lse", "heads"), absorb=absorb)
            assert_close(told.out, attn(x, mask=mask.causal()))
            assert told.weights.shape == (BATCH, HEADS, TOKENS, TOKENS)
            assert told.heads.shape == (BATCH, HEADS, TOKENS, SIZES["value_dim"])
            gated = attn(x, mask=mask.causal(), head_gate=gate, absorb=absorb)
            assert_close(gated, attn.o_proj((told.heads * gate[:, None, None]).transpose(1, 2).flatten(2)))
        assert_close(attn(x[0], mask=mask.causal()), attn(x, mask=mask.causal())[0])


def test_compiles_without_a_break() -> None:
    torch.compiler.reset()
    attn = make()
    kept = cache.Static(BATCH, 1, 19, SIZES["latent_dim"] + SIZES["rope_dim"], 0)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    compiled = torch.compile(attn, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        full = attn(x, mask=mask.causal())
        assert_close(compiled(x, mask=mask.causal()), full)
        attn(x[:, :9], mask=mask.causal(), cache=kept)
        steps = [compiled(x[:, i : i + 1], mask=mask.causal(), cache=kept) for i in range(9, TOKENS)]
    assert_close(torch.cat(steps, 1), full[:, 9:])


def test_meta_device_and_reset() -> None:
    with torch.device("meta"):
        attn = make(query_dim=17)
    attn = attn.to_empty(device="cpu")
    attn.reset_parameters()
    assert attn(torch.randn(BATCH, TOKENS, WIDTH), mask=mask.causal()).isfinite().all()


# ---- bad input ----------------------------------------------------------------------------------


def test_errors_say_what_to_do() -> None:
    with pytest.raises(SizeError, match=r"latent_dim.*got 0"):
        make(latent_dim=0)
    with pytest.raises(SizeError, match=r"dim=5[\s\S]*hint"):
        make(rope_dim=5)
    with pytest.raises(SizeError, match=r"head_dim=6, got dim=8[\s\S]*hint"):
        make(position=position.Rotary(dim=8))
    with pytest.raises(SizeError, match=r"57\), got \(2, 13, 58\)[\s\S]*hint"):
        make()(torch.randn(BATCH, TOKENS, WIDTH + 1))
    with pytest.raises(SizeError, match=r"Cross[\s\S]*hint"):
        make()(torch.randn(BATCH, TOKENS, WIDTH), cache=cache.Cross())
