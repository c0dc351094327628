"""A corpus: documents in parts, each part in batches. The same for any number of processes that read it.

`Documents` are counted and can be read again; `multihead.corpus.text_files` makes them from files.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.corpus.documents import Corpus
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=24, vocab_size=50)).eval()
>>> corpus = Corpus(model, [[3, 1, 4], [1], [5, 9], [2, 6, 5], [3]], batch_size=2)
>>> [[batch.inputs["input_ids"].tolist() for batch in corpus.read(part)] for part in corpus.parts()]
[[[[1], [3]], [[5, 9, 0], [3, 1, 4]], [[2, 6, 5]]]]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain, islice
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead._base.arguments import check_data, check_model, describe
from multihead.corpus.accumulator import Batch, Inputs
from multihead.corpus.batches import (
    BATCH_SIZE,
    WINDOW,
    Batching,
    Document,
    PaddingStats,
    SeenTexts,
    make_batches,
    no_tokens,
)
from multihead.corpus.merge_tree import BATCHES, part_range, parts_of
from multihead.corpus.padding_check import PaddingCheck
from multihead.corpus.two_texts import Answers
from multihead.errors import MultiheadError
from multihead.model.model_inputs import documents_in

NUMBERED = 1_000_000
"""Batches of part p are numbered from p times this. The number of a batch seeds its random draws."""

COMPARED = 10_000_000
"""Repeats are found among this many first documents; 8 bytes are held of each."""

_END = object()


@dataclass(frozen=True)
class Documents:
    """Documents that can be read repeatedly: texts or lists of token ids, which need not be held, or batches."""

    read: Callable[[], Iterable[Any]]
    name: str
    count: int
    size: int
    """characters, token ids, or rows of batches"""
    fingerprint: str
    """equal for the same documents in the same order"""
    copies: tuple[int, ...] = ()
    """the indices of documents that an earlier one is equal to, among the first `COMPARED`"""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    def counts(self) -> dict[str, Any]:
        """Counts and fingerprint of the documents as plain data, which `of` takes instead of counting."""
        return {
            "count": self.count, "size": self.size, "fingerprint": self.fingerprint, "copies": list(self.copies)
        }  # fmt: skip

    @staticmethod
    def of(read: Callable[[], Iterable[Any]], name: str, counts: Mapping[str, Any] | None = None) -> Documents:
        """Count and fingerprint documents by reading them once, unless `counts` of another process are passed."""
        if counts is not None:
            known: dict[str, Any] = {**counts, "copies": tuple(counts["copies"])}
            return Documents(read, name, **known)
        digest, seen, count, size, copies = sha256(), SeenTexts(), 0, 0, list[int]()
        for document in read():
            data = document_bytes(document)
            length = len(document)
            if data is None and isinstance(document, Mapping):
                data, length = _batch_bytes(cast(Mapping[str, Any], document)), documents_in(document)
            if data is None:
                raise MultiheadError(
                    f"{name} must be texts, lists of token ids or batches to be counted, got {describe(document)}",
                    hint="a batch is a mapping of tensors by name",
                )
            digest.update(len(data).to_bytes(8, "big") + data)
            if count < COMPARED and seen.add(data):
                copies.append(count)
            count, size = count + 1, size + length
        if not count:
            raise MultiheadError(f"{name} contains no text", hint="documents of only white space do not count")
        return Documents(read, name, count, size, digest.hexdigest()[:16], tuple(copies))


class Corpus:
    """Documents, read part by part. Reading a part after its predecessor continues the same iterator.

    Args:
        count: the number of documents, if it is known, as for `Documents`; needed to share parts among processes.
        repeated: the indices of documents that an earlier one is equal to; if None, those of `Documents`, otherwise
            found while reading.
        part_batches: batches of one of the first parts; by default `merge_tree.BATCHES`.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Iterable[Document] | Mapping[str, Any],
        *,
        tokenizer: Any = None,
        batch_size: int = BATCH_SIZE,
        max_tokens: int | None = None,
        window: int = WINDOW,
        column: str = "text",
        count: int | None = None,
        repeated: frozenset[int] | None = None,
        part_batches: int | None = None,
    ) -> None:
        check_model(model)
        check_data(data)
        if isinstance(data, Documents):
            count, repeated = data.count, frozenset(data.copies)
        self.model, self.count, self.repeated = model, count, repeated
        self.part_batches = part_batches
        self.documents: Iterable[Document] = [cast(Document, data)] if isinstance(data, Mapping) else data
        self.batching = Batching(tokenizer, batch_size, max_tokens, window, column)
        self.batching.check(model)
        self.padding_check = PaddingCheck(model)
        self.answers = Answers(model)
        self._open: Iterator[Document] = iter(())
        self._restart()

    def _restart(self) -> None:
        self._next = -1  # the next document of `_open`; -1 if it cannot be continued
        self._ended = False
        self._seen = SeenTexts()

    @property
    def unit(self) -> int:
        """The number of documents in each of the first parts."""
        return (self.part_batches or BATCHES) * self.batching.batch_size

    def ranges(self) -> list[range]:
        """The documents of every part; `count` must be known."""
        assert self.count is not None
        return parts_of(self.count, unit=self.unit)

    def parts(self) -> Iterator[int]:
        """The index of every part of the documents, while they last."""
        self._restart()
        if self.count is not None:
            yield from range(len(self.ranges()))
            return
        part = 0
        while not self._ended:
            yield part
            part += 1

    def read(self, part: int, padding: PaddingStats | None = None) -> Iterator[Batch]:
        """The batches of a part of the documents."""
        documents = self._documents(part_range(part, unit=self.unit))
        batches = make_batches(
            self.model,
            documents,
            self.batching,
            padding=padding,
            seen=self._seen if self.repeated is None else None,  # else the order of reading would count
            check=self.padding_check,
            answers=self.answers,
        )
        for number, (inputs, repeated) in enumerate(batches):
            yield Batch(inputs, part * NUMBERED + number, repeated)

    def inputs(self) -> Iterator[Inputs]:
        """The inputs of every batch. The documents must be readable more than once."""
        for part in self.parts():
            for batch in self.read(part):
                yield batch.inputs
        self._restart()

    def first(self) -> Batch:
        """The first batch. The documents must be readable more than once."""
        for part in self.parts():
            for batch in self.read(part):
                self._restart()
                return batch
        raise no_tokens(0)

    def count_batches(self) -> int:
        """Batches of all parts, by making them."""
        count = sum(1 for part in self.parts() for _ in self.read(part))
        self._restart()
        return count

    def _documents(self, indices: range) -> Iterator[tuple[Document, bool]]:
        """The documents at some indices, and whether each is a repeat."""
        if self._next != indices.start:
            self._open = islice(iter(self.documents), indices.start, None)
        self._next = -1  # a part that is left in its middle cannot be continued
        opened, index = self._open, indices.start
        for document in islice(opened, len(indices)):
            yield document, self._came_before(document, index)
            index += 1
        if self._open is not opened:  # another part was opened meanwhile
            return
        self._next = index
        following = next(opened, _END) if self.count is None else None
        self._ended = following is _END
        if following is not None and following is not _END:
            self._open = chain([cast(Document, following)], opened)

    def _came_before(self, document: Document, index: int) -> bool:
        """Whether an equal document came before this one."""
        if self.repeated is not None:
            return index in self.repeated
        data = document_bytes(document, self.batching.column)
        return data is not None and self._seen.add(data)


