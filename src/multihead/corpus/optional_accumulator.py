"""An accumulator that may not support the model, in a pass with others."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from copy import copy

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs, State
from multihead.errors import MultiheadError
from multihead.model.call import Call


class Tolerant(Accumulator):
    """Stops at the first `MultiheadError` of `inner` and keeps its reason; the others of the pass continue."""

    def __init__(self, inner: Accumulator) -> None:
        super().__init__()
        self.inner, self.reason = inner, ""
        self.name, self.grad, self.record, self.sharded = inner.name, inner.grad, inner.record, inner.sharded

    @contextmanager
    def _caught(self) -> Generator[None]:
        """Catch an error of the optional accumulator, which is then skipped for the rest of the pass."""
        try:
            yield
        except MultiheadError as refused:
            self.reason = refused.message.partition("\n")[0]

    def inputs(self, batch: Batch) -> Inputs | None:
        """The inputs of the optional accumulator; None once it has raised."""
        if self.reason:
            return None
        with self._caught():
            return self.inner.inputs(batch)
        return None

    @contextmanager
    def watching(self) -> Generator[None]:
        with self.inner.watching():
            yield

    def add(self, call: Call, out: HeadOutputs) -> None:
        if not self.reason:
            with self._caught():
                self.inner.add(call, out)

    def end(self, batch: Batch, run: BatchRun) -> None:
        """End a batch of the optional accumulator, unless it has raised."""
        if not self.reason:
            with self._caught():
                self.inner.end(batch, run)
        self.inner.note(run.forward.notes)

    def merge(self, later: Tolerant) -> None:
        """Merge with the optional accumulator of a later part; if one has raised, both have."""
        self.reason = self.reason or later.reason
        if not self.reason:
            with self._caught():
                self.inner.merge(later.inner)

    def state(self) -> State:
        return {"reason": self.reason, "inner": self.inner.state()}

    def load(self, state: State) -> None:
        self.reason, self.inner = str(state["reason"]), copy(self.inner)
        self.inner.load(state["inner"])
