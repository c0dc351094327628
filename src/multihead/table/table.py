"""HeadTable: a row per head, a column per measure, each with its unit and meaning.

>>> import torch
>>> from multihead.table.column_info import ColumnInfo
>>> from multihead.table.table import HeadTable
>>> heads = ("L0H0", "L0H1", "L0H2")
>>> mass = HeadTable(heads, {"previous": torch.tensor([0.25, 0.75, 0.5])}, {"previous": ColumnInfo("share", "")})
>>> kind = HeadTable(heads, {"kind": ("broad", "previous", "broad")}, {"kind": ColumnInfo("", "attention pattern")})
>>> table = mass.join(kind)
>>> table.row("L0H1")
{'name': 'L0H1', 'layer': 0, 'head': 1, 'previous': 0.75, 'kind': 'previous'}
>>> table.filter("kind=broad").top("previous", 1)
head   kind  previous
L0H2  broad       0.5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import check_count, check_instance, check_list, check_path, describe
from multihead.errors import SizeError, TypeMismatchError
from multihead.table import files, view
from multihead.table.compare import TableComparison, common
from multihead.table.condition import Condition
from multihead.table.rows_and_columns import Column, TableData, abbreviate, cell


class HeadTable(TableData):
    """Numbers and words for every head: `table["entropy"]`, `table.row("L3H7")`, `table.top("previous")`.

    `mh.measure` returns one; `HeadTable.load` reads one from a file.

    Args:
        heads: names of the heads, "L3H7" or "decoder.L3H7".
        columns: name → fp64 tensor with a value per head (NaN where undefined), or a tuple of words.
        meaning: name → `ColumnInfo(unit, text)`, for every column.
        reasons: column → head → why the value is undefined.
        about: the model, documents and versions, as JSON-compatible data.

    Raises:
        SizeError: if a column has no meaning, a reserved name, or not a row per head.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> table = mh.measure(model, tokenizer.sample_texts()[:4], tokenizer=tokenizer)
    >>> len(table), table["entropy"].shape
    (12, torch.Size([12]))
    >>> table.filter("layer=0").top("self", 1).heads
    ('L0H0',)
    """

    # ---- choosing -----------------------------------------------------------------------------

    def select(self, columns: Sequence[str]) -> HeadTable:
        """The HeadTable with only these columns, in this order."""
        check_list("columns", columns, "names", hint='columns=["entropy", "previous"]')
        return replace(
            self,
            columns={name: self[name] for name in columns},
            meaning={name: self.meaning[name] for name in columns},
            reasons={name: by for name, by in self.reasons.items() if name in columns},
        )

    def sort(self, column: str, *, descending: bool = False) -> HeadTable:
        """The HeadTable with rows sorted by a column, smallest first; rows without a value come last."""
        values = self[column]
        cells: list[Any] = list(values) if isinstance(values, tuple) else values.tolist()
        defined = [i for i, x in enumerate(cells) if x == x and x != ""]  # NaN cannot be ordered
        order = sorted(defined, key=lambda i: cells[i], reverse=descending)
        return self._rows(order + sorted(set(range(len(self))) - set(defined)))

    def top(self, column: str, count: int = 10) -> HeadTable:
        """The `count` heads with the largest values in a column; heads without a value are excluded."""
        check_count("count", count)
        defined = len(self) - int(self.numbers(column).isnan().sum())
        return self.sort(column, descending=True)._rows(range(min(count, defined)))

    def filter(self, *conditions: str | Callable[[dict[str, Any]], bool], heads: Sequence[str] = ()) -> HeadTable:
        """The heads that meet every condition: `filter("entropy<1", "kind=previous", lambda row: ...)`.

        Conditions may also use `layer` and `head`; `heads` keeps only the named heads. A head without a value meets
        no condition.
        """
        check_list("heads", heads, "names", hint='heads=["L3H7"]')
        rows = [self._index(name) for name in heads] if heads else list(range(len(self)))
        for condition in conditions:
            if isinstance(condition, str):
                parsed = Condition.of(condition)
                if parsed.column in ("layer", "head"):
                    rows = [i for i in rows if parsed.holds(float(self._location(i)[parsed.column]))]
                    continue
                values = self[parsed.column]
                parsed.check(values)
                rows = [i for i in rows if parsed.holds(cell(values, i))]
            elif callable(condition):
                rows = [i for i in rows if condition(self._row(i))]
            else:
                raise TypeMismatchError(
                    f"a condition must be a text or a function of a row, got {describe(condition)}",
                    hint="'entropy<1', or lambda row: row['entropy'] < 1",
                )
        return self._rows(rows)

    def _rows(self, rows: Sequence[int]) -> HeadTable:
        """The HeadTable of some rows."""
        heads = tuple(self.heads[i] for i in rows)
        reasons = {c: {h: why for h, why in by.items() if h in set(heads)} for c, by in self.reasons.items()}
        return replace(
            self,
            heads=heads,
            columns={name: _take(column, rows) for name, column in self.columns.items()},
            reasons={c: by for c, by in reasons.items() if by},
        )

    # ---- combining ----------------------------------------------------------------------------

    def join(self, other: HeadTable) -> HeadTable:
        """The HeadTable with the columns of both tables, for the same heads in any order.

        In `about`, lists such as the notes are concatenated without repeats. Where a key has two different values,
        the first table's stays, and the second's is listed under `joined`.
        """
        check_instance("other", other, HeadTable, "a HeadTable", hint="first.join(second)")
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

    def compare(self, other: HeadTable) -> TableComparison[HeadTable]:
        """The changes from this HeadTable to `other`, for two checkpoints or two models."""
        check_instance("other", other, HeadTable, "a HeadTable", hint="HeadTable.load(path) reads one")
        heads, columns = common(self, other)
        return TableComparison(
            self.filter(heads=heads).select(columns),
            other.filter(heads=heads).select(columns),
            only_before=_without(self.heads, heads),
            only_after=_without(other.heads, heads),
            columns_before=_without(self.columns, columns),
            columns_after=_without(other.columns, columns),
        )

    # ---- display ------------------------------------------------------------------------------

    def text(self, columns: Sequence[str] | None = None) -> str:
        """Plain text: a line per head, with the named columns or, by default, the most informative ones."""
        return view.text(self, columns)

    def __repr__(self) -> str:
        return self.text()

    def __rich__(self) -> view.RichView:
        return view.RichView(self)

    def _repr_html_(self) -> str:
        return view.html(self)

    # ---- files --------------------------------------------------------------------------------

    def to_pandas(self) -> Any:
        """A DataFrame: a row per head, indexed by name; layer and head are columns too."""
        return files.to_pandas(self)

    def to_json(self) -> str:
        """The table as exact JSON text: a row per head, null where a value is undefined."""
        return files.to_json(self)

    @staticmethod
    def from_json(text: str) -> HeadTable:
        """Read a table from the output of `to_json`."""
        return HeadTable(**vars(files.from_json(text)))

    def save(self, path: str | Path) -> Path:
        """Write a .json or .parquet file atomically and return its path; in a folder, the file is table.json."""
        check_path("path", path, hint="path='table.json'")
        return files.save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> HeadTable:
        """Read a table from a .json or .parquet file, or from a folder written by `multihead measure`."""
        check_path("path", path, hint="path='run', a folder of multihead measure, or a table file")
        return HeadTable(**vars(files.load(Path(path))))


def _take(column: Column, rows: Sequence[int]) -> Float[Tensor, " some_row"] | tuple[str, ...]:
    return tuple(column[i] for i in rows) if isinstance(column, tuple) else column[list(rows)]


def _without(names: Iterable[str], excluded: Sequence[str]) -> tuple[str, ...]:
    excluded_set = set(excluded)
    return tuple(name for name in names if name not in excluded_set)


def _joined_about(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The `about` of two joined tables; values that differ are listed."""
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
