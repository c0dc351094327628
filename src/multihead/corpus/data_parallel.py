"""Data parallelism: split batches over ranks, and add up the sums of all ranks.

>>> import torch
>>> from multihead.corpus.data_parallel import shard
>>> batches, all_reduce = shard("abcde")                # a single process gets all batches
>>> batches
['a', 'b', 'c', 'd', 'e']
>>> all_reduce(total := torch.tensor([1.0, 2.0]))       # and its sums are complete
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

_data_parallel: ContextVar[bool] = ContextVar("data_parallel", default=False)


@contextmanager
def data_parallel() -> Generator[None]:
    """Split calibration text over the ranks of the process group inside the block.

    All ranks must call the same functions inside it. Outside it every rank processes all batches: otherwise a rank
    that plans alone would wait for the others forever.
    """
    token = _data_parallel.set(True)
    try:
        yield
    finally:
        _data_parallel.reset(token)


def shard(batches: Iterable[T]) -> tuple[list[T], Callable[..., None]]:
    """This rank's batches, and a function that sums tensors over all ranks, in place and bit-equal on each.

    Batches are split only inside `data_parallel`, and only if there are at least as many as ranks. Otherwise every
    rank gets all of them, and the function does nothing.
    """
    all_batches = list(batches)
    parallel = _data_parallel.get() and dist.is_available() and dist.is_initialized()
    if not parallel or not 1 < dist.get_world_size() <= len(all_batches):
        return all_batches, _no_reduce
    return all_batches[dist.get_rank() :: dist.get_world_size()], _all_reduce


def _all_reduce(*tensors: Tensor) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor)


def _no_reduce(*tensors: Tensor) -> None:
    """Every rank has all batches, so its sums are complete."""
