"""Statement 6: Gaussian information in closed form, both verdicts of each part, too little data."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import multivariate_normal

from multihead.errors import SizeError
from multihead.statements.gaussian import (
    covariance,
    information,
    part_information,
    projected_information,
    total_correlation,
    with_noise,
)
from multihead.statements.information_of_heads import (
    NOISE,
    at_least_the_best_head,
    capacities_add_up,
    information_splits,
)
from unit.statements import made


def drawn_covariance(width: int, seed: int = 0) -> torch.Tensor:
    a = torch.randn(width, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return a @ a.T / width


# ---- the functions ------------------------------------------------------------------------------


def test_information_of_independent_numbers() -> None:
    variances = torch.tensor([3.0, 1.0, 0.0])
    expected = 0.5 * (math.log(1 + 3 / 0.5) + math.log(1 + 1 / 0.5))
    assert information(variances.diag(), 0.5) == pytest.approx(expected)


def test_information_is_a_difference_of_entropies() -> None:
    signal, noise = drawn_covariance(5), 0.3
    entropy = lambda c: multivariate_normal(cov=c.numpy()).entropy()
    expected = entropy(with_noise(signal, noise)) - entropy(noise * torch.eye(5, dtype=torch.float64))
    assert information(signal, noise) == pytest.approx(expected)


def test_total_correlation_of_two_numbers_is_minus_half_log_one_minus_rho_squared() -> None:
    rho = 0.6
    assert total_correlation(torch.tensor([[1.0, rho], [rho, 1.0]]), [1, 1]) == pytest.approx(
        -0.5 * math.log(1 - rho**2)
    )
    assert total_correlation(torch.diag(torch.tensor([1.0, 2.0, 3.0])), [1, 2]) == pytest.approx(0)


def test_the_identity_holds_with_independent_noise() -> None:
    signal, noise, sizes = drawn_covariance(7), 0.1, [2, 2, 3]
    shared = total_correlation(with_noise(signal, noise), sizes)
    assert information(signal, noise) == pytest.approx(sum(part_information(signal, sizes, noise)) - shared)


def test_a_projection_loses_what_it_maps_to_nothing() -> None:
    signal = torch.diag(torch.tensor([4.0, 1.0, 2.0], dtype=torch.float64))
    mixed = made.turn(3) @ torch.diag(torch.tensor([3.0, 0.1, 7.0], dtype=torch.float64))
    assert projected_information(signal, 0.5, mixed) == pytest.approx(information(signal, 0.5))
    kept = torch.eye(3, dtype=torch.float64)[:1] * 5
    assert projected_information(signal, 0.5, kept) == pytest.approx(0.5 * math.log(1 + 4 / 0.5))
    assert projected_information(signal, 0.5, torch.zeros(2, 3)) == 0


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(SizeError, match=r"noise must be above 0, got 0\.0"):
        information(torch.eye(2), 0.0)
    with pytest.raises(SizeError, match=r"add up to the width 3 of the covariance, got \[2, 2\]"):
        total_correlation(torch.eye(3), [2, 2])


def test_a_covariance_is_that_of_torch() -> None:
    x = torch.randn(17, 5, dtype=torch.float64)
    torch.testing.assert_close(covariance(x), x.T.cov(correction=0))


# ---- statement 6a -------------------------------------------------------------------------------


def test_the_layer_knows_what_its_heads_know_unless_w_o_forgets() -> None:
    assert at_least_the_best_head(made.subject(made.layer())).verdict == "holds"
    forgetful = made.layer()
    with torch.no_grad():
        forgetful.v_proj.weight.view(3, 4, 12)[1] *= 30  # the head that has most to say
        forgetful.o_proj.weight.view(12, 3, 4)[:, 1] = 0
    found = at_least_the_best_head(made.subject(forgetful))
    assert (found.verdict, "maps a part of that head to nothing" in found.because) == ("fails", True)


def test_behind_w_o_heads_may_cancel() -> None:
    near = made.twins(sign=-1.0)
    with torch.no_grad():
        columns = near.o_proj.weight.view(12, 3, 4)
        columns[:, 1] += 1e-3 * torch.randn(12, 4, dtype=torch.float64)
        columns[:, 2] = 1e-3 * torch.randn(12, 4, dtype=torch.float64)
    found = at_least_the_best_head(made.subject(near))
    assert found.verdict == "holds only if"
    assert "heads cancel each other" in found.because


# ---- statement 6b -------------------------------------------------------------------------------


def test_capacities_add_up_for_orthogonal_values_and_not_for_twins() -> None:
    found = capacities_add_up(made.subject(made.orthogonal()))
    assert (found.verdict, found.numbers["counted_twice"]) == ("holds", pytest.approx(0, abs=1e-6))
    assert capacities_add_up(made.subject(made.twins())).verdict == "fails"


def test_the_capacity_of_twins_in_closed_form() -> None:
    """Sequences of one token, so that attention is 1: det(1 + [[G G],[G G]]/n) = det(1 + 2G/n)."""
    subject = made.subject(made.twins(12, 2), made.tokens(9, 1))
    found = capacities_add_up(subject)
    gram = subject.weights.v[0] @ subject.weights.v[0].T
    noise = NOISE * float(gram.trace()) / 6
    assert found.numbers["noise"] == pytest.approx(noise)
    assert found.numbers["total"] == pytest.approx(information(2 * gram, noise))
    assert sum(found.numbers["heads"]) == pytest.approx(2 * information(gram, noise))  # type: ignore[arg-type]


def test_heads_that_look_elsewhere_add_up_though_they_read_alike() -> None:
    base = made.subject(made.twins(12, 2))
    apart = torch.stack([torch.eye(9)[0].expand(9, 9), torch.eye(9)[1].expand(9, 9)])
    assert capacities_add_up(made.with_maps(base, [apart])).verdict == "holds"


# ---- statement 6c -------------------------------------------------------------------------------


def test_information_splits_over_independent_heads_only() -> None:
    base = made.subject(made.layer())
    apart = torch.randn(2000, 3, 4, dtype=torch.float64)
    assert information_splits(made.with_outputs(base, apart)).verdict == "holds"
    common = apart + 2 * apart[:, :1]
    found = information_splits(made.with_outputs(base, common))
    assert found.verdict == "fails"
    assert found.numbers["corrected_right_side"] == pytest.approx(found.numbers["joint"])
    assert found.numbers["total_correlation_given_input"] == pytest.approx(0)


def test_total_correlation_of_twins() -> None:
    """Two heads of one number each, the same: TC = −½ log(1 − ρ²), ρ = 1 / (1 + noise)."""
    base = made.subject(made.layer(12, 2, value_dim=1))
    z = torch.randn(500, 1, 1, dtype=torch.float64).expand(500, 2, 1)
    rho = 1 / (1 + NOISE)
    found = information_splits(made.with_outputs(base, z))
    assert found.numbers["total_correlation"] == pytest.approx(-0.5 * math.log(1 - rho**2))


# ---- bad input ----------------------------------------------------------------------------------


def test_too_few_tokens_says_how_many_would_do() -> None:
    few = made.subject(made.layer(), made.tokens(2, 7))
    for test in (information_splits, at_least_the_best_head):
        found = test(few)
        assert (found.verdict, found.lhs, found.rhs) == ("not enough data", "14 tokens", "60 needed")
    assert information_splits(made.subject(made.layer(), made.tokens(6, 10))).verdict != "not enough data"


def test_constant_outputs_carry_nothing() -> None:
    dead = made.layer()
    torch.nn.init.zeros_(dead.v_proj.weight)
    subject = made.subject(dead)
    for test in (information_splits, at_least_the_best_head, capacities_add_up):
        assert test(subject).verdict == "not applicable"
    assert information_splits(made.subject(made.layer(12, 1))).lhs == "1 head"
