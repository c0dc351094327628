"""Take the cheapest head out, again and again, until the budget holds.

A `Move` takes some heads of one layer out at once: one head where that is allowed, more where the count must stay a
multiple, a kv head's whole group where only that saves anything. With `group` another move lets the heads of a
layer share fewer kv heads. Moves are ranked by cost / what is saved.

>>> import torch, multihead as mh
>>> from multihead.edit.choosing.budget import Heads
>>> from multihead.edit.fitting.calibration import Calibration
>>> from multihead.edit.choosing.search import search
>>> block = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> model = torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
>>> text = Calibration(model, [{"src": torch.randn(4, 7, 12)} for _ in range(8)])
>>> found = search(model, [[layer] for layer in mh.anatomy(model)], text, budget=Heads(0.5), uniform=True)
>>> {name: len(heads) for name, heads in found.keep.items()}
{'L0': 1, 'L1': 1}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from torch import nn

from multihead.edit.choosing.budget import Budget, Heads, Latency, Ledger
from multihead.edit.choosing.head_covariance import Turns
from multihead.edit.choosing.scores import METHODS, Clusters, Scorer, Sharer, scorer
from multihead.edit.fitting.calibration import Calibration
from multihead.edit.fitting.refit import Progress
from multihead.errors import SizeError
from multihead.model.anatomy import LayerAnatomy

Scope = Literal["global", "layer"]


@dataclass(frozen=True)
class Choice:
    """Which heads stay, what each one cost when it went (or would cost now), and what there is to say."""

    keep: dict[str, tuple[int, ...]]
    scores: dict[str, float]
    notes: tuple[str, ...] = ()
    groups: dict[str, Clusters] = field(default_factory=dict[str, Clusters])
    moves: tuple[str, ...] = ()
    """in words, in the order they were made"""


@runtime_checkable
class Move(Protocol):
    """Something that costs and saves."""

    @property
    def layer(self) -> str: ...
    @property
    def cost(self) -> float:
        """what is lost, in the unit of the scores"""
        ...

    @property
    def saves(self) -> float:
        """in the unit of the budget"""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Removal:
    """Heads of one layer that go together."""

    layer: str
    heads: tuple[int, ...]
    cost: float
    saves: float

    def __str__(self) -> str:
        return ", ".join(f"{self.layer}H{h}" for h in self.heads)


@dataclass(frozen=True)
class Sharing:
    """The heads of one layer come to read fewer kv heads."""

    layer: str
    clusters: Clusters
    cost: float
    saves: float

    def __str__(self) -> str:
        return f"{self.layer} on {len(self.clusters)} kv heads"


@dataclass
class State:
    """Where a search stands: heads that stay, and who shares kv heads otherwise than before."""

    layers: dict[str, LayerAnatomy]
    keep: dict[str, list[int]]
    ledger: Ledger
    score: Scorer
    groups: dict[str, Clusters] = field(default_factory=dict[str, Clusters])

    @property
    def spent(self) -> float:
        """What the choice so far costs, in the unit of the budget."""
        return self.ledger.of(self.keep, self.reads)

    @property
    def reads(self) -> dict[str, list[int]]:
        """The kv head of every query head, in the layers that were grouped."""
        return {name: _reads(clusters) for name, clusters in self.groups.items()}

    def kv_of_head(self, name: str) -> Sequence[int]:
        """The kv head of every query head of a layer, gone ones included."""
        return _reads(self.groups[name]) if name in self.groups else self.layers[name].groups.kv_of_head

    def without(self, layer: str, heads: Sequence[int]) -> float:
        """What it would cost without these heads too."""
        left = [h for h in self.keep[layer] if h not in heads]
        return self.ledger.of({**self.keep, layer: left}, self.reads)

    def sharing(self, layer: str, clusters: Clusters) -> float:
        """What it would cost with these kv heads."""
        return self.ledger.of(self.keep, {**self.reads, layer: _reads(clusters)})


@dataclass(frozen=True)
class Shape:
    """What the result must look like: heads that every layer keeps, the same count in all, a multiple of some."""

    least: int = 0
    uniform: bool = False
    multiple_of: int = 1


def search(
    model: nn.Module,
    layers: Turns,
    calibration: Calibration,
    *,
    budget: Budget,
    method: str = "obs",
    scope: Scope = "global",
    least: int = 0,
    uniform: bool = False,
    multiple_of: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    group: bool = False,
) -> Choice:
    """The heads that stay under a budget.

    Layers that share weights are one. `scope`: all layers compete, or each loses its share. `group`: at every step
    heads may come to share kv heads instead, where that costs less for what it saves.
    """
    if method not in METHODS:
        raise SizeError(f"method={method!r} is not known", hint=f"choose one of {', '.join(METHODS)}")
    shape, own = Shape(least, uniform, multiple_of), [same[0] for same in layers]
    _check(own, shape)
    if group:
        _check_group(method, shape, budget)
    score = scorer(method, model, layers, calibration, seed=seed, group=group, progress=progress)
    parts = [own] if scope == "global" else [[layer] for layer in own]
    keep: dict[str, tuple[int, ...]] = {}
    scores: dict[str, float] = {}
    groups: dict[str, Clusters] = {}
    notes: list[str] = list(score.notes) if isinstance(score, Sharer) else []
    moves: list[str] = []
    for part in parts:
        ledger = budget.ledger(model, part, calibration)
        everything = {layer.name: list(range(layer.num_heads)) for layer in part}
        state = State({layer.name: layer for layer in part}, everything, ledger, score)
        _spend(state, shape, scores, moves)
        notes += _notes(state)
        keep |= {name: tuple(heads) for name, heads in state.keep.items()}
        groups |= _left(state)
        for name, heads in state.keep.items():
            scores |= {f"{name}H{h}": score.cost(name, h) for h in heads}
    return Choice(keep, scores, tuple(notes), groups, tuple(moves))


def _check(layers: Sequence[LayerAnatomy], shape: Shape) -> None:
    for layer in layers:
        if shape.least > layer.num_heads:
            raise SizeError(
                f"least={shape.least}: {layer.name} ({layer.path}) has {layer.num_heads} heads",
                hint=f"at most {min(x.num_heads for x in layers)}",
            )
        if layer.num_heads % shape.multiple_of:
            allowed = [n for n in range(1, layer.num_heads + 1) if layer.num_heads % n == 0]
            raise SizeError(
                f"multiple_of={shape.multiple_of} does not divide the {layer.num_heads} heads of {layer.name}",
                hint=f"choose one of {', '.join(map(str, allowed))}",
            )
    if shape.uniform and len({layer.num_heads for layer in layers}) > 1:
        counts = sorted({layer.num_heads for layer in layers})
        raise SizeError(f"uniform: the layers have {counts} heads", hint="leave uniform out, or use scope='layer'")


def _check_group(method: str, shape: Shape, budget: Budget) -> None:
    """Sharing is told what it costs by `obs` alone, and saves bytes and FLOPs."""
    if method != "obs":
        raise SizeError(f"method={method!r} does not say what it costs to share keys and values", hint="choose obs")
    if shape.uniform or shape.multiple_of > 1:
        raise SizeError(
            "pruning and grouping together make layers of uneven heads and kv heads",
            hint="leave uniform and multiple_of out, or ask for keep=... and kv_heads=...",
        )
    if isinstance(budget, Heads | Latency):
        name = type(budget).__name__.lower()
        raise SizeError(
            f"sharing keys and values saves nothing of {name}", hint='budget="cache=0.5" or "flops=0.8"'
        )


def _spend(state: State, shape: Shape, scores: dict[str, float], moves: list[str]) -> None:
    """Make the cheapest move, until the budget holds or nothing more may go."""
    while state.spent > state.ledger.limit * (1 + 1e-12):
        if shape.uniform:
            together = [_removal(state, name, shape, saving=False) for name in state.keep]
            if any(m is None for m in together):
                return
            chosen: list[Move] = [m for m in together if m is not None]
        else:
            possible: list[Move] = [m for name in state.keep for m in _removals(state, name, shape)]
            possible += [m for name in state.keep for m in _sharings(state, name)]
            if not possible:
                return
            chosen = [min(possible, key=_worth)]
        for move in chosen:
            _make(state, move, scores)
            moves.append(str(move))


def _worth(move: Move) -> float:
    """Cost for what is saved. What loses nothing goes first, the more it saves the sooner."""
    return move.cost / move.saves if move.cost > 0 else move.cost * move.saves


def _make(state: State, move: Move, scores: dict[str, float]) -> None:
    if isinstance(move, Sharing):
        assert isinstance(state.score, Sharer)
        state.score.share(move.layer, move.clusters)
        state.groups[move.layer] = move.clusters
        return
    assert isinstance(move, Removal)
    for head in move.heads:
        scores[f"{move.layer}H{head}"] = state.score.cost(move.layer, head)
        state.score.remove(move.layer, head)
        state.keep[move.layer].remove(head)


def _removals(state: State, name: str, shape: Shape) -> list[Move]:
    """The cheapest next step of a layer; where that saves nothing, ever larger ones until one does."""
    found = _removal(state, name, shape, saving=True)
    return [] if found is None else [found]


def _sharings(state: State, name: str) -> list[Move]:
    """Every way in which a layer may share more than it does."""
    if not isinstance(state.score, Sharer) or not state.keep[name]:
        return []
    now, found = state.spent, list[Move]()
    for clusters, cost in state.score.steps(name):
        saves = now - state.sharing(name, clusters)
        found += [Sharing(name, clusters, cost, saves)] if saves > 0 else []
    return found


def _reads(clusters: Clusters) -> list[int]:
    of = {h: i for i, some in enumerate(clusters) for h in some}
    return [of[h] for h in sorted(of)]


def _left(state: State) -> dict[str, Clusters]:
    """The clusters of the heads that stay."""
    found: dict[str, Clusters] = {}
    for name, clusters in state.groups.items():
        kept = (tuple(h for h in some if h in state.keep[name]) for some in clusters)
        if left := tuple(some for some in kept if some):
            found[name] = left
    return found


def _removal(state: State, name: str, shape: Shape, *, saving: bool) -> Removal | None:
    """The cheapest heads of a layer that may go together, and (with `saving`) save something."""
    left, groups, now = state.keep[name], state.kv_of_head(name), state.spent
    costs = {h: state.score.cost(name, h) for h in left}
    even = shape.uniform or shape.multiple_of > 1  # a shape to be split or told in a config: groups stay even
    if (even or _only_groups_save(state, name)) and len(set(groups)) < len(groups):
        units = [[h for h in left if groups[h] == kv] for kv in sorted({groups[h] for h in left})]
        units.sort(key=lambda unit: state.score.together(name, unit))
    else:
        units = [[h] for h in sorted(left, key=lambda h: costs[h])]
    heads: list[int] = []
    for unit in units:
        heads += unit
        rest = len(left) - len(heads)
        if rest < shape.least:
            return None
        if rest % shape.multiple_of:
            continue
        saves = now - state.without(name, heads)
        if saves > 0 or not saving:
            cost = costs[heads[0]] if len(heads) == 1 else state.score.together(name, heads)
            return Removal(name, tuple(heads), cost, saves)
    return None


def _only_groups_save(state: State, name: str) -> bool:
    """Whether a head saves nothing as long as others read its kv head: so it is with the bytes of a cache."""
    left, groups = state.keep[name], state.kv_of_head(name)
    shared = [h for h in left if sum(groups[i] == groups[h] for i in left) > 1]
    return bool(shared) and math.isclose(state.without(name, shared[:1]), state.spent, rel_tol=1e-12)


def _notes(state: State) -> list[str]:
    notes: list[str] = []
    if state.spent > state.ledger.limit * (1 + 1e-12):
        share = state.spent / state.ledger.whole
        notes.append(
            f"the budget does not hold: {share:.2f} of the {state.ledger.unit} are left, and no more may go"
        )
    empty = [name for name, heads in state.keep.items() if not heads]
    if empty:
        notes.append(f"{', '.join(empty)} lost all heads")
    return notes


__all__ = ["Choice", "Heads", "Move", "Removal", "Shape", "Sharing", "State", "search"]
