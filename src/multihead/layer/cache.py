"""Key/value caches: each token of a text is projected once.

>>> import torch
>>> from multihead import cache
>>> kv = cache.Growing()
>>> view = kv.append(torch.randn(2, 4, 7, 16), torch.randn(2, 4, 7, 16))
>>> view.k.shape, kv.length, kv
(torch.Size([2, 4, 7, 16]), 7, Growing(2 rows, 7 tokens, 7.0 KiB of 16.0 KiB))

| cache     | memory                 | for                                                     |
|-----------|------------------------|---------------------------------------------------------|
| `Growing` | doubles when full      | anything in eager mode; gradients flow through it       |
| `Static`  | `capacity`, at once    | torch.compile: the length is data, not a constant       |
| `Ring`    | the last `window`      | sliding-window attention over texts of any length       |
| `Cross`   | the keys, once         | cross-attention: the encoder's keys and values          |

A cache serves one layer. Rows may differ in length: `append(k, v, lengths)` appends the first lengths[b] new tokens
to row b.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor, nn

from multihead._base.arguments import allocating, check_count, check_device_and_dtype
from multihead._base.lazy_names import listed_names
from multihead._base.shapes import Keys, StoredKeys, StoredValues, Values
from multihead.errors import CacheError
from multihead.layer._cache_base import Cache, View, common_length, none_if_all, on_device
from multihead.layer._cache_buffers import (
    AppendStep,
    Lengths,
    allocate,
    copied,
    copy_tokens,
    length_columns,
    write_rows,
)
from multihead.layer._coordinates import Coordinates
from multihead.layer._cross_cache import Cross
from multihead.layer._kv_store import NO_INPUTS, Inputs
from multihead.layer._mask_algebra import Mask
from multihead.layer._tracing import is_compiling
from multihead.layer.mask import window

__all__ = ["Cache", "View", "Growing", "Static", "Ring", "Cross"]
__dir__ = listed_names(__name__)


class Growing(Cache):
    """Doubles when full, so each token is copied about once more, for a text of any length.

    New tokens are written in place. If they require grad, the memory is new at every step, so that gradients flow
    back into each of them, at the cost of that copy: decode under `torch.no_grad()`. If only the queries do, it is
    new as well: their gradient is computed from the keys.
    """

    @property
    def capacity(self) -> int:
        """Tokens per row that fit without a new allocation."""
        return 0 if self._k is None else self._k.shape[2]

    def _write(self, k: Keys, v: Values, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        """Growing cache: store tokens, in larger buffers if these are full."""
        # A tensor that a backward pass will read must not be written over.
        graph = step.graph or k.requires_grad or v.requires_grad or self.requires_grad
        if self._k is None or graph or self._in_graph or self._k.shape[2] < step.keys:
            self._reallocate(k, v, step.keys if graph else max(step.keys, 2 * self.capacity, 16))
        self._in_graph = graph
        keys, values = write_rows(self._buffers(), (k, v), step)
        self._set_lengths(step.after)
        return keys, values

    def _reallocate(self, k: Tensor, v: Tensor, capacity: int) -> None:
        """Give a growing cache memory for `capacity` tokens."""
        used = max(self._row_lengths(), default=0)
        old = (self._k, self._v)
        self._k, self._v = allocate(k, capacity), allocate(v, capacity)
        for source, target in zip(old, (self._k, self._v), strict=True):
            if source is not None:
                target[:, :, :used] = source[:, :, :used]


class Static(Cache):
    """All memory allocated at once, and the length as a tensor: one compiled graph serves every step.

    In eager mode a view ends at the last token; compiled, it always has `capacity` slots, with `filled`. A text
    longer than that raises `CacheError` in eager mode, and an index error of the backend if compiled.
    """

    def __init__(
        self,
        batch: int,
        kv_heads: int,
        capacity: int,
        key_dim: int,
        value_dim: int | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        value_dim = key_dim if value_dim is None else value_dim
        sizes = {"batch": batch, "kv_heads": kv_heads, "capacity": capacity, "key_dim": key_dim}
        sizes |= {"value_dim": value_dim}
        for name, size in sizes.items():
            check_count(name, size, least=0)
        check_device_and_dtype(device, dtype)
        self.capacity = capacity
        with torch.inference_mode(False), allocating(**sizes):  # otherwise only inference mode could write to them
            self._k = torch.zeros(batch, kv_heads, capacity, key_dim, dtype=dtype, device=device)
            self._v = torch.zeros(batch, kv_heads, capacity, value_dim, dtype=dtype, device=device)
            self._lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self._set_lengths((0,) * batch)
        if self._lengths.device.type == "cuda":  # for CUDA graphs: these tensors keep their address
            from torch._dynamo import mark_static_address

            for tensor in (self._k, self._v, self._lengths):
                mark_static_address(tensor)

    def _advance(self, k: Keys, lengths: Lengths | None) -> AppendStep:
        """The step by which these keys fill the static cache; raises if it is full."""
        if is_compiling():
            return self._advance_traced(k, lengths)
        step = super()._advance(k, lengths)
        if step.keys > self.capacity:
            raise CacheError(
                f"Static(capacity={self.capacity}) holds at most {self.capacity} tokens, got {step.keys} tokens",
                hint=f"use capacity >= {step.keys}, crop() or reset() it, or use Growing() or Ring()",
            )
        return step

    def _advance_traced(self, k: Keys, lengths: Lengths | None) -> AppendStep:
        """The step of a static cache in a traced graph, where the length is data."""
        new, slots = k.shape[2], torch.arange(self.capacity, device=k.device)
        positions = self._lengths[:, None] + torch.arange(new, device=k.device)
        count = new if lengths is None else torch.as_tensor(lengths, device=k.device)
        after = self._lengths + count
        return AppendStep((), (), self.capacity, positions, None, slots < after[:, None], lengths=lengths)

    def _write(self, k: Keys, v: Values, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        """Static cache: store tokens in place."""
        if torch.is_grad_enabled() and (step.graph or k.requires_grad or v.requires_grad):
            raise CacheError(
                "Static writes in place, but q, k or v require grad",
                hint="decode under torch.no_grad(), or use Growing(), through which gradients flow",
            )
        if is_compiling():
            return self._write_traced(k, v, step)
        keys, values = write_rows(self._buffers(), (k, v), step)
        self._set_lengths(step.after)
        return keys, values

    def _write_traced(self, k: Tensor, v: Tensor, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        """Static cache: store tokens in a traced graph."""
        buffers, new = self._buffers(), k.shape[2]
        if step.lengths is None:
            assert step.query_positions is not None
            rows = torch.arange(k.shape[0], device=k.device)[:, None]
            for buffer, x in zip(buffers, (k, v), strict=True):
                buffer.transpose(1, 2).index_put_((rows, step.query_positions), x.transpose(1, 2))
            self._lengths.add_(new)
        elif new > 0:
            # The index of the new token for each slot.
            count = torch.as_tensor(step.lengths, device=k.device)
            token = torch.arange(self.capacity, device=k.device) - self._lengths[:, None]
            is_new = ((token >= 0) & (token < count[:, None]))[:, None, :, None]
            token = token.clamp(0, new - 1)[:, None, :, None]
            for buffer, x in zip(buffers, (k, v), strict=True):
                source = x.gather(2, token.expand(-1, x.shape[1], -1, x.shape[3]))
                buffer.copy_(torch.where(is_new, source, buffer))
            self._lengths.add_(count)
        return buffers

    @property
    def length(self) -> int | None:
        """As in every cache; None also while compiling, where the length is data."""
        return None if is_compiling() else self._common_length()

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self._lengths.clone()

    def reset(self) -> None:
        """Forget everything; keep the memory."""
        self._owner = None
        self._set_lengths((0,) * self._lengths.shape[0])

    def _row_lengths(self) -> tuple[int, ...]:
        self._read_lengths()
        return self._tokens

    def _common_length(self) -> int | None:
        self._read_lengths()
        return self._length

    def _read_lengths(self) -> None:
        """Update the host's copy of the cache's length after a compiled step; eager steps need no sync."""
        if self._lengths._version != self._version:
            self._tokens = tuple(self._lengths.tolist())
            self._length, self._version = common_length(self._tokens), self._lengths._version

    def _set_lengths(self, tokens: tuple[int, ...]) -> None:
        """Set the length of a static cache, on host and device."""
        super()._set_lengths(tokens)
        if self._length is not None:
            self._lengths.fill_(self._length)
        else:
            self._lengths.copy_(torch.tensor(tokens, dtype=torch.long, device=self._lengths.device))
        self._version = self._lengths._version

    def _replace_buffers(self, k: Tensor, v: Tensor) -> None:
        """Write new contents into the fixed memory of a static cache."""
        for buffer, new in zip(self._buffers(), (k, v), strict=True):
            if buffer.shape != new.shape:
                raise CacheError(
                    f"index must have one entry per row of Static, {buffer.shape[0]} rows, got {new.shape[0]}",
                    hint="its memory is fixed; use Growing() to change the number of rows",
                )
            buffer.copy_(new)


class Ring(Cache):
    """The last `window` tokens, each new one replacing the oldest; the `first` tokens of the text are kept.

    Attention through it has the mask `mask.window(window, first=first)`. With one new token the view is the ring
    itself. With several, each must still see its full window, so the view is a copy: the ring followed by the new
    tokens.
    """

    def __init__(self, window: int, *, first: int = 0) -> None:
        super().__init__()
        check_count("window", window)
        check_count("first", first, least=0)
        self.window, self.first = window, first

    @property
    def capacity(self) -> int:
        """Slots per row."""
        return self.first + self.window

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, AppendStep]:
        return super().view(mask & window(self.window, first=self.first), q, k, layer)

    def _advance(self, k: Keys, lengths: Lengths | None) -> AppendStep:
        """The step by which these keys enter the ring cache, where they may overwrite the oldest."""
        step = super()._advance(k, lengths)
        if step.keys <= self.capacity:  # no slot is reused yet: token j is in slot j
            return step
        before, after = length_columns(step.before, step.after)
        query_positions, slots = before + torch.arange(k.shape[2]), torch.arange(self.capacity)
        same_length = step.start is not None
        if k.shape[2] == 1:
            keys, key_positions = self.capacity, self._positions(after)
            filled = None if same_length else none_if_all(slots < after)
        else:
            old = min(max(step.before, default=0), self.capacity)
            keys = old + k.shape[2]
            key_positions = torch.cat((self._positions(before)[:, :old], query_positions), 1)
            filled = none_if_all(torch.cat(((slots < before)[:, :old], query_positions < after), 1))
        rows = slice(0, 1) if same_length else slice(None)
        of_queries, of_keys, filled = on_device(k.device, query_positions[rows], key_positions[rows], filled)
        return AppendStep(step.before, step.after, keys, of_queries, of_keys, filled)

    def _write(self, k: Keys, v: Values, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        """Ring cache: store tokens."""
        graph = step.graph or k.requires_grad or v.requires_grad or self.requires_grad
        if self._k is None:
            self._k, self._v = allocate(k, self.capacity), allocate(v, self.capacity)
        elif graph or self._in_graph:
            # A tensor that a backward pass will read must not be written over.
            self._k, self._v = (copied(t) for t in self._buffers())
        self._in_graph = graph
        self._set_lengths(step.after)
        if step.key_positions is None:
            return write_rows(self._buffers(), (k, v), step)
        return self._replace_oldest(k, v, step)

    def _replace_oldest(self, k: Tensor, v: Tensor, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        """Ring cache: overwrite the oldest keys; returns the keys to attend to."""
        buffers = self._buffers()
        before, after = length_columns(step.before, step.after)
        positions = before + torch.arange(k.shape[2])
        old = step.keys - k.shape[2]
        joined: list[Tensor] = []
        if k.shape[2] > 1:  # before the oldest tokens are overwritten
            joined = [torch.cat((t[:, :, :old], x), 2) for t, x in zip(buffers, (k, v), strict=True)]
        stored = (positions < after) & ((positions < self.first) | (positions >= after - self.window))
        rows, tokens = stored.nonzero(as_tuple=True)
        copy_tokens((k, v), rows, tokens, buffers, self._slot(positions[rows, tokens]))
        return (joined[0], joined[1]) if joined else buffers

    def crop(self, tokens: int) -> None:
        """Keep the first `tokens` of every row of a ring cache; raises if it has overwritten keys they need."""
        check_count("tokens", tokens, least=0)
        longest = max(self._row_lengths(), default=0)
        if longest > max(tokens, self.capacity):
            raise CacheError(
                f"Ring(window={self.window}) cannot crop to {tokens} of {longest} tokens: it has overwritten keys "
                "that they attend to",
                hint="crop before the ring is full, or use Growing()",
            )
        super().crop(tokens)

    def _slot(self, position: Tensor) -> Tensor:
        around = self.first + (position - self.first) % self.window
        return torch.where(position < self.first, position, around)

    def _positions(self, stored: Int[Tensor, "#batch 1"]) -> Int[Tensor, "#batch slots"]:
        """The position of the token in each slot of a `Ring`; the index of the slot if it is empty."""
        slots = torch.arange(self.capacity, device=stored.device)
        laps = (stored - 1 - slots).clamp(min=0) // self.window
        return slots + self.window * torch.where(slots < self.first, 0, laps)

    def _slots(self, tokens: int) -> int:
        return min(tokens, self.capacity)
