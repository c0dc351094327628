"""Caches: attention over what they return equals attention over the whole text, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from multihead import cache
from multihead.errors import CacheError, SizeError

BATCH, KV, KEY_DIM, VALUE_DIM = 3, 2, 5, 7
LIMIT = 41  # capacity of the static cache

MAKERS: dict[str, Callable[[], cache.Cache]] = {
    "growing": cache.Growing,
    "static": lambda: cache.Static(BATCH, KV, LIMIT, KEY_DIM, VALUE_DIM),
    "ring": lambda: cache.Ring(LIMIT),  # never full here: then it is like the others
}


@pytest.fixture(params=MAKERS)
def kept(request: pytest.FixtureRequest) -> cache.Cache:
    return MAKERS[request.param]()


def tokens(n: int, batch: int = BATCH, kv: int = KV) -> tuple[Tensor, Tensor, Tensor]:
    q, k = torch.randn(2, batch, kv, n, KEY_DIM)
    return 2 * q, k, torch.randn(batch, kv, n, VALUE_DIM)


def attend(q: Tensor, k: Tensor, v: Tensor, may: Tensor) -> Tensor:
    """softmax(q kᵀ) v by the book; `may` is (batch | 1, query, key)."""
    scores = (q @ k.mT / math.sqrt(KEY_DIM)).masked_fill(~may.unsqueeze(1), -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v


def over_view(q: Tensor, view: cache.View, window: int | None = None, first: int = 0) -> Tensor:
    """Causal (or window) attention with nothing known but the view."""
    keys, new = view.k.shape[2], q.shape[2]
    at = torch.arange(keys)[None] if view.key_positions is None else view.key_positions
    asked = torch.arange(keys - new, keys)[None] if view.query_positions is None else view.query_positions
    may = at[:, None, :] <= asked[:, :, None]
    if window is not None:
        may = may & ((at[:, None, :] > asked[:, :, None] - window) | (at[:, None, :] < first))
    if view.filled is not None:
        may = may & view.filled[:, None, :]
    return attend(q, view.k, view.v, may)


def whole(q: Tensor, k: Tensor, v: Tensor, window: int | None = None, first: int = 0) -> Tensor:
    return over_view(q, cache.View(k, v), window, first)


def split(n: int, sizes: list[int]) -> list[slice]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    assert ends[-1] == n
    return [slice(e - s, e) for e, s in zip(ends, sizes, strict=True)]


# ---- decode equals the full pass ----------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[17], [1] * 17, [5, 1, 1, 7, 3], [0, 11, 0, 6]])
def test_decode_is_the_full_pass(kept: cache.Cache, sizes: list[int]) -> None:
    q, k, v = tokens(17)
    out: list[Tensor] = []
    for at in split(17, sizes):
        assert torch.equal(kept.next_positions(at.stop - at.start), torch.arange(at.start, at.stop))
        assert kept.length == at.start
        view = kept.append(k[:, :, at], v[:, :, at])
        assert (view.query_positions, view.key_positions, view.filled) == (None, None, None)
        assert torch.equal(view.k, k[:, :, : at.stop])
        assert torch.equal(view.v, v[:, :, : at.stop])
        out.append(over_view(q[:, :, at], view))
    assert_close(torch.cat(out, 2), whole(q, k, v))
    assert kept.lengths.tolist() == [17] * BATCH


@given(data=st.data())
def test_rows_of_different_lengths_are_each_their_own_text(data: st.DataObject) -> None:
    maker = data.draw(st.sampled_from(sorted(MAKERS)))
    window = data.draw(st.integers(2, 9)) if maker == "ring" else None
    first = data.draw(st.integers(0, 3)) if maker == "ring" else 0
    kept = MAKERS[maker]() if window is None else cache.Ring(window, first=first)
    chunks = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    texts: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in range(BATCH)]
    out: list[list[Tensor]] = [[] for _ in range(BATCH)]
    for new in chunks:
        q, k, v = tokens(new)
        real = data.draw(st.none() | st.lists(st.integers(0, new), min_size=BATCH, max_size=BATCH))
        counts = [new] * BATCH if real is None else real
        if real is not None:
            for row, n in enumerate(real):  # what is not stored must not matter
                k[row, :, n:] = v[row, :, n:] = torch.nan
        before = kept.lengths.tolist() or [0] * BATCH
        places = kept.next_positions(new)
        lengths = real if data.draw(st.booleans()) or real is None else torch.tensor(real)
        view = kept.append(k, v, lengths)
        got = over_view(q, without_nan(view), window, first)
        for row, n in enumerate(counts):
            texts[row].append((q[row, :, :n], k[row, :, :n], v[row, :, :n]))
            out[row].append(got[row, :, :n])
            row_places = places if places.dim() == 1 else places[row]
            assert row_places.tolist() == [before[row] + i for i in range(new)]
        assert kept.lengths.tolist() == [b + n for b, n in zip(before, counts, strict=True)]
    for row in range(BATCH):
        parts = [torch.cat(part, 1).unsqueeze(0) for part in zip(*texts[row], strict=True)]
        assert_close(torch.cat(out[row], 1).unsqueeze(0), whole(*parts, window, first))
    counts = kept.lengths.tolist()
    assert kept.length == (counts[0] if len(set(counts)) == 1 else None)


def without_nan(view: cache.View) -> cache.View:
    """A chunk that `Ring` hands back whole has the padding of this very call in it, marked as not filled."""
    if view.filled is not None and view.key_positions is not None:
        clean = [t.masked_fill(~view.filled[:, None, :, None], 0.0) for t in (view.k, view.v)]
        return cache.View(*clean, view.query_positions, view.key_positions, view.filled)
    assert not view.k.isnan().any()
    return view


def test_an_empty_slot_holds_zeros_not_what_was_in_memory(kept: cache.Cache) -> None:
    _, k, v = tokens(7)
    view = kept.append(k.fill_(torch.nan), v.fill_(torch.nan), [0, 0, 0])
    assert view.k.shape[2] == 0
    _, k, v = tokens(7)
    view = kept.append(k, v, [7, 0, 3])
    assert view.filled is not None
    assert torch.equal(view.filled.sum(1), torch.tensor([7, 0, 3]))
    assert (view.k.masked_select(~view.filled[:, None, :, None]) == 0).all()
    assert (view.v.masked_select(~view.filled[:, None, :, None]) == 0).all()


def test_rows_that_meet_again_are_alike_again(kept: cache.Cache) -> None:
    q, k, v = tokens(5)
    kept.append(k, v, [5, 2, 3])
    assert kept.length is None
    assert kept.next_positions(2).tolist() == [[5, 6], [2, 3], [3, 4]]
    kept.append(k, v, [0, 3, 2])
    assert kept.length == 5
    view = kept.append(k, v)
    assert (view.query_positions, view.filled) == (None, None)
    assert torch.equal(view.k[1], torch.cat((k[1, :, :2], k[1, :, :3], k[1]), 1))
    assert_close(over_view(q, view).shape, q.shape[:3] + (VALUE_DIM,))


# ---- growing ------------------------------------------------------------------------------------


def test_growing_reallocates_only_when_it_doubles() -> None:
    kept = cache.Growing()
    places: list[int] = []
    for _ in range(300):
        _, k, v = tokens(1)
        places.append(kept.append(k, v).k.data_ptr())
    moves = sum(a != b for a, b in pairwise(places))
    assert moves == 5  # 16 → 32 → 64 → 128 → 256 → 512
    assert kept.capacity == 512


def test_growing_hands_out_views_of_one_memory() -> None:
    kept = cache.Growing()
    _, k, v = tokens(17)
    a, b = kept.append(k[:, :, :7], v[:, :, :7]), kept.append(k[:, :, 7:9], v[:, :, 7:9])
    assert a.k.data_ptr() == b.k.data_ptr()
    assert torch.equal(a.k, k[:, :, :7])  # and what was handed out stays as it was


@pytest.mark.parametrize("make", [cache.Growing, lambda: cache.Ring(4, first=1)])
@pytest.mark.parametrize("ragged", [False, True])
def test_gradients_flow_through_every_step(make: Callable[[], cache.Cache], ragged: bool) -> None:
    window, first = (None, 0) if make is cache.Growing else (4, 1)
    q, k, v = tokens(8)
    leaves = [t.requires_grad_() for t in (k, v)]
    kept, out = make(), []
    for at in split(8, [3, 1, 1, 2, 1]):
        lengths = [at.stop - at.start] * BATCH if ragged else None
        out.append(over_view(q[:, :, at], kept.append(k[:, :, at], v[:, :, at], lengths), window, first))
    got = torch.autograd.grad(torch.cat(out, 2).pow(2).sum(), leaves)
    expected = torch.autograd.grad(whole(q, k, v, window, first).pow(2).sum(), leaves)
    assert_close(got, expected)
    with torch.no_grad():  # decoding on behind a graph leaves the graph alone
        view = kept.append(*tokens(1)[1:])
        assert not view.k.requires_grad


@pytest.mark.parametrize("maker", MAKERS)
def test_made_in_inference_mode_and_used_outside(maker: str) -> None:
    q, k, v = tokens(9)
    with torch.inference_mode():
        kept = MAKERS[maker]()
        kept.append(k[:, :, :4].clone(), v[:, :, :4].clone())
    kept.append(k[:, :, 4:8], v[:, :, 4:8])
    with torch.inference_mode():
        view = kept.append(k[:, :, 8:].clone(), v[:, :, 8:].clone())
        assert_close(over_view(q[:, :, 8:], view), whole(q, k, v)[:, :, 8:])


# ---- static -------------------------------------------------------------------------------------


def test_static_overflow_says_both_values() -> None:
    kept = cache.Static(BATCH, KV, 11, KEY_DIM, VALUE_DIM)
    kept.append(*tokens(7)[1:], [7, 2, 0])
    with pytest.raises(CacheError, match=r"capacity=11[\s\S]*12 tokens[\s\S]*hint: [\s\S]*>= 12"):
        kept.append(*tokens(5)[1:])
    assert kept.lengths.tolist() == [7, 2, 0]  # nothing was written
    kept.append(*tokens(9)[1:], torch.tensor([4, 9, 9]))
    assert kept.lengths.tolist() == [11, 11, 9]


def test_static_refuses_gradients() -> None:
    kept = cache.Static(BATCH, KV, 11, KEY_DIM, VALUE_DIM)
    _, k, v = tokens(2)
    with pytest.raises(CacheError, match=r"require grad[\s\S]*no_grad"):
        kept.append(k.requires_grad_(), v)
    with torch.no_grad():
        assert kept.append(k, v).k.shape[2] == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.fast("aot_eager")
def test_static_compiles_to_one_graph_for_all_steps(backend: str) -> None:
    torch.compiler.reset()
    graphs = 0

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    def step(q: Tensor, k: Tensor, v: Tensor, kept: cache.Static) -> tuple[Tensor, Tensor]:
        assert kept.length is None
        places = kept.next_positions(k.shape[2])
        return over_view(q, kept.append(k, v)), places

    compiled = torch.compile(step, fullgraph=True, backend=count)
    q, k, v = tokens(17)
    kept = cache.Static(BATCH, KV, 19, KEY_DIM, VALUE_DIM)
    out = [over_view(q[:, :, :5], kept.append(k[:, :, :5], v[:, :, :5]))]
    for i in range(5, 17):
        got, places = compiled(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1], kept)
        assert places.tolist() == [[i]] * BATCH
        out.append(got)
    assert graphs == 1
    assert kept.lengths.tolist() == [17] * BATCH
    assert kept.length == 17
    assert_close(torch.cat(out, 2), whole(q, k, v))
    compiled(q[:, :, :1], k[:, :, :1], v[:, :, :1], kept)
    compiled(q[:, :, :1], k[:, :, :1], v[:, :, :1], kept)
    with pytest.raises((RuntimeError, IndexError)):
        compiled(q[:, :, :1], k[:, :, :1], v[:, :, :1], kept)


def test_static_compiles_for_rows_of_different_lengths() -> None:
    torch.compiler.reset()

    def step(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, kept: cache.Static) -> Tensor:
        return over_view(q, kept.append(k, v, lengths))

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    fast, plain = (cache.Static(BATCH, KV, 13, KEY_DIM, VALUE_DIM) for _ in range(2))
    for counts in ([5, 0, 2], [3, 5, 4], [5, 1, 0]):  # row 0 ends at the very last slot
        q, k, v = tokens(5)
        got, expected = (f(q, k, v, torch.tensor(counts), c) for f, c in ((compiled, fast), (step, plain)))
        for row, n in enumerate(counts):
            assert_close(got[row, :, :n], expected[row, :, :n])
    assert fast.lengths.tolist() == plain.lengths.tolist() == [13, 6, 6]
    assert torch.equal(fast._buffers()[0], plain._buffers()[0])


# ---- ring ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("window", [1, 5, 7, 31])
@pytest.mark.parametrize("sizes", [[23], [1] * 23, [11, 1, 1, 6, 1, 3], [2, 4, 1, 9, 7]])
def test_ring_is_window_attention_over_the_whole_text(first: int, window: int, sizes: list[int]) -> None:
    q, k, v = tokens(23)
    kept, out = cache.Ring(window, first=first), []
    for at in split(23, sizes):
        view = kept.append(k[:, :, at], v[:, :, at])
        assert view.filled is None
        assert view.k.shape[2] <= first + window + (at.stop - at.start if sizes != [1] * 23 else 0)
        out.append(over_view(q[:, :, at], view, window, first))
    assert_close(torch.cat(out, 2), whole(q, k, v, window, first))
    assert kept.nbytes == BATCH * KV * (first + window) * (KEY_DIM + VALUE_DIM) * 4
    assert kept.length == 23


def test_ring_decodes_without_a_copy() -> None:
    kept = cache.Ring(5)
    kept.append(*tokens(9)[1:])
    a, b = kept.append(*tokens(1)[1:]), kept.append(*tokens(1)[1:])
    assert a.k.data_ptr() == b.k.data_ptr()
    assert b.key_positions is not None
    assert sorted(b.key_positions[0].tolist()) == [6, 7, 8, 9, 10]
    assert b.query_positions is not None
    assert b.query_positions.tolist() == [[10]]


def test_ring_goes_back_only_while_nothing_is_lost() -> None:
    q, k, v = tokens(11)
    kept = cache.Ring(7, first=1)
    kept.append(k[:, :, :8], v[:, :, :8])
    kept.crop(5)
    out = [
        over_view(q[:, :, i : i + 1], kept.append(k[:, :, i : i + 1], v[:, :, i : i + 1]), 7, 1)
        for i in range(5, 11)
    ]
    assert_close(torch.cat(out, 2), whole(q, k, v, 7, 1)[:, :, 5:])
    kept.crop(11)  # nothing to do
    with pytest.raises(CacheError, match=r"window=7[\s\S]*10 of 11[\s\S]*hint"):
        kept.crop(10)


# ---- cross --------------------------------------------------------------------------------------


def test_cross_is_computed_once() -> None:
    kept = cache.Cross()
    assert not kept.filled
    _, k, v = tokens(7)
    first = kept.append(k, v, [7, 3, 5])
    assert kept.filled
    again = kept.append(k, v)
    with pytest.raises(CacheError, match=r"reset\(\)"):
        kept.append(*tokens(11)[1:])
    for view in (first, again):
        assert view.k is k
        assert view.filled is not None
        assert view.filled.sum(1).tolist() == [7, 3, 5]
    assert kept.nbytes == k.nbytes + v.nbytes
    kept.crop(4)
    assert kept.nbytes == (k.nbytes + v.nbytes) * 4 // 7
    assert kept.lengths.tolist() == [4, 3, 4]
    kept.reset()
    assert not kept.filled
    with pytest.raises(CacheError, match=r"0 rows[\s\S]*hint"):
        kept.reorder(torch.tensor([0]))


# ---- beams, steps back, bytes -------------------------------------------------------------------


def test_reorder_is_the_step_of_a_beam_search(kept: cache.Cache) -> None:
    _, k, v = tokens(6)
    kept.append(k, v, [6, 2, 4])
    order = torch.tensor([2, 2, 0])
    kept.reorder(order)
    assert kept.lengths.tolist() == [4, 4, 6]
    q, k2, v2 = tokens(1)
    view = kept.append(k2, v2)
    for row, (source, n) in enumerate([(2, 4), (2, 4), (0, 6)]):
        full = [torch.cat((old[source, :, :n], new[row]), 1)[None] for old, new in ((k, k2), (v, v2))]
        expected = attend(q[row : row + 1], *full, torch.ones(1, 1, n + 1, dtype=torch.bool))
        assert_close(over_view(q, view)[row : row + 1], expected)


def test_reorder_may_change_the_number_of_rows_but_not_of_a_static_cache() -> None:
    for maker in MAKERS.values():
        kept = maker()
        kept.append(*tokens(3)[1:])
        if isinstance(kept, cache.Static):
            with pytest.raises(CacheError, match=r"3 rows[\s\S]*5[\s\S]*hint"):
                kept.reorder(torch.tensor([0, 1, 2, 0, 1]))
            assert kept.lengths.tolist() == [3, 3, 3]
        else:
            kept.reorder(torch.tensor([0, 1, 2, 0, 1]))
            assert kept.append(*tokens(1, batch=5)[1:]).k.shape == (5, KV, 4, KEY_DIM)
        with pytest.raises(CacheError, match=r"rows, got \[7\][\s\S]*hint"):
            kept.reorder(torch.tensor([7]))


def test_crop_is_a_step_back(kept: cache.Cache) -> None:
    q, k, v = tokens(11)
    kept.append(k, v)
    kept.crop(6)
    assert kept.length == 6
    assert_close(over_view(q[:, :, 6:], kept.append(k[:, :, 6:], v[:, :, 6:])), whole(q, k, v)[:, :, 6:])
    kept.crop(99)
    assert kept.length == 11
    with pytest.raises(SizeError, match=r"tokens.*-1[\s\S]*hint"):
        kept.crop(-1)


def test_reset_forgets(kept: cache.Cache) -> None:
    q, k, v = tokens(5)
    kept.append(*tokens(7)[1:], [7, 1, 2])
    kept.reset()
    assert kept.length == 0
    assert kept.used_bytes == 0
    assert_close(over_view(q, kept.append(k, v)), whole(q, k, v))


@pytest.mark.parametrize("dtype, size", [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_are_exact(dtype: torch.dtype, size: int) -> None:
    slot = KV * (KEY_DIM + VALUE_DIM) * size
    kinds = {
        cache.Growing(): 32,
        cache.Static(BATCH, KV, 19, KEY_DIM, VALUE_DIM, dtype=dtype): 19,
        cache.Ring(11, first=2): 13,
    }
    for kept, slots in kinds.items():
        assert kept.used_bytes == 0
        for counts in ([9, 4, 7], [9, 1, 0]):
            kept.append(*(t.to(dtype) for t in tokens(9)[1:]), counts)
        assert kept.nbytes == BATCH * slots * slot
        assert kept.used_bytes == sum(min(n, slots) for n in (18, 5, 7)) * slot
    assert cache.Growing().nbytes == 0


def test_values_may_have_no_size_of_their_own() -> None:
    """What latent attention needs: everything is in the keys."""
    for kept in (cache.Growing(), cache.Static(BATCH, 1, 9, 5, 0), cache.Ring(4)):
        for counts in (None, [3, 0, 1], None):
            view = kept.append(torch.randn(BATCH, 1, 3, 5), torch.randn(BATCH, 1, 3, 0), counts)
        assert view.v.shape == (*view.k.shape[:3], 0)
        assert kept.nbytes == BATCH * kept._buffers()[0].shape[2] * 5 * 4


def test_no_rows() -> None:
    for kept in (cache.Growing(), cache.Static(0, KV, 9, KEY_DIM, VALUE_DIM), cache.Ring(4)):
        view = kept.append(*tokens(5, batch=0)[1:])
        assert view.k.shape[:2] == (0, KV)
        assert kept.used_bytes == 0


# ---- bad input, and how they print --------------------------------------------------------------


def test_wrong_shapes_are_named(kept: cache.Cache) -> None:
    _, k, v = tokens(3)
    kept.append(k, v)
    with pytest.raises(CacheError, match=r"k of shape[\s\S]*v of[\s\S]*hint"):
        kept.append(k, v[:, :, :2])
    with pytest.raises(CacheError, match=r"\(3, 2, 5\)[\s\S]*\(2, 2, 5\)[\s\S]*hint"):
        kept.append(k[:2], v[:2])
    with pytest.raises(CacheError, match=r"\(3, 2, 7\)[\s\S]*\(3, 2, 6\)[\s\S]*hint"):
        kept.append(k, v[..., :6])
    with pytest.raises(CacheError, match=r"float32[\s\S]*bfloat16[\s\S]*hint"):
        kept.append(k.bfloat16(), v.bfloat16())


@pytest.mark.parametrize("lengths", [[4, 0, 0], [-1, 0, 0], [1, 2], torch.tensor([1, 2, 3, 0])])
def test_wrong_lengths_are_named(kept: cache.Cache, lengths: list[int] | Tensor) -> None:
    _, k, v = tokens(3)
    with pytest.raises(SizeError, match=r"lengths[\s\S]*3 rows[\s\S]*3 new tokens, got \[[\s\S]*hint"):
        kept.append(k, v, lengths)
    assert kept.length == 0


def test_a_ring_of_nothing_is_refused() -> None:
    with pytest.raises(SizeError, match=r"window.*got 0"):
        cache.Ring(0)


def test_they_print_what_they_hold() -> None:
    kept = cache.Growing()
    assert repr(kept) == "Growing(empty)"
    kept.append(*tokens(3)[1:], [3, 1, 2])
    assert repr(kept) == "Growing(3 rows, 1 to 3 tokens, 0.6 KiB of 4.5 KiB)"
