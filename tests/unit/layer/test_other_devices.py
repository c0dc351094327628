"""The path of an accelerator, shown on the meta device: every tensor is on one device, and no value is read.

An operation on a meta and a CPU tensor raises, and so does reading a value, which on CUDA would be a host sync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import multihead as mh
from multihead import cache, mask, position
from multihead.layer import QKNorm, Sinks
from multihead.layer.latent import LatentAttention

WIDTH, HEADS, BATCH = 60, 5, 3
LENGTHS = [7, 3, 0]


def layer(**options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(WIDTH, HEADS, device="meta", **options).eval()


def tokens(count: int = 7) -> Tensor:
    return torch.empty(BATCH, count, WIDTH, device="meta")


def on_meta(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


MASKS: dict[str, Callable[[], mask.Mask]] = {
    "everything": mask.everything,
    "causal": mask.causal,
    "window": lambda: mask.window(3, first=1),
    "lengths": lambda: mask.causal() & mask.lengths(LENGTHS),
    "ragged": lambda: mask.causal() & mask.ragged(LENGTHS),
    "documents": lambda: mask.causal() & mask.documents([0, 0, 0, 1, 1, 1, 1]),
    "offsets": lambda: mask.documents(offsets=[0, 3, 7]),
    "prefix": lambda: mask.prefix([3, 2, 1]),
    "tensor": lambda: mask.tensor(on_meta(torch.bool, 7, 7)),
    "additive": lambda: mask.additive(on_meta(torch.float32, 7, 7)),
    "padding on the device": lambda: mask.padding(on_meta(torch.bool, BATCH, 7)),
    "lengths on the device": lambda: mask.lengths(on_meta(torch.long, BATCH)),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    with torch.no_grad():
        out = layer()(tokens(), mask=MASKS[name]())
    assert (out.device.type, out.shape) == ("meta", (BATCH, 7, WIDTH))


OPTIONS: dict[str, dict[str, Any]] = {
    "grouped": {"num_kv_heads": 1},
    "uneven groups": {"kv_of_head": [0, 0, 0, 1, 1]},
    "wide keys": {"value_dim": 8},
    "softcap": {"softcap": 5.0},
    "sinks": {"sinks": Sinks()},
    "qk-norm": {"qk_norm": QKNorm()},
    "rotary": {"position": position.Rotary()},
    "dynamic NTK": {"position": position.Rotary(scaling=position.DynamicNTK(2.0, 4))},
    "ALiBi": {"position": position.ALiBi(HEADS)},
    "relative bias": {"position": position.RelativeBias(HEADS, device="meta")},
    "dropout": {"dropout": 0.1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str) -> None:
    with torch.no_grad():
        out = layer(**OPTIONS[name]).train("dropout" in OPTIONS[name])(tokens(), mask=mask.causal())
    assert (out.device.type, out.shape) == ("meta", (BATCH, 7, WIDTH))


@pytest.mark.parametrize("grad", [False, True])
def test_training_draws_dropout_on_the_device(grad: bool) -> None:
    attn = layer(dropout=0.1).train()
    with torch.set_grad_enabled(grad):
        out = attn(tokens(), mask=mask.causal())
    if grad:
        out.sum().backward()
        assert attn.q_proj.weight.grad is not None
        assert attn.q_proj.weight.grad.device.type == "meta"
    assert out.device.type == "meta"


CACHES: dict[str, Callable[[], cache.Cache]] = {
    "growing": cache.Growing,
    "static": lambda: cache.Static(BATCH, HEADS, 24, WIDTH // HEADS, device="meta"),
    "ring": lambda: cache.Ring(4),
}


@pytest.mark.parametrize("name", CACHES)
def test_decoding(name: str) -> None:
    """Steps of one token, rows of different lengths, and a chunk that overflows the ring."""
    attn, kept = layer(position=position.Rotary()), CACHES[name]()
    with torch.no_grad():
        attn(tokens(5), mask=mask.causal(), cache=kept)
        for _ in range(3):
            attn(tokens(1), mask=mask.causal(), cache=kept)
        attn(tokens(3), mask=mask.causal() & mask.ragged([3, 1, 2]), cache=kept)
        out = attn(tokens(1), mask=mask.causal(), cache=kept)
    assert (out.device.type, out.shape) == ("meta", (BATCH, 1, WIDTH))


def test_cross_attention_with_a_cache() -> None:
    attn, kept, memory = layer(), cache.Cross(), tokens(9)
    with torch.no_grad():
        attn(tokens(3), memory, cache=kept)
        assert attn(tokens(1), memory, cache=kept).shape == (BATCH, 1, WIDTH)


def test_latent_attention() -> None:
    attn = LatentAttention(WIDTH, HEADS, latent_dim=8, nope_dim=4, rope_dim=4, value_dim=4, device="meta").eval()
    with torch.no_grad():
        assert attn(tokens(), mask=mask.causal()).shape == (BATCH, 7, WIDTH)


def test_weights_and_lse() -> None:
    with torch.no_grad():
        found = layer()(tokens(), mask=mask.causal(), ask=("weights", "lse"))
    assert found.weights is not None
    assert found.lse is not None
    assert (found.weights.shape, found.lse.shape) == ((BATCH, HEADS, 7, 7), (BATCH, HEADS, 7))


def test_explain_names_the_guard() -> None:
    assert "cleaned on the device" in str(layer().explain(tokens(), mask=mask.causal()))
    assert "none needed" in str(layer().explain(tokens()))
    on_cpu = mh.MultiHeadAttention(WIDTH, HEADS).eval()
    assert "the output is read" in str(on_cpu.explain(torch.randn(2, 7, WIDTH), mask=mask.causal()))
