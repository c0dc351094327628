"""One basis for the maps of several heads: against the singular value decomposition, and against plain descent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from multihead.edit.kv_sharing.low_rank import Metrics, gram, joint_low_rank, loss, root
from multihead.edit.kv_sharing.rotary import Pairs, complex_pca, find_pairs
from multihead.layer._rotary import Rotary

HEADS, DIM, WIDTH = 3, 5, 17


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def squares(count: int, size: int, seed: int) -> Tensor:
    x = drawn(count, size, 2 * size, seed=seed)
    return x @ x.mT / size


def test_in_one_metric_the_loss_is_the_tail_of_the_singular_values() -> None:
    maps, weights = drawn(HEADS, DIM, WIDTH), squares(HEADS, DIM, 1)
    metric = squares(1, WIDTH, 2)
    found = joint_low_rank(maps, weights, Metrics.full(metric.expand(HEADS, -1, -1)), DIM)
    stacked = (root(weights) @ maps).flatten(0, 1) @ root(metric[0])
    tail = float(torch.linalg.svdvals(stacked)[DIM:].square().sum())
    assert found.loss == pytest.approx(tail, rel=1e-9)
    again = loss(found.basis, found.coefficients, maps, weights, Metrics.full(metric.expand(HEADS, -1, -1)))
    assert again == pytest.approx(tail, rel=1e-9)


def test_the_eigenvalues_of_a_part_of_the_gram_matrix_tell_the_loss_of_its_heads() -> None:
    maps, weights, metric = drawn(HEADS, DIM, WIDTH), squares(HEADS, DIM, 1), squares(1, WIDTH, 2)
    some = [0, 2]
    part = gram(maps, weights, Metrics.full(metric[0]))[some][:, :, some].flatten(2).flatten(0, 1)
    tail = float(torch.linalg.eigvalsh(part)[:-DIM].sum())
    found = joint_low_rank(maps[some], weights[some], Metrics.full(metric.expand(2, -1, -1)), DIM)
    assert found.loss == pytest.approx(tail, rel=1e-9)


def test_with_a_metric_for_each_head_it_comes_where_descent_comes() -> None:
    maps, weights, metrics = drawn(HEADS, DIM, WIDTH), squares(HEADS, DIM, 1), squares(HEADS, WIDTH, 2)
    metrics = metrics * torch.logspace(-1, 1, HEADS, dtype=torch.float64)[:, None, None]
    found = joint_low_rank(maps, weights, Metrics.full(metrics), DIM, rounds=40)
    best = float("inf")
    for seed in range(3):
        basis = drawn(DIM, WIDTH, seed=seed).requires_grad_()
        descent = torch.optim.LBFGS([basis], max_iter=400, line_search_fn="strong_wolfe", tolerance_change=1e-12)

        def lost(basis: Tensor = basis) -> Tensor:  # with the best mixes, written out
            right = metrics @ basis.mT
            mixes = torch.linalg.solve(basis @ right, (maps @ right).mT).mT
            off = maps - mixes @ basis
            return torch.einsum("hij,hjw,hwx,hix->", weights, off, metrics, off)

        def closure(basis: Tensor = basis, descent: torch.optim.LBFGS = descent) -> Tensor:
            descent.zero_grad()
            value = lost(basis)
            value.backward()
            return value

        descent.step(closure)  # pyright: ignore[reportArgumentType]
        best = min(best, lost(basis).item())
    one = joint_low_rank(maps, weights, Metrics.full(metrics.mean(0).expand(HEADS, -1, -1)), DIM)
    start = loss(one.basis, one.coefficients, maps, weights, Metrics.full(metrics))
    assert found.loss < 0.98 * start  # it is worth something here
    assert found.loss < 1.01 * best


def test_a_diagonal_of_the_other_coordinates_is_a_full_metric_without_correlations() -> None:
    maps, weights = drawn(HEADS, DIM, WIDTH), squares(HEADS, DIM, 1)
    block, diagonal = squares(HEADS, 7, 2), drawn(HEADS, WIDTH - 7, seed=3).square() + 0.1
    full = torch.stack([torch.block_diag(a, b.diag()) for a, b in zip(block, diagonal, strict=True)])
    split, whole = Metrics(block, diagonal), Metrics.full(full)
    torch.testing.assert_close(split.times(maps), maps @ full)
    torch.testing.assert_close(split.trace, whole.trace)
    one, other = (joint_low_rank(maps, weights, metrics, DIM) for metrics in (split, whole))
    torch.testing.assert_close(one.coefficients @ one.basis, other.coefficients @ other.basis, rtol=1e-6, atol=1e-6)
    assert one.loss == pytest.approx(other.loss, rel=1e-9)


def test_heads_that_read_one_space_lose_nothing_also_in_metrics_of_their_own() -> None:
    maps = drawn(HEADS, DIM, DIM, seed=3) @ drawn(DIM, WIDTH, seed=4)
    metrics = squares(HEADS, WIDTH, 5)
    found = joint_low_rank(maps, squares(HEADS, DIM, 6), Metrics.full(metrics), DIM)
    torch.testing.assert_close(found.coefficients @ found.basis, maps, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("rotary", "pairs"),
    [
        (Rotary(), Pairs.halves(0, 8, 8)),
        (Rotary(interleaved=True), Pairs.neighbours(0, 8, 8)),
        (Rotary(dim=4), Pairs.halves(0, 4, 8)),
        (Rotary(dim=4, interleaved=True), Pairs.neighbours(0, 4, 8)),
    ],
)
def test_how_dimensions_are_paired_is_seen_from_the_turn(rotary: Rotary, pairs: Pairs) -> None:
    q, k = torch.randn(2, 3, 13, 8), torch.randn(2, 1, 13, 8)
    positions = torch.arange(13)
    seen = [(q, rotary(q, positions)), (k, rotary(k, positions))]
    assert find_pairs(seen) == pairs
    wrong = Pairs.neighbours(0, 8, 8) if not rotary.interleaved else Pairs.halves(0, 8, 8)
    assert pairs.error(seen) < 1e-6
    assert wrong.error(seen) > 0.05


def test_a_norm_is_no_turn() -> None:
    x = torch.randn(2, 3, 13, 8)
    normed = x / x.square().mean(-1, keepdim=True).sqrt()
    assert find_pairs([(x, normed)]) is None
    assert find_pairs([(x, Rotary()(normed, torch.arange(13)))]) is None


def test_keys_that_differ_by_complex_numbers_become_one_and_scores_stay() -> None:
    pairs, rotary = Pairs.halves(0, 8, 8), Rotary(angle_dtype=torch.float64)
    k0, q = drawn(1, 1, 13, 8, seed=1), drawn(1, 2, 13, 8, seed=2)
    factor = torch.complex(drawn(4, seed=3), drawn(4, seed=4))
    k1 = as_real(factor * pairs.complex(k0), pairs)
    both = pairs.complex(torch.cat([k0, k1], dim=1)[0]).permute(2, 0, 1)  # pair, head, token
    found = complex_pca(both @ both.mH / 13, pairs.complex(q[0]).abs().square().mean(1).T)
    assert found.loss < 1e-12
    key = as_real((found.combination[:, :, None] * both).sum(1).T[None, None], pairs)
    turned = as_real(found.scale.T.conj()[None, :, None] * pairs.complex(q), pairs)
    positions = torch.arange(13)
    was = rotary(q, positions) @ rotary(torch.cat([k0, k1], dim=1), positions).mT
    now = rotary(turned, positions) @ rotary(key, positions).mT
    torch.testing.assert_close(now, was)


def test_the_loss_of_a_turn_is_what_one_complex_key_leaves() -> None:
    keys = torch.complex(drawn(2, 3, 29, seed=1), drawn(2, 3, 29, seed=2))  # pair, head, token
    weights = drawn(2, 3, seed=3).square() + 0.1
    found = complex_pca(keys @ keys.mH / 29, weights)
    shared_key = (found.combination[:, :, None] * keys).sum(1, keepdim=True)
    off = keys - found.scale[:, :, None] * shared_key
    left = float((weights[:, :, None] * off.abs().square()).sum() / 29)
    assert found.loss == pytest.approx(left, rel=1e-9)
    tails = torch.linalg.svdvals(weights.sqrt()[:, :, None].to(keys.dtype) * keys)[:, 1:]
    assert left == pytest.approx(float(tails.square().sum()) / 29, rel=1e-9)


def as_real(z: Tensor, pairs: Pairs) -> Tensor:
    out = torch.zeros(*z.shape[:-1], 2 * z.shape[-1], dtype=torch.float64)
    out[..., list(pairs.first)], out[..., list(pairs.second)] = z.real, z.imag
    return out
