"""Recognise documents: a cut records the hashes of its calibration text, and `check` looks for them in its own.

Whole documents are compared, not the pieces that long ones are cut into: pieces depend on `max_tokens`.

>>> import torch
>>> from multihead.edit.document_hashes import document_hashes, whole_documents
>>> ids, mask = torch.tensor([[3, 1, 4], [1, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
>>> whole_documents([[3, 1, 4], {"input_ids": ids, "attention_mask": mask}])
[[3, 1, 4], [3, 1, 4], [1, 5]]
>>> len(document_hashes([[3, 1, 4], [3, 1, 4], [1, 5]]))
2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from multihead.corpus.batches import Document, token_ids
from multihead.edit.physical.record import Record


def whole_documents(documents: Iterable[Document], tokenizer: Any = None) -> list[list[int]]:
    """The token ids of every document; each row of a ready batch is one. Batches without token ids are skipped."""
    found: list[list[int]] = []
    for index, document in enumerate(documents):
        text = document.get("text") if isinstance(document, Mapping) else document
        if not isinstance(document, Mapping) or isinstance(text, str):
            found.append(token_ids(text, tokenizer, index))
            continue
        ids, mask = document.get("input_ids"), document.get("attention_mask")
        if isinstance(ids, Sequence):  # one document as a list
            found.append(list(ids))
        elif isinstance(ids, Tensor) and ids.ndim == 2:
            masked = isinstance(mask, Tensor) and mask.shape == ids.shape
            real = torch.as_tensor(mask).bool() if masked else torch.ones_like(ids).bool()
            found += [row[some].tolist() for row, some in zip(ids, real, strict=True)]
    return [document for document in found if document]


def document_hashes(documents: Iterable[Sequence[int]]) -> frozenset[str]:
    """A short hash of each document's token ids."""
    return frozenset(map(_hash, documents))


def calibration_overlap(record: Record | None, documents: Iterable[Sequence[int]]) -> int:
    """How many of these documents are calibration text of a cut or of earlier cuts, by the record of the cut."""
    plan = None if record is None else record.plan
    known = frozenset[str]() if plan is None else frozenset[str](plan.get("text", ()))
    return sum(_hash(document) in known for document in documents)


def _hash(document: Sequence[int]) -> str:
    return sha256(",".join(map(str, document)).encode()).hexdigest()[:12]
