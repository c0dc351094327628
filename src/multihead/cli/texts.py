"""TEXT on the command line: files, folders, stdin, token ids, or the sample that comes with the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from importlib.resources import files
from itertools import groupby, islice
from pathlib import Path
from typing import Any, cast

from multihead.corpus.text_files import ending, files_in, json_texts, lines, parquet_texts
from multihead.errors import MultiheadError

COMPARED = 10_000_000
"""Documents up to which copies are looked for: 8 bytes are held of each."""

SPLITS = ("auto", "line", "paragraph", "file")


@dataclass(frozen=True)
class Texts:
    """Documents that can be read again and again, none of them held: texts, or lists of token ids."""

    read: Callable[[], Iterator[str | list[int]]]
    name: str
    documents: int
    size: int
    """characters, or token ids"""
    fingerprint: str
    """the same for the same documents in the same order"""
    copies: tuple[int, ...] = ()
    """the numbers of documents that an earlier one is the same as; not looked for in more than `COMPARED`"""

    def __iter__(self) -> Iterator[str | list[int]]:
        return self.read()

    def counted(self) -> dict[str, Any]:
        """What counting found, as plain data: `of` takes it in place of counting."""
        return {
            "documents": self.documents,
            "size": self.size,
            "fingerprint": self.fingerprint,
            "copies": list(self.copies),
        }

    @staticmethod
    def of(
        read: Callable[[], Iterable[str | list[int]]], name: str, known: Mapping[str, Any] | None = None
    ) -> Texts:
        """Count and fingerprint documents by reading them once, unless somebody has done so: `known`."""
        if known is not None:
            documents, size = int(known["documents"]), int(known["size"])
            return Texts(lambda: iter(read()), name, documents, size, known["fingerprint"], tuple(known["copies"]))
        seen, documents, size = sha256(), 0, 0
        before, copies = set[bytes](), list[int]()
        for document in read():
            data = document.encode() if isinstance(document, str) else json.dumps(document).encode()
            seen.update(len(data).to_bytes(8, "big") + data)
            if documents < COMPARED:
                digest = blake2b(data, digest_size=8).digest()
                copies += [documents] if digest in before else []
                before.add(digest)
            documents, size = documents + 1, size + len(document)
        if not documents:
            raise MultiheadError(f"there is no text in {name}", hint="documents of nothing but space do not count")
        return Texts(lambda: iter(read()), name, documents, size, seen.hexdigest()[:16], tuple(copies))


def add_texts(parser: argparse.ArgumentParser) -> None:
    """--text, --corpus, --ids and how they are cut."""
    group = parser.add_argument_group("what it reads (default: a sample in English; embedded: in its own language)")
    group.add_argument(
        "--text",
        action="append",
        default=[],
        metavar="FILE",
        help="a text, one document; - is stdin; may be repeated",
    )
    group.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="DIR|FILE",
        help='many documents: a .txt file, a .jsonl or .parquet file with a "text", each perhaps .gz or .zst, or a '
        "folder of such files; - is stdin",
    )
    group.add_argument(
        "--column", metavar="NAME", help="where .jsonl and .parquet files have their text (default: text)"
    )
    group.add_argument(
        "--split",
        choices=SPLITS,
        help="what a document of a .txt file is: a line, a paragraph (blank lines between), the whole file, or "
        "auto: a paragraph where the file has blank lines, else a line (default: file of --text, auto of --corpus)",
    )
    group.add_argument("--ids", metavar="FILE", help="token ids instead of text: JSON, a list of lists of numbers")
    group.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="cut longer documents into pieces of N tokens (default: the positions of the model)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="read only the first N documents")


def texts(args: argparse.Namespace, tokenizer: Any, known: Mapping[str, Any] | None = None) -> Texts:
    """The documents of `add_texts`'s arguments; `known`: what another process has counted."""
    if args.ids and (args.text or args.corpus):
        raise MultiheadError("--ids and --text or --corpus are given: only one of them can be read")
    if args.ids:
        return Texts.of(_limited(_ids(Path(args.ids)), args.limit), args.ids, known)
    if tokenizer is None:
        raise MultiheadError(
            f"{args.model} has no tokenizer, so text cannot be read", hint="--ids FILE: JSON lists of token ids"
        )
    column = getattr(args, "column", None) or "text"
    sources = [_text(name, args.split or "file", column) for name in args.text]
    sources += [source for name in args.corpus for source in _corpus(name, args.split or "auto", column)]
    if not sources:
        own = getattr(tokenizer, "sample_texts", None)  # a model of another language brings its own
        return Texts.of(_limited(own or sample, args.limit), "the sample text", known)
    name = ", ".join([*args.text, *args.corpus])
    return Texts.of(_limited(lambda: (d for read in sources for d in read()), args.limit), name, known)


