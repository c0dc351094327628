"""A short name of the weights of a model."""

from __future__ import annotations

from hashlib import sha256

import torch
from torch import nn

from multihead.model.compiled import inner


def fingerprint(model: nn.Module) -> str:
    """The same for the same names, types and values of all weights, on any device."""
    digest = sha256()
    for name, weight in inner(model).state_dict().items():
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
