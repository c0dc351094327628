"""What changed between two tables of heads: of two checkpoints of a model, or of two models.

>>> import torch
>>> from multihead.table.meaning import Meaning
>>> from multihead.table.table import HeadTable
>>> def table(*masses):
...     return HeadTable(("L0H0", "L0H1"), {"first": torch.tensor(masses)}, {"first": Meaning("share", "")})
>>> change = table(0.25, 0.5).compare(table(0.25, 0.125))
>>> change.difference["first"].tolist()
[0.0, -0.375]
>>> change.findings(["first>0.1"])
[first>0.1 at L0H1: 0.5 → 0.125, a change of −0.375]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from multihead.errors import MultiheadError, SizeError
from multihead.table.condition import Condition
from multihead.table.table import HeadTable, Numbers, some
from multihead.table.view import NOTHING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions


@dataclass(frozen=True, repr=False)
class Finding:
    """A condition that a head meets: from what, to what."""

    condition: str
    head: str
    before: float | str
    after: float | str
    why: str

    def __repr__(self) -> str:
        return f"{self.condition} at {self.head}: {self.why}"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
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
    """largest |change| over the standard deviation between heads before; what it is sorted by"""

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two tables, cut to the heads and columns of both, in the order of the first."""

    before: HeadTable
    after: HeadTable
    only_before: tuple[str, ...]
    """heads that only the first has"""
    only_after: tuple[str, ...]
    columns_before: tuple[str, ...]
    """columns that only the first has"""
    columns_after: tuple[str, ...]

    @property
    def difference(self) -> HeadTable:
        """after − before, of every column of numbers."""
        names = [n for n in self.before.columns if isinstance(self.before[n], Tensor)]
        columns = {n: self.after.numbers(n) - self.before.numbers(n) for n in names}
        reasons = {
            n: {h: self._why(n, h) for h, x in zip(self.before.heads, c.tolist(), strict=True) if math.isnan(x)}
            for n, c in columns.items()
        }
        meaning = {n: self.before.meaning[n] for n in names}
        about = {"before": dict(self.before.about), "after": dict(self.after.about)}
        return HeadTable(self.before.heads, columns, meaning, {n: by for n, by in reasons.items() if by}, about)

    def _why(self, column: str, head: str) -> str:
        sides = [
            (w, t) for w, t in (("before", self.before), ("after", self.after)) if math.isnan(t.row(head)[column])
        ]
        return "; ".join(
            f"not defined {word}: {table.why(column, head) or 'no reason given'}" for word, table in sides
        )

    @property
    def changed(self) -> list[tuple[str, str, str, str]]:
        """(head, column, word before, word after) where a word, such as a head's kind, is another one."""
        words = [n for n in self.before.columns if not isinstance(self.before[n], Tensor)]
        return [
            (head, name, was, now)
            for name in words
            for head, was, now in zip(self.before.heads, self.before[name], self.after[name], strict=True)
            if was != now
        ]

    def largest(self) -> list[Largest]:
        """Of each column the head that changed most; first the columns where it stands out most."""
        found = [
            made for name, c in self.difference.columns.items() if (made := self._largest(name, c)) is not None
        ]
        return sorted(found, key=lambda x: -x.spread)

    def _largest(self, name: str, change: Any) -> Largest | None:
        size = change.abs().nan_to_num(-1.0, posinf=math.inf)
        at = int(size.argmax()) if len(size) else 0
        if not len(size) or float(size[at]) <= 0:
            return None
        was = self.before.numbers(name)
        known = was[was.isfinite()]
        between = float(known.std(correction=0)) if len(known) else 0.0
        return Largest(
            name, self.before.heads[at], float(was[at]), float(self.after.numbers(name)[at]),
            float(change.abs().nanmean()), float(size[at]) / between if between > 0 else math.inf,
        )  # fmt: skip

    # ---- the gate -----------------------------------------------------------------------------

    def findings(self, conditions: Sequence[str | Condition]) -> list[Finding]:
        """Every head that meets one of the conditions: `entropy>0.1`, `importance:drop>10%`, `kind:changed`.

        A number that is there on one side only meets every condition on its column: it cannot be judged.
        """
        found: list[Finding] = []
        for condition in conditions:
            asked = Condition.of(condition) if isinstance(condition, str) else condition
            found += self._words(asked) if asked.how == "changed" else self._numbers(asked)
        return found

    def _words(self, asked: Condition) -> list[Finding]:
        self._known(asked)
        if isinstance(self.before[asked.column], Tensor):
            raise SizeError(
                f"{asked!r}: column {asked.column!r} holds numbers", hint=f"how far it moved: '{asked.column}>0.1'"
            )
        moved = [(h, was, now) for h, name, was, now in self.changed if name == asked.column]
        if not asked.holds(float(len(moved))):
            return []
        return [Finding(repr(asked), h, was, now, f"{was or NOTHING} → {now or NOTHING}") for h, was, now in moved]

    def _numbers(self, asked: Condition) -> list[Finding]:
        self._known(asked)
        if not isinstance(self.before[asked.column], Tensor) or isinstance(asked.value, str):
            raise SizeError(
                f"{asked!r}: a change of words has no size",
                hint=f"'{asked.column}:changed' finds heads with another word, ':changed>3' more than 3 of them",
            )
        return list(self._met(asked, self.before.numbers(asked.column), self.after.numbers(asked.column)))

    def _met(self, asked: Condition, before: Numbers, after: Numbers) -> Iterator[Finding]:
        for i, head in enumerate(self.before.heads):
            was, now = float(before[i]), float(after[i])
            if math.isnan(was) != math.isnan(now):
                gone = self._why(asked.column, head)
                yield Finding(repr(asked), head, was, now, f"{_short(was)} → {_short(now)}, {gone}")
            elif asked.holds(size := _size(asked, was, now)):
                share = f" ({size:.3g} of it)" if asked.how == "relative" else ""
                yield Finding(
                    repr(asked), head, was, now,
                    f"{_short(was)} → {_short(now)}, a change of {_signed(now - was)}{share}",
                )  # fmt: skip

    def _known(self, asked: Condition) -> None:
        if asked.column not in self.before.columns:
            sides = [
                w
                for w, only in (("first", self.columns_before), ("second", self.columns_after))
                if asked.column in only
            ]
            where = (
                f"only the {sides[0]} table has column {asked.column!r}"
                if sides
                else f"there is no column {asked.column!r}"
            )
            raise SizeError(f"{asked!r}: {where}", hint=f"both have {', '.join(self.before.columns)}")

    # ---- showing ------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """For JSON: what changed, and what only one side has."""
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
        """The comparison in words."""
        said = [f"{len(self.before)} heads in both"]
        said += [f"only before: {some(self.only_before, most=12)}"] if self.only_before else []
        said += [f"only after: {some(self.only_after, most=12)}"] if self.only_after else []
        said += [f"columns only before: {some(self.columns_before, most=12)}"] if self.columns_before else []
        said += [f"columns only after: {some(self.columns_after, most=12)}"] if self.columns_after else []
        words: dict[str, list[str]] = {}
        for head, name, was, now in self.changed:
            words.setdefault(name, []).append(f"{head} {was or NOTHING} → {now or NOTHING}")
        return said + [f"{name}: {len(those)} changed: {some(those, most=count)}" for name, those in words.items()]

    def __repr__(self) -> str:
        moved = [
            f"{x.column}: largest at {x.head}, {_short(x.before)} → {_short(x.after)}; mean {x.mean:.2g}"
            for x in self.largest()[:12]
        ]
        return "\n".join([*self.lines(), *(moved or ["no number changed"])])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        for line in self.lines():
            yield Text(line)
        found = self.largest()
        if not found:
            yield Text("no number changed")
            return
        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        drawn.add_column("column")
        for title in ("mean |change|", "largest", "at", "before", "after"):
            drawn.add_column(title, justify="right")
        for x in found[:12]:
            drawn.add_row(x.column, f"{x.mean:.2g}", _signed(x.change), x.head, _short(x.before), _short(x.after))
        yield drawn
        if len(found) > 12:
            yield Text(f"{len(found) - 12} more columns changed less", style="dim")


