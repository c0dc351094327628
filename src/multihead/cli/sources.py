"""Models that lie in no folder yet: a name on the Hugging Face hub, and `module:function`, which makes one.

>>> from multihead.cli.sources import is_function, is_hub_name
>>> is_hub_name("openai-community/gpt2"), is_hub_name("./gpt2"), is_function("my.models:tiny")
(True, False, True)
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

WAIT = 5.0
"""seconds for the hub to answer"""

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.tiktoken", "*.jinja")
_NOT = ("original/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*", "*/checkpoint*/*")
"""the same weights once more, for others"""
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def is_hub_name(name: str) -> bool:
    """org/name, as the hub calls its models."""
    return _HUB.fullmatch(name) is not None and ".." not in name and "--" not in name


def is_function(name: str) -> bool:
    """module:function."""
    return _FUNCTION.fullmatch(name) is not None


# ---- the hub ----------------------------------------------------------------------------------


def from_hub(name: str, *, trust: bool = False) -> Path:
    """The folder of the cache that holds a model of the hub, brought up to date if the hub answers.

    Weights are safetensors only; Python files come along only if they are trusted.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
    except ImportError as missing:
        raise MultiheadError(
            f"there is no folder {name}, and huggingface_hub, which asks the hub for it, is not installed",
            hint="pip install 'multihead[hf]', or MODEL embedded, which needs nothing",
        ) from missing
    if constants.HF_HUB_OFFLINE:
        return _cached(name, "HF_HUB_OFFLINE=1 forbids to ask the hub")
    try:
        revision = hub.HfApi().model_info(name, timeout=WAIT).sha
        found = hub.snapshot_download(
            name,
            revision=revision,
            etag_timeout=WAIT,
            allow_patterns=[*_FILES, *(["*.py"] if trust else [])],
            ignore_patterns=list(_NOT),
        )
    except GatedRepoError as closed:
        raise MultiheadError(
            f"{name} is given only to those who asked for it", hint=f"https://hf.co/{name}, then: hf auth login"
        ) from closed
    except RepositoryNotFoundError as nowhere:
        raise MultiheadError(
            f"there is no folder {name}, and no model of this name on the hub",
            hint="look at the spelling; private models: hf auth login",
        ) from nowhere
    except (OSError, RuntimeError, ValueError, HfHubHTTPError) as failed:
        return _cached(name, f"the hub cannot be reached ({type(failed).__name__})", failed)
    except Exception as failed:  # the errors of the HTTP library, which changes from version to version
        if type(failed).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "requests", "urllib3"):
            raise
        return _cached(name, f"the hub cannot be reached ({type(failed).__name__})", failed)
    return Path(found)


def _cached(name: str, why: str, cause: Exception | None = None) -> Path:
    """What an earlier download has left."""
    from huggingface_hub import try_to_load_from_cache

    for file in ("multihead.json", "config.json"):
        found = try_to_load_from_cache(name, file)
        if isinstance(found, str):
            return Path(found).parent
    raise MultiheadError(
        f"there is no folder {name}, it is not in the cache of the hub, and {why}",
        hint=f"where there is a network: hf download {name}; MODEL embedded and minilm need none",
    ) from cause


# ---- a function -------------------------------------------------------------------------------


def called(name: str) -> tuple[nn.Module, Any]:
    """What `module:function` gives: a model, or a model and its tokenizer. The current folder can be imported."""
    from torch import nn

    path, _, function = name.partition(":")
    with _current_folder():
        made: Any = _imported(path, name)
        for part in function.split("."):
            if not hasattr(made, part):
                raise MultiheadError(f"{path} has no {function}", hint=_near(made, path))
            made = getattr(made, part)
        if not callable(made) or isinstance(made, nn.Module):
            raise MultiheadError(
                f"{name} is {_a(type(made).__name__)}, not a function",
                hint=f"def {function}(): return model, tokenizer",
            )
        try:
            given: Any = made()
        except MultiheadError:
            raise
        except Exception as failed:
            raise MultiheadError(
                f"{name} failed: {type(failed).__name__}: {' '.join(str(failed).split())[:200]}",
                hint="it is called without arguments; MULTIHEAD_TRACEBACK=1 shows where it failed",
            ) from failed
    if isinstance(given, nn.Module):
        return given, None
    if isinstance(given, tuple) and len(cast(tuple[Any, ...], given)) == 2 and isinstance(given[0], nn.Module):
        model, tokenizer = cast(tuple[nn.Module, Any], given)
        if tokenizer is None or callable(tokenizer):
            return model, tokenizer
        raise MultiheadError(
            f"{name} gave {_a(type(tokenizer).__name__)} as tokenizer, which cannot be called with a text",
            hint="tokenizer(text)['input_ids'], as those of transformers; or None",
        )
    what = type(given).__name__
    if isinstance(given, tuple):
        what = f"tuple of {', '.join(type(x).__name__ for x in cast(tuple[Any, ...], given)) or 'nothing'}"
    raise MultiheadError(
        f"{name} gave {_a(what)}, not a model", hint="it returns a torch.nn.Module, or (model, tokenizer)"
    )


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def _imported(path: str, name: str) -> Any:
    try:
        return import_module(path)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (path == missing.name or path.startswith(f"{missing.name}.")):
            raise MultiheadError(
                f"there is no module {missing.name}, which {name} names",
                hint=f"{path.replace('.', '/')}.py in the current folder, or an installed package",
            ) from missing
        raise MultiheadError(f"{path} does not import: {missing}") from missing
    except Exception as failed:
        raise MultiheadError(
            f"{path} does not import: {type(failed).__name__}: {' '.join(str(failed).split())[:200]}",
            hint="MULTIHEAD_TRACEBACK=1 shows where it failed",
        ) from failed


def _near(made: Any, path: str) -> str:
    names = [n for n, x in vars(made).items() if not n.startswith("_") and callable(x)]
    own = [n for n in names if getattr(getattr(made, n), "__module__", path) == path]
    return f"it has {', '.join(own[:5])}" if own else "def tiny(): return model, tokenizer"


@contextmanager
def _current_folder() -> Generator[None]:
    """The folder in which the command runs can be imported, as with `python -m`."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
