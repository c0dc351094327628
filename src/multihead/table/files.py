"""Tables as files: JSON, readable anywhere, and Parquet for data frames. Both are exact; neither runs code.

>>> import tempfile, torch
>>> from multihead.table.column_info import ColumnInfo
>>> from multihead.table.table import HeadTable
>>> share = ColumnInfo("share", "")
>>> table = HeadTable(("L0H0", "L0H1"), {"first": torch.tensor([0.1, torch.nan])}, {"first": share})
>>> with tempfile.TemporaryDirectory() as folder:
...     file = table.save(folder)
...     file.name, HeadTable.load(folder) == table
('table.json', True)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from multihead._base.atomic_files import write_atomically
from multihead.errors import MultiheadError
from multihead.table.column_info import ColumnInfo, Scale
from multihead.table.rows_and_columns import PLACE, Column, TableData, abbreviate

FORMAT = "multihead head table"
VERSION = 2
TABLE = "table.json"
"""The name of the table file in a folder."""

_INSTALL = "pip install 'multihead[tables]'"
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


# ---- JSON -------------------------------------------------------------------------------------


def to_json(table: TableData) -> str:
    """A table as the text of a JSON file, one head per line; NaN becomes null, and `reasons` explains it."""
    top = {"format": FORMAT, "version": VERSION, **_metadata(table)}
    lines = [f"{_dump(key)}: {_dump(value)}" for key, value in top.items()]
    rows = ",\n".join(_dump({name: _plain(x) for name, x in row.items()}) for row in table)
    return "{\n" + ",\n".join(lines) + ',\n"rows": [\n' + rows + "\n]}\n"


def from_json(text: str, place: str = "the text") -> TableData:
    """A table from the text of a JSON file as `to_json` writes it; errors name `place` as the source."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise MultiheadError(
            f"{place} is not JSON: {error}", hint="tables are written by HeadTable.save; measure again"
        ) from error
    if not isinstance(data, dict) or cast(dict[str, Any], data).get("format") != FORMAT:
        raise MultiheadError(f"{place} is JSON, but not a head table", hint="use a file written by HeadTable.save")
    fields = cast(dict[str, Any], data)
    if not isinstance(fields.get("rows"), list):
        raise MultiheadError(f"{place} is damaged: it has no rows", hint="measure again, or save the table again")
    return _table(fields, fields["rows"], place)


def _metadata(table: TableData) -> dict[str, Any]:
    """Everything in a table file except the cells: column types and meanings, reasons, about."""
    columns = [
        {"name": n, "holds": "words" if isinstance(c, tuple) else "numbers", **asdict(table.meaning[n])}
        for n, c in table.columns.items()
    ]
    return {
        "about": dict(table.about),
        "columns": columns,
        "reasons": {c: dict(by) for c, by in table.reasons.items()},
    }


def _table(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], place: str) -> TableData:
    """The table of a file, checked."""
    if data.get("version") != VERSION:
        raise MultiheadError(
            f"{place} has format version {data.get('version')!r}, this multihead reads version {VERSION}",
            hint="measure again: columns have other names; for a newer version, pip install -U multihead",
        )
    try:
        columns: dict[str, Column] = {}
        meaning: dict[str, ColumnInfo] = {}
        for spec in data["columns"]:
            name, scale = str(spec["name"]), spec.get("scale")
            meaning[name] = ColumnInfo(spec["unit"], spec["text"], None if scale is None else Scale(**scale))
            cells = [row[name] for row in rows]
            columns[name] = tuple(map(str, cells)) if spec["holds"] == "words" else _numbers(cells)
        return TableData(tuple(row["name"] for row in rows), columns, meaning, data["reasons"], data["about"])
    except (KeyError, TypeError, ValueError) as error:
        raise MultiheadError(
            f"{place} is damaged: {type(error).__name__}: {error}", hint="measure again, or save the table again"
        ) from error


def _numbers(cells: Sequence[Any]) -> Tensor:
    numbers = [math.nan if x is None else _INFINITE.get(x, x) if isinstance(x, str) else x for x in cells]
    return torch.tensor(numbers, dtype=torch.float64)