def compare(before: HeadTable, after: HeadTable) -> Comparison:
    """The heads and columns of both; an error if they have no head in common."""
    mine, theirs = set(before.heads), set(after.heads)
    heads = [h for h in before.heads if h in theirs]
    if not heads:
        raise SizeError(
            f"the tables have no head in common: {some(before.heads)} and {some(after.heads)}",
            hint="compare models whose heads have the same names",
        )
    a, b = ({n: isinstance(c, Tensor) for n, c in table.columns.items()} for table in (before, after))
    other = next((n for n in a if n in b and a[n] != b[n]), None)
    if other is not None:
        raise MultiheadError(
            f"column {other!r} holds numbers in one table and words in the other",
            hint="measure both with the same version of multihead",
        )
    names = [n for n in a if n in b]
    return Comparison(
        before.filter(heads=heads).select(names),
        after.filter(heads=heads).select(names),
        tuple(h for h in before.heads if h not in theirs),
        tuple(h for h in after.heads if h not in mine),
        tuple(n for n in a if n not in b),
        tuple(n for n in b if n not in a),
    )


def _size(asked: Condition, was: float, now: float) -> float:
    """How far a number moved, as the condition counts it. From 0, any relative change is infinite."""
    if math.isnan(was) or was == now:
        return math.nan if math.isnan(was) else 0.0
    step = now - was
    if asked.how == "relative":
        return abs(step) / abs(was) if was else math.inf
    return {"drop": -step, "rise": step}.get(asked.how, abs(step))


def _short(x: float) -> str:
    return NOTHING if math.isnan(x) else f"{x:.3g}"


def _signed(x: float) -> str:
    return NOTHING if math.isnan(x) else f"{x:+.3g}".replace("-", "−")


def _plain(x: float | str) -> float | str | None:
    return x if isinstance(x, str) or math.isfinite(x) else None
