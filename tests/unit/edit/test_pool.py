"""The baselines: the mean of heads as they are, and of heads that were turned to each other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.sharing.moments import moments_of
from multihead.edit.sharing.pool import mean_pooled, procrustes
from multihead.model.head_weights import HeadWeights


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layer_of_six() -> tuple[nn.Module, HeadWeights]:
    model = nn.TransformerEncoderLayer(42, 6, 47, batch_first=True, dropout=0.0).double().eval()
    with torch.no_grad():
        for i, p in enumerate(model.self_attn.parameters()):
            p.copy_(drawn(*p.shape, seed=i))
    return model, HeadWeights.of(mh.anatomy(model)[0])


def test_mean_pooling_is_the_mean_of_keys_and_values_with_their_biases() -> None:
    _, own = layer_of_six()
    pooled = mean_pooled(own, [0, 0, 1, 1, 1, 2])
    assert own.b_v is not None
    assert pooled.b_v is not None
    torch.testing.assert_close(pooled.k[1], (own.k[2] + own.k[3] + own.k[4]) / 3)
    torch.testing.assert_close(pooled.b_v[0], (own.b_v[0] + own.b_v[1]) / 2)
    assert torch.equal(pooled.v[2], own.v[5])
    assert torch.equal(pooled.q, own.q)
    assert (pooled.groups.kv_of_head, pooled.kv_origin) == ((0, 0, 1, 1, 1, 2), (0, 2, 5))


def test_heads_that_differ_by_a_turn_are_turned_back_and_nothing_is_lost() -> None:
    model, _ = layer_of_six()
    layer = mh.anatomy(model)[0]
    turn = torch.linalg.qr(drawn(7, 7, seed=9)).Q
    b_k, b_v = layer.b_K, layer.b_V
    assert b_k is not None
    assert b_v is not None
    with torch.no_grad():
        for x, y in ((layer.W_K, b_k), (layer.W_V, b_v)):
            x[3].copy_(turn @ x[0])
            y[3].copy_(turn @ y[0])
    own = HeadWeights.of(layer)
    found = moments_of(model, layer, [{"src": drawn(5, 11, 42, seed=i)} for i in range(9)])
    new = procrustes(own, [0, 1, 2, 0, 3, 4], found)
    assert own.b_q is not None
    assert new.b_q is not None
    assert own.b_v is not None
    assert new.b_v is not None
    x, y = drawn(42, seed=20), drawn(42, seed=21)
    for h, old in ((0, 0), (3, 3)):
        was = (own.q[h] @ x + own.b_q[h]) @ (own.k[old] @ y)
        now = (new.q[h] @ x + new.b_q[h]) @ (new.k[0] @ y)
        torch.testing.assert_close(now, was)
        torch.testing.assert_close(
            new.o[h] @ (new.v[0] @ y + new.b_v[0]), own.o[h] @ (own.v[old] @ y + own.b_v[old])
        )


def test_turning_does_not_change_heads_that_stay_alone() -> None:
    model, own = layer_of_six()
    found = moments_of(model, mh.anatomy(model)[0], [{"src": drawn(5, 11, 42)}])
    new = procrustes(own, [0, 1, 2, 3, 4, 5], found)
    assert all(torch.equal(getattr(new, n), getattr(own, n)) for n in ("q", "k", "v", "o", "b_q", "b_k", "b_v"))
