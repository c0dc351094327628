"""A model that a function of the user builds, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from torch import nn

from multihead._base.user_function import call_function, with_article
from multihead.corpus.accumulator import Inputs
from multihead.corpus.read_inputs import is_inputs
from multihead.errors import MultiheadError


class UserModel(NamedTuple):
    """What `module:function` returned."""

    model: nn.Module
    tokenizer: Any = None
    inputs: list[Inputs] | None = None
    """batches to measure the model on"""


def user_model(name: str) -> UserModel:
    """The model of `module:function`, which returns it alone, with a tokenizer or None, or with batches."""
    result: Any = call_function(name, "model, tokenizer")
    if isinstance(result, nn.Module):
        return UserModel(result)
    kind = with_article(type(result).__name__)
    if isinstance(result, tuple):
        items = cast(tuple[Any, ...], result)
        if len(items) == 2 and isinstance(items[0], nn.Module):
            model, second = items
            if is_inputs(second):
                return UserModel(model, None, [second] if isinstance(second, Mapping) else list(second))
            if second is None or callable(second):
                return UserModel(model, second)
            raise MultiheadError(
                f"{name} must return a callable tokenizer, batches or None, got "
                f"{with_article(type(second).__name__)}",
                hint="tokenizer(text)['input_ids'], as in transformers; a batch is a dict of tensors",
            )
        kind = f"a tuple of {', '.join(type(x).__name__ for x in items) or 'nothing'}"
    raise MultiheadError(
        f"{name} must return a model, got {kind}", hint="return a torch.nn.Module, or (model, tokenizer)"
    )
