"""Moments of rows equal those of all rows at once, however they are split, weighted, merged, saved or shared."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multihead.errors import SizeError
from multihead.model.statistics import second_moments
from multihead.model.statistics.second_moments import CrossMoments

ROWS, COLUMNS, TARGETS = 31, 7, 5


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 3, 3 and 1 columns."""
    monkeypatch.setattr(second_moments, "BLOCK", 3)


def drawn(rows: int = ROWS, seed: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """z, r and weights, far from 0."""
    draw = torch.Generator().manual_seed(seed)
    z = 2 + torch.randn(rows, COLUMNS, generator=draw, dtype=torch.float64)
    r = torch.randn(rows, TARGETS, generator=draw, dtype=torch.float64) - 3
    return z, r, torch.rand(rows, generator=draw, dtype=torch.float64)


def moments_of(*parts: tuple[Tensor, ...], weighted: bool = False) -> CrossMoments:
    moments = CrossMoments()
    for z, r, weight in parts:
        moments.add(z, r, weight=weight if weighted else None)
    return moments


def split(rows: tuple[Tensor, ...], *sizes: int) -> list[tuple[Tensor, ...]]:
    return list(zip(*(x.split(list(sizes)) for x in rows), strict=True))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_sums_are_those_of_all_rows(weighted: bool, bias: bool) -> None:
    z, r, weight = drawn()
    got = moments_of(*split((z, r, weight), 11, 1, 0, 19), weighted=weighted)
    w = weight if weighted else torch.ones_like(weight)
    wide = torch.cat([z, torch.ones_like(z[:, :1])], dim=1) if bias else z
    zz, zr = got.sums(bias=bias)
    torch.testing.assert_close(zz, wide.T @ (w[:, None] * wide))
    torch.testing.assert_close(zr, wide.T @ (w[:, None] * r))
    assert got.count == pytest.approx(float(w.sum()))


def test_covariances_and_means() -> None:
    z, r, weight = drawn()
    got = moments_of(*split((z, r, weight), 2, 29))
    both = torch.cat([z, r], dim=1).T.cov(correction=0)
    torch.testing.assert_close(got.covariance(), both[:COLUMNS, :COLUMNS])
    torch.testing.assert_close(got.cross_covariance(), both[:COLUMNS, COLUMNS:])
    torch.testing.assert_close(got.mean, z.mean(0))
    torch.testing.assert_close(got.target_mean, r.mean(0))


def test_a_small_variance_beside_a_large_mean_is_not_lost() -> None:
    """Σ z zᵀ / n − mean meanᵀ would be wrong in every digit."""
    z = drawn()[0]
    got = CrossMoments()
    for part in (1e8 + z).split(13):
        got.add(part)
    torch.testing.assert_close(got.covariance(), z.T.cov(correction=0), rtol=1e-6, atol=1e-7)


def test_parts_merge_into_the_whole() -> None:
    rows = drawn()
    whole = moments_of(rows, weighted=True)
    first, later = (moments_of(part, weighted=True) for part in split(rows, 12, 19))
    kept = later.state()
    merged = CrossMoments()
    for part in (CrossMoments(), first, later, CrossMoments()):
        merged.merge(part)
    for got, want in zip(merged.sums(bias=True), whole.sums(bias=True), strict=True):
        torch.testing.assert_close(got, want)
    assert all(torch.equal(later.state()[name], kept[name]) for name in ("mean", "products")), "it is only read"


def test_a_state_is_a_copy_of_everything() -> None:
    early, late = split(drawn(), 12, 19)
    got = moments_of(early)
    state = got.state()
    again = CrossMoments.from_state(state)
    got.add(*late[:2])
    again.add(*late[:2])
    assert all(torch.equal(a, b) for a, b in zip(got.sums(), again.sums(), strict=True))
    assert CrossMoments.from_state(state).count == len(early[0]), "neither `add` has changed it"
    empty = CrossMoments.from_state(CrossMoments().state())
    empty.merge(got)
    assert torch.equal(empty.covariance(), got.covariance())


def test_ranks_get_the_moments_of_all() -> None:
    """Two ranks in one process: what `reduce` adds is what the other rank passes at the same time."""
    rows = drawn()
    whole, parts = moments_of(rows), [moments_of(part) for part in split(rows, 12, 19)]
    counts = [torch.tensor(part.count, dtype=torch.float64) for part in parts]
    means = [part.count * torch.cat([part.mean, part.target_mean]) for part in parts]
    mean = sum(means) / sum(counts)
    products: list[Tensor] = []

    def first_round(total: Tensor, *weighted: Tensor) -> None:
        if weighted:
            total.copy_(sum(counts))
            weighted[0].copy_(sum(means))
        else:
            products.append(total.clone())

    for part in parts:
        part.all_reduce(first_round)
        torch.testing.assert_close(torch.cat([part.mean, part.target_mean]), mean)
    upper = torch.ones_like(products[0]).triu().bool()
    torch.testing.assert_close(sum(products)[upper], whole.state()["products"][upper])
    assert parts[0].count == parts[1].count == ROWS


def test_one_process_reduces_nothing() -> None:
    got, rows = moments_of(drawn()), drawn()
    got.all_reduce(lambda *_: None)
    torch.testing.assert_close(got.covariance(), rows[0].T.cov(correction=0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fast", [False, True])
def test_rows_that_are_added_are_not_changed(dtype: torch.dtype, fast: bool) -> None:
    z, r = (x.to(dtype) for x in drawn()[:2])
    before = z.clone(), r.clone()
    for targets in (None, r):
        CrossMoments(fast=fast).add(z, targets)
        assert torch.equal(z, before[0])
        assert torch.equal(r, before[1])


def test_without_columns_the_bias_is_left() -> None:
    """A layer that lost all of its heads."""
    got = CrossMoments()
    r = drawn()[1]
    got.add(torch.empty(ROWS, 0), r)
    zz, zr = got.sums(bias=True)
    torch.testing.assert_close(zz, torch.tensor([[float(ROWS)]], dtype=torch.float64))
    torch.testing.assert_close(zr, r.sum(0, keepdim=True))


def test_errors_say_both_values() -> None:
    z, r, _ = drawn()
    got = CrossMoments()
    with pytest.raises(SizeError, match="no rows were added yet"):
        got.covariance()
    got.add(z, r)
    with pytest.raises(SizeError, match=r"\(7, 12\) and \(7, 7\)"):
        got.add(z)
