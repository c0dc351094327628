"""The five shares of one head, and which of them leads.

Spread and rest are set aside unless they dominate: a head that rests half of the time is described by how it
chooses among ordinary keys. Two shares lead together where it is uncertain which is larger, or where they are
nearly equal: the label of such a head would change from text to text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float

from multihead.measures.kinds.document_means import DocumentMeans
from multihead.measures.kinds.piece_shares import TERMS, VARIANTS

SHARES = ("spread", "rest", *TERMS)

SPREAD, REST = 0.9, 0.75
"""A head is spread if spread is above this, and rests if rest is above this part of 1 − spread."""

NEAR = 0.01
"""Within this of a bound, or within the interval if that is wider, a head counts on both sides."""

TIE = 0.15
"""The second of two shares also leads if it is smaller by at most this part of the first, or by an interval."""


@dataclass(frozen=True)
class HeadShares:
    """The shares of one head, and half the widths of their intervals."""

    head: str
    share: Mapping[str, float]
    half: Mapping[str, float]

    @staticmethod
    def of(head: str, means: DocumentMeans, index: int) -> HeadShares:
        """The five shares of one head, with their intervals."""
        mean, half = means.mean[:, index], means.half[:, index]
        streams = {"spread": "spread", "rest": "rest"} | {term: f"{_best(means, mean)}: {term}" for term in TERMS}

        def values(of: Float[torch.Tensor, " stream"]) -> dict[str, float]:
            return {name: float(of[means.index[stream]]) for name, stream in streams.items()}

        return HeadShares(head, values(mean), values(half))

    @property
    def leading(self) -> tuple[str, ...]:
        """One of the shares, or two that are too close to separate, in the order of `SHARES`; none if undefined."""
        spread, rest = self.share["spread"], self.share["rest"]
        if math.isnan(spread):
            return ()
        first, second = sorted(TERMS, key=lambda name: -self.share[name])[:2]
        concentration = max(1 - spread, 1e-9)
        for name, value, unit, bound in (
            ("spread", spread, 1.0, SPREAD),
            ("rest", rest / concentration, concentration, REST),
        ):
            if abs(value - bound) <= max(NEAR, self.half[name] / unit):  # in this order: a half may be NaN
                return name, first
            if value > bound:
                return (name,)
        gap = self.share[first] - self.share[second]
        close = max(TIE * self.share[first], self.half[first], self.half[second])
        return tuple(name for name in TERMS if name == first or (name == second and gap <= close))

    @property
    def is_uncertain(self) -> bool:
        """Whether other shares would lead if there were no uncertainty: more text would decide."""
        return replace(self, half=dict.fromkeys(self.half, 0.0)).leading != self.leading

    @property
    def label(self) -> str:
        """The leading shares and how much of log n they are: "match, 0.18"."""
        return f"{' + '.join(self.leading)}, {sum(self.share[name] for name in self.leading):.2f}"

    def __str__(self) -> str:
        """`of log n, match 0.18 [0.15, 0.21] leads (spread 0.48 is set aside)`."""
        shares = " and ".join(f"{name} {self._interval(name)}" for name in self.leading)
        least = min((self.share[name] for name in self.leading), default=math.inf)
        larger = [name for name in ("spread", "rest") if name not in self.leading and self.share[name] > least]
        aside = " and ".join(f"{name} {self.share[name]:.2f}" for name in larger)
        aside = f" ({aside} {'is' if len(larger) == 1 else 'are'} set aside)" if larger else ""
        return f"of log n, {shares} {'leads' if len(self.leading) == 1 else 'lead'}{aside}"

    def _interval(self, name: str) -> str:
        x, half = self.share[name], self.half[name]
        return f"{x:.2f}" if math.isnan(half) else f"{x:.2f} [{x - half:.2f}, {x + half:.2f}]"


def _best(means: DocumentMeans, mean: Float[torch.Tensor, " stream"]) -> str:
    """The variant of a head's shares that explains most without a negative one."""
    best, least = VARIANTS[0], float(mean[means.index[f"{VARIANTS[0]}: match"]])
    for variant in VARIANTS[1:]:
        position, word, match = (float(mean[means.index[f"{variant}: {term}"]]) for term in TERMS)
        if min(position, word) >= 0 and match < least:
            best, least = variant, match
    return best
