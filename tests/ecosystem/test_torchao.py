"""torchao's quantize_ on the layer: the projections become int8, the result stays close, decoding works."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import pytest
import torch

import multihead as mh
from multihead import cache, mask, position
from multihead.layer import init

quantization = import_module("torchao.quantization")

WIDTH, HEADS, TOKENS = 64, 4, 13
KINDS = ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"]


def pair(kind: str, dtype: torch.dtype) -> tuple[mh.MultiHeadAttention, mh.MultiHeadAttention]:
    """A layer and its quantized copy."""
    even = init.XavierPerHead(2.0)
    attn = mh.MultiHeadAttention(
        WIDTH, HEADS, num_kv_heads=2, position=position.Rotary(), init=even, dtype=dtype
    ).eval()
    small = copy.deepcopy(attn)
    quantization.quantize_(small, getattr(quantization, kind)())
    return attn, small


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_close_to_the_original(kind: str, dtype: torch.dtype) -> None:
    attn, small = pair(kind, dtype)
    x = torch.randn(2, TOKENS, WIDTH, dtype=dtype)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        assert "Int8" in type(getattr(small, name).weight).__name__ or "Quantized" in repr(getattr(small, name))
    want, got = attn(x, mask=mask.causal()), small(x, mask=mask.causal())
    assert got.dtype == dtype
    assert 1e-4 < relative(got, want) < 0.05  # close, and not the original weights


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_decodes(kind: str) -> None:
    _, small = pair(kind, torch.float32)
    x = torch.randn(2, TOKENS, WIDTH)
    kept = cache.Growing()
    parts = [small(part, mask=mask.causal(), cache=kept) for part in x.split([5] + [1] * (TOKENS - 5), dim=1)]
    assert relative(torch.cat(parts, dim=1), small(x, mask=mask.causal())) < 0.01


@torch.no_grad()
def test_compiles() -> None:
    torch.compiler.reset()
    _, small = pair("Int8WeightOnlyConfig", torch.float32)
    x: Any = torch.randn(2, TOKENS, WIDTH)
    compiled = torch.compile(lambda x: small(x, mask=mask.causal()), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), small(x, mask=mask.causal()), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_state_dict_round_trip() -> None:
    _, small = pair("Int8WeightOnlyConfig", torch.float32)
    with torch.device("meta"):
        empty = mh.MultiHeadAttention(WIDTH, HEADS, num_kv_heads=2, position=position.Rotary()).eval()
    empty.load_state_dict(small.state_dict(), assign=True)
    x = torch.randn(2, TOKENS, WIDTH)
    assert torch.equal(empty(x), small(x))
