"""x-transformers' Attention, where the two mean the same. Its query head h reads kv head h % kv_heads."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import multihead as mh
from multihead import mask, position
from multihead.layer import Sinks

theirs = import_module("x_transformers.x_transformers")

BATCH, TOKENS, WIDTH, HEADS, DIM = 2, 11, 26, 6, 8
LENGTHS = [11, 5]


def pair(ours: dict[str, Any] | None = None, **options: Any) -> tuple[Any, mh.MultiHeadAttention]:
    """One of each with the same weights, logits loud."""
    kv = options.get("kv_heads", HEADS)
    value_dim = options.get("value_dim_head", DIM)
    module = theirs.Attention(WIDTH, dim_head=DIM, heads=HEADS, **options)
    layer = mh.MultiHeadAttention(
        WIDTH, HEADS, head_dim=DIM, value_dim=value_dim, bias=False,
        kv_of_head=[h % kv for h in range(HEADS)], num_kv_heads=kv, **(ours or {}),
    )  # fmt: skip
    with torch.no_grad():
        for name, linear in (("q", module.to_q), ("k", module.to_k), ("v", module.to_v), ("o", module.to_out)):
            linear.weight.normal_(std=1.5 / linear.in_features**0.5)
            getattr(layer, f"{name}_proj").weight.copy_(linear.weight)
    return module, layer


def agree(module: Any, layer: mh.MultiHeadAttention, seen: mask.Mask | None, **call: Any) -> None:
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    want, got = module(x, **call), layer(x, mask=seen)
    assert_close(got, want)
    towards = torch.randn_like(want) / want.numel() ** 0.5
    mine, other = (torch.autograd.grad((out * towards).sum(), x)[0] for out in (got, want))
    assert_close(mine, other)


@pytest.fixture
def real() -> Tensor:
    return torch.arange(TOKENS) < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"kv_heads": 1}, {"kv_heads": 2}, {"kv_heads": 3}, {"value_dim_head": 5}])
def test_groups_and_sizes(options: dict[str, Any], causal: bool, flash: bool) -> None:
    module, layer = pair(causal=causal, flash=flash, **options)
    agree(module, layer, mask.causal() if causal else None)


def test_its_groups_are_not_ours() -> None:
    module, layer = pair(kv_heads=2)
    usual = mh.MultiHeadAttention(WIDTH, HEADS, head_dim=DIM, num_kv_heads=2, bias=False)
    usual.load_state_dict(layer.state_dict())
    x = torch.randn(BATCH, TOKENS, WIDTH)
    assert (usual(x) - module(x)).abs().max() > 0.1


@pytest.mark.parametrize("flash", [False, True])
def test_key_padding(flash: bool, real: Tensor) -> None:
    module, layer = pair(flash=flash)
    agree(module, layer, mask.lengths(LENGTHS), context_mask=real)
    agree(module, layer, mask.padding(real), context_mask=real)


def test_a_mask_of_ones_own() -> None:
    module, layer = pair()
    sees = torch.rand(TOKENS, TOKENS) < 0.5
    sees.fill_diagonal_(True)
    agree(module, layer, mask.tensor(sees), attn_mask=sees)


def test_a_window() -> None:
    module, layer = pair(causal=True, max_attend_past=3)
    agree(module, layer, mask.causal() & mask.window(4))


def test_softcap() -> None:
    module, layer = pair({"softcap": 2.5}, causal=True, softclamp_logits=True, logit_softclamp_value=2.5)
    agree(module, layer, mask.causal())


def test_sinks() -> None:
    module, layer = pair({"sinks": Sinks()}, causal=True, head_learned_sink=True)
    with torch.no_grad():
        module.attend.head_attn_sink.normal_(1.0)
        assert layer.sink_logits is not None
        layer.sink_logits.copy_(module.attend.head_attn_sink)
    agree(module, layer, mask.causal())


@pytest.mark.parametrize("dim", [DIM, 4])
def test_rotary_is_interleaved_and_may_be_partial(dim: int) -> None:
    module, layer = pair({"position": position.Rotary(interleaved=True, dim=dim)}, causal=True)
    agree(module, layer, mask.causal(), rotary_pos_emb=theirs.RotaryEmbedding(dim).forward_from_seq_len(TOKENS))


def test_alibi() -> None:
    module, layer = pair({"position": position.ALiBi(HEADS)}, causal=True)
    agree(module, layer, mask.causal(), rel_pos=theirs.AlibiPositionalBias(HEADS))


@pytest.mark.parametrize("causal", [False, True])
def test_relative_bias(causal: bool) -> None:
    bias = position.RelativeBias(HEADS, buckets=10, max_distance=12, bidirectional=not causal)
    module, layer = pair({"position": bias}, causal=causal)
    other = theirs.RelativePositionBias(1.0, causal=causal, num_buckets=10, max_distance=12, heads=HEADS)
    with torch.no_grad():
        other.relative_attention_bias.weight.copy_(bias.weight.normal_())
    agree(module, layer, mask.causal() if causal else None, rel_pos=other)


def test_cross_attention(real: Tensor) -> None:
    module, layer = pair(kv_heads=2)
    x, context = torch.randn(BATCH, 3, WIDTH), torch.randn(BATCH, TOKENS, WIDTH)
    want = module(x, context=context, context_mask=real)
    assert_close(layer(x, context, mask=mask.lengths(LENGTHS)), want)


def test_the_weights_are_the_same() -> None:
    module, layer = pair(causal=True)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    _, said = module(x, return_intermediates=True)
    assert_close(layer(x, mask=mask.causal(), ask="weights").weights, said.post_softmax_attn)
