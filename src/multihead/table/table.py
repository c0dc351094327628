"""HeadTable: a row per head, a column per measure, each with its unit and meaning.

>>> import torch
>>> from multihead.table.meaning import Meaning
>>> from multihead.table.table import HeadTable
>>> heads = ("L0H0", "L0H1", "L0H2")
>>> mass = HeadTable(heads, {"previous": torch.tensor([0.25, 0.75, 0.5])}, {"previous": Meaning("share", "")})
>>> kind = HeadTable(heads, {"kind": ("broad", "previous", "broad")}, {"kind": Meaning("", "what it looks at")})
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
"""fp64 numbers, NaN for "not defined"; or words, "" for none."""

PLACE = ("name", "stack", "layer", "head")
"""What every row has beside its columns: `decoder.L3H7` is head 7 of layer 3 of the stack `decoder`."""


@dataclass(frozen=True, repr=False, eq=False)
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
            if not _holds(column):
                raise TypeMismatchError(
                    f"column {name!r} is {_said(column)}, and holds neither numbers nor words",
                    hint="a tensor of a number for every head, or a tuple of strings",
                )
            if len(column) != len(self.heads):
                raise SizeError(
                    f"column {name!r} has {len(column)} rows, there are {len(self.heads)} heads",
                    hint="a number or a word for every head, NaN or '' where there is none",
                )
            if name in PLACE:
                raise SizeError(
                    f"a column cannot be named {name!r}", hint=f"{', '.join(PLACE)} say where a head is"
                )
            if name not in self.meaning:
                raise SizeError(
                    f"column {name!r} has no meaning", hint=f"meaning={{{name!r}: Meaning(unit, text)}}"
                )
        wide = {n: c.detach().double().cpu() if isinstance(c, Tensor) else c for n, c in self.columns.items()}
        object.__setattr__(self, "columns", wide)

    # ---- reading ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._row(at) for at in range(len(self)))

    def __contains__(self, column: object) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> Any:
        """The column: fp64 numbers, or a tuple of words."""
        if column not in self.columns:
            raise SizeError(f"there is no column {column!r}", hint=f"choose one of {', '.join(self.columns)}")
        return self.columns[column]

    def numbers(self, column: str) -> Numbers:
        """A column that holds numbers."""
        found = self[column]
        if not isinstance(found, Tensor):
            raise TypeMismatchError(
                f"column {column!r} holds words, not numbers", hint="choose a column of numbers"
            )
        return found

    def row(self, head: str) -> dict[str, Any]:
        """{name, layer, head, column: number or word} of one head; `3.7` means L3H7."""
        return self._row(self._at(head))

    def why(self, column: str, head: str) -> str:
        """Why there is no number, "" where there is one or no reason is known."""
        _ = self[column]  # an unknown column is an error
        return self.reasons.get(column, {}).get(self.heads[self._at(head)], "")

    def _row(self, at: int) -> dict[str, Any]:
        return self._place(at) | {name: cell(values, at) for name, values in self.columns.items()}

    def _place(self, at: int) -> dict[str, Any]:
        stack, layer, head = parse(self.heads[at])
        return {"name": self.heads[at], **({"stack": stack} if stack else {}), "layer": layer, "head": head}

    def _at(self, head: str) -> int:
        if head in self.heads:
            return self.heads.index(head)
        wanted = parse(head)
        found = [at for at, name in enumerate(self.heads) if _means(wanted, parse(name))]
        if len(found) == 1:
            return found[0]
        if found:
            raise SizeError(
                f"{head!r} is in {len(found)} stacks: {', '.join(self.heads[i] for i in found)}",
                hint=f"say which: {self.heads[found[0]]!r}",
            )
        known = f"heads are {self.heads[0]} to {self.heads[-1]}" if self.heads else "the table is empty"
        raise SizeError(f"there is no head {head!r}", hint=known)

    def __eq__(self, other: object) -> bool:
        """Whether everything is the same, to the last bit; NaN equals NaN."""
        if not isinstance(other, HeadTable):
            return NotImplemented
        same = self.heads == other.heads and list(self.columns) == list(other.columns)
        same = same and all(_alike(c, other.columns[n]) for n, c in self.columns.items())
        rest = (other.meaning, other.reasons, other.about)
        return same and (dict(self.meaning), dict(self.reasons), dict(self.about)) == tuple(map(dict, rest))

    __hash__ = None  # type: ignore[assignment]

    # ---- choosing -----------------------------------------------------------------------------

    def select(self, columns: Sequence[str]) -> HeadTable:
        """Only these columns, in this order."""
        chosen = {name: self[name] for name in columns}
        return replace(self, columns=chosen, meaning={n: self.meaning[n] for n in chosen}, reasons=self._of(chosen))

    def sort(self, column: str, *, descending: bool = False) -> HeadTable:
        """The rows by a column, smallest first; those without a number or word come last."""
        found = self[column]
        cells: list[Any] = list(found) if isinstance(found, tuple) else found.tolist()
        having = [i for i, x in enumerate(cells) if x == x and x != ""]  # NaN has no place in an order
        order = sorted(having, key=lambda i: cells[i], reverse=descending)
        return self._rows(order + sorted(set(range(len(self))) - set(having)))

    def top(self, column: str, count: int = 10) -> HeadTable:
        """The heads with the largest numbers in a column; those without a number are left out."""
        if count < 1:
            raise SizeError(f"the top {count} heads are none", hint="count is at least 1")
        having = len(self) - int(self.numbers(column).isnan().sum())
        return self.sort(column, descending=True)._rows(range(min(count, having)))

    def filter(self, *conditions: str | Callable[[dict[str, Any]], bool], heads: Sequence[str] = ()) -> HeadTable:
        """The heads that meet every condition: `filter("entropy<1", "kind=previous", lambda row: ...)`.

        `layer` and `head` are there too; `heads` keeps the named ones. A head without a number meets no condition.
        """
        from multihead.table.condition import Condition

        kept = [self._at(name) for name in heads] if heads else list(range(len(self)))
        for condition in conditions:
            if isinstance(condition, str):
                asked = Condition.of(condition)
                if asked.column in ("layer", "head") and asked.column not in self.columns:
                    kept = [i for i in kept if asked.holds(float(self._place(i)[asked.column]))]
                    continue
                asked.check(self)
                kept = [i for i in kept if asked.holds(cell(self[asked.column], i))]
            else:
                kept = [i for i in kept if condition(self._row(i))]
        return self._rows(kept)

    def _rows(self, rows: Sequence[int]) -> HeadTable:
        heads = tuple(self.heads[i] for i in rows)
        reasons = {c: {h: why for h, why in by.items() if h in set(heads)} for c, by in self.reasons.items()}
        return replace(
            self,
            heads=heads,
            columns={name: taken(column, rows) for name, column in self.columns.items()},
            reasons={c: by for c, by in reasons.items() if by},
        )

    def _of(self, columns: Mapping[str, Column]) -> dict[str, Mapping[str, str]]:
        return {name: by for name, by in self.reasons.items() if name in columns}

    # ---- together -----------------------------------------------------------------------------

    def join(self, other: HeadTable) -> HeadTable:
        """The columns of both tables, for the same heads in any order.

        In `about`, lists such as the notes are concatenated without repeats. Where a key has two different values,
        the first table's stays, and the second's is listed under `joined`.
        """
        if set(self.heads) != set(other.heads):
            mine, theirs = set(self.heads), set(other.heads)
            raise SizeError(
                f"tables of other heads do not join: only in the first {some([*self.heads], but=theirs)}; "
                f"only in the second {some([*other.heads], but=mine)}",
                hint="measure both on the same model, or compare them: first.compare(second)",
            )
        twice = next((name for name in self.columns if name in other.columns), None)
        if twice is not None:
            raise SizeError(
                f"column {twice!r} is in both tables", hint="leave it out of one: table.select(columns)"
            )
        there = {head: at for at, head in enumerate(other.heads)}
        theirs = other._rows([there[head] for head in self.heads])
        return HeadTable(
            self.heads,
            {**self.columns, **theirs.columns},
            {**self.meaning, **other.meaning},
            {**self.reasons, **other.reasons},
            _joined_about(self.about, other.about),
        )

    def compare(self, other: HeadTable) -> Comparison:
        """What changed from this table to another: of two checkpoints, or of two models."""
        from multihead.table.compare import compare

        return compare(self, other)

    # ---- showing ------------------------------------------------------------------------------

    def text(self, columns: Sequence[str] | None = None) -> str:
        """The table for a terminal: heads down, the named columns across, else those that say most."""
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

    # ---- keeping ------------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A DataFrame: a row per head, indexed by its name, with layer and head beside the columns."""
        from multihead.table.files import to_pandas

        return to_pandas(self)

    def to_json(self) -> str:
        """The table as JSON text, exact: a row per head, null where there is no number."""
        from multihead.table.files import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> HeadTable:
        """The table that `to_json` wrote."""
        from multihead.table.files import from_json

        return from_json(text)

    def save(self, path: str | Path) -> Path:
        """Write a .json or .parquet file, at once or not at all; into a folder as table.json. Gives the file."""
        from multihead.table.files import save

        return save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> HeadTable:
        """The table of a .json or .parquet file, or of a folder that `multihead measure` wrote."""
        from multihead.table.files import load

        return load(Path(path))


