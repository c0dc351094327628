"""Key/value caches: what a decoder has already seen, so that each token is projected once.

>>> import torch
>>> from multihead import cache
>>> kept = cache.Growing()
>>> view = kept.append(torch.randn(2, 4, 7, 16), torch.randn(2, 4, 7, 16))
>>> view.k.shape, kept.seen, kept
(torch.Size([2, 4, 7, 16]), 7, Growing(2 rows, 7 tokens, 7.0 KiB of 16.0 KiB))

| cache     | memory                 | for                                                     |
|-----------|------------------------|---------------------------------------------------------|
| `Growing` | doubles when full      | anything in eager mode; gradients flow through it       |
| `Static`  | `capacity`, at once    | torch.compile: the position is data, not a constant     |
| `Ring`    | the last `window`      | sliding-window attention over texts without end         |
| `Cross`   | what it is given, once | cross-attention: the encoder's keys and values          |

A cache serves one layer. Rows may differ in length: `append(k, v, lengths)` stores the first lengths[b] of
the new tokens of row b, right behind those that row b has.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from multihead._base.shapes import Keys, Values
from multihead.errors import CacheError, SizeError
from multihead.layer.cache_base import Cache, Lengths, View, alike, allocate, per_row, unless_all, write

__all__ = ["Cache", "View", "Growing", "Static", "Ring", "Cross"]


class Growing(Cache):
    """Grows by doubling, so that a token is copied about once more, however long the text becomes.

    New tokens are written in place. Where they require grad the memory is new at every step, so that
    gradients flow back into each of them, at the price of that copy: decode under `torch.no_grad()`.
    """

    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        before, after = self._take(k, v, lengths)
        needed = max(after, default=0)
        # What a backward pass will read must not be written over.
        graph = any(t is not None and t.requires_grad for t in (k, v, self._k, self._v))
        if graph or self._k is None or self._k.shape[2] < needed:
            self._reallocate(k, v, needed if graph else max(needed, 2 * self.capacity, 16))
        view = write(self._held(), (k, v), before, after)
        self._count(after)
        return view

    @property
    def capacity(self) -> int:
        """Tokens per row that fit without a new allocation."""
        return 0 if self._k is None else self._k.shape[2]

    def _reallocate(self, k: Tensor, v: Tensor, capacity: int) -> None:
        used = max(self._counts(), default=0)
        old = (self._k, self._v)
        self._k, self._v = allocate(k, capacity), allocate(v, capacity)
        for source, target in zip(old, (self._k, self._v), strict=True):
            if source is not None:
                target[:, :, :used] = source[:, :, :used]


class Static(Cache):
    """All memory at once, and the position as a tensor: one compiled graph serves every step.

    In eager mode a view is cut to the tokens seen; compiled, it is always `capacity` long, with `filled`. A
    text that is too long raises `CacheError` in eager mode, and an index error of the backend if compiled.
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
        self.capacity = capacity
        value_dim = key_dim if value_dim is None else value_dim
        with torch.inference_mode(False):  # else nothing outside of inference mode could write to them
            self._k = torch.zeros(batch, kv_heads, capacity, key_dim, dtype=dtype, device=device)
            self._v = torch.zeros(batch, kv_heads, capacity, value_dim, dtype=dtype, device=device)
            self._lengths = torch.zeros(batch, dtype=torch.long, device=device)
        if self._lengths.device.type == "cuda":  # CUDA graphs need to know that these stay where they are
            from torch._dynamo import mark_static_address

            for tensor in (self._k, self._v, self._lengths):
                mark_static_address(tensor)

    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise CacheError(
                "Static writes in place, but k or v require grad",
                hint="decode under torch.no_grad(), or use Growing(), through which gradients flow",
            )
        if torch.compiler.is_compiling():
            self._check(k, v)
            return self._append_traced(k, v, lengths)
        before, after = self._take(k, v, lengths)
        needed = max(after, default=0)
        if needed > self.capacity:
            raise CacheError(
                f"Static has capacity={self.capacity}, asked to hold {needed} tokens",
                hint=f"make it with capacity >= {needed}, crop() or reset() it, or use Growing() or Ring(window)",
            )
        view = write(self._held(), (k, v), before, after)
        self._count(after)
        return view

    def _append_traced(self, k: Tensor, v: Tensor, lengths: Lengths | None) -> View:
        held, new = self._held(), k.shape[2]
        at = self._lengths[:, None] + torch.arange(new, device=k.device)
        slots = torch.arange(self.capacity, device=k.device)
        if lengths is None:
            rows = torch.arange(k.shape[0], device=k.device)[:, None]
            for buffer, x in zip(held, (k, v), strict=True):
                buffer.transpose(1, 2).index_put_((rows, at), x.transpose(1, 2))
            self._lengths.add_(new)
        elif new > 0:
            # How many tokens are real is data, so no shape may depend on it: every slot looks for its token.
            count = torch.as_tensor(lengths, device=k.device)
            token = slots - self._lengths[:, None]
            comes = ((token >= 0) & (token < count[:, None]))[:, None, :, None]
            token = token.clamp(0, new - 1)[:, None, :, None]
            for buffer, x in zip(held, (k, v), strict=True):
                source = x.gather(2, token.expand(-1, x.shape[1], -1, x.shape[3]))
                buffer.copy_(torch.where(comes, source, buffer))
            self._lengths.add_(count)
        return View(*held, query_positions=at, filled=slots < self._lengths[:, None])

    @property
    def seen(self) -> int | None:
        """As for every cache; None also while compiling, since the position is data there."""
        return None if torch.compiler.is_compiling() else alike(self._counts())

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        return self._lengths.clone()

    def reset(self) -> None:
        """Forget everything; the memory stays."""
        self._lengths.zero_()

    def _counts(self) -> tuple[int, ...]:
        return tuple(self._lengths.tolist())

    def _count(self, tokens: tuple[int, ...]) -> None:
        same = alike(tokens)
        if same is not None:
            self._lengths.fill_(same)
        else:
            self._lengths.copy_(torch.tensor(tokens, dtype=torch.long, device=self._lengths.device))

    def _move(self, k: Tensor, v: Tensor) -> None:
        for held, new in zip(self._held(), (k, v), strict=True):
            if held.shape != new.shape:
                raise CacheError(
                    f"Static has {held.shape[0]} rows, index has {new.shape[0]}",
                    hint="its memory is fixed: give one index per row, or use Growing()",
                )
            held.copy_(new)


