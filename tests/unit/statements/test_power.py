"""What heads can express: constructed patterns, the bottleneck, and when many heads are one."""

from __future__ import annotations

import math

import pytest
import torch

import multihead as mh
from multihead.statements.any_pattern import any_pattern, best_of_rank, construct
from multihead.statements.collect_samples import layer_samples
from multihead.statements.equals_one_head import equals_one_head, many_and_one
from multihead.statements.layer_sample import LayerSample
from zoo import ZOO


def subject(d_model: int = 24, heads: int = 3, tokens: int = 7, x: torch.Tensor | None = None) -> LayerSample:
    attn = mh.MultiHeadAttention(d_model, heads)
    return next(iter(layer_samples(attn, torch.randn(2, tokens, d_model) if x is None else x)))


def test_weights_for_any_pattern() -> None:
    x = torch.randn(7, 24, dtype=torch.float64)
    pattern = torch.rand(7, 7, dtype=torch.float64)
    pattern /= pattern.sum(-1, keepdim=True)
    w_q, w_k = construct(x, pattern)
    assert w_q.shape == (24, 7)
    torch.testing.assert_close(((x @ w_q) @ (x @ w_k).T).softmax(-1), pattern)


def test_the_bottleneck_shrinks_with_the_dimension_and_ends() -> None:
    pattern = (2 * torch.randn(24, 24, dtype=torch.float64)).softmax(-1)
    errors = [best_of_rank(pattern, d) for d in (1, 4, 12, 24)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.3
    assert errors[-1] < 1e-12
    low = torch.randn(24, 3, dtype=torch.float64)
    assert best_of_rank((low @ low.T).softmax(-1), 4) < 1e-9  # three, and one for what centering adds


def test_representation_needs_as_many_dimensions_as_tokens() -> None:
    assert any_pattern(subject(heads=3, tokens=7)).verdict == "holds"  # d_k = 8
    found = any_pattern(subject(heads=12, tokens=23))  # d_k = 2
    assert found.verdict == "holds only if"
    assert found.numbers["constructed"] < 1e-6 < found.numbers["here"]
    by_heads = found.numbers["errors_by_heads"]
    assert by_heads[-1] > by_heads[0] + 0.1  # more heads of the same total width
    same = torch.randn(1, 1, 24).expand(2, 7, 24)  # tokens that cannot be told apart
    assert any_pattern(subject(x=same)).verdict == "fails"
    assert any_pattern(subject(tokens=1)).verdict == "not applicable"


def test_many_heads_are_one_only_in_special_cases() -> None:
    found = equals_one_head(subject())
    assert found.verdict == "fails"
    assert found.numbers["difference"] > 0.1
    assert equals_one_head(subject(heads=1)).verdict == "holds"
    assert equals_one_head(subject(x=torch.zeros(2, 7, 24))).verdict == "holds"  # uniform rows
    ours = mh.MultiHeadAttention(24, 3)
    # Every query of every head finds the last token by far the best: one-hot on one key.
    with torch.no_grad():
        ours.q_proj.weight.zero_()
        ours.q_proj.bias.fill_(1e4)
        ours.k_proj.weight.copy_(torch.ones(24, 24))
    x = torch.rand(2, 7, 24)
    x[:, -1] += 1
    [saturated] = layer_samples(ours, x)
    assert equals_one_head(saturated).verdict == "holds"
    assert equals_one_head(saturated).numbers["heads_agree"] == 1


def test_the_map_of_one_head_is_a_product_of_the_others() -> None:
    layer = subject()
    s = layer.sequences[0]
    _, out, many, one = many_and_one(layer, s)
    product = many.pow(1 / math.sqrt(3)).prod(0)
    torch.testing.assert_close(one, product / product.sum(-1, keepdim=True))
    attn = mh.MultiHeadAttention(24, 1, dtype=torch.float64)
    w = layer.weights
    with torch.no_grad():
        for name, weight, bias in (
            ("q", w.q.flatten(0, 1), w.bias("q").flatten()),
            ("k", w.k.flatten(0, 1), w.bias("k").flatten()),
            ("v", w.v.flatten(0, 1), w.bias("v").flatten()),
            ("o", w.o.transpose(0, 1).flatten(1), torch.zeros(24)),
        ):
            getattr(attn, f"{name}_proj").weight.copy_(weight)
            getattr(attn, f"{name}_proj").bias.copy_(bias)
    torch.testing.assert_close(attn(s.x), out, rtol=1e-5, atol=1e-6)


def test_heads_alike_differ_from_one_by_how_sharp_it_is() -> None:
    attn = mh.MultiHeadAttention(24, 2)
    with torch.no_grad():
        for linear in (attn.q_proj, attn.k_proj, attn.v_proj):
            linear.weight.view(2, 12, 24)[1] = linear.weight.view(2, 12, 24)[0]
    [twins] = layer_samples(attn, torch.randn(2, 7, 24))
    found = equals_one_head(twins)
    assert (found.verdict, "agree on their first keys" in found.because) == ("fails", True)


def test_one_dimension_less_than_tokens_is_enough() -> None:
    """Softmax does not see a shift of a row: centred logits have rank n − 1."""
    pattern = (2 * torch.randn(9, 9, dtype=torch.float64)).softmax(-1)
    assert best_of_rank(pattern, 8) < 1e-12 < 1e-3 < best_of_rank(pattern, 6)


@pytest.mark.parametrize(("name", "said"), [("bloom", True), ("gemma2", True), ("gpt2", False)])
def test_what_is_done_to_scores_beside_scaling_is_said_to_be_left_out(name: str, said: bool) -> None:
    first = next(iter(layer_samples(ZOO[name].build(), [ZOO[name].batch(False)])))
    found = equals_one_head(first)
    assert ("are excluded" in found.because) == said
    assert (float(found.numbers["left_out"]) > 0.01) == said  # type: ignore[arg-type]
