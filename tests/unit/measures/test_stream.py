"""HeadStatistics: known truths on heads made by hand, what is left out and counted, memory, and keeping."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from multihead import mask
from multihead.errors import SizeError
from multihead.layer import Groups, Problem, attend
from multihead.layer._coordinates import Coordinates
from multihead.layer._problem import ScoreConfig
from multihead.model.call import Tokens
from multihead.model.statistics.head_statistics import HeadStatistics
from multihead.model.statistics.meanings import MEANING
from multihead.model.statistics.statistics_options import Statistics
from multihead.table.column_info import Scale
from unit.measures import brute

CPU = torch.device("cpu")


def problem_of(
    q: Tensor, k: Tensor, v: Tensor | None = None, *, seen: Any = None, scale: float = 1.0, **scores: Any
) -> Problem:
    v = torch.randn(*k.shape[:3], 3, dtype=k.dtype) if v is None else v
    groups, size = Groups.even(q.shape[1], k.shape[1]), Coordinates(*q.shape[:3], k.shape[2], CPU)
    return Problem(q, k, v, groups, mask.of(seen), size, ScoreConfig(scale, **scores))


def measured(problem: Problem, tokens: Tokens | None = None, options: Statistics | None = None) -> HeadStatistics:
    tokens = tokens or Tokens()
    found = HeadStatistics(problem.coordinates.heads, options)
    with torch.no_grad():
        found.update(problem, attend(problem), tokens, tokens)
    return found


def drawn(batch: int = 2, heads: int = 3, tokens: int = 17, dim: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(batch, heads, tokens, dim, dtype=torch.float64) for _ in range(3))  # type: ignore[return-value]


class TestKnownTruths:
    def test_a_uniform_head(self) -> None:
        """q = 0: every visible key alike; under the causal mask row i sees i + 1 keys."""
        n = 11
        got = measured(problem_of(torch.zeros(1, 1, n, 3), torch.randn(1, 1, n, 3), seen=mask.causal()))
        rows = torch.arange(1.0, n + 1, dtype=torch.float64)
        assert_close(got.mean("entropy")[0], rows.log().mean())
        assert_close(got.mean("relative_entropy")[0].item(), 1.0)
        assert got.count("relative_entropy")[0] == n - 1  # a row of one key has no uncertainty to compare with
        for name in ("perplexity", "effective_keys", "visible"):
            assert_close(got.mean(name)[0], rows.mean(), msg=name)
        assert_close(got.mean("max_weight")[0], (1 / rows).mean())
        assert_close(got.mean("distance")[0], ((rows - 1) / 2).mean())
        assert got.mean("logit_scale")[0] == 0
        assert got.mean("after")[0] == 0
        assert got.max("saturated")[0] == 1  # the first row sees one key
        assert_close(got.mean("saturated")[0].item(), 1 / n)

    def test_a_previous_token_head(self) -> None:
        """q_i = e_{i-1}, k_j = e_j, hot: all mass one place back."""
        n = 13
        e = torch.eye(n + 1, dtype=torch.float64)
        q, k = e[:n].view(1, 1, n, -1), e[1:].view(1, 1, n, -1)
        got = measured(problem_of(q, k, seen=mask.causal(), scale=60.0), Tokens(torch.arange(n)[None]))
        assert got.mean("previous")[0] > 0.9
        assert got.mean("previous")[0] == got.mean("offset-1")[0]
        late = measured(problem_of(q[:, :, 1:], k, seen=mask.causal(), scale=60.0))
        assert_close(late.min("previous")[0].item(), 1.0)
        assert_close(late.mean("distance")[0].item(), 1.0)
        assert_close(late.mean("entropy")[0].item(), 0.0)
        assert late.min("entropy")[0] >= 0
        assert_close(late.max("position_std")[0].item(), 0.0)
        assert late.mean("saturated")[0] == 1

    def test_an_induction_head(self) -> None:
        """Each token's query matches keys that follow the same token: the second half of a repeated text."""
        half = 7
        ids = torch.arange(half).repeat(2)
        e = torch.eye(half + 1, dtype=torch.float64)
        before = torch.cat([torch.tensor([half]), ids[:-1]])  # what an earlier previous-token head writes
        q, k = e[ids].view(1, 1, -1, half + 1), e[before].view(1, 1, -1, half + 1)
        got = measured(problem_of(q[:, :, half:], k, seen=mask.causal(), scale=60.0), options=Statistics(offsets=7))
        assert got.count("induction")[0] == 0  # without ids nothing is known of tokens
        tokens = Tokens(ids[None])
        got = HeadStatistics(1, Statistics(offsets=7))
        problem = problem_of(q[:, :, half:], k, seen=mask.causal(), scale=60.0)
        got.update(problem, attend(problem), Tokens(ids[None, half:]), tokens)
        assert_close(got.min("induction")[0].item(), 1.0)
        assert_close(got.mean("same_token")[0].item(), 0.0)
        assert_close(got.mean("offset-6")[0].item(), 1.0)

    def test_a_sink_head_that_left_padding_does_not_hide(self) -> None:
        """All on the first real token, wherever it stands; a learned sink takes its share from that."""
        real = torch.tensor([[False, False, True, True, True], [True] * 5])
        k = torch.zeros(2, 1, 5, 2, dtype=torch.float64)
        k[0, 0, 2, 0] = k[1, 0, 0, 0] = 60.0
        q = torch.ones(2, 1, 5, 2, dtype=torch.float64)
        seen = mask.causal() & mask.padding(real)
        got = measured(problem_of(q, k, seen=seen), Tokens(None, real))
        assert_close(got.min("first")[0].item(), 1.0)
        assert got.count("first")[0] == 8
        assert got.padding == 2
        assert got.count("sink")[0] == 0
        halved = measured(problem_of(q, k, seen=seen, sinks=torch.tensor([60.0])), Tokens(None, real))
        assert_close(halved.mean("first")[0].item(), 0.5)
        assert_close(halved.mean("sink")[0].item(), 0.5)
        assert_close(halved.mean("entropy")[0].item(), 0.0)  # of what goes to keys
        assert_close(halved.mean("lse")[0].item(), 60 + math.log(2))

    def test_near_one_hot_rows_keep_their_entropy_in_fp32(self) -> None:
        """p = 1 − ε: entropy ≈ ε (1 − log ε), far below the rounding of scores of 300."""
        gap = 14.0
        k = torch.tensor([300.0, 300.0 - gap]).view(1, 1, 2, 1)
        got = measured(problem_of(torch.ones(1, 1, 2, 1), k))
        small = math.exp(-gap)
        assert_close(got.mean("entropy")[0].item(), small * (1 + gap), rtol=0.05, atol=0.0)


