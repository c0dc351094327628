"""How fresh weights are drawn: bounds and spreads, the same for the same seed, whole after the meta device."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import multihead as mh
from multihead import position
from multihead.layer import QKNorm, Sinks, init

WIDTH, HEADS = 210, 7  # of 30 each
SIZES: dict[str, Any] = {"num_kv_heads": 1, "value_dim": 11, "d_key": 130, "d_value": 70, "d_out": 110}


def made(init: Any, **options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(WIDTH, HEADS, init=init, **SIZES, **options)


def fans(layer: mh.MultiHeadAttention, *, per_head: bool) -> dict[str, int]:
    """fan_in + fan_out of each projection."""
    out = {"q": 30, "k": 30, "v": 11} if per_head else {"q": 210, "k": 30, "v": 11}
    return {"q": 210 + out["q"], "k": 130 + out["k"], "v": 70 + out["v"], "o": 7 * 11 + 110}


@pytest.mark.parametrize("gain", [1.0, 1.7])
@pytest.mark.parametrize("init, per_head", [(init.XavierPerHead, True), (init.Xavier, False)])
def test_xavier_is_uniform_up_to_its_bound(init: Any, per_head: bool, gain: float) -> None:
    layer = made(init(gain))
    for name, both in fans(layer, per_head=per_head).items():
        weight = getattr(layer, f"{name}_proj").weight.detach()
        bound = gain * math.sqrt(6 / both)
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.98 * bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.07)
        assert abs(weight.mean()) < 0.05 * bound


def test_per_head_is_the_default_and_scores_do_not_depend_on_the_number_of_heads() -> None:
    torch.manual_seed(1)
    default = mh.MultiHeadAttention(64, 4)
    torch.manual_seed(1)
    said = mh.MultiHeadAttention(64, 4, init=init.XavierPerHead())
    assert torch.equal(default.q_proj.weight, said.q_proj.weight)
    spread = []
    for heads in (1, 16):
        layer = mh.MultiHeadAttention(256, heads, head_dim=16)
        x = torch.randn(512, 256)
        q, k = (p(x).unflatten(-1, (heads, 16)) for p in (layer.q_proj, layer.k_proj))
        spread.append(((q * k.roll(1, 0)).sum(-1) * layer.scale).std().item())
    assert spread[0] == pytest.approx(spread[1], rel=0.2)


def test_normal_with_depth() -> None:
    layer = made(init.Normal(0.03, layers=8))
    for name in "qkv":
        assert getattr(layer, f"{name}_proj").weight.std().item() == pytest.approx(0.03, rel=0.07)
    assert layer.o_proj.weight.std().item() == pytest.approx(0.03 / 4, rel=0.07)
    assert made(init.Normal(0.03)).o_proj.weight.std().item() == pytest.approx(0.03, rel=0.07)


def test_biases_norms_and_sinks_start_where_they_should() -> None:
    layer = made(None, qk_norm=QKNorm("layer"), sinks=Sinks(-1.5), position=position.RelativeBias(HEADS))
    assert not any(getattr(layer, f"{n}_proj").bias.any() for n in "qkvo")
    for norm in (layer.q_norm, layer.k_norm):
        assert isinstance(norm, nn.LayerNorm)
        assert (norm.weight == 1).all()
        assert not norm.bias.any()
    assert layer.sink_logits is not None
    assert (layer.sink_logits == -1.5).all()


@pytest.mark.parametrize("init", [None, init.Xavier(), init.Normal()])
def test_same_seed_same_weights(init: Any) -> None:
    layers = []
    for _ in range(2):
        torch.manual_seed(7)
        layers.append(made(init, position=position.RelativeBias(HEADS)))
    for one, other in zip(*(layer.parameters() for layer in layers), strict=True):
        assert torch.equal(one, other)
    other = made(init)
    assert not torch.equal(other.q_proj.weight, layers[0].q_proj.weight)


def test_one_draw_per_projection_in_order() -> None:
    """Documented: q, k, v, o. What is drawn does not depend on biases or on the dtype's name."""
    torch.manual_seed(7)
    layer = made(None, bias=False)
    torch.manual_seed(7)
    for name, both in fans(layer, per_head=True).items():
        weight = getattr(layer, f"{name}_proj").weight.detach()
        bound = math.sqrt(6 / both)
        assert torch.equal(weight, torch.empty_like(weight).uniform_(-bound, bound))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"qk_norm": QKNorm("layer"), "sinks": Sinks(1.0)},
        {"position": "rotary"},
        {"position": "alibi"},
        {"position": "learned"},
        {"position": "relative"},
    ],
)
def test_meta_device_then_to_empty_then_reset(options: dict[str, Any]) -> None:
    def place(device: str) -> Any:
        return {
            "rotary": lambda: position.Rotary(),
            "alibi": lambda: position.ALiBi(HEADS),
            "learned": lambda: position.ALiBi(HEADS, learned=True, device=device),
            "relative": lambda: position.RelativeBias(HEADS, device=device),
        }[options["position"]]()

    more = lambda device: {**options, "position": place(device)} if "position" in options else options
    spent = torch.get_rng_state()
    layer = made(None, device="meta", **more("meta"))
    assert all(p.is_meta for p in layer.parameters())
    assert torch.equal(torch.get_rng_state(), spent), "a layer without memory spends no random numbers"
    layer.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(torch.nan)
    torch.manual_seed(3)
    layer.reset_parameters()
    torch.manual_seed(3)
    want = made(None, **more("cpu"))
    want.reset_parameters()
    torch.manual_seed(3)
    want.reset_parameters()
    assert {n for n, _ in layer.named_parameters()} == {n for n, _ in want.named_parameters()}
    for (name, one), other in zip(layer.named_parameters(), want.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert not list(layer.buffers())


def test_the_device_context_is_heard() -> None:
    with torch.device("meta"):
        assert all(p.is_meta for p in made(None).parameters())


def test_an_init_of_ones_own() -> None:
    def ones(attn: mh.MultiHeadAttention) -> None:
        for name in "qkvo":
            nn.init.ones_(getattr(attn, f"{name}_proj").weight)

    assert (made(ones).k_proj.weight == 1).all()
