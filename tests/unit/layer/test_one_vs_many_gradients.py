"""docs/learn/2-one-head-or-many.md: when eight heads equal one with the same projections, and how both learn."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "one_vs_many_gradients.py"))
SEEDS = range(12)


@pytest.fixture(scope="module")
def positive():
    return [EXAMPLE["compare"](seed, EXAMPLE["positive"]) for seed in SEEDS]


@pytest.fixture(scope="module")
def realistic():
    return [EXAMPLE["compare"](seed, EXAMPLE["realistic"]) for seed in SEEDS]


def test_positive_inputs_saturate_and_then_the_two_agree(positive):
    assert sum(c.equal for c in positive) > len(positive) / 2
    for c in positive:
        assert c.top_weight > 0.95
        if c.same_key and c.top_weight > 1 - 1e-7:
            assert c.equal


def test_where_heads_pick_different_keys_the_two_differ(positive):
    different = [c for c in positive if not c.equal]
    assert all(c.difference > 1e-5 for c in different)


def test_realistic_inputs_do_not_saturate_and_the_two_differ(realistic):
    for c in realistic:
        assert not c.equal
        assert not c.same_key
        assert c.top_weight < 0.5
        assert c.difference > 0.1


def test_a_saturated_softmax_leaves_the_queries_almost_no_gradient(positive, realistic):
    saturated = [c for c in positive if c.top_weight > 1 - 1e-7]
    assert saturated
    least = min(min(c.grad_one, c.grad_eight) for c in realistic)
    assert all(c.grad_eight < least / 10 for c in saturated)


def test_where_maps_coincide_only_the_gradients_of_queries_differ():
    same = EXAMPLE["gradients"](seed=0)
    assert max(same.output, same.w_v, same.w_o) < 1e-5
    assert same.w_q > 0.5
    assert max(same.own, same.summed) < 1e-4
