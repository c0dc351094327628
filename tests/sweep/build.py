"""A tiny random model of any type, and inputs that it runs on."""

from __future__ import annotations

import importlib
import inspect
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from sweep.exceptions import CLASSES, INPUTS, OVERRIDES, UNBUILT
from sweep.inputs import Batch, candidates, parameters, placeholders, with_placeholders
from sweep.tiny_config import SIZES, Sizes, tiny

MOST_PARAMETERS = 60_000_000
PATIENCE = 6.0  # seconds of the processor


class NotBuilt(Exception):
    """No tiny model of this type runs; the message is the reason."""


@dataclass
class Built:
    model_type: str
    cls: type[PreTrainedModel]
    config: Any
    inputs: Batch
    sizes: str

    def model(self, implementation: str | None = None) -> PreTrainedModel:
        """A new model, eval, fp32, always the same weights."""
        return make(self.cls, self.config, implementation)


def make(cls: type[PreTrainedModel], config: Any, implementation: str | None = None) -> PreTrainedModel:
    import copy

    config = copy.deepcopy(config)
    torch.manual_seed(0)
    if implementation is not None:
        config._attn_implementation = implementation
    model = (
        cls._from_config(config)
        if implementation is None
        else cls._from_config(config, attn_implementation=implementation)
    )
    model = model.float().eval()
    draw(model)
    return model


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_QK_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_norm", "key_norm")


@torch.no_grad()
def draw(model: nn.Module, spread: float = 1.5) -> None:
    """Weights of spread 1.5 / √fan-in, tables of spread 1; biases, norms and sinks off their defaults."""
    torch.manual_seed(0)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    convolutions = {id(m.weight) for m in model.modules() if isinstance(m, _CONVOLUTIONS)}
    for name, x in model.named_parameters():
        if not x.is_floating_point():
            continue
        if x.dim() < 2:
            if x.numel() and "A_log" not in name and "dt_" not in name:
                x.add_(torch.randn_like(x) * 0.3)
                x.add_(0.8 if any(norm in name for norm in _QK_NORMS) else 0.0)
        elif id(x) in tables:
            x.normal_(0.0, 1.0)
        elif id(x) in convolutions:
            x.normal_(0.0, (x[0].numel() or 1) ** -0.5)
        elif x.dim() == 2:
            x.normal_(0.0, spread * (min(x.shape) or 1) ** -0.5)
        else:
            x.normal_(0.0, 0.3)


def classes(model_type: str, config: Any) -> list[type[PreTrainedModel]]:
    """The base model of a type, then everything in its files that takes its config, whole models first."""
    if model_type in CLASSES:
        return [getattr(transformers, name) for name in CLASSES[model_type]]
    base = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
    names = [base] if isinstance(base, str) else list(base or ())
    members = [cls for module in _modules(config) for _, cls in inspect.getmembers(module, inspect.isclass)]
    members = [
        c for c in members if issubclass(c, PreTrainedModel) and c.__module__.startswith("transformers.models")
    ]
    named = [c for name in names for c in members if c.__name__ == name]
    named = named or [c for name in names if inspect.isclass(c := getattr(transformers, name, None))]
    rest = [c for c in members if c not in named and _takes(c, type(config)) and _has_forward(c)]
    order = ("Model", "ForCausalLM", "ForConditionalGeneration", "ForMaskedLM", "LMHeadModel", "Encoder", "Decoder")
    rest.sort(key=lambda c: next((i for i, word in enumerate(order) if c.__name__.endswith(word)), len(order)))
    return list(dict.fromkeys([*named, *rest]))


def _modules(config: Any) -> list[Any]:
    """The files of models beside the file of the config."""
    folder = Path(inspect.getfile(type(config))).parent
    package = type(config).__module__.rpartition(".")[0]
    modules: list[Any] = []
    for file in sorted(folder.glob("*.py")):
        if file.name.startswith(("modeling_", "vision", "perceiver")):
            try:
                modules.append(importlib.import_module(f"{package}.{file.stem}"))
            except ImportError as error:
                raise NotBuilt(f"needs the package {error.name}") from error
    return modules


