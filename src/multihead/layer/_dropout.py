"""Dropout on attention weights, with cheap random bits.

On CPU, F.dropout draws one random number per weight, serially, which costs more than the attention itself.
Here one 64-bit draw serves four weights, 16 bits each. The probability of keeping a weight is therefore the closest
multiple of 1/65536, and kept weights are divided by exactly that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from multihead.layer._tracing import is_compiling

STEPS = 1 << 16


class DropoutMask:
    """Draws masks of kept (1) and dropped (0) weights, block after block; the same seed redraws the same masks."""

    def __init__(self, dropout: float, seed: int, device: torch.device) -> None:
        self.keep_prob = round((1.0 - dropout) * STEPS) / STEPS
        """The probability that a weight is kept: 1 - dropout, rounded to a multiple of 1/65536."""
        self.rescale = 1 / self.keep_prob if self.keep_prob else 0.0
        """The factor on kept weights, which preserves the mean."""
        self._limit = round(self.keep_prob * STEPS) - STEPS // 2
        generator_device = "cpu" if device.type == "meta" else device  # meta has no generator and draws nothing
        self._generator = torch.Generator(generator_device).manual_seed(seed)

    def draw(self, out: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Fill a dropout mask with ones and zeros, as floats: multiplying by bools is several times slower."""
        if self.keep_prob in (0.0, 1.0):
            return out.fill_(self.keep_prob)
        words = torch.empty((out.numel() + 3) // 4, dtype=torch.int64, device=out.device)
        words.random_(-(1 << 63), None, generator=self._generator)
        return torch.lt(words.view(torch.int16)[: out.numel()].view(out.shape), self._limit, out=out)


def fresh_seed() -> int:
    """A seed from torch's default generator, so torch.manual_seed reproduces the masks."""
    return int(torch.randint(1 << 62, ()).item())


def dropped(weights: Float[Tensor, "..."], dropout: float) -> Float[Tensor, "..."]:
    """weights ∘ kept · rescale: each weight is dropped with probability `dropout`, the others are rescaled."""
    if weights.device.type != "cpu" or is_compiling():
        return F.dropout(weights, dropout)
    mask = DropoutMask(dropout, fresh_seed(), weights.device)
    keep_mask = mask.draw(torch.empty_like(weights, requires_grad=False))
    return weights * keep_mask * mask.rescale
