"""Converted weights compute what the modules that they come from compute: transformers and x-transformers, fp64."""

from __future__ import annotations

import importlib
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from multihead import interop, mask, position

transformers = import_module("transformers")

BATCH, HEADS, KV, DIM, TOKENS = 3, 6, 2, 10, 7
WIDTH = HEADS * DIM
HIDDEN = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)


@pytest.fixture(autouse=True)
def _double(fp64: None) -> None:
    """Every test of this file is in float64."""


def _module(family: str, name: str, *args: Any, **config: Any) -> Any:
    """A tiny random attention module of transformers, with logits of std > 1."""
    home = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    for key, value in config.pop("head_sizes", {"hidden_size": WIDTH, "num_attention_heads": HEADS}).items():
        config[key] = value
    kind = next(n for n in dir(transformers) if n.lower() == f"{family.replace('_', '')}config")
    made = getattr(transformers, kind)(**config)
    made._attn_implementation = "sdpa"
    module = getattr(home, name)(made, *args)
    for p in module.parameters():
        nn.init.normal_(p, std=1.3 * WIDTH**-0.5)
    return module.eval()


def _x() -> Tensor:
    return torch.randn(BATCH, TOKENS, WIDTH)


def _cos_sin(rotary: position.Rotary, dim: int) -> tuple[Tensor, Tensor]:
    """What transformers passes beside the tokens: half layout, both halves alike."""
    angles = torch.outer(torch.arange(TOKENS).double(), rotary.base ** (-torch.arange(0, dim, 2) / dim))
    both = torch.cat([angles, angles], dim=-1)[None]
    return both.cos(), both.sin()


def _same(ours: Any, x: Tensor, want: Tensor, seen: mask.Mask | None = None) -> None:
    assert_close(ours(x, mask=mask.causal() if seen is None else seen), want)


def test_conv1d_is_gpt2() -> None:
    theirs, x = _module("gpt2", "GPT2Attention", n_embd=WIDTH, n_head=HEADS, head_sizes={}), _x()
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS)
    assert interop.recognise(theirs.state_dict()).name == "conv1d"
    _same(ours, x, theirs(x)[0])
    theirs.load_state_dict(interop.to_state_dict(ours, "conv1d"))
    _same(ours, x, theirs(x)[0])


def test_split_is_bert() -> None:
    theirs, x = _module("bert", "BertAttention"), _x()
    state = theirs.state_dict()
    state.pop("output.LayerNorm.weight")
    state.pop("output.LayerNorm.bias")
    ours = interop.from_state_dict(state, num_heads=HEADS)
    assert interop.recognise(state).name == "split-self.query"
    want = theirs.output.dense(theirs.self(x)[0])
    _same(ours, x, want, mask.everything())


def test_split_out_proj_is_opt() -> None:
    theirs, x = _module("opt", "OPTAttention", 0), _x()
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS)
    want = theirs(x, attention_mask=torch.zeros(TOKENS, TOKENS).masked_fill(HIDDEN, -torch.inf)[None, None])[0]
    _same(ours, x, want)


def test_grouped_is_gpt_neox() -> None:
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.4}
    theirs, x = _module("gpt_neox", "GPTNeoXAttention", 0, rope_parameters=rope), _x()
    rotary = position.Rotary(100.0, dim=4)
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, position=rotary)
    assert ours.num_kv_heads == HEADS
    _same(ours, x, theirs(x, None, position_embeddings=_cos_sin(rotary, 4))[0])


@pytest.mark.parametrize(
    "kind, kv_heads",
    [
        ({"new_decoder_architecture": True, "num_kv_heads": KV}, KV),
        ({"new_decoder_architecture": False, "multi_query": True}, 1),
        ({"new_decoder_architecture": False, "multi_query": False}, HEADS),
    ],
)
def test_grouped_is_falcon(kind: dict[str, Any], kv_heads: int) -> None:
    theirs, x = _module("falcon", "FalconAttention", 0, bias=True, **kind), _x()
    rotary = position.Rotary(100.0)
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, position=rotary)
    assert ours.num_kv_heads == kv_heads
    _same(ours, x, theirs(x, None, None, position_embeddings=_cos_sin(rotary, DIM))[0])


def test_grouped_is_bloom() -> None:
    theirs, x = _module("bloom", "BloomAttention", 0, head_sizes={"hidden_size": WIDTH, "n_head": HEADS}), _x()
    home = importlib.import_module("transformers.models.bloom.modeling_bloom")
    alibi = home.build_alibi_tensor(torch.ones(BATCH, TOKENS), HEADS, torch.float64)
    added = torch.zeros(TOKENS, TOKENS).masked_fill(HIDDEN, -torch.inf)[None, None]
    want = theirs(x, torch.zeros_like(x), alibi, added)[0]
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, position=position.ALiBi(HEADS))
    assert_close(ours(x, mask=mask.causal()), want, atol=1e-6, rtol=1e-5)  # BLOOM's softmax is in fp32


def test_blocks_are_phi3() -> None:
    theirs, x = _module("phi3", "Phi3Attention", 0, num_key_value_heads=KV, pad_token_id=0), _x()
    rotary = position.Rotary(100.0)
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, position=rotary)
    assert (interop.recognise(theirs.state_dict()).name, ours.num_kv_heads) == ("packed-qkv_proj", KV)
    _same(ours, x, theirs(x, _cos_sin(rotary, DIM), None)[0])


def test_split_is_llama() -> None:
    theirs, x = _module("llama", "LlamaAttention", 0, num_key_value_heads=KV, attention_bias=True), _x()
    rotary = position.Rotary(100.0)
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, position=rotary)
    _same(ours, x, theirs(x, _cos_sin(rotary, DIM), None)[0])


def test_split_is_t5() -> None:
    sizes = {"d_model": WIDTH, "num_heads": HEADS, "d_kv": 7}
    theirs, x = _module("t5", "T5Attention", False, 0, head_sizes=sizes), _x()
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, scale=1.0)
    assert (ours.head_dim, interop.recognise(theirs.state_dict()).name) == (7, "split-q")
    _same(ours, x, theirs(x)[0], mask.everything())


@pytest.mark.parametrize("kv_heads", [HEADS, 3, KV, 1])
def test_modulo_is_x_transformers(kv_heads: int) -> None:
    home = import_module("x_transformers.x_transformers")
    theirs = home.Attention(WIDTH, heads=HEADS, dim_head=DIM, kv_heads=kv_heads, causal=True, flash=True)
    for p in theirs.parameters():
        nn.init.normal_(p, std=1.3 * WIDTH**-0.5)
    x = _x()
    ours = interop.from_state_dict(theirs.state_dict(), num_heads=HEADS, order="modulo")
    assert ours.num_kv_heads == kv_heads
    _same(ours, x, theirs(x))
    theirs.load_state_dict(interop.to_state_dict(ours, "split-to_q", order="modulo"))
    _same(ours, x, theirs(x))
