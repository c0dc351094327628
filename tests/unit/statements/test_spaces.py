"""Statements 1 to 3: angles, direct sums and diversity, on layers whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.linalg import subspace_angles
from torch.testing import assert_close

from multihead.statements import subspaces
from multihead.statements.collect_samples import layer_samples
from multihead.statements.cosine_diversity import (
    cosine_diversity,
    diversity,
    flat_cosines,
    random_diversity,
    turned_cosines,
)
from multihead.statements.direct_sum import direct_sum
from multihead.statements.orthogonal_spaces import orthogonal_spaces
from unit.statements import made
from zoo import ZOO

# ---- the functions ------------------------------------------------------------------------------


def test_angles_are_those_of_scipy_and_of_a_known_pair() -> None:
    a, b = torch.randn(3, 11, dtype=torch.float64), torch.randn(5, 11, dtype=torch.float64)
    angles = torch.from_numpy(subspace_angles(a.T.numpy(), b.T.numpy()).copy())
    bases = [subspaces.basis(a), subspaces.basis(b)]
    assert_close(subspaces.largest_cosines(bases)[0, 1], torch.cos(angles.min()))
    assert_close(subspaces.overlaps(bases)[0, 1], torch.cos(angles).square().mean())
    leaning = torch.tensor([[math.cos(math.radians(31)), math.sin(math.radians(31)), 0.0]])
    cosine = subspaces.largest_cosines([subspaces.basis(torch.eye(3)[:1]), subspaces.basis(leaning)])[0, 1]
    assert float(cosine) == pytest.approx(math.cos(math.radians(31)))


def test_a_span_of_zeros_is_empty_and_has_a_cosine_of_zero() -> None:
    bases = [subspaces.basis(torch.zeros(2, 5)), subspaces.basis(torch.randn(2, 5))]
    assert [len(b) for b in bases] == [0, 2]
    assert float(subspaces.largest_cosines(bases)[0, 1]) == 0


def test_random_spans_overlap_as_the_closed_form_says() -> None:
    spans = subspaces.random_spans([4] * 60, 23)
    mean = float(subspaces.pairs(subspaces.overlaps(spans)).mean())
    assert mean == pytest.approx(4 / 23, rel=0.02)


def test_random_diversity_is_the_mean_of_drawn_ones() -> None:
    drawn = [diversity(flat_cosines(torch.randn(40, 3, 5, dtype=torch.float64))) for _ in range(20)]
    assert sum(drawn) / 20 == pytest.approx(random_diversity(15), abs=0.005)


def test_diversity_by_loops() -> None:
    w = torch.randn(5, 3, 7, dtype=torch.float64)
    total = 0.0
    for i in range(5):
        for j in range(5):
            if i != j:
                total += 1 - abs(float((w[i] * w[j]).sum() / (w[i].norm() * w[j].norm())))
    assert diversity(flat_cosines(w)) == pytest.approx(total / 20)
    assert math.isnan(diversity(torch.ones(1, 1)))


def test_the_turned_cosine_finds_the_turn() -> None:
    w = torch.randn(3, 7, dtype=torch.float64)
    both = torch.stack([w, made.turn(3) @ w])
    assert abs(float(flat_cosines(both)[0, 1])) < 0.9
    assert float(turned_cosines(both)[0, 1]) == pytest.approx(1.0)
    drawn = [float((both[0] * (made.turn(3, s) @ both[1])).sum()) for s in range(200)]
    assert max(drawn) / float(w.norm() ** 2) <= 1.0


# ---- statement 1 --------------------------------------------------------------------------------


def test_orthogonal_heads_are_orthogonal_and_drawn_ones_are_not() -> None:
    found = orthogonal_spaces(made.subject(made.orthogonal()))
    assert found.verdict == "holds"
    assert found.numbers["smallest_angle_V"] == pytest.approx(90, abs=1e-4)
    drawn = made.subject(made.layer())
    found = orthogonal_spaces(drawn)
    assert found.verdict == "fails"
    w = drawn.weights.q.numpy()
    least = min(math.degrees(subspace_angles(w[i].T, w[j].T).min()) for i in range(3) for j in range(i))
    assert found.numbers["smallest_angle_Q"] == pytest.approx(least)


def test_twins_have_an_angle_of_zero() -> None:
    found = orthogonal_spaces(made.subject(made.twins()))
    assert found.verdict == "fails"
    assert found.numbers["smallest_angle_K"] == pytest.approx(0, abs=1e-5)


def test_heads_that_do_not_fit_cannot_be_orthogonal() -> None:
    found = orthogonal_spaces(made.subject(made.layer(12, 3, head_dim=5)))
    assert (found.verdict, "add up to more than d_model" in found.because) == ("fails", True)


def test_shared_keys_are_compared_once() -> None:
    found = orthogonal_spaces(made.subject(made.layer(12, 6, num_kv_heads=3)))
    assert "per kv head (3 of them)" in found.because
    assert len(found.numbers["largest_cosines_K"]) == 3  # type: ignore[arg-type]
    assert len(found.numbers["largest_cosines_Q"]) == 15  # type: ignore[arg-type]
    alone = orthogonal_spaces(made.subject(made.layer(12, 3, num_kv_heads=1)))
    assert "smallest_angle_K" not in alone.numbers


@pytest.mark.parametrize("test", [orthogonal_spaces, cosine_diversity])
def test_one_head_has_no_pairs(test: object) -> None:
    found = test(made.subject(made.layer(12, 1)))  # type: ignore[operator]
    assert (found.verdict, found.lhs) == ("not applicable", "1 head")


# ---- statement 2 --------------------------------------------------------------------------------


def test_the_sum_is_direct_for_independent_columns() -> None:
    found = direct_sum(made.subject(made.orthogonal()))
    assert (found.verdict, found.numbers["condition"]) == ("holds", pytest.approx(1.0))
    assert "orthogonal too" in found.because
    assert direct_sum(made.subject(made.layer())).verdict == "holds"


def test_twins_share_what_they_write() -> None:
    found = direct_sum(made.subject(made.twins()))
    assert (found.verdict, found.lhs) == ("fails", "rank 8, Σ ranks 12, Σ d_k 12")
    assert "share directions" in found.because


def test_zeros_write_nothing() -> None:
    layer = made.layer()
    torch.nn.init.zeros_(layer.o_proj.weight)
    result = direct_sum(made.subject(layer))
    assert (result.verdict, result.lhs) == ("fails", "rank 0, Σ ranks 0, Σ d_k 12")
    assert "No head writes 12 of 12 directions" in result.because


def test_small_heads_leave_directions_out() -> None:
    found = direct_sum(made.subject(made.layer(12, 3, head_dim=2)))
    assert found.verdict == "fails"
    assert "No head writes 6 of 12 directions" in found.because
    assert "⊕ ℝ^d_k has 6 dimensions, not 12" in found.because


# ---- statement 3 --------------------------------------------------------------------------------


def test_one_cosine_is_enough_for_twins_and_for_orthogonal_heads() -> None:
    for subject, D in ((made.subject(made.twins(12, 2)), 0.0), (made.subject(made.orthogonal()), 1.0)):
        found = cosine_diversity(subject)
        assert (found.verdict, found.numbers["D"]) == ("holds", pytest.approx(D, abs=1e-9))


def test_one_cosine_does_not_see_a_twin_in_other_coordinates() -> None:
    """W_Q and W_K turned alike: the same scores to the last digits, and a cosine of exactly 0."""
    twin = made.twins(12, 2)
    x = made.tokens()
    before = twin(x, ask="weights").weights
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    turned = torch.block_diag(quarter, quarter, quarter)
    with torch.no_grad():
        for linear in (twin.q_proj, twin.k_proj):
            rows = linear.weight.view(2, 6, 12)
            rows[1] = turned @ rows[1]
    assert_close(twin(x, ask="weights").weights, before)
    found = cosine_diversity(made.subject(twin))
    assert found.verdict == "fails"
    assert found.numbers["D"] == pytest.approx(1.0)
    assert found.numbers["D_turned"] == pytest.approx(0.0, abs=1e-9)


def test_a_model_with_rotation_and_groups_has_all_three() -> None:
    model = ZOO["llama"].build()
    for subject in layer_samples(model, ZOO["llama"].inputs(model)):
        assert {orthogonal_spaces(subject).verdict, cosine_diversity(subject).verdict} == {"fails"}
        assert direct_sum(subject).numbers["d_model"] == 36


@torch.no_grad()
def test_long_and_short_columns_have_the_same_spans() -> None:
    layer = made.orthogonal()
    layer.o_proj.weight.view(12, 3, 4)[:, 0] = made.turn(12, 3)[:, :4]
    layer.o_proj.weight.view(12, 3, 4)[:, 1] = 10 * made.turn(12, 3)[:, 4:8]
    layer.o_proj.weight.view(12, 3, 4)[:, 2] = 1e-8 * made.turn(12, 3)[:, 8:]
    found = direct_sum(made.subject(layer))
    assert (found.verdict, found.lhs) == ("holds", "rank 12, Σ ranks 12, Σ d_k 12")
    assert found.numbers["condition"] == pytest.approx(1.0)
    assert "orthogonal too" in found.because


@pytest.mark.parametrize("test", [orthogonal_spaces, cosine_diversity])
def test_weights_of_zeros_have_no_angle(test: object) -> None:
    layer = made.layer()
    with torch.no_grad():
        for linear in (layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj):
            linear.weight.zero_()
    assert test(made.subject(layer)).verdict == "not applicable"  # type: ignore[operator]
