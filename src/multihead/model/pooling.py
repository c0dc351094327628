"""One vector per document: how an encoder's token vectors are pooled.

>>> import torch
>>> from multihead.model.pooling import Pooling
>>> x = torch.arange(12.0).reshape(2, 3, 2)
>>> real = torch.tensor([[True, True, False], [True, True, True]])      # the first document has one padded token
>>> Pooling(("mean",))(x, real).tolist(), Pooling(("lasttoken",))(x, real).tolist()
([[1.0, 2.0], [8.0, 9.0]], [[2.0, 3.0], [10.0, 11.0]])
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.model.compiled import inner

ATTRIBUTE = "multihead_pooling"

# Older versions of sentence-transformers write a flag for each mode, and concatenate the modes in this order.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Pooling:
    """The modes of sentence-transformers, by their names; the vectors of several modes are concatenated."""

    modes: tuple[str, ...] = ("mean",)

    def __call__(
        self, x: Float[Tensor, "document *token width"], real: Bool[Tensor, "document token"] | None = None
    ) -> Float[Tensor, "document pooled"]:
        """Pool over the real tokens, by default over all; an output without tokens stays as it is."""
        if x.ndim == 2:
            return x
        x = x.flatten(1, -2)  # images have two axes of tokens
        if real is None or real.shape != x.shape[:2]:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return torch.cat([_pooled(mode, x, real) for mode in self.modes], dim=-1)

    def __str__(self) -> str:
        return " + ".join(self.modes)


def _pooled(
    mode: str, x: Float[Tensor, "document token width"], real: Bool[Tensor, "document token"]
) -> Float[Tensor, "document width"]:
    """One vector per document by a pooling mode: cls, lasttoken, max or mean."""
    documents = torch.arange(len(x), device=x.device)
    if mode == "cls":  # the first real token, also with padding on the left
        return x[documents, real.int().argmax(1)]
    if mode == "lasttoken":
        return x[documents, x.shape[1] - 1 - real.flip(1).int().argmax(1)]
    if mode == "max":
        return x.masked_fill(~real[..., None], -torch.inf).amax(1)
    weight = real.to(x)
    if mode == "weightedmean":  # by position, counted from the first real token
        weight = weight * real.cumsum(1)
    total = (x.masked_fill(~real[..., None], 0.0) * weight[..., None]).sum(1)  # 0 · NaN of padding would be NaN
    size = weight.sum(1, keepdim=True).clamp_min(1.0)
    return total / (size.sqrt() if mode == "mean_sqrt_len_tokens" else size)


def pooling_of(model: nn.Module) -> Pooling:
    """The pooling of the model's sentence-transformers module; the mean over tokens if it has none.

    The module is part of the model, or described in the folder that the model was loaded from. Models that
    `mh.load` returns carry their pooling as an attribute: their folder may have no such file.
    """
    modes: tuple[str, ...] | None = getattr(inner(model), ATTRIBUTE, None)
    if modes is not None:
        return _read({"pooling_mode": modes}, ATTRIBUTE)
    for module in inner(model).modules():
        if type(module).__name__ == "Pooling" and hasattr(module, "get_config_dict"):
            return _read(module.get_config_dict(), type(module).__name__)  # pyright: ignore[reportCallIssue]  # not typed
    config = getattr(inner(model), "config", None)
    name, revision = getattr(config, "_name_or_path", None), getattr(config, "_commit_hash", None)
    if not isinstance(name, str) or not name:
        return Pooling()
    modules = _json(name, "modules.json", revision)
    if not isinstance(modules, list):
        return Pooling()
    for entry in modules:
        if isinstance(entry, dict) and str(entry.get("type")).endswith(".Pooling"):
            file = f"{entry.get('path')}/config.json"
            settings = _json(name, file, revision)
            return _read(settings, f"{name}/{file}") if isinstance(settings, dict) else Pooling()
    return Pooling()


def _read(settings: Mapping[str, Any], where: str) -> Pooling:
    """The pooling modes in the settings of a module, in the form of any version."""
    mode = settings.get("pooling_mode") or [mode for flag, mode in _FLAGS.items() if settings.get(flag)] or "mean"
    modes = (mode,) if isinstance(mode, str) else tuple(mode)
    unknown = next((m for m in modes if m not in _FLAGS.values()), None)
    if unknown is not None:
        raise MultiheadError(
            f"unknown pooling mode {unknown!r} in {where}", hint=f"one of {', '.join(_FLAGS.values())}"
        )
    return Pooling(modes)


def _json(folder: str, file: str, revision: str | None) -> Any:
    """Pooling settings stored with the weights, in a folder or the hub's cache; None if absent."""
    path: Any = Path(folder, file)
    if not Path(folder).is_dir():
        try:
            from huggingface_hub import try_to_load_from_cache  # optional; it only looks, and downloads nothing
            from huggingface_hub.errors import HFValidationError
        except ImportError:
            return None
        try:
            path = try_to_load_from_cache(folder, file, revision=revision)
        except HFValidationError:  # the folder is gone, and its path is not a name on the hub
            return None
    if not isinstance(path, str | Path) or not Path(path).is_file():
        return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MultiheadError(
            f"{path} is not readable: {error}",
            hint="download the model again: this file says how vectors are pooled",
        ) from error