def in_english(given: Sequence[str], args: argparse.Namespace, tokenizer: Any) -> bool:
    """Whether the English sample stands in: no text and no ids are given, and the model brings no sample."""
    return not given and not args.ids and not hasattr(tokenizer, "sample_texts")


def sample() -> list[str]:
    """Some paragraphs of English, our own, in which some things are said twice."""
    text = files("multihead.corpus").joinpath("sample.txt").read_text(encoding="utf-8")
    return list(_paragraphs(text.splitlines(keepends=True)))


def _limited(read: Callable[[], Iterable[Any]], limit: int | None) -> Callable[[], Iterator[Any]]:
    if limit is not None and limit < 1:
        raise MultiheadError(f"--limit {limit} reads nothing", hint="--limit 1 reads one document")
    return lambda: islice(iter(read()), limit)


def _text(name: str, split: str, column: str) -> Callable[[], Iterator[str]]:
    if name == "-":
        return _stdin(split)
    path = Path(name)
    if path.is_dir():
        raise MultiheadError(f"{name} is a folder", hint=f"--corpus {name} reads all its files")
    return _file(path, split, column)


def _corpus(name: str, split: str, column: str) -> list[Callable[[], Iterator[str]]]:
    if name == "-":
        return [_stdin(split)]
    path = Path(name)
    if not path.is_dir():
        return [_file(path, split, column)]
    return [_file(p, split, column) for p in files_in(path)]


def stdin_text() -> str:
    """All of stdin, which is UTF-8 whatever the locale says."""
    raw = getattr(sys.stdin, "buffer", None)  # what stands for stdin in a notebook has none
    try:
        return sys.stdin.read() if raw is None else raw.read().decode()
    except UnicodeDecodeError as wrong:
        raise MultiheadError(f"stdin is not UTF-8 text: {wrong}", hint="iconv -t UTF-8") from wrong


def _stdin(split: str) -> Callable[[], Iterator[str]]:
    """stdin cannot be read twice, so it is held."""
    held = stdin_text().splitlines(keepends=True)
    return lambda: _documents(held, _chosen(split, held))


def _file(path: Path, split: str, column: str) -> Callable[[], Iterator[str]]:
    if not path.is_file():
        if path.exists():
            raise MultiheadError(f"{path} is not a file that can be read twice", hint="a file, or - for stdin")
        raise MultiheadError(f"there is no file {path}", hint="a file, a folder of files, or - for stdin")
    if ending(path) == ".jsonl":
        return lambda: json_texts(path, column)
    if ending(path) == ".parquet":
        return lambda: parquet_texts(path, column)
    chosen = _chosen(split, lines(path))
    return lambda: _documents(lines(path), chosen)


def _chosen(split: str, lines: Iterable[str]) -> str:
    if split != "auto":
        return split
    paragraphs = (text for text, _ in groupby(lines, key=lambda line: bool(line.strip())) if text)
    return "paragraph" if len(list(islice(paragraphs, 2))) == 2 else "line"


def _documents(lines: Iterable[str], split: str) -> Iterator[str]:
    """Documents without the space around them; those of nothing else are left out."""
    found = lines if split == "line" else _paragraphs(lines) if split == "paragraph" else ["".join(lines)]
    return (document.strip() for document in found if document.strip())


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Runs of lines that are not blank; a line break within one is a space."""
    for text, run in groupby(lines, key=lambda line: bool(line.strip())):
        if text:
            yield " ".join(line.strip() for line in run)


def _ids(path: Path) -> Callable[[], Sequence[list[int]]]:
    if not path.is_file():
        raise MultiheadError(f"there is no file {path}", hint="--ids FILE: JSON, a list of lists of token ids")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as wrong:
        raise MultiheadError(f"{path} is not JSON: {wrong}", hint="a list of lists of token ids") from wrong
    lists: Any = cast(dict[str, Any], found).get("ids") if isinstance(found, dict) else found
    if not isinstance(lists, list) or not all(
        isinstance(x, list) and x and all(type(i) is int and i >= 0 for i in cast(list[Any], x))
        for x in cast(list[Any], lists)
    ):
        raise MultiheadError(
            f"{path} is not a list of lists of token ids", hint='[[5, 3, 8], [9, 2]], or {"ids": [[5, 3, 8], ...]}'
        )
    return lambda: cast(list[list[int]], lists)
