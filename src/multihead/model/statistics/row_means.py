"""Sums over keys of many query rows, and the statistics that follow from them row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multihead.model.statistics.catalogue import SATURATED

Rows = Float[Tensor, "batch head query"]

SUMS = ("visible", "top", "below", "below_norm", "max_weight", "surprise", "weight_norm", "variance")
"""Of every row: its keys, the maximum m of the scores, Σ (s − m), √Σ (s − m)², max p, Σ p (s − m), √Σ p², and the
variance of the key's place under p. What masks and biases add is in m, p and the surprise alone."""


@dataclass(frozen=True)
class Measured:
    """Statistics by name, each (batch, head, query), and which rows count."""

    numbers: dict[str, Rows]
    near: Float[Tensor, "offset batch head query"] | None  # masses on offsets, of self-attention
    empty: Bool[Tensor, "batch head query"]  # the mask lets them see nothing
    broken: Bool[Tensor, "batch head query"]  # NaN or inf in what they are computed from


@dataclass(frozen=True)
class Sheet:
    """`sheet["max_weight"]` of every row; after SUMS come the sums Σ p x of the features x, by their names."""

    names: tuple[str, ...]
    sums: Float[Tensor, "name batch head query"]
    near: Float[Tensor, "offset batch head query"] | None  # p at query + offset, where both are one sequence

    @staticmethod
    def height(features: Sequence[str], offsets: int) -> int:
        return len(SUMS) + len(features) + offsets

    @staticmethod
    def over(memory: Float[Tensor, "height batch head query"], features: Sequence[str], offsets: int) -> Sheet:
        """An unwritten sheet over this memory."""
        names = (*SUMS, *features)
        return Sheet(names, memory[: len(names)], memory[len(names) :] if offsets else None)

    def of(self, queries: slice) -> Sheet:
        """The part of some rows."""
        near = None if self.near is None else self.near[..., queries]
        return Sheet(self.names, self.sums[..., queries], near)

    def __getitem__(self, name: str) -> Rows:
        return self.sums[self.names.index(name)]

    def put(self, names: Sequence[str], sums: Float[Tensor, "some_name batch head query"]) -> None:
        """Write sums that stand side by side in the sheet."""
        if names:
            at = self.names.index(names[0])
            self.sums[at : at + len(names)] = sums

    def mean_place(self, query: Float[Tensor, "query_rows query"]) -> Rows:
        """Σ p place: of cross-attention as it is, else from the distances to the query."""
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
        """All statistics of the rows, once every sum is written. `bad` rows see what is not finite."""
        visible, rest = self["visible"], -self["max_weight"].log()
        entropy, lse = rest - self["surprise"], self["top"] + rest
        mean = self["below"] / visible
        numbers: dict[str, Rows] = {
            "entropy": entropy,
            "relative_entropy": (entropy / visible.log()).masked_fill_(visible < 2, torch.nan),
            "perplexity": entropy.exp(),
            "effective_keys": self["weight_norm"].square().reciprocal_(),
            "spread": self["variance"].sqrt(),
            "logit_scale": (self["below_norm"].square() / visible - mean.square()).clamp_(min=0).sqrt_(),
            "output_norm": output_norm,
            "visible": visible,
        }
        masses = {name: self[name] for name in self.names if name not in SUMS} | {"max_weight": self["max_weight"]}
        near, empty = self.near, visible == 0
        if near is not None:
            numbers["signed_distance"] = self._signed_distance()
            behind, ahead = masses.pop("behind"), masses.pop("ahead", None)
            numbers["distance"] = behind if ahead is None else behind + ahead
            middle = near.shape[0] // 2
            masses |= {"previous": near[middle - 1], "self": near[middle], "next": near[middle + 1]}
            if ahead is None:
                masses["before"] = (1 - masses["self"]).clamp_(min=0)
                masses["after"] = torch.zeros_like(masses["before"])
        else:
            masses.pop("place")
        if sink is not None:
            # The sink leaves σ(lse − sink) to the keys, and σ(sink − lse) is its own mass.
            share = torch.sigmoid(lse - sink)
            masses = {name: mass * share for name, mass in masses.items()}
            near = None if near is None else near * share
            numbers["sink"] = torch.sigmoid(sink - lse)
            lse = torch.logaddexp(lse, sink)
        numbers |= masses
        numbers["lse"] = lse
        numbers["saturated"] = (numbers["max_weight"] > SATURATED).to(lse.dtype)
        broken = ~(torch.isfinite(lse) & torch.isfinite(output_norm))
        if bad is not None:
            broken |= bad
        return Measured(numbers, near, empty, broken & ~empty)
