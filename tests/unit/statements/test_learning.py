"""Gradients, updates, curvature and convergence: closed forms, brute-force twins, and the edges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import multihead as mh
from multihead.statements import toy_layer
from multihead.statements.chain_rule import chain_rule, query_gradient
from multihead.statements.collect_samples import layer_samples
from multihead.statements.curvature import curvature
from multihead.statements.gradient_decay import STEPS, decay_exponent, gradient_decay
from multihead.statements.hessian_at_minimum import FLAT, hessian_at_minimum
from multihead.statements.layer_sample import LayerSample
from multihead.statements.sgd_step import sgd_step
from multihead.statements.statement import Result
from multihead.statements.toy_layer import Loss, ToyLayer, Weights

HESSIAN = "multihead.statements.hessian_at_minimum.curvature"
DECAY = "multihead.statements.gradient_decay"


def subject(tokens: int = 7, **options: int | bool) -> LayerSample:
    attn = mh.MultiHeadAttention(12, 3, **options)  # type: ignore[arg-type]
    return next(iter(layer_samples(attn, torch.randn(3, tokens, 12))))


@pytest.mark.parametrize("causal", [False, True])
def test_the_small_copy_is_the_layer(causal: bool) -> None:
    """All heads, all tokens: its output has the norms and products of the layer's own."""
    attn = mh.MultiHeadAttention(30, 6, num_kv_heads=2)
    for name in ("q_proj", "k_proj", "v_proj"):
        torch.nn.init.normal_(getattr(attn, name).bias)
    x = torch.randn(2, 5, 30)
    data = {"query": x, "mask": mh.mask.causal()} if causal else x
    [layer] = layer_samples(attn, data)
    assert layer.causal == causal
    little = ToyLayer.of(layer, heads=6)
    ours = little.run(little.weights).flatten(0, 1)
    theirs = (attn(x, mask=mh.mask.causal() if causal else None) - attn.o_proj.bias).flatten(0, 1).double()
    torch.testing.assert_close(ours @ ours.T, theirs @ theirs.T, rtol=1e-4, atol=1e-5)


def test_the_chain_rule_by_hand_is_autograd() -> None:
    layer = ToyLayer.of(subject(num_kv_heads=1), heads=3)
    q, k, v, o = layer.weights
    q.requires_grad_()
    out = layer.run((q, k, v, o))
    d_out = torch.randn_like(out)
    (expected,) = torch.autograd.grad(out, q, d_out)
    torch.testing.assert_close(query_gradient(layer, (q, k, v, o), d_out), expected)


def test_gradient_flow_holds_and_says_which_heads_get_none() -> None:
    found = chain_rule(subject())
    assert found.verdict == "holds"
    assert found.numbers["relative_error"] < 1e-12
    assert len(found.numbers["norms"]) == 3
    alone = chain_rule(subject(tokens=1))  # one key: the softmax is 1, whatever W_Q
    assert (alone.verdict, max(alone.numbers["norms"])) == ("holds", 0.0)
    assert "3 of 3 heads have no gradient" in alone.because
    [alike] = layer_samples(mh.MultiHeadAttention(12, 3), torch.ones(2, 5, 12))  # equal keys: 0 but for rounding
    assert chain_rule(alike).verdict == "holds"


def test_one_step_of_sgd_is_the_rule_and_one_of_adam_is_not() -> None:
    found = sgd_step(subject())
    assert (found.verdict, "bit for bit" in found.because) == ("holds", True)
    assert found.numbers["adam_cosine"] < 0.99


