"""Random draws that belong to a batch: the same in one process or many, resumed or not."""

from __future__ import annotations

import torch


def batch_generator(seed: int, index: int, *more: int) -> torch.Generator:
    """A generator seeded by (seed, index of the batch, ...): its draws depend on nothing that ran before."""
    mixed = 0
    for number in (seed, index, *more):
        mixed = (mixed * 1_000_003 + number + 1) % (1 << 61)
    return torch.Generator().manual_seed(mixed)
