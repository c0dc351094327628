"""The cache of cross-attention: keys and values of one sequence, stored once."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import Tensor, nn

from multihead._base.shapes import Keys, StoredKeys, StoredValues, Values
from multihead.errors import CacheError, SizeError
from multihead.layer._cache_base import (
    AppendStep,
    Cache,
    Lengths,
    View,
    per_row,
)
from multihead.layer._coordinates import Coordinates
from multihead.layer._kv_store import NO_INPUTS, Inputs, TokenPositions, sized
from multihead.layer._mask_algebra import Mask
from multihead.layer._tracing import is_compiling
from multihead.layer.mask import lengths


class _Source(NamedTuple):
    """The tensor that a Cross cache was filled from; the reference keeps its memory from being reused."""

    tensor: Tensor
    version: int | None
    """None of an inference tensor, which does not count its changes: then `tensor` is a copy of its values"""

    @staticmethod
    def of(x: Tensor) -> _Source:
        if x.is_inference():
            return _Source(x.clone(), None)
        return _Source(x.detach(), x._version)  # shares memory and version counter, not the graph

    def is_same(self, x: Tensor) -> bool:
        """Whether x is the cached memory, unchanged; of inference tensors, whether the values are equal."""
        mine = self.tensor
        if x.numel() == 0:
            return x.shape == mine.shape
        if self.version is None or x.is_inference():
            same_kind = x.shape == mine.shape and x.dtype == mine.dtype and x.device == mine.device
            return same_kind and torch.allclose(x, mine, rtol=0.0, atol=0.0, equal_nan=True)
        same_memory = x.data_ptr() == mine.data_ptr() and x.shape == mine.shape and x.stride() == mine.stride()
        return same_memory and x._version == self.version

    def __deepcopy__(self, memo: object) -> _Source:
        return self  # the copy of a cache was filled from the same tensor


class _CrossStep(NamedTuple):
    """The pending step of a Cross cache."""

    owner: weakref.ref[nn.Module] | None
    sources: tuple[_Source | None, _Source | None]


class Cross(Cache):
    """Keys and values of a cross-attention, computed once. Call `reset()` before you use other keys.

    In training the stored keys belong to the graph of the call that filled the cache: one `backward()` over all its
    calls, then `reset()`.

    >>> kv = Cross()
    >>> kv.filled
    False
    """

    def __init__(self) -> None:
        super().__init__()
        self._sources: tuple[_Source | None, _Source | None] = (None, None)

    @property
    def filled(self) -> bool:
        return self._k is not None

    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        """Keep the keys and values of cross-attention in the cache, by reference; raises if it holds others."""
        self._validate(k, v)
        if self._k is None:
            self._k, self._v = k, v
            self._set_lengths(tuple(per_row(lengths, k.shape[0], k.shape[2])))
        elif self._k is not k or self._v is not v:
            raise CacheError(
                "Cross is already filled with other keys", hint="call reset() before you use other keys"
            )
        return View(k, v, filled=self._filled_slots())

    def reset(self) -> None:
        super().reset()
        self._sources = (None, None)

    def crop(self, tokens: int) -> None:
        """Keep the first `tokens` keys of cross-attention in every row."""
        super().crop(tokens)
        if self._k is not None:
            self._replace_buffers(*(t[:, :, :tokens] for t in self._buffers()))

    def known(
        self, key: Tensor | None, value: Tensor | None, layer: nn.Module, batch: int
    ) -> tuple[Keys, Values] | None:
        """The cached keys and values of cross-attention; raises if they are of another key or value."""
        if not self.filled:
            if key is None:
                raise SizeError(
                    "an empty Cross cache needs a key, got None", hint="pass key= (and value=) in the first call"
                )
            return None
        for name, x, source in zip(("key", "value"), (key, value), self._sources, strict=True):
            if x is not None and not is_compiling() and (source is None or not source.is_same(x)):
                raise CacheError(
                    f"Cross was not filled from this {name} of shape {tuple(x.shape)}, or it has changed since",
                    hint=f"call reset() before you use other keys, or pass no {name}",
                )
        self._validate_rows(batch)
        return self._buffers()

    def positions(
        self, positions: Tensor | None, batch: int, queries: int, keys: int, *, cross: bool
    ) -> tuple[TokenPositions, TokenPositions]:
        return keys - queries if positions is None else positions, 0

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, _CrossStep]:
        """The mask and the coordinates of a call of cross-attention, and the step for `take`."""
        owner = self._owned_by(layer)
        if self.filled:
            self._validate_use(q, k)
        if self.length is None:
            mask = mask & lengths(self._row_lengths())
        sources = (None, None)
        if not self.filled and not is_compiling():
            key, value = inputs
            sources = (None if key is None else _Source.of(key), None if value is None else _Source.of(value))
        return mask, sized(q, k.shape[2]), _CrossStep(owner, sources)

    def take(self, k: Keys, v: Values, step: _CrossStep) -> tuple[StoredKeys, StoredValues]:
        """Cache the keys and values of cross-attention in its first call; return the cached ones."""
        if self._k is None:
            self._k, self._v = k, v
            self._owner, self._sources = step.owner, step.sources
            self._set_lengths((k.shape[2],) * k.shape[0])
        return self._buffers()

    def _write(self, k: Keys, v: Values, step: AppendStep) -> tuple[StoredKeys, StoredValues]:
        raise AssertionError("Cross overrides append and take")

    def _validate_use(self, q: Tensor, k: Tensor) -> None:
        """Raise if cross-attention keys were cached in a mode that these queries cannot use them in."""
        if q.dtype != k.dtype:
            raise CacheError(
                f"Cross holds keys as {k.dtype}, the queries are {q.dtype}",
                hint="keep dtype and autocast the same in all calls, or reset() it",
            )
        if q.requires_grad and k.is_inference():
            raise CacheError(
                "Cross was filled in inference mode, and the queries require grad",
                hint="fill it under torch.no_grad(), or reset() it",
            )

    def _filled_slots(self) -> Tensor | None:
        if self.length is not None or self._k is None:
            return None
        return torch.arange(self._k.shape[2], device=self._k.device) < self.lengths[:, None]
