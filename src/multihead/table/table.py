"""HeadTable: a row per head, a column per measure, each with its unit and meaning.

>>> import torch
>>> from multihead.table.meaning import Meaning
>>> from multihead.table.table import HeadTable
>>> heads = ("L0H0", "L0H1", "L0H2")
>>> mass = HeadTable(heads, {"previous": torch.tensor([0.25, 0.75, 0.5])}, {"previous": Meaning("share", "")})
>>> kind = HeadTable(heads, {"kind": ("broad", "previous", "broad")}, {"kind": Meaning("", "attention pattern")})
>>> table = mass.join(kind)
>>> table.row("L0H1")
{'name': 'L0H1', 'layer': 0, 'head': 1, 'previous': 0.75, 'kind': 'previous'}
>>> table.filter("kind=broad").top("previous", 1)
head   kind  previous
L0H2  broad       0.5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jaxtyping import Float
from torch import Tensor

from multihead.errors import SizeError, TypeMismatchError
from multihead.table.head_names import parse
from multihead.table.meaning import Meaning

if TYPE_CHECKING:
    from multihead.table.compare import Comparison

Numbers = Float[Tensor, " row"]
Column = Numbers | tuple[str, ...]
"""fp64 numbers, NaN where undefined; or words, "" where missing."""

PLACE = ("name", "stack", "layer", "head")
"""Fields that locate a row: `decoder.L3H7` is head 7 of layer 3 of the stack `decoder`."""


@dataclass(frozen=True, repr=False, eq=False)
class HeadTable:
    """Numbers and words for every head: `table["entropy"]`, `table.row("L3H7")`, `table.top("previous")`."""

    heads: tuple[str, ...]
    """L3H7, or decoder.L3H7"""
    columns: Mapping[str, Column]
    meaning: Mapping[str, Meaning]
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
                    f"column {name!r} has no meaning", hint=f"pass meaning={{{name!r}: Meaning(unit, text)}}"
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
            raise SizeError(f"there is no column {column!r}", hint=f"choose one of {', '.join(self.columns)}")
        return self.columns[column]

    def numbers(self, column: str) -> Numbers:
        """A numeric column; raises `TypeMismatchError` for a column of words."""
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
        raise SizeError(f"there is no head {head!r}", hint=hint)

    def __eq__(self, other: object) -> bool:
        """Whether heads, columns, meanings, reasons and about are identical to the last bit; NaN equals NaN."""
        if not isinstance(other, HeadTable):
            return NotImplemented
        same = self.heads == other.heads and list(self.columns) == list(other.columns)
        same = same and all(_equal(c, other.columns[n]) for n, c in self.columns.items())
        metadata = (other.meaning, other.reasons, other.about)
        return same and (dict(self.meaning), dict(self.reasons), dict(self.about)) == tuple(map(dict, metadata))

    __hash__ = None  # type: ignore[assignment]

    # ---- choosing -----------------------------------------------------------------------------

    def select(self, columns: Sequence[str]) -> HeadTable:
        """The table with only these columns, in this order."""
        chosen = {name: self[name] for name in columns}
        return replace(
            self, columns=chosen, meaning={n: self.meaning[n] for n in chosen}, reasons=self._reasons_of(chosen)
        )

    def sort(self, column: str, *, descending: bool = False) -> HeadTable:
        """The rows sorted by a column, smallest first; rows without a value come last."""
        values = self[column]
        cells: list[Any] = list(values) if isinstance(values, tuple) else values.tolist()
        defined = [i for i, x in enumerate(cells) if x == x and x != ""]  # NaN cannot be ordered
        order = sorted(defined, key=lambda i: cells[i], reverse=descending)
        return self._rows(order + sorted(set(range(len(self))) - set(defined)))

    def top(self, column: str, count: int = 10) -> HeadTable:
        """The `count` heads with the largest values in a column; heads without a value are excluded."""
        if count < 1:
            raise SizeError(f"count must be at least 1, got {count}")
        defined = len(self) - int(self.numbers(column).isnan().sum())
        return self.sort(column, descending=True)._rows(range(min(count, defined)))

    def filter(self, *conditions: str | Callable[[dict[str, Any]], bool], heads: Sequence[str] = ()) -> HeadTable:
        """The heads that meet every condition: `filter("entropy<1", "kind=previous", lambda row: ...)`.

        Conditions may also use `layer` and `head`; `heads` keeps only the named heads. A head without a value meets
        no condition.
        """
        from multihead.table.condition import Condition

        rows = [self._index(name) for name in heads] if heads else list(range(len(self)))
        for condition in conditions:
            if isinstance(condition, str):
                parsed = Condition.of(condition)
                if parsed.column in ("layer", "head") and parsed.column not in self.columns:
                    rows = [i for i in rows if parsed.holds(float(self._location(i)[parsed.column]))]
                    continue
                parsed.check(self)
                rows = [i for i in rows if parsed.holds(cell(self[parsed.column], i))]
            else:
                rows = [i for i in rows if condition(self._row(i))]
        return self._rows(rows)

    def _rows(self, rows: Sequence[int]) -> HeadTable:
        heads = tuple(self.heads[i] for i in rows)
        reasons = {c: {h: why for h, why in by.items() if h in set(heads)} for c, by in self.reasons.items()}
        return replace(
            self,
            heads=heads,
            columns={name: take_rows(column, rows) for name, column in self.columns.items()},
            reasons={c: by for c, by in reasons.items() if by},
        )

    def _reasons_of(self, columns: Mapping[str, Column]) -> dict[str, Mapping[str, str]]:
        return {name: by for name, by in self.reasons.items() if name in columns}

    # ---- combining ----------------------------------------------------------------------------

    def join(self, other: HeadTable) -> HeadTable:
        """The columns of both tables, for the same heads in any order.

        In `about`, lists such as the notes are concatenated without repeats. Where a key has two different values,
        the first table's stays, and the second's is listed under `joined`.
        """
        if set(self.heads) != set(other.heads):
            raise SizeError(
                "joined tables must have the same heads: "
                f"only in the first {abbreviate(self.heads, but=set(other.heads))}; "
                f"only in the second {abbreviate(other.heads, but=set(self.heads))}",
                hint="measure both on the same model, or compare them: first.compare(second)",
            )
        twice = next((name for name in self.columns if name in other.columns), None)
        if twice is not None:
            raise SizeError(f"column {twice!r} is in both tables", hint="drop it from one: table.select(columns)")
        index_of = {head: index for index, head in enumerate(other.heads)}
        theirs = other._rows([index_of[head] for head in self.heads])
        return HeadTable(
            self.heads,
            {**self.columns, **theirs.columns},
            {**self.meaning, **other.meaning},
            {**self.reasons, **other.reasons},
            _joined_about(self.about, other.about),
        )

    def compare(self, other: HeadTable) -> Comparison:
        """The changes from this table to `other`, for two checkpoints or two models."""
        from multihead.table.compare import compare

        return compare(self, other)

    # ---- display ------------------------------------------------------------------------------

    def text(self, columns: Sequence[str] | None = None) -> str:
        """Plain text: a line per head, with the named columns or, by default, the most informative ones."""
        from multihead.table.view import text

        return text(self, columns)

    def __repr__(self) -> str:
        return self.text()

    def __rich__(self) -> Any:
        from multihead.table.view import RichView

        return RichView(self)

    def _repr_html_(self) -> str:
        from multihead.table.view import html

        return html(self)

    # ---- files --------------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A DataFrame: a row per head, indexed by name; layer and head are columns too."""
        from multihead.table.files import to_pandas

        return to_pandas(self)

    def to_json(self) -> str:
        """The table as exact JSON text: a row per head, null where a value is undefined."""
        from multihead.table.files import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> HeadTable:
        """Read a table from the output of `to_json`."""
        from multihead.table.files import from_json

        return from_json(text)

    def save(self, path: str | Path) -> Path:
        """Write a .json or .parquet file atomically and return its path; in a folder, the file is table.json."""
        from multihead.table.files import save

        return save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> HeadTable:
        """Read a table from a .json or .parquet file, or from a folder written by `multihead measure`."""
        from multihead.table.files import load

        return load(Path(path))


def cell(column: Column, row: int) -> float | str:
    """The number or word in a row."""
    return column[row] if isinstance(column, tuple) else float(column[row])


def take_rows(column: Column, rows: Sequence[int]) -> Float[Tensor, " some_row"] | tuple[str, ...]:
    """The given rows of a column."""
    return tuple(column[i] for i in rows) if isinstance(column, tuple) else column[list(rows)]


def abbreviate(names: Sequence[str], *, but: set[str] | None = None, most: int = 4) -> str:
    """A list of names shortened for a message: `L0H1, L0H2, ... (12)`."""
    chosen = [n for n in names if but is None or n not in but]
    count = f", ... ({len(chosen)})" if len(chosen) > most else ""
    return ", ".join(chosen[:most]) + count if chosen else "none"


def _joined_about(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    about, different = dict(first), dict[str, Any]()
    for name, value in second.items():
        mine = about.setdefault(name, value)
        if isinstance(mine, list) and isinstance(value, list):
            if name != "joined":
                about[name] = mine + [x for x in cast(list[Any], value) if x not in mine]
        elif mine != value:
            different[name] = value
    joined = [*first.get("joined", []), *([different] if different else []), *second.get("joined", [])]
    return {**about, "joined": joined} if joined else about


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
