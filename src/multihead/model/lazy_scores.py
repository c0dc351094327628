"""Attention written by hand, seen while it is computed: softmax(scale · q kᵀ + bias) v is one call of `attend`.

`lazily(module, attend, method, ...)` runs a method of a module with one change: the product of two tensors is not
computed at once. It is a `LazyScores` that remembers q and k. Scaling it, adding a bias, hiding keys, softmax and
dropout are remembered too; its product with v is `attend(q, k, v, mask=..., scale=..., dropout=...)`. Any other
operation computes the scores first, and if no product with v is left, the module is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from multihead.errors import MultiheadError
from multihead.layer import mask as masks
from multihead.layer._mask_algebra import Mask
from multihead.model.adapters import Attend
from multihead.model.kernel_arguments import HIDES, mask_of

_HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")


def lazily(module: nn.Module, attend: Attend, method: str, *args: Any, **kwargs: Any) -> Any:
    """module.method(*args, **kwargs), with its attention computed by `attend`; returned weights become None."""
    with _LazyProducts(module, attend) as products:
        result = getattr(type(module), method)(module, *args, **kwargs)
    if not products.attended:
        raise MultiheadError(
            f"the attention of {type(module).__name__} is not softmax(q kᵀ + bias) v as far as can be seen"
            + (f": {products.obstacle} is applied to its scores or weights" if products.obstacle else ""),
            hint="write an adapter for it: @multihead.model.adapter(ItsClass)",
        )
    return pytree.tree_map_only(LazyScores, _nothing, result)


def _nothing(_: object) -> None:
    return None


class _LazyProducts(TorchFunctionMode):
    """Inside this block products of two tensors with a head axis are `LazyScores`."""

    def __init__(self, module: nn.Module, attend: Attend) -> None:
        super().__init__()
        counts = (getattr(module, name, None) for name in _HEAD_COUNTS)
        self.heads = next((n for n in counts if isinstance(n, int)), None)
        self.attend = attend
        self.attended = False
        self.obstacle: str | None = None
        """the last operation that needed the scores or weights themselves"""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.einsum and len(args) == 2 and isinstance(args[1], list | tuple):
            args = (args[0], *args[1])
        if any(isinstance(x, LazyScores) for x in args):
            # Not func(...): that would pass all outer modes first, and they would not see `attend`.
            return LazyScores.__torch_function__(func, types, args, kwargs)
        product = _product_of(func.__name__, args, kwargs)
        lazy = None if product is None else product.scores(self)
        return func(*args, **kwargs) if lazy is None else lazy


@dataclass(frozen=True)
class _Expression:
    """scale · q kᵀ + Σ added, -inf where hidden; then softmax and dropout, if `weights`."""

    q: Tensor  # batch, head, query, dim
    k: Tensor  # batch, head, key, dim
    products: _LazyProducts
    lead: tuple[int, ...]
    """the leading axes that the module sees: (batch, head), (batch · head,), or (batch, window, head)"""
    dtype: torch.dtype
    scale: float = 1.0
    added: tuple[Tensor, ...] = ()
    hidden: tuple[Tensor, ...] = ()
    weights: bool = False
    dropout: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the module sees."""
        return (*self.lead, self.q.shape[2], self.k.shape[2])

    def four_axes(self, x: Tensor) -> Tensor | None:
        """A tensor added to lazy scores, over (batch, head, query, key); None if it does not fit."""
        axes = len(self.lead) + 2
        if x.ndim > axes:
            return None
        x = x[(None,) * (axes - x.ndim)]
        if len(self.lead) == 3:
            return x.expand(*self.lead[:2], -1, -1, -1).flatten(0, 1)
        if len(self.lead) == 1:
            return x.unsqueeze(0) if x.shape[0] == 1 else x.unflatten(0, self.q.shape[:2])
        return x

    def mask(self) -> Mask:
        """The mask and the sum of the biases of the lazy scores."""
        batch, _, queries, keys = *self.q.shape[:3], self.k.shape[2]
        mask = masks.everything()
        for x in (*self.added, *(~hidden for hidden in self.hidden)):
            mask = mask & mask_of(x.expand(batch, -1, queries, keys))
        return mask

    def attend(self, v: Tensor) -> Tensor:
        self.products.attended = True
        z = self.products.attend(self.q, self.k, v, mask=self.mask(), scale=self.scale, dropout=self.dropout)
        return z.reshape(*self.lead, *z.shape[2:]).to(v.dtype)

    def compute(self) -> Tensor:
        """Lazy scores or weights as a plain tensor."""
        x = self.q @ self.k.mT * self.scale
        for added in self.added:
            x = x + added
        for hidden in self.hidden:
            x = x.masked_fill(hidden, torch.finfo(x.dtype).min)
        x = nn.functional.dropout(x.softmax(-1), self.dropout) if self.weights else x
        return x.reshape(self.shape).to(self.dtype)


