"""The sentences of textbooks: both verdicts on layers made for them."""

from __future__ import annotations

import pytest
import torch

import multihead as mh
from multihead.statements import textbook
from multihead.statements.layer_sample import LayerSample
from multihead.statements.sampling import layer_samples


def of(attn: mh.MultiHeadAttention, tokens: int = 7) -> LayerSample:
    return next(iter(layer_samples(attn, torch.randn(2, tokens, attn.d_model))))


def test_time_and_space() -> None:
    found = textbook.quadratic(of(mh.MultiHeadAttention(24, 4)))
    assert found.verdict == "holds only if"
    assert found.numbers["time_exponent"] == pytest.approx(2)
    assert found.numbers["time_exponent_in_h"] == pytest.approx(0)
    few, many = found.numbers["explicit_bytes_by_heads"]
    assert many > 2 * few
    few, many = found.numbers["fused_bytes_by_heads"]
    assert many < 1.5 * few


@pytest.mark.parametrize("space, verdict", [(lambda n, h: n * n, "holds"), (lambda n, h: n, "holds only if")])
def test_other_verdicts_on_space(monkeypatch: pytest.MonkeyPatch, space: object, verdict: str) -> None:
    monkeypatch.setattr(textbook, "measured_bytes", lambda layer, n, _: space(n, layer.num_heads))  # type: ignore[operator]
    assert textbook.quadratic(of(mh.MultiHeadAttention(24, 4))).verdict == verdict
    monkeypatch.setattr(textbook, "counted_flops", lambda layer, n: {"all": n, "attention": n})
    assert textbook.quadratic(of(mh.MultiHeadAttention(24, 4))).verdict == "fails"


def test_heads_side_by_side_are_not_heads_in_turn() -> None:
    found = textbook.stacked(of(mh.MultiHeadAttention(24, 4)))
    assert found.verdict == "holds"
    assert min(found.numbers["difference"], found.numbers["order"]) > 1e-3
    assert textbook.stacked(of(mh.MultiHeadAttention(24, 1))).verdict == "fails"
    apart = mh.MultiHeadAttention(24, 2, bias=False)  # each head reads and writes its own half of the stream
    with torch.no_grad():
        for part in (apart.q_proj, apart.k_proj, apart.v_proj, apart.o_proj):
            part.weight[:12, 12:] = 0
            part.weight[12:, :12] = 0
    assert textbook.stacked(of(apart)).verdict == "fails"
    assert textbook.stacked(of(mh.MultiHeadAttention(24, 2, d_out=5))).verdict == "not applicable"


def test_heads_side_by_side_are_the_layer() -> None:
    """What `stacked` calls at once is the layer itself, without its output bias."""
    attn = mh.MultiHeadAttention(24, 4)
    layer = of(attn, tokens=5)
    torch.testing.assert_close(sum(layer.part(i) for i in range(4)), layer.output - layer.weights.bias("o"))


def test_dimensions_of_a_head() -> None:
    assert textbook.dimensions(of(mh.MultiHeadAttention(24, 4))).verdict == "holds"
    assert textbook.dimensions(of(mh.MultiHeadAttention(24, 4, head_dim=10))).verdict == "fails"
    flat = mh.MultiHeadAttention(24, 4)
    with torch.no_grad():
        flat.q_proj.weight[1] = flat.q_proj.weight[0]
    found = textbook.dimensions(of(flat))
    assert (found.verdict, found.numbers["rank_q"]) == ("holds only if", [5, 6, 6, 6])


def test_work_is_similar_unless_heads_are_wide_or_share_keys() -> None:
    found = textbook.same_work(of(mh.MultiHeadAttention(24, 4)))
    assert (found.verdict, found.numbers["ratio"]) == ("holds", 1)
    assert textbook.same_work(of(mh.MultiHeadAttention(24, 4, head_dim=16))).verdict == "fails"
    grouped = textbook.same_work(of(mh.MultiHeadAttention(24, 4, num_kv_heads=1)))
    assert (grouped.verdict, grouped.numbers["ratio"] < 0.9) == ("fails", True)


def test_values_of_another_size_are_named() -> None:
    attn = mh.MultiHeadAttention(12, 3, value_dim=1)
    found = textbook.dimensions(next(iter(layer_samples(attn, torch.randn(2, 7, 12)))))
    assert (found.verdict, "d_k 4, d_v 1" in found.why) == ("fails", True)