def _plain(x: object) -> object:
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return None if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def _dump(x: object) -> str:
    """JSON text of a part of a table file; NaN is an error."""
    try:
        return json.dumps(x, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MultiheadError(
            f"the table holds a value that JSON cannot represent: {error}",
            hint="about may hold dicts, lists, strings, finite numbers, booleans and None",
        ) from error


# ---- Parquet and pandas -----------------------------------------------------------------------


def to_pandas(table: TableData) -> Any:
    """A table as a pandas data frame."""
    try:
        import pandas  # optional  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as missing:
        raise MultiheadError("pandas is not installed", hint=_INSTALL) from missing
    return pandas.DataFrame(_columns(table)).set_index("name")


def _columns(table: TableData) -> dict[str, Any]:
    """Plain columns for a file: name, stack where a head has one, layer, head, then the measures."""
    rows = list(table)
    stacks = any("stack" in row for row in rows)
    columns: dict[str, Any] = {key: [row.get(key, "") for row in rows] for key in PLACE if key != "stack" or stacks}
    return columns | {n: list(c) if isinstance(c, tuple) else c.numpy() for n, c in table.columns.items()}


def _import_arrow() -> tuple[Any, Any]:
    """pyarrow for Parquet files of tables; raises if it is not installed."""
    try:
        import pyarrow  # optional  # pyright: ignore[reportMissingTypeStubs]
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as missing:
        raise MultiheadError(
            "Parquet needs pyarrow, which is not installed", hint=f"{_INSTALL}, or use a .json file"
        ) from missing
    return pyarrow, parquet


def _to_parquet(table: TableData) -> bytes:
    """A table as a Parquet file."""
    arrow, parquet = _import_arrow()
    text, number, integer = arrow.string(), arrow.float64(), arrow.int64()
    types = {"name": text, "stack": text, "layer": integer, "head": integer}
    types |= {n: text if isinstance(c, tuple) else number for n, c in table.columns.items()}
    columns = _columns(table)
    data = arrow.table({n: arrow.array(c, type=types[n], from_pandas=False) for n, c in columns.items()})
    metadata = _dump({"version": VERSION, **_metadata(table)})
    sink = arrow.BufferOutputStream()
    parquet.write_table(data.replace_schema_metadata({FORMAT: metadata}), sink)
    return sink.getvalue().to_pybytes()


def _from_parquet(path: Path) -> TableData:
    """The table in a Parquet file."""
    arrow, parquet = _import_arrow()
    try:
        data = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise MultiheadError(f"{path} is not Parquet: {error}", hint="measure again, or save it again") from error
    metadata = (data.schema.metadata or {}).get(FORMAT.encode())
    if metadata is None:
        raise MultiheadError(
            f"{path} is Parquet, but not a head table", hint="use a file written by HeadTable.save"
        )
    return _table(json.loads(metadata), data.to_pylist(), str(path))


# ---- files ------------------------------------------------------------------------------------


def save(table: TableData, path: Path) -> Path:
    """Save a table to a .json or .parquet file."""
    path = path / TABLE if path.is_dir() or not path.suffix else path
    if path.suffix not in (".json", ".parquet"):
        raise MultiheadError(
            f"{path.name}: a table is saved as .json or .parquet, got {path.suffix}",
            hint=f"save({path.stem + '.json'!r}); for other formats: to_pandas()",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _to_parquet(table) if path.suffix == ".parquet" else to_json(table).encode())
    return path


def load(path: Path) -> TableData:
    """Load a table from a file, or from the folder of a run."""
    if path.is_dir():
        file = next((path / n for n in (TABLE, "table.parquet") if (path / n).exists()), None)
        if file is None:
            names = abbreviate(sorted(p.name for p in path.iterdir()))
            raise MultiheadError(
                f"there is no {TABLE} in {path}, which holds {names}",
                hint="mh.measure(..., out=FOLDER) or multihead measure MODEL -o FOLDER writes one; the same with "
                "resume finishes an interrupted run",
            )
        path = file
    if not path.exists():
        raise MultiheadError(
            f"no such file or folder: {path}", hint="give a .json or .parquet file, or the folder of a run"
        )
    if path.suffix == ".parquet":
        return _from_parquet(path)
    if path.suffix != ".json":
        raise MultiheadError(f"{path} is neither .json nor .parquet", hint="only these two are read, never pickle")
    try:
        return from_json(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise MultiheadError(f"{path} is not text: {error}", hint="measure again, or save it again") from error
