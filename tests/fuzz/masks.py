"""Masks as plain data, built twice: by the package, and as dense tensors from the definitions in its docstrings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fuzz.mask_kinds import Part, Room, make, ragged, ragged_cells
from multihead import mask


@dataclass(frozen=True)
class Leaf:
    """One mask; its numbers follow from the seed and the sizes of the call."""

    kind: str
    seed: int = 0


@dataclass(frozen=True)
class Join:
    """parts[0] & parts[1] & ..., or the same with |."""

    how: str
    parts: tuple[Leaf | Join, ...]


Spec = Leaf | Join


@dataclass
class Sight:
    """All parts of a mask, joined."""

    room: Room
    mask: mask.Mask | Tensor | None = None
    text: str = ""
    parts: list[Part] = field(default_factory=list)
    ragged: list[Part] = field(default_factory=list)
    """the ragged masks that say which tokens are real, and not just who sees whom"""
    cells: Callable[[], Tensor] | None = None

    def counts(self) -> list[int]:
        """Real tokens of each row."""
        counts = _fewest(self.ragged)
        return [self.room.queries] * self.room.batch if counts is None else counts

    def change(self, version: int) -> None:
        """Change every tensor behind the mask in place."""
        for part in self.parts:
            part.change(version)

    @property
    def changes(self) -> bool:
        return any(part.tensor is not None for part in self.parts)

    @property
    def learned(self) -> list[Tensor]:
        return [p.tensor for p in self.parts if p.tensor is not None and p.tensor.requires_grad]

    def allowed(self) -> Bool[Tensor, "batch head query key"]:
        cells = torch.ones(1, 1, 1, 1, dtype=torch.bool) if self.cells is None else self.cells()
        return self.room.expand(cells)

    def added(self, dtype: torch.dtype) -> Float[Tensor, "batch head query key"] | None:
        scores = [self.room.expand(part.added()).to(dtype) for part in self.parts if part.added is not None]
        return reduce(torch.add, scores) if scores else None


def leaves(spec: Spec | None, *, within: str = "&") -> Iterator[tuple[Leaf, bool]]:
    """Every leaf, and whether it is joined to the whole with & alone."""
    if isinstance(spec, Leaf):
        yield spec, within == "&"
    elif spec is not None:
        for part in spec.parts:
            yield from leaves(part, within=within if spec.how == "&" else "|")


def build(
    spec: Spec | None,
    room: Callable[[list[int] | None], Room],
    *,
    batch: int,
    tokens: int,
    raw: bool = False,
    changed: bool = False,
) -> Sight:
    """The mask as the package makes it, and its cells.

    `room` gives the sizes once it is known how many tokens are real. `raw` passes a tensor instead of a Mask.
    `changed`: the tensors behind the mask are changed between its construction and its first use.
    """
    lengths = {
        leaf: ragged(leaf.seed, batch, tokens) for leaf, whole in leaves(spec) if leaf.kind == "ragged" and whole
    }
    if changed:
        for part in lengths.values():
            part.change(1)
    counts = _fewest(lengths.values())
    for part in lengths.values():
        part.change(0)
    sight = Sight(room(counts), ragged=list(lengths.values()))
    for part in sight.ragged:
        part.allowed = ragged_cells(part, sight.room)
    if spec is not None:
        joined = _joined(spec, sight.room, lengths, sight.parts)
        sight.mask, sight.text, sight.cells = joined.mask, joined.text, joined.allowed
        if raw and isinstance(spec, Leaf) and joined.text.startswith(("mask.tensor", "mask.additive")):
            sight.mask, sight.text = joined.tensor, joined.text.partition("(")[2][:-1]
    if changed:
        sight.change(1)
    return sight


def _fewest(parts: Iterable[Part]) -> list[int] | None:
    limits = [part.limits() for part in parts if part.limits is not None]
    return [min(row) for row in zip(*limits, strict=True)] if limits else None


def _joined(spec: Spec, room: Room, lengths: dict[Leaf, Part], parts: list[Part]) -> Part:
    if isinstance(spec, Leaf):
        part = lengths[spec] if spec in lengths else make(spec.kind, spec.seed, room)
        parts.append(part)
        return part
    pieces = [_joined(part, room, lengths, parts) for part in spec.parts]
    join = torch.logical_and if spec.how == "&" else torch.logical_or
    whole = reduce(lambda a, b: a & b if spec.how == "&" else a | b, [mask.of(p.mask) for p in pieces])
    if spec.how == "&":
        text = " & ".join(p.text for p in pieces)
    else:
        text = "(" + " | ".join(f"({p.text})" if " & " in p.text else p.text for p in pieces) + ")"
    return Part(whole, text, lambda: reduce(join, [p.allowed() for p in pieces]))
