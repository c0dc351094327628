"""Gradients against finite differences in fp64: each variant, each route that can do it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

import multihead as mh
from multihead import mask, position
from multihead.errors import SizeError
from multihead.layer import QKNorm, Sinks, init
from multihead.layer._plan import ROUTES

BATCH, TOKENS, WIDTH = 2, 5, 7

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"num_heads": 4, "num_kv_heads": 2},
    "uneven": {"num_heads": 3, "kv_of_head": [1, 0, 1]},
    "wide values": {"value_dim": 5},
    "narrow values": {"value_dim": 1},
    "rotary": {"position": lambda: position.Rotary(50.0)},
    "rotary interleaved, normed after": {
        "position": lambda: position.Rotary(50.0, interleaved=True, dim=2),
        "qk_norm": QKNorm(when="after"),
    },
    "layer norm": {"qk_norm": QKNorm("layer")},
    "alibi": {"position": lambda: position.ALiBi(2)},
    "learned alibi": {"position": lambda: position.ALiBi(2, learned=True)},
    "relative bias": {"position": lambda: position.RelativeBias(2, buckets=6, max_distance=7)},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": Sinks(0.5)},
    "softcap and sinks": {"softcap": 1.5, "sinks": Sinks(0.5), "num_heads": 4, "num_kv_heads": 2},
    "scale": {"scale": 0.9},
}

MASKS: dict[str, Any] = {
    "none": lambda: None,
    "causal": mask.causal,
    "window": lambda: mask.window(2, 1, first=1),
    "ragged": lambda: mask.causal() & mask.ragged([2, 5]),  # packed
    "empty row": lambda: mask.lengths([3, 0]),
    "documents": lambda: mask.causal() & mask.documents(offsets=[0, 2, 5]),
}


def layer_of(num_heads: int = 2, **options: Any) -> mh.MultiHeadAttention:
    options = {k: v() if k == "position" else v for k, v in options.items()}
    layer = mh.MultiHeadAttention(
        WIDTH, num_heads, head_dim=4, **options, init=init.XavierPerHead(1.4), dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return layer.double()


def check(layer: mh.MultiHeadAttention, inputs: dict[str, Tensor], **call: Any) -> set[str | None]:
    """gradcheck of the inputs and all parameters by every route that can: one random direction each."""
    parameters = dict(layer.named_parameters())
    found: set[str | None] = set()

    def run(*tensors: Tensor, route: str | None) -> Tensor:
        given = dict(zip([*inputs, *parameters], tensors, strict=True))
        weights = {name: given[name] for name in parameters}
        rest = {name: given[name] for name in inputs if name not in ("x", "key", "value")}
        args = [given[name] for name in ("x", "key", "value") if name in inputs]
        return torch.func.functional_call(layer, weights, tuple(args), {**call, **rest, "route": route})

    for route in [None, *ROUTES]:
        this = functools.partial(run, route=route)
        try:
            this(*inputs.values(), *parameters.values())
        except SizeError as refusal:
            assert "cannot compute this" in refusal.message
            continue
        torch.autograd.gradcheck(this, [*inputs.values(), *parameters.values()], fast_mode=True)
        found.add(route)
    assert found >= {None, "reference", "blocked"}
    return found


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, WIDTH, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str) -> None:
    check(layer_of(**VARIANTS[variant]), {"x": tokens(BATCH, TOKENS)}, mask=mask.causal())


@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind: str) -> None:
    layer = layer_of(num_heads=4, num_kv_heads=2, sinks=Sinks(0.2), value_dim=3)
    check(layer, {"x": tokens(BATCH, TOKENS)}, mask=MASKS[kind]())


@pytest.mark.parametrize("bias", [None, position.ALiBi, position.RelativeBias])
def test_packed_rows_with_a_bias(bias: Any) -> None:
    layer = layer_of(position=(lambda: None) if bias is None else (lambda: bias(2)))
    check(layer, {"x": tokens(BATCH, TOKENS)}, mask=mask.ragged([2, 5]))


@pytest.mark.parametrize(
    "shape", [(TOKENS, TOKENS), (BATCH, 1, TOKENS), (1, 2, 1, TOKENS), (BATCH, 2, TOKENS, TOKENS)]
)
def test_an_additive_mask_is_trainable(shape: tuple[int, ...]) -> None:
    layer, x = layer_of(), tokens(BATCH, TOKENS)
    scores = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    check(layer, {"x": x, "mask": scores})


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_an_additive_mask_under_softcap_with_hidden_cells(softcap: float | None) -> None:
    layer, x = layer_of(softcap=softcap), tokens(BATCH, TOKENS)
    scores = torch.randn(TOKENS, TOKENS, dtype=torch.float64)
    hidden = torch.rand(TOKENS, TOKENS) < 0.3
    hidden[2] = True  # a row that sees nothing
    scores = scores.masked_fill(hidden, -torch.inf).requires_grad_()
    out = layer(x, mask=mask.additive(scores) & mask.causal())
    (grad,) = torch.autograd.grad(out.square().sum(), scores)
    assert grad.isfinite().all()
    assert not grad[hidden].any()
    assert not grad.triu(1).any()
    assert grad.any()


@pytest.mark.parametrize("shape", [(2,), (BATCH, 2), (BATCH, 2, TOKENS)])
@pytest.mark.parametrize("kind", ["none", "ragged"])
def test_the_head_gate(shape: tuple[int, ...], kind: str) -> None:
    gate = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    check(layer_of(), {"x": tokens(BATCH, TOKENS), "head_gate": gate}, mask=MASKS[kind]())


def test_cross_attention() -> None:
    inputs = {"x": tokens(BATCH, 3), "key": tokens(BATCH, TOKENS), "value": tokens(BATCH, TOKENS)}
    check(layer_of(num_heads=4, num_kv_heads=2, sinks=Sinks()), inputs, mask=mask.causal())


@pytest.mark.parametrize("name", ["weights", "lse", "heads"])
def test_what_was_asked_for(name: str) -> None:
    layer = layer_of(num_heads=4, num_kv_heads=2, sinks=Sinks(0.4), position=lambda: position.ALiBi(4))
    x = tokens(BATCH, TOKENS)
    run = lambda x: getattr(layer(x, mask=mask.causal(), ask=name), name)
    torch.autograd.gradcheck(run, [x], fast_mode=True)


@pytest.mark.parametrize("variant", ["plain", "grouped", "softcap and sinks", "relative bias", "wide values"])
def test_dropout_with_a_fixed_seed_is_a_smooth_function(variant: str) -> None:
    options = dict(VARIANTS[variant])
    layer = layer_of(**options, dropout=0.4)
    x = tokens(BATCH, TOKENS)
    for route in (None, "reference", "blocked"):

        def run(x: Tensor, *_: Tensor, route: str | None = route) -> Tensor:
            torch.manual_seed(5)
            return layer(x, mask=mask.causal(), route=route)

        torch.autograd.gradcheck(run, [x, *layer.parameters()], fast_mode=True)
