"""Sums over ranks, where there are ranks: what each has summed over its share of some batches becomes the whole.

>>> import torch
>>> from multihead.scale.sums import shared
>>> mine, summed = shared("abcde")                      # one process takes all
>>> mine
['a', 'b', 'c', 'd', 'e']
>>> summed(total := torch.tensor([1.0, 2.0]))           # and has the sum already
>>> total
tensor([1., 2.])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def shared(batches: Iterable[T]) -> tuple[list[T], Callable[..., None]]:
    """This rank's share of some batches, and what sums tensors over all ranks, in place: the same bits on each.

    Where there are fewer batches than ranks everybody takes all of them, and there is nothing to sum.
    """
    every = list(batches)
    if not (dist.is_available() and dist.is_initialized()) or not 1 < dist.get_world_size() <= len(every):
        return every, _nothing
    return every[dist.get_rank() :: dist.get_world_size()], _summed


def _summed(*tensors: Tensor) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor)


def _nothing(*tensors: Tensor) -> None:
    """One process, or everybody has the same."""
