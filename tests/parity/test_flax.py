"""flax's nnx.MultiHeadAttention: same numbers from the same weights."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import multihead as mh
from multihead import cache, mask
from multihead.layer import QKNorm, init

jax = import_module("jax")
nnx = import_module("flax.nnx")

BATCH, TOKENS, WIDTH, HEADS, DIM = 2, 11, 26, 6, 5


def to_jax(x: Tensor) -> Any:
    return jax.numpy.asarray(x.detach().numpy())


def pair(
    kv_heads: int = HEADS, *, bias: bool = True, norm: bool = False, d_key: int = WIDTH
) -> tuple[Any, mh.MultiHeadAttention]:
    layer = mh.MultiHeadAttention(
        WIDTH, HEADS, num_kv_heads=kv_heads, head_dim=DIM, d_key=d_key, d_out=17, bias=bias,
        qk_norm=QKNorm("layer") if norm else None, init=init.XavierPerHead(1.4),
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith(("proj.bias", "norm.weight")):
                parameter.add_(torch.randn(parameter.shape), alpha=0.4)
    module = nnx.MultiHeadAttention(
        HEADS, WIDTH, qkv_features=HEADS * DIM, out_features=17, num_kv_heads=kv_heads, in_kv_features=d_key,
        use_bias=bias, normalize_qk=norm, decode=False, rngs=nnx.Rngs(0),
    )  # fmt: skip
    for name, part, heads in (("q", "query", HEADS), ("k", "key", kv_heads), ("v", "value", kv_heads)):
        linear, theirs = getattr(layer, f"{name}_proj"), getattr(module, part)
        theirs.kernel[...] = to_jax(linear.weight.T.unflatten(1, (heads, DIM)))
        if bias:
            theirs.bias[...] = to_jax(linear.bias.unflatten(0, (heads, DIM)))
    module.out.kernel[...] = to_jax(layer.o_proj.weight.T.unflatten(0, (HEADS, DIM)))
    if bias:
        module.out.bias[...] = to_jax(layer.o_proj.bias)
    if norm:
        module.query_ln.scale[...] = to_jax(layer.get_submodule("q_norm").weight)
        module.key_ln.scale[...] = to_jax(layer.get_submodule("k_norm").weight)
    return module, layer


def ran(module: Any, *inputs: Tensor, **call: Any) -> Tensor:
    return torch.tensor(jax.device_get(module(*map(to_jax, inputs), **call)))


@pytest.mark.parametrize("options", [{"kv_heads": 2}, {"norm": True, "bias": False}])
def test_self_attention(options: dict[str, Any]) -> None:
    module, layer = pair(**options)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    assert_close(layer(x), ran(module, x))
    sees = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    assert_close(layer(x, mask=mask.causal()), ran(module, x, mask=to_jax(sees[None, None])))


def test_a_mask_per_head_and_row() -> None:
    module, layer = pair(kv_heads=3)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    sees = torch.rand(BATCH, HEADS, TOKENS, TOKENS) < 0.6
    sees |= torch.eye(TOKENS, dtype=torch.bool)
    assert_close(layer(x, mask=sees), ran(module, x, mask=to_jax(sees)))


def test_cross_attention() -> None:
    module, layer = pair(kv_heads=2, d_key=19)
    x, key, value = torch.randn(BATCH, 3, WIDTH), torch.randn(BATCH, TOKENS, 19), torch.randn(BATCH, TOKENS, 19)
    assert_close(layer(x, key, value), ran(module, x, key, value))
    real = torch.arange(TOKENS) < torch.tensor([11, 5])[:, None]
    want = ran(module, x, key, mask=to_jax(real[:, None, None].expand(-1, HEADS, 3, -1)))
    assert_close(layer(x, key, mask=mask.lengths([11, 5])), want)


def test_gradients() -> None:
    module, layer = pair(kv_heads=2)
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    towards = torch.randn(BATCH, TOKENS, 17) / (BATCH * TOKENS * 17) ** 0.5
    (mine,) = torch.autograd.grad((layer(x) * towards).sum(), x)
    theirs = jax.grad(lambda x: (module(x) * to_jax(towards)).sum())(to_jax(x))
    assert_close(mine, torch.tensor(jax.device_get(theirs)))


def test_decoding_with_its_cache_and_with_ours() -> None:
    module, layer = pair()
    x = torch.randn(BATCH, TOKENS, WIDTH)
    module.init_cache((BATCH, TOKENS, WIDTH))
    kept = cache.Growing()
    with torch.no_grad():
        for one in x.split(1, dim=1):
            assert_close(layer(one, mask=mask.causal(), cache=kept), ran(module, one, decode=True))
