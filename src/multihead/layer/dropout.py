"""Dropout on attention weights, with cheap random bits.

On CPU, F.dropout draws one serial random number per weight, which costs more than the attention itself.
Here one 64-bit draw serves four weights, 16 bits each, so the probability of keeping a weight is the nearest
multiple of 1/65536, and the weights are rescaled by exactly that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

STEPS = 1 << 16


class Keep:
    """Draws which weights stay, 1 or 0, block after block; the same seed draws the same ones again."""

    def __init__(self, dropout: float, seed: int) -> None:
        self.share = round((1.0 - dropout) * STEPS) / STEPS
        """The probability that a weight is kept: 1 - dropout on the grid of 1/65536."""
        self.gain = 1 / self.share if self.share else 0.0
        """What a kept weight is multiplied with, so that the mean stays."""
        self._limit = round(self.share * STEPS) - STEPS // 2
        self._generator = torch.Generator().manual_seed(seed)

    def into(self, out: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Fill `out` with ones and zeros. Numbers, not bools: those are several times cheaper to multiply with."""
        if self.share in (0.0, 1.0):
            return out.fill_(self.share)
        words = torch.empty((out.numel() + 3) // 4, dtype=torch.int64)
        words.random_(-(1 << 63), None, generator=self._generator)
        return torch.lt(words.view(torch.int16)[: out.numel()].view(out.shape), self._limit, out=out)


def fresh_seed() -> int:
    """A seed out of torch's own generator, so that torch.manual_seed reproduces all that follows from it."""
    return int(torch.randint(1 << 62, ()).item())


def dropped(weights: Float[Tensor, "..."], dropout: float) -> Float[Tensor, "..."]:
    """weights ∘ keep · gain: each weight dropped with probability `dropout`, the rest rescaled."""
    if weights.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(weights, dropout)
    keep = Keep(dropout, fresh_seed())
    kept = keep.into(torch.empty_like(weights, requires_grad=False))
    return weights * kept * keep.gain
