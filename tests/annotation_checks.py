"""Checks every annotation of the package at each call, shapes included, with jaxtyping and beartype.

jaxtyping's import hook puts `jaxtyping.jaxtyped` on every function of the package. `install` replaces that
decorator for three reasons:

- the hook is process-wide, but only some tests pay for the checks: each call reads `active`, which `conftest.py`
  sets for every test;
- torch.compile and torch.export see the plain function: the check cannot be traced, and a graph break under test
  that users do not have would prove nothing;
- a function that rejects bad input itself raises first. Users get its error, with the hint, so tests must see that
  one. A function that accepts an argument its annotation forbids still fails the check.

Two rules keep the checks fast. beartype checks (2 µs per call) inside jaxtyping's scope of axis names: the check of
jaxtyping itself binds the arguments and looks at them twice (20 µs). A function inside a function is a new one at
every call of the outer one, and its check has to be compiled (1 ms): the first `INSTANCES` of them are checked.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, get_args

import beartype
import jaxtyping
import torch
from beartype.roar import BeartypeCallHintViolation

active = True
"""Whether calls are checked now."""

INSTANCES = 20

_instances: Counter[CodeType] = Counter()

_jaxtyped = jaxtyping.jaxtyped
_beartype = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int is a float


def install() -> None:
    """Decorate the package as it is imported. Call this before the first import of it."""
    jaxtyping.jaxtyped = _checked
    jaxtyping.install_import_hook("multihead", "beartype.beartype")


def _checked(fn: Any = None, *, typechecker: Any = None) -> Any:
    if torch.compiler.is_compiling():  # a function defined inside a traced one
        return (lambda inner: inner) if fn is None else fn
    if fn is None:
        return functools.partial(_checked, typechecker=typechecker)
    if inspect.isclass(fn):
        init = vars(fn).get("__init__")
        if dataclasses.is_dataclass(fn) and not hasattr(init, "__wrapped__"):  # otherwise it is written by hand
            fn.__init__ = _checked(fn.__init__)
        return fn
    if "<locals>" in fn.__qualname__:
        _instances[fn.__code__] += active
        if not active or _instances[fn.__code__] > INSTANCES:
            return fn
    check: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal check
        if not active or torch.compiler.is_compiling():
            return fn(*args, **kwargs)
        if check is None:  # made at the first call: most functions are never checked in the fast tier
            check = _check(fn)
        try:
            return check(*args, **kwargs)
        except (jaxtyping.TypeCheckError, BeartypeCallHintViolation) as failure:
            error = None if hasattr(failure, "seen") else _error_of(fn, args, kwargs)
            failure.seen = True  # type: ignore[attr-defined]  # outer functions need not call again
            if error is None:
                raise
        raise error

    return call


def _check(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments and result checked; an axis name has one size in all of them."""
    if inspect.isgeneratorfunction(fn):
        return _jaxtyped(fn, typechecker=_beartype)  # beartype alone checks a generator when it starts, not here
    hints = {name: _hint(annotation, fn.__globals__) for name, annotation in fn.__annotations__.items()}
    twin = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    twin.__kwdefaults__, twin.__annotations__ = fn.__kwdefaults__, hints
    twin.__module__, twin.__qualname__ = fn.__module__, fn.__qualname__
    check = _beartype(twin)
    if not any(map(_has_shape, hints.values())):
        return check
    sizes = _jaxtyped("context")

    def in_scope(*args: Any, **kwargs: Any) -> Any:
        with sizes:
            try:
                return check(*args, **kwargs)
            except BeartypeCallHintViolation as failure:
                if hasattr(failure, "seen"):  # of an inner function
                    raise
                raise jaxtyping.TypeCheckError(str(failure)) from failure

    return in_scope


def _hint(annotation: Any, names: dict[str, Any]) -> Any:
    """The type that an annotation names; Any, as in jaxtyping, if its name is imported for type checkers only."""
    try:
        return eval(annotation, names) if isinstance(annotation, str) else annotation
    except (NameError, AttributeError):
        return Any


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(_has_shape(part) for part in get_args(hint))


def _error_of(fn: Callable[..., Any], args: Any, kwargs: Any) -> Exception | None:
    """The error that the function itself raises for these arguments, if it is one of the package's."""
    from multihead.errors import MultiheadError

    try:
        result = fn(*args, **kwargs)
        if inspect.isgenerator(result):  # of a context manager: it raises when the block is entered
            next(result)
    except MultiheadError as error:
        return error
    except Exception:  # noqa: BLE001  the failed check says it better
        return None
    return None