class LazyScores(Tensor):
    """Attention scores or weights that are not computed yet."""

    expression: _Expression

    @staticmethod
    def __new__(cls: type[LazyScores], expression: _Expression) -> LazyScores:
        x = Tensor._make_wrapper_subclass(  # pyright: ignore[reportPrivateUsage]  # no public equivalent
            cls, expression.shape, dtype=expression.dtype, device=expression.q.device
        )
        x.expression = expression
        return x

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if name in ("__get__", "size", "dim", "numel", "is_floating_point", "__len__", "element_size"):
            with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
                return func(*args, **kwargs)
        in_place = name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
        rule = _RULES.get(name.removesuffix("_") if not name.startswith("__") else name)
        result = None if rule is None else rule(name, args, kwargs)
        if isinstance(result, _Expression) and in_place:
            args[0].expression = result
            return args[0]
        if result is not None:
            return LazyScores(result) if isinstance(result, _Expression) else result
        return cls.__torch_dispatch__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The operation on computed scores."""

        def computed(x: Any) -> Any:
            """Lazy scores as a plain tensor; other values unchanged."""
            if not isinstance(x, LazyScores):
                return x
            x.expression.products.obstacle = func.__name__
            return x.expression.compute()

        return func(*pytree.tree_map(computed, args), **pytree.tree_map(computed, kwargs or {}))

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self.expression.compute())


# Products: q kᵀ and p v, as matmul, bmm, baddbmm or einsum.


@dataclass(frozen=True)
class _Product:
    """a b over (…, row, dim) and (…, dim, column), with `added` scores; `order` permutes the axes of the result."""

    a: Tensor
    b: Tensor
    scale: float = 1.0
    added: Tensor | None = None
    order: tuple[int, ...] | None = None

    def scores(self, products: _LazyProducts) -> LazyScores | None:
        """Lazy scores of a product of q = a and k = bᵀ; None if it has no head axis."""
        q, k = _autocast(self.a), _autocast(self.b.mT)
        if self.order not in (None, (0, 1, 2, 3)) or q.ndim != k.ndim or q.shape[:-2] != k.shape[:-2]:
            return None
        lead, heads = tuple(q.shape[:-2]), products.heads
        if len(lead) == 1 and heads is not None and lead[0] % heads == 0:
            q, k = q.unflatten(0, (-1, heads)), k.unflatten(0, (-1, heads))
        if q.ndim != 4:
            return None
        scores = _Expression(q, k, products, lead, q.dtype, self.scale)
        added = None if self.added is None else scores.four_axes(self.added)
        return LazyScores(scores if added is None else replace(scores, added=(added,)))


def _product_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Product | None:
    """The product that a call computes, which makes lazy scores; None if it computes something else."""
    if name in ("matmul", "bmm", "__matmul__") and len(args) == 2 and args[0].ndim > 2 and args[1].ndim > 2:
        return _Product(*args)
    if name == "baddbmm":
        named: dict[str, Any] = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | kwargs
        added = named["input"] * named.get("beta", 1)
        return _Product(named["batch1"], named["batch2"], float(named.get("alpha", 1)), added)
    if name == "einsum" and len(args) == 3 and isinstance(args[0], str) and "->" in args[0] and "." not in args[0]:
        return _einsum(*args)
    return None


def _einsum(equation: str, a: Tensor, b: Tensor) -> _Product | None:
    """Lazy scores of a batched product such as "ibnd,jbnd->bnij"; None if the equation is something else."""
    inputs, out = equation.replace(" ", "").split("->")
    first, second = inputs.split(",")
    shared = [x for x in out if x in first and x in second]
    row, column = [x for x in first if x not in second], [x for x in second if x not in first]
    inner = [x for x in first if x in second and x not in out]
    if not (len(row) == len(column) == len(inner) == 1) or len({*out}) != len(shared) + 2 or len(shared) != 2:
        return None
    rows_first = [first.index(x) for x in (*shared, *row, *inner)]
    a = a if rows_first == sorted(rows_first) else a.permute(rows_first)
    b = b.permute([second.index(x) for x in (*shared, *inner, *column)])
    letters = [*shared, *row, *column]
    return _Product(a, b, order=tuple(letters.index(x) for x in out))


def _autocast(x: Tensor) -> Tensor:
    """x as a product reads it under autocast."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


