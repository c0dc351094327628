"""More small calls that once went wrong: second derivatives, replaced projections, half precision, caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead import cache, interop, mask, position

r = torch.randn


def layer(d_model: int = 16, heads: int = 2, **options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(d_model, heads, init=mh.init.XavierPerHead(1.4), **options).eval()


# ---- second derivatives -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"softcap": 3.0}, {"value_dim": 5}, {"position": position.ALiBi(2, learned=True)}, {"dropout": 0.5}],
    ids=["softcap", "value_dim", "learned", "dropout"],
)
def test_a_second_derivative_is_right_or_refused(options: dict[str, Any]) -> None:
    attn, x = layer(**options).train(), r(1, 4, 16).requires_grad_()
    out = attn(x, route="blocked")
    with pytest.raises(mh.MultiheadError, match=r"blocked.*create_graph"):
        torch.autograd.grad(out.pow(2).sum(), x, create_graph=True)
    (slope,) = torch.autograd.grad(attn(x, route="reference").pow(2).sum(), x, create_graph=True)
    assert torch.autograd.grad(slope.pow(2).sum(), attn.q_proj.weight)[0].isfinite().all()


# ---- projections that are more than a matrix ----------------------------------------------------------


def latent() -> mh.LatentAttention:
    return mh.LatentAttention(16, 2, latent_dim=4, nope_dim=8, rope_dim=4, value_dim=8).eval()


def patch_forward(up: nn.Linear) -> None:
    up.forward = lambda c: 2 * nn.Linear.forward(up, c)  # pyright: ignore[reportAttributeAccessIssue]


def add_bias(up: nn.Linear) -> None:
    up.bias = nn.Parameter(torch.ones(up.out_features))


def hook_forward(up: nn.Linear) -> None:
    up.register_forward_hook(lambda up, inputs, out: 2 * out)


def hook_backward(up: nn.Linear) -> None:
    up.register_full_backward_hook(lambda up, inputs, outputs: None)


@pytest.mark.parametrize("change", [patch_forward, add_bias, hook_forward, hook_backward])
@torch.no_grad()
def test_latent_attention_calls_a_kv_up_that_is_more_than_a_matrix(change: Callable[[nn.Linear], None]) -> None:
    attn, x = latent(), r(1, 40, 16)
    change(attn.kv_up)
    kept = cache.Growing()
    steps = [attn(x[:, i : i + 1], mask=mask.causal(), cache=kept) for i in range(40)]
    assert_close(torch.cat(steps, 1), attn(x, mask=mask.causal(), absorb=False))
    with pytest.raises(mh.TypeMismatchError, match=r"absorb.*kv_up"):
        attn(x, absorb=True)


def test_a_global_hook_sees_kv_up() -> None:
    attn = latent()
    assert attn._absorbs(1, 1000)
    with nn.modules.module.register_module_forward_hook(lambda module, inputs, out: None):
        assert not attn._absorbs(1, 1000)


def test_a_patch_of_the_class_is_not_bypassed(monkeypatch: pytest.MonkeyPatch) -> None:
    attn, x, plain = layer(bias=False), r(1, 3, 16), nn.Linear.forward
    heads = attn(x, ask="heads").heads
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: 0 * plain(self, x))
    assert heads.any()
    assert not attn(x, ask="heads").heads.any()


@pytest.mark.parametrize("buffer", [True, False])
def test_a_bias_that_is_no_parameter(buffer: bool) -> None:
    attn, x = layer(), r(1, 3, 16)
    want, bias = attn(x), attn.q_proj.bias.detach() + 1
    del attn.q_proj.bias
    if buffer:
        attn.q_proj.register_buffer("bias", bias)
    else:
        attn.q_proj.bias = bias  # pyright: ignore[reportAttributeAccessIssue]
    with torch.no_grad():
        whole = layer()
        whole.load_state_dict({**attn.state_dict(), "q_proj.bias": bias})
    assert_close(attn(x), whole(x))
    assert not torch.equal(attn(x), want)


# ---- Cross ------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_filled_cross_cache_refuses_the_query_as_key() -> None:
    attn, kept, x = layer(), cache.Cross(), r(1, 2, 16)
    attn(x, r(1, 5, 16), cache=kept)
    with pytest.raises(mh.CacheError, match="key"):
        attn(x, x, cache=kept)


@torch.no_grad()
def test_a_cross_cache_is_filled_from_the_query() -> None:
    attn, kept, x = layer(), cache.Cross(), r(1, 3, 16)
    for _ in range(2):
        assert_close(attn(x, x, cache=kept), attn(x))


@torch.inference_mode()
def test_a_cross_cache_notices_changed_keys_in_inference_mode() -> None:
    attn, kept, x, key = layer(), cache.Cross(), r(1, 2, 16), r(1, 5, 16)
    key[0, 0, 0] = torch.nan
    attn(x, key, cache=kept)
    attn(x, key, cache=kept)
    key[0, 1] += 1
    with pytest.raises(mh.CacheError, match="key"):
        attn(x, key, cache=kept)


# ---- integers that wrap around ----------------------------------------------------------------------------


POSITIONS = {
    "alibi": lambda: position.ALiBi(2),
    "relative": lambda: position.RelativeBias(2),
    "rotary": position.Rotary,
    "ntk": lambda: position.Rotary(scaling=position.DynamicNTK(2.0, original=64)),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.uint16])
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_of_any_integer_dtype(name: str, dtype: torch.dtype) -> None:
    attn, x, at = layer(position=POSITIONS[name]()), r(1, 4, 16), torch.tensor([0, 127, 3, 126])
    assert_close(attn(x, positions=at.to(dtype)), attn(x, positions=at))


def test_a_position_bias_of_small_integers() -> None:
    at = torch.tensor([[-100, 127, 3, 126]])
    for bias in (position.ALiBi(2), position.RelativeBias(2)):
        assert_close(bias.bias(at.to(torch.int8), at.to(torch.int8)), bias.bias(at, at))


def test_ids_with_equal_bytes_are_other_documents() -> None:
    attn, x, ids = layer(), r(1, 4, 16), torch.tensor([[0, 0, -1, -1]], dtype=torch.int8)
    for documents in (ids, ids.view(torch.uint8)):
        known = documents.long()
        same = (known[:, :, None] == known[:, None, :]) & (known >= 0)[:, None, :]
        assert_close(attn(x, mask=mask.documents(documents)), attn(x, mask=mask.tensor(same)))


# ---- a bias in half precision -------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["fused", "tiled", "folded", "blocked"])
@pytest.mark.parametrize(("dtype", "bias"), [(torch.bfloat16, 1000.0), (torch.float16, -1e9)])
@torch.no_grad()
def test_the_route_does_not_change_a_large_bias(dtype: torch.dtype, bias: float, route: str) -> None:
    attn, x = layer().to(dtype), r(1, 24, 16).to(dtype)
    scores = mask.additive(bias + r(1, 2, 4, 24) * (bias > 0))
    kept: list[Tensor] = []
    for way in (route, "reference"):
        try:
            kept.append(attn(x[:, :4], x, mask=scores, route=way))
        except mh.SizeError as refusal:
            assert "tiled" in refusal.message
            pytest.skip("not by this route")
    assert kept[1].any()
    assert_close(kept[0], kept[1], rtol=0.02, atol=0.02)


@torch.no_grad()
def test_alibi_of_late_keys_in_bfloat16() -> None:
    """BLOOM's form of it, slope · key, is in the thousands."""
    attn, x = layer().bfloat16(), r(1, 8, 16).bfloat16()
    scores = mask.additive((torch.arange(4000, 4008) * 0.7).expand(8, 8)) & mask.causal()
    want = attn(x, mask=scores, route="reference")
    for route in ("fused", "tiled", "blocked"):
        assert_close(attn(x, mask=scores, route=route), want, rtol=0.02, atol=0.02)


@torch.no_grad()
def test_sinks_beside_a_bias_in_half_precision() -> None:
    attn, x = layer(sinks=mh.Sinks(init=1001.0)).bfloat16(), r(1, 6, 16).bfloat16()
    scores = mask.additive(torch.full((6, 6), 1001.0))
    assert_close(attn(x, mask=scores), attn(x, mask=scores, route="reference"), rtol=0.02, atol=0.02)


# ---- examples that prove nothing ----------------------------------------------------------------------------


class Unscaled(nn.Module):
    """A book's attention without 1 / √head_dim."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 4
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (4, 4)).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v))
        return self.W_o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    "example", [torch.zeros(1, 4, 16), r(1, 1, 16), r(1, 1, 16).expand(1, 4, 16), 1e-4 * r(1, 4, 16)],
    ids=["zeros", "one token", "equal tokens", "tiny"],
)  # fmt: skip
def test_an_example_that_proves_nothing_is_refused(example: Tensor) -> None:
    with pytest.raises(mh.SizeError, match="example does not decide"):
        interop.from_module(Unscaled(), example=example)
    book, x = Unscaled(), r(2, 5, 16)
    assert_close(interop.from_module(book, example=x, scale=1.0)(x), book(x))
