"""A linear map of the cut model that is fitted: what it reads, its normal equations, how a solution is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.edit.block_reader import Seen
from multihead.edit.least_squares import NormalEquations
from multihead.edit.residual_block import Rows, TokenLayout, Writer
from multihead.model.call import Listener
from multihead.model.compiled import inner
from multihead.model.statistics.second_moments import Crossed


class LinearMap:
    """o = W z + b of a writer; W and b change."""

    listener: Listener | None = None
    """of runs that show the rows"""

    def __init__(self, model: nn.Module, writer: Writer) -> None:
        self.writer = writer
        parameters = dict(inner(model).named_parameters())
        self.weight = parameters[writer.parameter]
        bias = parameters.get(f"{writer.module}.bias" if writer.module else "bias")
        width = self.weight.shape[1 if writer.transposed else 0 :][:1]
        self.bias = bias if bias is not None and bias.shape == width else None

    @property
    def columns(self) -> int:
        """The unknowns per output channel, without the bias."""
        return self.weight.shape[0 if self.writer.transposed else 1]

    @property
    def fits(self) -> bool:
        """Whether there is anything to fit: a layer without heads and without a bias has not."""
        return self.weight.numel() > 0 or self.bias is not None

    def equations(self) -> NormalEquations:
        """The normal equations of the map, still without rows."""
        return NormalEquations(bias=self.bias is not None)

    def reading(self) -> AbstractContextManager[object]:
        """Inside the block, runs show the rows."""
        return nullcontext()

    def rows(self, seen: Seen, layout: TokenLayout, like: Rows) -> Float[Tensor, "token column"]:
        """The rows of the normal equations of a fitted map, in the run just seen."""
        z = seen.inputs.get(self.writer.parameter)
        if z is None or not z.shape[-1]:  # a layer without heads
            return like.new_zeros(len(like), 0)
        return layout.rows(z, self.writer.token_first)

    def write(self, change: Crossed) -> Callable[[], None]:
        """Write the fitted map into its weights; returns a function that undoes it."""
        before = self.weight.detach().clone(), None if self.bias is None else self.bias.detach().clone()
        columns = change[: change.shape[0] - (self.bias is not None)]
        with torch.no_grad():
            self.weight.add_((columns if self.writer.transposed else columns.T).to(self.weight))
            if self.bias is not None:
                self.bias.add_(change[-1].to(self.bias))

        def undo() -> None:
            """Restore the weights that the fitted map replaced."""
            with torch.no_grad():
                self.weight.copy_(before[0])
                if self.bias is not None and before[1] is not None:
                    self.bias.copy_(before[1])

        return undo

    def output(self, seen: Seen, layout: TokenLayout, like: Rows) -> Rows:
        """o, or its bias where the map did not run because the layer has no heads."""
        o: Tensor | None = seen.outputs.get(self.writer.parameter)
        if o is not None:
            return layout.rows(o, self.writer.token_first)
        return torch.zeros_like(like) if self.bias is None else self.bias.detach().expand_as(like)
