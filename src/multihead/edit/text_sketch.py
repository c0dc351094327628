"""What a cut model remembers of its calibration text: enough to warn of an overlap with held-out text.

The sketch has a fixed size: of every document the hash of its first tokens, and of these hashes the `SIZE`
smallest. They are salted with a digest of the whole text and cut to 24 bits, so the sketch hardly tells whether one
document was in the text. The first tokens are the same however long documents are cut into pieces.

>>> from multihead.edit.text_sketch import TextSketch
>>> sketch = TextSketch.of([[i, i + 1, 7] for i in range(100)])
>>> sketch.overlap([[i, i + 1, 7] for i in range(90, 120)])
10
>>> TextSketch.from_json(sketch.to_json()) == sketch
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from multihead.corpus.batches import Document, token_ids

SIZE = 1024
"""Number of hashes kept. With at most this many documents, `overlap` is exact in all but one of 16,000 cases."""
FIRST = 64
"""Tokens of a document that it is known by."""


@dataclass(frozen=True)
class TextSketch:
    """The smallest hashes of the documents of a text."""

    digest: str
    """of the whole text"""
    documents: int
    hashes: tuple[str, ...]

    @staticmethod
    def of(documents: Iterable[Sequence[int]]) -> TextSketch:
        """A sketch of documents as token ids; the order does not matter, and copies count once."""
        ids = {_bytes(document) for document in documents}
        digest = sha256(b"".join(sorted(sha256(x).digest() for x in ids))).hexdigest()[:16]
        return TextSketch(digest, len(ids), tuple(sorted(_hash(digest, x) for x in ids)[:SIZE]))

    def overlap(self, documents: Iterable[Sequence[int]]) -> int:
        """How many of these documents are in the sketched text: an estimate if it has more than `SIZE`."""
        known = set(self.hashes)
        matches = sum(_hash(self.digest, _bytes(document)) in known for document in documents)
        return round(matches * self.documents / max(len(self.hashes), 1))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"hashes": list(self.hashes)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TextSketch:
        return TextSketch(str(data["digest"]), int(data["documents"]), tuple(map(str, data["hashes"])))


def whole_documents(documents: Iterable[Document], tokenizer: Any = None) -> list[list[int]]:
    """Documents to sketch as token ids; each row of a ready batch is one. Batches without ids are skipped.

    >>> ids, mask = torch.tensor([[3, 1, 4], [1, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    >>> whole_documents([[3, 1, 4], {"input_ids": ids, "attention_mask": mask}])
    [[3, 1, 4], [3, 1, 4], [1, 5]]
    """
    lists: list[list[int]] = []
    for index, document in enumerate(documents):
        text = document.get("text") if isinstance(document, Mapping) else document
        if not isinstance(document, Mapping) or isinstance(text, str):
            lists.append(token_ids(text, tokenizer, index))
            continue
        ids, mask = document.get("input_ids"), document.get("attention_mask")
        if isinstance(ids, Sequence):  # one document as a list
            lists.append(list(ids))
        elif isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point():
            masked = isinstance(mask, Tensor) and mask.shape == ids.shape
            real = torch.as_tensor(mask).bool() if masked else torch.ones_like(ids).bool()
            lists += [row[tokens].tolist() for row, tokens in zip(ids, real, strict=True)]
    return [document for document in lists if document]


def _bytes(document: Sequence[int]) -> bytes:
    return ",".join(map(str, document[:FIRST])).encode()


def _hash(salt: str, document: bytes) -> str:
    return sha256(salt.encode() + document).hexdigest()[:6]
