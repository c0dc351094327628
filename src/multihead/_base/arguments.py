"""Argument checks: an error that names the argument, instead of one raised deep inside the package.

>>> check_count("tokens", 1.5)
Traceback (most recent call last):
multihead.errors.TypeMismatchError: tokens must be an integer, got 1.5
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from multihead.errors import MultiheadError, SizeError, TypeMismatchError

if TYPE_CHECKING:
    from torch import nn


def check_model(model: object) -> None:
    """Raise unless `model` is an `nn.Module` whose weights are loaded."""
    from torch import nn  # lazy: computing costs does not need torch

    if not isinstance(model, nn.Module):
        raise TypeMismatchError(
            f"model must be a torch.nn.Module, got {describe(model)}",
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
        given = [*([f"{len(args)} unnamed"] if args else []), *inputs]
        raise TypeMismatchError(
            f"{type(model).__name__} cannot be called with {', '.join(given) or 'no arguments'}: {error}",
            hint="pass the arguments of the model's forward: {'input_ids': ..., 'attention_mask': ...}",
        ) from error


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeMismatchError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise SizeError(f"{name} must be at least {least}, got {value}")


def describe(value: object) -> str:
    return "None" if value is None else f"the {type(value).__name__} {value!r:.60}"
