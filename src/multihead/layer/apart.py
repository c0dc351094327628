"""A sequence whose tokens lie apart, on several ranks: what a layer has to know of it.

Within a block of `multihead.context_parallel` each rank calls the layer with its own tokens. The layer then asks
here where they stand, and leaves the attention to the block, which knows how keys and values get around.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead._base.shapes import HeadOutputs
    from multihead.layer.problem import Problem


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
_ended: list[Apart] = []
"""the block that ended last, until a layer runs outside of it"""


def apart() -> Apart | None:
    """The sequence that lies apart in this block; None: tokens are all here."""
    if _blocks:
        return _blocks[-1]
    if _ended and not torch.compiler.is_compiling():
        if runs_again():  # a checkpointed layer of that block: it would see the keys of this rank alone
            raise MultiheadError(
                f"a layer of context_parallel ({_ended[-1].tokens} tokens) runs again, outside of the block",
                hint="layers are checkpointed: call backward() inside of the block",
            )
        _ended.clear()
    return None


def begin(block: Apart) -> None:
    """From now on tokens lie apart."""
    _blocks.append(block)


def end() -> None:
    """Back to what was before `begin`."""
    _ended[:] = [_blocks.pop()]


def runs_again() -> bool:
    """Whether we are inside a backward pass, which computes checkpointed layers a second time."""
    return torch._C._current_graph_task_id() != -1  # pyright: ignore[reportPrivateUsage]  # it has no public name
