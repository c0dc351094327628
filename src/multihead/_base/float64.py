"""fp64 for sums and factorisations, also for data on devices without fp64.

>>> import torch
>>> from multihead._base.float64 import float64
>>> float64(torch.ones(2, dtype=torch.bfloat16)).dtype
torch.float64
"""

from __future__ import annotations

from jaxtyping import Float, Float64
from torch import Tensor, device

WITHOUT_FLOAT64 = ("mps",)


def float64(x: Float[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """`x` in fp64; on the CPU if its device has no fp64 (MPS of Apple)."""
    return x.to(float64_device(x.device)).double()


def float64_device(of: device) -> device:
    """The device that holds fp64 tensors for data on this device."""
    return device("cpu") if of.type in WITHOUT_FLOAT64 else of
