"""Activations of a model that are kept between runs, up to a number of bytes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import nn

CACHE_BYTES = 1 << 30
"""Bytes of activations that are kept between runs, or as many as the model's weights take if these are more."""

SPARE = 0.5
"""The share of the cache for values that save part of a block; values that save whole blocks may fill it."""


def activation_bytes(model: nn.Module) -> int:
    """How many bytes of activations are kept between runs of a model."""
    return max(CACHE_BYTES, sum(p.numel() * p.element_size() for p in model.parameters()))


class ActivationCache:
    """Values by key, up to a number of bytes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self._values: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable) -> Any:
        return self._values.get(key, (None, 0))[0]

    def put(self, key: Hashable, value: Any, size: int, *, share: float = 1.0) -> bool:
        """Cache an activation of so many bytes in place of the old one; False if it would take over this share."""
        total = self.size + size - self._values.get(key, (None, 0))[1]
        if total > share * self.limit:
            return False
        self._values[key] = (value, size)
        self.size = total
        return True

    def move(self, key: Hashable, to: Hashable) -> None:
        """Move a value to a different key, in place of the value there."""
        self.drop(to)
        self._values[to] = self._values.pop(key)

    def drop(self, key: Hashable) -> None:
        self.size -= self._values.pop(key, (None, 0))[1]

    def names(self) -> list[Hashable]:
        return list(self._values)
