"""The batches of a corpus, part by part: the same whichever process makes them, and however many there are.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.corpus.corpus import Corpus
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=24, vocab_size=50)).eval()
>>> corpus = Corpus(model, [[3, 1, 4], [1], [5, 9], [2, 6, 5], [3]], 5, batch_size=1)
>>> [[len(batch["input_ids"][0]) for batch in corpus.read(part)] for part in range(len(corpus.parts))]
[[1, 2, 3, 3], [1]]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch import nn

from multihead.corpus.accumulator import Batch
from multihead.corpus.batches import WINDOW, Document, PaddingStats, batches
from multihead.corpus.merge_tree import BATCHES, MOST, parts_of
from multihead.errors import MultiheadError


class Corpus:
    """Documents that can be read again, in parts; a part that follows the one read last goes on where it ended."""

    def __init__(
        self,
        model: nn.Module,
        documents: Iterable[Document],
        count: int,
        *,
        tokenizer: Any = None,
        batch_size: int = 8,
        max_tokens: int | None = None,
        window: int = WINDOW,
        most: int = MOST,
        copies: frozenset[int] = frozenset(),
    ) -> None:
        """`count` documents there are; `copies` are the numbers of those that an earlier one is the same as."""
        self.parts = parts_of(count, unit=BATCHES * batch_size, most=most)
        self.model, self.documents, self.copies = model, documents, copies
        self.options: dict[str, Any] = {
            "tokenizer": tokenizer,
            "batch_size": batch_size,
            "max_tokens": max_tokens,
            "window": window,
        }
        self._open: Iterator[Document] = iter(())
        self._at = -1

    def read(self, part: int, *, once: bool = False, tally: PaddingStats | None = None) -> Iterator[Batch]:
        """The batches of a part; with `once`, without documents that came before, in whichever part."""
        found = self._documents(self.parts[part], self.copies if once else frozenset())
        return batches(self.model, found, **self.options, tally=tally, may_be_empty=True)

    def first(self) -> Batch:
        """The first batch that there is."""
        for part in range(len(self.parts)):
            for batch in self.read(part):
                return batch
        raise MultiheadError("there was nothing to measure: no document has a token")

    def count(self) -> int:
        """Batches of all parts, by making them."""
        return sum(1 for part in range(len(self.parts)) for _ in self.read(part))

    def _documents(self, where: range, without: frozenset[int]) -> Iterator[Document]:
        if self._at != where.start:
            self._open = islice(iter(self.documents), where.start, None)
        self._at = -1  # nobody goes on from the midst of a part
        mine, at = self._open, where.start
        for document in islice(mine, len(where)):
            at += 1
            if at - 1 not in without:
                yield document
        if at == where.stop and self._open is mine:
            self._at = at
