"""Tables as files: JSON for anybody, Parquet for data frames. Both hold the table exactly; neither runs code.

>>> import tempfile, torch
>>> from multihead.table.meaning import Meaning
>>> from multihead.table.table import HeadTable
>>> table = HeadTable(("L0H0", "L0H1"), {"first": torch.tensor([0.1, torch.nan])}, {"first": Meaning("share", "")})
>>> with tempfile.TemporaryDirectory() as folder:
...     file = table.save(folder)
...     file.name, HeadTable.load(folder) == table
('table.json', True)
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, cast

import torch
from torch import Tensor

from multihead.errors import MultiheadError
from multihead.table.meaning import Meaning, Scale
from multihead.table.table import PLACE, Column, HeadTable, some

FORMAT = "multihead head table"
VERSION = 1
TABLE = "table.json"
"""The file of a folder that holds its table."""

_INSTALL = "pip install 'multihead[tables]'"
_INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf}


# ---- JSON -------------------------------------------------------------------------------------


def to_json(table: HeadTable) -> str:
    """A head per line; NaN is null, and a reason says why."""
    top = {"format": FORMAT, "version": VERSION, **_rest(table)}
    lines = [f"{_json(key)}: {_json(value)}" for key, value in top.items()]
    rows = ",\n".join(_json({name: _plain(x) for name, x in row.items()}) for row in table)
    return "{\n" + ",\n".join(lines) + ',\n"rows": [\n' + rows + "\n]}\n"


def from_json(text: str, place: str = "the text") -> HeadTable:
    """The table of `to_json`; `place` says in an error where it was read."""
    try:
        data = json.loads(text)
    except ValueError as wrong:
        raise MultiheadError(
            f"{place} is not JSON: {wrong}", hint="a table is what HeadTable.save wrote; measure again"
        ) from wrong
    if not isinstance(data, dict) or cast(dict[str, Any], data).get("format") != FORMAT:
        raise MultiheadError(f"{place} is JSON, but not a table of heads", hint="HeadTable.save writes one")
    held = cast(dict[str, Any], data)
    if not isinstance(held.get("rows"), list):
        raise MultiheadError(f"{place} is damaged: it has no rows", hint="measure again, or save the table again")
    return _made(held, held["rows"], place)


def _rest(table: HeadTable) -> dict[str, Any]:
    """Everything but the cells: what the columns mean and hold, reasons, about."""
    columns = [
        {"name": n, "holds": "words" if isinstance(c, tuple) else "numbers", **asdict(table.meaning[n])}
        for n, c in table.columns.items()
    ]
    return {
        "about": dict(table.about),
        "columns": columns,
        "reasons": {c: dict(by) for c, by in table.reasons.items()},
    }


def _made(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], place: str) -> HeadTable:
    if data.get("version") != VERSION:
        raise MultiheadError(
            f"{place} is of version {data.get('version')!r} of the format, this multihead reads {VERSION}",
            hint="pip install -U multihead, or measure again",
        )
    try:
        columns: dict[str, Column] = {}
        meaning: dict[str, Meaning] = {}
        for spec in data["columns"]:
            name, scale = str(spec["name"]), spec.get("scale")
            meaning[name] = Meaning(spec["unit"], spec["text"], None if scale is None else Scale(**scale))
            found = [row[name] for row in rows]
            columns[name] = tuple(map(str, found)) if spec["holds"] == "words" else _numbers(found)
        return HeadTable(tuple(row["name"] for row in rows), columns, meaning, data["reasons"], data["about"])
    except (KeyError, TypeError, ValueError) as wrong:
        raise MultiheadError(
            f"{place} is damaged: {type(wrong).__name__}: {wrong}", hint="measure again, or save the table again"
        ) from wrong


def _numbers(found: Sequence[Any]) -> Tensor:
    plain = [math.nan if x is None else _INFINITE.get(x, x) if isinstance(x, str) else x for x in found]
    return torch.tensor(plain, dtype=torch.float64)


def _plain(x: object) -> object:
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return None if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def _json(x: object) -> str:
    try:
        return json.dumps(x, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as wrong:
        raise MultiheadError(
            f"the table holds something that JSON has no word for: {wrong}",
            hint="about is made of dicts, lists, strings, finite numbers, true, false and null",
        ) from wrong


# ---- Parquet and pandas -----------------------------------------------------------------------


def to_pandas(table: HeadTable) -> Any:
    try:
        import pandas  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as missing:
        raise MultiheadError("pandas is not installed", hint=_INSTALL) from missing
    return pandas.DataFrame(_by_column(table)).set_index("name")


def _by_column(table: HeadTable) -> dict[str, Any]:
    """Plain columns: name, stack where a head has one, layer, head, then the measures."""
    places = [table._place(at) for at in range(len(table))]  # pyright: ignore[reportPrivateUsage]  # its own file
    stacks = any("stack" in place for place in places)
    made: dict[str, Any] = {
        key: [place.get(key, "") for place in places] for key in PLACE if key != "stack" or stacks
    }
    return made | {n: list(c) if isinstance(c, tuple) else c.numpy() for n, c in table.columns.items()}


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # pyright: ignore[reportMissingTypeStubs]
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as missing:
        raise MultiheadError(
            "pyarrow, which reads and writes Parquet, is not installed", hint=f"{_INSTALL}, or use a .json file"
        ) from missing
    return pyarrow, parquet


def _to_parquet(table: HeadTable) -> bytes:
    arrow, parquet = _arrow()
    text, number, whole = arrow.string(), arrow.float64(), arrow.int64()
    types = {"name": text, "stack": text, "layer": whole, "head": whole}
    types |= {n: text if isinstance(c, tuple) else number for n, c in table.columns.items()}
    plain = _by_column(table)
    made = arrow.table({n: arrow.array(c, type=types[n], from_pandas=False) for n, c in plain.items()})
    rest = _json({"version": VERSION, **_rest(table)})
    sink = arrow.BufferOutputStream()
    parquet.write_table(made.replace_schema_metadata({FORMAT: rest}), sink)
    return sink.getvalue().to_pybytes()


def _from_parquet(path: Path) -> HeadTable:
    arrow, parquet = _arrow()
    try:
        read = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as wrong:
        raise MultiheadError(f"{path} is not Parquet: {wrong}", hint="measure again, or save it again") from wrong
    rest = (read.schema.metadata or {}).get(FORMAT.encode())
    if rest is None:
        raise MultiheadError(f"{path} is Parquet, but not a table of heads", hint="HeadTable.save writes one")
    return _made(json.loads(rest), read.to_pylist(), str(path))


# ---- files ------------------------------------------------------------------------------------


def save(table: HeadTable, path: Path) -> Path:
    path = path / TABLE if path.is_dir() or not path.suffix else path
    if path.suffix not in (".json", ".parquet"):
        raise MultiheadError(
            f"{path.name}: a table is saved as .json or .parquet, not {path.suffix}",
            hint=f"save({path.stem + '.json'!r}); for other formats: to_pandas()",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_at_once(path, _to_parquet(table) if path.suffix == ".parquet" else to_json(table).encode())
    return path


def load(path: Path) -> HeadTable:
    if path.is_dir():
        found = next((path / n for n in (TABLE, "table.parquet") if (path / n).exists()), None)
        if found is None:
            inside = some(sorted(p.name for p in path.iterdir()))
            raise MultiheadError(
                f"there is no {TABLE} in {path}; in it: {inside}",
                hint="multihead measure MODEL -o FOLDER writes one; --resume finishes one that was stopped",
            )
        path = found
    if not path.exists():
        raise MultiheadError(f"there is no {path}", hint="give a .json or .parquet file, or a folder of a run")
    if path.suffix == ".parquet":
        return _from_parquet(path)
    if path.suffix != ".json":
        raise MultiheadError(
            f"{path} is neither .json nor .parquet", hint="tables are read from these two only, never from pickle"
        )
    try:
        return from_json(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as wrong:
        raise MultiheadError(f"{path} is not text: {wrong}", hint="measure again, or save it again") from wrong


def write_at_once(path: Path, data: bytes) -> None:
    """All of the file or nothing of it, whatever happens meanwhile: a copy beside it takes its place."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False) as part:
        try:
            part.write(data)
            part.flush()
            os.fsync(part.fileno())
            Path(part.name).chmod(0o666 & ~_umask())  # a temporary file is for its owner only
            Path(part.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(part.name).unlink()
            raise
    with suppress(OSError):  # the name, too, is on the disk; some file systems have no such thing
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
