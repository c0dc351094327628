"""The model's own attention maps: what its modules return under eager attention, read by hooks.

Nothing of multihead is used here: this is what multihead is held against.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_WORDS = ("attention", "attn")
_NOT = ("output", "mask", "pool", "norm", "rotary", "embed", "indexer", "projection", "dropout", "decoderlayer")


@dataclass
class Run:
    """One run of a model: the maps of every module that returned one, and the attention-like modules that ran."""

    maps: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    ran: dict[str, str] = field(default_factory=dict[str, str])  # path: class
    memory: dict[str, int] = field(default_factory=dict[str, int])
    """Modules that were given a second sequence by name, and its length."""

    def innermost(self) -> dict[str, list[Tensor]]:
        """The maps of the modules that computed them; modules around those hand them on."""
        return {
            path: maps
            for path, maps in self.maps.items()
            if not any(other != path and inside(other, path) for other in self.maps)
        }

    def attentions(self) -> dict[str, str]:
        """Attention-like modules that ran, innermost only: {path: class}."""
        return {p: c for p, c in self.ran.items() if not any(o != p and inside(o, p) for o in self.ran)}


def inside(path: str, outer: str) -> bool:
    return outer == "" or path == outer or path.startswith(outer + ".")


def is_map(x: object) -> bool:
    """Whether a tensor may be softmax weights (batch, head, query, key)."""
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point() or not x.numel():
        return False
    sums = x.sum(-1)
    return bool((x >= 0).all()) and bool((sums <= 1.001).all()) and bool((sums > 0.01).any())


_MEMORY = ("encoder_hidden_states", "key_value_states", "cross_attention_states", "context", "memory")


@contextmanager
def watched(model: nn.Module) -> Generator[Run]:
    """Read every module of the model inside the block."""
    run = Run()
    handles: list[Any] = []

    def hook(path: str, kind: str) -> Any:
        def read(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            if attention_like(kind) and any(True for _ in module.parameters()):
                run.ran[path] = kind
            for name in _MEMORY:
                if isinstance(x := kwargs.get(name), Tensor) and x.ndim == 3:
                    run.memory[path] = x.shape[1]
            if isinstance(output, tuple | list):
                for x in output[1:]:
                    if is_map(x):
                        run.maps.setdefault(path, []).append(x.detach().clone())
                        break

        return read

    for path, module in model.named_modules():
        if path:
            handles.append(module.register_forward_hook(hook(path, type(module).__name__), with_kwargs=True))
    try:
        with torch.no_grad():
            yield run
    finally:
        for handle in handles:
            handle.remove()


def attention_like(kind: str) -> bool:
    name = kind.lower()
    return any(word in name for word in _WORDS) and not any(word in name for word in _NOT)
