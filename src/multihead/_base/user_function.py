"""What a function of the user returns, which is named `module:function`: a model, or inputs of one.

>>> from multihead._base.user_function import is_function
>>> is_function("my.models:tiny"), is_function("my/models.py")
(True, False)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from multihead.errors import MultiheadError

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_TRACEBACK = "MULTIHEAD_TRACEBACK=1 prints the traceback"


def is_function(name: str) -> bool:
    """Whether a name has the form module:function."""
    return _FUNCTION.fullmatch(name) is not None


def call_function(name: str, returns: str) -> Any:
    """The result of `module:function`. Modules in the current folder can be imported.

    `returns`: an example of what the function returns, for hints.
    """
    from torch import nn  # late: `multihead cost gpt3` asks only whether a name is that of a function

    path, _, function = name.partition(":")
    with _current_folder():
        value: Any = _import(path, name)
        for part in function.split("."):
            if not hasattr(value, part):
                raise MultiheadError(f"{path} has no {function}", hint=_functions_of(value, path, returns))
            value = getattr(value, part)
        if not callable(value) or isinstance(value, nn.Module):
            raise MultiheadError(
                f"{name} must be a function, got {with_article(type(value).__name__)}",
                hint=f"def {function}(): return {returns}",
            )
        try:
            return value()
        except MultiheadError:
            raise
        except Exception as error:
            raise MultiheadError(
                f"{name} failed: {_described(error)}", hint=f"it is called without arguments; {_TRACEBACK}"
            ) from error


def with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def _import(path: str, name: str) -> Any:
    """Import the module of a user's function."""
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        if error.name is not None and (path == error.name or path.startswith(f"{error.name}.")):
            raise MultiheadError(
                f"there is no module {error.name}, which {name} names",
                hint=f"write {path.replace('.', '/')}.py in the current folder, or install a package",
            ) from error
        raise MultiheadError(f"{path} does not import: {error}") from error
    except Exception as error:
        raise MultiheadError(f"{path} does not import: {_described(error)}", hint=_TRACEBACK) from error


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _functions_of(module: Any, path: str, returns: str) -> str:
    names = [n for n, x in vars(module).items() if not n.startswith("_") and callable(x)]
    defined = [n for n in names if getattr(getattr(module, n), "__module__", path) == path]
    return f"it has {', '.join(defined[:5])}" if defined else f"def tiny(): return {returns}"


@contextmanager
def _current_folder() -> Generator[None]:
    """Make modules in the current folder importable for a user's function, as `python -m` does."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
