"""The active interceptions: those of this thread, at the current depth of `isolated` blocks.

Adapters and the attention functions of Hugging Face models are replaced globally while a block is open. The
replacements check here whether a call belongs to such a block; all other calls run the model's own code.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import local

from torch import nn


@dataclass(eq=False)
class Interception:
    """One block in which the attentions of a model are intercepted."""

    modules: Mapping[int, nn.Module]
    """id of a module of the model → the module"""
    depth: int
    proven: set[Hashable] = field(default_factory=set[Hashable])
    """names of the comparisons with the model's own computation in this block"""
    changed: bool = False
    """whether a listener has changed heads in the current run of the model"""

    @property
    def active(self) -> bool:
        """Whether calls that are made now belong to the block."""
        return self.depth == _state.depth and self in _state.interceptions

    def first(self, what: Hashable) -> bool:
        """Whether the active interception compares `what` for the first time."""
        first = what not in self.proven
        self.proven.add(what)
        return first


class _ThreadState(local):
    def __init__(self) -> None:
        self.depth = 0
        self.interceptions: list[Interception] = []


_state = _ThreadState()


@contextmanager
def interception(modules: Mapping[int, nn.Module]) -> Generator[Interception]:
    """Inside the block an interception of these modules is active."""
    block = Interception(modules, _state.depth)
    _state.interceptions.append(block)
    try:
        yield block
    finally:
        _state.interceptions.remove(block)


@contextmanager
def isolated() -> Generator[None]:
    """Hide the runs inside this block from interceptions outside it."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1


def isolation_depth() -> int:
    """How many `isolated` blocks are open: runs at different depths are different runs."""
    return _state.depth


def interception_of(module: nn.Module) -> Interception | None:
    """The innermost active interception that a call of the module belongs to."""
    return next((block for block in reversed(_active()) if id(module) in block.modules), None)


def heads_are_changed() -> bool:
    """Whether any listener has changed heads in the current run."""
    return any(block.changed for block in _active())


def _active() -> list[Interception]:
    return [block for block in _state.interceptions if block.depth == _state.depth]
