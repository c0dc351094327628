"""Stores of keys and values: those of this call, a cache, or a sequence split over ranks.

A layer calls a store in this order: `positions` of the new tokens; `view`, which returns the mask, the coordinates
and the pending step of the call; and `take`, which makes the step. Only `take` changes a store, so a call that
raises leaves a cache as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from multihead._base.arguments import describe
from multihead._base.shapes import HeadOutputs, Keys, StoredKeys, StoredValues, Values
from multihead.errors import MultiheadError, TypeMismatchError
from multihead.layer._coordinates import Coordinates, aligned
from multihead.layer._mask_algebra import Mask
from multihead.layer._tracing import is_compiling

if TYPE_CHECKING:
    from multihead.layer._packed_batch import PackedBatch
    from multihead.layer._problem import Problem

TokenPositions = Tensor | int
"""Positions of tokens; an int is the first of consecutive positions."""

Inputs = tuple[Tensor | None, Tensor | None]
NO_INPUTS: Inputs = (None, None)


@runtime_checkable
class KVStore(Protocol):
    @property
    def tokens(self) -> int | None:
        """The length of a sequence split over ranks, otherwise None."""
        ...

    @property
    def requires_grad(self) -> bool:
        """Whether a stored key or value is part of a graph."""
        ...

    @property
    def packed(self) -> PackedBatch | None:
        """The rows of the batch packed into one, or None."""
        ...

    def known(
        self, key: Tensor | None, value: Tensor | None, layer: nn.Module, batch: int
    ) -> tuple[Keys, Values] | None:
        """Keys and values that need no projection, if the store has them."""
        ...

    def positions(
        self, positions: Tensor | None, batch: int, queries: int, keys: int, *, cross: bool
    ) -> tuple[TokenPositions, TokenPositions]:
        """Positions of the new queries and of the new keys in the store."""
        ...

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, Any]:
        """The mask and the coordinates of this call over the stored keys, and the step for `take`.

        `inputs` are the inputs of the key and value projections, if they differ from the query's.
        """
        ...

    def take(self, k: Keys, v: Values, step: Any) -> tuple[StoredKeys, StoredValues]:
        """Store the new keys and values; return all that the queries attend to."""
        ...


class NoCache:
    """Only the keys of this call."""

    requires_grad = False
    tokens = None
    packed = None

    def known(
        self, key: Tensor | None, value: Tensor | None, layer: nn.Module, batch: int
    ) -> tuple[Keys, Values] | None:
        return None

    def positions(
        self, positions: Tensor | None, batch: int, queries: int, keys: int, *, cross: bool
    ) -> tuple[TokenPositions, TokenPositions]:
        """Positions of a call that stores no keys: queries are the last keys, or those that were passed."""
        if not cross:
            return (0, 0) if positions is None else (positions, positions)
        return keys - queries if positions is None else positions, 0

    def view(
        self, mask: Mask, q: Tensor, k: Tensor, layer: nn.Module, inputs: Inputs = NO_INPUTS
    ) -> tuple[Mask, Coordinates, None]:
        return mask, sized(q, k.shape[2]), None

    def take(self, k: Keys, v: Values, step: None) -> tuple[Keys, Values]:
        return k, v


NO_CACHE = NoCache()


def sized(q: Tensor, keys: int) -> Coordinates:
    """Aligned coordinates of the queries `q` and `keys` keys."""
    batch, heads, queries, _ = q.shape
    if is_compiling():
        return Coordinates(batch, heads, queries, keys, q.device)
    return aligned(batch, heads, queries, keys, q.device)


def store_of(cache: KVStore | None, layer: nn.Module) -> KVStore:
    """The store for the argument `cache=`; if None, the sequence of an open context_parallel block, or NO_CACHE."""
    if cache is None:
        return _sequence_shard(layer) or NO_CACHE
    if isinstance(cache, type) or not hasattr(cache, "take"):
        raise TypeMismatchError(
            f"cache must be a cache object, got {describe(cache)}",
            hint="create one per layer: cache.Growing(), not cache.Growing",
        )
    shard = _untraced_shard() if _open else None
    if shard is not None:  # the cache would hold only the keys of this rank
        raise MultiheadError(
            f"cache must be None inside context_parallel, which splits {shard.tokens} tokens, got a "
            f"{type(cache).__name__} cache",
            hint="generate outside the block",
        )
    return cache


@runtime_checkable
class SequenceShard(KVStore, Protocol):
    """A sequence of `tokens` tokens split over ranks; this rank holds some of them."""

    @property
    def tokens(self) -> int: ...

    active: bool
    """whether its context_parallel block is open"""

    def attend(self, problem: Problem) -> HeadOutputs:
        """softmax(scores) v of the local queries over the keys of all ranks."""
        ...


_shards: ContextVar[tuple[SequenceShard, ...]] = ContextVar("_shards", default=())
"""shards of the open blocks of this thread; layers on other threads do not take part"""

_open: list[SequenceShard] = []
"""shards of the open blocks of all threads; a plain list, which torch.compile can guard"""

_last_shard: WeakKeyDictionary[nn.Module, SequenceShard] = WeakKeyDictionary()
"""the last shard of each layer: a thread of the backward pass recomputes a checkpointed layer"""


def _sequence_shard(layer: nn.Module) -> SequenceShard | None:
    """The shard that stores the layer's keys and values inside a context_parallel block; None outside."""
    if is_compiling():
        return _untraced_shard() if _open else None
    if not _open and not _last_shard.data:  # pyright: ignore[reportAttributeAccessIssue]  # its truth value costs more
        return None
    shard = _current_shard()
    if shard is not None:
        _last_shard[layer] = shard
        return shard
    last = _last_shard.get(layer)
    if last is None:
        return None
    if not in_backward():
        if not last.active:  # otherwise its block is open on another thread
            _last_shard.pop(layer, None)
        return None
    if not last.active:  # the layer would see only the keys of this rank
        raise MultiheadError(
            f"a layer of context_parallel ({last.tokens} tokens) is recomputed outside the block",
            hint="with checkpointed layers, call backward() inside the block",
        )
    return last


def _current_shard() -> SequenceShard | None:
    shards = _shards.get()
    return shards[-1] if shards else None


_untraced_shard: Callable[[], SequenceShard | None] = _current_shard
"""`_current_shard`, which torch.compile cannot trace; disabled by the first block, as that imports torch._dynamo"""


def enter_shard(shard: SequenceShard) -> None:
    """Open a context_parallel block: layers of this thread store their keys in its shard."""
    global _untraced_shard
    if _untraced_shard is _current_shard:
        _untraced_shard = cast(Any, torch.compiler.disable)(_current_shard)
    shard.active = True
    _open.append(shard)
    _shards.set((*_shards.get(), shard))


def exit_shard() -> None:
    """Close a context_parallel block: layers no longer store keys in its shard."""
    shards = _shards.get()
    shards[-1].active = False
    _open.remove(shards[-1])
    _shards.set(shards[:-1])


def in_backward() -> bool:
    """Whether this thread runs a backward pass, which recomputes checkpointed layers."""
    return torch._C._current_graph_task_id() != -1  # pyright: ignore[reportPrivateUsage]  # no public name
