"""Small integer tensors, read by the host at every use, because callers may change them in place."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from multihead._base.arguments import describe, holds_integers, integers
from multihead.errors import TypeMismatchError
from multihead.layer._tracing import readable, transformed


def host_array(x: Tensor) -> np.ndarray:
    """The values of a readable tensor of integers or bools, on the host."""
    if not transformed():
        return x.numpy()
    dtype = np.bool_ if x.dtype == torch.bool else np.int64  # under torch.func, numpy() fails and tolist() works
    return np.array(x.tolist(), dtype=dtype).reshape(tuple(x.shape))


def content_key(x: Tensor) -> Hashable:
    """A short hashable for the contents of a tensor; only shape and device if the host cannot read it."""
    if not readable(x):
        return tuple(x.shape), x.device
    data = host_array(x).tobytes()
    return tuple(x.shape), x.dtype, data if len(data) <= 256 else blake2b(data, digest_size=16).digest()


class HostInts:
    """Counts or offsets of a mask, from a sequence or a 1-D tensor.

    A tensor is read at every use, because the caller may change it between calls.
    """

    def __init__(self, values: Sequence[int] | Tensor, name: str) -> None:
        self._tensor = values if isinstance(values, Tensor) else None
        self._values: tuple[int, ...] = ()
        if self._tensor is None:
            self._values = integers(name, values)
        elif not holds_integers(self._tensor) or self._tensor.ndim != 1:
            raise TypeMismatchError(
                f"{name} must be a 1-D tensor of integers, got {describe(self._tensor)}",
                hint="count tokens: torch.tensor([7, 3])",
            )
        self.count = len(self._values) if self._tensor is None else self._tensor.shape[0]

    @property
    def on_host(self) -> bool:
        return self._tensor is None or readable(self._tensor)

    @property
    def values(self) -> tuple[int, ...]:
        """The integers on the host; empty if the host cannot read them."""
        if self._tensor is None:
            return self._values
        return tuple(self._tensor.tolist()) if readable(self._tensor) else ()

    @property
    def key(self) -> Hashable:
        if self._tensor is None or readable(self._tensor):
            return self.values
        return self.count, self._tensor.device

    @property
    def tensors(self) -> list[Tensor]:
        return [] if self._tensor is None else [self._tensor]

    def tensor(self, device: torch.device | None = None) -> Int[Tensor, " count"]:
        if self._tensor is not None:
            return self._tensor if device is None else self._tensor.to(device)
        return torch.tensor(self._values, dtype=torch.long, device=device)

    def frozen(self) -> HostInts:
        """A copy of the current values."""
        return self if self._tensor is None or not self.on_host else HostInts(self.values, "lengths")

    def row(self, row: int) -> int:
        values = self.values
        return values[row if len(values) > 1 else 0]

    def __str__(self) -> str:
        if self._tensor is not None and not self.on_host:
            return f"<{self.count} on {self._tensor.device}>"
        values = self.values
        shown = ", ".join(map(str, values[:8]))
        return f"[{shown}{', …' if len(values) > 8 else ''}]"
