"""Number the attention calls of a module that a model runs several times per forward: ALBERT, or a block in a loop.

Every call of a module within one forward of the model counts as a layer. Two rules cover the other cases:

- kernel calls within one call of their module are one layer: they may be chunks of one sequence;
- calls outside a forward of the model (`model.encoder(x)`) are one layer: they may be separate batches.

Under gradient checkpointing a call runs again in the backward pass, in any order. It is recognised by its queries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from multihead._base.plural import plural
from multihead._base.shapes import Queries
from multihead.errors import MultiheadError
from multihead.layer._kv_store import in_backward
from multihead.model.kernel_arguments import without_interception


class CallIndex:
    """Counts the calls of attention modules while `active()` is true."""

    def __init__(self, active: Callable[[], bool]) -> None:
        self.active = active
        self.running = False
        self._index: dict[str, int] = {}
        """path → index of the latest call in this forward that ran a kernel"""
        self._called: set[str] = set()
        """paths of modules that were called but have not run a kernel yet"""
        self._queries: dict[str, list[tuple[int, Tensor]]] = {}
        """path → (call index, a sample of the queries) of every kernel call in this forward"""
        self._hooks: dict[str, RemovableHandle] = {}

    def begin(self) -> None:
        """Start counting calls for a forward of the model."""
        self.running = True
        self._index.clear()
        self._called.clear()
        self._queries.clear()

    def end(self) -> None:
        self.running = False

    def close(self) -> None:
        """Remove all hooks from the model."""
        for hook in self._hooks.values():
            hook.remove()

    def of(self, module: nn.Module, path: str, q: Queries) -> int:
        """The index of the running call of `module`, whose kernel gets q."""
        with without_interception():  # outer modes trace the model's use of q, which this is not part of
            sample = q[:1, :1, -1:].detach().clone()
        if not self.running:
            return self._index_of_rerun(path, sample) if in_backward() else 0
        if path not in self._hooks:
            self._hooks[path] = module.register_forward_pre_hook(partial(self._on_call, path))
            self._called.add(path)
        if path in self._called:
            self._called.remove(path)
            self._index[path] = self._index.get(path, -1) + 1
        index = self._index.get(path, 0)
        self._queries.setdefault(path, []).append((index, sample))
        return index

    def _on_call(self, path: str, *_: object) -> None:
        if self.running and self.active():
            self._called.add(path)

    def _index_of_rerun(self, path: str, sample: Tensor) -> int:
        """The index of a checkpointed call that runs again."""
        known = self._queries.get(path, [])
        calls = len({index for index, _ in known})
        if calls < 2:
            return 0
        same = {index for index, queries in known if torch.equal(queries, sample)}
        if len(same) != 1:
            raise MultiheadError(
                f"{path} ran {plural(calls, 'time')} in the last forward of the model; a checkpointed call that "
                f"runs again must have the queries of exactly one of them, got {len(same)}",
                hint="call backward() before the next forward, or switch gradient checkpointing off",
            )
        return same.pop()
