"""Two tables side by side: what changed, and when a gate closes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.errors import SizeError
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable
from unit.measures.test_table import drawn

NAN = math.nan
MEANING = {name: ColumnInfo("", "") for name in ("x", "y", "kind", "old", "new")}


def made(heads: tuple[str, ...], reasons: Any = None, **columns: Any) -> HeadTable:
    wide = {n: torch.tensor(c, dtype=torch.float64) if isinstance(c, list) else c for n, c in columns.items()}
    return HeadTable(heads, wide, MEANING, reasons or {})


BEFORE = made(
    ("L0H0", "L0H1", "L0H2", "L1H0"),
    x=[1.0, 2.0, 4.0, 0.0],
    y=[0.0, 0.0, 0.0, NAN],
    kind=("broad", "next", "next", ""),
    old=[1.0, 1.0, 1.0, 1.0],
)
AFTER = made(
    ("L0H2", "L0H1", "L0H0", "L7H0"),
    x=[3.0, 2.0, 1.25, 0.0],
    y=[0.0, NAN, 0.5, 0.0],
    kind=("next", "dead", "broad", ""),
    new=[1.0, 1.0, 1.0, 1.0],
    reasons={"y": {"L0H1": "constant"}},
)


def heads(*conditions: str) -> list[str]:
    return [f.head for f in BEFORE.compare(AFTER).findings(conditions)]


def test_differences_go_by_the_name_of_the_head() -> None:
    change = BEFORE.compare(AFTER)
    assert change.difference.heads == ("L0H0", "L0H1", "L0H2")
    assert change.difference["x"].tolist() == [0.25, 0.0, -1.0]
    assert change.difference.why("y", "L0H1") == "not defined after: constant"
    assert change.only_before == ("L1H0",)
    assert change.only_after == ("L7H0",)
    assert change.columns_before == ("old",)
    assert change.columns_after == ("new",)
    assert change.changed == [("L0H1", "kind", "next", "dead")]


def test_the_largest_change_of_each_column_comes_by_how_far_it_stands_out() -> None:
    found = BEFORE.compare(AFTER).largest()
    assert [(x.column, x.head) for x in found] == [("y", "L0H0"), ("x", "L0H2")]  # y was the same for all
    x = found[1]
    assert (x.before, x.after, x.change) == (4.0, 3.0, -1.0)
    assert x.mean == pytest.approx(1.25 / 3)
    assert x.spread == pytest.approx(1 / torch.tensor([1.0, 2.0, 4.0]).std(correction=0).item())
    assert BEFORE.compare(BEFORE).largest() == []
    assert BEFORE.compare(BEFORE).changed == []


def test_a_condition_is_on_the_size_of_the_change() -> None:
    assert heads("x>0.2") == ["L0H0", "L0H2"]
    assert heads("x>=1") == ["L0H2"]
    assert heads("x>1") == []
    assert heads("x:drop>0.2") == ["L0H2"]
    assert heads("x:rise>0.2") == ["L0H0"]
    assert heads("x:relative>20%") == ["L0H0", "L0H2"]
    assert heads("x:relative>25%") == []
    assert heads("x=0") == ["L0H1"]
    assert heads("x>0.2", "x:drop>0.2") == ["L0H0", "L0H2", "L0H2"]


def test_from_zero_any_relative_change_is_infinite_and_none_is_none() -> None:
    assert heads("y:relative>1000%") == ["L0H0", "L0H1"]
    assert [f.head for f in BEFORE.compare(BEFORE).findings(["y:relative>0"])] == []


def test_a_number_on_one_side_only_cannot_be_judged_and_closes_the_gate() -> None:
    found = BEFORE.compare(AFTER).findings(["y>100"])
    assert [f.head for f in found] == ["L0H1"]
    assert found[0].why == "0 → –, not defined after: constant"
    assert found[0].plain() == {
        "condition": "y>100", "head": "L0H1", "before": 0.0, "after": None, "why": found[0].why,
    }  # fmt: skip
    both = made(("L0H0",), y=[NAN])
    assert both.compare(both).findings(["y>0"]) == []


def test_words() -> None:
    found = BEFORE.compare(AFTER).findings(["kind:changed"])
    assert repr(found) == "[kind:changed>0 at L0H1: next → dead]"
    assert heads("kind:changed>1") == []
    with pytest.raises(SizeError, match=r"kind>0.5: a change between words has no size"):
        heads("kind>0.5")
    with pytest.raises(SizeError, match="column 'x' holds numbers"):
        heads("x:changed")
    with pytest.raises(SizeError, match="x=foo: 'foo' is not a number"):
        heads("x=foo")


def test_conditions_that_cannot_be_asked() -> None:
    with pytest.raises(SizeError, match="unknown column 'z'") as caught:
        heads("z>1")
    assert caught.value.hint == "choose one of x, y, kind"
    with pytest.raises(SizeError, match="only the first table has column 'old'"):
        heads("old>1")
    with pytest.raises(SizeError, match="only the second table has column 'new'"):
        heads("new>1")
    with pytest.raises(SizeError, match="no head in common: L0H0 and L5H0"):
        made(("L0H0",), x=[1.0]).compare(made(("L5H0",), x=[1.0]))
    with pytest.raises(mh.MultiheadError, match="column 'x' holds numbers in one table and words in the other"):
        made(("L0H0",), x=[1.0]).compare(made(("L0H0",), x=("a",)))


def test_it_reads_well() -> None:
    said = drawn(BEFORE.compare(AFTER))
    for line in (
        "3 heads in both",
        "only before: L1H0",
        "only after: L7H0",
        "kind: 1 changed: L0H1 next → dead",
        "−1",
    ):
        assert line in said
    assert "x: largest at L0H2, 4 → 3; mean 0.42" in repr(BEFORE.compare(AFTER))
    assert "no number changed" in drawn(BEFORE.compare(BEFORE))
    plain = BEFORE.compare(AFTER).plain()
    assert plain["changed"] == [{"head": "L0H1", "column": "kind", "before": "next", "after": "dead"}]
    assert plain["only_after"] == ["L7H0"]


def test_infinite_numbers_are_compared_too() -> None:
    change = made(("L0H0", "L0H1"), x=[math.inf, 1.0]).compare(made(("L0H0", "L0H1"), x=[math.inf, -math.inf]))
    assert [f.head for f in change.findings(["x>5"])] == ["L0H1"]
    (largest,) = change.plain()["largest"]
    assert (largest["head"], largest["before"], largest["after"]) == ("L0H1", 1.0, None)
    assert "L0H1" in drawn(change)
