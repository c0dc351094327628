"""Asking for more than the output: what comes back, some of it only, and nothing else is built."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import multihead as mh
import oracle
from multihead import mask, position
from multihead.errors import SizeError
from multihead.layer import Ask, AttentionOutput, Cells, Sinks, init
from multihead.layer import outputs as ask_module
from multihead.layer._kernels import ScoreBlock, explicit

BATCH, TOKENS, WIDTH, HEADS = 2, 11, 26, 6
VARIANT = oracle.Variant(HEADS, 4, 3, (0, 0, 0, 1, 1, 1), oracle.Slopes(tuple(0.1 * h for h in range(HEADS))))


@pytest.fixture
def layer() -> mh.MultiHeadAttention:
    slopes = position.ALiBi(slopes=[0.1 * h for h in range(HEADS)])
    return mh.MultiHeadAttention(
        WIDTH, HEADS, num_kv_heads=2, head_dim=4, value_dim=3, position=slopes, sinks=Sinks(0.7),
        init=init.XavierPerHead(1.4),
    )  # fmt: skip


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, TOKENS, WIDTH)


SEEN = mask.causal() & mask.lengths([11, 5])
RULE: oracle.Allowed = lambda b, h, q, k, i: k <= q and k < [11, 5][b]


def test_all_of_it_is_the_oracles(layer: mh.MultiHeadAttention, x: Tensor) -> None:
    want = oracle.attention(VARIANT, dict(layer.named_parameters()), x, allowed=RULE)
    got = layer(x, mask=SEEN, ask=["weights", "lse", "heads"])
    for name in ("out", "weights", "lse", "heads"):
        assert_close(getattr(got, name), getattr(want, name))


@pytest.mark.parametrize(
    "said, there",
    [
        ("weights", {"weights"}),
        (["lse"], {"lse"}),
        (("lse", "heads"), {"lse", "heads"}),
        ({"weights", "lse"}, {"weights", "lse"}),
        ([], set()),
        (Ask(), set()),
        (Ask(heads=True), {"heads"}),
        (Ask(weights=Cells(heads=[1]), lse=True), {"weights", "lse"}),
    ],
)
def test_what_was_asked_for_and_no_more(
    said: Any, there: set[str], layer: mh.MultiHeadAttention, x: Tensor
) -> None:
    got = layer(x, mask=SEEN, ask=said)
    assert isinstance(got, AttentionOutput)
    assert {name for name in ("weights", "lse", "heads") if getattr(got, name) is not None} == there
    assert torch.equal(got.out, layer(x, mask=SEEN))


def test_nothing_asked_is_a_plain_tensor(layer: mh.MultiHeadAttention, x: Tensor) -> None:
    assert isinstance(layer(x), Tensor)


def test_heads_are_what_w_o_reads(layer: mh.MultiHeadAttention, x: Tensor) -> None:
    got = layer(x, mask=SEEN, ask="heads")
    assert_close(layer.o_proj(got.heads.transpose(1, 2).flatten(2)), got.out)


@pytest.mark.parametrize("heads", [None, [3], [5, 0], [-1], []])
@pytest.mark.parametrize("rows", [None, [10], [2, 7, 3], [-2, 0], []])
def test_some_cells_are_the_same_as_all_cut(
    heads: list[int] | None, rows: list[int] | None, layer: mh.MultiHeadAttention, x: Tensor
) -> None:
    every = layer(x, mask=SEEN, ask="weights").weights
    got = layer(x, mask=SEEN, ask=Ask(weights=Cells(heads=heads, rows=rows))).weights
    want = every if heads is None else every[:, heads]
    assert_close(got, want if rows is None else want[:, :, rows])


def test_some_cells_build_nothing_else(
    layer: mh.MultiHeadAttention, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[int, ...]] = []

    def watched(block: ScoreBlock) -> Any:
        found = explicit(block)
        built.append(tuple(found.weights.shape))
        return found

    monkeypatch.setattr(ask_module, "explicit", watched)
    layer(x, mask=SEEN, ask=Ask(weights=Cells(heads=[4, 1], rows=[9])))
    assert built == [(BATCH, 2, 1, TOKENS)]


def test_masks_of_every_kind_are_cut_with_the_cells(layer: mh.MultiHeadAttention, x: Tensor) -> None:
    sees = torch.rand(BATCH, HEADS, TOKENS, TOKENS) < 0.6
    for seen in (
        mask.tensor(sees),
        mask.additive(torch.randn(BATCH, HEADS, TOKENS, TOKENS).masked_fill(~sees, -torch.inf)),
        mask.where(lambda b, h, q, k: (b + h + q + k) % 3 > 0),
        mask.ragged([4, 11]),
        mask.documents(offsets=[0, 3, 11]) | mask.window(2),
    ):
        every = layer(x, mask=seen, ask="weights").weights
        some = layer(x, mask=seen, ask=Ask(weights=Cells([2, 5], [1, 10, 4]))).weights
        assert_close(some, every[:, [2, 5]][:, :, [1, 10, 4]])


def test_lse_is_of_the_scores_sink_included(layer: mh.MultiHeadAttention, x: Tensor) -> None:
    """weights = exp(score − lse), so any cell can be had from q, k and lse."""
    got = layer(x, mask=SEEN, ask=["weights", "lse"])
    q = layer.q_proj(x).unflatten(-1, (HEADS, 4)).transpose(1, 2)
    k = layer.k_proj(x).unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(3, 1)
    score = (q[1, 5, 9] @ k[1, 5, 2]) * 4**-0.5 - 0.5 * 7
    assert_close(got.weights[1, 5, 9, 2], (score - got.lse[1, 5, 9]).exp())


def test_weights_are_the_clean_ones_before_dropout(x: Tensor) -> None:
    layer = mh.MultiHeadAttention(WIDTH, 2, dropout=0.5)
    assert_close(layer.train()(x, ask="weights").weights, layer.eval()(x, ask="weights").weights)


def test_weights_see_through_nan_in_hidden_keys(layer: mh.MultiHeadAttention, x: Tensor) -> None:
    dirty = x.clone()
    dirty[1, 5:] = torch.nan
    want, got = (layer(x[:, :5], k, mask=mask.lengths([11, 5]), ask=["weights", "lse"]) for k in (x, dirty))
    assert_close(got.weights, want.weights)
    assert_close(got.lse, want.lse)


@pytest.mark.parametrize(
    "said, parts",
    [
        ("weight", ["'weight'", "weights, lse, heads"]),
        (["lse", "maps"], ["'maps'"]),
        (Ask(weights=Cells(heads=[6])), ["head", "0..5", "got 6"]),
        (Ask(weights=Cells(rows=[-12])), ["row", "0..10", "got -12"]),
    ],
)
def test_what_does_not_exist_is_refused(
    said: Any, parts: list[str], layer: mh.MultiHeadAttention, x: Tensor
) -> None:
    with pytest.raises(SizeError) as caught:
        layer(x, ask=said)
    assert all(part in str(caught.value) for part in parts)
