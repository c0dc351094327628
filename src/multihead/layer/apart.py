"""A sequence whose tokens lie apart, on several ranks: what a layer has to know of it.

Within a block of `multihead.context_parallel` each rank calls the layer with its own tokens. The layer then asks
here where they stand, and leaves the attention to the block, which knows how keys and values get around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor

if TYPE_CHECKING:
    from multihead.layer.problem import Problem
    from multihead.shapes import HeadOutputs


@runtime_checkable
class Apart(Protocol):
    """One sequence of `tokens` tokens, some of which are here."""

    tokens: int

    def places(self, here: int) -> Int[Tensor, " token"]:
        """Where the tokens here stand in the whole sequence; an error unless there are `here` of them."""
        ...

    def attend(self, problem: Problem) -> HeadOutputs:
        """softmax(scores) v of the queries here and of the keys of all ranks."""
        ...


_blocks: list[Apart] = []


def apart() -> Apart | None:
    """The sequence that lies apart in this block; None: tokens are all here."""
    return _blocks[-1] if _blocks else None


def begin(block: Apart) -> None:
    """From now on tokens lie apart."""
    _blocks.append(block)


def end() -> None:
    """Back to what was before `begin`."""
    _blocks.pop()
