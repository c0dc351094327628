"""Sums over keys for many query rows, and the statistics computed from them row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multihead.model.statistics.catalogue import SATURATED

Rows = Float[Tensor, "batch head query"]

SUMS = ("visible", "top", "below", "below_norm", "max_weight", "surprise", "weight_norm", "variance")
"""Per row: visible keys, the maximum m of the scores, Σ (s − m), √Σ (s − m)², max p, Σ p (s − m), √Σ p², and the
variance of the key position under p. Only m, p and the surprise include additive masks and biases."""


@dataclass(frozen=True)
class Measured:
    """Statistics by name, each (batch, head, query), and the rows to exclude."""

    numbers: dict[str, Rows]
    near: Float[Tensor, "offset batch head query"] | None  # masses on offsets, in self-attention
    empty: Bool[Tensor, "batch head query"]  # rows without a visible key
    broken: Bool[Tensor, "batch head query"]  # rows computed from NaN or inf


@dataclass(frozen=True)
class RowSums:
    """Sums by name, such as `sums["max_weight"]`: first SUMS, then Σ p x for each feature x."""

    names: tuple[str, ...]
    sums: Float[Tensor, "name batch head query"]
    near: Float[Tensor, "offset batch head query"] | None  # p at query + offset, in self-attention

    @staticmethod
    def height(features: Sequence[str], offsets: int) -> int:
        return len(SUMS) + len(features) + offsets

    @staticmethod
    def over(memory: Float[Tensor, "height batch head query"], features: Sequence[str], offsets: int) -> RowSums:
        """Uninitialized sums in this memory."""
        names = (*SUMS, *features)
        return RowSums(names, memory[: len(names)], memory[len(names) :] if offsets else None)

    def of(self, queries: slice) -> RowSums:
        """The sums of some queries."""
        near = None if self.near is None else self.near[..., queries]
        return RowSums(self.names, self.sums[..., queries], near)

    def __getitem__(self, name: str) -> Rows:
        return self.sums[self.names.index(name)]

    def put(self, names: Sequence[str], sums: Float[Tensor, "some_name batch head query"]) -> None:
        """Write sums whose names are consecutive."""
        if names:
            start = self.names.index(names[0])
            self.sums[start : start + len(names)] = sums

    def mean_place(self, query: Float[Tensor, "query_rows query"]) -> Rows:
        """Σ p position: summed directly in cross-attention, otherwise from the distances to the query."""
        return self["place"] if "place" in self.names else query.unsqueeze(1) - self._signed_distance()

    def _signed_distance(self) -> Rows:
        return self["behind"] - self["ahead"] if "ahead" in self.names else self["behind"]

    def finish(
        self,
        query: Float[Tensor, "query_rows query"],
        sink: Float[Tensor, "head 1"] | None,
        output_norm: Rows,
        bad: Bool[Tensor, "batch head query"] | None,
    ) -> Measured:
        """All statistics of the rows; every sum must be written. `bad` rows see a non-finite key or value."""
        visible, log_inverse_max = self["visible"], -self["max_weight"].log()
        entropy, lse = log_inverse_max - self["surprise"], self["top"] + log_inverse_max
        mean_shifted = self["below"] / visible
        numbers: dict[str, Rows] = {
            "entropy": entropy,
            "relative_entropy": (entropy / visible.log()).masked_fill_(visible < 2, torch.nan),
            "perplexity": entropy.exp(),
            "effective_keys": self["weight_norm"].square().reciprocal_(),
            "position_std": self["variance"].sqrt(),
            "logit_scale": (self["below_norm"].square() / visible - mean_shifted.square()).clamp_(min=0).sqrt_(),
            "output_norm": output_norm,
            "visible": visible,
        }
        masses = {name: self[name] for name in self.names if name not in SUMS} | {"max_weight": self["max_weight"]}
        near, empty = self.near, visible == 0
        if near is not None:
            numbers["signed_distance"] = self._signed_distance()
            behind, ahead = masses.pop("behind"), masses.pop("ahead", None)
            numbers["distance"] = behind if ahead is None else behind + ahead
            centre = near.shape[0] // 2
            masses |= {"previous": near[centre - 1], "self": near[centre], "next": near[centre + 1]}
            if ahead is None:
                masses["before"] = (1 - masses["self"]).clamp_(min=0)
                masses["after"] = torch.zeros_like(masses["before"])
        else:
            masses.pop("place")
        if sink is not None:
            # The keys keep the mass σ(lse − sink); the sink has σ(sink − lse).
            key_mass = torch.sigmoid(lse - sink)
            masses = {name: mass * key_mass for name, mass in masses.items()}
            near = None if near is None else near * key_mass
            numbers["sink"] = torch.sigmoid(sink - lse)
            lse = torch.logaddexp(lse, sink)
        numbers |= masses
        numbers["lse"] = lse
        numbers["saturated"] = (numbers["max_weight"] > SATURATED).to(lse.dtype)
        broken = ~(torch.isfinite(lse) & torch.isfinite(output_norm))
        if bad is not None:
            broken |= bad
        return Measured(numbers, near, empty, broken & ~empty)
