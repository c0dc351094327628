"""Buffers that are allocated once and used by every block of every layer.

Fresh memory costs more than the arithmetic on it, and what is freed in between layers leaves holes in the heap:
a process that allocates anew per layer grows by several times what it ever holds.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Scratch:
    """Named buffers; `take` gives one of them the shape that is needed now."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, like: Tensor, name: str, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape, of the dtype and device of `like`."""
        numel, key = torch.Size(shape).numel(), (name, like.dtype, like.device)
        held = self.held.get(key)
        if held is None or held.numel() < numel:
            self.held.pop(key, None)  # free it first
            with torch.inference_mode(False):  # a buffer of inference mode could not be written outside of it
                held = self.held[key] = torch.empty(numel, dtype=like.dtype, device=like.device)
        return held[:numel].view(shape)
