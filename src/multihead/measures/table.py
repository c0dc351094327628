"""HeadTable: a row per head, a column per measure, each with its unit and meaning.

>>> import torch
>>> from multihead.measures.meaning import Meaning
>>> from multihead.measures.table import HeadTable
>>> mass = HeadTable(("L0H0", "L0H1"), {"previous": torch.tensor([0.25, 0.75])}, {"previous": Meaning("share", "")})
>>> kind = HeadTable(("L0H0", "L0H1"), {"kind": ("broad", "previous")}, {"kind": Meaning("", "what it looks at")})
>>> mass.join(kind).row("L0H1")
{'head': 'L0H1', 'previous': 0.75, 'kind': 'previous'}
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import MultiheadError, SizeError
from multihead.measures.meaning import Meaning, meanings
from multihead.model.capture import Heads

Numbers = Float[Tensor, " row"]
Column = Numbers | tuple[str, ...]
"""fp64 numbers, NaN for "not defined"; or words, "" for none."""

SHOWN = ("entropy", "effective_keys", "max_weight", "distance", "first", "self", "previous", "next", "special")
"""Columns of the printed table."""


@dataclass(frozen=True, repr=False)
class HeadTable:
    """Numbers and words of every head: `table["entropy"]`, `table.row("L3H7")`, `table.top("previous")`."""

    heads: tuple[str, ...]
    """L3H7, or decoder.L3H7"""
    columns: Mapping[str, Column]
    meaning: Mapping[str, Meaning]
    reasons: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """column → head → why there is no number"""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """what was measured: model, tokens, documents, versions; plain JSON data"""

    def __post_init__(self) -> None:
        if len(set(self.heads)) != len(self.heads):
            twice = next(h for h in self.heads if self.heads.count(h) > 1)
            raise SizeError(f"head {twice!r} is in the table twice", hint="a row per head")
        for name, column in self.columns.items():
            if len(column) != len(self.heads):
                raise SizeError(
                    f"column {name!r} has {len(column)} rows, there are {len(self.heads)} heads",
                    hint="a number or a word for every head, NaN or '' where there is none",
                )
            if name not in self.meaning:
                raise SizeError(f"column {name!r} has no meaning", hint="meaning={name: Meaning(unit, text)}")
        wide = {n: c.detach().double().cpu() if isinstance(c, Tensor) else c for n, c in self.columns.items()}
        object.__setattr__(self, "columns", wide)

    @staticmethod
    def of(heads: Heads) -> HeadTable:
        """The means of all statistics of a capture."""
        if heads.options is None:
            raise MultiheadError(
                "the capture took no statistics, there is nothing to put into a table",
                hint="mh.capture(model) takes them, statistics=None does not",
            )
        meaning, sites = meanings(heads.options), heads.sites
        columns = {name: torch.cat([heads.statistics(s).mean(name) for s in sites]) for name in meaning}
        return HeadTable(tuple(head.name for head in heads), columns, meaning)

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.row(name) for name in self.heads)

    def __getitem__(self, column: str) -> Any:
        """The column: fp64 numbers, or a tuple of words."""
        if column not in self.columns:
            raise SizeError(f"there is no column {column!r}", hint=f"choose one of {', '.join(self.columns)}")
        return self.columns[column]

    def row(self, head: str) -> dict[str, Any]:
        """{column: number or word} of one head."""
        if head not in self.heads:
            raise SizeError(f"there is no head {head!r}", hint=f"heads are {self.heads[0]} to {self.heads[-1]}")
        at = self.heads.index(head)
        return {"head": head} | {name: _cell(values, at) for name, values in self.columns.items()}

    def top(self, column: str, count: int = 10) -> list[tuple[str, float]]:
        """The heads with the largest numbers in a column; those without a number are left out."""
        values = cast(Tensor, self[column])
        order = values.nan_to_num(-torch.inf).argsort(descending=True, stable=True).tolist()
        return [(self.heads[i], float(values[i])) for i in order if not values[i].isnan()][:count]

    def join(self, other: HeadTable) -> HeadTable:
        """The columns of both; the heads must be the same, in any order."""
        if set(self.heads) != set(other.heads):
            mine, theirs = ([h for h in a if h not in set(b)] for a, b in _both_ways(self.heads, other.heads))
            raise SizeError(
                f"tables of other heads do not join: only in the first {_some(mine)}; "
                f"only in the second {_some(theirs)}",
                hint="measure both on the same model, or compare them: first.compare(second)",
            )
        twice = [name for name in self.columns if name in other.columns]
        if twice:
            raise SizeError(
                f"column {twice[0]!r} is in both tables", hint="leave it out of one: table.select([...])"
            )
        there = {head: at for at, head in enumerate(other.heads)}
        order = [there[head] for head in self.heads]
        theirs = {name: _taken(column, order) for name, column in other.columns.items()}
        return HeadTable(
            self.heads,
            {**self.columns, **theirs},
            {**self.meaning, **other.meaning},
            {**self.reasons, **other.reasons},
            {**self.about, **other.about},
        )

    def text(self, columns: Sequence[str] = SHOWN) -> str:
        """The table for a terminal: heads down, the named columns across."""
        names = [c for c in columns if c in self.columns]
        lines = [["head", *names]]
        lines += [[h, *(_shown(self.columns[n], i) for n in names)] for i, h in enumerate(self.heads)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join("  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines)

    def __repr__(self) -> str:
        return self.text()


def _cell(column: Column, at: int) -> float | str:
    return column[at] if isinstance(column, tuple) else float(column[at])


def _shown(column: Column, at: int) -> str:
    cell = _cell(column, at)
    return cell if isinstance(cell, str) else "–" if math.isnan(cell) else f"{cell:.3g}"


def _taken(column: Column, rows: Sequence[int]) -> Column:
    return tuple(column[i] for i in rows) if isinstance(column, tuple) else column[list(rows)]


def _both_ways(a: Sequence[str], b: Sequence[str]) -> tuple[tuple[Sequence[str], Sequence[str]], ...]:
    return (a, b), (b, a)


def _some(names: Sequence[str]) -> str:
    """A few names for an error: `L0H1, L0H2, ... (12)`."""
    return "none" if not names else ", ".join(names[:4]) + (f", ... ({len(names)})" if len(names) > 4 else "")
