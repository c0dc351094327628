"""What all caches share: counting tokens per row, byte accounting, beams, and the view they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import Keys, Values
from multihead.errors import CacheError, SizeError

Lengths = Sequence[int] | Int[Tensor, " batch"]


@dataclass(frozen=True)
class View:
    """What the new tokens may attend to: slices of the cache, not copies (`Ring` says when it has to copy).

    query_positions: where the new tokens stand; None: they are the last keys, in every row.
    key_positions: where each key stands; None: key j stands at j.
    filled: which slots hold a key; None: all.
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
        self._tokens: tuple[int, ...] = ()  # seen per row

    @abstractmethod
    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        """Store new tokens, of row b only the first lengths[b]; what they may attend to."""

    @property
    def seen(self) -> int | None:
        """Tokens seen so far if all rows are alike, else None."""
        return alike(self._counts())

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Tokens seen so far, per row."""
        return torch.tensor(self._counts(), dtype=torch.long, device=None if self._k is None else self._k.device)

    def next_positions(self, new: int) -> Int[Tensor, " query"] | Int[Tensor, "batch query"]:
        """Where the next `new` tokens will stand: (new,) if all rows are alike, else (batch, new)."""
        seen = self.seen
        steps = torch.arange(new, device=None if self._k is None else self._k.device)
        return steps + seen if seen is not None else self.lengths[:, None] + steps

    def keys_after(self, new: int, lengths: Sequence[int] | None = None) -> int:
        """How many keys the view will have after `append` of `new` tokens, of row b only lengths[b]."""
        before = self._counts()
        if lengths is None or not before:
            return max(before, default=0) + new
        return max(b + n for b, n in zip(before, lengths, strict=False))

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(t.nbytes for t in (self._k, self._v) if t is not None)

    @property
    def used_bytes(self) -> int:
        """Bytes that hold a token."""
        if self._k is None or self._k.shape[0] * self._k.shape[2] == 0:
            return 0
        return self.nbytes // (self._k.shape[0] * self._k.shape[2]) * sum(map(self._slots, self._counts()))

    def reset(self) -> None:
        """Forget everything and free the memory."""
        self._k = self._v = None
        self._count(())

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row index[i] was: the step of a beam search. The number of rows may change."""
        counts, chosen = self._counts(), [int(i) for i in index.tolist()]
        if any(not 0 <= i < len(counts) for i in chosen):
            raise CacheError(
                f"{type(self).__name__} has {len(counts)} rows, index is {chosen}",
                hint=f"use 0..{len(counts) - 1}" if counts else "append first: an empty cache has no rows",
            )
        k, v = self._held()
        self._move(*(t.index_select(0, index.to(t.device)) for t in (k, v)))
        self._count(tuple(counts[i] for i in chosen))

    def crop(self, tokens: int) -> None:
        """Keep the first `tokens` of every row: the step back of speculative decoding."""
        if tokens < 0:
            raise CacheError(f"cannot crop to {tokens} tokens", hint=f"to drop n of {self.seen}, crop to the rest")
        self._count(tuple(min(n, tokens) for n in self._counts()))

    def __repr__(self) -> str:
        counts = self._counts()
        if not counts:
            return f"{type(self).__name__}(empty)"
        span = f"{min(counts)} to {max(counts)}" if alike(counts) is None else f"{counts[0]}"
        memory = f"{_kib(self.used_bytes)} of {_kib(self.nbytes)}"
        return f"{type(self).__name__}({len(counts)} rows, {span} tokens, {memory})"

    def _counts(self) -> tuple[int, ...]:
        return self._tokens

    def _count(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens

    def _slots(self, tokens: int) -> int:
        """How many slots a row of so many tokens takes."""
        return tokens

    def _move(self, k: Tensor, v: Tensor) -> None:
        self._k, self._v = k, v

    def _held(self) -> tuple[Tensor, Tensor]:
        if self._k is None or self._v is None:
            raise CacheError(f"{type(self).__name__} is empty", hint="append first")
        return self._k, self._v

    def _take(self, k: Tensor, v: Tensor, lengths: Lengths | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Check what comes in; tokens of each row before it and after it."""
        self._check(k, v)
        before = self._counts() or (0,) * k.shape[0]
        new = per_row(lengths, *k.shape[0:3:2])
        return before, tuple(b + n for b, n in zip(before, new, strict=True))

    def _check(self, k: Tensor, v: Tensor) -> None:
        name = type(self).__name__
        if k.shape[:3] != v.shape[:3]:
            raise CacheError(
                f"{name} got k of shape {tuple(k.shape)}, v of {tuple(v.shape)}",
                hint="(batch, kv_head, tokens) must be the same, only the last size may differ",
            )
        for what, new, old in (("k", k, self._k), ("v", v, self._v)):
            if old is None:
                continue
            if _but_tokens(new) != _but_tokens(old):
                raise CacheError(
                    f"{name} holds {what} of (batch, kv_head, dim) {_but_tokens(old)}, got {_but_tokens(new)}",
                    hint="a cache serves one layer and one batch: reset() it, or make one for each",
                )
            if (new.dtype, new.device) != (old.dtype, old.device):
                raise CacheError(
                    f"{name} holds {what} as {old.dtype} on {old.device}, got {new.dtype} on {new.device}",
                    hint="keep dtype, autocast and device the same for the whole text, or reset()",
                )


# ---- rows of tokens -------------------------------------------------------------------------------


def write(
    held: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], before: tuple[int, ...], after: tuple[int, ...]
) -> View:
    """Put token j of a row into slot j, in place; the view of all slots up to the longest row."""
    tokens, used = new[0].shape[2], max(after, default=0)
    start = alike(before)
    k, v = (t[:, :, :used] for t in held)
    if start is not None and used == start + tokens and alike(after) is not None:
        for buffer, x in zip(held, new, strict=True):
            buffer[:, :, start:used] = x
        return View(k, v)
    was, now = (torch.tensor(c, dtype=torch.long, device=k.device)[:, None] for c in (before, after))
    places = was + torch.arange(tokens, device=k.device)
    rows, which = (places < now).nonzero(as_tuple=True)
    for buffer, x in zip(held, new, strict=True):
        buffer[rows, :, places[rows, which]] = x[rows, :, which]
    filled = None if alike(after) is not None else torch.arange(used, device=k.device) < now
    return View(k, v, query_positions=places, filled=filled)


def allocate(like: Tensor, capacity: int) -> Tensor:
    # Zeros, not whatever was there: a NaN in an empty slot would survive its weight of zero.
    with torch.inference_mode(False):  # else nothing outside of inference mode could write to it
        return torch.zeros(*like.shape[:2], capacity, like.shape[3], dtype=like.dtype, device=like.device)


def alike(counts: Sequence[int]) -> int | None:
    """The count that all rows share, or None; 0 where there are no rows."""
    if not counts:
        return 0
    return counts[0] if all(n == counts[0] for n in counts) else None


def per_row(lengths: Lengths | None, rows: int, new: int) -> Sequence[int]:
    if lengths is None:
        return (new,) * rows
    counts = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if len(counts) != rows or any(not 0 <= n <= new for n in counts):
        raise SizeError(
            f"lengths={counts} for batch={rows} rows of {new} new tokens",
            hint=f"give {rows} numbers in 0..{new}: how many of the new tokens of each row are real",
        )
    return counts


def unless_all(filled: Tensor) -> Tensor | None:
    return None if bool(filled.all()) else filled


def _but_tokens(x: Tensor) -> tuple[int, ...]:
    return (*x.shape[:2], x.shape[3])


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
