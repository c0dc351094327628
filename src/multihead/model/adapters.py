"""Modules that compute attention by hand, taught to pass through `attend` by a few lines of their user.

An adapter computes what a method of the module computes, and calls `attend(q, k, v, mask=..., scale=...)` where
the module multiplies, normalises and multiplies again. It is put in place for the length of a block and proven
there: on its first call all rows of its result are compared with the module's own, both in eval mode and on copies
of the caches they are given. Rows that see no key are not compared. If a cache cannot be copied, the proof waits
for a call without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import Error as CopyError
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

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
    >>> model = Mine()
    >>> with mh.capture(model) as heads:
    ...     _ = model(torch.randn(2, 5, 12))
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
    """An adapter, compared with the module's own method on the first call that can be compared."""

    def __init__(self, module: nn.Module, path: str, adapter: Adapter, own: Callable[..., Any]) -> None:
        self.module, self.path, self.adapter, self.own = module, path, adapter, own
        self.proven = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.proven:
            self.proven = self._prove(args, kwargs)
        return self.adapter.run(self.module, attend_heads, *args, **kwargs)

    def _prove(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the adapter is proven: not if a cache cannot be copied. Raises if the adapter is wrong."""
        try:
            for_module, for_adapter = _copy((args, kwargs)), _copy((args, kwargs))
        except (TypeError, RuntimeError, CopyError):  # it holds a lock, a file, tensors of an autograd graph
            return False
        attend = _AttendAndMark()
        with torch.no_grad(), without_interception(), _in_eval_mode(self.module):
            expected = self.own(*for_module[0], **for_module[1])
            got = self.adapter.run(self.module, attend, *for_adapter[0], **for_adapter[1])
        kind = f"{type(self.module).__name__} ({self.path})" if self.path else type(self.module).__name__
        if isinstance(got, Tensor) != isinstance(expected, Tensor):
            raise MultiheadError(
                f"the adapter of {kind} returns a {type(got).__name__}, the module itself a "
                f"{type(expected).__name__}",
                hint="return what the method returns that the adapter stands for",
            )
        got, expected = _first_tensor(got), _first_tensor(expected)
        if got.shape != expected.shape:
            raise MultiheadError(
                f"the adapter of {kind} returns shape {tuple(got.shape)}, the module itself "
                f"{tuple(expected.shape)}",
                hint="return what the method returns that the adapter stands for",
            )
        compared = ~got.isnan() if attend.marked else torch.ones_like(got, dtype=torch.bool)
        if not bool(compared.any()):
            raise MultiheadError(
                f"the adapter of {kind} hides every key from every query",
                hint="a bool mask is True where a query may attend",
            )
        finite = expected[compared & expected.isfinite()].abs()
        size = float(finite.max()) if finite.numel() else 0.0
        limit = _tolerance(expected, *args, *kwargs.values()) * max(size, 1e-6)
        wrong = compared & ~torch.isclose(got, expected, rtol=0.0, atol=limit, equal_nan=True)
        if bool(wrong.any()):
            rows, off = int(wrong.any(-1).sum()), float((got - expected)[wrong].abs().max())
            raise MultiheadError(
                f"the adapter of {kind} does not compute what the module does: {rows} of "
                f"{int(compared.any(-1).sum())} rows differ, by up to {off:.3g} at values of {size:.3g}",
                hint="check the scale, the mask (True = may attend), the order of the heads, and that nothing is "
                "dropped in eval mode",
            )
        return True


class _AttendAndMark:
    """`attend` for the proof: rows that see no key are NaN.

    Modules differ there: some average all values, `attend` returns zeros. NaN marks what such rows reach.
    """

    def __init__(self) -> None:
        self.marked = False

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> HeadOutputs:
        heads = attend_heads(q, k, v, **options)
        options["dropout"] = 0.0
        empty = attend_heads(q, k, torch.ones_like(v), **options) == 0
        self.marked |= bool(empty.any())
        return heads.masked_fill(empty, torch.nan)


@contextmanager
def _in_eval_mode(module: nn.Module) -> Generator[None]:
    """Without dropout, and with random numbers that count for nobody else."""
    training = [m for m in module.modules() if m.training]
    devices = {p.get_device() for p in module.parameters() if p.is_cuda}
    with torch.random.fork_rng(sorted(devices)):
        try:
            for m in training:
                m.training = False
            yield
        finally:
            for m in training:
                m.training = True


def _tolerance(*arguments: object) -> float:
    """√ε of the coarsest dtype in play, float32 at the finest: many modules take their softmax in it."""
    tensors = [x for x in arguments if isinstance(x, Tensor) and x.is_floating_point()]
    dtypes = {torch.float32, *(x.dtype for x in tensors)}
    dtypes |= {torch.get_autocast_dtype(x.device.type) for x in tensors if torch.is_autocast_enabled(x.device.type)}
    return max(torch.finfo(dtype).eps for dtype in dtypes) ** 0.5


def _first_tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else x[0]


def _copy(x: Any) -> Any:
    """Arguments for a call that leaves no trace: caches are copied, tensors are not."""
    if type(x) is dict:
        return {name: _copy(value) for name, value in cast(dict[Any, Any], x).items()}
    if type(x) in (list, tuple):
        return type(x)([_copy(value) for value in x])
    return deepcopy(x) if hasattr(x, "update") else x
