"""torch.autocast: projections in half precision, scores in the kernels' own, parameters and gradients untouched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import multihead as mh
from ecosystem.variants import BATCH, TOKENS, VARIANTS, WIDTH, tensors_of
from multihead import cache, mask, position
from multihead.errors import CacheError, TypeMismatchError
from multihead.layer import QKNorm

HALF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # the rounding error of one number

halves = pytest.mark.parametrize("dtype", HALF, ids=str)


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


@halves
@pytest.mark.parametrize("name", VARIANTS)
def test_close_to_float32(name: str, dtype: torch.dtype) -> None:
    """As close as a handful of roundings allow, in the dtype asked for; gradients in that of the parameters."""
    variant = VARIANTS[name]
    attn = variant.layer()
    inputs = variant.inputs()
    expected = tensors_of(variant.call(attn, *inputs))
    with torch.autocast("cpu", dtype):
        result = tensors_of(variant.call(attn, *inputs))
    assert result[0].dtype == dtype
    for got, want in zip(result, expected, strict=True):
        seen = want > -torch.inf  # the lse of a row that sees nothing
        assert relative(got[seen], want[seen]) < 12 * HALF[dtype]
    result[0].float().square().sum().backward()
    for parameter in attn.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


@halves
@pytest.mark.parametrize("route", ["reference", "blocked", "tiled", "fused"])
def test_autocast_rounds_what_a_half_precision_layer_rounds(route: str, dtype: torch.dtype) -> None:
    """No route computes its scores in half precision because autocast is on: all are bit-equal to the plain one."""
    attn = VARIANTS["causal"].layer()
    x = torch.randn(BATCH, TOKENS, WIDTH)
    half = VARIANTS["causal"].layer(dtype=dtype)
    half.load_state_dict(attn.state_dict())
    with torch.autocast("cpu", dtype):
        got = attn(x, mask=mask.window(6), route=route, ask=("weights", "lse"))
    want = half(x.to(dtype), mask=mask.window(6), route=route, ask=("weights", "lse"))
    assert torch.equal(got.out, want.out)
    assert torch.equal(got.weights, want.weights)
    assert torch.equal(got.lse, want.lse)


@halves
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_leave_the_dtype(kind: Any, dtype: torch.dtype) -> None:
    attn = VARIANTS["causal"].layer(qk_norm=QKNorm(kind))
    x = torch.randn(BATCH, TOKENS, WIDTH)
    want = attn(x, mask=mask.causal())
    with torch.autocast("cpu", dtype):
        got = attn(x, mask=mask.causal())
    assert got.dtype == dtype
    assert relative(got, want) < 12 * HALF[dtype]


@halves
@pytest.mark.parametrize("kind", ["growing", "static", "ring"])
@torch.no_grad()
def test_cached_decode(kind: str, dtype: torch.dtype) -> None:
    attn = VARIANTS["grouped rotary"].layer()
    x = torch.randn(BATCH, TOKENS, WIDTH)
    want = attn(x, mask=mask.causal())
    kept = {
        "growing": cache.Growing(),
        "static": cache.Static(BATCH, attn.num_kv_heads, TOKENS, attn.head_dim, dtype=dtype),
        "ring": cache.Ring(TOKENS),
    }[kind]
    with torch.autocast("cpu", dtype):
        parts = [attn(part, mask=mask.causal(), cache=kept) for part in x.split([4] + [1] * (TOKENS - 4), dim=1)]
        full = attn(x, mask=mask.causal())
    out = torch.cat(parts, dim=1)
    assert out.dtype == dtype
    assert relative(out, full) < 6 * HALF[dtype]
    assert relative(out, want) < 12 * HALF[dtype]


@torch.no_grad()
def test_a_static_cache_of_another_dtype_says_so() -> None:
    attn = VARIANTS["causal"].layer()
    kept = cache.Static(BATCH, attn.num_kv_heads, TOKENS, attn.head_dim)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(CacheError, match=r"float32.*bfloat16"):
        attn(torch.randn(BATCH, TOKENS, WIDTH), cache=kept)


def test_compiled() -> None:
    torch.compiler.reset()
    variant = VARIANTS["grouped rotary"]
    attn, (x,) = variant.layer(), variant.inputs()
    compiled = torch.compile(variant.call, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        got, want = compiled(attn, x), variant.call(attn, x)
    assert got.dtype == torch.bfloat16
    assert relative(got, want) < 6 * HALF[torch.bfloat16]


def test_half_precision_input_needs_autocast_or_a_half_precision_layer() -> None:
    attn = mh.MultiHeadAttention(WIDTH, 6, position=position.ALiBi(6))
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16)
    with pytest.raises(TypeMismatchError, match="autocast"):
        attn(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert attn(x).dtype == torch.bfloat16
