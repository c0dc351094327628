"""Modules that compute attention by hand, taught to pass through `attend` by a few lines of their user.

An adapter computes what a method of the module computes, and calls `attend(q, k, v, mask=..., scale=...)` where
the module multiplies, normalises and multiplies again. It is put in place for the length of a block and proven
there: on its first call its result is compared with the module's own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.kernel_arguments import attend_heads, without_interception

Attend = Callable[..., HeadOutputs]
Adapted = Callable[..., Any]


@dataclass(frozen=True)
class Adapter:
    """run(module, attend, *args, **kwargs) computes what module.method(*args, **kwargs) does."""

    run: Adapted
    method: str = "forward"


_BY_CLASS: dict[type[nn.Module], Adapter] = {}


def adapter(kind: type[nn.Module], *, method: str = "forward") -> Callable[[Adapted], Adapted]:
    """Teach `capture` and its kin a module that computes attention by hand.

    >>> import math, torch
    >>> import multihead as mh
    >>> class Mine(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.qkv, self.out = torch.nn.Linear(12, 36), torch.nn.Linear(12, 12)
    ...     def forward(self, x):
    ...         q, k, v = self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    ...         weights = (q @ k.mT / math.sqrt(4)).softmax(-1)
    ...         return self.out((weights @ v).transpose(1, 2).flatten(2))
    >>> @mh.adapter(Mine)
    ... def forward(module, attend, x):
    ...     q, k, v = module.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    ...     return module.out(attend(q, k, v, scale=1 / math.sqrt(4)).transpose(1, 2).flatten(2))
    >>> with mh.capture(Mine()) as heads:
    ...     _ = heads.model(torch.randn(2, 5, 12))
    >>> len(heads)
    3
    """

    def remember(run: Adapted) -> Adapted:
        _BY_CLASS[kind] = Adapter(run, method)
        return run

    return remember


def adapter_of(module: nn.Module) -> Adapter | None:
    """The adapter of a module: the user's for its class, else the one that ships with us."""
    from multihead.model.handwritten import ADAPTERS

    kind = type(module)
    shipped = ADAPTERS.get(kind.__name__) if kind.__module__.startswith("transformers.") else None
    return _BY_CLASS.get(kind) or shipped


@contextmanager
def adapted(model: nn.Module) -> Generator[None]:
    """Modules that have an adapter run it within the block."""
    changed: list[tuple[nn.Module, str]] = []
    try:
        for path, module in model.named_modules():
            found = adapter_of(module)
            if found is None or found.method in module.__dict__:  # an outer block did it
                continue
            own = getattr(module, found.method)
            module.__dict__[found.method] = _Proven(module, path, found, own)
            changed.append((module, found.method))
        yield
    finally:
        for module, method in changed:
            module.__dict__.pop(method, None)


class _Proven:
    """An adapter, compared with the module's own method on its first call."""

    def __init__(self, module: nn.Module, path: str, adapter: Adapter, own: Callable[..., Any]) -> None:
        self.module, self.path, self.adapter, self.own = module, path, adapter, own
        self.proven = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        comparable = not self.module.training and not any(_remembers(x) for x in (*args, *kwargs.values()))
        if not self.proven and comparable:
            self.proven = True
            self._compare(args, kwargs)
        return self.adapter.run(self.module, attend_heads, *args, **kwargs)

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with torch.no_grad(), without_interception():
            expected = _first_tensor(self.own(*args, **kwargs))
            got = _first_tensor(self.adapter.run(self.module, attend_heads, *args, **kwargs))
        if got.shape != expected.shape:
            raise MultiheadError(
                f"the adapter of {type(self.module).__name__} ({self.path}) gives shape {tuple(got.shape)}, "
                f"the module itself {tuple(expected.shape)}",
                hint="an adapter returns what the method that it stands for returns",
            )
        # Rows of padding may attend to nothing, where modules differ: a few rows may disagree, not most.
        far = (got - expected).abs().amax(-1) > 1e-3 * expected.abs().max().clamp_min(1e-6)
        if bool(far.float().mean() > 0.5):
            raise MultiheadError(
                f"the adapter of {type(self.module).__name__} ({self.path}) does not compute what the module does: "
                f"they differ by {float((got - expected).abs().max()):.3g}, at values of "
                f"{float(expected.abs().max()):.3g}",
                hint="look at the scale, the mask (True = may attend) and the order of the heads",
            )


def _first_tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else x[0]


def _remembers(x: object) -> bool:
    """Whether an argument is a cache: running twice would fill it twice."""
    return hasattr(x, "update") and not isinstance(x, dict)
