"""Stream texts from files of plain lines, JSON lines or Parquet, compressed or not.

    .txt, .jsonl, .parquet, and .txt.gz, .txt.zst, .jsonl.gz, .jsonl.zst

gzip needs only the standard library; zstandard and Parquet need pyarrow.

>>> import gzip, tempfile
>>> from pathlib import Path
>>> from multihead.corpus.text_files import json_texts
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "a.jsonl.gz"
...     _ = file.write_bytes(gzip.compress(b'{"text": "one"}' + bytes([10]) + b'{"text": " two "}'))
...     list(json_texts(file))
['one', 'two']
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from multihead.errors import MultiheadError

PACKED = (".gz", ".zst")
ENDINGS = (".txt", ".jsonl", ".parquet")
ROWS = 1024
"""Rows of Parquet read at a time."""

_INSTALL = "pip install 'multihead[tables]'"


def ending(path: Path) -> str:
    """The format of a file, compressed or not: .txt, .jsonl or .parquet; "" for others."""
    inner = path.with_suffix("") if path.suffix in PACKED else path
    return inner.suffix if inner.suffix in ENDINGS else ""


def files_in(folder: Path) -> list[Path]:
    """All readable files in a folder and its subfolders, sorted by path."""
    files = sorted(p for p in folder.rglob("*") if ending(p) and p.is_file())
    if not files:
        raise MultiheadError(
            f"there is no {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file in {folder}",
            hint="files may be compressed: .jsonl.gz, .txt.zst",
        )
    return files


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, decompressed as they are read."""
    try:
        with _open(path) as file:
            yield from io.TextIOWrapper(file, encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MultiheadError(f"{path} is not UTF-8 text: {error}", hint=f"iconv -t UTF-8 {path}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MultiheadError(f"{path} cannot be decompressed: {error}", hint=f"gzip -t {path}") from error


def json_texts(path: Path, column: str = "text") -> Iterator[str]:
    """The texts of a JSON Lines file, each line an object with a text or a string."""
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise MultiheadError(f"{path} line {number} is not JSON: {error}") from error
        text = cast(dict[str, Any], value).get(column) if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise MultiheadError(
                f'{path} line {number} has no "{column}"',
                hint='write lines like {"text": "..."}, or name the column: column="body"',
            )
        if text.strip():
            yield text.strip()


def parquet_texts(path: Path, column: str = "text") -> Iterator[str]:
    """The texts in a column of a Parquet file, read in blocks of rows."""
    arrow = _arrow(path)
    import pyarrow.parquet as parquet  # pyright: ignore[reportMissingTypeStubs]

    try:
        with parquet.ParquetFile(path) as file:
            columns = cast(Any, file).schema_arrow.names
            if column not in columns:
                raise MultiheadError(
                    f"{path} has no column {column!r}, only {', '.join(columns)}",
                    hint="name one of them: column='body'",
                )
            for rows in cast(Any, file).iter_batches(batch_size=ROWS, columns=[column]):
                for text in rows.column(0).to_pylist():
                    if text is not None and not isinstance(text, str):
                        raise MultiheadError(
                            f"column {column!r} of {path} must hold text, got {type(text).__name__}",
                            hint="name a column of text: column='body'",
                        )
                    if text is not None and text.strip():
                        yield text.strip()
    except arrow.ArrowException as error:
        raise MultiheadError(f"{path} is not Parquet: {error}") from error


def _open(path: Path) -> Any:
    """Open a text file, decompressed by its ending."""
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix != ".zst":
        return path.open("rb")
    arrow = _arrow(path)
    try:
        return io.BufferedReader(cast(Any, _Decompressed(arrow.input_stream(str(path), compression="zstd"), path)))
    except (arrow.ArrowException, OSError) as error:
        raise MultiheadError(f"{path} cannot be decompressed: {error}", hint=f"zstd -t {path}") from error


class _Decompressed(io.RawIOBase):
    """A pyarrow stream as a Python raw stream, with readable errors."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path = stream, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read decompressed bytes of a text file; errors name the file."""
        try:
            data: bytes = self.stream.read(len(buffer))
        except OSError as error:
            raise MultiheadError(
                f"{self.path} cannot be decompressed: {error}", hint=f"zstd -t {self.path}"
            ) from error
        buffer[: len(data)] = data
        return len(data)


def _arrow(path: Path) -> Any:
    """pyarrow, for Parquet and Zstandard text files; raises if it is not installed."""
    try:
        import pyarrow  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise MultiheadError(f"{path.name} needs pyarrow, which is not installed", hint=_INSTALL) from error
    return pyarrow
