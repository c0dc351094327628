"""Texts as pieces of one length, so that heads of different corpora are compared at the same number of keys.

>>> from multihead.measures.kinds.pieces import Pieces
>>> pieces = Pieces.of([[3, 1, 4], [1, 5, 9, 2], [6]], length=4)
>>> [batch["input_ids"].tolist() for batch in pieces]
[[[3, 1, 4, 1], [5, 9, 2, 6]]]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from multihead.corpus.batches import Document, SeenTexts, token_ids
from multihead.corpus.documents import document_bytes
from multihead.errors import SizeError
from multihead.measures.kinds.token_ids import split_special

LENGTH = 64
"""Tokens of a piece: the reference length."""

BATCH = 16
"""Pieces that run together and share the fitted parameters of offsets."""

MOST = 256
"""Pieces that are kept."""

Batch = Mapping[str, Any]


class Pieces:
    """The first `MOST` pieces of some documents, in batches; it can be iterated again and again.

    Documents are packed one after the other and cut. Each piece stands between the special tokens that surround the
    first document. Repeated documents and pieces are excluded, and so is the rest after the last full piece,
    if any piece is full. Batches that hold more than token ids and padding, such as images or a second
    sequence, stay as they are, and a row counts as a piece.
    """

    def __init__(
        self,
        *,
        tokenizer: Any = None,
        special: Sequence[int] = (),
        length: int = LENGTH,
        column: str = "text",
        two_sequences: bool = False,
    ) -> None:
        self.tokenizer, self.special, self.length, self.column = tokenizer, set(special), length, column
        self.two_sequences = two_sequences
        """whether the model reads the labels of a batch as a second sequence, so that batches stay as they are"""
        self._around: tuple[list[int], list[int]] | None = None
        self._documents, self._texts, self._read = SeenTexts(), SeenTexts(), 0
        self._waiting = list[int]()
        self._rows = list[list[int]]()
        self._ready = list[Batch]()
        self._count = 0

    @staticmethod
    def of(documents: Iterable[Document], **options: Any) -> Pieces:
        """The pieces of some documents."""
        pieces = Pieces(**options)
        pieces.read(documents)
        return pieces

    def read(self, documents: Iterable[Document]) -> None:
        """Cut documents into pieces of the reference length, until there are enough."""
        for _ in self.watch(documents):
            if self.full:
                return

    def watch(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Pass documents on and keep their pieces: of data that can be read only once."""
        for document in documents:
            if not self.full:
                self._add(document)
            yield document

    @property
    def full(self) -> bool:
        return self._count >= MOST

    def __iter__(self) -> Iterator[Batch]:
        rows = self._rows
        if not self._count and self._waiting and self._around is not None:
            rows = [self._surrounded(self._waiting)]
        for start in range(0, len(rows), BATCH):
            yield {"input_ids": torch.tensor(rows[start : start + BATCH])}
        yield from self._ready

    def __len__(self) -> int:
        """The number of batches."""
        return sum(1 for _ in self)

    def _add(self, document: Document) -> None:
        """Split a document into pieces, and keep them."""
        index, self._read = self._read, self._read + 1
        text = document.get(self.column) if isinstance(document, Mapping) else None
        if isinstance(text, str) or not isinstance(document, Mapping):
            self._add_text(text if isinstance(text, str) else document, index)
            return
        rows = None if self.two_sequences and "labels" in document else _rows_of_ids(document)
        if rows is None:
            self._ready.append(document)
            self._count += max((len(x) for x in document.values() if isinstance(x, Tensor) and x.ndim), default=1)
        for row in rows or []:
            self._add_text(row, index)

    def _add_text(self, content: Any, index: int) -> None:
        """Cut a text into pieces, unless it is a repeat."""
        data = document_bytes(content)
        if data is not None and self._documents.add(data):
            return
        before, ids, after = _split(token_ids(content, self.tokenizer, index), self.special)
        if self._around is None:
            self._around = before, after
            _check_length(self.length, len(before) + len(after))
        self._waiting += ids
        room = self.length - sum(map(len, self._around))
        while len(self._waiting) >= room and not self.full:
            piece, self._waiting = self._waiting[:room], self._waiting[room:]
            if not self._texts.add(document_bytes(piece) or b""):
                self._rows.append(self._surrounded(piece))
                self._count += 1

    def _surrounded(self, ids: list[int]) -> list[int]:
        assert self._around is not None
        before, after = self._around
        return [*before, *ids, *after]


_OF_TEXT = {"input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "labels"}
"""Inputs that may accompany token ids; pieces omit them or make their own."""


def _rows_of_ids(document: Mapping[str, Any]) -> list[list[int]] | None:
    """Token ids to cut into pieces: a ready batch's or dataset row's, without padding; None if it holds more."""
    ids, mask = document.get("input_ids"), document.get("attention_mask")
    of_ids = isinstance(ids, Tensor) or (isinstance(ids, list) and all(isinstance(i, int) for i in ids))
    if not of_ids or not set(document) <= _OF_TEXT:
        return None
    rows, real = torch.as_tensor(ids), torch.ones(()) if mask is None else torch.as_tensor(mask)
    if rows.ndim == 1 and real.ndim <= 1:
        rows, real = rows[None], real.reshape(1, -1)
    if rows.ndim != 2 or rows.is_floating_point() or real.ndim > 2:
        return None
    real = real.bool().expand(rows.shape)
    return [row[some].tolist() for row, some in zip(rows, real, strict=True) if some.any()]


def _split(ids: list[int], special: set[int]) -> tuple[list[int], list[int], list[int]]:
    """Of a text to cut into pieces: special tokens before it, its other tokens, and special tokens after it.

    A special token that is repeated at an end is padding, and counts once.
    """
    before, others, after = split_special(ids, special)
    before, after = ([i for i, _ in groupby(end)] for end in (before, after))
    return before, others, after


def _check_length(length: int, special: int) -> None:
    """Raise if a piece cannot hold two tokens besides the special ones."""
    if length < special + 2:
        raise SizeError(
            f"length must be at least {special + 2}, two tokens and {special} special ones, got {length}",
            hint=f"length={LENGTH} is the reference length",
        )
