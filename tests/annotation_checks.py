"""Checks every annotation of the package at each call, shapes included, with jaxtyping and beartype.

jaxtyping's import hook puts `jaxtyping.jaxtyped` on every function of the package. `install` replaces that
decorator for three reasons:

- the hook is process-wide, but only some tests pay for the checks: each call reads `active`, which `conftest.py`
  sets for every test;
- torch.compile and torch.export see the plain function: the check cannot be traced, and a graph break under test
  that users do not have would prove nothing;
- a function that rejects bad input itself raises first. Users get its error, with the hint, so tests must see that
  one. A function that accepts an argument its annotation forbids still fails the check.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import beartype
import jaxtyping
import torch

active = True
"""Whether calls are checked now."""

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
    check: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal check
        if torch.compiler.is_compiling() or not active:
            return fn(*args, **kwargs)
        if check is None:  # made at the first call: most functions are never checked in the fast tier
            check = _jaxtyped(fn, typechecker=_beartype)
        try:
            return check(*args, **kwargs)
        except jaxtyping.TypeCheckError as failure:
            error = None if hasattr(failure, "seen") else _error_of(fn, args, kwargs)
            failure.seen = True  # type: ignore[attr-defined]  # outer functions need not call again
            if error is None:
                raise
        raise error

    return call


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