def quadratic(diagonal: Tensor) -> tuple[Loss, Weights]:
    """L = ½ Σ d_i w_i² over four parts of a vector: its curvature is known."""
    parts = diagonal.split(len(diagonal) // 4)
    zero = [torch.zeros_like(p) for p in parts]
    loss = lambda w: sum((d * x.square()).sum() for d, x in zip(parts, w, strict=True)) / 2
    return loss, (zero[0], zero[1], zero[2], zero[3])


def random_like(weights: Weights) -> Weights:
    q, k, v, o = (torch.randn_like(w) for w in weights)
    return q, k, v, o


@pytest.mark.parametrize("lowest", [-2.0, 0.0, 1.0])
def test_lanczos_finds_the_curvature_of_a_quadratic(lowest: float) -> None:
    diagonal = torch.linspace(1.0, 5.0, 40, dtype=torch.float64)
    diagonal[3] = lowest
    loss, at = quadratic(diagonal)
    assert curvature(loss, at, random_like(at)) == pytest.approx((lowest, 5.0), abs=0.06)


def test_lanczos_agrees_with_the_whole_hessian() -> None:
    layer = ToyLayer.of(subject(), heads=1)
    loss = layer.imitation_loss()
    start = layer.draw(torch.Generator().manual_seed(0))
    sizes = [w.numel() for w in start]

    def flat(x: Tensor) -> Tensor:
        parts = [p.view(w.shape) for p, w in zip(x.split(sizes), start, strict=True)]
        return loss((parts[0], parts[1], parts[2], parts[3]))

    whole = torch.autograd.functional.hessian(flat, torch.cat([w.flatten() for w in start]))
    values = torch.linalg.eigvalsh(whole)
    lowest, largest = curvature(loss, start, random_like(start))
    assert largest == pytest.approx(float(values[-1]), rel=0.02)
    assert lowest == pytest.approx(float(values[0]), abs=2e-3 * largest)


def test_the_hessian_is_not_negative_at_the_minimum_and_is_at_the_start() -> None:
    found = hessian_at_minimum(subject())
    start, _, minimum = found.numbers["shares"]
    assert found.verdict == "holds only if"
    assert start < -0.01
    assert minimum > -1e-3


def test_a_minimum_that_is_none_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HESSIAN, lambda *_: (-1.0, 2.0))
    assert hessian_at_minimum(subject()).verdict == "fails"
    monkeypatch.setattr(HESSIAN, lambda *_: (0.5, 2.0))
    assert hessian_at_minimum(subject()).verdict == "holds"


@pytest.mark.parametrize("power", [-1.0, -0.5, -0.1])
def test_the_exponent_is_found(power: float) -> None:
    t = torch.arange(1, 101, dtype=torch.float64)
    runs = torch.stack([c * t**power for c in (1.0, 2.0, 5.0)])
    assert decay_exponent(runs) == pytest.approx((power, 0.0), abs=1e-9)


def test_convergence_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradient_decay(subject())
    assert found.verdict in ("holds", "holds only if", "not enough data")
    assert len(found.numbers["squared_norms"]) == STEPS
    # A step so small that nothing is learned: the gradient stays, and the bound with it fails.
    monkeypatch.setattr(f"{DECAY}.curvature", lambda *_, **__: (0.0, 1e9))
    assert gradient_decay(subject()).verdict == "fails"


@pytest.mark.parametrize(("width", "verdict"), [(0.1, "holds"), (0.3, "not enough data")])
def test_an_interval_that_holds_the_limit_says_nothing(
    width: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{DECAY}.decay_exponent", lambda _: (-0.7, width))
    assert gradient_decay(subject()).verdict == verdict


def test_a_layer_of_zeros_has_a_hessian_of_zeros() -> None:
    attn = mh.MultiHeadAttention(12, 3)
    with torch.no_grad():
        for p in attn.parameters():
            p.zero_()
    [layer] = layer_samples(attn, torch.randn(3, 7, 12))
    found = hessian_at_minimum(layer)
    assert found.numbers["largest"][2] == found.numbers["lowest"][2] == 0  # type: ignore[index]
    assert found.verdict in ("holds", "holds only if")


def test_a_head_that_nobody_listens_to_gets_no_gradient() -> None:
    attn = mh.MultiHeadAttention(12, 3)
    with torch.no_grad():
        attn.o_proj.weight.view(12, 3, 4)[:, 1] = 0
    [layer] = layer_samples(attn, torch.randn(3, 7, 12))
    assert "1 of 3 heads have no gradient: where they look makes no difference" in chain_rule(layer).because


@pytest.mark.parametrize("check", [chain_rule, sgd_step, hessian_at_minimum, gradient_decay])
def test_the_basis_of_the_span_does_not_matter(
    check: Callable[[LayerSample], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts begin with the same token, which leaves directions of the span to rounding: CPUs choose others."""
    attn, x = mh.MultiHeadAttention(29, 1), torch.randn(3, 5, 29)
    x[:, 0] = x[0, 0]
    [layer] = layer_samples(attn, x)
    here = check(layer).numbers
    basis_of = toy_layer._basis_of  # pyright: ignore[reportPrivateUsage]

    def rotated(columns: Tensor) -> Tensor:
        basis = basis_of(columns)
        return basis @ torch.linalg.qr(torch.randn(basis.shape[1], basis.shape[1], dtype=basis.dtype)).Q

    monkeypatch.setattr(toy_layer, "_basis_of", rotated)
    there = check(layer).numbers
    for name in here.keys() - {"relative_error", "difference_error", "largest_difference", "lowest", "shares"}:
        assert there[name] == pytest.approx(here[name], rel=1e-5, abs=1e-9), name
    if "shares" in here:
        assert there["shares"] == pytest.approx(here["shares"], abs=FLAT)
