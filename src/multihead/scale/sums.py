"""Sums over ranks, where there are ranks: what each has summed over its share of some batches becomes the whole.

>>> import torch
>>> from multihead.scale.sums import share_of, summed
>>> [batch for batch in share_of("abcde")]              # one process takes all
['a', 'b', 'c', 'd', 'e']
>>> summed(torch.tensor([1.0, 2.0]))
(tensor([1., 2.]),)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def _together() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def share_of(batches: Iterable[T]) -> Iterator[T]:
    """Every ranks-th of some batches, from this rank's number on; all of them in one process."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if _together() else (0, 1)
    return (batch for at, batch in enumerate(batches) if at % size == rank)


def summed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The sum of each over all ranks, in place, by all-reduce: the same bits on every rank."""
    if _together():
        for tensor in tensors:
            dist.all_reduce(tensor)
    return tensors
