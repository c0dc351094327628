"""Means over documents with confidence intervals. The unit is the document: its tokens are not independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead.model.statistics.stream_moments import StreamMoments

ENOUGH = 5
"""Minimum documents for an interval, and thus for a kind."""

LEVEL = 0.95


class DocumentMeans:
    """Mean and confidence interval over documents for named streams of values, (stream, head)."""

    def __init__(self, names: Sequence[str], heads: int) -> None:
        self.names = list(names)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.moments = StreamMoments([None] * len(self.names), heads)
        self.heads = heads

    def add(self, numbers: Mapping[str, Float[Tensor, " document #head"]]) -> None:
        """Add documents; NaN marks a missing value."""
        present = [name for name in self.names if name in numbers]
        if present:
            table = torch.stack([numbers[n].double().expand(-1, self.heads).T for n in present])
            self.moments.add(table, slice(0, self.heads), [self.index[n] for n in present])

    @property
    def count(self) -> Int[Tensor, "stream head"]:
        return self.moments.count

    @property
    def mean(self) -> Float[Tensor, "stream head"]:
        return self.moments.mean.masked_fill(self.moments.count == 0, torch.nan)

    @property
    def half(self) -> Float[Tensor, "stream head"]:
        """t · s / √n, half the width of the interval; NaN with fewer than ENOUGH documents."""
        from scipy.stats import t  # pyright: ignore[reportMissingTypeStubs]

        n = self.moments.count.double()
        freedom = (n - 1).clamp(min=1)
        quantile = torch.from_numpy(t.ppf(0.5 + LEVEL / 2, freedom.numpy()))
        error = (self.moments.squares / freedom / n.clamp(min=1)).sqrt()
        return (quantile * error).masked_fill(n < ENOUGH, torch.nan)

    def merge(self, other: DocumentMeans) -> DocumentMeans:
        """Add the documents of `other`."""
        self.moments.merge(other.moments)
        return self

    def state(self) -> dict[str, Any]:
        return {"names": list(self.names), "heads": self.heads, "moments": self.moments.state()}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> DocumentMeans:
        means = DocumentMeans(state["names"], int(state["heads"]))
        means.moments.load(state["moments"])
        return means
