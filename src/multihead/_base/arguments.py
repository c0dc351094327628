"""Argument checks: an error that names the argument, instead of one raised deep inside the package.

>>> check_count("tokens", 1.5)
Traceback (most recent call last):
multihead.errors.TypeMismatchError: tokens must be an integer, got 1.5
<BLANKLINE>
hint: pass an int

Only the checks that need torch import it, so computing costs does not.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import re
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Any

from multihead.errors import MultiheadError, SizeError, TypeMismatchError

if TYPE_CHECKING:
    import torch
    from torch import nn

MOST_ITEMS = 2**20
"""The longest Python list that a size may ask for: a larger size is a mistake, and the list would take minutes."""

MOST_SEED = 2**32 - 1
"""The largest seed of numpy."""

MOST_NAMES = 24
"""How many names a hint lists."""

# ---- models and data ------------------------------------------------------------------------------


def check_model(model: object, name: str = "model") -> None:
    """Raise unless `model` is an `nn.Module` whose weights are loaded; `name` is that of the argument."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise TypeMismatchError(
            f"{name} must be a torch.nn.Module, got {describe(model)}",
            hint="model, tokenizer = mh.embedded(), or AutoModel.from_pretrained(...)",
        )
    unloaded = next((name for name, p in model.named_parameters() if p.is_meta), None)
    if unloaded is not None:
        raise MultiheadError(
            f"{type(model).__name__} has no weights: {unloaded} is on the meta device",
            hint="load the weights first",
        )


def check_data(data: object) -> None:
    """Raise unless `data` can be read as documents or batches."""
    if isinstance(data, str):
        raise TypeMismatchError("data must be a list of texts, got one text", hint="pass [text]")
    if not hasattr(data, "__iter__"):
        raise TypeMismatchError(
            f"data must be documents or batches, got {describe(data)}",
            hint="pass a list of texts, of lists of token ids, or of batches for model(**batch)",
        )


def check_tokenizer(tokenizer: object) -> None:
    """Raise unless `tokenizer` is None or callable."""
    if tokenizer is not None and not callable(tokenizer):
        raise TypeMismatchError(
            f"tokenizer must be callable on a text, got {describe(tokenizer)}",
            hint="AutoTokenizer.from_pretrained(name)",
        )


def check_inputs(model: nn.Module, inputs: Mapping[str, Any], *args: Any) -> None:
    """Raise unless `model(*args, **inputs)` fits the signature of its forward."""
    try:
        inspect.signature(model.forward).bind(*args, **inputs)
    except TypeError as error:
        passed = [*([f"{len(args)} unnamed"] if args else []), *inputs]
        takes = [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind != p.VAR_KEYWORD]
        raise TypeMismatchError(
            f"{type(model).__name__} cannot be called with {', '.join(passed) or 'no arguments'}: {error}",
            hint=f"pass the arguments of its forward: {', '.join(takes)}",
        ) from error


# ---- numbers --------------------------------------------------------------------------------------


def check_count(name: str, value: object, *, least: int = 1, most: int | None = None) -> None:
    """Raise unless `value` is an integer of at least `least` and at most `most`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeMismatchError(f"{name} must be an integer, got {_shown(value)}", hint="pass an int")
    if value < least:
        raise SizeError(f"{name} must be at least {least}, got {value}", hint=f"choose {name} >= {least}")
    if most is not None and value > most:
        raise SizeError(f"{name} must be at most {most}, got {value}", hint=f"choose {name} <= {most}")


def check_seed(seed: object) -> None:
    """Raise unless `seed` is an integer that torch and numpy accept, even combined with a batch index."""
    check_count("seed", seed, least=0, most=MOST_SEED)


def check_number(
    name: str, value: object, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> None:
    """Raise unless `value` is a finite number > `above`, >= `least` and <= `most`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeMismatchError(f"{name} must be a number, got {_shown(value)}", hint="pass a float")
    if not abs(value) <= sys.float_info.max:
        raise SizeError(f"{name} must be finite, got {value}", hint="choose a finite number")
    if not value > above:
        raise SizeError(f"{name} must be above {above:g}, got {value}", hint=f"choose {name} > {above:g}")
    if not least <= value <= most:
        bound = f"at least {least:g}" if most == math.inf else f"in [{least:g}, {most:g}]"
        raise SizeError(f"{name} must be {bound}, got {value}", hint=f"choose a number {bound}")


