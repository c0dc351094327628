"""Working memory, mapped once outside the heap and reused by every block of every layer.

Allocating fresh memory costs more than the arithmetic on it. Tensors that stay in the heap from one layer to the
next, even small ones, fragment it: the model's activations cannot reuse their old addresses, and the process grows
by many times the size of those tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAPPED = 64 << 20
"""Above the allocator's mmap threshold (glibc: at most 32 MB); only written pages take memory."""


class Memory:
    """Memory shared by the statistics of all layers: for a block, its rows, the keys of a layer, and the sums."""

    def __init__(self) -> None:
        self.scratch, self.rows, self.keys, self.kept = Scratch(), Scratch(), Scratch(), Scratch()

    def rest(self) -> None:
        """Release all working memory of the arena except the sums."""
        for scratch in (self.scratch, self.rows, self.keys):
            scratch.memory.clear()
            scratch.clear()


class Scratch:
    """A bump allocator: one buffer per device; `clear` frees all of it."""

    def __init__(self) -> None:
        self.memory: dict[torch.device, Tensor] = {}
        self.used = 0

    def clear(self) -> None:
        """Mark the whole buffer as free."""
        self.used = 0

    def take(self, like: Tensor, *shape: int) -> Tensor:
        """Uninitialised memory of this shape, of the dtype and device of `like`, until the next `clear`."""
        size = torch.Size(shape).numel() * like.element_size()
        memory = self.memory.get(like.device)
        if memory is None or self.used + size > memory.numel():
            with torch.inference_mode(False):  # inference tensors cannot be written outside inference mode
                memory = torch.empty(max(MAPPED, 2 * (self.used + size)), dtype=torch.uint8, device=like.device)
            self.memory[like.device], self.used = memory, 0  # tensors in the old buffer keep it alive
        start = self.used
        self.used += -(-size // 64) * 64  # align to cache lines
        return memory[start : start + size].view(like.dtype).view(shape)
