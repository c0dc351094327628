"""Measures share forwards where their inputs are equal, change nothing for each other, and hold few documents."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead.corpus.accumulator import Accumulator
from multihead.corpus.batches import BATCH_SIZE
from multihead.corpus.documents import Corpus
from multihead.corpus.merge_tree import BATCHES
from multihead.corpus.run import run
from multihead.measures.importance.ablation import Ablation, MeanOutputs
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.losses import LanguageModel, MaskedLanguageModel
from multihead.measures.kinds.kinds import DocumentEvidence, kinds_options
from multihead.measures.kinds.shuffled import ShuffledTokens
from multihead.measures.similarity.ov_circuits import find_weights
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.measures.statistics_sum import StatisticsSum
from multihead.model.statistics.statistics_options import Statistics
from multihead.show.token_pairs import TokenPairs

VOCABULARY = 101


def documents(count: int) -> list[list[int]]:
    """Of 5 to 11 tokens, no two alike."""
    draw = torch.Generator().manual_seed(3)
    lengths = torch.randint(5, 12, (count,), generator=draw).tolist()
    return [torch.randint(5, VOCABULARY, (n,), generator=draw).tolist() for n in lengths]


@contextmanager
def each_call(model: nn.Module, seen: Callable[[Any], None]) -> Generator[None]:
    """Call `seen` with the inputs of every forward of the model."""
    handle = model.register_forward_pre_hook(lambda _, args, kwargs: seen(kwargs), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def calls(model: nn.Module, accumulators: Iterable[Accumulator], corpus: Corpus) -> int:
    inputs: list[Any] = []
    with each_call(model, inputs.append):
        run(model, corpus, list(accumulators))
    return len(inputs)


# ---- one forward for all ----------------------------------------------------------------------


def readers(model: nn.Module) -> list[Accumulator]:
    """All that read a batch as it is."""
    return [
        StatisticsSum(Statistics()),
        DocumentEvidence(kinds_options()),
        MeanOutputs(),
        SimilaritySum(find_weights(model)),
        TokenPairs(),
    ]


def test_accumulators_of_equal_inputs_share_one_forward_per_batch() -> None:
    model = zoo.ZOO["gpt2"].build()
    corpus = Corpus(model, documents(41), batch_size=3)
    batches = corpus.count_batches()
    assert batches == 3 * 4 + 2, "3 parts of 12 documents and one of 5"
    assert calls(model, readers(model)[:1], corpus) == batches
    assert calls(model, readers(model), corpus) == batches


def test_other_inputs_and_gradients_take_a_forward_of_their_own() -> None:
    model = zoo.ZOO["gpt2"].build()
    corpus = Corpus(model, documents(7), batch_size=3)
    batches = corpus.count_batches()
    for others in (
        [ShuffledTokens(model, kinds_options())],
        [Gradients(LanguageModel())],
        [Ablated(MaskedLanguageModel(4))],
    ):
        assert calls(model, [*readers(model), *others], corpus) == 2 * batches
    both = [ShuffledTokens(model, kinds_options()), Gradients(LanguageModel())]
    assert calls(model, [*readers(model), *both], corpus) == 3 * batches


class Ablated(Ablation):
    """Only the first run of a batch."""

    def end(self, batch: Any, run: Any) -> None:
        self.batches += 1


def everything(model: nn.Module) -> list[Accumulator]:
    options = kinds_options()
    return [
        Ablation(LanguageModel()),  # first: it runs the model again before the others end the batch
        StatisticsSum(Statistics()),
        DocumentEvidence(options, seed=3),
        ShuffledTokens(model, options, seed=3),
        Gradients(LanguageModel(), seed=3),
        MeanOutputs(),
        SimilaritySum(find_weights(model), seed=3),
        TokenPairs(),
    ]


def test_together_they_learn_what_each_learns_alone() -> None:
    """To the bit: none hears the reruns, the shuffled tokens or the gates of another."""
    model = zoo.ZOO["gpt2"].build()
    corpus = Corpus(model, documents(41), batch_size=3)
    together = everything(model)
    run(model, corpus, together)
    for index, one in enumerate(together):
        alone = everything(model)[index]
        run(model, corpus, [alone])
        same(one.state(), alone.state(), one.name)


def same(first: Any, second: Any, where: str) -> None:
    """Nested states are equal to the bit."""
    assert type(first) is type(second), where
    if isinstance(first, Tensor):
        assert first.dtype == second.dtype, where
        assert torch.equal(first.nan_to_num(-7.0), second.nan_to_num(-7.0)), where
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for name, value in first.items():
            same(value, second[name], f"{where}.{name}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for index, (a, b) in enumerate(zip(first, second, strict=True)):
            same(a, b, f"{where}[{index}]")
    else:
        assert first == second, where


@pytest.mark.parametrize("count", [None, 7])
def test_a_second_pass_over_a_corpus_finds_no_more_copies(count: int | None) -> None:
    model, texts = zoo.ZOO["gpt2"].build(), documents(6)
    corpus = Corpus(model, [*texts, texts[2]], count=count, batch_size=3)
    for _ in range(2):
        evidence = DocumentEvidence(kinds_options())
        run(model, corpus, [evidence])
        assert (evidence.documents, evidence.copies) == (6, 1)


# ---- a corpus is not held ---------------------------------------------------------------------


class Document(list[int]):
    """A list that can be watched."""


@dataclass
class Source:
    """Documents that are made when they are asked for. Remembers how many were, and which are still there."""

    texts: list[list[int]]
    made: list[weakref.ref[Document]] = field(default_factory=list)
    passes: int = 0

    def __iter__(self) -> Iterator[Document]:
        self.passes += 1
        for text in self.texts:
            document = Document(text)
            self.made.append(weakref.ref(document))
            yield document
            del document

    @property
    def alive(self) -> int:
        return sum(document() is not None for document in self.made)


class Watch:
    """How many documents were made before the first batch, and how much is there at once, seen by the model."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.before_the_first = 0
        self.most_documents = self.most_batches = self.calls = 0
        self._inputs: list[weakref.ref[Tensor]] = []

    def __call__(self, inputs: Any) -> None:
        ids = inputs["input_ids"]
        if not self.calls:
            self.before_the_first = len(self.source.made)
        self.calls += 1
        if not self._inputs or all(ref() is not ids for ref in self._inputs):
            self._inputs.append(weakref.ref(ids))
        self.most_documents = max(self.most_documents, self.source.alive)
        if self._batches() > HELD:
            gc.collect()  # ids may wait for it in a cycle
        self.most_batches = max(self.most_batches, self._batches())

    def _batches(self) -> int:
        return sum(ref() is not None for ref in self._inputs)


