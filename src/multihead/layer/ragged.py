"""A right-padded batch without its padding: the real tokens of all rows in one long row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead.layer.mask_algebra import Mask
from multihead.layer.mask_kinds import ragged_lengths

WORTH = 0.95
"""Packing copies the input once; above this share of real tokens it saves less than it costs."""


@dataclass(frozen=True)
class Packed:
    """Row b of a (batch, width) batch is tokens bounds[b]..bounds[b+1]-1 of one row."""

    tokens: Float[Tensor, "1 total d_model"]
    positions: Int[Tensor, "1 total"]
    given: Tensor | None  # the positions that the user gave, unpacked
    index: Int[Tensor, " total"]  # of each real token in the flattened batch
    bounds: Sequence[int]
    batch: int
    width: int

    def unpack(
        self, out: Float[Tensor, "1 total d_out"], nothing: Float[Tensor, "1 1 d_out"]
    ) -> Float[Tensor, "batch width d_out"]:
        """The padded batch again; `nothing` is what a row that attends to nothing gives."""
        filled = nothing[0].to(out.dtype).expand(self.batch * self.width, -1)
        return filled.index_copy(0, self.index, out[0]).unflatten(0, (self.batch, self.width))

    def unpack_heads(
        self, heads: Float[Tensor, "1 head total value_dim"]
    ) -> Float[Tensor, "batch head width value_dim"]:
        """The outputs of the heads, zeros where a row attends to nothing."""
        rows = heads[0].transpose(0, 1)  # total, head, value_dim
        empty = rows.new_zeros(self.batch * self.width, *rows.shape[1:])
        return empty.index_copy(0, self.index, rows).unflatten(0, (self.batch, self.width)).transpose(1, 2)


def pack(
    mask: Mask,
    tokens: Float[Tensor, "batch width d_model"],
    positions: Tensor | None,
    head_gate: Tensor | None,
) -> Packed | None:
    """Drop the padding that a `ragged` mask names, or None where it names none or dropping is not worth it."""
    lengths = ragged_lengths(mask)
    batch, width = tokens.shape[:2]
    if lengths is None or not lengths.known or not mask.structured or torch.compiler.is_compiling():
        return None
    if head_gate is not None and head_gate.ndim > 1:
        return None
    if len(lengths.values) not in (1, batch):
        return None  # bad lengths are reported by the mask's own check
    counts = [lengths.row(b) for b in range(batch)]
    if not 0 < sum(counts) <= WORTH * batch * width or max(counts) > width or min(counts) < 0:
        return None
    each = [torch.arange(n, device=tokens.device) for n in counts]
    index = torch.cat([row + b * width for b, row in enumerate(each)])
    if positions is None:
        placed = torch.cat(each)
    else:
        placed = positions.expand(batch, width).flatten()[index]
    packed = tokens.flatten(0, 1).index_select(0, index).unsqueeze(0)
    return Packed(packed, placed.unsqueeze(0), positions, index, [0, *accumulate(counts)], batch, width)
