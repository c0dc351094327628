"""Compare the problem that observers see with the output of the model's kernel; raise where they differ."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.layer import Problem, weights_of
from multihead.layer.outputs import Cells
from multihead.model.kernel_arguments import unobserved

ROWS = 16
"""query rows of a call that are compared"""


def verify_call(path: str, problem: Problem, heads: HeadOutputs) -> None:
    """Raise unless softmax(scores) v of the problem, on some rows, equals the result of the model's kernel.

    Rows that see no key are not compared: kernels disagree on them, and they hold no information.
    """
    queries = problem.coordinates.queries
    step = max(1, -(-queries // ROWS))
    rows = sorted({*range(0, queries, step), queries - 1})
    if not problem.coordinates.keys or not heads.numel():
        return
    with unobserved():
        weights = weights_of(problem, Cells(rows=rows))
        computed = weights @ problem.groups.expand(problem.v)
        sees_a_key = (weights > 0).any(-1, keepdim=True).expand_as(computed)
        difference = largest_difference(computed, heads[:, :, rows], sees_a_key)
    if difference is not None:
        raise MultiheadError(
            f"{path}: the attention that was read from the call of its kernel is not the one that the kernel "
            f"computed: the head outputs differ by {difference}",
            hint="write an adapter for the module: @multihead.model.adapter(ItsClass)",
        )


@dataclass(frozen=True)
class Difference:
    """The largest difference of two tensors that should be equal."""

    largest: float
    size: float
    """the largest expected value"""

    def __str__(self) -> str:
        return f"up to {self.largest:.3g} at values of up to {self.size:.3g}"


def largest_difference(
    result: Float[Tensor, "..."], expected: Float[Tensor, "..."], compared: Tensor | None = None
) -> Difference | None:
    """How far two kernels differ where both are finite; None if within the tolerance of their dtype."""
    both = result.isfinite() & expected.isfinite()
    both = both if compared is None else both & compared
    if not bool(both.any()):
        return None
    wide = torch.promote_types(result.dtype, torch.float32)
    a, b = (x.to(wide).masked_fill(~both, 0.0) for x in (result, expected))
    size, largest = float(b.abs().max()), float((a - b).abs().max())
    limit = tolerance(result, expected) * max(size, 1e-6)
    return None if largest <= limit else Difference(largest, size)


def tolerance(*arguments: object) -> float:
    """The tolerance for kernels: √ε of the coarsest dtype, at least that of float32."""
    tensors = [x for x in arguments if isinstance(x, Tensor) and x.is_floating_point()]
    dtypes = {torch.float32, *(x.dtype for x in tensors)}
    dtypes |= {torch.get_autocast_dtype(x.device.type) for x in tensors if torch.is_autocast_enabled(x.device.type)}
    return max(torch.finfo(dtype).eps for dtype in dtypes) ** 0.5
