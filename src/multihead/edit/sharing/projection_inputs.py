"""Record the tensors that the projections of a layer read."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer import Problem
from multihead.model.anatomy import LayerAnatomy
from multihead.model.call import ragged_rows
from multihead.model.projection_inputs import padded

Inputs = Mapping[str, Float[Tensor, "batch token _"]]
"""What W_Q, W_K and W_V read: "q", "k" and "v"."""


class ProjectionInputs:
    """The tensors that W_Q, W_K and W_V of a layer read, each until it is taken."""

    def __init__(self, layer: LayerAnatomy, model: nn.Module) -> None:
        self.layer, self.model = layer, model
        self._read: dict[str, Tensor] = {}

    @contextmanager
    def recorded(self) -> Generator[None]:
        """Within the block the inputs of the projections are kept."""
        with ExitStack() as stack:
            for letter in "qkv":
                module = self.model.get_submodule(self.layer.weights[letter].module)
                hook = _Reader(self._read, letter)
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
            yield

    def take(self, problem: Problem) -> Inputs:
        """By letter; one tensor where W_K and W_V read the same one."""
        taken = {letter: self._shaped(letter, problem) for letter in "qkv"}
        if self._read["k"] is self._read["v"]:
            taken["v"] = taken["k"]
        self._read.clear()
        return taken

    def _shaped(self, letter: str, problem: Problem) -> Tensor:
        size, packed, x = problem.coordinates, ragged_rows(problem), self._read.get(letter)
        batch, tokens = size.batch, size.queries if letter == "q" else size.keys
        if x is not None and packed is not None:
            x = padded(x.reshape(-1, x.shape[-1]), packed)
        if x is None or x.numel() != batch * tokens * x.shape[-1]:
            shape = "nothing" if x is None else f"a tensor of shape {tuple(x.shape)}"
            raise MultiheadError(
                f"{self.layer.name}: {self.layer.weights[letter].module} was given {shape}, "
                f"and {letter} has {batch} x {tokens} tokens",
                hint="calibration runs without a cache, and each projection must be called once per run",
            )
        return x.reshape(batch, tokens, x.shape[-1])


@dataclass
class _Reader:
    """A hook that keeps what a projection is given."""

    read: dict[str, Tensor]
    letter: str

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, nn.MultiheadAttention):
            index, name = {"q": (0, "query"), "k": (1, "key"), "v": (2, "value")}[self.letter]
            x = args[index] if len(args) > index else kwargs[name]
            x = x.transpose(0, 1) if x.ndim == 3 and not module.batch_first else x
        else:
            x = args[0] if args else next(iter(kwargs.values()))
        # The same tensor is kept as one object, which tells which projections read the same stream.
        self.read[self.letter] = next((y for y in self.read.values() if _same(x, y)), x)


def _same(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and x.data_ptr() == y.data_ptr() and x.stride() == y.stride()
