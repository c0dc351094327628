"""A model without weights: parameters on the meta device, every buffer and attribute as in a new model.

>>> from transformers import LlamaConfig, LlamaModel
>>> from multihead.store.skeleton import skeleton
>>> config = LlamaConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
>>> model = skeleton(LlamaModel, config)
>>> model.embed_tokens.weight.device, model.rotary_emb.inv_freq
(device(type='meta'), tensor([1.0000, 0.0100]))
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any, cast

from torch import nn

from multihead.errors import MultiheadError

TRANSFORMERS, CODE, OWN = "transformers", "auto_map", "multihead.sources."
"""Where a class comes from: transformers, the Python code in the folder, a module of this package."""


def skeleton(cls: type[nn.Module], config: Any, attention: str | None = None) -> nn.Module:
    """cls(config) in eval mode, without time or memory for its weights. `attention`: eager or sdpa."""
    if attention in ("eager", "sdpa"):
        config._attn_implementation = attention
    try:
        with _parameters_on_meta(), _no_initialization(cls):
            model = cls(config)
    except (ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError, LookupError) as error:
        raise MultiheadError(f"{cls.__name__} cannot be built with this config: {_line(error)}") from error
    return without_weights(model).eval()


def without_weights(model: nn.Module) -> nn.Module:
    """Move all parameters of a model to the meta device; tied ones stay tied."""
    new: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if not p.is_meta:
                meta = new.setdefault(id(p), nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad))
                module.register_parameter(name, meta)
    return model


@contextmanager
def _parameters_on_meta() -> Generator[None]:
    """Parameters that this thread registers move to the meta device at once: at most one is in memory."""
    register_parameter, thread = nn.Module.register_parameter, get_ident()

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and get_ident() == thread and not param.is_meta:
            param = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        register_parameter(self, name, param)

    nn.Module.register_parameter = register
    try:
        yield
    finally:
        nn.Module.register_parameter = register_parameter


def _no_initialization(cls: type[nn.Module]) -> Any:
    """A context in which transformers initializes no weights of a skeleton."""
    if cls.__module__.startswith(OWN):
        return nullcontext()
    from transformers import initialization

    return initialization.no_init_weights()


# ---- which class, which config ----------------------------------------------------------------


def import_transformers() -> Any:
    """transformers, which has the class of a skeleton; raises if it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise MultiheadError(
            "transformers, which has the class of this model, is not installed",
            hint="pip install 'multihead[hf]'",
        ) from error
    return transformers


def origin_of(model: nn.Module) -> str | None:
    """Where `class_of` finds the class of a model: TRANSFORMERS, CODE or a module; None if it cannot."""
    cls, config = type(model), getattr(model, "config", None)
    if config is None or not hasattr(cls, "config_class"):
        return None
    if cls.__module__.startswith(OWN):
        return cls.__module__
    if cls.__module__.split(".")[0] == "transformers":
        return TRANSFORMERS if getattr(import_transformers(), cls.__name__, None) is cls else None
    return None if _code(cls.__name__, getattr(config, "auto_map", None)) is None else CODE


def class_of(name: str, origin: str, config: Mapping[str, Any], folder: Path, trust: bool) -> type[nn.Module]:
    """The class of a saved model's skeleton. The folder's own code is run only if it is trusted."""
    hint = "build a model of the original's sizes and pass it: load(folder, model=...)"
    if origin == CODE:
        code = _code(name, config.get("auto_map"))
        if code is None:
            raise MultiheadError(f"the config in {folder} has no auto_map for {name}", hint=hint)
        if not trust:
            raise MultiheadError(
                f"{name} needs the Python code in {folder} ({code})",
                hint="trust_remote_code=True runs it, if you trust it",
            )
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        try:
            return get_class_from_dynamic_module(code, str(folder), local_files_only=True)
        except (OSError, ImportError, AttributeError, SyntaxError) as error:
            raise MultiheadError(
                f"the Python code of {name} ({code}) does not load: {_line(error)}",
                hint="save(..., source=the original folder) copies it",
            ) from error
    cls: Any = None
    if origin == TRANSFORMERS and name.isidentifier():
        cls = getattr(import_transformers(), name, None)
    elif origin.startswith(OWN) and all(part.isidentifier() for part in origin.split(".")):
        try:
            cls = vars(import_module(origin)).get(name)
        except ImportError as error:
            raise MultiheadError(
                f"{folder} needs {origin}, which this multihead does not have", hint=hint
            ) from error
    if isinstance(cls, type) and issubclass(cls, nn.Module) and hasattr(cls, "config_class"):
        return cls
    raise MultiheadError(f"{origin} has no model {name!r}, which {folder} holds", hint=hint)


def _code(name: str, auto_map: Any) -> str | None:
    """ "file.Class" of the class in the auto_map of a config."""
    references: list[Any] = list(cast(dict[str, Any], auto_map).values()) if isinstance(auto_map, dict) else []
    return next((ref for ref in references if isinstance(ref, str) and ref.rpartition(".")[2] == name), None)


def config_of(cls: type[nn.Module], data: Mapping[str, Any]) -> Any:
    """The config of a model class from JSON data, to build its skeleton."""
    config_class: Any = getattr(cls, "config_class", None)
    if config_class is None:
        raise MultiheadError(f"{cls.__name__} has no config class")
    errors: list[type[Exception]] = [TypeError, ValueError, KeyError, AttributeError]
    if not cls.__module__.startswith(OWN):
        from huggingface_hub.errors import StrictDataclassError

        errors.append(StrictDataclassError)
    try:
        return config_class.from_dict(dict(data))
    except tuple(errors) as error:
        raise MultiheadError(f"the config does not fit {cls.__name__}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
