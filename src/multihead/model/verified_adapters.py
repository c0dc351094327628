"""Run adapters in place of the methods of a model's modules, and verify each on its first call.

Every row of an adapter's result is compared with the result of the original method. Both run in eval mode, on
copies of any caches passed in. Rows that see no key are not compared. If a cache cannot be copied, verification
waits for a later call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import Error as CopyError
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from multihead._base.eval_mode import eval_mode
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.active_interceptions import interception_of
from multihead.model.adapters import BY_CLASS, Adapter
from multihead.model.handwritten import ADAPTERS
from multihead.model.kernel_arguments import attend_heads, unobserved
from multihead.model.verify_kernel import tolerance
from multihead.model.verify_output import copy_caches


def _adapter_of(module: nn.Module) -> Adapter | None:
    """The adapter for a module: the user's for its class, else the one that ships with multihead, else None."""
    kind = type(module)
    package, _, path = kind.__module__.partition(".models.")
    shipped = ADAPTERS.get(f"{path.partition('.')[0]}.{kind.__name__}") if package == "transformers" else None
    return BY_CLASS.get(kind) or shipped


@contextmanager
def adapted(model: nn.Module) -> Generator[None]:
    """Run the adapters of all modules that have one, inside the block."""
    changed: list[tuple[nn.Module, str]] = []
    try:
        for path, module in model.named_modules():
            adapter = _adapter_of(module)
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
        if interception_of(self.module) is None:  # a run outside the block: of another thread, or a comparison
            return self.original(*args, **kwargs)
        if not self.verified:
            self.verified = self._verify(args, kwargs)
        return self.adapter.run(self.module, attend_heads, *args, **kwargs)

    def _verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Compare an adapter with its module. False if a cache cannot be copied. Raises if the adapter is wrong."""
        try:
            for_module, for_adapter = copy_caches((args, kwargs)), copy_caches((args, kwargs))
        except (TypeError, RuntimeError, CopyError):  # a lock, a file, or tensors of an autograd graph
            return False
        attend = _AttendAndMark()
        # A faulty adapter may draw random numbers even in eval mode: the caller's draws must not change.
        devices = sorted({p.get_device() for p in self.module.parameters() if p.is_cuda})
        with unobserved(), torch.random.fork_rng(devices), eval_mode(self.module, freeze=False):
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
            _compare(name, x, y, marked=attend.marked, limit=tolerance(y, *args, *kwargs.values()))
        return True


def _compare(name: str, result: Tensor, expected: Tensor, *, marked: bool, limit: float) -> None:
    """Raise unless adapter and module agree within `limit`, relative to the largest value.

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
    wrong = compared & ~torch.isclose(result, expected, rtol=0.0, atol=limit * max(size, 1e-6), equal_nan=True)
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


def _paired_tensors(result: Any, expected: Any) -> list[tuple[Tensor, Tensor]]:
    """The float tensors that both return, in order; an adapter may return None in place of the weights."""
    pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=False)
    return [(x, y) for x, y in pairs if isinstance(x, Tensor) and isinstance(y, Tensor) and y.is_floating_point()]
