"""A model that a function of the user builds: `module:function`.

>>> from multihead.sources.user_function import is_function
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
from typing import TYPE_CHECKING, Any, cast

from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from torch import nn

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_TRACEBACK = "MULTIHEAD_TRACEBACK=1 prints the traceback"


def is_function(name: str) -> bool:
    """Whether a name has the form module:function."""
    return _FUNCTION.fullmatch(name) is not None


def call_function(name: str) -> tuple[nn.Module, Any]:
    """The model of `module:function` and its tokenizer or None. Modules in the current folder can be imported."""
    from torch import nn  # late: `multihead cost gpt3` asks only whether a name is that of a function

    path, _, function = name.partition(":")
    with _current_folder():
        value: Any = _import(path, name)
        for part in function.split("."):
            if not hasattr(value, part):
                raise MultiheadError(f"{path} has no {function}", hint=_functions_of(value, path))
            value = getattr(value, part)
        if not callable(value) or isinstance(value, nn.Module):
            raise MultiheadError(
                f"{name} must be a function, got {_a(type(value).__name__)}",
                hint=f"def {function}(): return model, tokenizer",
            )
        try:
            result: Any = value()
        except MultiheadError:
            raise
        except Exception as error:
            raise MultiheadError(
                f"{name} failed: {_described(error)}", hint=f"it is called without arguments; {_TRACEBACK}"
            ) from error
    return _checked(result, name)


def _checked(result: Any, name: str) -> tuple[nn.Module, Any]:
    """The model and the tokenizer that a user's function returned; raises for anything else."""
    from torch import nn

    if isinstance(result, nn.Module):
        return result, None
    kind = _a(type(result).__name__)
    if isinstance(result, tuple):
        items = cast(tuple[Any, ...], result)
        if len(items) == 2 and isinstance(items[0], nn.Module):
            model, tokenizer = items
            if tokenizer is None or callable(tokenizer):
                return model, tokenizer
            raise MultiheadError(
                f"{name} must return a callable tokenizer or None, got {_a(type(tokenizer).__name__)}",
                hint="tokenizer(text)['input_ids'], as in transformers",
            )
        kind = f"a tuple of {', '.join(type(x).__name__ for x in items) or 'nothing'}"
    raise MultiheadError(
        f"{name} must return a model, got {kind}", hint="return a torch.nn.Module, or (model, tokenizer)"
    )


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


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def _functions_of(module: Any, path: str) -> str:
    names = [n for n, x in vars(module).items() if not n.startswith("_") and callable(x)]
    defined = [n for n in names if getattr(getattr(module, n), "__module__", path) == path]
    return f"it has {', '.join(defined[:5])}" if defined else "def tiny(): return model, tokenizer"


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
