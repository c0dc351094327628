"""`annotation_checks.py` checks: a suite whose annotations are never looked at would pass just the same."""

from __future__ import annotations

import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import annotation_checks
import multihead as mh
from multihead.errors import TypeMismatchError
from multihead.layer import AttentionOutput, Sinks, attend


def test_a_wrong_argument_is_noticed() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="problem"):
        attend("no problem")


def test_a_wrong_field_is_noticed() -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="out"):
        AttentionOutput(out="high")  # type: ignore[arg-type]


def test_an_axis_has_one_size_in_arguments_and_result() -> None:
    def first(x: Float[Tensor, "row column"], rows: Float[Tensor, " row"]) -> Float[Tensor, " column"]:
        return x[0] if float(rows[0]) else x[:, 0]

    check = annotation_checks._check(first)
    assert check(torch.ones(2, 3), torch.ones(2)).shape == (3,)
    with pytest.raises(jaxtyping.TypeCheckError, match="rows"):
        check(torch.ones(2, 3), torch.ones(3))
    with pytest.raises(jaxtyping.TypeCheckError, match="return"):
        check(torch.ones(2, 3), torch.zeros(2))


def test_an_int_is_a_float() -> None:
    assert Sinks(init=1).init == 1


def test_what_the_package_says_itself_is_heard_first() -> None:
    attn = mh.MultiHeadAttention(12, 3)
    with pytest.raises(TypeMismatchError, match="int64"):
        attn(torch.ones(2, 5, 12, dtype=torch.int64))