def cell(column: Column, at: int) -> float | str:
    """The number or word of a row."""
    return column[at] if isinstance(column, tuple) else float(column[at])


def taken(column: Column, rows: Sequence[int]) -> Float[Tensor, " some_row"] | tuple[str, ...]:
    """Some rows of a column."""
    return tuple(column[i] for i in rows) if isinstance(column, tuple) else column[list(rows)]


def some(names: Sequence[str], *, but: set[str] | None = None, most: int = 4) -> str:
    """A few names for an error: `L0H1, L0H2, ... (12)`."""
    left = [n for n in names if but is None or n not in but]
    return "none" if not left else ", ".join(left[:most]) + (f", ... ({len(left)})" if len(left) > most else "")


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


def _holds(column: object) -> bool:
    if isinstance(column, Tensor):
        return column.ndim == 1
    return isinstance(column, tuple) and all(isinstance(x, str) for x in cast(tuple[object, ...], column))


def _said(column: object) -> str:
    return f"a {type(column).__name__}" + (f" of shape {tuple(column.shape)}" if isinstance(column, Tensor) else "")


def _means(wanted: tuple[str | None, int, int], head: tuple[str | None, int, int]) -> bool:
    return wanted[1:] == head[1:] and wanted[0] in (None, head[0])


def _alike(a: Column, b: Column) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        return a == b if isinstance(a, tuple) and isinstance(b, tuple) else False
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