def check_function(name: str, value: object) -> None:
    """Raise unless `value` is None or can be called."""
    if value is not None and not callable(value):
        raise TypeMismatchError(f"{name} must be a function or None, got {describe(value)}", hint=f"{name}=None")


def check_flag(name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeMismatchError(f"{name} must be True or False, got {_shown(value)}", hint="pass a bool")


def integers(name: str, values: object) -> tuple[int, ...]:
    """`values` as integers; raises unless it is a sequence of them."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise TypeMismatchError(
            f"{name} must be a sequence of integers, got {_shown(values)}", hint="pass a list of ints: [0, 3, 4]"
        )
    items = tuple(values)  # read once: a generator is exhausted afterwards
    wrong = [item for item in items if not _is_integer(item)]
    if wrong:
        raise TypeMismatchError(
            f"{name} must be integers, got {_shown(wrong[0])}", hint="pass a list of ints: [0, 3, 4]"
        )
    return tuple(operator.index(item) for item in items)


def _is_integer(value: object) -> bool:
    """Whether a value is an integer: a Python or numpy int, or a tensor of one integer; not True, not 1.0."""
    try:
        operator.index(value)  # pyright: ignore[reportArgumentType]  # that is the question
    except TypeError:
        return False
    return not isinstance(value, bool)


# ---- objects --------------------------------------------------------------------------------------


def check_instance(name: str, value: object, kind: type | UnionType, what: str, *, hint: str) -> None:
    """Raise unless `value` is an instance of `kind`; the message names a class passed instead of an instance."""
    if isinstance(value, type) or not isinstance(value, kind):
        raise TypeMismatchError(f"{name} must be {what}, got {describe(value)}", hint=hint)


def check_path(name: str, value: object, what: str = "the path of a file", *, hint: str) -> None:
    """Raise unless `value` names a file or a folder."""
    check_instance(name, value, str | os.PathLike, what, hint=hint)


def check_list(name: str, value: object, items: str, *, hint: str) -> None:
    """Raise unless `value` is an iterable of `items` and not a text."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeMismatchError(f"{name} must be a list of {items}, got {describe(value)}", hint=hint)


def check_tensor(name: str, value: object) -> None:
    """Raise unless `value` is a tensor."""
    from torch import Tensor

    check_instance(name, value, Tensor, "a tensor", hint=f"torch.as_tensor({name})")


def holds_integers(x: torch.Tensor) -> bool:
    """Whether a tensor has an integer dtype."""
    import torch

    return not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)


def check_device_and_dtype(device: object, dtype: object) -> None:
    """Raise unless parameters can be made on `device` and of `dtype`; None is torch's default."""
    import torch

    if device is not None:
        try:
            torch.empty(0, device=device)  # pyright: ignore[reportArgumentType, reportCallIssue]  # users pass anything
        except (RuntimeError, TypeError, AssertionError, ImportError) as error:
            reason = str(error).partition("\n")[0]
            raise TypeMismatchError(
                f"device={device!r} cannot be used: {reason:.160}", hint="choose 'cpu', or a device of this machine"
            ) from error
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeMismatchError(
            f"dtype must be a floating-point torch.dtype, got {_shown(dtype)}",
            hint="dtype=torch.float32, for example",
        )


@contextmanager
def allocating(**sizes: int) -> Generator[None, None, None]:
    """Name the largest of `sizes` if torch cannot allocate tensors of them.

    An accelerator that is out of memory keeps its own error, which programs look for.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        if not re.search("alloc|overflow|memory", str(error), re.IGNORECASE):
            raise
        name, size = max(sizes.items(), key=lambda item: item[1])
        raise SizeError(
            f"{name}={size} is too large: its tensors cannot be allocated",
            hint="choose smaller sizes",
        ) from error


# ---- values in messages ---------------------------------------------------------------------------


def names_hint(name: object, names: Iterable[str]) -> str:
    """The hint for an unknown name: the similar names, or else the first of all."""
    known = list(names)
    similar = get_close_matches(str(name), known, n=3)
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    more = f", ... ({len(known)})" if len(known) > MOST_NAMES else ""
    return f"choose one of {', '.join(known[:MOST_NAMES])}{more}"


def describe(value: object) -> str:
    """Describe a value of the wrong type in a message: its type, and its contents if they are short."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shape = getattr(value, "shape", None)
    if shape:  # a tensor or an array
        return f"the {type(value).__name__} of {value.dtype} and shape {tuple(shape)}"  # type: ignore[attr-defined]
    return f"the {type(value).__name__} {value!r:.60}"


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | complex) else describe(value)
