"""A packed batch: the real tokens of all rows of a right-padded batch in one row.

It is a store (`_kv_store.py`) with only the keys of this call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from multihead.layer._coordinates import Coordinates, aligned
from multihead.layer._kv_store import NO_INPUTS, Inputs, NoCache
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_structured import ragged_lengths
from multihead.layer._tracing import is_compiling, transformed


@dataclass(frozen=True)
class PackedBatch(NoCache):
    """Row b of a (batch, width) batch is tokens bounds[b]..bounds[b+1]-1 of one row."""

    index: Int[Tensor, " total"]
    """the index of each real token in the flattened batch"""
    bounds: Sequence[int]
    batch: int
    width: int

    @property
    def longest(self) -> int:
        return max(hi - lo for lo, hi in zip(self.bounds, self.bounds[1:], strict=False))

    def coordinates(self, q: Tensor) -> Coordinates:
        """Coordinates of the padded batch, which masks refer to."""
        return aligned(self.batch, q.shape[1], self.width, self.width, q.device)

    def pack(self, x: Float[Tensor, "batch width dim"]) -> Float[Tensor, "1 total dim"]:
        return x.flatten(0, 1).index_select(0, self.index).unsqueeze(0)

    @property
    def packed(self) -> PackedBatch:
        return self

    def positions(
        self, positions: Tensor | None, batch: int, queries: int, keys: int, *, cross: bool
    ) -> tuple[Int[Tensor, "1 total"], Int[Tensor, "1 total"]]:
        """Positions of the real tokens: from `positions`, (width,) or (batch, width), or counted within the row."""
        if positions is None:
            packed = self.index % self.width
        else:
            packed = positions.to(self.index.device).expand(self.batch, self.width).flatten()[self.index]
        row = packed.unsqueeze(0)
        return row, row

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, None]:
        return mask, self.coordinates(q), None

    def pad_heads(self, x: Float[Tensor, "1 head total dim"]) -> Float[Tensor, "batch head width dim"]:
        """Packed heads in the padded shape, with zeros at the padding."""
        rows = x[0].transpose(0, 1)  # total, head, dim
        empty = rows.new_zeros(self.batch * self.width, *rows.shape[1:])
        return empty.index_copy(0, self.index, rows).unflatten(0, (self.batch, self.width)).transpose(1, 2)

    def pack_heads(self, x: Float[Tensor, "batch head width dim"]) -> Float[Tensor, "1 head total dim"]:
        return self.pack(x.transpose(1, 2).flatten(2)).unflatten(2, (x.shape[1], -1)).transpose(1, 2)

    def gate(self, gate: Float[Tensor, "#batch head #width 1"]) -> Float[Tensor, "1 head #total 1"]:
        """The gate of each real token in a packed batch; unchanged if it is the same for all tokens."""
        if gate.shape[0] == 1 and gate.shape[2] == 1:
            return gate
        return self.pack_heads(gate.expand(self.batch, -1, self.width, -1))

    def with_empty_row(self, x: Float[Tensor, "1 total dim"]) -> Float[Tensor, "1 total_and_1 dim"]:
        """The real tokens followed by one row of zeros, which stands for all padding."""
        return F.pad(x, (0, 0, 0, 1))

    def pad(self, x: Float[Tensor, "1 total_and_1 dim"]) -> Float[Tensor, "batch width dim"]:
        """The packed output as a padded batch, with the last row of x at the padding."""
        rows, empty = x[0].split((self.bounds[-1], 1))
        padded = empty.expand(self.batch * self.width, -1).index_copy(0, self.index, rows)
        return padded.unflatten(0, (self.batch, self.width))


def packed_batch(mask: Mask, tokens: Float[Tensor, "batch width d_model"]) -> PackedBatch | None:
    """The packed batch that a `ragged` mask describes.

    None without such a mask, in a traced graph, under torch.func, or if the host cannot read its lengths. The
    number of real tokens plays no part, so hooks on the projections see tensors of the same form for any amount of
    padding.
    """
    if is_compiling() or transformed():
        return None
    batch, width = tokens.shape[:2]
    lengths = ragged_lengths(mask, batch, tokens.device)
    if lengths is None or not lengths.on_host or not mask.structured:
        return None
    counts = lengths.values * batch if lengths.count == 1 else lengths.values
    if not all(0 <= n <= width for n in counts):
        return None  # the mask's own check reports bad lengths
    index = [torch.arange(n, device=tokens.device) + b * width for b, n in enumerate(counts)]
    joined = torch.cat(index) if index else torch.arange(0, device=tokens.device)
    return PackedBatch(joined, [0, *accumulate(counts)], batch, width)