# Rules: (name, args, kwargs) of an operation with lazy arguments -> the new expression, a plain result, or None.

_Rule = Callable[[str, tuple[Any, ...], dict[str, Any]], _Expression | Tensor | None]


def _scores(x: Any) -> _Expression | None:
    return x.expression if isinstance(x, LazyScores) and not x.expression.weights else None


def _plain(x: Any) -> Any:
    return x.expression.compute() if isinstance(x, LazyScores) else x


def _number(x: Any) -> float | None:
    if isinstance(x, Tensor):
        return float(x) if x.ndim == 0 and not x.requires_grad and not isinstance(x, LazyScores) else None
    return None if x is None else float(x)


def _multiply(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy scores times or divided by a number, or by a tensor."""
    x, other = (args[1], args[0]) if not isinstance(args[0], LazyScores) else args
    scores, factor, divides = _scores(x), _number(other), "div" in name
    if scores is None or kwargs or isinstance(other, LazyScores) or (divides and x is not args[0]):
        return None
    if factor is not None:
        factor = 1 / factor if divides else factor
        return replace(scores, scale=scores.scale * factor, added=tuple(y * factor for y in scores.added))
    rows = scores.four_axes(1 / other if divides else other)
    if rows is None or rows.shape[3] != 1:  # a factor that differs between keys is not a scale
        return None
    return replace(scores, q=scores.q * rows, added=tuple(y * rows for y in scores.added))


def _add(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy scores plus a bias or a mask."""
    x, other = (args[1], args[0]) if _scores(args[0]) is None else args
    scores = _scores(x)
    sign = -1 if "sub" in name else 1
    if scores is None or kwargs or (sign < 0 and x is not args[0]):
        return None
    other = _plain(other)
    if not isinstance(other, Tensor):
        return scores if other == 0 else _add(name, (x, scores.q.new_tensor(float(other))), kwargs)
    added = scores.four_axes(other)
    if added is None:
        return None
    added = added.to(torch.promote_types(added.dtype, scores.q.dtype))
    return replace(scores, added=(*scores.added, sign * added))


def _hide(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy scores.masked_fill(hidden, -inf), and weights.masked_fill(hidden, 0) of the same keys"""
    named: dict[str, Any] = dict(zip(("input", "mask", "value"), args, strict=False)) | kwargs
    lazy, value = named["input"], _number(named["value"])
    if not isinstance(lazy, LazyScores) or value is None:
        return None
    x = lazy.expression
    hidden = x.four_axes(named["mask"].bool())
    if hidden is None:
        return None
    if x.weights:
        return x if value == 0 and any(torch.equal(hidden, other) for other in x.hidden) else None
    return replace(x, hidden=(*x.hidden, hidden)) if value <= HIDES else None


def _where(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """torch.where on lazy scores: where(allowed, x, -inf) and where(hidden, -inf, x)"""
    if kwargs or len(args) != 3 or isinstance(args[0], LazyScores):
        return None
    condition, yes, no = args
    if isinstance(no, LazyScores):
        return _hide(name, (no, condition, yes), {})
    return _hide(name, (yes, ~condition.bool(), no), {})


def _limit_below(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy scores limited below: torch.max(x, -inf) and x.clamp(min=-inf) change no key that is seen."""
    lowest = kwargs.get("min") if name == "clamp" else args[1] if len(args) == 2 else None
    value = None if lowest is None else _number(lowest)
    return _scores(args[0]) if value is not None and value <= HIDES and kwargs.keys() <= {"min"} else None


def _cast(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy scores in a different dtype."""
    dtypes = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}
    target = dtypes.get(name) or kwargs.get("dtype") or next(iter(args[1:]), None)
    dtype = target.dtype if isinstance(target, Tensor) else target
    x = args[0].expression
    return replace(x, dtype=dtype) if isinstance(dtype, torch.dtype) else None


def _view(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy scores with other leading axes."""
    x = args[0].expression
    if name in ("contiguous", "clone"):
        return x
    shape = args[1] if len(args) == 2 and isinstance(args[1], tuple | list) else args[1:]
    if kwargs or len(shape) < 3:
        return None
    known = prod(n for n in shape if n != -1)
    *lead, queries, keys = (prod(x.shape) // known if n == -1 and known else n for n in shape)
    batch, head = x.q.shape[:2]
    fits = len(lead) == 1 or (len(lead) in (2, 3) and lead[-1] == head and prod(lead[:-1]) == batch)
    return replace(x, lead=tuple(lead)) if fits and (queries, keys) == x.shape[-2:] else None


def _softmax(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy weights: the softmax of lazy scores."""
    scores = _scores(args[0])
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if scores is None or dim not in (-1, len(scores.shape) - 1):
        return None
    dtype = kwargs.get("dtype") or scores.dtype
    return replace(scores, weights=True, dtype=dtype)


def _dropout(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Expression | None:
    """Lazy weights with dropout."""
    x = args[0].expression
    named = dict(zip(("p", "training"), args[1:], strict=False)) | kwargs
    p = named.get("p", 0.5) if named.get("training", True) else 0.0
    if p == 0:
        return x
    return replace(x, dropout=float(p)) if x.weights and x.dropout == 0 else None


def _weighted_sum(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """p v, where lazy scores become one call of `attend`."""
    index = 1 if name == "einsum" else 0
    p = args[index]
    if not isinstance(p, LazyScores) or not p.expression.weights or isinstance(args[index + 1], LazyScores):
        return None
    product = _product_of(name, args, kwargs)
    weights = p.expression
    v = None if product is None else _autocast(product.b)
    if product is None or v is None or product.a is not p:
        return None
    if v.shape[:-2] != weights.lead:
        return None
    z = weights.attend(v.reshape(*weights.q.shape[:2], *v.shape[-2:]))
    return z if product.order is None else z.permute(product.order)


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "__imul__", "multiply"), _multiply),
    **dict.fromkeys(("div", "__truediv__", "__itruediv__", "true_divide"), _multiply),
    **dict.fromkeys(("add", "__add__", "__radd__", "__iadd__", "sub", "__sub__"), _add),
    "masked_fill": _hide,
    "where": _where,
    **dict.fromkeys(("max", "maximum", "clamp"), _limit_below),
    **dict.fromkeys(("float", "half", "bfloat16", "double", "to", "type", "type_as"), _cast),
    **dict.fromkeys(("view", "reshape", "contiguous", "clone"), _view),
    "softmax": _softmax,
    "dropout": _dropout,
    **dict.fromkeys(("matmul", "bmm", "__matmul__", "einsum"), _weighted_sum),
}
