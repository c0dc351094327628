"""A small cache of the entries used most recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """At most `size` entries; the least recently used is evicted first.

    >>> kept = Recent[int](2)
    >>> for name in "aba": kept.put(name, ord(name))
    >>> kept.put("c", 0)
    >>> kept.get("a"), kept.get("b")
    (97, None)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """The recent value of a key, which becomes the most recent; None if there is none."""
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:  # absent, or evicted by another thread between the two lines
            return None

    def put(self, key: Hashable, value: T) -> None:
        """Store a value as the most recent, and evict the least recent ones."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self.size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()
