"""A stage is one pass over the batches of a corpus; what it has taken in so far is its state.

Killed and resumed, a pass gives exactly what it would have given undisturbed: the state is everything, and what is
drawn at random is drawn from a generator of (seed, index of the batch), never from a global one.

>>> import torch
>>> from multihead.corpus.accumulator import run_stage
>>> class Count:
...     name, tokens = "count", 0
...     def step(self, batch): self.tokens += batch["input_ids"].numel()
...     def state(self): return {"tokens": self.tokens}
...     def load(self, state): self.tokens = state["tokens"]
>>> batches = [{"input_ids": torch.zeros(2, 5)}, {"input_ids": torch.zeros(1, 3)}]
>>> run_stage(Count(), batches).tokens
13
>>> resumed = Count()
>>> resumed.load({"tokens": 10})
>>> run_stage(resumed, batches, done=1).tokens
13
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from multihead.table.table import HeadTable

Batch = Mapping[str, Any]
"""What `model(**batch)` takes: input_ids, attention_mask where something is padded, maybe labels."""


@runtime_checkable
class Steps(Protocol):
    """What takes in batches and can be put down and taken up again."""

    name: str
    """one word: statistics, kinds, gradients, ablation, similarity"""

    def step(self, batch: Batch) -> None:
        """Take in one batch."""
        ...

    def state(self) -> dict[str, Any]:
        """All that was taken in: nested dicts and lists of tensors, numbers, strings and None."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` was taken."""
        ...


@runtime_checkable
class Mergeable(Steps, Protocol):
    """Steps over the parts of a corpus, which several processes take: what parts have taken in adds up.

    `once`, if set: copies of documents are to be left out. `end`, if there, is called after the last batch of each.
    """

    def begin(self, batch: int) -> None:
        """The next batch is number `batch` of the corpus: what is drawn at random is drawn for it."""
        ...

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        """The state of one pass over what two states have taken in, the first before the second."""
        ...


@runtime_checkable
class Stage(Steps, Protocol):
    """A pass that ends in columns of a table."""

    @property
    def table(self) -> HeadTable:
        """What is known after the batches so far."""
        ...


AnySteps = TypeVar("AnySteps", bound=Steps)


def run_stage(
    stage: AnySteps,
    batches: Iterable[Batch],
    *,
    done: int = 0,
    progress: Callable[[int], None] | None = None,
) -> AnySteps:
    """stage.step(batch) for every batch; the first `done` are in its state already and are passed over.

    `progress(n)` is called after each step, n being the batches taken in so far; it may save `stage.state()`.
    """
    for count, batch in enumerate(batches, start=1):
        if count <= done:
            continue
        stage.step(batch)
        if progress is not None:
            progress(count)
    return stage
