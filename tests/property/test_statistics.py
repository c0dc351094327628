"""Statistics are those of the explicit map in fp64, whatever the sizes, groups, masks, scores, dtype and blocks."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

import cases
from multihead import mask, position
from multihead.layer import Groups, Problem
from multihead.layer._coordinates import Coordinates
from multihead.layer._mask_position import PositionScores
from multihead.layer._problem import ScoreConfig
from multihead.model.call import Tokens
from multihead.model.statistics.head_statistics import HeadStatistics
from multihead.model.statistics.statistics_options import Statistics
from unit.measures import brute

DRAWN = settings().max_examples
SOME = st.sampled_from([1, 2, 3, 5, 7, 13, 31])
EXACT = {torch.float64: {"rtol": 1e-7, "atol": 1e-7}, torch.float32: {"rtol": 2e-5, "atol": 2e-5}}


@st.composite
def groups(draw: st.DrawFn) -> Groups:
    kind = draw(st.sampled_from(["own", "even", "uneven"]))
    heads = draw(st.sampled_from([1, 2, 3, 5]))
    if kind == "own":
        return Groups.even(heads, heads)
    if kind == "even":
        return Groups.even(2 * heads, heads)
    return Groups(tuple(draw(st.lists(st.integers(0, 2), min_size=heads, max_size=heads))), 3)


@st.composite
def problems(
    draw: st.DrawFn, *, batch: int | None = None, sizes: Any = None
) -> tuple[Problem, Tokens, Tokens, bool]:
    """A problem, its tokens, and whether it is cross-attention."""
    shared = draw(groups()) if sizes is None else sizes[0]
    heads = len(shared.kv_of_head)
    batch = batch or draw(st.integers(1, 3))
    keys = draw(SOME)
    cross = draw(st.integers(0, 4)) == 0
    queries = draw(SOME) if cross else draw(st.sampled_from([keys, keys, max(1, keys // 2)]))
    key_dim, value_dim = (
        (draw(st.sampled_from([1, 3, 7])), draw(st.sampled_from([1, 5]))) if sizes is None else sizes[1]
    )
    dtype = (
        draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
        if sizes is None
        else sizes[2]
    )
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    normal = lambda *shape: torch.randn(shape, generator=g).to(dtype)
    hot = draw(st.sampled_from([1.0, 3.0]))  # some rows nearly one-hot
    coordinates, known = Coordinates(batch, heads, queries, keys, torch.device("cpu")), draw(st.integers(0, 4)) > 0
    seen = mask.of(draw(cases.looks(batch, heads, queries, keys))(dtype).mask)
    if draw(st.integers(0, 5)) == 0 and not cross:
        seen = seen & PositionScores(position.ALiBi(heads), None, dtype)
    if not cross and draw(st.integers(0, 5)) == 0:  # a cache whose rows stand at different places
        key_positions = torch.stack([torch.randperm(keys + 2, generator=g)[:keys] for _ in range(batch)])
        if draw(st.booleans()):
            key_positions[:, 0] = key_positions[:, -1]  # two keys at one place: no token is the one before
            known = False
        coordinates = Coordinates(
            batch, heads, queries, keys, coordinates.device, key_positions[:, :queries].clone(), key_positions
        )
        seen = draw(st.sampled_from([mask.everything(), mask.causal(), mask.window(3, 1)]))
    scores = ScoreConfig(
        scale=hot * key_dim**-0.5,
        softcap=draw(st.sampled_from([None, None, 2.0])),
        sinks=normal(heads) if draw(st.integers(0, 2)) == 0 else None,
        dropout=draw(st.sampled_from([0.0, 0.3])),  # statistics are of the clean weights
    )
    q, k, v = (
        normal(batch, heads, queries, key_dim),
        normal(batch, shared.kv_heads, keys, key_dim),
        normal(batch, shared.kv_heads, keys, value_dim),
    )
    problem = Problem(q, k, v, shared, seen, coordinates, scores)
    padding = draw(st.sampled_from(["none", "left", "right", "holes"]))

    def tokens(count: int) -> Tokens:
        ids = torch.randint(0, draw(st.sampled_from([2, 5, 1 << 30])), (batch, count), generator=g) % 11
        ids = ids * draw(st.sampled_from([1, 1 << 26])) if known else None
        real = torch.rand(batch, count, generator=g) < 0.7
        if padding in ("left", "right"):
            real = torch.arange(count) < (torch.rand(batch, 1, generator=g) * (count + 1)).long()
            real = real.flip(1) if padding == "left" else real
        return Tokens(ids, None if padding == "none" else real)

    given = tokens(keys)
    if cross:
        return problem, tokens(queries), given, True
    mine = slice(keys - queries, keys) if coordinates.aligned else slice(0, queries)
    cut = lambda x: None if x is None else x[:, mine]
    return problem, Tokens(cut(given.ids), cut(given.valid)), given, False


OPTIONS = {
    "small blocks": Statistics(
        offsets=2, special=[0, 3], classes={"odd": [1, 3, 5], "none": []}, block_bytes=1 << 10
    ),
    "large blocks": Statistics(offsets=5, special=[1]),
}


def same(got: HeadStatistics, want: dict[str, Tensor], dtype: torch.dtype) -> None:
    near = EXACT[torch.promote_types(dtype, torch.float32)]
    for name in got.names:
        if name not in want:
            assert not got.count(name).any(), name
            assert got.mean(name).isnan().all(), name
            continue
        if name == "saturated" and dtype != torch.float64:
            continue  # a weight of 0.99 may fall on either side
        for what, number in brute.summary(want[name]).items():
            # A std of what hardly varies is the root of rounding errors.
            loose = {"rtol": near["rtol"], "atol": near["atol"] ** 0.5} if what == "std" else near
            said = lambda text, where=(name, what): f"{where}: {text}"
            assert_close(
                getattr(got, what)(name), number, equal_nan=True, msg=said, **({} if what == "count" else loose)
            )


@settings(max_examples=max(DRAWN, 10))
@given(drawn=problems(), options=st.sampled_from(sorted(OPTIONS)))
def test_they_are_the_numbers_of_the_explicit_map(drawn: Any, options: str) -> None:
    problem, queries, keys, cross = drawn
    out = brute.maps(problem).out.to(problem.q.dtype)
    got = HeadStatistics(problem.coordinates.heads, OPTIONS[options])
    got.update(problem, out, queries, keys, cross=cross)
    want = brute.rows(problem, out, queries, keys, OPTIONS[options], cross=cross)
    same(got, want, problem.q.dtype)
    real = torch.ones(out.shape[0], out.shape[2], dtype=torch.bool) if queries.valid is None else queries.valid
    counts = brute.counted(problem, queries)
    empty = ~brute.maps(problem).seen.any(-1) & real[:, None]
    assert torch.equal(got.empty, empty.sum((0, 2)))
    assert not got.broken.any()
    assert (got.rows, got.padding) == (int(real.sum()), int((~real).sum()))
    assert got.all_padding == int((~real.any(1)).sum())
    z = out.double().masked_fill(~counts[..., None], 0)
    assert_close(got.outputs.mean(), z.sum((0, 2)) / counts.sum((0, 2))[:, None], equal_nan=True)
    for name in got.names:
        if got.meaning[name].scale is not None:
            assert torch.equal(got.histogram(name)[1].sum(-1), got.count(name))


@settings(max_examples=max(DRAWN // 3, 10))
@given(data=st.data())
def test_parts_in_any_order_are_one_pass(data: st.DataObject) -> None:
    sizes = (data.draw(groups()), (3, 5), torch.float64)
    calls = [data.draw(problems(sizes=sizes)) for _ in range(data.draw(st.integers(1, 4)))]
    options, heads = OPTIONS["large blocks"], len(sizes[0].kv_of_head)

    def taken(order: list[int]) -> HeadStatistics:
        found = HeadStatistics(heads, options)
        for i in order:
            problem, queries, keys, cross = calls[i]
            found.update(problem, brute.maps(problem).out, queries, keys, cross=cross)
        return found

    order = list(range(len(calls)))
    whole, shuffled = taken(order), taken(data.draw(st.permutations(order)))
    cut = data.draw(st.integers(0, len(calls)))
    kept = HeadStatistics.from_state(taken(order[:cut]).state())
    merged = kept.merge(taken(order[cut:]))
    for other in (shuffled, merged):
        equal_states(other.state(), whole.state())
    each = [brute.rows(p, brute.maps(p).out, a, b, options, cross=c) for p, a, b, c in calls]
    for name in set().union(*each):
        rows = torch.cat([r[name].transpose(0, 1).flatten(1) for r in each if name in r], dim=1)
        for what, number in brute.summary(rows.unsqueeze(0).transpose(1, 1)).items():
            assert_close(
                getattr(whole, what)(name),
                number,
                equal_nan=True,
                **({} if what == "count" else {"rtol": 1e-7, "atol": 1e-6}),
            )


def equal_states(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            equal_states(a[name], b[name])
    elif isinstance(a, Tensor):
        assert_close(a, b, equal_nan=True)
    else:
        assert a == b
