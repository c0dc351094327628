"""The data of a head table: a row per head, columns of numbers or words, their meanings, and how to read them.

>>> import torch
>>> from multihead.table.rows_and_columns import TableData
>>> from multihead.table.column_info import ColumnInfo
>>> data = TableData(("L0H0", "L0H1"), {"self": torch.tensor([0.25, 0.5])}, {"self": ColumnInfo("share", "")})
>>> data.row("0.1")
{'name': 'L0H1', 'layer': 0, 'head': 1, 'self': 0.5}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import names_hint
from multihead.errors import SizeError, TypeMismatchError
from multihead.table.column_info import ColumnInfo
from multihead.table.head_names import parse

Numbers = Float[Tensor, " row"]
Column = Numbers | tuple[str, ...]
"""fp64 numbers, NaN where undefined; or words, "" where missing."""

PLACE = ("name", "stack", "layer", "head")
"""Fields that locate a row: `decoder.L3H7` is head 7 of layer 3 of the stack `decoder`."""


@dataclass(frozen=True, repr=False, eq=False)
class TableData:
    """Numbers and words for every head. `HeadTable` adds choosing, joining, comparison, display and files."""

    heads: tuple[str, ...]
    """L3H7, or decoder.L3H7"""
    columns: Mapping[str, Column]
    meaning: Mapping[str, ColumnInfo]
    reasons: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """column → head → why the value is undefined"""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """model, tokens, documents, versions; JSON-compatible data"""

    def __post_init__(self) -> None:
        if len(set(self.heads)) != len(self.heads):
            twice = next(h for h in self.heads if self.heads.count(h) > 1)
            raise SizeError(f"head {twice!r} is in the table twice", hint="each head has one row")
        for name, column in self.columns.items():
            if not _is_column(column):
                raise TypeMismatchError(
                    f"column {name!r} must hold numbers or words, got {_describe(column)}",
                    hint="pass a 1-D tensor with a number per head, or a tuple of strings",
                )
            if len(column) != len(self.heads):
                raise SizeError(
                    f"column {name!r} must have a row for each of {len(self.heads)} heads, got {len(column)}",
                    hint="use NaN or '' for heads without a value",
                )
            if name in PLACE:
                raise SizeError(
                    f"a column cannot be named {name!r}",
                    hint=f"{', '.join(PLACE)} are reserved for the head's location",
                )
            if name not in self.meaning:
                raise SizeError(
                    f"column {name!r} has no meaning", hint=f"pass meaning={{{name!r}: ColumnInfo(unit, text)}}"
                )
        columns = {n: c.detach().double().cpu() if isinstance(c, Tensor) else c for n, c in self.columns.items()}
        object.__setattr__(self, "columns", columns)

    # ---- reading ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._row(index) for index in range(len(self)))

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> Any:
        """A column: fp64 numbers, or a tuple of words."""
        if column not in self.columns:
            raise SizeError(f"unknown column {column!r}", hint=names_hint(column, self.columns))
        return self.columns[column]

    def numbers(self, column: str) -> Numbers:
        """A column of numbers; raises `TypeMismatchError` for a column of words."""
        values = self[column]
        if not isinstance(values, Tensor):
            raise TypeMismatchError(f"column {column!r} holds words, not numbers", hint="choose a numeric column")
        return values

    def row(self, head: str) -> dict[str, Any]:
        """{name, layer, head, column: number or word} of one head; `3.7` means L3H7."""
        return self._row(self._index(head))

    def why(self, column: str, head: str) -> str:
        """Why a value is undefined; "" if it is defined or the reason is unknown."""
        _ = self[column]  # an unknown column is an error
        return self.reasons.get(column, {}).get(self.heads[self._index(head)], "")

    def _row(self, index: int) -> dict[str, Any]:
        return self._location(index) | {name: cell(values, index) for name, values in self.columns.items()}

    def _location(self, index: int) -> dict[str, Any]:
        stack, layer, head = parse(self.heads[index])
        return {"name": self.heads[index], **({"stack": stack} if stack else {}), "layer": layer, "head": head}

    def _index(self, head: str) -> int:
        """The row of a head."""
        if head in self.heads:
            return self.heads.index(head)
        location = parse(head)
        matches = [i for i, name in enumerate(self.heads) if _matches(location, parse(name))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise SizeError(
                f"{head!r} is in {len(matches)} stacks: {', '.join(self.heads[i] for i in matches)}",
                hint=f"name the stack: {self.heads[matches[0]]!r}",
            )
        hint = f"heads are {self.heads[0]} to {self.heads[-1]}" if self.heads else "the table is empty"
        raise SizeError(f"unknown head {head!r}", hint=hint)

    def __eq__(self, other: object) -> bool:
        """Whether heads, columns, meanings, reasons and about are identical to the last bit; NaN equals NaN."""
        if not isinstance(other, TableData):
            return NotImplemented
        same = self.heads == other.heads and list(self.columns) == list(other.columns)
        same = same and all(_equal(c, other.columns[n]) for n, c in self.columns.items())
        metadata = (other.meaning, other.reasons, other.about)
        return same and (dict(self.meaning), dict(self.reasons), dict(self.about)) == tuple(map(dict, metadata))

    __hash__ = None  # type: ignore[assignment]


def cell(column: Column, row: int) -> float | str:
    """The number or word in a row."""
    return column[row] if isinstance(column, tuple) else float(column[row])


def abbreviate(names: Sequence[str], *, but: set[str] | None = None, most: int = 4) -> str:
    """The names of rows or columns shortened for a message: `L0H1, L0H2, ... (12)`."""
    chosen = [n for n in names if but is None or n not in but]
    count = f", ... ({len(chosen)})" if len(chosen) > most else ""
    return ", ".join(chosen[:most]) + count if chosen else "none"


def _is_column(column: object) -> bool:
    if isinstance(column, Tensor):
        return column.ndim == 1
    return isinstance(column, tuple) and all(isinstance(x, str) for x in cast(tuple[object, ...], column))


def _describe(column: object) -> str:
    return f"a {type(column).__name__}" + (f" of shape {tuple(column.shape)}" if isinstance(column, Tensor) else "")


def _matches(wanted: tuple[str | None, int, int], head: tuple[str | None, int, int]) -> bool:
    return wanted[1:] == head[1:] and wanted[0] in (None, head[0])


def _equal(a: Column, b: Column) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        return a == b if isinstance(a, tuple) and isinstance(b, tuple) else False
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
