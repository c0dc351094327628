"""One meaning: whatever the variant, the mask and the sizes, every route gives the reference's numbers.

And the reference gives those of the oracle, which is written from the formula and knows nothing of the package.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

import cases
import multihead as mh
from blocks import blocks_of
from cases import Case, Sight
from multihead import mask
from multihead.errors import SizeError
from multihead.layer import Ask, Cells, Sinks
from multihead.layer._plan import ROUTES

DRAWN = settings().max_examples  # of the tier: 25, 300 or 10,000


def share(of: int) -> settings:
    return settings(max_examples=max(DRAWN // of, 10))


def answer(
    layer: mh.MultiHeadAttention, case: Case, dtype: torch.dtype, route: str | None, grad: bool
) -> dict[str, Tensor] | None:
    """The output and the gradients of one call by name, or None where the route cannot do it."""
    given, gate, sight = case.inputs(dtype, grad=grad), case.gate(dtype, grad=grad), case.look(dtype)
    with torch.set_grad_enabled(grad):
        try:
            out = layer(**given, mask=sight.mask, head_gate=gate, route=route, **case.call())
        except SizeError as refusal:
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


@share(1 if DRAWN >= 10_000 else 2)  # at night all of them, several routes each
@given(case=cases.cases(), grad=st.booleans())
def test_every_route_gives_the_numbers_of_the_reference(case: Case, grad: bool) -> None:
    want = answer(case.layer(torch.float64), case, torch.float64, "reference", grad)
    layer = case.layer()
    unsure = dict.fromkeys(want, 0.0)
    if case.dtype != torch.float64:
        rounded = answer(layer, case, case.dtype, "reference", grad)
        unsure = {name: float((rounded[name] - want[name]).abs().max()) for name in want}
        assert max(unsure.values()) < 1e-3
    for route in [None, *ROUTES]:
        with blocks_of(case.cells):
            got = answer(layer, case, case.dtype, route, grad)
        for name, number in ({} if got is None else got).items():
            same(number, want[name], f"{route}: {name}", unsure=unsure[name])


@share(5)
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


# ---- what is asked for ------------------------------------------------------------------------


@share(5)
@given(case=cases.cases())
def test_asking_never_changes_the_output_and_rows_sum_to_one(case: Case) -> None:
    layer, given, sight = case.layer(), case.inputs(), case.look(case.dtype)
    call: dict[str, Any] = {**given, "mask": sight.mask, "head_gate": case.gate(), **case.call()}
    with torch.no_grad(), blocks_of(case.cells):
        out = layer(**call)
        for ask in ("weights", "lse", "heads", Ask(weights=Cells(heads=[0], rows=[-1]))):
            assert torch.equal(layer(**call, ask=ask).out, out), f"{ask} changed the output"
        got = layer(**call, ask=["weights", "lse"])
    total = got.weights.sum(-1)
    empty = got.weights.amax(-1) == 0 if sight.allowed is not None else torch.zeros_like(total, dtype=torch.bool)
    sink = torch.zeros(case.variant.heads, dtype=case.dtype)
    if layer.sink_logits is not None:
        sink = torch.exp(layer.sink_logits.detach()[:, None] - got.lse)
        same(sink[empty], torch.ones_like(sink[empty]), "a row that sees only its sink")
    else:
        sink = torch.zeros_like(total)
        assert (got.lse[empty] == -torch.inf).all()
    same((total + sink)[~empty], torch.ones_like(total)[~empty], "rows of the weights and the sink")
    assert (got.weights >= 0).all()


# ---- what is hidden ---------------------------------------------------------------------------


@share(6)
@given(
    case=cases.cases(adding=False),
    bad=st.sampled_from([torch.nan, torch.inf, -torch.inf]),
    where=st.sampled_from(["key", "value", "both"]),
    at=st.integers(0, 10**6),
)
def test_what_is_hidden_never_reaches_the_output(case: Case, bad: float, where: str, at: int) -> None:
    """A bad key or value makes the rows that may see it NaN and changes no bit of the others' meaning."""
    sight = case.look(case.dtype)
    row, token = at % case.batch, (at // case.batch) % case.keys
    layer = case.layer()
    clean = case.inputs()
    clean.setdefault("key", clean["query"])
    clean.setdefault("value", clean["key"])
    dirty = {name: x.clone() for name, x in clean.items()}
    for name in ("key", "value"):
        if where in (name, "both"):
            dirty[name][row, token] = bad
    sees = torch.zeros(case.batch, case.queries, dtype=torch.bool)
    for i in range(case.queries):
        cells = [(row, h, case.keys - case.queries + i, token, i) for h in range(case.variant.heads)]
        sees[row, i] = any(sight.allowed is None or sight.allowed(*cell) for cell in cells)
    towards = torch.randn(case.batch, case.queries, layer.d_out).to(case.dtype) * ~sees[..., None]

    def run(given: dict[str, Tensor], route: str | None, grad: bool) -> tuple[Tensor, Tensor, Tensor] | None:
        given = {name: x.clone().requires_grad_(grad) for name, x in given.items()}
        mask_of = case.look(case.dtype).mask
        try:
            with blocks_of(case.cells), torch.set_grad_enabled(grad):
                out = layer(**given, mask=mask_of, head_gate=case.gate(), route=route)
        except SizeError as refusal:
            assert "cannot compute this" in str(refusal)
            return None
        if not grad:
            return out, out, out
        loss = (torch.where(sees[..., None], 0.0, out) * towards).sum()
        wanted = [given["query"], given["key"]]
        return (out.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True))

    if "ragged" in str(sight.mask):
        return  # a `ragged` row is a query as well, so this call would be another one
    for grad in (False, True):
        for route in [None, *ROUTES]:
            want, got = run(clean, route, grad), run(dirty, route, grad)
            if want is None or got is None:
                continue
            same(got[0][~sees], want[0][~sees], f"{route}: rows that may not see it")
            if grad:
                same(got[1][~sees], want[1][~sees], f"{route}: gradient of the queries that may not see it")
            if grad and not sees.any():
                good = torch.ones(case.batch, case.keys, dtype=torch.bool)
                good[row, token] = False
                same(got[2][good], want[2][good], f"{route}: gradient of the other keys")


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("kind", ["lengths", "tensor", "additive", "documents", "where"])
def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(grad: bool, kind: str) -> None:
    layer = mh.MultiHeadAttention(14, 6, head_dim=4, num_kv_heads=2, sinks=Sinks(0.3), dtype=torch.float64)
    torch.nn.init.normal_(layer.o_proj.bias)
    keys = torch.randn(2, 13, 14, dtype=torch.float64, requires_grad=grad)
    query = torch.randn(2, 3, 14, dtype=torch.float64, requires_grad=grad)
    sees = torch.ones(2, 1, 3, 13, dtype=torch.bool)
    sees[1] = False
    seen = {
        "lengths": mask.lengths([13, 0]),
        "tensor": mask.tensor(sees),
        "additive": mask.additive(torch.zeros(sees.shape).masked_fill(~sees, -torch.inf).double()),
        "documents": mask.documents(torch.tensor([[0] * 13, [-1] * 13])),
        "where": mask.where(lambda b, h, q, k: b + 0 * k < 1),
    }[kind]
    ran = 0
    for route in [None, *ROUTES]:
        with torch.set_grad_enabled(grad):
            try:
                out = layer(query, keys, mask=seen, route=route)
            except SizeError as refusal:
                assert "cannot compute this" in refusal.message
                continue
        ran += 1
        assert torch.equal(out[1], layer.o_proj.bias.expand(3, -1))
        assert (out[0] - layer.o_proj.bias).abs().min() > 0
        if grad:
            grads = torch.autograd.grad(out.square().sum(), [query, keys, *layer.parameters()])
            assert all(g.isfinite().all() for g in grads)
            assert not grads[0][1].any()
            assert not grads[1][1].any()
            assert grads[0][0].any()
    assert ran >= 5


