"""Adapters: short functions that route a module's hand-written attention through `attend`.

An adapter computes the same as a method of the module, but calls `attend(q, k, v, mask=..., scale=...)` in place of
softmax(q kᵀ) v. It replaces the method inside a block, and is verified there: on its first call, every row of its
result is compared with the result of the original method. Both run in eval mode, on copies of any caches passed in.
Rows that see no key are not compared. If a cache cannot be copied, verification waits for a later call.
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
from torch.utils import _pytree as pytree

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
    """Register an adapter for a module class with hand-written attention, so `capture` and the like can see it.

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

    def register(run: Adapted) -> Adapted:
        _BY_CLASS[kind] = Adapter(run, method)
        return run

    return register


def adapter_of(module: nn.Module) -> Adapter | None:
    """The adapter for a module: the user's for its class, else the one that ships with multihead, else None."""
    from multihead.model.handwritten import ADAPTERS

    kind = type(module)
    package, _, path = kind.__module__.partition(".models.")
    shipped = ADAPTERS.get(f"{path.partition('.')[0]}.{kind.__name__}") if package == "transformers" else None
    return _BY_CLASS.get(kind) or shipped


@contextmanager
def adapted(model: nn.Module) -> Generator[None]:
    """Run the adapters of all modules that have one, inside the block."""
    changed: list[tuple[nn.Module, str]] = []
    try:
        for path, module in model.named_modules():
            adapter = adapter_of(module)
            if adapter is None or adapter.method in module.__dict__:  # an outer block has replaced it already
                continue
            original = getattr(module, adapter.method)
            module.__dict__[adapter.method] = _VerifiedAdapter(module, path, adapter, original)
            changed.append((module, adapter.method))
        yield
    finally:
        for module, method in changed:
            module.__dict__.pop(method, None)


class _VerifiedAdapter:
    """An adapter, compared with the original method on the first call that allows it."""

    def __init__(self, module: nn.Module, path: str, adapter: Adapter, original: Callable[..., Any]) -> None:
        self.module, self.path, self.adapter, self.original = module, path, adapter, original
        self.verified = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.verified:
            self.verified = self._verify(args, kwargs)
        return self.adapter.run(self.module, attend_heads, *args, **kwargs)

    def _verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Compare both methods. False if a cache cannot be copied. Raises if the adapter is wrong."""
        try:
            for_module, for_adapter = _copy((args, kwargs)), _copy((args, kwargs))
        except (TypeError, RuntimeError, CopyError):  # a lock, a file, or tensors of an autograd graph
            return False
        attend = _AttendAndMark()
        with torch.no_grad(), without_interception(), _in_eval_mode(self.module):
            expected = self.original(*for_module[0], **for_module[1])
            result = self.adapter.run(self.module, attend, *for_adapter[0], **for_adapter[1])
        name = f"{type(self.module).__name__} ({self.path})" if self.path else type(self.module).__name__
        if isinstance(result, Tensor) != isinstance(expected, Tensor):
            raise MultiheadError(
                f"the adapter of {name} must return a {type(expected).__name__}, as the module does, got a "
                f"{type(result).__name__}",
                hint="return the same structure as the method that the adapter replaces",
            )
        pairs = _paired_tensors(result, expected)
        if attend.marked and all(bool(x.isnan().all()) for x, _ in pairs):
            raise MultiheadError(
                f"the adapter of {name} hides every key from every query",
                hint="a bool mask is True where a query may attend",
            )
        for x, y in pairs:
            _compare(name, x, y, marked=attend.marked, tolerance=_tolerance(y, *args, *kwargs.values()))
        return True


def _compare(name: str, result: Tensor, expected: Tensor, *, marked: bool, tolerance: float) -> None:
    """Raise unless both agree within `tolerance`.

    If `marked`, NaN in the result comes from rows that see no key; it is not compared.
    """
    if result.shape != expected.shape:
        raise MultiheadError(
            f"the adapter of {name} must return shape {tuple(expected.shape)}, as the module does, got "
            f"{tuple(result.shape)}",
            hint="return the same shape as the method that the adapter replaces",
        )
    compared = ~result.isnan() if marked else torch.ones_like(result, dtype=torch.bool)
    finite = expected[compared & expected.isfinite()].abs()
    size = float(finite.max()) if finite.numel() else 0.0
    wrong = compared & ~torch.isclose(result, expected, rtol=0.0, atol=tolerance * max(size, 1e-6), equal_nan=True)
    if bool(wrong.any()):
        rows, difference = int(wrong.any(-1).sum()), float((result - expected)[wrong].abs().max())
        raise MultiheadError(
            f"the adapter of {name} must match the module, but {rows} of {int(compared.any(-1).sum())} rows "
            f"differ, by up to {difference:.3g} at values of {size:.3g}",
            hint="check the scale, the mask (True = may attend), the order of the heads, and that there is no "
            "dropout in eval mode",
        )


class _AttendAndMark:
    """`attend` for verification: rows that see no key are NaN.

    Modules disagree on such rows: some average all values, `attend` returns zeros. NaN marks every result that
    depends on them.
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
    """Eval mode without dropout; the random state outside the block is unaffected."""
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
    """√ε of the coarsest dtype, at least that of float32, in which many modules compute their softmax."""
    tensors = [x for x in arguments if isinstance(x, Tensor) and x.is_floating_point()]
    dtypes = {torch.float32, *(x.dtype for x in tensors)}
    dtypes |= {torch.get_autocast_dtype(x.device.type) for x in tensors if torch.is_autocast_enabled(x.device.type)}
    return max(torch.finfo(dtype).eps for dtype in dtypes) ** 0.5


def _paired_tensors(result: Any, expected: Any) -> list[tuple[Tensor, Tensor]]:
    """The float tensors that both return, in order; an adapter may return None in place of the weights."""
    pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=False)
    return [(x, y) for x, y in pairs if isinstance(x, Tensor) and isinstance(y, Tensor) and y.is_floating_point()]


def _copy(x: Any) -> Any:
    """Arguments for a call without side effects: caches are copied, tensors are not."""
    if type(x) is dict:
        return {name: _copy(value) for name, value in cast(dict[Any, Any], x).items()}
    if type(x) in (list, tuple):
        return type(x)([_copy(value) for value in x])
    return deepcopy(x) if hasattr(x, "update") else x
