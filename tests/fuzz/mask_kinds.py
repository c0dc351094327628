"""The kinds of masks, each built twice: by the package, and as cells from the definition in its docstring."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from multihead import mask

RULES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "even_keys": lambda b, h, q, k: k % 2 == 0,
    "keys_by_head": lambda b, h, q, k: (k + h) % 3 != 0,
    "queries_by_head": lambda b, h, q, k: (q + h) % 3 != 0,
    "every_other_row": lambda b, h, q, k: b % 2 == 0,
    "strided": lambda b, h, q, k: (q - k) % 3 == h % 2,
    "all_four": lambda b, h, q, k: (b + 2 * h + 3 * q + 5 * k) % 7 < 4,
}

AT_KEYS = {"lengths", "padding", "prefix", "tensor", "additive"}
"""Masks that are written for the keys of the call. A ring that has lost keys has no such numbering."""

STANDING = {"causal", "documents", "offsets"}
"""Masks that need every query to stand at a key."""

KINDS = ("causal", "window", "lengths", "padding", "ragged", "documents", "offsets", "prefix", "tensor",
         "additive", "where", "everything")  # fmt: skip


@dataclass(frozen=True)
class Room:
    """The sizes of a call, and where its queries stand. Keys stand at 0, 1, 2, …"""

    batch: int
    heads: int
    queries: int
    keys: int
    query_at: Int[Tensor, "batch query"]
    dtype: torch.dtype = torch.float64
    before: tuple[int, ...] | None = None  # tokens that each row of the cache holds; None: no cache
    lost: bool = False  # the keys are the slots of a ring that has overwritten some
    learns: bool = False  # additive masks may want a gradient

    def expand(self, cells: Tensor) -> Tensor:
        return cells.expand(self.batch, self.heads, self.queries, self.keys)

    @property
    def b(self) -> Tensor:
        return torch.arange(self.batch).view(-1, 1, 1, 1)

    @property
    def h(self) -> Tensor:
        return torch.arange(self.heads).view(1, -1, 1, 1)

    @property
    def q(self) -> Tensor:
        return self.query_at[:, None, :, None]

    @property
    def k(self) -> Tensor:
        return torch.arange(self.keys).view(1, 1, 1, -1)

    @property
    def row(self) -> Tensor:
        return torch.arange(self.queries).view(1, 1, -1, 1)


@dataclass
class Part:
    """A mask of the package beside its dense meaning, which follows `tensor` where that is changed in place."""

    mask: mask.Mask | Tensor
    text: str
    allowed: Callable[[], Tensor] = lambda: torch.ones(1, 1, 1, 1, dtype=torch.bool)
    added: Callable[[], Tensor] | None = None
    tensor: Tensor | None = None
    values: tuple[Tensor, ...] = ()
    """what `tensor` holds at first, and what it is changed to"""
    version: int = 0
    limits: Callable[[], list[int]] | None = None
    """real tokens per row, of a ragged mask"""

    def change(self, version: int) -> None:
        if self.tensor is not None and version != self.version:
            with torch.no_grad():
                self.tensor.copy_(self.values[version])
        self.version = version


def make(kind: str, seed: int, room: Room) -> Part:
    """The mask of a kind, or a window where the call has no room for that kind."""
    stands = room.before is not None or room.queries <= room.keys
    square = room.before is None and room.queries == room.keys
    if (kind in AT_KEYS and room.lost) or (kind in STANDING and not stands) or (kind == "ragged" and not square):
        kind = "window"
    return _MAKERS[kind](random.Random(seed), room)


def ragged(seed: int, batch: int, tokens: int) -> Part:
    """A ragged mask, whose cells are set once the room is known, which depends on its lengths."""
    given, held, then = _limits(random.Random(seed), batch, tokens)
    part = _by_limits("ragged", given, held, then)
    part.limits = lambda: held.expand(batch).tolist()
    return part


def ragged_cells(part: Part, room: Room) -> Callable[[], Tensor]:
    """row < limit and key < limit; in a cache the keys of a row end `limit` behind those that it has."""
    before = torch.tensor(room.before or [0] * room.batch, dtype=torch.long).view(-1, 1, 1, 1)

    def cells() -> Tensor:
        assert part.limits is not None
        limit = torch.tensor(part.limits(), dtype=torch.long).view(-1, 1, 1, 1)
        return (room.row < limit) & (room.k < before + limit)

    return cells


def _everything(draw: random.Random, room: Room) -> Part:
    return Part(mask.everything(), "mask.everything()")


def _causal(draw: random.Random, room: Room) -> Part:
    return Part(mask.causal(), "mask.causal()", lambda: room.k <= room.q)


def _window(draw: random.Random, room: Room) -> Part:
    left, right, first = draw.randint(1, 6), draw.choice([0, 0, 1, 2]), draw.choice([0, 0, 1, 2])
    near = lambda: (room.q - left < room.k) & (room.k <= room.q + right) | (room.k < first)
    return Part(mask.window(left, right, first=first), f"mask.window({left}, {right}, first={first})", near)


def _where(draw: random.Random, room: Room) -> Part:
    name = draw.choice(sorted(RULES))
    rule = RULES[name]
    return Part(mask.where(rule), f"mask.where({name})", lambda: rule(room.b, room.h, room.q, room.k))


def _limits(draw: random.Random, batch: int, most: int, *, shared: bool = True) -> tuple[Any, Tensor, Tensor]:
    """(argument of the mask, the tensor that holds its numbers, the numbers it is changed to)"""
    rows = 1 if shared and batch > 0 and draw.random() < 0.15 else batch
    first, then = ([draw.randint(0, most) for _ in range(rows)] for _ in range(2))
    kind = draw.choice([torch.long, torch.long, torch.int32])
    given: Any = torch.tensor(first, dtype=kind) if draw.random() < 0.5 else first
    held = given if isinstance(given, Tensor) else torch.tensor(first, dtype=torch.long)
    return given, held, torch.tensor(then, dtype=held.dtype)


def _by_limits(name: str, given: Any, held: Tensor, then: Tensor) -> Part:
    """The mask of one limit per row. A list is copied when the mask is made; a tensor is not."""
    text = f"torch.tensor({held.tolist()})" if isinstance(given, Tensor) else str(given)
    part = Part(getattr(mask, name)(given), f"mask.{name}({text})")
    if isinstance(given, Tensor):
        part.tensor, part.values = held, (held.clone(), then)
    return part


def _lengths(draw: random.Random, room: Room) -> Part:
    given, held, then = _limits(draw, room.batch, room.keys)
    part = _by_limits("lengths", given, held, then)
    part.allowed = lambda: room.k < held.view(-1, 1, 1, 1)
    return part


def _prefix(draw: random.Random, room: Room) -> Part:
    given, held, then = _limits(draw, room.batch, room.keys)
    if not isinstance(given, Tensor) and len(given) == 1 and draw.random() < 0.5:
        given = given[0]
    part = _by_limits("prefix", given, held, then)
    part.allowed = lambda: (room.k <= room.q) | (room.k < held.view(-1, 1, 1, 1))
    return part


def _ragged(draw: random.Random, room: Room) -> Part:
    part = ragged(draw.randrange(10**6), room.batch, room.queries)
    part.allowed = ragged_cells(part, room)
    return part


def _padding(draw: random.Random, room: Room) -> Part:
    rows = 1 if room.batch and draw.random() < 0.1 else room.batch
    solid = draw.random() < 0.5

    def real() -> Tensor:
        if solid:  # one run of real keys
            ends = [sorted((draw.randint(0, room.keys), draw.randint(0, room.keys))) for _ in range(rows)]
            return (
                torch.tensor([[a <= k < b for k in range(room.keys)] for a, b in ends]).view(rows, room.keys).bool()
            )
        return torch.tensor([[draw.random() < 0.6 for _ in range(room.keys)] for _ in range(rows)]).view(
            rows, room.keys
        ).bool()  # fmt: skip

    held = real()
    return Part(
        mask.padding(held),
        f"mask.padding(torch.tensor({held.tolist()}))",
        lambda: held[:, None, None, :],
        tensor=held,
        values=(held.clone(), real()),
    )


def _documents(draw: random.Random, room: Room) -> Part:
    rows = draw.choice([1, room.batch])
    lowest, chance = draw.choice([0, 0, -1]), draw.choice([0.1, 0.4])  # a negative id marks padding
    begins = min(room.before or [0]) if draw.random() < 0.4 else 0  # a document may begin with the new tokens

    def ids() -> Tensor:
        table: list[list[int]] = []
        for _ in range(rows):
            run, row = 0, []
            for key in range(room.keys):
                run += key == begins or draw.random() < chance
                row.append(run % 4 + lowest)  # ids return
            table.append(row)
        return torch.tensor(table, dtype=torch.long).view(rows, room.keys)

    held, then = ids(), ids()
    flat = rows == 1 and draw.random() < 0.6
    listed = flat and draw.random() < 0.5
    if draw.random() < 0.3:
        held, then = held.int(), then.int()
    given: Any = held[0].tolist() if listed else held[0] if flat else held
    part = Part(mask.documents(given), f"mask.documents({given if listed else f'torch.tensor({given.tolist()})'})")
    if not listed:
        part.tensor, part.values = held, (held.clone(), then)
    part.allowed = lambda: _same_document(room, held)
    return part


def _same_document(room: Room, ids: Tensor) -> Tensor:
    ids = ids.long().expand(room.batch, -1)
    if room.keys == 0 or room.batch == 0:
        return torch.ones(1, 1, 1, 1, dtype=torch.bool)
    # A query behind the last key is padding of a ragged call: another part of the mask hides its row.
    query = ids.gather(1, room.query_at.clamp(0, room.keys - 1))
    return (query[:, None, :, None] == ids[:, None, None, :]) & (query >= 0)[:, None, :, None]


def _offsets(draw: random.Random, room: Room) -> Part:
    def bounds(inner: int) -> list[int]:
        return [0, *sorted(draw.randint(0, room.keys) for _ in range(inner)), room.keys]

    first = bounds(draw.randint(0, 3))
    held, then = torch.tensor(first), torch.tensor(bounds(len(first) - 2))
    given: Any = held if draw.random() < 0.5 else first
    part = Part(
        mask.documents(offsets=given),
        f"mask.documents(offsets={f'torch.tensor({first})' if given is held else first})",
        lambda: _same_document(room, (torch.arange(room.keys)[:, None] >= held[1:]).sum(-1)[None]),
    )
    if given is held:
        part.tensor, part.values = held, (held.clone(), then)
    return part


def _shape(draw: random.Random, room: Room) -> tuple[int, ...]:
    """(query, key), (batch, query, key) or all four, some axes but the last left at 1."""
    full = (room.batch, room.heads, room.queries, room.keys)
    axes = draw.choice([(2, 3), (0, 2, 3), (0, 1, 2, 3)])
    return tuple(1 if axis != 3 and draw.random() < 0.2 else full[axis] for axis in axes)


def _spread(cells: Tensor) -> Tensor:
    return cells[None, None] if cells.ndim == 2 else cells[:, None] if cells.ndim == 3 else cells


def _tensor(draw: random.Random, room: Room) -> Part:
    shape = _shape(draw, room)
    generator = torch.Generator().manual_seed(draw.randrange(10**6))
    held, then = (torch.rand(shape, generator=generator) < 0.6 for _ in range(2))
    return Part(
        mask.tensor(held),
        f"mask.tensor(torch.tensor({held.tolist()}))",
        lambda: _spread(held),
        tensor=held,
        values=(held.clone(), then),
    )


def _additive(draw: random.Random, room: Room) -> Part:
    shape, hides = _shape(draw, room), draw.random() < 0.5
    generator = torch.Generator().manual_seed(draw.randrange(10**6))
    kind = torch.float32 if draw.random() < 0.15 else room.dtype
    held, then = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        .masked_fill(torch.rand(shape, generator=generator) < 0.3 * hides, -torch.inf)
        .to(kind)
        for _ in range(2)
    )
    first = held.clone()
    if room.learns and draw.random() < 0.5:
        held.requires_grad_()
    return Part(
        mask.additive(held),
        f"mask.additive(scores of {' x '.join(map(str, shape))}{', some -inf' * hides}"
        f"{', trained' * held.requires_grad}{', float32' * (kind != room.dtype)})",
        lambda: _spread(held.detach()) > -torch.inf,
        added=lambda: _spread(held).masked_fill(_spread(held.detach()) == -torch.inf, 0.0),
        tensor=held,
        values=(first, then),
    )


_MAKERS: dict[str, Callable[[random.Random, Room], Part]] = {
    "everything": _everything,
    "causal": _causal,
    "window": _window,
    "where": _where,
    "lengths": _lengths,
    "prefix": _prefix,
    "ragged": _ragged,  # joined with |: cells like any other
    "padding": _padding,
    "documents": _documents,
    "offsets": _offsets,
    "tensor": _tensor,
    "additive": _additive,
}
