"""The public names of a module, and lazy names of a package: imported when they are first used, not with it.

A package lists its names three times: in `__all__`, in imports under TYPE_CHECKING for type checkers and editors,
and in the call of `lazy_names` for Python. tests/test_public.py tests that the three agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module


def lazy_names(package: str, *homes: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: where each name lives: "multihead.edit.plan:Plan" is `Plan` of that module, "multihead.layer.mask" is
            the module `mask` itself.
    """
    paths = {path.replace(":", ".").rpartition(".")[2]: path for path in homes}

    def load(name: str) -> object:
        """Import the module of a lazy name; the `__getattr__` of the package."""
        if name not in paths:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module_name, _, attribute = paths[name].partition(":")
        module = import_module(module_name)
        value: object = getattr(module, attribute) if attribute else module
        setattr(sys.modules[package], name, value)  # later look-ups find the name itself
        return value

    return load, listed_names(package)


def listed_names(module: str) -> Callable[[], list[str]]:
    """Return `__dir__` of a module: editors and `dir` show the names of its `__all__`, not its imports."""
    return lambda: sorted(sys.modules[module].__all__)
