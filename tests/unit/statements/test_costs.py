"""FLOPs and bytes that are counted while a layer runs, against closed forms; both verdicts."""

from __future__ import annotations

import pytest
import torch

import multihead as mh
from multihead.statements.attention_flops import attention_flops
from multihead.statements.attention_memory import attention_memory
from multihead.statements.collect_samples import layer_samples
from multihead.statements.layer_sample import LayerSample
from multihead.statements.layer_shape import LayerShape, LiveBytes


def subject(d_model: int = 12, heads: int = 3, tokens: int = 7, **options: int) -> LayerSample:
    attn = mh.MultiHeadAttention(d_model, heads, **options)  # type: ignore[arg-type]
    return next(iter(layer_samples(attn, torch.randn(2, tokens, d_model))))


def test_counted_flops_are_the_closed_form() -> None:
    n, d, h, kv, k, v = 11, 30, 6, 2, 5, 4
    counted = subject(d, h, num_kv_heads=kv, value_dim=v).shape.flops(n)
    assert counted["attention"] == 2 * n * n * h * (k + v)
    assert counted["all"] - counted["attention"] == 2 * n * d * (h * k + kv * k + kv * v + h * v)


def test_short_sequences_are_linear_and_long_ones_quadratic() -> None:
    short = attention_flops(subject(d_model=64, heads=4, tokens=7))
    assert (short.verdict, short.numbers["crossover"]) == ("holds only if", 128)
    assert short.numbers["exponent_here"] < 1.2
    long = attention_flops(subject(d_model=4, heads=2, tokens=101))
    assert long.verdict == "holds"
    assert long.numbers["exponent_here"] > 1.9
    for found in (short, long):
        assert found.numbers["flops"] == found.numbers["closed_form"]
        assert found.numbers["exponent_in_n"] == pytest.approx(2)
        assert len(set(found.numbers["flops_by_heads"])) == 1


def test_a_count_that_is_not_the_closed_form_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LayerShape, "flops", lambda self, n, heads=None: {"all": n**3, "attention": n**3})
    assert attention_flops(subject()).verdict == "fails"


def test_live_bytes_are_those_of_the_tensors() -> None:
    x = torch.zeros(100)
    with LiveBytes(iter((x,))) as live:
        a = x + 1  # 400 bytes
        b = a * 2  # 800 at once
        del a
        c = b.view(10, 10)  # no memory of its own
        _ = c.double()  # 400 + 800
    assert live.peak == 1200


def test_memory_of_maps_and_of_the_fused_kernel() -> None:
    found = attention_memory(subject(d_model=32, heads=4))
    assert found.verdict == "holds only if"
    assert found.numbers["maps_alive"] == pytest.approx(2, abs=0.3)
    assert found.numbers["exponent_fused"] == pytest.approx(1, abs=0.1)
    assert found.numbers["exponent_explicit"] > 1.5


@pytest.mark.parametrize("factor, verdict", [(1, "holds"), (100, "fails")])
def test_other_verdicts_on_memory(monkeypatch: pytest.MonkeyPatch, factor: int, verdict: str) -> None:
    formula = lambda shape, n, _: factor * 4 * shape.heads * (4 * n * shape.key_dim + n * n)
    monkeypatch.setattr(LayerShape, "bytes", formula)
    assert attention_memory(subject()).verdict == verdict
