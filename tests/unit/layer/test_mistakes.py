"""Mistakes that a first reader of the docs made, and rows whose scores are all far below zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

import multihead as mh
from multihead import cache, mask
from multihead.errors import CacheError, SizeError
from multihead.layer import Cells, QKNorm, Sinks

BATCH, TOKENS, WIDTH = 2, 7, 20


@pytest.fixture
def layer() -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(WIDTH, 4, num_kv_heads=2).eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, TOKENS, WIDTH)


@pytest.mark.parametrize("low", [-1e4, -1e6, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("sinks", [None, Sinks(-1e9)])
def test_a_row_of_large_finite_negatives_is_a_plain_softmax(x, low, sinks) -> None:
    layer = mh.MultiHeadAttention(WIDTH, 4, sinks=sinks).eval()
    scores = torch.zeros(TOKENS, TOKENS)
    scores[3] = low
    asked = layer(x, mask=scores, ask="weights")
    assert_close(asked.out, layer(x, mask=scores, route="reference"), rtol=1e-4, atol=1e-4)
    if sinks is None:
        assert_close(asked.weights[:, :, 3].sum(-1), torch.ones(BATCH, 4))


def test_a_cross_cache_of_another_batch_is_refused(layer, x) -> None:
    kept = cache.Cross()
    layer(x, torch.randn(BATCH, 5, WIDTH), cache=kept)
    with pytest.raises(CacheError, match=r"batch 2.*batch 1"):
        layer(x[:1], cache=kept)


def test_a_cross_cache_hides_what_its_lengths_hide(layer, x) -> None:
    kept, k = cache.Cross(), torch.randn(BATCH, 2, 5, 5)
    kept.append(k, k, [5, 2])
    assert_close(layer(x, cache=kept), layer(x, cache=kept, mask=mask.lengths([5, 2])))


def test_other_keys_with_a_cache_of_own_tokens_are_refused(layer, x) -> None:
    with pytest.raises(SizeError, match="Cross"):
        layer(x[:, :3], torch.randn(BATCH, 5, WIDTH), cache=cache.Growing())


@torch.no_grad()
def test_no_new_tokens(layer, x) -> None:
    kept = cache.Growing()
    layer(x[:, :4], mask=mask.causal(), cache=kept)
    assert layer(x[:, :0], mask=mask.causal(), cache=kept).shape == (BATCH, 0, WIDTH)
    assert kept.length == 4


@torch.no_grad()
def test_asking_for_a_head_that_is_not_there_leaves_the_cache_alone(layer, x) -> None:
    kept = cache.Growing()
    layer(x[:, :4], mask=mask.causal(), cache=kept)
    with pytest.raises(SizeError, match=r"head.*got 9"):
        layer(x[:, 4:5], cache=kept, ask=Cells(heads=[9]))
    assert kept.length == 4


@torch.no_grad()
def test_one_ragged_length_serves_all_rows_of_a_cache(layer, x) -> None:
    kept = cache.Growing()
    layer(x[:, :2], mask=mask.causal(), cache=kept)
    layer(x[:, 2:6], mask=mask.causal() & mask.ragged([3]), cache=kept)
    assert kept.lengths.tolist() == [5, 5]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: mask.causal() & torch.ones(3, 3, dtype=torch.bool),
        lambda: mask.window(2.5),
        lambda: mask.lengths([1.5, 2]),
        lambda: mask.lengths(torch.tensor([3.0, 2.0])),
        lambda: QKNorm("foo"),
        lambda: QKNorm("rms", when="never"),
        lambda: mh.MultiHeadAttention(WIDTH, 4, sinks=True),
        lambda: mh.MultiHeadAttention(WIDTH, 4, qk_norm="rms"),
        lambda: mh.MultiHeadAttention(WIDTH, 4, head_dim=0),
        lambda: mh.MultiHeadAttention(WIDTH, 4)(torch.randn(1, 3, WIDTH), ask=True),
    ],
)
def test_wrong_kinds_are_refused_with_a_hint(mistake: Callable[[], object]) -> None:
    with pytest.raises(mh.MultiheadError, match="hint:"):
        mistake()


def test_a_window_may_be_larger_than_any_number_of_keys() -> None:
    assert mask.window(10**30, first=2**63).tensor(5).tril().equal(mask.causal().tensor(5))
