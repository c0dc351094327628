"""The tensors of a case: what each call gets, and what the oracle has to know of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

import multihead as mh
from fuzz.cases import Call, Case, Change, Mistake
from fuzz.masks import Room, Sight, build
from fuzz.mistakes import Site
from multihead import cache


@dataclass
class Ready:
    """One call with its tensors."""

    call: Call
    query: Tensor
    key: Tensor | None
    value: Tensor | None
    sight: Sight
    query_at: Int[Tensor, "batch query"]
    """for the position encoding"""
    key_at: Int[Tensor, "batch new"]
    bias_key_at: Int[Tensor, "batch key"]
    other: bool
    """whether the keys are of another sequence than the queries"""
    positions: Tensor | None
    gate: Tensor | None
    unbatched: bool
    slots: bool
    """whether the keys are the slots of a ring, and not in the order of the text"""
    rows: dict[int, Tensor]
    """the rows of a batch of one that were passed without the batch"""

    @property
    def counts(self) -> list[int]:
        """Real tokens of each row."""
        return self.sight.counts()

    @property
    def real(self) -> Bool[Tensor, "batch query"]:
        """The tokens that are not padding of a ragged mask."""
        return torch.arange(self.call.queries) < torch.tensor(self.counts, dtype=torch.long)[:, None]

    @property
    def length(self) -> int:
        """One more than the largest position of the call; the frequencies of DynamicNTK follow from it.

        Queries and keys count alike, padding of a ragged mask does not.
        """
        keys = self.key_at.flatten().tolist() if self.other else []
        return max(self.query_at[self.real].tolist() + keys, default=-1) + 1

    def leaves(self) -> dict[str, Tensor]:
        """The tensors of the call that want a gradient, by name."""
        named = {"query": self.query, "key": self.key, "value": self.value, "gate": self.gate}
        named |= {f"additive mask {i}": scores for i, scores in enumerate(self.sight.learned)}
        return {name: x for name, x in named.items() if x is not None and x.requires_grad}


@dataclass
class Moved:
    """A change of the cache, and whether it must be refused."""

    how: str
    argument: Any = None
    refused: bool = False


@dataclass
class Wrong:
    """A mistake, and where it is made."""

    kind: str
    site: Site


Step = Ready | Moved | Wrong


@dataclass
class Scene:
    case: Case
    module: mh.MultiHeadAttention
    steps: list[Step]
    capacity: int = 0
    batch: int = 0
    parameters: dict[str, Tensor] = field(default_factory=dict)

    def new_cache(self) -> cache.Cache | None:
        layer, sizes = self.case.layer, (self.batch, self.case.layer.kv_count, self.capacity)
        match self.case.cache:
            case "growing":
                return cache.Growing()
            case "static":
                return cache.Static(*sizes, layer.head_dim, layer.values, dtype=layer.dtype)
            case "ring":
                return cache.Ring(self.case.window, first=self.case.first)
            case "cross":
                return cache.Cross()
        return None


def realise(case: Case) -> Scene:
    """Draw every tensor of the case."""
    module = case.layer.build()
    calls = [step for step in case.steps if isinstance(step, Call)]
    batch = calls[0].batch if calls else 1
    scene = Scene(case, module, [], sum(c.queries for c in calls) + 2, batch, dict(module.named_parameters()))
    lengths: list[int] | None = [0] * batch if case.cache == "static" else None
    rows: dict[int, Tensor] = {}
    kept: tuple[Tensor, Tensor | None] | None = None  # the key and value that fill a Cross cache
    for step in case.steps:
        if isinstance(step, Mistake):
            held = None if lengths is None else tuple(lengths)
            size = batch if held is None else len(held)
            if size > 0:
                scene.steps.append(Wrong(step.kind, Site(case.layer, size, case.cache, held, scene.capacity)))
        elif isinstance(step, Change):
            moved = _move(step, case, lengths)
            if moved is None:
                continue
            scene.steps.append(moved)
            if moved.refused or lengths is None:
                continue
            match moved.how:
                case "crop":
                    lengths = [min(n, moved.argument) for n in lengths]
                case "reorder":
                    lengths = [lengths[i] for i in moved.argument.tolist()]
                case _:
                    lengths = [0] * batch if case.cache == "static" else None
            kept = None
        else:
            filled = case.cache == "cross" and lengths is not None
            ready = _ready(step, case, lengths, kept, rows)
            scene.steps.append(ready)
            if case.cache == "cross":
                if not filled:
                    assert ready.key is not None
                    lengths, kept = [ready.key.shape[1]] * ready.query.shape[0], (ready.key, ready.value)
            elif case.cache is not None:
                before = lengths or [0] * ready.query.shape[0]
                lengths = [b + n for b, n in zip(before, ready.counts, strict=True)]
    return scene


def _move(step: Change, case: Case, lengths: list[int] | None) -> Moved | None:
    draw = random.Random(step.seed)
    if step.how == "reset":
        return Moved("reset")
    if not lengths:
        return None
    if step.how == "crop":
        tokens, longest = draw.randint(0, max(lengths) + 1), max(lengths)
        lost = case.cache == "ring" and longest > max(tokens, case.window + case.first)
        return Moved("crop", tokens, lost)
    rows = len(lengths) if case.cache == "static" else draw.randint(1, 3)
    return Moved("reorder", torch.tensor([draw.randrange(len(lengths)) for _ in range(rows)]))


def _ready(
    call: Call,
    case: Case,
    lengths: list[int] | None,
    kept: tuple[Tensor, Tensor | None] | None,
    rows: dict[int, Tensor],
) -> Ready:
    layer, generator = case.layer, torch.Generator().manual_seed(call.seed)
    draw = random.Random(call.seed)
    learns = case.mode == "grad" and not call.frozen
    batch = call.batch if lengths is None else len(lengths)
    crossed = case.cache == "cross"

    def tokens(count: int, width: int) -> Tensor:
        x = torch.randn(batch, count, width, generator=generator, dtype=torch.float64)
        return x.to(layer.dtype).requires_grad_(case.mode == "grad")

    query, key, value = tokens(call.queries, layer.d_model), None, None
    if kept is not None:
        key, value = kept if draw.random() < 0.5 else (None, None)  # a filled Cross cache needs no key
    elif call.keys is not None and not (crossed and lengths is not None):
        key = tokens(call.keys, layer.key_width)
        value = tokens(call.keys, layer.value_width) if call.form == "query, key, value" else None

    # ---- where the tokens stand, for the mask
    before = None if case.cache is None or crossed else lengths or [0] * batch
    keys = call.queries if call.keys is None else call.keys
    if crossed and lengths is not None:
        keys = max(lengths)
    fresh = before is None or not any(before)
    steps = torch.arange(call.queries)
    if before is None:
        places = (steps + keys - call.queries).expand(batch, -1)
    else:
        places = torch.tensor(before, dtype=torch.long)[:, None] + steps

    def room(counts: list[int] | None) -> Room:
        most, lost = keys, False
        if before is not None and not fresh:
            new = [call.queries] * batch if counts is None else counts
            most = max(b + n for b, n in zip(before, new, strict=True))
            full = case.window + case.first
            lost = case.cache == "ring" and most > full and (max(before) > full or call.queries == 1)
        held = None if before is None else tuple(before)
        return Room(batch, layer.heads, call.queries, most, places, layer.dtype, held, lost, learns)

    sight = build(
        call.mask, room, batch=batch, tokens=call.queries, raw=call.raw,
        changed=call.changed and case.cache is not None,
    )  # fmt: skip

    # ---- where they stand, for the position encoding
    positions = _positions(call, draw, batch)
    query_at = places if positions is None else positions.long().expand(batch, -1)
    other = call.keys is not None  # the keys are of another sequence
    key_at = torch.arange(keys).expand(batch, -1) if other else query_at
    given = positions is not None and case.cache is None and not other
    bias_key_at = key_at if given else torch.arange(sight.room.keys).expand(batch, -1)
    gate = None
    if call.gate:
        shape = (batch, layer.heads, call.queries)[1 if call.gate == 1 else 0 :][: call.gate]
        if call.gate > 1 and draw.random() < 0.2:
            shape = (1, *shape[1:])
        gate = torch.randn(shape, generator=generator, dtype=torch.float64).to(layer.dtype)
        gate.requires_grad_(learns and draw.random() < 0.7)
    return Ready(
        call=call,
        query=query,
        key=key,
        value=value,
        sight=sight,
        query_at=query_at,
        key_at=key_at,
        bias_key_at=bias_key_at,
        other=other,
        positions=positions,
        gate=gate,
        unbatched=call.unbatched and batch == 1,
        slots=case.cache == "ring" and not fresh and sight.room.keys > case.window + case.first,
        rows=rows,
    )


def _positions(call: Call, draw: random.Random, batch: int) -> Tensor | None:
    """Ascending with gaps, or in any order, negative ones included."""
    if call.positions is None:
        return None
    rows = {"1-D": 1, "one row": 1, "2-D": batch}[call.positions]
    orderly = draw.random() < 0.6
    table: list[list[int]] = []
    for _ in range(rows):
        start = draw.randint(0, 20)
        steps = [draw.choice([1, 1, 2, 4]) for _ in range(call.queries)]
        row = [start + sum(steps[:i]) for i in range(call.queries)]
        table.append(row if orderly else [draw.randint(-4, 30) for _ in row])
    found = torch.tensor(table, dtype=draw.choice([torch.long, torch.long, torch.int32])).view(rows, call.queries)
    return found[0] if call.positions == "1-D" else found
