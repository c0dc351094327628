"""The buffers of a cache: allocate, copy, and write tokens of every row into their slots."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead._base.arguments import allocating
from multihead._base.shapes import StoredKeys, StoredValues
from multihead.layer._tracing import is_eager

Lengths = Sequence[int] | Int[Tensor, " batch"]


@dataclass(slots=True)
class AppendStep:
    """A pending append: tokens of each row before and after it, and the keys that the queries will see."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    keys: int
    query_positions: Int[Tensor, "#batch query"] | None = None
    key_positions: Int[Tensor, "#batch key"] | None = None
    filled: Bool[Tensor, "batch key"] | None = None
    start: int | None = None
    """the slot of the first new token, if every row stores all new tokens from the same slot on"""
    lengths: Lengths | None = None
    owner: weakref.ref[nn.Module] | None = None
    """the layer that makes the step"""
    graph: bool = False
    """whether a backward pass reads the keys and values, which may then not be written over"""

    @property
    def fresh(self) -> bool:
        """Whether the cache was empty."""
        return self.start == 0 or (bool(self.before) and not any(self.before))


def write_rows(
    buffers: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], step: AppendStep
) -> tuple[StoredKeys, StoredValues]:
    """Write token j of a row into slot j of the cache; return the slots up to the longest row."""
    (k, v), tokens = buffers, new[0].shape[2]
    if step.start is not None and is_eager(k) and not torch.is_grad_enabled():
        return _write_run(k, new[0], step.start, step.keys), _write_run(v, new[1], step.start, step.keys)
    if step.start is not None:
        k.narrow(2, step.start, tokens).copy_(new[0])
        v.narrow(2, step.start, tokens).copy_(new[1])
    else:
        before, after = length_columns(step.before, step.after)
        slots = before + torch.arange(tokens)
        rows, index = (slots < after).nonzero(as_tuple=True)
        copy_tokens(new, rows, index, buffers, slots[rows, index])
    return k.narrow(2, 0, step.keys), v.narrow(2, 0, step.keys)


def _write_run(
    buffer: Float[Tensor, "batch kv_head slot dim"], new: Tensor, start: int, keys: int
) -> Float[Tensor, "batch kv_head key dim"]:
    """Write tokens into cache slots from `start` on; return the first `keys`. `narrow` takes twice the time."""
    (batch, heads, _, dim), strides, offset = buffer.shape, buffer.stride(), buffer.storage_offset()
    target = buffer.as_strided((batch, heads, new.shape[2], dim), strides, offset + start * strides[2])
    target.copy_(new)
    return buffer.as_strided((batch, heads, keys, dim), strides, offset)


def length_columns(
    before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[Int[Tensor, "batch 1"], Int[Tensor, "batch 1"]]:
    """Lengths of cached rows as column tensors on the CPU, without a sync of an accelerator."""
    return torch.tensor(before, dtype=torch.long)[:, None], torch.tensor(after, dtype=torch.long)[:, None]


def copy_tokens(
    source: tuple[Tensor, Tensor], rows: Tensor, tokens: Tensor, target: tuple[Tensor, Tensor], slots: Tensor
) -> None:
    """target[rows, :, slots] = source[rows, :, tokens], for keys and values."""
    rows, tokens, slots = (index.to(target[0].device) for index in (rows, tokens, slots))
    for x, buffer in zip(source, target, strict=True):
        buffer[rows, :, slots] = x[rows, :, tokens]


def allocate(like: Tensor, capacity: int) -> Tensor:
    """An empty buffer of the cache."""
    # Zeros, because NaN in an empty slot would show in the output: 0 · NaN is NaN.
    # Outside inference mode: only inference mode can write to tensors created in it.
    with torch.inference_mode(False), allocating(capacity=capacity):
        return torch.zeros(*like.shape[:2], capacity, like.shape[3], dtype=like.dtype, device=like.device)


def copied(x: Tensor) -> Tensor:
    """A copy to write to; gradients flow through it."""
    return allocate(x, x.shape[2]).copy_(x)
