"""Which layer an attention is, in a model that runs one module several times: ALBERT, or any block in a loop.

Every call of a module within one forward of the model is a layer. Two rules decide what the calls alone do not say:

- kernels that run within one call of their module are one layer: chunks of one sequence;
- calls outside of a forward of the model (`model.encoder(x)`) are one layer: they may as well be several batches.

With gradient checkpointing a call runs again in the backward pass, in any order. It is recognised by its queries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from multihead._base.shapes import Queries
from multihead.errors import MultiheadError
from multihead.layer.apart import runs_again
from multihead.model.kernel_arguments import without_interception


class CallIndex:
    """Counts the calls of attention modules; `active` says whether a call is one to count."""

    def __init__(self, active: Callable[[], bool]) -> None:
        self.active = active
        self.running = False
        self._index: dict[str, int] = {}
        """path → index of the latest call in this forward that ran a kernel"""
        self._called: set[str] = set()
        """paths of the modules that were called and have not run a kernel yet"""
        self._queries: dict[str, list[tuple[int, Tensor]]] = {}
        """path → call index and a few queries of every kernel in this forward"""
        self._hooks: dict[str, RemovableHandle] = {}

    def begin(self) -> None:
        """A forward of the model begins."""
        self.running = True
        self._index.clear()
        self._called.clear()
        self._queries.clear()

    def end(self) -> None:
        self.running = False

    def close(self) -> None:
        """Leave no hook on the model."""
        for hook in self._hooks.values():
            hook.remove()

    def of(self, module: nn.Module, path: str, q: Queries) -> int:
        """The index of the call of `module` that is running, whose kernel is given q."""
        with without_interception():  # an outer mode follows what the model does with q, and this is not the model
            few = q[:1, :1, -1:].detach().clone()
        if not self.running:
            return self._again(path, few) if runs_again() else 0
        if path not in self._hooks:
            self._hooks[path] = module.register_forward_pre_hook(partial(self._call, path))
            self._called.add(path)
        if path in self._called:
            self._called.remove(path)
            self._index[path] = self._index.get(path, -1) + 1
        index = self._index.get(path, 0)
        self._queries.setdefault(path, []).append((index, few))
        return index

    def _call(self, path: str, *_: object) -> None:
        if self.running and self.active():
            self._called.add(path)

    def _again(self, path: str, few: Tensor) -> int:
        """The index of a checkpointed call that runs again."""
        known = self._queries.get(path, [])
        calls = len({index for index, _ in known})
        if calls < 2:
            return 0
        same = {index for index, queries in known if torch.equal(queries, few)}
        if len(same) != 1:
            raise MultiheadError(
                f"{path} ran {calls} times in the last forward of the model, and a checkpointed call that runs "
                f"again has the queries of {len(same)} of them",
                hint="call backward() before the next forward, or switch gradient checkpointing off",
            )
        return same.pop()
