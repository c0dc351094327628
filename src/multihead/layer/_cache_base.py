"""The base of all caches: lengths per row, byte counts, reordering, and the pending step of an append."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead._base.arguments import check_count, check_tensor, describe, holds_integers
from multihead._base.shapes import Keys, StoredKeys, StoredValues, Values
from multihead.errors import CacheError, SizeError, TypeMismatchError
from multihead.layer._cache_buffers import AppendStep, Lengths, length_columns
from multihead.layer._coordinates import Coordinates
from multihead.layer._host_integers import HostInts
from multihead.layer._kv_store import NO_INPUTS, Inputs, TokenPositions, sized
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_structured import ragged_lengths, within_cache
from multihead.layer._tracing import is_compiling


@dataclass(frozen=True)
class View:
    """The keys and values that the new tokens may attend to: slices of the cache (see `Ring` for its copies).

    query_positions: positions of the new tokens; None if they are the last keys of every row.
    key_positions: position of each key; None if key j is at position j.
    filled: the slots that hold a key; None if all do.
    """

    k: Float[Tensor, "batch kv_head key key_dim"]
    v: Float[Tensor, "batch kv_head key value_dim"]
    query_positions: Int[Tensor, "#batch query"] | None = None
    key_positions: Int[Tensor, "#batch key"] | None = None
    filled: Bool[Tensor, "batch key"] | None = None


class Cache(ABC):
    """append(k, v) → View of all keys and values so far."""

    def __init__(self) -> None:
        self._k: Tensor | None = None
        self._v: Tensor | None = None
        self._tokens: tuple[int, ...] = ()
        self._length: int | None = 0
        self._owner: weakref.ref[nn.Module] | None = None
        self._in_graph = False  # whether the last step was part of a graph

    # ---- public methods ---------------------------------------------------------------------------

    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        """Store new tokens, for row b the first lengths[b]; return the keys and values that they may attend to."""
        self._validate(k, v)
        step = self._advance(k, lengths)
        keys, values = self._write(k, v, step)
        return View(keys, values, step.query_positions, step.key_positions, step.filled)

    @property
    def length(self) -> int | None:
        """Tokens stored so far if all rows have the same number, else None."""
        return self._common_length()

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Tokens stored so far, per row."""
        device = None if self._k is None else self._k.device
        return torch.tensor(self._row_lengths(), dtype=torch.long, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(t.nbytes for t in (self._k, self._v) if t is not None)

    @property
    def used_bytes(self) -> int:
        """Bytes of the cache that hold a token."""
        if self._k is None or self._k.shape[0] * self._k.shape[2] == 0:
            return 0
        return self.nbytes // (self._k.shape[0] * self._k.shape[2]) * sum(map(self._slots, self._row_lengths()))

    def reset(self) -> None:
        """Forget everything and free the memory."""
        self._k = self._v = self._owner = None
        self._set_lengths(())

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Replace row i by row index[i], as a beam search does. The number of rows may change."""
        check_tensor("index", index)
        if not holds_integers(index) or index.ndim != 1:
            raise TypeMismatchError(
                f"index must be a 1-D tensor of integers, got {describe(index)}", hint="torch.tensor([0, 0, 1])"
            )
        counts, rows = self._row_lengths(), [int(i) for i in index.tolist()]
        if any(not 0 <= i < len(counts) for i in rows):
            raise CacheError(
                f"index must name rows of {type(self).__name__}, which has {len(counts)} rows, got {rows}",
                hint=f"use 0..{len(counts) - 1}" if counts else "append first: an empty cache has no rows",
            )
        k, v = self._buffers()
        grad = torch.is_grad_enabled()
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(grad),
        ):  # else only inference mode could write to it
            chosen = [t.index_select(0, index.to(t.device)) for t in (k, v)]
        self._replace_buffers(*chosen)
        self._set_lengths(tuple(counts[i] for i in rows))

    def crop(self, tokens: int) -> None:
        """Keep the first `tokens` of every row, as speculative decoding does to step back."""
        check_count("tokens", tokens, least=0)
        self._set_lengths(tuple(min(n, tokens) for n in self._row_lengths()))

    def __repr__(self) -> str:
        counts = self._row_lengths()
        if not counts:
            return f"{type(self).__name__}(empty)"
        span = f"{min(counts)} to {max(counts)}" if common_length(counts) is None else f"{counts[0]}"
        memory = f"{_kib(self.used_bytes)} of {_kib(self.nbytes)}"
        return f"{type(self).__name__}({len(counts)} rows, {span} tokens, {memory})"

    # ---- the protocol `_kv_store.KVStore` ------------------------------------------------------------

    tokens = None
    """the sequence is not split over ranks"""
    packed = None

    @property
    def requires_grad(self) -> bool:
        return self._k is not None and self._v is not None and (self._k.requires_grad or self._v.requires_grad)

    def known(
        self, key: Tensor | None, value: Tensor | None, layer: nn.Module, batch: int
    ) -> tuple[Keys, Values] | None:
        """None; raises for a key, since only a `Cross` cache serves cross-attention."""
        if key is not None:
            raise SizeError(
                f"key must be None with a {type(self).__name__} cache, which is for self-attention, "
                f"got {describe(key)}",
                hint="pass no key; for cross-attention use cache.Cross()",
            )
        return None

    def positions(
        self, positions: Tensor | None, batch: int, queries: int, keys: int, *, cross: bool
    ) -> tuple[TokenPositions, TokenPositions]:
        """Positions of queries and new keys: from `positions`, or counted on from the cached tokens."""
        if positions is not None:
            return positions, positions
        start = self.length
        if start is None:
            self._validate_rows(batch)
            return (next_positions := self.next_positions(queries)), next_positions
        return start, start

    def next_positions(self, new: int) -> Int[Tensor, " query"] | Int[Tensor, "batch query"]:
        """Positions of the next `new` tokens in the cache: (new,), or (batch, new) if rows differ in length."""
        length = self.length
        steps = torch.arange(new, device=None if self._k is None else self._k.device)
        return steps + length if length is not None else self.lengths[:, None] + steps

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, Any]:
        """The mask and the coordinates of a call over the cached and new keys, and the step for `take`."""
        self._validate_buffers(k)
        owner = self._owned_by(layer)
        lengths = ragged_lengths(mask, k.shape[0], k.device)
        step = self._advance(k, None if lengths is None else lengths.tensor().expand(k.shape[0]))
        step.owner = owner
        if torch.is_grad_enabled():
            step.graph = _needs_keys(mask, q, layer)
        if step.fresh:  # the new tokens are all there is, in the order they have here
            return mask, sized(q, q.shape[2]), step
        mask = within_cache(mask, step.filled)
        if step.query_positions is None and step.key_positions is None:
            return mask, sized(q, step.keys), step
        tokens = None if step.key_positions is None else max(step.after, default=q.shape[2])
        batch, heads, queries, _ = q.shape
        coordinates = Coordinates(
            batch, heads, queries, step.keys, q.device, step.query_positions, step.key_positions, tokens=tokens
        )
        return mask, coordinates, step

    def take(self, k: Keys, v: Values, step: Any) -> tuple[StoredKeys, StoredValues]:
        """Cache the new keys and values; return all cached ones."""
        self._validate_buffers(v, "v")
        keys, values = self._write(k, v, step)
        if step.owner is not None:
            self._owner = step.owner
        return (k, v) if step.fresh else (keys, values)

    # ---- implemented by each cache -----------------------------------------------------------------

    @abstractmethod
    def _write(self, k: Keys, v: Values, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        """Store new tokens; return all keys and values that they may attend to."""

    def _advance(self, k: Keys, lengths: Lengths | None) -> AppendStep:
        """The step by which these keys extend the cache."""
        (batch, _, new, _), start = k.shape, self._common_length()
        before = self._tokens or (0,) * batch
        if start is not None and (lengths is None or not batch):
            end = start + new
            return AppendStep(before, (end,) * batch, end, start=start)
        added = per_row(lengths, batch, new)
        after = tuple(b + n for b, n in zip(before, added, strict=True))
        return self._uneven(k, before, after)

    def _uneven(self, k: Keys, before: tuple[int, ...], after: tuple[int, ...]) -> AppendStep:
        """The step of a cache whose rows differ in length, before or after it."""
        new, used, start = k.shape[2], max(after, default=0), common_length(before)
        if start is not None and common_length(after) == used == start + new:
            return AppendStep(before, after, used, start=start)
        old, current = length_columns(before, after)
        filled = None
        if common_length(after) is None:
            filled = (torch.arange(used) < current).to(k.device)
        return AppendStep(before, after, used, (old + torch.arange(new)).to(k.device), None, filled)

    def _row_lengths(self) -> tuple[int, ...]:
        return self._tokens

    def _common_length(self) -> int | None:
        return self._length

    def _set_lengths(self, tokens: tuple[int, ...]) -> None:
        self._tokens, self._length = tokens, common_length(tokens)

    def _slots(self, tokens: int) -> int:
        """The number of slots that a row of `tokens` tokens occupies."""
        return tokens

    def _replace_buffers(self, k: Tensor, v: Tensor) -> None:
        self._k, self._v = k, v

    def _buffers(self) -> tuple[Tensor, Tensor]:
        if self._k is None or self._v is None:
            raise CacheError(f"{type(self).__name__} is empty", hint="append first")
        return self._k, self._v

    def _owned_by(self, layer: nn.Module) -> weakref.ref[nn.Module] | None:
        """A reference to the layer that the cache belongs to; raises if a different layer has stored keys."""
        if is_compiling():
            return None  # a graph that reads the owner would be recompiled for each layer
        if self._owner is not None and self._owner() is layer:
            return self._owner
        if self._owner is not None and any(self._row_lengths()):
            raise CacheError(
                f"a cache serves one layer, got a {type(self).__name__} that holds the keys of a different layer",
                hint="create one per layer: [cache.Growing() for _ in layers]",
            )
        return weakref.ref(layer)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_owner": None}  # a weak reference cannot be pickled

    def _validate(self, k: Tensor, v: Tensor) -> None:
        """Raise if new keys and values do not fit each other or those in the cache."""
        check_tensor("k", k)
        check_tensor("v", v)
        if k.ndim != 4 or v.ndim != 4 or k.shape[:3] != v.shape[:3]:
            raise CacheError(
                f"k and v must be (batch, kv_head, tokens, dim) and differ only in dim, got k of shape "
                f"{tuple(k.shape)} and v of shape {tuple(v.shape)}",
                hint="split the heads before you append",
            )
        if k.dtype != v.dtype or k.device != v.device or not k.is_floating_point():
            raise CacheError(
                f"k and v must be floats of one dtype on one device, got {k.dtype} on {k.device} and {v.dtype} "
                f"on {v.device}",
                hint="convert one of them: v.to(k)",
            )
        self._validate_buffers(k)
        self._validate_buffers(v, "v")

    def _validate_rows(self, batch: int) -> None:
        """Raise unless the cache holds as many batch rows."""
        if self._k is not None and self._k.shape[0] != batch:
            raise CacheError(
                f"{type(self).__name__} holds keys of batch {self._k.shape[0]}, got a query of batch {batch}",
                hint="reset() the cache, or create one per batch",
            )

    def _validate_buffers(self, new: Tensor, name: str = "k") -> None:
        """Raise unless new keys or values fit those in the cache."""
        old = self._k if name == "k" else self._v
        if old is None:
            return
        now, stored = new.shape, old.shape
        if now[0] != stored[0] or now[1] != stored[1] or now[3] != stored[3]:
            raise CacheError(
                f"{type(self).__name__} holds {name} of (batch, kv_head, dim) {_without_tokens(old)}, "
                f"got {_without_tokens(new)}",
                hint="reset() the cache, or create one per layer and batch",
            )
        if new.dtype != old.dtype or new.device != old.device:
            raise CacheError(
                f"{type(self).__name__} holds {name} as {old.dtype} on {old.device}, "
                f"got {new.dtype} on {new.device}",
                hint="use one dtype, autocast setting and device for the whole text, or reset() the cache",
            )


def _needs_keys(mask: Mask, q: Tensor, layer: nn.Module) -> bool:
    """Whether a gradient besides those of keys and values is computed from them."""
    sinks: object = getattr(layer, "sink_logits", None)
    return q.requires_grad or bool(mask.bias_params()) or (isinstance(sinks, Tensor) and sinks.requires_grad)


# ---- rows of tokens -------------------------------------------------------------------------------


def common_length(counts: Sequence[int]) -> int | None:
    """The length that all cached rows share, or None; 0 without rows."""
    if not counts:
        return 0
    return counts[0] if counts.count(counts[0]) == len(counts) else None


def per_row(lengths: Lengths | None, rows: int, new: int) -> Sequence[int]:
    """New tokens per row of the cache."""
    if lengths is None:
        return (new,) * rows
    counts = HostInts(lengths, "lengths").tensor().tolist()
    if len(counts) != rows or any(not 0 <= n <= new for n in counts):
        raise SizeError(
            f"lengths must be {rows} integers in 0..{new} for {rows} rows of {new} new tokens, got {counts}",
            hint="lengths[b] is the number of real new tokens of row b",
        )
    return counts


def on_device(device: torch.device, *tensors: Tensor | None) -> list[Tensor | None]:
    return [None if t is None else t.to(device) for t in tensors]


def none_if_all(filled: Tensor) -> Tensor | None:
    return None if bool(filled.all()) else filled


def _without_tokens(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:2], x.shape[3])


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
