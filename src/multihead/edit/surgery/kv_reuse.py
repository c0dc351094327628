"""Query heads that share keys and values in modules whose own code does not support it.

A module that asks transformers' interface for its kernel gets this one by an override of its config: it repeats
keys and values for the query heads that read them, and calls the kernel that the model's config names. The cache
holds no copies. Modules that repeat keys and values themselves get a cache that stores each kv head once. The
config of the model and of all other modules does not change.

>>> import torch
>>> from multihead.edit.surgery.kv_reuse import selected_heads
>>> selected_heads(torch.arange(6).view(6, 1), {"heads": [0, 2], "of": 3}).flatten().tolist()  # two rows
[0, 2, 3, 5]
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.layer.attention import MultiHeadAttention
from multihead.model.hf_interface import GROUPED as KERNEL

_FIELD = "_attn_implementation_internal"


# ---- the config of one module ---------------------------------------------------------------------


class ConfigOverride:
    """A config as one module sees it: a few fields are overridden, all others are those of the model's config."""

    def __init__(self, base: Any, fields: dict[str, Any]) -> None:
        self.__dict__.update(base=base, fields=fields)

    def __getattr__(self, name: str) -> Any:
        if name in ("base", "fields"):  # not set yet while it is copied
            raise AttributeError(name)
        return self.fields[name] if name in self.fields else getattr(self.base, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.base, name, value)


def override_config(module: Any, fields: dict[str, Any]) -> bool:
    """Give module.config these fields, for this module only; returns False if it has them already."""
    config = module.config
    override = config if isinstance(config, ConfigOverride) else ConfigOverride(config, {})
    if all(name in override.fields and override.fields[name] == value for name, value in fields.items()):
        return False
    override.fields.update(fields)
    module.config = override
    return True


# ---- the kernel -----------------------------------------------------------------------------------


def on_interface(module: nn.Module) -> bool:
    """Whether the module's code takes its kernel from transformers' attention interface."""
    home = sys.modules.get(type(module).__module__)
    return hasattr(home, "ALL_ATTENTION_FUNCTIONS") and hasattr(getattr(module, "config", None), _FIELD)


def set_kv_of_head(module: Any, kv_of_head: list[int]) -> bool:
    """Let query head h read kv head kv_of_head[h]: by an attribute of our own layer, else by our kernel."""
    groups = Groups(tuple(kv_of_head), max(kv_of_head) + 1 if kv_of_head else 0)
    if isinstance(module, MultiHeadAttention):
        if module.groups == groups:
            return False
        module.groups, module.num_heads = groups, len(groups.kv_of_head)
        module.num_kv_heads, module.kv_of_head = groups.kv_heads, groups.kv_of_head
        return True
    from transformers import AttentionInterface  # optional dependency

    AttentionInterface.register(KERNEL, _grouped_attention)
    if getattr(module, "kv_of_head", None) == kv_of_head:
        return False
    if not on_interface(module):
        raise MultiheadError(
            f"{type(module).__name__} does not take its kernel from transformers' attention interface, so it "
            "cannot use multihead's",
            hint="steps belong to the model that was cut: same class, same transformers",
        )
    override_config(module, {_FIELD: KERNEL, "_attn_implementation": KERNEL})
    module.kv_of_head = kv_of_head
    return True


def _grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """softmax(q k[kv_of_head]ᵀ) v[kv_of_head] of shared kv heads, by the kernel that the model's config names."""
    groups = Groups(tuple(module.kv_of_head), key.shape[1])
    name = module.config.base._attn_implementation
    home: Any = sys.modules[type(module).__module__]
    kernel = home.ALL_ATTENTION_FUNCTIONS.get_interface(name, home.eager_attention_forward)
    if name == "sdpa" and groups.size is not None:  # torch's kernel has even groups itself
        sizes = SimpleNamespace(num_key_value_groups=groups.size, is_causal=getattr(module, "is_causal", True))
        return kernel(sizes, query, key, value, attention_mask, **options)
    return kernel(module, query, groups.expand(key), groups.expand(value), attention_mask, **options)


# ---- arguments of a module ------------------------------------------------------------------------


@dataclass
class ArgumentHook:
    """A forward pre-hook that changes one argument: it selects heads, or wraps the cache."""

    name: str
    change: dict[str, Any]
    """{"select": {"heads": ..., "of": ...}} or {"dedup": kv_of_head}"""

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.name in kwargs:
            return args, kwargs | {self.name: self._changed(kwargs[self.name])}
        names = list(inspect.signature(type(module).forward).parameters)[1:]
        index = names.index(self.name) if self.name in names else len(args)
        if index >= len(args):
            return args, kwargs
        return (*args[:index], self._changed(args[index]), *args[index + 1 :]), kwargs

    def _changed(self, value: Any) -> Any:
        if "select" in self.change:
            return selected_heads(value, self.change["select"])
        return None if value is None else DedupKVCache(value, self.change["dedup"])


def set_argument(module: nn.Module, name: str, change: dict[str, Any]) -> bool:
    """Change this argument of a module at every call; replaces a change of the same kind."""
    for hook in module._forward_pre_hooks.values():  # pyright: ignore[reportPrivateUsage]  # there is no other list of them
        if isinstance(hook, ArgumentHook) and hook.name == name and hook.change.keys() == change.keys():
            if hook.change == change:
                return False
            hook.change = change
            return True
    module.register_forward_pre_hook(ArgumentHook(name, change), with_kwargs=True)
    return True


def selected_heads(x: Any, selection: Any) -> Any:
    """The selected heads of (batch, head, ...) or (batch · head, ...); x itself if it has no axis of `of` heads."""
    heads, of = selection["heads"], selection["of"]
    if not isinstance(x, Tensor):
        return x
    if x.ndim == 4:
        return x[:, heads] if x.shape[1] == of else x
    return x.unflatten(0, (-1, of))[:, heads].flatten(0, 1)


class DedupKVCache:
    """A cache for a module that passes a copy of each kv head per query head: it stores one and returns copies."""

    def __init__(self, base: Any, kv_of_head: list[int]) -> None:
        self.base, self.kv_of_head = base, kv_of_head
        self.first = [kv_of_head.index(kv) for kv in range(max(kv_of_head) + 1)]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        k, v = self.base.update(key_states[:, self.first], value_states[:, self.first], *args, **kwargs)
        return k[:, self.kv_of_head], v[:, self.kv_of_head]

    def __getattr__(self, name: str) -> Any:
        if name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)
