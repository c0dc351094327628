"""Working memory that is mapped once, apart from the heap, and used by every block of every layer.

Fresh memory costs more than the arithmetic on it. And what lives in the heap from one layer to the next, small sums
as well as buffers, may keep the model's own activations from using their old places again: the process then grows
by many times of what is held.
"""

from __future__ import annotations

import torch
from torch import Tensor

APART = 64 << 20
"""More than an allocator keeps in its heap (glibc: 32 MB at most); only what is written takes memory."""


class Memory:
    """What the statistics of all layers share: room for a block, its rows, the keys of a layer, and the sums."""

    def __init__(self) -> None:
        self.scratch, self.rows, self.keys, self.kept = Scratch(), Scratch(), Scratch(), Scratch()

    def rest(self) -> None:
        """Give back what was worked in; the sums stay."""
        for room in (self.scratch, self.rows, self.keys):
            room.held.clear()
            room.clear()


class Scratch:
    """One piece of memory per device, handed out from the front; `clear` takes it all back."""

    def __init__(self) -> None:
        self.held: dict[torch.device, Tensor] = {}
        self.used = 0

    def clear(self) -> None:
        """What was taken before is free to be taken again."""
        self.used = 0

    def take(self, like: Tensor, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape, of the dtype and device of `like`, until the next `clear`."""
        size = torch.Size(shape).numel() * like.element_size()
        held = self.held.get(like.device)
        if held is None or self.used + size > held.numel():
            with torch.inference_mode(False):  # memory of inference mode could not be written outside of it
                held = torch.empty(max(APART, 2 * (self.used + size)), dtype=torch.uint8, device=like.device)
            self.held[like.device], self.used = held, 0  # whoever holds a part of the old piece keeps it alive
        start = self.used
        self.used += -(-size // 64) * 64  # the next one starts where a cache line does
        return held[start : start + size].view(like.dtype).view(shape)
