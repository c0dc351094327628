"""Named second moments and totals of one attention, which add up over calls, parts of a corpus and ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float64
from torch import Tensor

from multihead.edit.kv_sharing.key_path import KeyPath
from multihead.model.statistics.cross_moments import CrossMoments


class MomentSums:
    """Everything that is summed of one attention."""

    def __init__(self) -> None:
        self.moments: dict[str, CrossMoments] = {}
        self.totals: dict[str, Float64[Tensor, "..."]] = {}
        self.key_path: KeyPath | None = None
        """found on the first call"""

    def moment(self, name: str) -> CrossMoments:
        """The moment of this name, empty at first."""
        return self.moments.setdefault(name, CrossMoments())

    def add_total(self, name: str, x: Float64[Tensor, "..."]) -> None:
        self.totals[name] = x if name not in self.totals else self.totals[name] + x.to(self.totals[name].device)

    def merge(self, other: MomentSums) -> None:
        for name, moment in other.moments.items():
            self.moment(name).merge(moment)
        for name, total in other.totals.items():
            self.add_total(name, total)
        self.key_path = self.key_path or other.key_path

    def all_reduce(self, reduce: Callable[..., None]) -> None:
        """Turn the sums of this rank into those of all; `reduce` sums tensors over ranks, in place."""
        for moment in self.moments.values():
            moment.all_reduce(reduce)
        self.totals = {name: total.clone() for name, total in self.totals.items()}
        reduce(*self.totals.values())
        if self.key_path is not None:  # each rank has measured the scale on its first batch: the mean
            scale = self.totals["tokens"].new_tensor([self.key_path.scale, 1.0])
            reduce(scale)
            self.key_path = replace(self.key_path, scale=float(scale[0] / scale[1]))

    def state(self) -> dict[str, Any]:
        return {
            "moments": {name: moment.state() for name, moment in self.moments.items()},
            "totals": dict(self.totals),  # never changed in place
            "key_path": None if self.key_path is None else self.key_path.state(),
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> MomentSums:
        sums = MomentSums()
        sums.moments = {name: CrossMoments.from_state(one) for name, one in state["moments"].items()}
        sums.totals = dict(state["totals"])
        sums.key_path = None if state["key_path"] is None else KeyPath.from_state(state["key_path"])
        return sums