# ---- symmetries -------------------------------------------------------------------------------


@share(10)
@given(case=cases.cases(adding=False), seed=st.integers(0, 10**6))
def test_batch_queries_keys_and_heads_may_be_permuted(case: Case, seed: int) -> None:
    if case.variant.position is not None:
        return
    layer, given = case.layer(torch.float64), case.inputs(torch.float64)
    keys = given.get("key", given["query"])
    values = given.get("value", keys)
    generator = torch.Generator().manual_seed(seed)
    sees = torch.rand(case.batch, case.variant.heads, case.queries, case.keys, generator=generator) < 0.6
    rows = torch.randperm(case.batch, generator=generator)
    asks = torch.randperm(case.queries, generator=generator)
    asked = torch.randperm(case.keys, generator=generator)
    with torch.no_grad():
        out = layer(given["query"], keys, values, mask=sees)
        other = layer(
            given["query"][rows][:, asks],
            keys[rows][:, asked],
            values[rows][:, asked],
            mask=sees[rows][:, :, asks][..., asked],
        )
        same(other, out[rows][:, asks], "permuted batch, queries and keys")
        order = torch.randperm(case.variant.heads, generator=generator)
        moved = case.layer(torch.float64)
        moved.q_proj.weight.copy_(layer.q_proj.weight.unflatten(0, (-1, layer.head_dim))[order].flatten(0, 1))
        if moved.q_proj.bias is not None:
            moved.q_proj.bias.copy_(layer.q_proj.bias.unflatten(0, (-1, layer.head_dim))[order].flatten())
        moved.o_proj.weight.copy_(layer.o_proj.weight.unflatten(1, (-1, layer.value_dim))[:, order].flatten(1, 2))
        if moved.sink_logits is not None and layer.sink_logits is not None:
            moved.sink_logits.copy_(layer.sink_logits[order])
        moved.groups = type(layer.groups)(tuple(layer.kv_of_head[h] for h in order), layer.num_kv_heads)
        same(moved(given["query"], keys, values, mask=sees[:, order]), out, "permuted heads")
