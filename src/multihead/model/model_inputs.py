"""The inputs of a run in eval mode: without labels, and with the cache switched off."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from multihead.model.compiled import inner


def plain_inputs(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs for eval mode without labels, so without a loss, unless the model needs them as decoder inputs."""
    keep_labels = is_encoder_decoder(model) and "decoder_input_ids" not in batch
    return _without_cache(model, {name: x for name, x in batch.items() if name != "labels" or keep_labels})


def _without_cache(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs for eval mode with the cache switched off, or a second run would append to its keys and values."""
    if getattr(getattr(model, "config", None), "use_cache", None) is not True:
        return inputs
    return {"use_cache": False} | inputs if takes_argument(model, "use_cache") else inputs


def argument_names(model: nn.Module) -> list[str]:
    """The arguments that the forward of a model names."""
    parameters = inspect.signature(inner(model).forward).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def takes_argument(model: nn.Module, name: str) -> bool:
    """Whether a model can be called with this argument."""
    parameters = inspect.signature(inner(model).forward).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def needed_inputs(model: nn.Module) -> tuple[str, ...]:
    """The arguments that a model reads, its main one first: input_ids if it reads token ids."""
    root = inner(model)
    names, main = argument_names(root), getattr(root, "main_input_name", None)
    if "input_ids" in names:
        main = "input_ids"
    elif not isinstance(main, str):
        main = names[0] if names and not takes_argument(root, "input_ids") else "input_ids"
    return (main, "decoder_input_ids") if is_encoder_decoder(root) and main != "input_ids" else (main,)


def is_encoder_decoder(model: nn.Module) -> bool:
    """Whether the config of a model states that it has an encoder and a decoder."""
    return bool(getattr(getattr(inner(model), "config", None), "is_encoder_decoder", False))


def documents_in(batch: Mapping[str, Any]) -> int:
    """The number of documents in a batch: the length of the first axis of its first tensor."""
    return next((x.shape[0] for x in batch.values() if isinstance(x, Tensor) and x.ndim), 1)


def rows_of(batch: Mapping[str, Any], rows: slice, documents: int) -> dict[str, Any]:
    """Some rows of the tensors in a batch that have a row for each of so many documents."""
    per_document = {n: isinstance(x, Tensor) and x.ndim > 0 and x.shape[0] == documents for n, x in batch.items()}
    return {name: x[rows] if per_document[name] else x for name, x in batch.items()}