class Ring(Cache):
    """The last `window` tokens, each new one in the place of the oldest; the `first` tokens stay for good.

    Goes with `mask.window(window, first=first)`. One token at a time is a view of the ring. Of several at
    once each must still see its own window: then the view is a copy, the ring followed by the new tokens.
    """

    def __init__(self, window: int, *, first: int = 0) -> None:
        super().__init__()
        if window < 1 or first < 0:
            raise SizeError(f"Ring(window={window}, first={first})", hint="choose window >= 1 and first >= 0")
        self.window, self.first = window, first

    @property
    def capacity(self) -> int:
        """Slots per row."""
        return self.first + self.window

    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        before, after = self._take(k, v, lengths)
        if self._k is None:
            self._k, self._v = allocate(k, self.capacity), allocate(v, self.capacity)
        elif any(t is not None and t.requires_grad for t in (k, v, self._k, self._v)):
            # What a backward pass will read must not be written over.
            self._k, self._v = (t.clone() for t in self._held())
        self._count(after)
        if max(after, default=0) <= self.capacity:  # no slot is used twice yet: token j is in slot j
            return write(self._held(), (k, v), before, after)
        if k.shape[2] == 1 and alike(before) is not None and alike(after) == before[0] + 1:
            return self._replace_oldest(k, v, before[0])
        return self._replace(k, v, before, after)

    def _replace_oldest(self, k: Tensor, v: Tensor, position: int) -> View:
        """One token in every row, at the same position."""
        slot = self.first + (position - self.first) % self.window
        for buffer, x in zip(self._held(), (k, v), strict=True):
            buffer[:, :, slot : slot + 1] = x
        asked = torch.full((1, 1), position, device=k.device)
        return View(*self._held(), asked, self._positions(asked + 1))

    def _replace(self, k: Tensor, v: Tensor, before: tuple[int, ...], after: tuple[int, ...]) -> View:
        """Any number of tokens, rows at any position."""
        held, kept = self._held(), min(max(before), self.capacity)
        was, now = (torch.tensor(c, dtype=torch.long, device=k.device)[:, None] for c in (before, after))
        places = was + torch.arange(k.shape[2], device=k.device)
        real = places < now
        slots = torch.arange(self.capacity, device=k.device)
        together: list[Tensor] = []
        if k.shape[2] > 1:  # while the old ones are still there
            together = [torch.cat((t[:, :, :kept], x), 2) for t, x in zip(held, (k, v), strict=True)]
        rows, tokens = (real & ((places < self.first) | (places >= now - self.window))).nonzero(as_tuple=True)
        for buffer, x in zip(held, (k, v), strict=True):
            buffer[rows, :, self._slot(places[rows, tokens])] = x[rows, :, tokens]
        if not together:
            return View(*held, places, self._positions(now), unless_all(slots < now))
        if alike(before) is not None and bool(real.all()):
            was, places, real = was[:1], places[:1], real[:1]
        return View(
            *together,
            query_positions=places,
            key_positions=torch.cat((self._positions(was)[:, :kept], places), 1),
            filled=unless_all(torch.cat(((slots < was)[:, :kept], real), 1)),
        )

    def keys_after(self, new: int, lengths: Sequence[int] | None = None) -> int:
        total = super().keys_after(new, lengths)
        if total <= self.capacity or new == 1:
            return min(total, self.capacity)
        return min(max(self._counts(), default=0), self.capacity) + new

    def crop(self, tokens: int) -> None:
        """Keep the first `tokens` of every row, as long as nothing that would be needed again is lost."""
        longest = max(self._counts(), default=0)
        if longest > max(tokens, self.capacity):
            raise CacheError(
                f"Ring(window={self.window}) cannot go back to {tokens} of {longest} tokens: "
                f"it has overwritten what those would attend to",
                hint="crop only before it is full, or use Growing()",
            )
        super().crop(tokens)

    def _slot(self, position: Tensor) -> Tensor:
        turning = self.first + (position - self.first) % self.window
        return torch.where(position < self.first, position, turning)

    def _positions(self, seen: Int[Tensor, "#batch 1"]) -> Int[Tensor, "#batch slots"]:
        """Position of the token in each slot after `seen` tokens (of an empty slot: its own number)."""
        slots = torch.arange(self.capacity, device=seen.device)
        laps = (seen - 1 - slots).clamp(min=0) // self.window
        return slots + self.window * torch.where(slots < self.first, 0, laps)

    def _slots(self, tokens: int) -> int:
        return min(tokens, self.capacity)


