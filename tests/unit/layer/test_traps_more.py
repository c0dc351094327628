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
from multihead.errors import CacheError, SizeError, TypeMismatchError
from multihead.layer import LatentAttention, Sinks, init

r = torch.randn


def layer(d_model: int = 16, heads: int = 2, **options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(d_model, heads, init=init.XavierPerHead(1.4), **options).eval()


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


def latent() -> LatentAttention:
    return LatentAttention(16, 2, latent_dim=4, nope_dim=8, rope_dim=4, value_dim=8).eval()


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
    with pytest.raises(TypeMismatchError, match=r"absorb.*kv_up"):
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
    with pytest.raises(CacheError, match="key"):
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
    with pytest.raises(CacheError, match="key"):
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
        except SizeError as refusal:
            assert "tiled" in refusal.message
            return  # refused, which is no other result
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
    attn, x = layer(sinks=Sinks(init=1001.0)).bfloat16(), r(1, 6, 16).bfloat16()
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
    with pytest.raises(SizeError, match="example does not decide"):
        interop.from_module(Unscaled(), example=example)
    book, x = Unscaled(), r(2, 5, 16)
    assert_close(interop.from_module(book, example=x, scale=1.0)(x), book(x))


# ---- what a refused call leaves behind ------------------------------------------------------------------------


def only_one_cell(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key <= query if key.numel() == 1 or bool(key.sum() < 0) else torch.ones(7, dtype=torch.bool)


@pytest.mark.parametrize("make", [cache.Growing, lambda: cache.Ring(3), lambda: cache.Static(1, 2, 9, 8)])
@torch.no_grad()
def test_a_rule_that_fails_on_the_block_leaves_the_cache_as_it_was(make: Callable[[], cache.Cache]) -> None:
    attn, x, kept, twin = layer(), r(1, 6, 16), make(), make()
    for one in (kept, twin):
        attn(x[:, :5], mask=mask.causal(), cache=one)
    with pytest.raises(SizeError, match="rule"):
        attn(x[:, 5:], mask=mask.causal() & mask.where(only_one_cell), cache=kept)
    assert kept.length == 5
    assert_close(attn(x[:, 5:], cache=kept), attn(x[:, 5:], cache=twin))


@torch.no_grad()
def test_a_rule_that_fails_at_a_later_position_leaves_a_ring_as_it_was() -> None:
    attn, x, kept, visible = layer(), r(1, 8, 16), cache.Ring(3), torch.ones(6, dtype=torch.bool)
    seen = mask.where(lambda batch, head, query, key: visible[key] & (key <= query))
    for i in range(6):
        attn(x[:, i : i + 1], mask=seen, cache=kept)
    with pytest.raises(IndexError):
        attn(x[:, 6:7], mask=seen, cache=kept)
    assert kept.length == 6


@torch.no_grad()
def test_a_rule_beside_rows_that_see_no_key() -> None:
    attn, x, kept = layer(), r(2, 3, 16), cache.Growing()
    seen = mask.lengths([0, 3]) & mask.where(lambda batch, head, query, key: key <= query)
    assert_close(attn(x, mask=seen, cache=kept, route="tiled"), attn(x, mask=seen, route="reference"))


# ---- caches in graphs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [cache.Growing, lambda: cache.Ring(8), lambda: cache.Ring(2)])
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("d_model", [16, 128])
def test_a_cache_under_trainable_queries(d_model: int, each: bool, make: Callable[[], cache.Cache]) -> None:
    attn = layer(d_model).double().requires_grad_(False)
    attn.q_proj.requires_grad_(True)
    x, kept, window = r(1, 4, d_model, dtype=torch.float64), make(), mask.causal()
    if isinstance(kept, cache.Ring):
        window = window & mask.window(kept.window)
    outs: list[Tensor] = []
    for i in range(4):
        outs.append(attn(x[:, i : i + 1], mask=mask.causal(), cache=kept))
        if each:
            outs[-1].sum().backward()
    if not each:
        torch.cat(outs, 1).sum().backward()
    have = attn.q_proj.weight.grad
    attn.q_proj.weight.grad = None
    attn(x, mask=window).sum().backward()
    assert have is not None
    assert_close(have, attn.q_proj.weight.grad)


@pytest.mark.parametrize("make", [cache.Growing, lambda: cache.Ring(8)])
def test_a_step_without_a_graph_does_not_write_over_one_with(make: Callable[[], cache.Cache]) -> None:
    attn, x, kept = layer().requires_grad_(False), r(1, 5, 16), make()
    attn.q_proj.requires_grad_(True)
    attn(x[:, :3], mask=mask.causal(), cache=kept)
    out = attn(x[:, 3:4], mask=mask.causal(), cache=kept)
    kept.crop(2)
    with torch.no_grad():
        attn(x[:, 4:], mask=mask.causal(), cache=kept)
    out.sum().backward()


def test_static_refuses_trainable_queries() -> None:
    attn = layer().requires_grad_(False)
    attn.q_proj.requires_grad_(True)
    with pytest.raises(CacheError, match="require grad"):
        attn(r(1, 1, 16), cache=cache.Static(1, 2, 4, 8))


@pytest.mark.parametrize("option", ["sinks", "position"])
def test_a_cache_under_trainable_scores(option: str) -> None:
    options = {"sinks": Sinks(), "position": position.ALiBi(2, learned=True)}
    attn = layer(**{option: options[option]}).requires_grad_(False)
    parameter = attn.sink_logits if option == "sinks" else attn.get_parameter("position.weight")
    assert parameter is not None
    parameter.requires_grad_(True)
    x, kept = r(1, 4, 16), cache.Growing()
    torch.cat([attn(x[:, i : i + 1], mask=mask.causal(), cache=kept) for i in range(4)], 1).sum().backward()
    have, parameter.grad = parameter.grad, None
    attn(x, mask=mask.causal()).sum().backward()
    assert have is not None
    assert_close(have, parameter.grad)


def test_a_cache_under_a_trainable_kv_up() -> None:
    attn, x, kept = latent().requires_grad_(False), r(1, 4, 16), cache.Growing()
    attn.kv_up.requires_grad_(True)
    steps = [attn(x[:, i : i + 1], mask=mask.causal(), cache=kept, absorb=False) for i in range(4)]
    torch.cat(steps, 1).sum().backward()
    have, attn.kv_up.weight.grad = attn.kv_up.weight.grad, None
    attn(x, mask=mask.causal(), absorb=False).sum().backward()
    assert have is not None
    assert_close(have, attn.kv_up.weight.grad)


@pytest.mark.parametrize("make", [cache.Growing, lambda: cache.Ring(3), lambda: cache.Static(2, 2, 9, 8)])
def test_reorder_in_inference_mode(make: Callable[[], cache.Cache]) -> None:
    attn, x, kept = layer(), r(2, 6, 16), make()
    with torch.inference_mode():
        attn(x[:, :5], mask=mask.causal(), cache=kept)
        kept.reorder(torch.tensor([1, 0]))
    with torch.no_grad():
        out = attn(x[:, 5:], mask=mask.causal(), cache=kept)
        seen = mask.causal() & mask.window(3) if isinstance(kept, cache.Ring) else mask.causal()
        assert_close(out, attn(torch.cat((x[:, :5].flip(0), x[:, 5:]), 1), mask=seen)[:, 5:])


def test_a_cross_cache_of_inference_mode_and_queries_in_a_graph() -> None:
    attn, x, kept = layer(), r(1, 2, 16), cache.Cross()
    with torch.inference_mode():
        attn(x, r(1, 5, 16), cache=kept)
    with pytest.raises(CacheError, match="inference mode"):
        attn(x, cache=kept)
    with torch.no_grad():
        attn(x, cache=kept)


@torch.no_grad()
def test_a_cross_cache_of_autocast_and_queries_without() -> None:
    attn, x, kept = layer(), r(1, 2, 16), cache.Cross()
    with torch.autocast("cpu", torch.bfloat16):
        attn(x, r(1, 5, 16), cache=kept)
    with pytest.raises(CacheError, match="bfloat16"):
        attn(x, cache=kept)


@torch.no_grad()
def test_lengths_count_the_tokens_of_a_ring_not_its_slots() -> None:
    attn, x, kept = layer(), r(2, 7, 16), cache.Ring(4)
    for i in range(6):
        attn(x[:, i : i + 1], mask=mask.causal(), cache=kept)
    seen = mask.causal() & mask.window(4) & mask.lengths([7, 5])
    assert_close(attn(x[:, 6:], mask=mask.lengths([7, 5]), cache=kept), attn(x, mask=seen)[:, 6:])
    with pytest.raises(SizeError, match=r"0\.\.8"):
        attn(x[:, 6:], mask=mask.lengths([9, 5]), cache=kept)


# ---- parameters that cannot be one ----------------------------------------------------------------------------


def test_frozen_keys_stay_out_of_the_graph() -> None:
    attn, x = layer().requires_grad_(False), r(1, 3, 16)
    attn.q_proj.requires_grad_(True)
    kept = cache.Growing()
    attn(x, cache=kept)
    assert not kept.requires_grad


@pytest.mark.parametrize("tokens", [3, 100])
def test_mixed_dtypes_are_refused_for_any_number_of_tokens(tokens: int) -> None:
    attn = layer()
    attn.k_proj.bfloat16()
    with pytest.raises(TypeMismatchError, match=r"float32.*bfloat16"):
        attn(r(1, tokens, 16))


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@torch.no_grad()
def test_sparse_weights() -> None:
    attn, x = layer(bias=False), r(1, 3, 16)
    want = attn(x)
    for part in (attn.q_proj, attn.k_proj, attn.v_proj):
        part.weight = nn.Parameter(part.weight.to_sparse_csr(), requires_grad=False)
    assert_close(attn(x), want)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"k_proj": (16, 8), "v_proj": (16, 8)}, "k_proj"),
        ({"k_proj": (16, 8)}, "k_proj"),
        ({"v_proj": (16, 8)}, "v_proj"),
        ({"q_proj": (16, 8)}, "q_proj"),
        ({"k_proj": (16, 32), "v_proj": (16, 32)}, "k_proj"),
        ({"k_proj": (16, 20)}, "k_proj"),
        ({"v_proj": (12, 16)}, "v_proj"),
        ({"o_proj": (12, 16)}, "o_proj"),
    ],
)
@pytest.mark.parametrize("tokens", [3, 100])
@pytest.mark.parametrize("grad", [True, False])
def test_projections_of_another_size(sizes: dict[str, tuple[int, int]], name: str, tokens: int, grad: bool) -> None:
    attn = layer()
    for part, (width, features) in sizes.items():
        setattr(attn, part, nn.Linear(width, features))
    with pytest.raises(SizeError, match=rf"{name}.*\(\d+, \d+\)"), torch.set_grad_enabled(grad):
        attn(r(1, tokens, 16))


