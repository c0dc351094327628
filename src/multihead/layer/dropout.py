"""Dropout on attention weights, with cheap random bits.

On CPU, F.dropout draws one serial random number per weight, which costs more than the attention itself.
Here one 64-bit draw serves four weights, 16 bits each, so the probability of keeping a weight is the nearest
multiple of 1/65536, and the weights are rescaled by exactly that.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

STEPS = 1 << 16


def keep_share(dropout: float) -> float:
    """The probability of keeping a weight: 1 - dropout on the grid of 1/65536."""
    return round((1.0 - dropout) * STEPS) / STEPS


def keep_mask(shape: tuple[int, ...], dropout: float) -> Bool[Tensor, "..."]:
    """True with probability `keep_share(dropout)`, from torch's global CPU generator."""
    count = torch.Size(shape).numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    draws = words.view(torch.int16)[:count].view(shape)
    return draws < round(keep_share(dropout) * STEPS) - STEPS // 2


def dropped(weights: Float[Tensor, "..."], dropout: float) -> Float[Tensor, "..."]:
    """weights ∘ keep / share: each weight dropped with probability `dropout`, the rest rescaled."""
    if weights.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(weights, dropout)
    share = keep_share(dropout)
    if share == 0:
        return weights * 0.0
    return weights * keep_mask(tuple(weights.shape), dropout) / share
