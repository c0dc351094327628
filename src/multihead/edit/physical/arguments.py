"""What a module is handed at every call, changed on the way in: per-head numbers, and the cache.

>>> import torch
>>> from multihead.edit.physical.arguments import some_heads
>>> some_heads(torch.arange(6).view(6, 1), {"heads": [0, 2], "of": 3}).flatten().tolist()  # two rows of the batch
[0, 2, 3, 5]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from multihead.edit.physical.steps import kind


@dataclass
class Changes:
    """A forward pre-hook that changes one argument, found by its name."""

    name: str
    told: Any
    how: Callable[[Any, Any], Any]

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self.name in kwargs:
            return args, kwargs | {self.name: self.how(kwargs[self.name], self.told)}
        names = list(inspect.signature(type(module).forward).parameters)[1:]
        at = names.index(self.name) if self.name in names else len(args)
        if at >= len(args):
            return args, kwargs
        return (*args[:at], self.how(args[at], self.told), *args[at + 1 :]), kwargs


def _changing(module: nn.Module, name: str, told: Any, how: Callable[[Any, Any], Any]) -> bool:
    """Change this argument from now on; a change of the same argument that is there is told anew."""
    for hook in module._forward_pre_hooks.values():  # pyright: ignore[reportPrivateUsage]  # there is no other list of them
        if isinstance(hook, Changes) and hook.name == name and hook.how is how:
            if hook.told == told:
                return False
            hook.told = told
            return True
    module.register_forward_pre_hook(Changes(name, told, how), with_kwargs=True)
    return True


@kind("select")
def select(module: nn.Module, name: str, told: Any) -> bool:
    """Of an argument with numbers for all `of` heads, the module gets those of `heads`."""
    return _changing(module, name, told, some_heads)


def some_heads(x: Any, told: Any) -> Any:
    """(batch, head, ...) or (batch · head, ...); what has no axis of heads is left alone."""
    heads, of = told["heads"], told["of"]
    if not isinstance(x, Tensor):
        return x
    if x.ndim == 4:
        return x[:, heads] if x.shape[1] == of else x
    return x.unflatten(0, (-1, of))[:, heads].flatten(0, 1)


@kind("cache")
def cache(module: nn.Module, name: str, kv_of_head: Any) -> bool:
    """The cache in this argument keeps one copy of what the module computes once per query head."""
    return _changing(module, name, kv_of_head, without_copies)


def without_copies(cache: Any, kv_of_head: Any) -> Any:
    return None if cache is None else OneOfEach(cache, kv_of_head)


class OneOfEach:
    """A cache that is given a copy of each kv head for every reader, stores one, and gives copies back."""

    def __init__(self, behind: Any, kv_of_head: list[int]) -> None:
        self.behind, self.readers = behind, kv_of_head
        self.first = [kv_of_head.index(kv) for kv in range(max(kv_of_head) + 1)]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        k, v = self.behind.update(key_states[:, self.first], value_states[:, self.first], *args, **kwargs)
        return k[:, self.readers], v[:, self.readers]

    def __getattr__(self, name: str) -> Any:
        if name == "behind":
            raise AttributeError(name)
        return getattr(self.behind, name)