class TestLeftOut:
    def test_rows_that_see_what_is_not_finite_are_counted_never_averaged(self) -> None:
        q, k, v = drawn()
        clean = measured(problem_of(q, k, v, seen=mask.causal()))
        assert not clean.broken.any()
        k, v, q = k.clone(), v.clone(), q.clone()
        k[0, 1, 9, 2] = torch.nan  # head 1: rows 9..16 of the first sequence
        v[0, 2, 13, 0] = torch.inf  # head 2: rows 13..16
        q[1, 0, 4, 0] = -torch.inf  # head 0: one row
        problem = problem_of(q, k, v, seen=mask.causal())
        got = measured(problem)
        assert got.broken.tolist() == [1, 8, 4]
        assert (got.count("entropy") + got.broken == 34).all()
        good = brute.counted(problem, Tokens())
        fine = problem_of(
            q.nan_to_num(posinf=0, neginf=0), k.nan_to_num(), v.nan_to_num(posinf=0), seen=mask.causal()
        )
        for name, rows in brute.rows(fine, attend(fine), Tokens(), Tokens(), Statistics()).items():
            for what, number in brute.summary(rows.masked_fill(~good, torch.nan)).items():
                assert_close(getattr(got, what)(name), number, equal_nan=True)
        assert got.outputs.mean().isfinite().all()
        assert torch.equal(got.outputs.count, got.count("entropy"))

    def test_what_is_hidden_may_be_anything(self) -> None:
        q, k, v = drawn()
        seen = mask.lengths([17, 11])
        want = measured(problem_of(q, k, v, seen=seen)).state()
        k[1, :, 11:], v[1, :, 11:] = torch.nan, torch.inf
        got = measured(problem_of(q, k, v, seen=seen)).state()
        assert got["broken"].sum() == 0
        assert_close(got["moments"]["mean"], want["moments"]["mean"], equal_nan=True)

    def test_rows_and_sequences_of_nothing(self) -> None:
        q, k, v = drawn(batch=3)
        real = torch.ones(3, 17, dtype=torch.bool)
        real[1] = False
        real[2, 5:] = False
        got = measured(problem_of(q, k, v, seen=mask.lengths([17, 0, 0])), Tokens(None, real))
        assert (got.rows, got.padding, got.all_padding) == (22, 29, 1)
        assert got.empty.tolist() == [5, 5, 5]
        assert got.count("lse").tolist() == [17, 17, 17]
        nothing = measured(problem_of(q, k, v), Tokens(None, torch.zeros(3, 17, dtype=torch.bool)))
        assert nothing.all_padding == 3
        assert nothing.mean("entropy").isnan().all()
        assert nothing.outputs.mean().isnan().all()

    def test_cross_attention_has_no_places_in_common(self) -> None:
        q, k, v = drawn()
        problem = problem_of(q[:, :, :5], k, v)
        got = HeadStatistics(3)
        got.update(problem, attend(problem), Tokens(torch.zeros(2, 5, dtype=torch.long)), Tokens(), cross=True)
        absent = [n for n in got.names if not got.count(n).any()]
        named = {
            "distance",
            "signed_distance",
            "before",
            "after",
            "self",
            "previous",
            "next",
            "same_token",
            "induction",
        }
        assert {n for n in absent if not n.startswith("offset")} == named | {"special", "sink"}
        assert sum(n.startswith("offset") for n in absent) == 33
        assert (got.count("position_std") == 10).all()


