"""Verdicts follow from the relation and the tolerance, and `Needs` says what is missing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from multihead.statements.statement import Comparison, Needs, Relation, Result, Side, not_enough_data, statement
from unit.statements import made


@pytest.mark.parametrize(
    "lhs, relation, rhs, true",
    [
        (1.0, "=", 1.1, True),
        (1.0, "=", 1.2, False),
        (1.0, "!=", 1.2, True),
        (1.0, "!=", 1.1, False),
        (1.1, "<=", 1.0, True),
        (1.2, "<=", 1.0, False),
        (-5.0, "<=", 1.0, True),
        (0.9, ">=", 1.0, True),
        (0.8, ">=", 1.0, False),
        (1.2, ">", 1.0, True),
        (1.1, ">", 1.0, False),
        (math.nan, "=", 1.0, False),
        (math.nan, "<=", 1.0, False),
        ((1.0, 1.1), "=", 1.0, True),
        ((1.0, 1.3), "=", 1.0, False),
        ((1.0, 2.0), "=", (1.0, 2.1), True),
    ],
)
def test_a_relation_with_a_tolerance(lhs: float, relation: Relation, rhs: float, true: bool) -> None:
    comparison = Comparison(Side("", lhs), relation, Side("", rhs), atol=0.15)
    assert comparison.true == true
    assert Result(comparison, "").verdict == ("holds" if true else "fails")


def test_the_tolerance_is_relative_to_the_right_side() -> None:
    assert Comparison(Side("", 109.0), "=", Side("", 100.0), rtol=0.1).true
    assert not Comparison(Side("", 111.0), "=", Side("", 100.0), rtol=0.1).true
    assert not Comparison(Side("", -89.0), "=", Side("", -100.0), rtol=0.1, atol=(0.5,)).true


def test_a_statement_that_needs_its_condition_holds_only_if() -> None:
    true, false = (Comparison(Side("", x), "=", Side("", 1.0)) for x in (1.0, 2.0))
    assert replace(true, always=true).verdict == "holds"
    assert replace(true, always=false).verdict == "holds only if"
    assert replace(false, always=true).verdict == "fails"


@pytest.mark.parametrize(
    "needs, verdict, lhs",
    [
        (Needs(), "holds", ""),
        (Needs(heads=3, tokens=14, length=7, map_size=7, tokens_per_dimension=1, one_stream=True), "holds", ""),
        (Needs(heads=4), "not applicable", "3 heads"),
        (Needs(tokens=15), "not applicable", "14 tokens"),
        (Needs(length=8), "not applicable", "7 tokens"),
        (Needs(map_size=8), "not enough data", "7 tokens"),
        (Needs(tokens_per_dimension=2), "not enough data", "14 tokens"),
    ],
)
def test_needs(needs: Needs, verdict: str, lhs: str) -> None:
    result = Result(Comparison(Side("", 0.0), "=", Side("", 0.0)), "because")
    tested = statement("0", "title", formula="0 = 0", holds_when="always", needs=needs)(lambda layer: result)
    found = tested(made.subject(made.layer(), made.tokens(2, 7)))
    assert (found.verdict, found.lhs) == (verdict, lhs)


def test_a_layer_that_writes_elsewhere_has_no_stream() -> None:
    tested = statement("0", "title", formula="", holds_when="", needs=Needs(one_stream=True))(lambda layer: 1 / 0)
    assert tested(made.subject(made.layer(d_out=5))).verdict == "not applicable"


def test_too_few_tokens_are_counted() -> None:
    result = not_enough_data(1, 60, "A covariance").result
    assert (result.lhs, result.rhs) == ("1 token", "60 needed")
    assert result.numbers == {"tokens": 1.0, "tokens_needed": 60.0}


def test_random_numbers_of_a_statement_are_those_of_the_seed() -> None:
    drawn = statement("0", "t", formula="", holds_when="")(
        lambda layer: Result(Comparison(Side("", float(torch.rand(()))), "=", Side("", 0.0)), "")
    )
    layer = made.subject(made.layer())
    state = torch.random.get_rng_state()
    values = [drawn(x).comparison.lhs.value for x in (layer, layer, replace(layer, seed=1))]
    assert values[0] == values[1] != values[2]
    assert torch.equal(torch.random.get_rng_state(), state)
