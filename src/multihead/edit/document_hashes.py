"""Recognise documents: a cut records the hashes of its calibration text, and `check` looks for them in its own.

Whole documents are compared, not the pieces that long ones are cut into: pieces depend on `max_tokens`.

>>> import torch
>>> from multihead.edit.document_hashes import document_hashes
>>> ids, mask = torch.tensor([[3, 1, 4], [1, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
>>> document_hashes([[3, 1, 4], [1, 5]]) == document_hashes([{"input_ids": ids, "attention_mask": mask}])
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from multihead.corpus.batches import Document, token_ids
from multihead.edit.physical.record import Record


def document_hashes(documents: Iterable[Document], tokenizer: Any = None) -> list[str]:
    """A hash of the token ids of every document, in order; each row of a ready batch is a document.

    Documents without a token, and batches without token ids, have none.
    """
    return [_hash(ids) for ids in _token_ids(documents, tokenizer) if ids]


def calibration_overlap(record: Record | None, hashes: Iterable[str]) -> int:
    """How many of these documents are calibration text of a cut or of earlier cuts, by the record of the cut."""
    plan = None if record is None else record.plan
    known = frozenset[str]() if plan is None else frozenset[str](plan.get("text", ()))
    return sum(one in known for one in hashes)


def _hash(ids: Sequence[int]) -> str:
    return sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]


def _token_ids(documents: Iterable[Document], tokenizer: Any) -> Iterator[list[int]]:
    for index, document in enumerate(documents):
        text = document.get("text") if isinstance(document, Mapping) else None
        if not isinstance(document, Mapping) or isinstance(text, str):
            yield token_ids(document if text is None else text, tokenizer, index)
            continue
        ids, mask = document.get("input_ids"), document.get("attention_mask")
        if isinstance(ids, Sequence):  # one document as a list
            yield list(ids)
        elif isinstance(ids, Tensor) and ids.ndim == 2:
            masked = isinstance(mask, Tensor) and mask.shape == ids.shape
            real = torch.as_tensor(mask).bool() if masked else torch.ones_like(ids).bool()
            yield from (row[some].tolist() for row, some in zip(ids, real, strict=True))
