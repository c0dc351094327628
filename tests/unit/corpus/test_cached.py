"""A cached corpus gives the batches of a corpus, and reads and tokenizes its documents once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2Model

from multihead.corpus.batches import PaddingStats
from multihead.corpus.documents import CachedCorpus, Corpus
from multihead.errors import MultiheadError

DOCUMENTS = [[7, 8, 9, 7, 8, 3], [11, 12, 5], [13, 14, 15, 16, 17, 18, 13], [11, 12, 5], [5, 6, 5], [9], [2, 4]]


@pytest.fixture(scope="module")
def model() -> Any:
    return GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=24, vocab_size=50, n_positions=31)).eval()


def read(corpus: Corpus) -> list[Any]:
    """Every batch as plain data, with the padding of its part."""
    batches: list[Any] = []
    for part in corpus.parts():
        padding = PaddingStats()
        for batch in corpus.read(part, padding):
            inputs = {name: (x.dtype, x.tolist()) for name, x in batch.inputs.items()}
            batches.append((part, batch.index, inputs, None if batch.repeated is None else batch.repeated.tolist()))
        batches.append(padding)
    return batches


@pytest.mark.parametrize("options", [{}, {"part_batches": 1}, {"count": len(DOCUMENTS), "part_batches": 1}])
def test_the_same_batches(model: Any, options: dict[str, Any]) -> None:
    plain = Corpus(model, DOCUMENTS, batch_size=2, **options)
    cached = CachedCorpus(model, DOCUMENTS, batch_size=2, **options)
    want = read(plain)
    assert len({batch[0] for batch in want if isinstance(batch, tuple)}) == (4 if options else 1)
    assert read(cached) == read(cached) == want
    assert any(batch[3] for batch in want if isinstance(batch, tuple)), "a document comes twice"
    assert cached.count_batches() == plain.count_batches()
    assert cached.document_count == len(DOCUMENTS)
    first = cached.first()
    assert torch.equal(first.inputs["input_ids"], plain.first().inputs["input_ids"])


def test_documents_are_read_once(model: Any) -> None:
    reads = 0

    def documents() -> Iterator[list[int]]:
        nonlocal reads
        for document in DOCUMENTS:
            reads += 1
            yield document

    cached = CachedCorpus(model, documents(), batch_size=2, part_batches=1)
    assert read(cached) == read(cached)
    assert cached.first().index == 0
    assert reads == cached.document_count == len(DOCUMENTS)


def test_ids_are_held_with_32_bits_and_ready_batches_keep_their_types(model: Any) -> None:
    cached = CachedCorpus(model, DOCUMENTS, batch_size=2)
    size = sum(x.values.element_size() for batch in cached._parts[0][0] for x in batch.inputs.values())  # pyright: ignore[reportPrivateUsage]
    assert size == 4 * sum(len(batch.inputs) for batch in cached._parts[0][0])  # pyright: ignore[reportPrivateUsage]
    ready = {
        "input_ids": torch.tensor([[3, 1]], dtype=torch.int32),
        "labels": torch.tensor([[1 << 40, -(1 << 40)]]),
        "inputs_embeds": torch.randn(1, 2, 24),
    }
    batch = CachedCorpus(model, [ready]).first()
    assert {name: x.dtype for name, x in batch.inputs.items()} == {name: x.dtype for name, x in ready.items()}
    assert all(torch.equal(batch.inputs[name], x) for name, x in ready.items())


def test_nothing_to_read(model: Any) -> None:
    with pytest.raises(MultiheadError, match="nothing to measure"):
        CachedCorpus(model, []).first()
