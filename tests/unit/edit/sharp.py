"""Small models whose heads differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def sharp(spread: float, model: nn.Module) -> Any:
    """The model in eval, with weights large enough that heads differ and tokens matter."""
    torch.manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, spread) if p.dim() > 1 else p.add_(0.1 * torch.randn_like(p))
    return model.eval()
