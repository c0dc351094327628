"""Greedy search: remove the head with the least cost per saving, again and again.

A `PruneStep` removes one head, or several that only make sense together: a kv head's whole group if only that saves
anything, as many as the shape of the result needs. The steps are a `PruneOrder`; every budget is a prefix of it.

>>> from multihead.edit.budget import CostModel, LayerCost
>>> from multihead.edit.saliency import FixedSaliency
>>> from multihead.edit.search import greedy
>>> costs = {"L0": [3.0, 1.0, 2.0], "L1": [9.0, 8.0, 0.5]}
>>> model = CostModel("heads", {name: LayerCost(1.0, 0.0, (0, 1, 2)) for name in costs})
>>> order = greedy(FixedSaliency(costs), model)
>>> [step.removed for step in order.steps][:3]
[(('L1', 2),), (('L0', 1),), (('L0', 2),)]
>>> order.until(4).keep
{'L0': (0, 2), 'L1': (0, 1)}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from multihead._base.arguments import check_count, check_flag
from multihead.edit.budget import CostModel
from multihead.edit.saliency import Saliency
from multihead.errors import SizeError

ROUNDING = 1 + 1e-12
"""A total may exceed its limit by rounding."""


@dataclass(frozen=True)
class Shape:
    """Constraints on the result: every layer keeps `min_heads`, all keep the same number, it is a multiple."""

    min_heads: int = 0
    uniform: bool = False
    multiple_of: int = 1

    def __post_init__(self) -> None:
        check_count("min_heads", self.min_heads, least=0)
        check_flag("uniform", self.uniform)
        check_count("multiple_of", self.multiple_of)

    def check(self, heads: Mapping[str, int]) -> None:
        """Raise if the search cannot shape layers with these numbers of heads."""
        for name, count in heads.items():
            if self.min_heads > count:
                raise SizeError(
                    f"min_heads={self.min_heads}, but {name} has {count} heads",
                    hint=f"choose at most {min(heads.values())}",
                )
            if count % self.multiple_of:
                allowed = [n for n in range(1, count + 1) if count % n == 0]
                raise SizeError(
                    f"multiple_of={self.multiple_of} does not divide the {count} heads of {name}",
                    hint=f"choose one of {', '.join(map(str, allowed))}",
                )
        if self.uniform and len(set(heads.values())) > 1:
            raise SizeError(
                f"uniform needs layers with equal numbers of heads, got {sorted(set(heads.values()))}",
                hint="omit uniform; min_heads keeps some heads in every layer",
            )


ANY = Shape()


@dataclass(frozen=True)
class PruneStep:
    """Heads that are removed together."""

    removed: tuple[tuple[str, int], ...]
    """(layer, head)"""
    scores: Mapping[tuple[str, int], float]
    """by (layer, head): of the removed heads when they were removed, of the others in their layers afterwards"""
    total: float
    """the cost of the remaining heads, in the unit of the cost model"""


@dataclass(frozen=True)
class PruneOrder:
    """Steps from all heads on, best first."""

    cost: CostModel
    initial_scores: Mapping[tuple[str, int], float]
    steps: tuple[PruneStep, ...] = ()

    def until(self, limit: float) -> PruneOrder:
        """The first steps, until the remaining heads cost at most `limit`; all of them if no prefix does."""
        enough = (i for i in range(len(self.steps) + 1) if self._total(i) <= limit * ROUNDING)
        return replace(self, steps=self.steps[: next(enough, len(self.steps))])

    def _total(self, steps: int) -> float:
        return self.steps[steps - 1].total if steps else self.cost.of_all_heads

    @property
    def total(self) -> float:
        """The cost of the remaining heads."""
        return self._total(len(self.steps))

    @property
    def keep(self) -> dict[str, tuple[int, ...]]:
        """The remaining heads of every layer after the search."""
        removed = {head for step in self.steps for head in step.removed}
        return {
            name: tuple(h for h in range(len(layer.kv_of_head)) if (name, h) not in removed)
            for name, layer in self.cost.layers.items()
        }

    @property
    def scores(self) -> dict[tuple[str, int], float]:
        """The cost of every head in the search: when it was removed, or if it were removed next."""
        scores = dict(self.initial_scores)
        for step in self.steps:
            scores |= step.scores
        return scores


def greedy(saliency: Saliency, cost: CostModel, shape: Shape = ANY, *, limit: float = 0.0) -> PruneOrder:
    """Search greedily: the order of removing heads, until the rest costs at most `limit` or no head may go.

    Ranked by saliency / saving. A step changes the saliencies and savings of its own layers only, so only these are
    evaluated again.
    """
    state = _State(saliency, cost, shape)
    order = PruneOrder(cost, {score: x for name in state.keep for score, x in state.scores(name).items()})
    candidates = {name: state.candidate(name) for name in state.keep}
    steps: list[PruneStep] = []
    total = cost.of_all_heads
    while total > limit * ROUNDING:
        possible = [c for c in candidates.values() if c is not None]
        if not possible or (shape.uniform and len(possible) < len(candidates)):
            break
        chosen = possible if shape.uniform else [min(possible, key=lambda c: c.rank)]
        scores: dict[tuple[str, int], float] = {}
        for candidate in chosen:
            scores |= state.remove(candidate)
            candidates[candidate.layer] = state.candidate(candidate.layer)
        total = cost.total(state.keep)
        steps.append(PruneStep(tuple((c.layer, h) for c in chosen for h in c.heads), scores, total))
    return replace(order, steps=tuple(steps))


@dataclass(frozen=True)
class _Candidate:
    """The next step of one layer."""

    layer: str
    heads: tuple[int, ...]
    saliency: float
    saving: float

    @property
    def rank(self) -> float:
        """Saliency per saving; of steps that lose nothing, the larger saving is first."""
        return self.saliency / self.saving if self.saliency > 0 else self.saliency * self.saving


class _State:
    """The remaining heads of a search."""

    def __init__(self, saliency: Saliency, cost: CostModel, shape: Shape) -> None:
        self.saliency, self.cost, self.shape = saliency, cost, shape
        self.keep = {name: list(range(len(layer.kv_of_head))) for name, layer in cost.layers.items()}

    def scores(self, layer: str) -> dict[tuple[str, int], float]:
        """The cost of every remaining head of a layer in the search, if it were removed next."""
        return {(layer, h): self.saliency.cost(layer, h) for h in self.keep[layer]}

    def candidate(self, layer: str) -> _Candidate | None:
        """The least heads that the search may remove together and save something; None if no more may be."""
        cost, heads, removed = self.cost.layers[layer], self.keep[layer], list[int]()
        for unit in self._units(layer):
            removed += unit
            rest = [h for h in heads if h not in removed]
            if len(rest) < self.shape.min_heads:
                return None
            saving = cost(heads) - cost(rest)
            if len(rest) % self.shape.multiple_of == 0 and (saving > 0 or self.shape.uniform):
                return _Candidate(layer, tuple(removed), self.saliency.joint_cost(layer, removed), saving)
        return None

    def _units(self, layer: str) -> list[list[int]]:
        """Heads that the search removes together, cheapest first.

        Whole groups of a kv head if a group must stay even (to be split over devices, or described by a config), or
        if only the last head of a group saves anything.
        """
        cost, heads = self.cost.layers[layer], self.keep[layer]
        even = self.shape.uniform or self.shape.multiple_of > 1
        shared = len({cost.kv_of_head[h] for h in heads}) < len(heads)
        grouped = len(set(cost.kv_of_head)) < len(cost.kv_of_head)
        if grouped and (even or (shared and cost.per_head == 0)):
            groups = [[h for h in heads if cost.kv_of_head[h] == kv] for kv in sorted(set(cost.kv_of_head))]
            return sorted(filter(None, groups), key=lambda group: self.saliency.joint_cost(layer, group))
        return [[h] for h in sorted(heads, key=lambda h: self.saliency.cost(layer, h))]

    def remove(self, candidate: _Candidate) -> dict[tuple[str, int], float]:
        """Remove heads in the search; the scores of all heads of the layer that were not removed before."""
        scores: dict[tuple[str, int], float] = {}
        for head in candidate.heads:
            scores[candidate.layer, head] = self.saliency.cost(candidate.layer, head)
            self.saliency.remove(candidate.layer, head)
            self.keep[candidate.layer].remove(head)
        return scores | self.scores(candidate.layer)
