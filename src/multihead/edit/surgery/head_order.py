"""In which order a parameter holds the heads, and the parameter that holds other heads in the same order.

>>> from multihead.edit.surgery.head_order import Pack
>>> from multihead.layer._problem import Groups
>>> " ".join(letter + str(i) for letter, i in Pack("qkv", "qkv", 0, "grouped").pieces(Groups((0, 0, 1), 2)))
'q0 q1 k0 v0 q2 k1 v1'
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.model.head_storage import Slots, Storage
from multihead.model.head_weights import HeadWeights

HeadOrder = Literal["blocks", "grouped", "paired"]
Piece = tuple[str, int]
"""(letter, head): the rows of one head."""


@dataclass(frozen=True)
class Pack:
    """One parameter with the rows of q, k, v or the gate, or of several of them.

    `blocks`: all q, all k, all v; `grouped`: kv head by kv head, its queries, its key, its value; `paired`: query
    head by query head, its query and its gate.
    """

    parameter: str
    letters: str
    axis: int
    order: HeadOrder = "blocks"
    bias: bool = False

    def pieces(self, groups: Groups) -> list[Piece]:
        """The heads in the order in which the layout stores them."""
        heads = len(groups.kv_of_head)
        count = {"q": heads, "g": heads, "k": groups.kv_heads, "v": groups.kv_heads}
        if self.order == "blocks":
            return [(letter, i) for letter in self.letters for i in range(count[letter])]
        if self.order == "paired":
            return [(letter, i) for i in range(heads) for letter in self.letters]
        pieces: list[Piece] = []
        for kv in range(groups.kv_heads):
            readers = (h for h, read in enumerate(groups.kv_of_head) if read == kv)
            pieces += [("q", h) for h in readers if "q" in self.letters]
            pieces += [(letter, kv) for letter in self.letters if letter != "q"]
        return pieces

    def values(self, new: HeadWeights) -> Tensor:
        """The parameter that holds these heads."""
        rows = torch.cat(self.rows(new, self.pieces(new.groups)))
        return rows.mT if self.axis == 1 and not self.bias else rows

    def rows(self, new: HeadWeights, pieces: list[Piece]) -> list[Tensor]:
        """The rows of these pieces, after an empty tensor: a layer may have no heads."""
        rows = {letter: _rows(new, letter, self.bias) for letter in self.letters}
        like = rows[self.letters[0]]
        return [like.new_zeros(0, *like.shape[2:]), *(rows[letter][i] for letter, i in pieces)]


def _rows(new: HeadWeights, letter: str, bias: bool) -> Tensor:
    """The rows of a projection of the new heads, in any layout; zeros for an absent bias."""
    weight: Tensor = getattr(new, letter)
    if not bias:
        return weight
    b: Tensor | None = getattr(new, f"b_{letter}")
    return weight.new_zeros(weight.shape[:2]) if b is None else b


def packs_of(storage: Storage, place: str) -> list[Pack]:
    """The layout of the parameters of q, k, v and the gate, weights and biases."""
    parameters: dict[tuple[str, int, bool], dict[str, tuple[Slots, ...]]] = {}
    for letter, part in storage.projections.items():
        if letter == "o":
            continue
        parameters.setdefault((part.parameter, part.axis, False), {})[letter] = part.heads
        if part.bias is not None:
            parameters.setdefault((part.bias, 0, True), {})[letter] = part.bias_heads
    return [
        Pack(name, letters, axis, _order(of, letters, storage.groups, f"{place}: {name}"), bias)
        for (name, axis, bias), of in parameters.items()
        for letters in ["".join(of)]
    ]


def _order(of: dict[str, tuple[Slots, ...]], letters: str, groups: Groups, place: str) -> HeadOrder:
    """The order of heads in a parameter's layout; raises for an unknown order."""
    by_start = sorted((slots.start, letter, i) for letter, heads in of.items() for i, slots in enumerate(heads))
    pieces = [(letter, i) for _, letter, i in by_start]
    adjacent = all(slots.step == 1 for heads in of.values() for slots in heads)
    orders: tuple[HeadOrder, ...] = ("blocks", "paired") if "g" in letters else ("blocks", "grouped")
    for order in orders:
        if adjacent and pieces == Pack("", letters, 0, order).pieces(groups):
            return order
    shown = " ".join(f"{letter}{i}" for letter, i in pieces[:8])
    raise MultiheadError(
        f"{place} holds its heads in the order {shown} ..., in which it cannot be cut",
        hint="known are all q, all k, all v; kv head by kv head; query head by query head with its gate; rows of "
        "one head adjacent",
    )


def out_values(new: HeadWeights, axis: int) -> Tensor:
    """W_O of these heads: its columns (axis 1), or rows where the parameter is stored transposed (axis 0)."""
    columns = new.o.permute(0, 2, 1).flatten(0, 1)  # head · value_dim, d_out
    return columns if axis == 0 else columns.mT


def out_bias(new: HeadWeights) -> Tensor:
    return new.o.new_zeros(new.o.shape[1]) if new.b_o is None else new.b_o


def check_covered(pack: Pack, storage: Storage, own: nn.Parameter, place: str) -> None:
    """Raise unless every row of the layout belongs to a head: others would be lost."""
    rows = sum(
        slots.count
        for letter in pack.letters
        for slots in (storage[letter].bias_heads if pack.bias else storage[letter].heads)
    )
    length = own.shape[0 if pack.bias else pack.axis]
    if rows != length:
        raise MultiheadError(
            f"{place}: {pack.parameter} has {length} rows, of which the heads have {rows}",
            hint="a parameter that holds more than q, k and v is not cut",
        )


def contiguous(groups: Groups) -> bool:
    """Whether the query heads of every kv head are adjacent, in the order of the kv heads."""
    return [kv for kv, _ in groupby(groups.kv_of_head)] == list(range(groups.kv_heads))
