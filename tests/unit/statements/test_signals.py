"""Statements 4, 5, 7, 14, 15 and 16: both verdicts on layers whose answer is known, and twins by brute force."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from scipy.stats import spearmanr

import multihead as mh
from multihead.statements.collect_samples import layer_samples
from multihead.statements.information_of_heads import at_least_the_best_head, information_splits
from multihead.statements.joint_coverage import joint_coverage
from multihead.statements.mean_output_importance import mean_output_importance
from multihead.statements.output_norm import output_norm
from multihead.statements.redundancy_ratio import redundancy_ratio
from multihead.statements.uncorrelated_heads import uncorrelated_heads
from multihead.statements.variance_bound import variance_bound
from unit.statements import made
from zoo import ZOO

# ---- statement 4 --------------------------------------------------------------------------------


def looks_at(*keys: int, count: int = 11) -> torch.Tensor:
    """Maps of heads that look at one key each, whoever asks: (head, query, key)."""
    return torch.stack([torch.eye(count)[key].expand(count, count) for key in keys])


def test_heads_that_look_elsewhere_cover_more() -> None:
    base = made.subject(made.layer())
    found = joint_coverage(made.with_maps(base, [looks_at(0, 3, 5)] * 3))
    assert (found.verdict, found.lhs, found.rhs) == ("holds", "rank 3 of 11 tokens", "best head 1")
    found = joint_coverage(made.with_maps(base, [looks_at(3, 3, 3)] * 3))
    assert (found.verdict, found.lhs) == ("fails", "rank 1 of 11 tokens")


def test_the_sequence_that_is_shown_does_not_contradict_the_verdict() -> None:
    """Of two sequences only one gains by more heads: the statement fails, and the other one is shown."""
    base = made.subject(made.layer())
    result = joint_coverage(made.with_maps(base, [looks_at(0, 3, 5), looks_at(3, 3, 3)]))
    assert (result.verdict, result.lhs, result.rhs) == ("fails", "rank 1 of 11 tokens", "best head 1")


def test_ranks_are_those_of_numpy() -> None:
    maps = torch.rand(3, 9, 11, dtype=torch.float64).softmax(-1)
    found = joint_coverage(made.with_maps(made.subject(made.layer()), [maps]))
    assert found.numbers["rank_stacked_fine"] == [float(torch.linalg.matrix_rank(maps.flatten(0, 1)))]
    assert found.numbers["rank_best_head_fine"] == [float(max(torch.linalg.matrix_rank(m) for m in maps))]


def test_short_sequences_say_nothing_of_ranks() -> None:
    found = joint_coverage(made.subject(made.layer(), made.tokens(3, 5)))
    assert (found.verdict, found.lhs, found.rhs) == ("not enough data", "5 tokens", "8 needed")
    assert joint_coverage(made.subject(made.layer(12, 1))).verdict == "not applicable"


# ---- statements 5 and 16: covariances -------------------------------------------------------------


def test_heads_that_write_apart_are_uncorrelated() -> None:
    subject = made.subject(made.orthogonal())
    assert uncorrelated_heads(subject).verdict == "holds"
    assert uncorrelated_heads(subject).numbers["largest"] == pytest.approx(0, abs=1e-9)
    found = variance_bound(subject)
    assert found.numbers["variance"] == pytest.approx(found.numbers["sum_of_variances"])
    assert found.verdict == "holds"


def test_twins_are_correlated_and_their_variance_is_fourfold() -> None:
    subject = made.subject(made.twins(12, 2))
    assert uncorrelated_heads(subject).verdict == "fails"
    assert uncorrelated_heads(subject).numbers["rho"] == pytest.approx([1.0])
    found = variance_bound(subject)
    assert found.verdict == "fails"
    assert found.numbers["variance"] == pytest.approx(2 * found.numbers["sum_of_variances"])  # type: ignore[operator]
    assert found.numbers["variance"] == pytest.approx(found.numbers["bound"])


def test_heads_that_cancel_have_no_variance() -> None:
    found = variance_bound(made.subject(made.twins(sign=-1.0)))
    assert (found.verdict, found.numbers["variance"]) == ("holds", pytest.approx(0, abs=1e-12))


def test_covariances_by_brute_force() -> None:
    subject = made.subject(made.layer(12, 6, num_kv_heads=2, bias=False))
    parts = [subject.part(i) for i in range(6)]
    assert torch.allclose(sum(parts), subject.output)
    var = lambda p: float(p.var(0, correction=0).sum())
    found = variance_bound(subject)
    assert found.numbers["variance"] == pytest.approx(var(subject.output))
    assert found.numbers["variances"] == pytest.approx([var(p) for p in parts])
    assert found.numbers["bound"] == pytest.approx(sum(math.sqrt(var(p)) for p in parts) ** 2)
    rho = [
        float(((a - a.mean(0)) * (b - b.mean(0))).sum(1).mean()) / math.sqrt(var(a) * var(b))
        for a, b in combinations(parts, 2)
    ]
    assert uncorrelated_heads(subject).numbers["rho"] == pytest.approx(rho)
    assert var(subject.output) <= found.numbers["bound"] <= found.numbers["loose_bound"]  # type: ignore[operator]


def test_constant_outputs_have_no_correlation_and_no_variance() -> None:
    dead = made.layer()
    torch.nn.init.zeros_(dead.v_proj.weight)
    subject = made.subject(dead)
    assert (uncorrelated_heads(subject).verdict, variance_bound(subject).verdict) == (
        "not applicable",
        "not applicable",
    )
    assert "3 of 3 heads have the same output for every token" in uncorrelated_heads(subject).because
    one = made.layer()
    with torch.no_grad():
        one.v_proj.weight.view(3, 4, 12)[1] = 0
    assert "Excluded, as their output never changes: 1 head." in uncorrelated_heads(made.subject(one)).because


# ---- statement 7 --------------------------------------------------------------------------------


class Turns:
    """Draws orthogonal projections."""

    def __call__(self, attn: mh.MultiHeadAttention) -> None:
        for linear in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj):
            torch.nn.init.orthogonal_(linear.weight)


def test_sizes_are_kept_by_turns_that_look_at_one_token() -> None:
    alone = made.tokens(23, 1)  # sequences of one token: every head looks at it
    kept = output_norm(made.subject(made.layer(init=Turns()), alone))
    assert (kept.verdict, kept.numbers["fresh"], kept.numbers["trained"]) == (
        "holds",
        pytest.approx(12),
        pytest.approx(12),
    )
    half = output_norm(made.subject(made.orthogonal(), alone))
    assert (half.verdict, half.numbers["trained"]) == ("holds only if", pytest.approx(12))


def test_sizes_are_lost_by_averaging() -> None:
    """A head that looks at n independent tokens alike gives 1/n of their size."""
    even = made.orthogonal()
    torch.nn.init.zeros_(even.q_proj.weight)
    found = output_norm(made.subject(even, made.tokens(40, 13)))
    assert found.verdict == "fails"
    assert found.numbers["independent_tokens"] == pytest.approx(12 / 13)
    assert found.numbers["trained"] == pytest.approx(12 / 13, rel=0.35)


# ---- statement 14 -------------------------------------------------------------------------------


def constant_heads() -> mh.MultiHeadAttention:
    """Heads that give b_V whatever they see, of sizes 1, 2, 3, and W_O that keeps sizes."""
    made_ = made.orthogonal()
    torch.nn.init.zeros_(made_.v_proj.weight)
    with torch.no_grad():
        made_.v_proj.bias.copy_(torch.tensor([1.0, 0, 0, 0, 2.0, 0, 0, 0, 3.0, 0, 0, 0]))
        made_.o_proj.bias.zero_()
    return made_


def test_the_mean_tells_the_worth_of_constant_heads() -> None:
    found = mean_output_importance(made.subject(constant_heads()))
    assert (found.verdict, found.numbers["rank_correlation"]) == ("holds", pytest.approx(1))
    assert found.numbers["importance"] == pytest.approx([1, 2, 3])
    assert found.numbers["ablation"] == pytest.approx([1 / 14, 4 / 14, 9 / 14])


def test_the_mean_does_not_see_what_w_o_makes_of_a_head() -> None:
    other = constant_heads()
    with torch.no_grad():
        other.o_proj.weight.view(12, 3, 4)[:, 2] *= 0.01
    found = mean_output_importance(made.subject(other))
    assert (found.verdict, "H1 the output changes most" in found.because) == ("fails", True)
    assert "puts H2 first" in found.because
    lost, mean = found.numbers["ablation"], found.numbers["importance"]
    assert found.numbers["rank_correlation"] == pytest.approx(spearmanr(lost, mean).statistic)


def test_two_heads_or_equal_heads_have_no_ranking() -> None:
    assert mean_output_importance(made.subject(made.layer(12, 2))).lhs == "2 heads"
    dead = made.layer()
    torch.nn.init.zeros_(dead.v_proj.weight)
    found = mean_output_importance(made.subject(dead))
    assert (found.verdict, found.because) == ("not applicable", "All heads have the same value.")


def test_ablation_in_a_model_is_what_silence_does() -> None:
    model = ZOO["bert"].build()
    batch = ZOO["bert"].padded(model)
    assert batch is not None
    real = batch["attention_mask"].bool()
    for subject in layer_samples(model, batch):
        assert subject.ablation is not None
        with torch.no_grad():
            whole = model(**batch)[0][real].double()
            with mh.ablate(model, [f"{subject.name}H1"]):
                off = model(**batch)[0][real].double() - whole
        assert float(subject.ablation()[1]) == pytest.approx(float(off.square().sum() / whole.square().sum()))


# ---- statement 15 -------------------------------------------------------------------------------


def test_a_head_of_one_number_is_redundant_with_itself() -> None:
    found = redundancy_ratio(made.subject(made.layer(12, 3, value_dim=1)))
    assert (found.verdict, found.numbers["R_ii"]) == ("holds", pytest.approx([1, 1, 1]))


def test_a_head_of_d_equal_numbers_is_redundant_with_itself_by_one_over_root_d() -> None:
    base = made.subject(made.layer())
    even = torch.linalg.qr(torch.randn(31, 4, dtype=torch.float64))[0]
    found = redundancy_ratio(made.with_outputs(base, even[:, None].expand(31, 3, 4)))
    assert (found.verdict, found.numbers["R_ii"]) == ("fails", pytest.approx([0.5, 0.5, 0.5]))
    assert found.numbers["normalised"] == pytest.approx([1, 1, 1])


def test_both_forms_by_brute_force() -> None:
    subject = made.subject(made.layer())
    z = subject.outputs.transpose(0, 1)  # head, token, value_dim
    scale = lambda i, j: float(z[i].norm() * z[j].norm())
    found = redundancy_ratio(subject)
    pairs = list(combinations(range(3), 2))
    assert found.numbers["R_ij"] == pytest.approx([float((z[i].T @ z[j]).norm()) / scale(i, j) for i, j in pairs])
    wide = [float((z[i] @ z[j].T).norm()) / scale(i, j) for i, j in pairs]
    assert found.numbers["R_ij_n_by_n"] == pytest.approx(wide)


def test_zeros_are_redundant_with_nothing() -> None:
    base = made.subject(made.layer())
    assert (
        redundancy_ratio(made.with_outputs(base, torch.zeros(7, 3, 4, dtype=torch.float64))).verdict
        == "not applicable"
    )


def test_maps_that_were_not_kept_are_not_too_few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.statements.collect_samples.CELLS", 10)
    found = joint_coverage(made.subject(made.layer()))
    assert (found.verdict, found.lhs) == ("not applicable", "13 tokens")


def test_a_correlation_within_chance_is_not_enough_data() -> None:
    [few] = layer_samples(made.layer(), made.tokens(1, 3))
    found = uncorrelated_heads(few)
    assert (found.verdict, found.lhs) == ("not enough data", "3 tokens")
    assert float(found.numbers["tokens_needed"]) > 3  # type: ignore[arg-type]


def test_one_head_and_orthogonal_heads_are_not_called_positively_correlated() -> None:
    one = variance_bound(made.subject(made.layer(12, 1)))
    assert (one.verdict, "one head" in one.because) == ("holds", True)
    apart = variance_bound(made.subject(made.orthogonal()))
    assert (apart.verdict, "uncorrelated" in apart.because) == ("holds", True)


@torch.no_grad()
def test_the_size_for_independent_tokens_has_the_bias_of_the_values() -> None:
    layer = made.layer()
    layer.q_proj.weight.zero_()  # every head looks at 13 tokens alike
    for linear in (layer.v_proj, layer.o_proj):
        torch.nn.init.normal_(linear.bias, generator=torch.Generator().manual_seed(0))
    [subject] = layer_samples(layer, made.tokens(2, 13))
    predicted = float(output_norm(subject).numbers["independent_tokens"])  # type: ignore[arg-type]
    x = torch.randn(20000, 13, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    seen = float(layer(x).square().sum(-1).mean())
    assert predicted == pytest.approx(seen, rel=0.02)
    without = predicted - float(layer.o_proj(layer.v_proj.bias).square().sum())
    assert without < 0.9 * seen


def test_labels_do_not_change_what_is_taken_out() -> None:
    model, batch = ZOO["gpt2"].build(), ZOO["gpt2"].batch(False)
    plain, labelled = (
        next(iter(layer_samples(model, [b], layers=["L1"])))
        for b in (batch, {**batch, "labels": batch["input_ids"]})
    )
    assert plain.ablation is not None
    assert labelled.ablation is not None
    torch.testing.assert_close(plain.ablation(), labelled.ablation())


@torch.no_grad()
def test_rounding_around_a_bias_is_no_variance() -> None:
    layer = made.layer().float()
    layer.v_proj.weight.zero_()
    torch.nn.init.normal_(layer.v_proj.bias, generator=torch.Generator().manual_seed(0))
    [subject] = layer_samples(layer, made.tokens(40, 13).float())
    assert float(subject.outputs.var(0).max()) > 0  # rows of maps add up to 1 but for rounding
    for test in (uncorrelated_heads, variance_bound, at_least_the_best_head, information_splits):
        assert test(subject).verdict == "not applicable"
