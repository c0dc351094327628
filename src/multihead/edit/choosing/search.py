"""Take the cheapest head out, again and again, until the budget holds.

A `Move` takes some heads of one layer out at once: one head where that is allowed, more where the count must stay a
multiple, a kv head's whole group where only that saves anything. Moves are ranked by cost / what is saved.

>>> import torch, multihead as mh
>>> from multihead.edit.choosing.budget import Heads
>>> from multihead.edit.calibration import Calibration
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
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from multihead.edit.calibration import Calibration, Progress
from multihead.edit.choosing.budget import Budget, Heads, Ledger
from multihead.edit.choosing.head_covariance import Turns
from multihead.edit.choosing.scores import METHODS, Scorer, scorer
from multihead.errors import SizeError
from multihead.model.anatomy import LayerAnatomy


@dataclass(frozen=True)
class Choice:
    """Which heads stay, what each one cost when it went (or would cost now), and what there is to say."""

    keep: dict[str, tuple[int, ...]]
    scores: dict[str, float]
    notes: tuple[str, ...] = ()
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


@dataclass
class State:
    """Where a search stands: heads that stay."""

    layers: dict[str, LayerAnatomy]
    keep: dict[str, list[int]]
    ledger: Ledger
    score: Scorer

    @property
    def spent(self) -> float:
        """What the choice so far costs, in the unit of the budget."""
        return self.ledger.of(self.keep)

    def kv_of_head(self, name: str) -> Sequence[int]:
        """The kv head of every query head of a layer, gone ones included."""
        return self.layers[name].groups.kv_of_head

    def without(self, layer: str, heads: Sequence[int]) -> float:
        """What it would cost without these heads too."""
        left = [h for h in self.keep[layer] if h not in heads]
        return self.ledger.of({**self.keep, layer: left})


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
    least: int = 0,
    uniform: bool = False,
    multiple_of: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Choice:
    """The heads that stay under a budget.

    Layers that share weights are one.
    """
    if method not in METHODS:
        raise SizeError(f"method={method!r} is not known", hint=f"choose one of {', '.join(METHODS)}")
    shape, own = Shape(least, uniform, multiple_of), [same[0] for same in layers]
    _check(own, shape)
    score = scorer(method, model, layers, calibration, seed=seed, progress=progress)
    scores: dict[str, float] = {}
    moves: list[str] = []
    everything = {layer.name: list(range(layer.num_heads)) for layer in own}
    state = State({layer.name: layer for layer in own}, everything, budget.ledger(model, own, calibration), score)
    _spend(state, shape, scores, moves)
    keep = {name: tuple(heads) for name, heads in state.keep.items()}
    for name, heads in keep.items():
        scores |= {f"{name}H{h}": score.cost(name, h) for h in heads}
    return Choice(keep, scores, tuple(_notes(state)), tuple(moves))


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
        raise SizeError(f"uniform: the layers have {counts} heads", hint="leave uniform out")


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
    assert isinstance(move, Removal)
    for head in move.heads:
        scores[f"{move.layer}H{head}"] = state.score.cost(move.layer, head)
        state.score.remove(move.layer, head)
        state.keep[move.layer].remove(head)


def _removals(state: State, name: str, shape: Shape) -> list[Move]:
    """The cheapest next step of a layer; where that saves nothing, ever larger ones until one does."""
    found = _removal(state, name, shape, saving=True)
    return [] if found is None else [found]


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


__all__ = ["Choice", "Heads", "Move", "Removal", "Shape", "State", "search"]
