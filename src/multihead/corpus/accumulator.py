"""An accumulator learns something from runs of a model, batch by batch. `corpus.run` drives it.

Accumulators that read the batch as it is share one forward. What an accumulator has learned is its state. States of
two parts of a corpus merge into one, and a saved state can be loaded, so a run that was killed and resumed ends in
the same numbers. Random draws come from a generator of (seed, index of the batch), never from a global one.

>>> import torch
>>> from torch import nn
>>> from multihead.corpus.accumulator import Accumulator
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> class Rows(Accumulator):
...     name, rows = "rows", 0
...     def add(self, call, out): self.rows += out.shape[0] * out.shape[2]
...     def merge(self, later): self.rows += later.rows
...     def state(self): return {"rows": self.rows}
...     def load(self, state): self.rows = state["rows"]
>>> model = nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> rows = Rows()
>>> run(model, Corpus(model, [{"src": torch.randn(2, 7, 12)}, {"src": torch.randn(1, 3, 12)}]), [rows]).batches
2
>>> rows.rows
17
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call
from multihead.model.forward import Forward
from multihead.model.sites import Key, Site, Sites
from multihead.table.table import HeadTable

Inputs = Mapping[str, Any]
"""The arguments of `model(**inputs)`: input_ids, attention_mask where something is padded, maybe labels."""

State = Mapping[str, Any]
"""Nested dicts and lists of tensors, numbers, strings, bools and None."""


@dataclass(frozen=True)
class Batch:
    """Some rows of a corpus that run together."""

    inputs: Inputs
    index: int = 0
    """its index in the corpus, which seeds random draws"""
    repeated: Bool[Tensor, " row"] | None = None
    """rows that repeat an earlier document; None if no row does"""


@dataclass(frozen=True)
class BatchRun:
    """One forward on one batch, as `end` sees it: its output, and the `Forward` for reruns."""

    inputs: Inputs
    output: Any
    """None if every accumulator was satisfied before the end"""
    forward: Forward
    progress: Callable[[float], None]
    """called with the finished share of a slow batch"""


class Accumulator:
    """The base of all accumulators. Override the methods that differ, and `columns` to add columns to a table."""

    name = ""
    """one word, unique in a run: statistics, kinds, gradients, ablation, similarity"""
    grad = False
    """whether it needs gradients, and so a separate forward"""
    record = False
    """whether `end` reruns the model from its middle"""
    sharded = False
    """whether it supports models whose heads are sharded over ranks"""
    forwards = 1.0
    """about how many plain forwards one batch takes, for estimates"""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """notes on changes to the model for the runs, each once"""

    def note(self, notes: Iterable[str]) -> None:
        self.notes = list(dict.fromkeys([*self.notes, *notes]))

    def inputs(self, batch: Batch) -> Inputs | None:
        """The inputs of the forward; None skips the batch. Accumulators with equal inputs share one forward."""
        return batch.inputs

    def change(self, call: Call, out: HeadOutputs) -> HeadOutputs:
        """The head outputs with which the model continues."""
        return out

    @contextmanager
    def watching(self) -> Generator[None]:
        """A context around every forward. It installs what `add` reads besides the call: inputs of projections."""
        yield

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Called after each attention. The tensors belong to the model: copy those that you keep."""

    def satisfied(self, call: Call) -> bool:
        """Whether it needs no further call of this forward, which stops once all accumulators are satisfied."""
        return False

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Called after the forward on a batch."""

    def merge(self, later: Any) -> None:
        """Add the state of an accumulator of the same class that ran on a later part of the corpus."""
        raise NotImplementedError

    def state(self) -> State:
        """The state so far, as tensors and plain data."""
        raise NotImplementedError

    def load(self, state: State) -> None:
        """Restore `state`. Replaces attributes and does not change the old values, which copies may share."""
        raise NotImplementedError

    def columns(self) -> HeadTable:
        """The results so far as columns of a table."""
        raise NotImplementedError


@runtime_checkable
class Mergeable(Protocol):
    """The sums of one attention."""

    def merge(self, other: Any) -> object: ...

    def state(self) -> State: ...


T = TypeVar("T", bound=Mergeable)


class PerSite(Accumulator, Generic[T]):
    """One `T` per attention of the model; `merge`, `state` and `load` are written here once."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = Sites()
        self.of: dict[Key, T] = {}
        self.batches = 0

    def make(self, site: Site) -> T:
        """An empty `T` for an attention."""
        raise NotImplementedError

    def restore(self, site: Site, state: State) -> T:
        """The `T` stored in `state`."""
        raise NotImplementedError

    def of_call(self, call: Call) -> T:
        """The accumulated sums of the attention that runs."""
        self.sites.register(call.site)
        if call.key not in self.of:
            self.of[call.key] = self.make(self.sites[call.key])
        return self.of[call.key]

    def end(self, batch: Batch, run: BatchRun) -> None:
        self.batches += 1

    def merge(self, later: Any) -> None:
        """Merge the sums of a later part of the corpus, attention by attention."""
        self.sites.merge(later.sites)
        for key, sums in later.of.items():
            if key in self.of:
                self.of[key].merge(sums)
            else:
                self.of[key] = sums
        self.batches += later.batches
        self.note(later.notes)

    def state(self) -> dict[str, Any]:
        sums = [self.of[site.key].state() if site.key in self.of else None for site in self.sites]
        return {"sites": self.sites.state(), "of": sums, "batches": self.batches, "notes": list(self.notes)}

    def load(self, state: State) -> None:
        """Restore the accumulated sums of every attention."""
        self.sites, self.batches = Sites.from_state(state["sites"]), int(state["batches"])
        self.notes = list(state["notes"])
        sums = zip(self.sites, state["of"], strict=True)
        self.of = {site.key: self.restore(site, one) for site, one in sums if one is not None}


def check_same_heads(first: Sequence[str], second: Sequence[str]) -> None:
    """Raise unless accumulators of two parts of a corpus ran the same heads."""
    if list(first) != list(second):
        raise MultiheadError(
            f"one part of the corpus ran {len(first)} heads, another {len(second)}",
            hint="every batch must run the whole model",
        )
