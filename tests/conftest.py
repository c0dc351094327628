"""What every test runs under: checked types and shapes, one thread, fixed seeds, drawn-case profiles."""

from __future__ import annotations

import os
import signal

# A shell starts what runs in the background with Ctrl-C ignored, and children inherit that: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before torch is imported: the workers of pytest-xdist share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import dataclasses
import functools
import inspect
import random
from collections.abc import Callable
from typing import Any

import beartype
import hypothesis
import jaxtyping
import pytest
import torch

from families_table import pytest_runtest_logreport, pytest_sessionfinish  # noqa: F401  # hooks, found by their names

# ---- annotations are checked ------------------------------------------------------------------
#
# jaxtyping's import hook puts `jaxtyping.jaxtyped` on every function of the package. We stand in for
# it to say two things that the hook cannot:
#
# - torch.compile and torch.export see the plain function: the check is not traceable, and a graph
#   break under test that users do not have would prove nothing;
# - a function that rejects bad input itself is heard first. Its error, with the hint, is the one that
#   people get, so it is the one that tests see. A function that accepts what its annotation forbids
#   still fails the check.
#
# MULTIHEAD_UNCHECKED=1 switches all of it off.

_jaxtyped = jaxtyping.jaxtyped
_beartype = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # an int is a float


def _own_error(fn: Callable[..., Any], args: Any, kwargs: Any) -> Exception | None:
    from multihead.errors import MultiheadError

    try:
        fn(*args, **kwargs)
    except MultiheadError as own:
        return own
    except Exception:  # noqa: BLE001  the failed check says it better
        return None
    return None


def _checked(fn: Any = None, *, typechecker: Any = None) -> Any:
    if torch.compiler.is_compiling():  # a function defined inside a traced one
        return (lambda inner: inner) if fn is None else fn
    if fn is None:
        return functools.partial(_checked, typechecker=typechecker)
    if inspect.isclass(fn):
        init = vars(fn).get("__init__")
        if dataclasses.is_dataclass(fn) and not hasattr(init, "__wrapped__"):  # else it was written by hand
            fn.__init__ = _checked(fn.__init__)
        return fn
    check: Callable[..., Any] = _jaxtyped(fn, typechecker=_beartype)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return fn(*args, **kwargs)
        try:
            return check(*args, **kwargs)
        except jaxtyping.TypeCheckError as wrong:
            own = None if hasattr(wrong, "heard") else _own_error(fn, args, kwargs)
            wrong.heard = True  # type: ignore[attr-defined]  # outer functions need not ask again
            if own is None:
                raise
        raise own

    return call


if not os.environ.get("MULTIHEAD_UNCHECKED"):
    jaxtyping.jaxtyped = _checked
    jaxtyping.install_import_hook("multihead", "beartype.beartype")

# ---- drawn cases ------------------------------------------------------------------------------
#
# A test that wants more or fewer takes a share: @settings(max_examples=settings().max_examples // 10)

_SLOW_IS_FINE = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
}
hypothesis.settings.register_profile("dev", max_examples=25, **_SLOW_IS_FINE)
hypothesis.settings.register_profile("ci", max_examples=300, derandomize=True, print_blob=True, **_SLOW_IS_FINE)
hypothesis.settings.register_profile("nightly", max_examples=10_000, print_blob=True, **_SLOW_IS_FINE)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


# ---- one state for every test -----------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_start() -> Any:
    """Seed, and put back what a test may leave changed."""
    random.seed(0)
    torch.manual_seed(0)
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_default_dtype(dtype)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def fp64() -> Any:
    """Everything made inside the test is float64."""
    torch.set_default_dtype(torch.float64)
