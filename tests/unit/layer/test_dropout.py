"""Dropout on the weights: kept in the right share, rescaled by it, mean preserved, reproducible, off in eval."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead import mask, position
from multihead.layer import Sinks

BATCH, TOKENS, HEADS = 3, 37, 5
ROUTES = [None, "reference", "blocked"]


def showing(dropout: float, **options: Any) -> mh.MultiHeadAttention:
    """A layer whose heads return their weights: the value of key j is the j-th unit vector."""
    layer = mh.MultiHeadAttention(
        13, HEADS, num_kv_heads=1, head_dim=4, value_dim=TOKENS, d_value=TOKENS, bias=False,
        dropout=dropout, **options,
    )  # fmt: skip
    with torch.no_grad():
        layer.v_proj.weight.copy_(torch.eye(TOKENS))
    return layer


def used(layer: mh.MultiHeadAttention, seen: mask.Mask | None, route: str | None) -> tuple[Tensor, Tensor]:
    """(weights as they were used, weights before dropout)"""
    x = torch.randn(BATCH, TOKENS, 13, generator=torch.Generator().manual_seed(1))
    values = torch.eye(TOKENS).expand(BATCH, -1, -1)
    got = layer(x, x, values, mask=seen, route=route, ask=["weights", "heads"])
    return got.heads, got.weights


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"softcap": 2.0}, {"sinks": Sinks(1.0)}, {"position": position.ALiBi(HEADS)}],
)
def test_each_weight_is_dropped_or_rescaled(route: str | None, grad: bool, options: dict[str, Any]) -> None:
    dropout = 0.3
    with torch.set_grad_enabled(grad):
        after, before = used(showing(dropout, **options), None, route)
    ratio = after / before
    kept = ratio > 0.5
    assert not ratio[~kept].any()
    assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / (1 - dropout)), rtol=1e-4, atol=1e-4)
    count = kept.numel()
    assert abs(kept.float().mean().item() - (1 - dropout)) < 4 * math.sqrt(dropout * (1 - dropout) / count)


@pytest.mark.parametrize("route", ROUTES)
def test_hidden_keys_stay_hidden(route: str | None) -> None:
    """Keras once lost its causal mask when dropout was on."""
    after, _ = used(showing(0.2), mask.causal() & mask.lengths([37, 11, 0]), route)
    assert not after.triu(1).any()
    assert not after[1, :, :, 11:].any()
    assert not after[2].any()
    assert after[0].any()


@pytest.mark.parametrize("dropout", [0.0, 1e-7, 1e-5, 0.1, 0.5, 0.9, 0.99999, 1.0])
def test_the_mean_is_preserved_over_draws(dropout: float) -> None:
    layer = showing(dropout)
    with torch.no_grad():
        total = sum((used(layer, None, "blocked")[0] for _ in range(20)), torch.zeros(()))
        before = used(layer, None, "blocked")[1]
    assert isinstance(total, Tensor)
    if dropout == 1.0:
        assert not total.any()
        return
    draws = 20 * before.numel()
    spread = math.sqrt(dropout / (1 - dropout) / draws) * before.square().mean().sqrt().item()
    assert abs((total / 20 - before).mean().item()) <= 5 * spread + 1e-7


def test_draws_are_independent_over_rows_heads_and_calls() -> None:
    layer = showing(0.5)
    one, two = (used(layer, None, None)[0] > 0 for _ in range(2))
    cells = one.numel()
    slack = 5 * math.sqrt(0.25 / cells)
    assert abs((one == two).float().mean().item() - 0.5) < slack
    for axis in range(4):
        along = (one == one.roll(1, axis)).float().mean().item()
        assert abs(along - 0.5) < 2 * slack, f"neighbours along axis {axis} agree"


@pytest.mark.parametrize("route", ROUTES)
def test_manual_seed_reproduces(route: str | None) -> None:
    layer = showing(0.4)
    outs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outs.append(used(layer, mask.causal(), route)[0])
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("route", ROUTES)
def test_the_backward_uses_the_weights_of_the_forward(route: str | None) -> None:
    """d(sum over head outputs) / d(value j) is the column sum of the weights as they were used."""
    layer = showing(0.5)
    x, values = torch.randn(BATCH, TOKENS, 13), torch.eye(TOKENS).repeat(BATCH, 1, 1).requires_grad_()
    heads = layer(x, x, values, mask=mask.causal(), route=route, ask="heads").heads
    (grad,) = torch.autograd.grad(heads.sum(), values)
    assert_close(grad, heads.detach().sum((1, 2))[..., None].expand_as(grad))


def test_eval_drops_nothing() -> None:
    layer = showing(0.9).eval()
    for route in [*ROUTES, "fused"]:
        after, before = used(layer, None, route)
        assert_close(after, before)


def test_routes_agree_in_the_mean() -> None:
    layer = showing(0.5)
    means = []
    with torch.no_grad():
        for route in ROUTES:
            draws = [used(layer, mask.causal() & mask.window(9), route)[0] for _ in range(50)]
            means.append(torch.stack(draws).mean(0))
    clean = used(layer.eval(), mask.causal() & mask.window(9), None)[0]
    for mean in means:
        assert (mean - clean).abs().max() < 6 * math.sqrt(1 / 50) * clean.max()
        assert abs((mean - clean).sum().item()) < 5 * math.sqrt(clean.square().sum().item() / 50)


def test_gradients_are_finite_for_rows_that_see_nothing() -> None:
    layer = mh.MultiHeadAttention(12, 3, dropout=0.5, sinks=Sinks())
    nn.init.normal_(layer.o_proj.bias)
    x = torch.randn(2, 5, 12, requires_grad=True)
    out = layer(x, mask=mask.lengths([5, 0]))
    assert_close(out[1], layer.o_proj.bias.expand(5, -1))
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.square().sum(), [x, *layer.parameters()]))
