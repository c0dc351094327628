"""Texts in files: plain lines, JSON lines and Parquet, compressed or not, read as a stream and never held.

    .txt, .jsonl, .parquet, and .txt.gz, .txt.zst, .jsonl.gz, .jsonl.zst

gzip is Python's own; zstandard and Parquet are read by pyarrow.

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
"""Rows of Parquet that are held at a time."""

_INSTALL = "pip install 'multihead[tables]'"


def ending(path: Path) -> str:
    """What a file holds: .txt, .jsonl or .parquet, also where it is compressed; "" for others."""
    inner = path.with_suffix("") if path.suffix in PACKED else path
    return inner.suffix if inner.suffix in ENDINGS else ""


def files_in(folder: Path) -> list[Path]:
    """All files of a folder that can be read, in the order of their names."""
    found = sorted(p for p in folder.rglob("*") if ending(p) and p.is_file())
    if not found:
        raise MultiheadError(
            f"there is no {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file in {folder}",
            hint="they may be compressed: .jsonl.gz, .txt.zst",
        )
    return found


def lines(path: Path) -> Iterator[str]:
    """The lines of a file of UTF-8 text, decompressed as they are read."""
    try:
        with _opened(path) as file:
            yield from io.TextIOWrapper(file, encoding="utf-8")
    except UnicodeDecodeError as wrong:
        raise MultiheadError(f"{path} is not UTF-8 text: {wrong}", hint=f"iconv -t UTF-8 {path}") from wrong
    except (EOFError, zlib.error, gzip.BadGzipFile) as wrong:
        raise MultiheadError(f"{path} cannot be decompressed: {wrong}", hint=f"gzip -t {path}") from wrong


def json_texts(path: Path, column: str = "text") -> Iterator[str]:
    """The texts of a file of JSON lines: objects with a text, or texts alone."""
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as wrong:
            raise MultiheadError(f"{path} line {number} is not JSON: {wrong}") from wrong
        text = cast(dict[str, Any], found).get(column) if isinstance(found, dict) else found
        if not isinstance(text, str):
            raise MultiheadError(
                f'{path} line {number} has no "{column}"', hint='lines like {"text": "..."}, or name it: --column'
            )
        if text.strip():
            yield text.strip()


def parquet_texts(path: Path, column: str = "text") -> Iterator[str]:
    """The texts of a column of a Parquet file, some rows at a time."""
    arrow = _arrow(path)
    import pyarrow.parquet as parquet  # pyright: ignore[reportMissingTypeStubs]

    try:
        with parquet.ParquetFile(path) as file:
            known = cast(Any, file).schema_arrow.names
            if column not in known:
                raise MultiheadError(
                    f"{path} has no column {column!r}: it has {', '.join(known)}", hint="name one of them: --column"
                )
            for rows in cast(Any, file).iter_batches(batch_size=ROWS, columns=[column]):
                for text in rows.column(0).to_pylist():
                    if text is not None and not isinstance(text, str):
                        raise MultiheadError(
                            f"{column!r} of {path} holds {type(text).__name__}, not text", hint="--column NAME"
                        )
                    if text is not None and text.strip():
                        yield text.strip()
    except arrow.ArrowException as wrong:
        raise MultiheadError(f"{path} is not Parquet: {wrong}") from wrong


def _opened(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix != ".zst":
        return path.open("rb")
    arrow = _arrow(path)
    try:
        return io.BufferedReader(cast(Any, _Decompressed(arrow.input_stream(str(path), compression="zstd"), path)))
    except (arrow.ArrowException, OSError) as wrong:
        raise MultiheadError(f"{path} cannot be decompressed: {wrong}", hint=f"zstd -t {path}") from wrong


class _Decompressed(io.RawIOBase):
    """A stream of pyarrow as Python's own, with errors in words."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path = stream, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data: bytes = self.stream.read(len(buffer))
        except OSError as wrong:
            raise MultiheadError(
                f"{self.path} cannot be decompressed: {wrong}", hint=f"zstd -t {self.path}"
            ) from wrong
        buffer[: len(data)] = data
        return len(data)


def _arrow(path: Path) -> Any:
    try:
        import pyarrow  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as missing:
        raise MultiheadError(f"pyarrow, which reads {path.name}, is not installed", hint=_INSTALL) from missing
    return pyarrow
