"""Sums over ranks, where there are ranks: what each has summed over its share of some batches becomes the whole.

>>> import torch
>>> from multihead.corpus.data_parallel import shared
>>> mine, summed = shared("abcde")                      # one process takes all
>>> mine
['a', 'b', 'c', 'd', 'e']
>>> summed(total := torch.tensor([1.0, 2.0]))           # and has the sum already
>>> total
tensor([1., 2.])
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

_together: ContextVar[bool] = ContextVar("together", default=False)


@contextmanager
def together() -> Generator[None]:
    """Within the block the ranks of the process group share calibration text: each must call the same functions.

    Not so outside of it: whoever plans on rank 0 alone would wait for the others for ever.
    """
    before = _together.set(True)
    try:
        yield
    finally:
        _together.reset(before)


def shared(batches: Iterable[T]) -> tuple[list[T], Callable[..., None]]:
    """This rank's share of some batches, and what sums tensors over all ranks, in place: the same bits on each.

    Inside of `together` only; where there are fewer batches than ranks, everybody takes all and nothing is summed.
    """
    every = list(batches)
    grouped = _together.get() and dist.is_available() and dist.is_initialized()
    if not grouped or not 1 < dist.get_world_size() <= len(every):
        return every, _nothing
    return every[dist.get_rank() :: dist.get_world_size()], _summed


def _summed(*tensors: Tensor) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor)


def _nothing(*tensors: Tensor) -> None:
    """One process, or everybody has the same."""
