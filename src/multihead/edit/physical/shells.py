"""Modules that stay where they are, with their parameters and their name, and compute a little differently.

A module becomes a shell by a change of its class, to one made of a mixin and the class it had: paths, state dict,
hooks and isinstance stay as they were, and mostly the name of the class. What the mixin needs to know is data,
in `module.multihead_shell`.

>>> import torch
>>> from multihead.edit.physical.steps import Step, apply
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 4))
>>> _ = apply(model, [Step("become", "0", "spread", {"sizes": [2, 2], "order": [0, 1, 1]})])
>>> model(torch.ones(1, 3)).shape, type(model[0]).__name__
(torch.Size([1, 6]), 'Linear')
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.edit.physical.steps import kind
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.layer.dropin import MultiheadAttention, disable_fast_path

CACHES = ("past_key_values", "layer_past", "past_key_value")
"""What modules call the cache among their arguments."""


class Shell(nn.Module):
    """What all shells share."""

    multihead_shell: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by what the class was made of: it has a name, but nothing to be imported by."""
        shell, own = type(self).__bases__
        return _made_again, (shell, own), self.__dict__

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, as the module's own forward takes them."""
        own = next(base.forward for base in type(self).__mro__ if not issubclass(base, Shell))
        bound = inspect.signature(own).bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        for parameter in inspect.signature(own).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name)
        return given


class Spread(Shell):
    """y = (x Wᵀ + b) with its pieces in another order, some more than once: one kv head for several readers."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = super().forward(*args, **kwargs)
        told = self.multihead_shell
        parts = out.split(told["sizes"], dim=-1)
        return torch.cat([parts[i] for i in told["order"]], dim=-1)


class SomeColumns(Shell):
    """A norm over all heads together, and then only the heads that stayed."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = super().forward(*args, **kwargs)
        told = self.multihead_shell
        parts = out.split(told["size"], dim=-1)
        return torch.cat([parts[i] for i in told["heads"]], dim=-1)


class SharedBias(Shell):
    """T5: the position bias goes through all layers with all its heads, and this one uses some of them."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = self._given(args, kwargs)
        given.pop("self")
        whole: Tensor | None = given["position_bias"]
        if whole is not None:
            given["position_bias"] = whole[:, self.multihead_shell["heads"]]
        self.__dict__["multihead_whole"] = whole
        out = super().forward(**given)
        return out[0], self.__dict__.pop("multihead_whole"), *out[2:]

    def compute_bias(self, *args: Any, **kwargs: Any) -> Tensor:
        whole: Tensor = super().compute_bias(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # T5's
        self.__dict__["multihead_whole"] = whole
        return whole[:, self.multihead_shell["heads"]]


class NoHeads(Shell):
    """b_O and nothing else, as the caller unpacks it; the cache grows by one number per token, for its length.

    `returns` says what the module returns: o the output, z the empty heads (W_O is outside), r the output with the
    residual, n with residual and norm, b the position bias, - None; one letter after "=" is no tuple.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        own: Any = self
        given, told = self._given(args, kwargs), self.multihead_shell
        x: Tensor = next(v for v in list(given.values())[1:] if isinstance(v, Tensor))
        if given.get("ask") is not None:
            raise MultiheadError(f"{given['ask']!r} was asked of a layer without heads", hint="leave ask out")
        self._lengthen(x, given)
        nothing = x.new_zeros(*x.shape[:-1], 0)

        def out() -> Tensor:
            bias: Tensor | None = own.get_submodule(told["out"]).bias
            zeros = x.new_zeros(*x.shape[:-1], told["width"])
            return zeros if bias is None else zeros + bias

        made: dict[str, Callable[[], Tensor | None]] = {
            "z": lambda: nothing,
            "o": out,
            "r": lambda: given["residual"] + out(),
            "n": lambda: own.LayerNorm(x + out()),
            "b": lambda: self._bias(x, given),
            "-": lambda: None,
        }
        returns: str = told["returns"]
        if returns[0] == "=":
            return made[returns[1]]()
        return tuple(made[letter]() for letter in returns)

    def _lengthen(self, x: Tensor, given: Mapping[str, Any]) -> None:
        cache: Any = next((given[name] for name in CACHES if given.get(name) is not None), None)
        if (
            cache is None
            or given.get("key_value_states") is not None
            or given.get("encoder_hidden_states") is not None
        ):
            return
        cache = getattr(cache, "self_attention_cache", cache)
        number: Any = getattr(self, "layer_idx", getattr(self, "layer_id", None))
        cache.update(x.new_zeros(x.shape[0], 1, x.shape[1], 1), x.new_zeros(x.shape[0], 1, x.shape[1], 1), number)

    def _bias(self, x: Tensor, given: Mapping[str, Any]) -> Tensor | None:
        whole: Tensor | None = given["position_bias"]
        if whole is not None or not getattr(self, "has_relative_attention_bias", False):
            return whole
        cache: Any = given["past_key_values"]
        keys = x.shape[1] if cache is None else int(cache.get_seq_length(self.layer_idx))
        own: Any = self
        return own.compute_bias(x.shape[1], keys, device=x.device, past_seen_tokens=keys - x.shape[1])


