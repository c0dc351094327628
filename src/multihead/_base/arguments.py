"""Checks of arguments: a wrong one gives an error that names it, instead of a raw one from deep inside.

>>> check_count("tokens", 1.5)
Traceback (most recent call last):
multihead.errors.TypeMismatchError: tokens must be a whole number, got 1.5
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from multihead.errors import MultiheadError, SizeError, TypeMismatchError

if TYPE_CHECKING:
    from torch import nn


def check_model(model: object) -> None:
    """Raise unless this is a module whose weights hold numbers."""
    from torch import nn  # costs are counted without torch

    if not isinstance(model, nn.Module):
        raise TypeMismatchError(
            f"model must be a torch.nn.Module, got {_described(model)}",
            hint="model, tokenizer = mh.embedded(), or AutoModel.from_pretrained(...)",
        )
    empty = next((name for name, p in model.named_parameters() if p.is_meta), None)
    if empty is not None:
        raise MultiheadError(
            f"{type(model).__name__} has no weights: {empty} is on the meta device", hint="load the weights first"
        )


def check_data(data: object) -> None:
    """Raise unless this can be read as documents or batches."""
    if isinstance(data, str):
        raise TypeMismatchError("data is one text", hint="a corpus is a list of texts: [text]")
    if not hasattr(data, "__iter__"):
        raise TypeMismatchError(
            f"data must be documents or batches, got {_described(data)}",
            hint="a list of texts, of lists of token ids, or of mappings that model(**batch) takes",
        )


def check_tokenizer(tokenizer: object) -> None:
    """Raise unless this is None or can be called."""
    if tokenizer is not None and not callable(tokenizer):
        raise TypeMismatchError(
            f"tokenizer must be an object that you call with a text, got {_described(tokenizer)}",
            hint="AutoTokenizer.from_pretrained(name)",
        )


def check_inputs(model: nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise unless a model can be called with these inputs."""
    try:
        inspect.signature(model.forward).bind(**inputs)
    except TypeError as wrong:
        raise TypeMismatchError(
            f"{type(model).__name__} cannot be called with {', '.join(inputs) or 'nothing'}: {wrong}",
            hint="a batch has the arguments of the model's forward: {'input_ids': ..., 'attention_mask': ...}",
        ) from wrong


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Raise unless a value is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeMismatchError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise SizeError(f"{name} must be at least {least}, got {value}")


def _described(value: object) -> str:
    return "None" if value is None else f"the {type(value).__name__} {value!r:.60}"
