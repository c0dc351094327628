"""Texts as pieces of one length, so that heads of different corpora are compared at the same number of keys.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.measures.kinds.pieces import pieces
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=24, vocab_size=50)).eval()
>>> [batch["input_ids"].tolist() for batch in pieces(model, [[3, 1, 4], [1, 5, 9, 2], [6]], length=4)]
[[[3, 1, 4, 1], [5, 9, 2, 6]]]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from multihead.corpus.batches import Document, SeenTexts, default_max_tokens, token_ids
from multihead.corpus.documents import document_bytes
from multihead.errors import SizeError

LENGTH = 64
"""Tokens of a piece: the reference length."""

BATCH = 16
"""Pieces that run together, and share what is learned of offsets."""

Pieces = list[list[int]]


def pieces(
    model: Any,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    special: Sequence[int] = (),
    length: int = LENGTH,
    column: str = "text",
) -> Iterator[Mapping[str, Any]]:
    """Ready batches of pieces of `length` tokens: documents, one after the other, cut.

    Each piece stands between the special tokens that surround the first document. A document equal to an earlier
    one is left out, as is the rest after the last piece, unless it is all there is. Ready batches stay as they are.
    """
    limit = default_max_tokens(model)
    length = length if limit is None else min(length, limit)
    begin, end = list[int](), list[int]()
    seen, waiting, rows, full = SeenTexts(), list[int](), Pieces(), False
    documents = [cast(Document, data)] if isinstance(data, Mapping) else data
    first = True
    for index, document in enumerate(documents):
        text = document.get(column) if isinstance(document, Mapping) else None
        content: Any = text if isinstance(text, str) else document
        if isinstance(content, Mapping):
            yield cast(Mapping[str, Any], content)
            full = True
            continue
        data_bytes = document_bytes(content)
        if data_bytes is not None and seen.add(data_bytes):
            continue
        before, ids, after = _surrounded(token_ids(content, tokenizer, index), set(special))
        if first:
            begin, end, first = before, after, False
            _check_length(length, len(begin) + len(end))
        waiting += ids
        room = length - len(begin) - len(end)
        while len(waiting) >= room:
            rows.append([*begin, *waiting[:room], *end])
            waiting, full = waiting[room:], True
            if len(rows) == BATCH:
                yield {"input_ids": torch.tensor(rows)}
                rows = []
    if waiting and not full:
        rows.append([*begin, *waiting, *end])
    if rows:
        yield {"input_ids": torch.tensor(rows)}


def _surrounded(ids: list[int], special: set[int]) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before a document, its other tokens, and the special tokens after it."""
    start = next((i for i, x in enumerate(ids) if x not in special), len(ids))
    stop = next((i for i in range(len(ids), start, -1) if ids[i - 1] not in special), start)
    return ids[:start], ids[start:stop], ids[stop:]


def _check_length(length: int, special: int) -> None:
    if length < special + 2:
        raise SizeError(
            f"length must be at least {special + 2}, two tokens and {special} special ones, got {length}",
            hint=f"length={LENGTH} is the reference length",
        )