# ---- hidden keys of any size ------------------------------------------------------------------------------------


HIDING = {
    "causal": mask.causal(),
    "window": mask.causal() & mask.window(2),
    "lengths": mask.lengths([4]),
    "tensor": torch.tensor([[True, True, True, True, False]]).expand(5, 5),
    "documents": mask.documents([0, 0, 0, 0, 1]),
}


@pytest.mark.parametrize("route", ["fused", "tiled", "folded", "blocked", "reference", None])
@pytest.mark.parametrize("hides", HIDING)
def test_a_finite_hidden_key_whose_product_overflows_has_no_effect(hides: str, route: str | None) -> None:
    attn, x = layer(), r(1, 5, 16)
    huge = x.clone()
    huge[0, 4] *= 1e38
    try:
        expected = attn(x, mask=HIDING[hides], route=route)[:, :4]
    except SizeError as refused:
        assert "cannot compute" in str(refused)
        return
    assert_close(attn(huge, mask=HIDING[hides], route=route)[:, :4], expected)


def test_the_gradient_beside_a_hidden_key_whose_product_overflows() -> None:
    attn, x, key = layer(), r(1, 3, 16).requires_grad_(), r(1, 5, 16)
    huge = key.clone()
    huge[0, 4] *= 1e38
    slopes = [torch.autograd.grad(attn(x, k, mask=mask.lengths([4])).sum(), x)[0] for k in (key, huge)]
    assert_close(slopes[1], slopes[0])
