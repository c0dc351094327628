"""torch.utils.checkpoint around the layer: the same gradients, and activations that are not kept."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import multihead as mh
from ecosystem.variants import BATCH, HEADS, TOKENS, VARIANTS, WIDTH, tensors_of
from multihead import mask, position


@pytest.fixture(autouse=True)
def _exact(fp64: None) -> None: ...


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", VARIANTS)
def test_same_gradients(name: str, reentrant: bool) -> None:
    variant = VARIANTS[name]
    attn, inputs = variant.layer(), variant.inputs()

    def run(*given: Tensor) -> Tensor:
        return tensors_of(variant.call(attn, *given))[0]

    found: list[list[Tensor]] = []
    for kept in (True, False):
        attn.zero_grad()  # also what another test left on a position that variants share
        given = [t.clone().requires_grad_() if t.is_floating_point() else t for t in inputs]
        out = run(*given) if kept else checkpoint(run, *given, use_reentrant=reentrant)
        out.square().sum().backward()
        found.append([t.grad for t in (*given, *attn.parameters()) if t.requires_grad and t.grad is not None])
    assert len(found[0]) >= 5
    # The reentrant kind runs the first forward without gradients, where another route may be the fastest.
    exactly = {} if reentrant else {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(found[1], found[0], **exactly)


@pytest.mark.parametrize("reentrant", [True, False])
def test_dropout_is_drawn_alike(reentrant: bool) -> None:
    """The second forward, inside the backward, must drop the weights that the first one dropped."""
    attn = VARIANTS["causal"].layer(dropout=0.3, position=position.RelativeBias(HEADS)).train()
    x = torch.randn(BATCH, TOKENS, WIDTH)

    def run(x: Tensor) -> Tensor:
        return attn(x, mask=mask.causal())

    found: list[tuple[Tensor, Tensor | None]] = []
    for kept in (True, False):
        torch.manual_seed(5)
        given = x.clone().requires_grad_()
        out = run(given) if kept else checkpoint(run, given, use_reentrant=reentrant)
        out.square().sum().backward()
        found.append((out.detach(), given.grad))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, {"dropout": 0.2}], ids=str)
def test_nothing_is_kept_between_forward_and_backward(options: dict[str, Any]) -> None:
    """Projections live as long as the forward does: after it, only the input and the output are left."""
    attn = mh.MultiHeadAttention(WIDTH, HEADS, **options)
    alive: list[weakref.ref[Tensor]] = []
    for part in (attn.q_proj, attn.k_proj, attn.v_proj):
        part.register_forward_hook(lambda _, __, out: alive.append(weakref.ref(out.untyped_storage())))
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
    out = checkpoint(lambda x: attn(x, mask=mask.causal()), x, use_reentrant=False)
    assert len(alive) == 3
    assert [ref() for ref in alive] == [None] * 3
    out.sum().backward()
    assert len(alive) == 6  # computed again
