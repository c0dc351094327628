"""A model without numbers: parameters on the meta device, every buffer and attribute as a new model has it.

>>> from transformers import LlamaConfig, LlamaModel
>>> from multihead.store.skeleton import skeleton
>>> config = LlamaConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
>>> model = skeleton(LlamaModel, config)
>>> model.embed_tokens.weight.device, model.rotary_emb.inv_freq
(device(type='meta'), tensor([1.0000, 0.0100]))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any, cast

from torch import nn

from multihead.errors import MultiheadError

OWN = {"EmbeddedModel": "multihead.sources.embedded.network"}
"""Models that come with the package: the name of the class, and where it is."""


def own_class(name: str) -> type[nn.Module] | None:
    """A class of ours, for which transformers is not needed."""
    return getattr(import_module(OWN[name]), name) if name in OWN else None


def skeleton(cls: type[nn.Module], config: Any) -> nn.Module:
    """cls(config) in eval mode, at no cost of memory or time for its weights."""
    try:
        with _no_weights(), _not_initialised(cls):
            model = cls(config)
    except (ValueError, TypeError, RuntimeError, ArithmeticError, AttributeError, LookupError) as wrong:
        said = " ".join(str(wrong).split())[:200]
        raise MultiheadError(f"{cls.__name__} cannot be built with this config: {said}") from wrong
    return emptied(model).eval()


def emptied(model: nn.Module) -> nn.Module:
    """All parameters of a model on the meta device; tied ones stay tied."""
    new: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if not p.is_meta:
                own = new.setdefault(id(p), nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad))
                module.register_parameter(name, own)
    return model


@contextmanager
def _no_weights() -> Generator[None]:
    """Parameters that this thread gives to modules go to the meta device at once, so that none is ever held."""
    real, here = nn.Module.register_parameter, get_ident()

    def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and get_ident() == here and not param.is_meta:
            param = nn.Parameter(param.detach().to("meta"), requires_grad=param.requires_grad)
        real(self, name, param)

    nn.Module.register_parameter = register
    try:
        yield
    finally:
        nn.Module.register_parameter = real


def _not_initialised(cls: type[nn.Module]) -> Any:
    if own_class(cls.__name__) is cls:
        return nullcontext()
    from transformers import initialization

    return initialization.no_init_weights()


# ---- which class, which config ----------------------------------------------------------------


def import_transformers() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a folder needs no hub, and would wait for one
    try:
        import transformers
    except ImportError as missing:
        raise MultiheadError(
            "transformers, which this model is made of, is not installed", hint="pip install 'multihead[hf]'"
        ) from missing
    return transformers


def is_known(model: nn.Module) -> bool:
    """Whether `class_of` will find the class of a model, so that it can be built again from its config alone."""
    name, config = type(model).__name__, getattr(model, "config", None)
    if config is None or not hasattr(type(model), "config_class"):
        return False
    if own_class(name) is type(model):
        return True
    if type(model).__module__.split(".")[0] == "transformers":
        return getattr(import_transformers(), name, None) is type(model)
    return name in {str(ref).rpartition(".")[2] for ref in (getattr(config, "auto_map", None) or {}).values()}


def class_of(name: str, config: Mapping[str, Any], folder: Path, trust: bool) -> type[nn.Module]:
    """The class of a saved model: ours, one of transformers, or of the folder's own code if that is trusted."""
    if (own := own_class(name)) is not None:
        return own
    transformers = import_transformers()
    found = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
        return cast(type[nn.Module], found)
    auto_map = cast(dict[str, Any], config.get("auto_map") or {})
    code = next((ref for ref in auto_map.values() if isinstance(ref, str) and ref.split(".")[-1] == name), None)
    if code is None:
        raise MultiheadError(
            f"transformers {transformers.__version__} has no model {name!r}, which {folder} holds",
            hint="build one of the original's sizes and pass it: load(folder, model=...)",
        )
    if not trust:
        raise MultiheadError(
            f"{name} in {folder} is made by Python code of the folder ({code})",
            hint="trust_remote_code=True runs it, if you trust it",
        )
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    return get_class_from_dynamic_module(code, str(folder))


def config_of(cls: type[nn.Module], data: Mapping[str, Any], place: str) -> Any:
    """The config of a class, made of JSON."""
    kind: Any = getattr(cls, "config_class", None)
    if kind is None:
        raise MultiheadError(f"{cls.__name__} has no config to be built from")
    wrongs: list[type[Exception]] = [TypeError, ValueError, KeyError, AttributeError]
    if own_class(cls.__name__) is not cls:
        from huggingface_hub.errors import StrictDataclassError

        wrongs.append(StrictDataclassError)
    make: Callable[[dict[str, Any]], Any] = kind.from_dict
    try:
        return make(dict(data))
    except tuple(wrongs) as wrong:
        said = " ".join(str(wrong).split())[:300]
        raise MultiheadError(f"{place} is no config of {cls.__name__}: {said}") from wrong
