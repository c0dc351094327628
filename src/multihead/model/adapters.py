"""Adapters: short functions that route a module's hand-written attention through `attend`.

An adapter computes the same as a method of the module, but calls `attend(q, k, v, mask=..., scale=...)` in place of
softmax(q kᵀ) v. It replaces the method inside a block, and `verified_adapters` compares both there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from multihead._base.shapes import HeadOutputs

Attend = Callable[..., HeadOutputs]
Adapted = Callable[..., Any]


@dataclass(frozen=True)
class Adapter:
    """run(module, attend, *args, **kwargs) computes what module.method(*args, **kwargs) does."""

    run: Adapted
    method: str = "forward"


BY_CLASS: dict[type[nn.Module], Adapter] = {}
"""The adapters that users registered."""


def adapter(kind: type[nn.Module], *, method: str = "forward") -> Callable[[Adapted], Adapted]:
    """Register an adapter for a module class with hand-written attention, so `capture` and the like can see it.

    >>> import math, torch
    >>> import multihead as mh
    >>> from multihead.model import adapter
    >>> class Mine(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.qkv, self.out = torch.nn.Linear(12, 36), torch.nn.Linear(12, 12)
    ...     def forward(self, x):
    ...         q, k, v = self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    ...         weights = (q @ k.mT / math.sqrt(4)).softmax(-1)
    ...         return self.out((weights @ v).transpose(1, 2).flatten(2))
    >>> @adapter(Mine)
    ... def forward(module, attend, x):
    ...     q, k, v = module.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    ...     return module.out(attend(q, k, v, scale=1 / math.sqrt(4)).transpose(1, 2).flatten(2))
    >>> model = Mine()
    >>> with mh.capture(model) as heads:
    ...     _ = model(torch.randn(2, 5, 12))
    >>> len(heads)
    3
    """

    def register(run: Adapted) -> Adapted:
        BY_CLASS[kind] = Adapter(run, method)
        return run

    return register