class TestTheSameNumbers:
    def test_of_any_grad_mode_and_blocks(self) -> None:
        q, k, v = drawn(tokens=31)
        want = measured(problem_of(q, k, v, seen=mask.causal())).state()["moments"]["mean"]
        q.requires_grad_()
        for size in (1, 3000, 1 << 22):
            problem = problem_of(q, k, v, seen=mask.causal())
            got = HeadStatistics(3, Statistics(block_bytes=size))
            got.update(problem, attend(problem), Tokens(), Tokens())
            assert_close(got.moments.mean, want)
            with torch.inference_mode():
                got.update(problem, attend(problem), Tokens(), Tokens())
            assert_close(got.moments.mean, want)


class Largest(TorchDispatchMode):
    """The largest tensor that any operation returns, in numbers; bytes are mapped room, used in part."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, list | tuple) else [out]:
            if isinstance(x, Tensor) and x.dtype != torch.uint8:
                self.numel = max(self.numel, x.numel())
        return out


@pytest.mark.fast("seen1", "seen3")
@pytest.mark.parametrize(
    "seen", [None, mask.causal(), mask.window(64), mask.tensor(torch.ones(1, 1, 1, 1021).bool())]
)
def test_no_tensor_is_larger_than_the_bound(seen: Any) -> None:
    n, heads = 1021, 4
    q, k, v = (torch.randn(1, heads, n, 8) for _ in range(3))
    problem = problem_of(q, k, v, seen=seen)
    out = torch.randn(1, heads, n, 8)
    got, tokens = HeadStatistics(heads, Statistics(block_bytes=1 << 18)), Tokens(torch.randint(0, 9, (1, n)))
    with Largest() as largest:
        got.update(problem, out, tokens, tokens)
    held = (1 << 19) + len(got.names) * heads * 64  # rows on their way into the moments
    assert largest.numel < held
    blocks, tokens_held = (1 << 18) // 4, n * heads * (8 + 2)
    assert largest.numel <= max(blocks, tokens_held, len(got.names) * heads * n)
    assert n * n * heads > 4 * largest.numel


class TestKeeping:
    def test_the_state_is_plain_and_complete(self) -> None:
        q, k, v = drawn()
        options = Statistics(offsets=2, special=[1], classes={"x": [2, 3]})
        got = measured(problem_of(q, k, v), Tokens(torch.randint(0, 5, (2, 17))), options)
        state = got.state()
        json.dumps(state["options"])
        again = HeadStatistics.from_state(state)
        for name in got.names:
            assert torch.equal(again.mean(name).nan_to_num(), got.mean(name).nan_to_num())
        assert torch.equal(again.outputs.mean(), got.outputs.mean())
        both = again.merge(got)
        assert (both.count("entropy") == 2 * got.count("entropy")).all()
        assert_close(both.std("entropy"), got.std("entropy"))
        assert (got.count("entropy") == 34).all(), "the state is a copy"

    def test_histograms_say_where_the_rows_lie(self) -> None:
        q, k, v = drawn()
        got = measured(problem_of(q, k, v, seen=mask.causal()))
        for name in MEANING:
            edges, counts = got.histogram(name)
            assert (edges.diff() > 0).all()
            assert counts.shape == (3, len(edges) - 1)
            if got.count(name).any() and name != "saturated":
                used = counts.sum(0).nonzero()[[0, -1], 0]
                assert edges[used[0]] <= got.min(name).min() + 1e-9
                assert got.max(name).max() <= edges[used[1] + 1] + 1e-9

    def test_every_scale_finds_its_own_edges(self) -> None:
        for scale in {m.scale for m in MEANING.values()}:
            assert isinstance(scale, Scale)
            edges = scale.edges()
            middles = (edges[1:] + edges[:-1]) / 2
            assert scale.bins(middles).tolist() == list(range(len(middles)))


class TestErrors:
    def test_they_say_both_values(self) -> None:
        q, k, v = drawn()
        with pytest.raises(SizeError, match="4 heads, got 3"):
            HeadStatistics(4).update(problem_of(q, k, v), v, Tokens(), Tokens())
        with pytest.raises(SizeError, match="unknown statistic 'entorpy'"):
            HeadStatistics(4).mean("entorpy")
        with pytest.raises(SizeError, match="cannot merge"):
            HeadStatistics(4).merge(HeadStatistics(4, Statistics(offsets=3)))
        with pytest.raises(SizeError, match="cannot merge"):
            HeadStatistics(4).merge(HeadStatistics(3))
        with pytest.raises(SizeError, match="no histogram"):
            HeadStatistics(4).histogram("offset+2")
        with pytest.raises(SizeError, match="offsets must be at least 1, got 0"):
            Statistics(offsets=0)
