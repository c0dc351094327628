"""Documents from files, folders, stdin, token ids, or the sample that comes with the package.

>>> from multihead.corpus.read_texts import read_documents
>>> read_documents(text=["The cat sat on the mat."]).count, read_documents(limit=3).count
(1, 3)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby, islice
from pathlib import Path
from typing import Any, cast

from torch import nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.documents import Documents
from multihead.corpus.read_inputs import check_reads, read_inputs
from multihead.corpus.text_files import ending, files_in, json_texts, lines, parquet_texts
from multihead.errors import MultiheadError

Reader = Callable[[], Iterable[Any]]
"""Reads documents from the beginning."""


def read_documents(
    tokenizer: Any = None,
    *,
    model: nn.Module | None = None,
    text: Sequence[str] = (),
    corpus: Sequence[str] = (),
    ids: str | None = None,
    inputs: str | Sequence[Inputs] | None = None,
    column: str = "text",
    split: str | None = None,
    limit: int | None = None,
    counts: Mapping[str, Any] | None = None,
) -> Documents:
    """Documents of texts and corpora, of a file of token ids, or of other inputs; by default a sample.

    Args:
        tokenizer: its model may bring a sample in another language.
        model: the one that reads the documents; if it reads others, that is an error here.
        text: texts, each a file, "-" for stdin, or the words themselves.
        corpus: files of many documents, folders of such files, or "-".
        ids: a JSON file, a list of lists of token ids.
        inputs: of a model that does not read text, as for `read_inputs`.
        column: where .jsonl and .parquet files have their text.
        split: the documents of a .txt file: "line", "paragraph", "file", or "auto": a paragraph if the file
            has blank lines, else a line. By default "file" for `text` and "auto" for `corpus`.
        limit: read only the first documents.
        counts: `Documents.counts()` of another process that has read the same documents.
    """
    if limit is not None and limit < 1:
        raise MultiheadError(f"limit must be at least 1, got {limit}", hint="limit=1 reads one document")
    sources = {"text": text or corpus, "ids": ids, "inputs": inputs}
    if len(several := [name for name, source in sources.items() if source]) > 1:
        raise MultiheadError(f"{' and '.join(several)} cannot be combined", hint="choose one of them")
    if inputs is None and model is not None:
        check_reads(model, "text" if ids is None else "token ids")
        if tokenizer is None and ids is None:
            raise MultiheadError(
                "the model has no tokenizer, so text cannot be read", hint="ids='FILE': JSON lists of token ids"
            )
    if inputs is not None:
        batches = read_inputs(inputs, model)
        readers, name = [lambda: batches], inputs if isinstance(inputs, str) else "the inputs"
    elif ids is not None:
        readers, name = [_ids(Path(ids))], ids
    elif text or corpus:
        readers = [_text(one, split or "file", column) for one in text]
        readers += [reader for one in corpus for reader in _corpus(one, split or "auto", column)]
        name = ", ".join([*map(_short, text), *corpus])
    else:
        readers, name = [getattr(tokenizer, "sample_texts", None) or sample], "the sample text"
    return Documents.of(lambda: islice((d for read in readers for d in read()), limit), name, counts)


def read_text(name: str) -> str:
    """One text: a file, "-" for stdin, or the words themselves."""
    path = _path(name)
    if name == "-":
        text = stdin_text()
    elif path is not None and path.is_file():
        text = "".join(lines(path))
    elif len(name.split()) > 1:
        text = name
    elif not name.strip():
        raise MultiheadError("a text must not be empty", hint='pass a file, - for stdin, or "several words"')
    else:
        raise _missing(path, name)
    if not text.strip():
        raise MultiheadError(f"{_short(name)} contains no text", hint="a text has at least one word")
    return text.strip()


def sample() -> list[str]:
    """Some paragraphs of English, written for this package, with repetitions."""
    text = files("multihead.corpus").joinpath("sample.txt").read_text(encoding="utf-8")
    return list(_paragraphs(text.splitlines(keepends=True)))


def stdin_text() -> str:
    """All of stdin as UTF-8, whatever the locale."""
    raw = getattr(sys.stdin, "buffer", None)  # the stdin of a notebook has none
    try:
        return sys.stdin.read() if raw is None else raw.read().decode()
    except UnicodeDecodeError as error:
        raise MultiheadError(f"stdin is not UTF-8 text: {error}", hint="iconv -t UTF-8") from error


# ---- readers ----------------------------------------------------------------------------------


def _text(name: str, split: str, column: str) -> Reader:
    """A reader of the text that --text names: a file, stdin or the words themselves."""
    path = _path(name)
    if name == "-":
        return _stdin(split)
    if path is not None and path.exists():
        if path.is_dir():
            raise _missing(path, name)
        return _file(path, split, column)
    words = read_text(name)
    return lambda: [words]


def _corpus(name: str, split: str, column: str) -> list[Reader]:
    """Readers of the files that a corpus names: a file, all files of a folder, or stdin."""
    path = Path(name)
    if name == "-":
        return [_stdin(split)]
    return [_file(file, split, column) for file in (files_in(path) if path.is_dir() else [path])]


def _stdin(split: str) -> Reader:
    """stdin cannot be read twice, so it is held."""
    held = stdin_text().splitlines(keepends=True)
    return lambda: _documents(held, _resolved(split, held))


def _file(path: Path, split: str, column: str) -> Reader:
    """A reader of one file of documents, by its ending."""
    if not path.is_file():
        if path.exists():
            raise MultiheadError(f"{path} is not a file that can be read twice", hint="pass a file, or - for stdin")
        raise MultiheadError(f"no such file: {path}", hint="pass a file, a folder of files, or - for stdin")
    if ending(path) == ".jsonl":
        return lambda: json_texts(path, column)
    if ending(path) == ".parquet":
        return lambda: parquet_texts(path, column)
    resolved = _resolved(split, lines(path))
    return lambda: _documents(lines(path), resolved)


def _ids(path: Path) -> Reader:
    """A reader of a JSON file of token ids."""
    if not path.is_file():
        raise MultiheadError(f"no such file: {path}", hint="token ids are JSON, a list of lists of numbers")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MultiheadError(f"{path} is not JSON: {error}", hint="a list of lists of token ids") from error
    lists: Any = cast(dict[str, Any], data).get("ids") if isinstance(data, dict) else data
    if not isinstance(lists, list) or not all(map(_is_ids, cast(list[Any], lists))):
        raise MultiheadError(
            f"{path} is not a list of lists of token ids", hint='[[5, 3, 8], [9, 2]], or {"ids": [[5, 3, 8], ...]}'
        )
    return lambda: cast(list[list[int]], lists)


def _is_ids(x: Any) -> bool:
    return isinstance(x, list) and bool(x) and all(type(i) is int and i >= 0 for i in cast(list[Any], x))


# ---- splitting --------------------------------------------------------------------------------


def _resolved(split: str, lines: Iterable[str]) -> str:
    """How to split a text into documents: by paragraphs if it has two, else by lines."""
    if split != "auto":
        return split
    paragraphs = (text for text, _ in groupby(lines, key=lambda line: bool(line.strip())) if text)
    return "paragraph" if len(list(islice(paragraphs, 2))) == 2 else "line"


def _documents(lines: Iterable[str], split: str) -> Iterator[str]:
    """The documents of some lines, without white space around them; empty ones are skipped."""
    documents = lines if split == "line" else _paragraphs(lines) if split == "paragraph" else ["".join(lines)]
    return (document.strip() for document in documents if document.strip())


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Runs of lines that are not blank; a line break within one becomes a space."""
    for text, run in groupby(lines, key=lambda line: bool(line.strip())):
        if text:
            yield " ".join(line.strip() for line in run)


# ---- names ------------------------------------------------------------------------------------


def _path(name: str) -> Path | None:
    """A name as a path, unless no path can look like it."""
    return Path(name) if name and len(name) < 256 and "\0" not in name else None


def _short(name: str) -> str:
    """A name for messages: texts are shortened, paths are not."""
    return f"{name[:57]}..." if len(name) >= 60 and len(name.split()) > 1 else name


def _missing(path: Path | None, name: str) -> MultiheadError:
    if path is not None and path.is_dir():
        return MultiheadError(f"{name} is a folder", hint=f"corpus={name!r} reads all its files")
    return MultiheadError(f"no such file: {name!r}", hint='pass a file, - for stdin, or "several words"')