def _takes(cls: type, config: type) -> bool:
    """Whether a model is made from this config: by its annotations."""
    hint = inspect.signature(cls.__init__).parameters.get("config")
    named = [
        getattr(cls, "config_class", None),
        vars(cls).get("__annotations__", {}).get("config"),
        hint and hint.annotation,
    ]
    return any(x is config or x == config.__name__ for x in named)


def _has_forward(cls: type) -> bool:
    return any("forward" in vars(c) for c in cls.__mro__ if c.__module__.startswith("transformers.models"))


def build(model_type: str) -> Built:
    """The first sizes, class and inputs with which a tiny model of this type runs. Raises NotBuilt."""
    if model_type in UNBUILT:
        raise NotBuilt(UNBUILT[model_type])
    reasons: list[str] = []
    shrunk: list[tuple[Sizes, Any]] = []
    for sizes in SIZES:
        try:
            shrunk.append((sizes, tiny(model_type, sizes, OVERRIDES.get(model_type))))
        except Exception as error:
            reasons.append(f"{sizes.name}: config: {_line(error)}")
    if not shrunk:
        raise NotBuilt(" | ".join(reasons))
    start = time.process_time()
    for cls in classes(model_type, shrunk[0][1])[:4]:
        for sizes, config in shrunk:
            if time.process_time() - start > PATIENCE:
                break
            try:
                with torch.device("meta"):
                    count = sum(p.numel() for p in cls._from_config(config).parameters())
            except Exception:
                count = 0
            if count > MOST_PARAMETERS:
                reasons.append(f"{cls.__name__} has {count / 1e6:.0f} million parameters")
                continue
            try:
                model = make(cls, config)
            except Exception as error:
                reasons.append(f"{sizes.name}: {cls.__name__}: {_line(error)}")
                continue
            inputs = runs_on(model, config, model_type, reasons)
            if inputs is not None:
                return Built(model_type, cls, config, inputs, sizes.name)
    raise NotBuilt(" | ".join(dict.fromkeys(reasons)) or "no class takes its config")


_COUNT = re.compile(r"features:? *\(?(\d+)")


def runs_on(model: nn.Module, config: Any, model_type: str, reasons: list[str]) -> Batch | None:
    """The first candidate that the model runs on with finite numbers."""
    special = INPUTS.get(model_type)
    names = parameters(model)
    tries = [special(config)] if special else candidates(model, config)
    for batch in tries:
        queue = [batch]
        for attempt in queue:
            try:
                with torch.no_grad():
                    output = model(**attempt)
            except Exception as error:
                message = _line(error)
                match = _COUNT.search(str(error))
                if match and len(queue) < 4 and "input_ids" in attempt:
                    queue += [
                        with_placeholders(batch, token, int(match[1]), names) for token in placeholders(config)[:3]
                    ]
                reasons.append(f"{type(model).__name__}({', '.join(attempt)}): {message}")
                continue
            numbers = tensors(output)
            if not numbers:
                reasons.append(f"{type(model).__name__}: no tensors in the output")
                continue
            if not all(bool(torch.isfinite(x).all()) or bool((x < -1e30).any()) for x in numbers):
                reasons.append(f"{type(model).__name__}: output is not finite")
                continue
            return attempt
    return None


def tensors(output: Any) -> list[Tensor]:
    """Every floating tensor of an output, in order; caches are left out."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() and output.numel() else []
    if isinstance(output, dict):
        return [
            x
            for key, value in output.items()
            if "past_key" not in key and "cache" not in key
            for x in tensors(value)
        ]
    if isinstance(output, list | tuple):
        return [x for value in output for x in tensors(value)]
    return []


def _line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines[-1] if lines else '')[:160]}"
