"""Models that torch.compile has wrapped, as a whole or in parts."""

from __future__ import annotations

from typing import cast

from torch import nn


def inner(model: nn.Module) -> nn.Module:
    """The model inside the wrapper of torch.compile; the model itself if it is not compiled."""
    return cast(nn.Module, getattr(model, "_orig_mod", model))


def has_compiled_parts(model: nn.Module) -> bool:
    """Whether the model or a module inside it is compiled."""
    # Not hasattr: nn.Module.__getattr__ is slow for missing attributes, and a model has many modules.
    return any(m._compiled_call_impl is not None or "_orig_mod" in m._modules for m in model.modules())  # pyright: ignore[reportPrivateUsage]
