"""Attention of Hugging Face models whose query heads share kv heads in a way that their own code cannot say.

Such a module is told another kernel by its config, this one, which gives every query head its copy of keys and
values and then calls the kernel that the model's own config names: eager, sdpa or another. What is cached before
has no copies. The config of the model, and of every other module, stays as it is.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from multihead.edit.physical.steps import kind
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.model.hf_interface import GROUPED as NAME

_FIELD = "_attn_implementation_internal"


class Told:
    """A config as one module sees it: a few fields of its own, all else as in the config behind it."""

    def __init__(self, behind: Any, own: dict[str, Any]) -> None:
        self.__dict__.update(behind=behind, own=own)

    def __getattr__(self, name: str) -> Any:
        if name in ("behind", "own"):  # not yet there while it is copied
            raise AttributeError(name)
        return self.own[name] if name in self.own else getattr(self.behind, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.behind, name, value)


def _tell(module: Any, fields: dict[str, Any]) -> None:
    config = module.config
    told = config if isinstance(config, Told) else Told(config, {})
    told.own.update(fields)
    module.config = told


@kind("config")
def set_config(module: Any, name: str, value: Any) -> bool:
    """module.config.name is this value, for this module only."""
    if isinstance(module.config, Told) and module.config.own.get(name) == value:
        return False
    _tell(module, {name: value})
    return True


def on_interface(module: nn.Module) -> bool:
    """Whether the module's code asks transformers' interface for its kernel."""
    home = sys.modules.get(type(module).__module__)
    return hasattr(home, "ALL_ATTENTION_FUNCTIONS") and hasattr(getattr(module, "config", None), _FIELD)


@kind("kernel")
def share(module: nn.Module, name: str, kv_of_head: Any) -> bool:
    """Query head h reads kv head kv_of_head[h], by our kernel; None: the module's own way again."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, grouped_attention)
    if getattr(module, name, None) == kv_of_head:
        return False
    if not on_interface(module):
        raise MultiheadError(
            f"{type(module).__name__} asks no interface for its kernel, so that it cannot be given ours",
            hint="steps belong to the model that was cut: same class, same transformers",
        )
    _tell(module, {_FIELD: NAME, "_attn_implementation": NAME})
    if kv_of_head is None:
        config: Any = module.config
        for field in (_FIELD, "_attn_implementation"):
            config.own.pop(field)
    setattr(module, name, kv_of_head)
    return True


def grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """softmax(q k[kv_of_head]ᵀ) v[kv_of_head], by the kernel that the config behind names."""
    groups = Groups(tuple(module.kv_of_head), key.shape[1])
    name = module.config.behind._attn_implementation
    kernel = _kernel(module, name)
    if name == "sdpa" and groups.size is not None:  # torch's kernel has even groups itself
        told = SimpleNamespace(num_key_value_groups=groups.size, is_causal=getattr(module, "is_causal", True))
        return kernel(told, query, key, value, attention_mask, **options)
    return kernel(module, query, groups.expand(key), groups.expand(value), attention_mask, **options)


def _kernel(module: nn.Module, name: str) -> Any:
    home: Any = sys.modules[type(module).__module__]
    return home.ALL_ATTENTION_FUNCTIONS.get_interface(name, home.eager_attention_forward)