class Torch(Shell, MultiheadAttention):
    """nn.MultiheadAttention whose heads are not as wide as the model together, and may share keys and values."""

    def _rows(self) -> list[int]:
        told, size = self.multihead_shell, self.head_dim
        kv = (max(told["kv_of_head"]) + 1 if told["kv_of_head"] else 0) * size
        return [self.num_heads * size, kv, kv]

    def _groups(self) -> Groups:
        told = self.multihead_shell["kv_of_head"]
        return Groups(tuple(told), max(told) + 1 if told else 0)


class Plain(Shell):
    """timm's attention: out = proj(sdpa(qkv(x))), for modules that take their width from x."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        own: Any = self
        told = self.multihead_shell
        parts = own.get_submodule(told["qkv"])(x).split(told["sizes"], dim=-1)
        q, k, v = (part.unflatten(-1, (-1, told["dim"])).transpose(1, 2) for part in parts)
        q, k = (getattr(own, name, nn.Identity())(t) for name, t in (("q_norm", q), ("k_norm", k)))
        groups = Groups(tuple(told["kv_of_head"]), k.shape[1])
        drop = own.attn_drop.p if self.training and isinstance(getattr(own, "attn_drop", None), nn.Dropout) else 0.0
        heads = F.scaled_dot_product_attention(
            q, groups.expand(k), groups.expand(v), attn_mask=attn_mask, dropout_p=drop, is_causal=is_causal
        )
        out: Tensor = own.get_submodule(told["out"])(heads.transpose(1, 2).flatten(2))
        return getattr(own, "proj_drop", nn.Identity())(out)


class SomeHeads(Shell):
    """A position bias of ours, of which one layer uses some heads."""

    def bias(self, *args: Any, **kwargs: Any) -> Tensor:
        whole: Tensor = super().bias(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # a PositionBias has it
        return whole[:, self.multihead_shell["heads"]]


SHELLS: dict[str, type[Shell]] = {
    "spread": Spread,
    "some columns": SomeColumns,
    "shared bias": SharedBias,
    "no heads": NoHeads,
    "torch": Torch,
    "plain": Plain,
    "some heads": SomeHeads,
}


@cache
def _shell_class(shell: type[Shell], own: type[nn.Module]) -> type[nn.Module]:
    """Under the name of the class it had, by which it is known; without heads it is known no more."""
    more = "WithoutHeads" if shell is NoHeads else ""
    named = {"__module__": own.__module__, "__qualname__": own.__qualname__ + more, "__doc__": own.__doc__}
    return type(own.__name__ + more, (shell, own), named)


def _made_again(shell: type[Shell], own: type[nn.Module]) -> nn.Module:
    made = _shell_class(shell, own)
    return made.__new__(made)


@kind("become")
def become(module: nn.Module, name: str, value: Any) -> bool:
    """The module becomes a shell of this name, told this; a shell of the same name is told anew."""
    shell = SHELLS.get(name)
    if shell is None:
        raise MultiheadError(f"there is no shell {name!r}", hint=f"known are {', '.join(SHELLS)}")
    if isinstance(module, shell) and module.multihead_shell == value:
        return False
    if "forward" in module.__dict__:
        raise MultiheadError(
            f"this {type(module).__name__} has a forward of its own beside its class's, which would hide ours",
            hint="something hooks into it: accelerate.hooks.remove_hook_from_submodules(model), or leave capture",
        )
    if not isinstance(module, shell):
        own = type(module)
        if issubclass(own, Shell):  # what it was no longer counts: no heads need no bias
            own = next(base for base in own.__mro__ if not issubclass(base, Shell))
        changed: Any = module
        changed.__class__ = _shell_class(shell, own)
        if isinstance(module, nn.MultiheadAttention) and not issubclass(own, MultiheadAttention):
            disable_fast_path(module)
    module.multihead_shell = value
    return True


@kind("groups")
def set_groups(module: nn.Module, name: str, kv_of_head: Any) -> bool:
    """Our own layer has these heads."""
    ours: Any = module
    groups = Groups(tuple(kv_of_head), max(kv_of_head) + 1 if kv_of_head else 0)
    if ours.groups == groups:
        return False
    ours.groups, ours.num_heads = groups, len(groups.kv_of_head)
    ours.num_kv_heads, ours.kv_of_head = groups.kv_heads, groups.kv_of_head
    return True


@kind("own")
def own_copy(module: nn.Module, name: str, value: Any) -> bool:
    """A part of the module that others may use too becomes its own; parameters stay the same ones."""
    part = getattr(module, name)
    if isinstance(part, Shell):
        return False
    mine = copy.copy(part)
    mine.__dict__["_parameters"] = dict(part._parameters)
    setattr(module, name, mine)
    return True


def is_shell(module: nn.Module, name: str) -> bool:
    return isinstance(module, SHELLS[name])
