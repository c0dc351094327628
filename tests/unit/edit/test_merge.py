"""A head whose map is another's twin goes, and the twin says what both said."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.physical.surgery import install
from multihead.edit.sharing.merge import merged
from multihead.edit.sharing.moments import moments_of
from multihead.errors import SizeError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.head_weights import HeadWeights


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def twins(*, same_space: bool, bias: bool = True) -> tuple[nn.Module, LayerAnatomy]:
    """Head 2 has the map of head 0; with `same_space` also its values, in another basis."""
    model = nn.TransformerEncoderLayer(35, 5, 47, batch_first=True, dropout=0.0, bias=bias).double().eval()
    with torch.no_grad():
        for i, p in enumerate(model.self_attn.parameters()):
            p.copy_(0.5 * drawn(*p.shape, seed=i))
        layer = mh.anatomy(model)[0]
        layer.W_Q[2].copy_(layer.W_Q[0])
        layer.W_K[2].copy_(layer.W_K[0])
        if bias:
            b_q = layer.b_Q
            assert b_q is not None
            b_q[2].copy_(b_q[0])
        if same_space:
            layer.W_V[2].copy_(drawn(7, 7, seed=9) @ layer.W_V[0])
    return model, layer


def batches() -> list[dict[str, Tensor]]:
    return [{"src": drawn(5, 11, 35, seed=40 + i)} for i in range(9)]


def without(model: nn.Module, layer: LayerAnatomy, own: HeadWeights) -> nn.Module:
    small = copy.deepcopy(model)
    install(small, layer, own.keep([0, 1, 3, 4]))
    return small


@pytest.mark.parametrize("bias", [True, False])
def test_twins_that_read_one_space_are_one_without_loss(bias: bool) -> None:
    model, layer = twins(same_space=True, bias=bias)
    own = HeadWeights.of(layer)
    found = moments_of(model, layer, batches())
    new = merged(own, 2, 0, found)
    assert not bool(new.o[2].any())
    x = drawn(3, 13, 35, seed=60)
    torch.testing.assert_close(without(model, layer, new)(x), model(x), rtol=1e-6, atol=1e-6)


def test_twins_of_two_spaces_keep_the_best_half_and_beat_taking_one_out() -> None:
    model, layer = twins(same_space=False)
    own = HeadWeights.of(layer)
    found = moments_of(model, layer, batches())
    x = drawn(7, 13, 35, seed=60)
    off = float((without(model, layer, merged(own, 2, 0, found))(x) - model(x)).norm().detach())
    gone = float((without(model, layer, own)(x) - model(x)).norm().detach())
    assert off < 0.8 * gone


def test_values_that_others_read_stay_as_they_are() -> None:
    from multihead.layer import Groups

    model, layer = twins(same_space=True)
    own = HeadWeights.of(layer)
    found = moments_of(model, layer, batches())
    shared = HeadWeights(**{**own.__dict__, "groups": Groups((0, 0, 2, 3, 4), 5)})
    new = merged(shared, 2, 0, found)
    assert torch.equal(new.v, own.v)
    assert own.b_v is not None
    assert own.b_o is not None
    assert new.b_o is not None
    x = drawn(35, seed=1)  # the same average for both: their maps are one
    was = own.o[0] @ (own.v[0] @ x + own.b_v[0]) + own.o[2] @ (own.v[2] @ x + own.b_v[2]) + own.b_o
    now = new.o[0] @ (new.v[0] @ x + own.b_v[0]) + new.b_o
    torch.testing.assert_close(now, was, rtol=1e-6, atol=1e-6)


def test_heads_of_one_kv_head_are_summed() -> None:
    from multihead.layer import Groups

    model, layer = twins(same_space=True)
    own = HeadWeights.of(layer)
    shared = HeadWeights(**{**own.__dict__, "groups": Groups((0, 1, 0, 3, 4), 5)})
    new = merged(shared, 2, 0, moments_of(model, layer, batches()))
    assert torch.equal(new.o[0], own.o[0] + own.o[2])
    assert torch.equal(new.v, own.v)


def test_a_head_cannot_take_over_itself() -> None:
    model, layer = twins(same_space=True)
    found = moments_of(model, layer, batches()[:1])
    with pytest.raises(SizeError, match="head 1 cannot take over head 1 of 5"):
        merged(HeadWeights.of(layer), 1, 1, found)
    with pytest.raises(SizeError, match="head 7 cannot take over head 1 of 5"):
        merged(HeadWeights.of(layer), 1, 7, found)
