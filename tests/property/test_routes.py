"""One meaning: whatever the variant, the mask and the sizes, every route gives the reference's numbers.

And the reference gives those of the oracle, which is written from the formula and knows nothing of the package.
"""

from __future__ import annotations

import cases
import pytest
import torch
from cases import Case, Sight
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

import multihead as mh
from multihead import mask
from multihead.layer.routes import ROUTES

DRAWN = settings().max_examples  # of the profile: dev, ci or nightly
share = lambda of: settings(max_examples=max(DRAWN // of, 10))


def answer(
    layer: mh.MultiHeadAttention, case: Case, dtype: torch.dtype, route: str | None, grad: bool
) -> dict[str, Tensor] | None:
    """The output and the gradients of one call by name, or None where the route cannot do it."""
    given, gate, sight = case.inputs(dtype, grad=grad), case.gate(dtype, grad=grad), case.look(dtype)
    with torch.set_grad_enabled(grad):
        try:
            out = layer(**given, mask=sight.mask, head_gate=gate, route=route, **case.call())
        except mh.SizeError as refusal:
            if "cannot compute this" in str(refusal):
                return None
            raise
    found = gradients(layer, [out], given, gate, sight) if grad else {}
    return {"out": out.detach(), **{f"gradient of {name}": number for name, number in found.items()}}


def gradients(
    layer: mh.MultiHeadAttention, outs: list[Tensor], given: dict[str, Tensor], gate: Tensor | None, sight: Sight
) -> dict[str, Tensor]:
    wanted = {**given, **dict(layer.named_parameters())}
    if gate is not None:
        wanted["gate"] = gate
    wanted |= {f"learned mask {i}": t for i, t in enumerate(sight.learned)}
    generator = torch.Generator().manual_seed(3)
    loss = torch.zeros(())
    for out in outs:
        towards = torch.randn(out.shape, generator=generator).to(out.dtype)
        loss = loss + (out * towards).sum() / max(out.numel(), 1) ** 0.5
    grads = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(wanted, grads, strict=True))


def same(got: Tensor, want: Tensor, what: str, *, unsure: float = 0.0) -> None:
    """Within the default tolerance of the dtype, or four times what the reference loses by it."""
    rtol, atol = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}[got.dtype]
    atol = max(atol, 4 * unsure)
    assert_close(got, want.to(got.dtype), rtol=rtol, atol=atol, msg=lambda said: f"{what}: {said}")


@given(case=cases.cases(), grad=st.booleans())
def test_every_route_gives_the_numbers_of_the_reference(case: Case, grad: bool) -> None:
    want = answer(case.layer(torch.float64), case, torch.float64, "reference", grad)
    layer = case.layer()
    unsure = {name: 0.0 for name in want}
    if case.dtype != torch.float64:
        rounded = answer(layer, case, case.dtype, "reference", grad)
        unsure = {name: float((rounded[name] - want[name]).abs().max()) for name in want}
        assert max(unsure.values()) < 1e-3
    for route in [None, *ROUTES]:
        with cases.blocks_of(case.cells):
            got = answer(layer, case, case.dtype, route, grad)
        for name, number in ({} if got is None else got).items():
            same(number, want[name], f"{route}: {name}", unsure=unsure[name])


@share(3)
@given(case=cases.cases(largest=7))
def test_the_reference_gives_the_numbers_of_the_oracle(case: Case) -> None:
    layer, given = case.layer(torch.float64), case.inputs(torch.float64, grad=True)
    gate, sight = case.gate(torch.float64, grad=True), case.look(torch.float64)
    want = case.ask_oracle(layer, given, sight, gate)
    everything = ["weights", "lse", "heads"]
    got = layer(**given, mask=sight.mask, head_gate=gate, route="reference", ask=everything, **case.call())
    for name in ("out", *everything):
        same(getattr(got, name), getattr(want, name), name)
    found = gradients(layer, [got.out, got.weights], given, gate, sight)
    for name, number in gradients(layer, [want.out, want.weights], given, gate, sight).items():
        same(found[name], number, f"gradient of {name}")