MEASURES: dict[str, Callable[[nn.Module, Any], object]] = {
    "measure": lambda model, data: mh.measure(model, data),
    "kinds": lambda model, data: mh.kinds(model, data),
    "gradient": lambda model, data: mh.importance(model, data),
    "ablation": lambda model, data: mh.importance(model, data, method="ablation", replace="mean"),
    "similarity": lambda model, data: mh.similarity(model, data),
}

PART, HELD = BATCHES * BATCH_SIZE, 3


@pytest.mark.fast("measure", "gradient", "ablation", "similarity")
@pytest.mark.parametrize("name", MEASURES)
def test_few_documents_and_batches_are_held_at_once(name: str) -> None:
    """A part of the corpus is read, then its batches run one after the other."""
    source = Source(documents(3 * PART))
    watch, model = Watch(source), zoo.ZOO["gpt2"].build()
    with each_call(model, watch):
        MEASURES[name](model, source)
    assert watch.calls >= 3 * BATCHES
    assert len(source.made) >= 3 * PART
    assert watch.before_the_first <= PART + 1
    assert watch.most_documents <= PART + 1
    assert watch.most_batches <= HELD
    assert source.alive == 0


@pytest.mark.fast("kinds")
@pytest.mark.parametrize("name", ["measure", "kinds", "similarity"])
def test_one_pass_is_enough_for_a_generator(name: str) -> None:
    source = Source(documents(3 * PART))
    watch, model = Watch(source), zoo.ZOO["gpt2"].build()
    with each_call(model, watch):
        MEASURES[name](model, iter(source))
    assert (source.passes, len(source.made)) == (1, 3 * PART)
    assert watch.most_documents <= PART + 1
