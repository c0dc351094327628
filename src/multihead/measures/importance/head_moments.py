"""Means and standard errors over documents of some numbers of every head: the sums of every importance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.plural import plural
from multihead.corpus.accumulator import Accumulator, State, check_same_heads
from multihead.errors import MultiheadError
from multihead.model.statistics.stream_moments import StreamMoments

NO_DOCUMENT = "no document has a token that the loss is of"
NO_EFFECT = "0: the loss does not depend on this head in any document"


class HeadMoments(Accumulator):
    """Sums of `count` numbers of every head, over documents. Every batch must run the same heads."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.batches = 0
        self.heads: list[str] = []
        self._moments: StreamMoments | None = None

    def add_documents(self, heads: Sequence[str], numbers: Float[Tensor, "number head document"]) -> None:
        """Add the documents of one batch to the moments of heads; NaN marks a document that does not count."""
        if self._moments is None:
            self.heads, self._moments = list(heads), StreamMoments([None] * self.count, len(heads))
        check_same_heads(self.heads, heads)
        self._moments.add(numbers.cpu(), slice(0, len(heads)), range(self.count))
        self.batches += 1

    @property
    def moments(self) -> StreamMoments:
        if self._moments is None:
            raise MultiheadError("no batch has run yet", hint=f"run(model, corpus, [{self.name}]) first")
        return self._moments

    def mean_and_error(self, number: int) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
        """The mean of a head's number, and its standard error √(Σ (x − mean)² / (n (n − 1))), over documents."""
        count = self.moments.count[number]
        mean = self.moments.mean[number].masked_fill(count == 0, torch.nan)
        error = (self.moments.squares[number] / (count * (count - 1)).clamp(min=1)).sqrt()
        return mean, error.masked_fill(count < 2, torch.nan)

    def error_reasons(self, error: Float[Tensor, " head"]) -> dict[str, str]:
        """Why some heads have no standard error."""
        missing = zip(self.heads, error.isnan().tolist(), strict=True)
        return {head: "one document has no spread: use two or more" for head, none in missing if none}

    def merge(self, later: Any) -> None:
        """Add the moments of heads over a later part of the corpus."""
        if later._moments is None:
            return
        if self._moments is None:
            self.load(later.state())
            return
        check_same_heads(self.heads, later.heads)
        self._moments.merge(later._moments)
        self.batches += later.batches
        self.note(later.notes)

    def state(self) -> dict[str, Any]:
        """The moments of heads as plain data."""
        return {
            "batches": self.batches,
            "heads": list(self.heads),
            "notes": list(self.notes),
            "moments": None if self._moments is None else self._moments.state(),
        }

    def load(self, state: State) -> None:
        """Restore the moments of heads."""
        self.batches, self.heads, self.notes = int(state["batches"]), list(state["heads"]), list(state["notes"])
        self._moments = None
        if state["moments"] is not None:
            self._moments = StreamMoments([None] * self.count, len(self.heads))
            self._moments.load(state["moments"])


def check_documents(documents: int, rows: int) -> None:
    """Raise where the rows of the attention are not the documents of the batch."""
    if rows != documents > 1:
        raise MultiheadError(
            f"the batch has {plural(documents, 'document')} by its first axis, and attention runs in "
            f"{plural(rows, 'row')}: the document of each row is unknown",
            hint="put the batch axis first (batch_first=True), or run one document at a time: batch_size=1",
        )
