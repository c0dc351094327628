"""The outputs of a model on an example input, and how far two models are apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from multihead._base.nested_tensors import CACHES, tensors_in
from multihead.errors import ModelRunError, MultiheadError
from multihead.model.example_inputs import example_inputs
from multihead.model.forward import Forward

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
"""‖a − b‖ / ‖a‖ of two models that are the same but for the order of their sums."""


def example_outputs(model: nn.Module) -> list[Tensor]:
    """All tensors in the output of a model on `example_inputs`, in eval mode.

    Models that draw random numbers in eval mode draw the same ones every time. Raises a `MultiheadError` if there
    is no such input, or if the model raises any error on it.
    """
    cuda = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(0)
        try:
            return list(tensors_in(Forward(model)(example_inputs(model)), objects=CACHES))
        except MultiheadError:
            raise
        except Exception as error:
            raise ModelRunError(
                f"{type(model).__name__} fails on an example input: {type(error).__name__}: {error}"
            ) from error


def difference(expected: Sequence[Tensor], actual: Sequence[Tensor], dtype: torch.dtype) -> str | None:
    """How two lists of example outputs differ by more than rounding in `dtype`; None if they do not."""
    if len(expected) != len(actual):
        return f"{len(actual)} outputs instead of {len(expected)}"
    for a, b in zip(expected, actual, strict=True):
        if a.shape != b.shape:
            return f"an output of shape {tuple(b.shape)} instead of {tuple(a.shape)}"
    worst = max((_distance(a, b) for a, b in zip(expected, actual, strict=True)), default=0.0)
    return None if worst <= TOLERANCE.get(dtype, 1e-5) else f"outputs with a relative distance of {worst:.1e}"


def _distance(a: Tensor, b: Tensor) -> float:
    """The distance of two example outputs, ‖a − b‖ / ‖a‖ over the finite values; infinite if others differ."""
    a, b = a.cpu().double(), b.cpu().double()
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()) or not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return float("inf")
    return float((a[finite] - b[finite]).norm() / a[finite].norm().clamp_min(1e-30))
