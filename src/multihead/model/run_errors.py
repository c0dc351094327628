"""Explain an error that a model raised in its forward: which input is missing or wrong, which id does not exist."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from multihead.errors import ModelRunError

EXPLAINED = (AttributeError, TypeError, ValueError, LookupError, AssertionError, RuntimeError)
"""Errors that a model raises for inputs that it cannot use."""
_INPUTS = (
    "pixel", "image", "video", "visual", "audio", "speech", "input", "feature", "feats", "bbox", "boxes", "patches",
    "points", "values",
)  # fmt: skip
_NO_MEMORY = ("out of memory", "can't allocate memory")
_NO_INPUTS = ("embeds", "mask", "output_", "return_", "position", "label", "key_values")


def explained(error: Exception, model: nn.Module, arguments: Mapping[str, Any]) -> ModelRunError:
    """The error of a run, with the faulty argument named if it can be identified."""
    name = type(model).__name__
    wrong_id = _unknown_id(model, arguments) if isinstance(error, IndexError | RuntimeError) else None
    if wrong_id is not None:
        argument, token, size = wrong_id
        return ModelRunError(
            f"{argument} has the token id {token}, {name} has embeddings for 0 to {size - 1}",
            hint="use the model's own tokenizer",
        )
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if any(words in reason.lower() for words in _NO_MEMORY):
        return ModelRunError(
            f"{name} ran out of memory on {_described(arguments)} ({reason})",
            hint="use smaller batches (batch_size) or shorter documents (max_tokens)",
        )
    absent = _absent_inputs(model, arguments)
    missing = _missing_inputs(error, model, absent)
    if missing:
        passed = ", ".join(arguments) or "nothing"
        return ModelRunError(
            f"{name} cannot run without {' or '.join(missing)}; it got {passed} ({reason})",
            hint=f"pass batches with all inputs of the model: {{'{missing[0]}': ..., ...}}",
        )
    also = f" It also takes {', '.join(absent)}." if absent else ""
    return ModelRunError(
        f"{name} does not run on {_described(arguments)} ({reason})",
        hint=f"does model(**inputs) run outside of multihead?{also}",
    )


def _described(arguments: Mapping[str, Any]) -> str:
    """The arguments of a failed run by name, tensors with shapes, without our switch of the cache."""
    named = {n: x for n, x in arguments.items() if n != "use_cache"}
    parts = [f"{n} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else n for n, x in named.items()]
    return ", ".join(parts) or "no arguments"


def _absent_inputs(model: nn.Module, arguments: Mapping[str, Any]) -> list[str]:
    """Inputs that forward takes and did not get."""
    return [n for n in inspect.signature(model.forward).parameters if arguments.get(n) is None and _is_input(n)]


def _missing_inputs(error: Exception, model: nn.Module, absent: list[str]) -> list[str]:
    """The absent inputs of a failed run that are None where the error was raised, else all."""
    for frame in _frames(error):
        unset = [n for n in absent if n in frame.f_locals and frame.f_locals[n] is None]
        if unset and frame.f_locals.get("self") is not model:
            return unset
    return [] if isinstance(error, RuntimeError) else absent  # wrong sizes do not point to a missing input


def _is_input(name: str) -> bool:
    return any(word in name for word in _INPUTS) and not any(word in name for word in _NO_INPUTS)


def _frames(error: Exception) -> Iterator[FrameType]:
    """The frames that the error of a run went through, the innermost first."""
    frames: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return reversed(frames)


def _unknown_id(model: nn.Module, arguments: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """The id that an error is about, without embedding: (argument, token id, size of the vocabulary)."""
    table = _embedding(model)
    if table is None:
        return None
    for name, ids in arguments.items():
        if (
            isinstance(ids, Tensor)
            and ids.dtype in (torch.int64, torch.int32)
            and name.endswith(("ids", "idx", "tokens"))
        ):
            unknown = ids[(ids < 0) | (ids >= table.num_embeddings)]
            if unknown.numel() and "position" not in name and "type" not in name:
                return name, int(unknown[0]), table.num_embeddings
    return None


def _embedding(model: nn.Module) -> nn.Embedding | None:
    """The embedding of a model whose run failed, to explain ids that it lacks."""
    try:
        table: object = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError, TypeError):
        table = next((m for m in model.modules() if isinstance(m, nn.Embedding)), None)
    return table if isinstance(table, nn.Embedding) else None
