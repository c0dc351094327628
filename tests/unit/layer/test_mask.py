"""Masks: the cells they allow, the structure they claim, how they are written, drawn and refused."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cases
from multihead import mask
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import _host_integers
from multihead.layer._coordinates import Coordinates, Span
from multihead.layer._mask_algebra import intersect, union
from multihead.layer._mask_structured import Ragged

CPU = torch.device("cpu")
Explicit = Callable[[int, int, int, int], bool]


def by_hand(rule: Explicit, batch: int, heads: int, queries: int, keys: int) -> torch.Tensor:
    """The mask cell by cell; the last query stands at the last key."""
    cells = torch.zeros(batch, heads, queries, keys, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                for k in range(keys):
                    cells[b, h, i, k] = rule(b, h, keys - queries + i, k)
    return cells


LENGTHS = [3, 0, 7]
IDS = [0, 0, 1, 1, -1, 0, 2]
REAL = torch.tensor([[True, False, True, True, False, True, False]] * 3)

KINDS: dict[str, tuple[Callable[[], mask.Mask], Explicit]] = {
    "everything": (mask.everything, lambda b, h, q, k: True),
    "causal": (mask.causal, lambda b, h, q, k: k <= q),
    "window": (lambda: mask.window(3), lambda b, h, q, k: q - 3 < k <= q),
    "window both ways": (lambda: mask.window(2, 2), lambda b, h, q, k: q - 2 < k <= q + 2),
    "window with first": (lambda: mask.window(1, first=2), lambda b, h, q, k: k == q or k < 2),
    "lengths": (lambda: mask.lengths(LENGTHS), lambda b, h, q, k: k < LENGTHS[b]),
    "lengths as a tensor": (lambda: mask.lengths(torch.tensor(LENGTHS)), lambda b, h, q, k: k < LENGTHS[b]),
    "one length": (lambda: mask.lengths([4]), lambda b, h, q, k: k < 4),
    "padding": (lambda: mask.padding(REAL), lambda b, h, q, k: bool(REAL[b, k])),
    "prefix": (lambda: mask.prefix(LENGTHS), lambda b, h, q, k: k <= q or k < LENGTHS[b]),
    "one prefix": (lambda: mask.prefix(4), lambda b, h, q, k: k <= q or k < 4),
    "documents": (lambda: mask.documents(IDS), lambda b, h, q, k: IDS[q] == IDS[k] >= 0),
    "documents by offsets": (
        lambda: mask.documents(offsets=[0, 2, 2, 7]),
        lambda b, h, q, k: (q < 2) == (k < 2),
    ),
    "where": (
        lambda: mask.where(lambda b, h, q, k: (b + h + q) % 3 > k % 2),
        lambda b, h, q, k: (b + h + q) % 3 > k % 2,
    ),
    "and": (
        lambda: mask.causal() & mask.window(3) & mask.lengths(LENGTHS),
        lambda b, h, q, k: k <= q and q - 3 < k and k < LENGTHS[b],
    ),
    "or": (lambda: mask.causal() | mask.lengths(LENGTHS), lambda b, h, q, k: k <= q or k < LENGTHS[b]),
    "and of or": (
        lambda: (mask.causal() | mask.documents(IDS)) & mask.lengths([5]),
        lambda b, h, q, k: (k <= q or IDS[q] == IDS[k] >= 0) and k < 5,
    ),
    "or of everything": (lambda: mask.causal() | mask.everything(), lambda b, h, q, k: True),
}


@pytest.mark.parametrize("queries", [7, 3, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_cells(kind: str, queries: int) -> None:
    make, rule = KINDS[kind]
    assert torch.equal(make().tensor(queries, 7, batch=3, heads=2), by_hand(rule, 3, 2, queries, 7))


@given(data=st.data())
def test_drawn_masks_allow_what_their_parts_say(data: st.DataObject) -> None:
    batch, heads, queries, keys = data.draw(sizes())
    sight = data.draw(cases.looks(batch, heads, queries, keys, ragged=True))(torch.float32)
    want = torch.ones(batch, heads, queries, keys, dtype=torch.bool)
    for b, h, i, k in torch.cartesian_prod(*map(torch.arange, want.shape)).tolist():
        want[b, h, i, k] = sight.allowed is None or sight.allowed(b, h, keys - queries + i, k, i)
    assert torch.equal(mask.of(sight.mask).tensor(queries, keys, batch=batch, heads=heads), want)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    some = st.sampled_from([1, 2, 3, 5, 7])
    queries, keys = draw(some), draw(some)
    return draw(st.integers(1, 3)), draw(st.integers(1, 3)), keys if draw(st.booleans()) else queries, keys


@given(data=st.data())
def test_structure_is_never_too_bold(data: st.DataObject) -> None:
    """Outside `key_ranges` nothing is allowed; where `is_full`, everything is."""
    batch, heads, queries, keys = data.draw(sizes())
    seen = mask.of(data.draw(cases.looks(batch, heads, queries, keys, ragged=True))(torch.float32).mask)
    if data.draw(st.integers(0, 9)) == 0:  # what a cache makes of `ragged`
        lengths = data.draw(st.lists(st.integers(0, queries), min_size=batch, max_size=batch))
        seen = seen & Ragged(lengths, cached=True)
    dense = seen.tensor(queries, keys, batch=batch, heads=heads)
    offset = keys - queries
    row = data.draw(st.integers(0, batch - 1))
    start = data.draw(st.integers(offset, keys - 1))
    stop = data.draw(st.integers(start + 1, keys))
    span = Span(row, start, stop, offset, keys)
    block = dense[row, :, start - offset : stop - offset]
    outside = torch.ones(keys, dtype=torch.bool)
    last = 0
    for lo, hi in intersect(seen.key_ranges(span), [(0, keys)]):
        assert last <= lo < hi <= keys, "sorted, disjoint and not empty"
        outside[lo:hi] = False
        last = hi
    assert not block[:, :, outside].any()
    lo = data.draw(st.integers(0, keys - 1))
    hi = data.draw(st.integers(lo + 1, keys))
    if seen.is_full(span, lo, hi):
        assert block[:, :, lo:hi].all()
    if seen.diagonal_visible and queries <= keys:
        assert dense[..., range(queries), range(offset, keys)].all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), st.data())
def test_unions_and_intersections_of_intervals(some: list[tuple[int, int]], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5))
    places = lambda intervals: {p for lo, hi in intervals for p in range(lo, hi)}
    assert places(union(some)) == places(some)
    assert places(intersect(some, others)) == places(some) & places(others)
    for (_, hi), (lo, _) in zip(union(some), union(some)[1:], strict=False):
        assert hi < lo


def test_offsets_whose_values_are_on_a_device_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for offsets in ([0, 2, 2, 7], [0, 7], [0, 1, 3, 7]):
        on_host, in_tensor = mask.documents(offsets=offsets), mask.documents(offsets=torch.tensor(offsets))
        with monkeypatch.context() as patch:
            patch.setattr(_host_integers, "readable", lambda x: False)
            assert on_host.structured
            assert not in_tensor.structured
            for queries in (7, 3):
                assert torch.equal(in_tensor.tensor(queries, 7), on_host.tensor(queries, 7))


class TestTensors:
    @pytest.mark.parametrize("shape", [(5, 7), (1, 7), (3, 5, 7), (3, 1, 7), (3, 2, 5, 7), (1, 2, 1, 7)])
    def test_bool_tensors_broadcast(self, shape: tuple[int, ...]) -> None:
        sees = torch.rand(shape) < 0.5
        full = {2: sees[None, None], 3: sees[:, None]}[len(shape)] if len(shape) < 4 else sees
        got = mask.tensor(sees).tensor(5, 7, batch=3, heads=2)
        assert torch.equal(got, full.expand(3, 2, 5, 7))

    def test_additive_hides_where_it_is_minus_infinity(self) -> None:
        scores = torch.randn(5, 7).masked_fill(torch.rand(5, 7) < 0.4, -torch.inf)
        assert torch.equal(mask.additive(scores).tensor(5, 7)[0, 0], scores > -torch.inf)

    def test_what_is_added_is_summed_and_finite(self) -> None:
        one, two = torch.randn(5, 7), torch.randn(2, 5, 7).masked_fill(torch.rand(2, 5, 7) < 0.3, -torch.inf)
        both = mask.additive(one) & mask.additive(two) & mask.causal()
        added = both.score_bias(Coordinates(2, 3, 5, 7, CPU).grid())
        want = one + two.nan_to_num(neginf=0.0)
        assert added is not None
        assert torch.equal(added, want[:, None])

    def test_of(self) -> None:
        assert mask.of(None).tensor(2).all()
        assert not mask.of(torch.zeros(2, 2, dtype=torch.bool)).tensor(2).any()
        assert mask.of(torch.zeros(2, 2)).has_bias
        causal = mask.causal()
        assert mask.of(causal) is causal


class TestWritten:
    @pytest.mark.parametrize(
        "said",
        [
            "everything()",
            "causal()",
            "window(3)",
            "window(3, 2)",
            "window(3, first=4)",
            "window(3, 2, first=4)",
            "lengths([3, 0, 7])",
            "ragged([3, 0, 7])",
            "prefix([4])",
            "causal() & window(3) & lengths([4])",
            "causal() | window(3)",
            "(causal() | window(3)) & lengths([4])",
            "(causal() & lengths([4])) | window(3)",
        ],
    )
    def test_reads_as_it_was_made(self, said: str) -> None:
        names = {name: getattr(mask, name) for name in mask.__dict__ if not name.startswith("_")}
        made = eval(said, names)
        assert repr(made) == said

    def test_long_ones_are_cut_and_tensors_say_their_shape(self) -> None:
        assert repr(mask.lengths(list(range(20)))) == "lengths([0, 1, 2, 3, 4, 5, 6, 7, …])"
        assert repr(mask.tensor(torch.ones(3, 5, 7, dtype=torch.bool))) == "tensor(3 x 5 x 7)"
        assert repr(mask.additive(torch.ones(5, 7))) == "additive(5 x 7)"
        assert repr(mask.padding(REAL)) == "padding(3 x 7)"
        assert repr(mask.documents(offsets=[0, 2, 7])) == "documents(2 documents, 7 tokens)"

        def odd(batch: object, head: object, query: object, key: object) -> object:
            return key

        assert repr(mask.where(odd)) == "where(odd)"

    def test_everything_is_the_one_of_and(self) -> None:
        causal = mask.causal()
        assert repr(mask.everything() & causal) == repr(causal & mask.everything()) == "causal()"

    def test_drawn_as_text(self) -> None:
        assert mask.causal().draw(3, 5) == "███··\n████·\n█████"
        assert mask.lengths([1, 2]).draw(2, 3, row=1) == "██·\n██·"
        by_head = mask.where(lambda b, h, q, k: k < h + 0 * q)
        assert by_head.draw(1, 3, head=2) == "██·"

    def test_drawn_as_a_picture(self) -> None:
        seen = mask.causal() & mask.window(2)
        root = ElementTree.fromstring(seen.svg(3, 5))
        space = "{http://www.w3.org/2000/svg}"
        assert root.find(f"{space}title").text == "causal() & window(2)"  # type: ignore[union-attr]
        path = root.find(f"{space}path").get("d")  # type: ignore[union-attr]
        assert path == "M1 0h2v1h-2zM2 1h2v1h-2zM3 2h2v1h-2z"
        assert ElementTree.fromstring(mask.documents(IDS)._repr_svg_()) is not None

    def test_too_large_to_draw(self) -> None:
        with pytest.raises(SizeError, match="300 queries x 300 keys") as caught:
            mask.causal().draw(300)
        assert caught.value.hint


def test_a_window_sees_as_many_keys_as_it_says() -> None:
    assert mask.window(5).tensor(30)[0, 0, 20:].sum(-1).eq(5).all()
    assert mask.window(5, 4).tensor(30)[0, 0, 10:20].sum(-1).eq(9).all()


@pytest.mark.parametrize(
    "make, kind, says",
    [
        (lambda: mask.window(0), SizeError, ["left=0", "left >= 1"]),
        (lambda: mask.window(3, -1), SizeError, ["right=-1"]),
        (lambda: mask.documents(), TypeMismatchError, ["neither"]),
        (lambda: mask.documents([0], offsets=[0, 1]), TypeMismatchError, ["both"]),
        (lambda: mask.documents(offsets=[1, 3]), SizeError, ["[1, 3]", "start at 0"]),
        (lambda: mask.documents(offsets=[0, 3, 2]), SizeError, ["[0, 3, 2]", "not decrease"]),
        (lambda: mask.padding(torch.ones(2, 3)), TypeMismatchError, ["torch.float32", "(2, 3)"]),
        (lambda: mask.padding(torch.ones(3, dtype=torch.bool)), TypeMismatchError, ["(3,)"]),
        (lambda: mask.tensor(torch.ones(2, 3)), TypeMismatchError, ["torch.float32", "(2, 3)"]),
        (lambda: mask.tensor(torch.ones(3, dtype=torch.bool)), TypeMismatchError, ["(3,)"]),
        (lambda: mask.additive(torch.ones(2, 3, dtype=torch.bool)), TypeMismatchError, ["torch.bool"]),
        (lambda: mask.of(torch.ones(2, 3, dtype=torch.long)), TypeMismatchError, ["torch.int64", "t.bool()"]),
        (lambda: mask.of([[True]]), TypeMismatchError, ["[[True]]", "tensor"]),  # type: ignore[arg-type]
        (lambda: mask.causal() | mask.additive(torch.ones(2, 3)), TypeMismatchError, ["additive(2 x 3)", "|"]),
        (lambda: mask.where(lambda b, h, q, k: q - k).tensor(3), TypeMismatchError, ["torch.int64"]),
        (lambda: mask.causal().tensor(5, 3), SizeError, ["5 queries", "3 keys"]),
        (lambda: mask.lengths([3, 8]).tensor(5, 7), SizeError, ["row 1", "0..7", "got 8"]),
        (lambda: mask.lengths([-1]).tensor(5, 7), SizeError, ["0..7", "got -1"]),
        (lambda: mask.lengths([3, 4]).tensor(5, 7, batch=3), SizeError, ["got 2", "batch of 3"]),
        (lambda: mask.ragged([3]).tensor(5, 7), SizeError, ["5 queries", "7 keys"]),
        (lambda: mask.ragged([8]).tensor(7), SizeError, ["0..7", "got 8"]),
        (lambda: mask.padding(REAL).tensor(5, 6), SizeError, ["3 x 7", "6 keys"]),
        (lambda: mask.documents(IDS).tensor(8), SizeError, ["7 tokens", "8 keys"]),
        (lambda: mask.documents(IDS).tensor(8, 7), SizeError, ["8 queries", "7 keys"]),
        (lambda: mask.tensor(REAL).tensor(4, 7), SizeError, ["3 x 7", "(1, 1, 4, 7)"]),
    ],
)
def test_errors_say_both_values_and_a_hint(make: Callable[[], object], kind: type, says: list[str]) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert isinstance(caught.value, MultiheadError)
    for part in says:
        assert part in str(caught.value)
    assert caught.value.hint
