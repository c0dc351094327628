"""Compare two tables of heads, from two checkpoints of a model or from two models.

>>> import torch
>>> from multihead.table.column_info import ColumnInfo
>>> from multihead.table.table import HeadTable
>>> def table(*masses):
...     return HeadTable(("L0H0", "L0H1"), {"first": torch.tensor(masses)}, {"first": ColumnInfo("share", "")})
>>> change = table(0.25, 0.5).compare(table(0.25, 0.125))
>>> change.difference["first"].tolist()
[0.0, -0.375]
>>> change.findings(["first>0.1"])
[first>0.1 at L0H1: 0.5 → 0.125, a change of −0.375]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor

from multihead._base.arguments import names_hint
from multihead._base.labels import agree
from multihead._base.number_text import MISSING, number
from multihead._base.plural import plural
from multihead.errors import MultiheadError, SizeError
from multihead.table.condition import Condition
from multihead.table.rows_and_columns import Numbers, TableData, abbreviate

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

T = TypeVar("T", bound=TableData)


def common(before: TableData, after: TableData) -> tuple[list[str], list[str]]:
    """The heads and columns that can be compared, in the order of the first table."""
    heads_after = set(after.heads)
    heads = [h for h in before.heads if h in heads_after]
    if not heads:
        raise SizeError(
            f"the tables have no head in common: {abbreviate(before.heads)} and {abbreviate(after.heads)}",
            hint="compare models whose heads have the same names",
        )
    columns = [n for n in before.columns if n in after.columns]
    for name in columns:
        if isinstance(before[name], Tensor) != isinstance(after[name], Tensor):
            raise MultiheadError(
                f"column {name!r} holds numbers in one table and words in the other",
                hint="measure both with the same version of multihead",
            )
    return heads, columns


@dataclass(frozen=True, repr=False)
class HeadFinding:
    """A head that meets a condition, with its values before and after."""

    condition: str
    head: str
    before: float | str
    after: float | str
    why: str

    def __repr__(self) -> str:
        return f"{self.condition} at {self.head}: {self.why}"

    def plain(self) -> dict[str, Any]:
        """The finding as JSON-compatible data."""
        ends = {"before": _plain(self.before), "after": _plain(self.after)}
        return {"condition": self.condition, "head": self.head, **ends, "why": self.why}


@dataclass(frozen=True)
class Largest:
    """The head that changed most in a column."""

    column: str
    head: str
    before: float
    after: float
    mean: float
    """mean |change| over heads"""
    spread: float
    """largest |change| / standard deviation over heads before; `largest` sorts by it"""

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True, repr=False)
class TableComparison(Generic[T]):
    """Two tables restricted to their common heads and columns, in the order of the first."""

    before: T
    after: T
    only_before: tuple[str, ...]
    """heads only in the first table"""
    only_after: tuple[str, ...]
    columns_before: tuple[str, ...]
    """columns only in the first table"""
    columns_after: tuple[str, ...]

    @property
    def difference(self) -> T:
        """The compared numbers: after − before for every numeric column."""
        names = [n for n in self.before.columns if isinstance(self.before[n], Tensor)]
        columns = {n: self.after.numbers(n) - self.before.numbers(n) for n in names}
        reasons = {n: self._missing_reasons(n, column) for n, column in columns.items()}
        return replace(
            self.before,
            columns=columns,
            meaning={n: self.before.meaning[n] for n in names},
            reasons={n: by_head for n, by_head in reasons.items() if by_head},
            about={"before": dict(self.before.about), "after": dict(self.after.about)},
        )

    def _missing_reasons(self, column: str, change: Numbers) -> dict[str, str]:
        """head → why it has no change"""
        undefined = [h for h, x in zip(self.before.heads, change.tolist(), strict=True) if math.isnan(x)]
        return {head: self._missing_reason(column, head) for head in undefined}

    def _missing_reason(self, column: str, head: str) -> str:
        """Why a change is NaN: the reasons of the compared tables."""
        return "; ".join(
            f"not defined {side}: {table.why(column, head) or 'no reason given'}"
            for side, table in (("before", self.before), ("after", self.after))
            if math.isnan(table.row(head)[column])
        )

    @property
    def changed(self) -> list[tuple[str, str, str, str]]:
        """(head, column, word before, word after) where the compared words, such as a head's kind, differ.

        "position + word" and "word" do not differ, nor do two values of one share: "word, 0.17" and "word, 0.19".
        """
        words = [n for n in self.before.columns if not isinstance(self.before[n], Tensor)]
        return [
            (head, name, old, new)
            for name in words
            for head, old, new in zip(self.before.heads, self.before[name], self.after[name], strict=True)
            if old != new and not agree(old, new)
        ]

    def largest(self) -> list[Largest]:
        """The head that changed most in each compared column, ordered by `spread`, largest first."""
        difference = self.difference
        changes = [self._largest(name, difference.numbers(name)) for name in difference.columns]
        return sorted((x for x in changes if x is not None), key=lambda x: -x.spread)

    def _largest(self, name: str, change: Numbers) -> Largest | None:
        """The largest change of a compared column; None if nothing changed."""
        size = change.abs().nan_to_num(-1.0, posinf=math.inf)
        index = int(size.argmax())
        if float(size[index]) <= 0:
            return None
        before = self.before.numbers(name)
        finite = before[before.isfinite()]
        deviation = float(finite.std(correction=0)) if len(finite) else 0.0
        return Largest(
            name, self.before.heads[index], float(before[index]), float(self.after.numbers(name)[index]),
            float(change.abs().nanmean()), float(size[index]) / deviation if deviation > 0 else math.inf,
        )  # fmt: skip

    # ---- conditions ---------------------------------------------------------------------------

    def findings(self, conditions: Sequence[str | Condition]) -> list[HeadFinding]:
        """One finding per head and condition that the comparison meets: `entropy>0.1`, `kind:changed`.

        A value defined on one side only meets every condition on its column, since its change is unknown.
        """
        findings: list[HeadFinding] = []
        for condition in conditions:
            parsed = Condition.of(condition) if isinstance(condition, str) else condition
            findings += self._word_findings(parsed) if parsed.how == "changed" else self._number_findings(parsed)
        return findings

    def _word_findings(self, condition: Condition) -> list[HeadFinding]:
        """Heads whose word in a column changed from one table to the other, if the condition holds."""
        self._check_column(condition)
        if isinstance(self.before[condition.column], Tensor):
            raise SizeError(
                f"{condition!r}: column {condition.column!r} holds numbers",
                hint=f"compare the size of the change: '{condition.column}>0.1'",
            )
        changed = [(h, old, new) for h, name, old, new in self.changed if name == condition.column]
        findings = [HeadFinding(repr(condition), h, old, new, _arrow(old, new)) for h, old, new in changed]
        return findings if condition.holds(float(len(changed))) else []

    def _number_findings(self, condition: Condition) -> Iterator[HeadFinding]:
        """Findings of a comparison: heads whose number changed by more than the condition allows."""
        self._check_column(condition)
        if not isinstance(self.before[condition.column], Tensor):
            raise SizeError(
                f"{condition!r}: a change between words has no size",
                hint=f"'{condition.column}:changed' finds heads whose word changed, ':changed>3' more than 3",
            )
        if isinstance(condition.value, str):
            raise SizeError(
                f"{condition!r}: {condition.value!r} is not a number, column {condition.column!r} holds numbers",
                hint=f"compare the size of the change: '{condition.column}>0.1'",
            )
        before, after = (table.numbers(condition.column).tolist() for table in (self.before, self.after))
        for head, old, new in zip(self.before.heads, before, after, strict=True):
            size = _size(condition, old, new)
            if math.isnan(old) != math.isnan(new):
                why = self._missing_reason(condition.column, head)
            elif condition.holds(size):
                share = f" ({number(size)} of it)" if condition.how == "relative" else ""
                why = f"a change of {_signed(new - old)}{share}"
            else:
                continue
            yield HeadFinding(repr(condition), head, old, new, f"{number(old)} → {number(new)}, {why}")

    def _check_column(self, condition: Condition) -> None:
        """Raise unless both compared tables have the column of a condition."""
        column = condition.column
        if column in self.before.columns:
            return
        if column in self.columns_before:
            fault = f"only the first table has column {column!r}"
        elif column in self.columns_after:
            fault = f"only the second table has column {column!r}"
        else:
            fault = f"unknown column {column!r}"
        raise SizeError(f"{condition!r}: {fault}", hint=names_hint(column, self.before.columns))

    # ---- showing ------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """The comparison as JSON-compatible data: largest changes, changed words, heads of one side only."""
        return {
            "heads": len(self.before),
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "columns_before": list(self.columns_before),
            "columns_after": list(self.columns_after),
            "largest": [
                {
                    "column": x.column, "head": x.head, "before": _plain(x.before), "after": _plain(x.after),
                    "change": _plain(x.change), "mean": _plain(x.mean),
                }
                for x in self.largest()
            ],
            "changed": [{"head": h, "column": n, "before": a, "after": b} for h, n, a, b in self.changed],
        }  # fmt: skip

    def lines(self, count: int = 4) -> list[str]:
        """The comparison as lines of text."""
        lines = [f"{plural(len(self.before), 'head')} in both"]
        one_side = {
            "only before": self.only_before,
            "only after": self.only_after,
            "columns only before": self.columns_before,
            "columns only after": self.columns_after,
        }
        lines += [f"{title}: {abbreviate(names, most=12)}" for title, names in one_side.items() if names]
        by_column: dict[str, list[str]] = {}
        for head, name, old, new in self.changed:
            by_column.setdefault(name, []).append(f"{head} {_arrow(old, new)}")
        return lines + [
            f"{name}: {len(changes)} changed: {abbreviate(changes, most=count)}"
            for name, changes in by_column.items()
        ]

    def __repr__(self) -> str:
        numbers = [
            f"{x.column}: largest at {x.head}, {number(x.before)} → {number(x.after)}; mean {number(x.mean, 2)}"
            for x in self.largest()[:12]
        ]
        return "\n".join([*self.lines(), *(numbers or ["no number changed"])])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich import box  # slow to import
        from rich.table import Table
        from rich.text import Text

        for line in self.lines():
            yield Text(line)
        changes = self.largest()
        if not changes:
            yield Text("no number changed")
            return
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        grid.add_column("column")
        for title in ("mean |change|", "largest", "at", "before", "after"):
            grid.add_column(title, justify="right")
        for x in changes[:12]:
            grid.add_row(x.column, number(x.mean, 2), _signed(x.change), x.head, number(x.before), number(x.after))
        yield grid
        if len(changes) > 12:
            yield Text(f"{len(changes) - 12} more columns changed less", style="dim")


def _size(condition: Condition, before: float, after: float) -> float:
    """The size of a compared change as the condition measures it. A relative change from 0 is infinite."""
    if before == after:  # infinite values too, whose difference is NaN
        return 0.0
    change = after - before
    if condition.how == "relative":
        return abs(change) / abs(before) if before else math.inf
    return {"drop": -change, "rise": change}.get(condition.how, abs(change))


def _arrow(before: str, after: str) -> str:
    return f"{before or MISSING} → {after or MISSING}"


def _signed(x: float) -> str:
    return MISSING if math.isnan(x) else f"{'−' if x < 0 else '+'}{number(abs(x))}"


def _plain(x: float | str) -> float | str | None:
    return x if isinstance(x, str) or math.isfinite(x) else None
