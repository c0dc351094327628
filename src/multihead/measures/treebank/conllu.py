"""Read parsed text in CoNLL-U, the format of Universal Dependencies.

>>> from multihead.measures.treebank.conllu import read_conllu
>>> lines = ["1-2 Don't", "1 Do 3 aux", "2 n't 3 advmod", "3 run 0 root SpaceAfter=No", "4 ! 3 punct"]
>>> def row(line):
...     i, form, *rest = line.split()
...     head, relation, misc = [*rest, "_", "_", "_"][:3]
...     return "\\t".join([i, form, "_", "_", "_", "_", head, relation, "_", misc])
>>> [sentence] = read_conllu("\\n".join(map(row, lines)))
>>> sentence.text
"Don't run!"
>>> [(word.form, word.head, word.relation, word.span) for word in sentence.words][:3]
[('Do', 3, 'aux', (0, 2)), ("n't", 3, 'advmod', (2, 5)), ('run', 0, 'root', (6, 9))]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from multihead.errors import MultiheadError

COLUMNS = 10


@dataclass(frozen=True)
class Word:
    """A syntactic word; `head` is the 1-based index of its head word, or 0 for the root."""

    form: str
    head: int
    relation: str
    span: tuple[int, int]
    """(start, stop) in the sentence's text; words that do not spell their multiword token share its span"""


@dataclass(frozen=True)
class Sentence:
    words: tuple[Word, ...]
    text: str
    line: int
    """line number of its first word"""


@dataclass(frozen=True)
class _Line:
    number: int
    id: str
    form: str
    head: str
    relation: str
    spaced: bool


def read_conllu(source: str | Path | Iterable[str]) -> list[Sentence]:
    """The sentences of a file (given as a path), of a text, or of lines.

    Skips comments and empty nodes (1.1). The text of a sentence is built from the forms and SpaceAfter=No, with
    multiword tokens (1-2) as written.
    """
    return [_sentence(block) for block in _blocks(_read_lines(source))]


def _read_lines(source: str | Path | Iterable[str]) -> Iterable[str]:
    """The lines of a CoNLL-U file or text."""
    if isinstance(source, str) and ("\n" in source or "\t" in source or not source):
        return source.splitlines()
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise MultiheadError(f"no such file: {path}", hint="pass the path of a .conllu file, or its text")
        return path.read_text(encoding="utf-8").splitlines()
    return source


def _blocks(lines: Iterable[str]) -> Iterator[list[_Line]]:
    """The lines of each sentence in CoNLL-U."""
    block: list[_Line] = []
    for number, text in enumerate(lines, start=1):
        text = text.rstrip("\r\n").removeprefix("\ufeff")
        if not text.strip():
            if block:
                yield block
            block = []
        elif not text.startswith("#"):
            block.append(_parse_line(number, text))
    if block:
        yield block


def _error(number: int, problem: str, hint: str) -> MultiheadError:
    return MultiheadError(f"line {number}: {problem}", hint=hint)


def _parse_line(number: int, text: str) -> _Line:
    """One line of CoNLL-U, checked."""
    fields = text.split("\t")
    if len(fields) != COLUMNS:
        raise _error(
            number,
            f"CoNLL-U has {COLUMNS} columns, got {len(fields)}: {text[:60]!r}",
            "separate columns by tabs; end sentences with an empty line",
        )
    id_, form, head, relation, misc = fields[0], fields[1], fields[6], fields[7], fields[9]
    if not id_.replace("-", "").replace(".", "").isdigit():
        raise _error(number, f"{id_!r} is not a word id", "number words 1, 2, ...; 1-2 and 1.1 are allowed")
    return _Line(number, id_, form, head, relation, "SpaceAfter=No" not in misc.split("|"))


def _sentence(block: list[_Line]) -> Sentence:
    """The sentence of some CoNLL-U lines, checked."""
    words = [line for line in block if line.id.isdigit()]
    spans, text = _spans(block)
    parsed: list[Word] = []
    for number, line in enumerate(words, start=1):
        if int(line.id) != number:
            raise _error(line.number, f"expected word {number}, got {line.id}", "number words 1, 2, 3, ...")
        if not line.head.isdigit() or int(line.head) > len(words):
            raise _error(
                line.number,
                f"the head of {line.form!r} must be between 0 and {len(words)}, got {line.head!r}",
                "the seventh column is the id of the head word, or 0 for the root",
            )
        if int(line.head) == number:
            raise _error(
                line.number, f"{line.form!r} is its own head", "the seventh column is the id of a different word"
            )
        parsed.append(Word(line.form, int(line.head), line.relation, spans[number]))
    if not parsed:
        raise _error(block[0].number, "the sentence has no words", "number words 1, 2, 3, ...")
    return Sentence(tuple(parsed), text, block[0].number)


def _spans(block: list[_Line]) -> tuple[dict[int, tuple[int, int]], str]:
    """The span of each CoNLL-U word in the sentence's text, and the text."""
    text, spans, covered = "", dict[int, tuple[int, int]](), 0
    forms = {int(line.id): line.form for line in block if line.id.isdigit()}
    for line in block:
        if "." in line.id:
            continue
        if "-" in line.id:
            first, last = _range(line, forms)
            parts, start = [forms[i] for i in range(first, last + 1)], len(text)
            concatenated = "".join(parts) == line.form
            for i, part in zip(range(first, last + 1), parts, strict=True):
                spans[i] = (start, start + len(part)) if concatenated else (len(text), len(text) + len(line.form))
                start += len(part)
            covered = last
        elif int(line.id) <= covered:
            continue
        else:
            spans[int(line.id)] = (len(text), len(text) + len(line.form))
        text += line.form + " " * line.spaced
    return spans, text.rstrip()


def _range(line: _Line, forms: dict[int, str]) -> tuple[int, int]:
    """The words of a CoNLL-U multiword token, such as 3-4."""
    first, _, last = line.id.partition("-")
    if not (
        first.isdigit() and last.isdigit() and int(first) < int(last) and {int(first), int(last)} <= forms.keys()
    ):
        raise _error(
            line.number, f"{line.id!r} is not a range of words", f"the words are 1 to {max(forms, default=0)}"
        )
    return int(first), int(last)
