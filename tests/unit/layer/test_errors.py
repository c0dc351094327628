"""Bad input: each mistake is met with both values, the place and a hint, and before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import multihead as mh
from multihead import cache, mask, position
from multihead.errors import CacheError, SizeError, TypeMismatchError

WIDTH, HEADS = 30, 6


def layer(**options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(options.pop("d_model", WIDTH), options.pop("num_heads", HEADS), **options)


def x(batch: int = 2, tokens: int = 7, width: int = WIDTH) -> Tensor:
    return torch.randn(batch, tokens, width)


def full_static() -> cache.Static:
    kept = cache.Static(2, HEADS, 5, 5)
    with torch.no_grad():
        kept.append(torch.randn(2, HEADS, 4, 5), torch.randn(2, HEADS, 4, 5))
    return kept


Mistake = tuple[Callable[[], Any], type[mh.MultiheadError], list[str]]

MISTAKES: dict[str, Mistake] = {
    # ---- sizes that do not divide
    "heads do not divide the width": (
        lambda: layer(num_heads=7), SizeError, ["num_heads=7", "d_model=30", "1, 2, 3, 5, 6, 10, 15, 30"]
    ),
    "kv heads do not divide the heads": (
        lambda: layer(num_kv_heads=4), SizeError, ["num_kv_heads=4", "num_heads=6", "1, 2, 3, 6"]
    ),
    "no kv heads": (lambda: layer(num_kv_heads=0), SizeError, ["num_kv_heads=0", "num_heads=6"]),
    "zero heads of unknown size": (lambda: layer(num_heads=0), SizeError, ["num_heads=0", "head_dim"]),
    "odd rotary": (lambda: layer(position=position.Rotary()), SizeError, ["head_dim=5", "even"]),
    "rotary wider than the head": (
        lambda: layer(position=position.Rotary(dim=8)), SizeError, ["dim=8", "head_dim=5"]
    ),
    # ---- options
    "a map of the wrong length": (
        lambda: layer(kv_of_head=[0, 1]), SizeError, ["[0, 1]", "6 query heads"]
    ),
    "a map to a head that is not there": (
        lambda: layer(kv_of_head=[0, 0, 1, 1, 2, 2], num_kv_heads=2),
        SizeError,
        ["[0, 0, 1, 1, 2, 2]", "2 kv heads"],
    ),
    "a negative head in the map": (lambda: layer(kv_of_head=[0, 0, 1, 1, -1, 2]), SizeError, ["-1"]),
    "dropout above one": (lambda: layer(dropout=1.5), SizeError, ["dropout", "1.5"]),
    "dropout below zero": (lambda: layer(dropout=-0.1), SizeError, ["dropout", "-0.1"]),
    "softcap of zero": (lambda: layer(softcap=0.0), SizeError, ["softcap", "0.0"]),
    "negative sizes": (lambda: layer(head_dim=-3), SizeError, ["head_dim", "-3"]),
    "value size of zero": (lambda: layer(value_dim=0), SizeError, ["value_dim", "got 0"]),
    "a bias that is no projection": (lambda: layer(bias="qx"), SizeError, ["'qx'", "qkvo"]),
    "a bias for other heads": (
        lambda: layer(position=position.ALiBi(4)), SizeError, ["ALiBi", "4 heads", "6 heads", "ALiBi(6)"]
    ),
    "a position that is none": (lambda: layer(position="rotary"), TypeMismatchError, ["str", "Rotary()"]),
    # ---- inputs
    "wrong width": (lambda: layer()(x(width=29)), SizeError, ["query", "(2, 7, 29)", "30"]),
    "wrong key width": (
        lambda: layer(d_key=11)(x(), x(width=12)), SizeError, ["key", "(2, 7, 12)", "11"]
    ),
    "wrong value width": (
        lambda: layer(d_value=11)(x(), x(), x(width=12)), SizeError, ["value", "(2, 7, 12)", "11"]
    ),
    "one axis": (lambda: layer()(torch.randn(30)), SizeError, ["query", "(30,)"]),
    "four axes": (lambda: layer()(torch.randn(1, 2, 7, 30)), SizeError, ["query", "(1, 2, 7, 30)"]),
    "key and value lengths differ": (lambda: layer()(x(), x(), x(tokens=5)), SizeError, ["tokens", "7 and 5"]),
    "batches differ": (lambda: layer()(x(), x(batch=3)), SizeError, ["batch 2", "batch 3", "key"]),
    "a value without a key": (lambda: layer()(x(), None, x()), SizeError, ["value", "no key"]),
    "self-attention of a cross layer": (lambda: layer(d_key=11)(x()), SizeError, ["d_key=11", "d_model=30"]),
    # ---- kinds
    "double into float": (
        lambda: layer()(x().double()), TypeMismatchError, ["query", "torch.float64", "torch.float32"]
    ),
    "half key": (lambda: layer()(x(), x().half()), TypeMismatchError, ["key", "torch.float16", "torch.float32"]),
    "token ids": (
        lambda: layer()(torch.ones(2, 7, 30, dtype=torch.long)), TypeMismatchError, ["query", "torch.int64"]
    ),
    "another device": (lambda: layer()(x().to("meta")), TypeMismatchError, ["query", "meta", "cpu"]),
    "keys on another device": (lambda: layer()(x(), x().to("meta")), TypeMismatchError, ["key", "meta", "cpu"]),
    # ---- masks
    "mask of another size": (
        lambda: layer()(x(), mask=torch.ones(7, 8, dtype=torch.bool)), SizeError, ["7 x 8", "(2, 6, 7, 7)"]
    ),
    "mask of another batch": (
        lambda: layer()(x(), mask=torch.zeros(3, 7, 7)), SizeError, ["3 x 7 x 7", "(2, 6, 7, 7)", "is (batch,"]
    ),
    "mask of other heads": (
        lambda: layer()(x(), mask=torch.zeros(2, 5, 7, 7)), SizeError, ["2 x 5 x 7 x 7", "(2, 6, 7, 7)"]
    ),
    "a float mask of 0 and 1": (
        lambda: layer()(x(), mask=torch.ones(7, 7).tril()), SizeError, ["(7, 7)", "bool()"]
    ),
    "mask of numbers 0 and 1": (
        lambda: layer()(x(), mask=torch.ones(7, 7, dtype=torch.long)), TypeMismatchError, ["int64", "bool()"]
    ),
    "mask that is a list": (lambda: layer()(x(), mask=[1, 0]), TypeMismatchError, ["[1, 0]", "tensor"]),
    "causal with more queries than keys": (
        lambda: layer()(x(), x(tokens=5), mask=mask.causal()), SizeError, ["7 queries", "5 keys", "first 2"]
    ),
    "length beyond the keys": (
        lambda: layer()(x(), mask=mask.lengths([7, 8])), SizeError, ["row 1", "got 8", "0..7"]
    ),
    "negative length": (lambda: layer()(x(), mask=mask.lengths([-1, 7])), SizeError, ["row 0", "got -1"]),
    "lengths of another batch": (
        lambda: layer()(x(), mask=mask.lengths([7, 7, 7])), SizeError, ["got 3", "batch of 2"]
    ),
    "ragged length beyond the tokens": (
        lambda: layer()(x(), mask=mask.ragged([8, 2])), SizeError, ["row 0", "got 8", "0..7"]
    ),
    "ragged lengths of another batch": (
        lambda: layer()(x(), mask=mask.ragged([1, 2, 3])), SizeError, ["got 3", "batch of 2"]
    ),
    "ragged across": (
        lambda: layer()(x(), x(tokens=5), mask=mask.ragged([5, 2])), SizeError, ["7 queries", "5 keys"]
    ),
    "documents that end early": (
        lambda: layer()(x(), mask=mask.documents(offsets=[0, 3])), SizeError, ["3 tokens", "7 keys"]
    ),
    # ---- the rest of the call
    "gate of other heads": (lambda: layer()(x(), head_gate=torch.ones(5)), SizeError, ["(5,)", "6"]),
    "gate of other queries": (
        lambda: layer()(x(), head_gate=torch.ones(2, 6, 6)), SizeError, ["(2, 6, 6)", "(2, 6, 7)"]
    ),
    "positions of another length": (
        lambda: layer(position=position.Rotary(dim=4))(x(), positions=torch.arange(6)), SizeError, ["6", "7"]
    ),
    "positions that are no integers": (
        lambda: layer(position=position.Rotary(dim=4))(x(), positions=torch.rand(7)), mh.MultiheadError, ["float32"]
    ),
    "an unknown route": (lambda: layer()(x(), route="flash"), SizeError, ["'flash'", "reference"]),
    "a route that cannot": (
        lambda: layer(softcap=2.0)(x(), route="fused"), SizeError, ["'fused'", "softcap", "blocked"]
    ),
    "an unknown question": (lambda: layer()(x(), ask="attention"), SizeError, ["'attention'", "weights"]),
    # ---- caches
    "a static cache that is full": (
        lambda: layer()(x(tokens=2).detach(), cache=full_static()), CacheError, ["capacity=5", "6"]
    ),
    "a cache of another batch": (
        lambda: layer()(x(batch=3), cache=full_static()), CacheError, ["(2, 6, 5)", "(3, 6, 5)"]
    ),
    "a cache of another dtype": (
        lambda: layer(dtype=torch.float64)(x().double(), cache=full_static()), CacheError, ["float32", "float64"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake: str) -> None:
    make, kind, says = MISTAKES[mistake]
    with pytest.raises(kind) as caught, torch.no_grad():
        make()
    text = str(caught.value)
    for part in says:
        assert part in text, f"{part!r} is not in: {text}"
    assert caught.value.hint
    assert f"\n\nhint: {caught.value.hint}" in text
    assert text.isprintable() or "\n" in text


def test_errors_are_also_pythons_own() -> None:
    """So that `except ValueError` and friends go on working."""
    assert issubclass(SizeError, ValueError)
    assert issubclass(TypeMismatchError, TypeError)
    assert issubclass(CacheError, RuntimeError)
    assert all(issubclass(e, mh.MultiheadError) for e in (SizeError, TypeMismatchError, CacheError))


def test_a_refused_call_leaves_the_cache_alone() -> None:
    kept, made = cache.Growing(), layer()
    with torch.no_grad():
        made(x(tokens=4), mask=mask.causal(), cache=kept)
        for bad in (
            {"mask": torch.ones(3, 9, dtype=torch.bool)},
            {"mask": mask.lengths([99, 1])},
            {"route": "flash"},
            {"head_gate": torch.ones(5)},
            {"ask": "attention"},
        ):
            with pytest.raises(mh.MultiheadError):
                made(x(tokens=3), cache=kept, **bad)
            assert kept.lengths.tolist() == [4, 4], f"{bad} left its tokens in the cache"


def test_grad_through_a_static_cache_is_refused() -> None:
    with pytest.raises(CacheError, match="grad"):
        layer()(x(tokens=2), cache=cache.Static(2, HEADS, 5, 5))