class CachedCorpus(Corpus):
    """A corpus whose documents are read and tokenized once, for several passes.

    Its batches are kept in main memory, token ids with 32 bits, and moved to the model's device one at a time.
    """

    def parts(self) -> Iterator[int]:
        return iter(self._parts)

    def read(self, part: int, padding: PaddingStats | None = None) -> Iterator[Batch]:
        """The batches of a part of the documents, from main memory."""
        batches, stats = self._parts[part]
        if padding is not None:
            padding.merge(stats)
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        for batch in batches:
            yield replace(batch, inputs={name: _on_device(x, device) for name, x in batch.inputs.items()})

    def first(self) -> Batch:
        """The first batch of the documents in memory."""
        batch = next((batch for part in self.parts() for batch in self.read(part)), None)
        if batch is None:
            raise no_tokens(0)
        return batch

    def count_batches(self) -> int:
        return sum(len(batches) for batches, _ in self._parts.values())

    @property
    def document_count(self) -> int:
        return self._read if self._parts else 0

    def _documents(self, indices: range) -> Iterator[tuple[Document, bool]]:
        for document, repeated in super()._documents(indices):
            self._read += 1
            yield document, repeated

    @cached_property
    def _parts(self) -> dict[int, tuple[list[Batch], PaddingStats]]:
        """All parts as batches in main memory."""
        self._read = 0
        parts: dict[int, tuple[list[Batch], PaddingStats]] = {}
        for part in super().parts():
            stats = PaddingStats()
            batches = list[Batch]()
            for batch in super().read(part, stats):
                batches.append(replace(batch, inputs={name: _stored(x) for name, x in batch.inputs.items()}))
            parts[part] = (batches, stats)
        self._restart()
        return parts


@dataclass(frozen=True)
class _Narrow:
    """A tensor of 64-bit integers, stored with 32 bits."""

    values: Tensor


def _stored(x: Any) -> Any:
    """An input as `CachedCorpus` keeps it: in main memory, 64-bit integers in 32 bits if they fit."""
    if not isinstance(x, Tensor):
        return x
    x = x.cpu()
    if x.dtype != torch.long or not x.numel() or max(-int(x.min()), int(x.max())) >= 1 << 31:
        return x
    return _Narrow(x.int())


def _on_device(x: Any, device: torch.device) -> Any:
    if isinstance(x, _Narrow):
        return x.values.to(device, torch.long)
    return x.to(device) if isinstance(x, Tensor) else x


def document_number(index: int, batch_size: int = BATCH_SIZE) -> int:
    """The document of a batch, by the batch's index, in a corpus of ready batches."""
    part, number = divmod(index, NUMBERED)
    return part_range(part, unit=BATCHES * batch_size).start + number


def document_bytes(document: Any, column: str = "text") -> bytes | None:
    """What identifies a document: its text or its token ids; None for a ready batch."""
    if isinstance(document, str):
        return document.encode()
    if isinstance(document, Tensor):
        return json.dumps(document.tolist()).encode()
    if isinstance(document, Sequence):
        return json.dumps(list(cast(Sequence[Any], document))).encode()
    text = document.get(column) if isinstance(document, Mapping) else None
    return text.encode() if isinstance(text, str) else None


def _batch_bytes(batch: Mapping[str, Any]) -> bytes | None:
    """What identifies a ready batch: names, shapes and values of its tensors; None if it holds other objects."""
    parts: list[bytes] = []
    for name, x in sorted(batch.items()):
        if isinstance(x, Tensor):
            values = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            parts += [f"{name} {x.dtype} {tuple(x.shape)}".encode(), values]
        elif isinstance(x, str | int | float | list | None):
            parts.append(f"{name} {x!r}".encode())
        else:
            return None
    return b"\n".join(parts)


def rereadable(data: Any) -> Any:
    """The data, or a list of it where it can be read only once."""
    return list(data) if iter(data) is data else data
