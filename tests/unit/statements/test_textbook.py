"""The sentences of textbooks: both verdicts on layers made for them."""

from __future__ import annotations

import pytest
import torch

import multihead as mh
from multihead.statements.collect_samples import layer_samples
from multihead.statements.head_dimension import head_dimension
from multihead.statements.layer_sample import LayerSample
from multihead.statements.layer_shape import LayerShape
from multihead.statements.not_stacked_layers import not_stacked_layers
from multihead.statements.quadratic_in_length import quadratic_in_length
from multihead.statements.same_cost_as_one_head import same_cost_as_one_head


def of(attn: mh.MultiHeadAttention, tokens: int = 7) -> LayerSample:
    return next(iter(layer_samples(attn, torch.randn(2, tokens, attn.d_model))))


def test_time_and_space() -> None:
    found = quadratic_in_length(of(mh.MultiHeadAttention(24, 4)))
    assert found.verdict == "holds only if"
    assert found.numbers["time_exponent"] == pytest.approx(2)
    assert found.numbers["time_exponent_in_h"] == pytest.approx(0)
    few, many = found.numbers["explicit_bytes_by_heads"]
    assert many > 2 * few
    few, many = found.numbers["fused_bytes_by_heads"]
    assert many < 1.5 * few


@pytest.mark.parametrize("space, verdict", [(lambda n, h: n * n, "holds"), (lambda n, h: n, "holds only if")])
def test_other_verdicts_on_space(monkeypatch: pytest.MonkeyPatch, space: object, verdict: str) -> None:
    monkeypatch.setattr(LayerShape, "bytes", lambda self, n, _, heads=4: space(n, heads))  # type: ignore[operator]
    assert quadratic_in_length(of(mh.MultiHeadAttention(24, 4))).verdict == verdict
    monkeypatch.setattr(LayerShape, "flops", lambda self, n, heads=None: {"all": n, "attention": n})
    assert quadratic_in_length(of(mh.MultiHeadAttention(24, 4))).verdict == "fails"


def test_heads_side_by_side_are_not_heads_in_turn() -> None:
    found = not_stacked_layers(of(mh.MultiHeadAttention(24, 4)))
    assert found.verdict == "holds"
    assert min(found.numbers["difference"], found.numbers["order"]) > 1e-3
    assert not_stacked_layers(of(mh.MultiHeadAttention(24, 1))).verdict == "fails"
    apart = mh.MultiHeadAttention(24, 2, bias=False)  # each head reads and writes its own half of the stream
    with torch.no_grad():
        for part in (apart.q_proj, apart.k_proj, apart.v_proj, apart.o_proj):
            part.weight[:12, 12:] = 0
            part.weight[12:, :12] = 0
    assert not_stacked_layers(of(apart)).verdict == "fails"
    assert not_stacked_layers(of(mh.MultiHeadAttention(24, 2, d_out=5))).verdict == "not applicable"


def test_heads_side_by_side_are_the_layer() -> None:
    """What `stacked` calls at once is the layer itself, without its output bias."""
    attn = mh.MultiHeadAttention(24, 4)
    layer = of(attn, tokens=5)
    torch.testing.assert_close(sum(layer.part(i) for i in range(4)), layer.output - layer.weights.bias("o"))


def test_dimensions_of_a_head() -> None:
    assert head_dimension(of(mh.MultiHeadAttention(24, 4))).verdict == "holds"
    assert head_dimension(of(mh.MultiHeadAttention(24, 4, head_dim=10))).verdict == "fails"
    flat = mh.MultiHeadAttention(24, 4)
    with torch.no_grad():
        flat.q_proj.weight[1] = flat.q_proj.weight[0]
    found = head_dimension(of(flat))
    assert (found.verdict, found.numbers["rank_q"]) == ("holds only if", [5, 6, 6, 6])


def test_work_is_similar_unless_heads_are_wide_or_share_keys() -> None:
    found = same_cost_as_one_head(of(mh.MultiHeadAttention(24, 4)))
    assert (found.verdict, found.numbers["ratio"]) == ("holds", 1)
    assert same_cost_as_one_head(of(mh.MultiHeadAttention(24, 4, head_dim=16))).verdict == "fails"
    grouped = same_cost_as_one_head(of(mh.MultiHeadAttention(24, 4, num_kv_heads=1)))
    assert (grouped.verdict, grouped.numbers["ratio"] < 0.9) == ("fails", True)


def test_values_of_another_size_are_named() -> None:
    attn = mh.MultiHeadAttention(12, 3, value_dim=1)
    found = head_dimension(next(iter(layer_samples(attn, torch.randn(2, 7, 12)))))
    assert (found.verdict, "d_k 4, d_v 1" in found.because) == ("fails", True)