class Cross(Cache):
    """Keys and values of a cross-attention, computed once: what is appended later is ignored until reset().

    >>> kept = Cross()
    >>> kept.filled
    False
    """

    @property
    def filled(self) -> bool:
        return self._k is not None

    @property
    def known(self) -> tuple[Tensor, Tensor] | None:
        """The keys and values, or None before the first call."""
        return None if self._k is None else self._held()

    def keep(self, k: Keys, v: Values, lengths: Lengths | None = None) -> None:
        """Take them, by reference, if there are none yet."""
        if self._k is None:
            self._check(k, v)
            self._count(tuple(per_row(lengths, k.shape[0], k.shape[2])))
            self._k, self._v = k, v

    def append(self, k: Keys, v: Values, lengths: Lengths | None = None) -> View:
        self.keep(k, v, lengths)
        return self.view()

    def view(self) -> View:
        """All keys and values."""
        k, v = self._held()
        slots = torch.arange(k.shape[2], device=k.device)
        return View(k, v, filled=unless_all(slots < self.lengths[:, None]))

    def crop(self, tokens: int) -> None:
        """Keep the first `tokens` keys of every row."""
        super().crop(tokens)
        if self._k is not None:
            self._move(*(t[:, :, :tokens] for t in self._held()))

    def next_positions(self, new: int) -> Int[Tensor, " query"] | Int[Tensor, "batch query"]:
        """Keys stand at 0..new-1: there is only one time that they come."""
        return torch.arange(new, device=None if self._k is None else self._k.device)
