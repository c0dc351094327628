"""Modules that keep their path, parameters and name, and compute a little differently.

`patch` changes the class of a module to one made of a mixin and the class it had: paths, state dict, hooks,
isinstance and mostly the name of the class do not change. The data of the mixin is in `module.multihead_patch`.

>>> import torch
>>> from multihead.edit.surgery.steps import Step, apply
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 4))
>>> _ = apply(model, [Step("patch", "0", "repeat kv", {"sizes": [2, 2], "order": [0, 1, 1]})])
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

from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.layer.dropin import MultiheadAttention, disable_fast_path

CACHES = ("past_key_values", "layer_past", "past_key_value")
"""What modules call the cache among their arguments."""


class PatchedModule(nn.Module):
    """The base of all mixins."""

    multihead_patch: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by the classes that it is made of: its own class cannot be imported."""
        mixin, own = type(self).__bases__
        return _new, (mixin, own), self.__dict__

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a patched module by name, as the forward of its original class takes them."""
        forward = next(base.forward for base in type(self).__mro__ if not issubclass(base, PatchedModule))
        bound = inspect.signature(forward).bind(self, *args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        for parameter in inspect.signature(forward).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name)
        return named


class RepeatKV(PatchedModule):
    """y = (x Wᵀ + b) with its pieces in a different order, some repeated: one kv head for several query heads."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Patched module: repeat pieces of the output of a kv projection, one per query head that reads it."""
        out: Tensor = super().forward(*args, **kwargs)
        data = self.multihead_patch
        parts = out.split(data["sizes"], dim=-1)
        return torch.cat([parts[i] for i in data["order"]], dim=-1)


class SelectHeads(PatchedModule):
    """A norm over all heads together, of which only the remaining heads are used."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Patched module: keep the outputs of some heads."""
        out: Tensor = super().forward(*args, **kwargs)
        data = self.multihead_patch
        parts = out.split(data["size"], dim=-1)
        return torch.cat([parts[i] for i in data["heads"]], dim=-1)


class SharedBias(PatchedModule):
    """T5: the position bias passes through all layers with all its heads; this layer uses some of them."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Patched module: select the heads of a position bias that layers share."""
        named = self._arguments(args, kwargs)
        named.pop("self")
        all_heads: Tensor | None = named["position_bias"]
        if all_heads is not None:
            named["position_bias"] = all_heads[:, self.multihead_patch["heads"]]
        self.__dict__["multihead_whole"] = all_heads
        out = super().forward(**named)
        return out[0], self.__dict__.pop("multihead_whole"), *out[2:]

    def compute_bias(self, *args: Any, **kwargs: Any) -> Tensor:
        all_heads: Tensor = super().compute_bias(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # T5's
        self.__dict__["multihead_whole"] = all_heads
        return all_heads[:, self.multihead_patch["heads"]]


class NoHeads(PatchedModule):
    """Only b_O, in the form that the caller unpacks; the cache grows by one value per token, to have a length.

    `returns` has a letter for everything that the module returns: o the output, z the empty heads (W_O is outside),
    r the output with the residual, n with residual and norm, b the position bias, - None. "=o" is a tensor, not a
    tuple.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Patched module: an attention without heads, which returns the output bias."""
        module: Any = self
        named, data = self._arguments(args, kwargs), self.multihead_patch
        x: Tensor = next(v for v in list(named.values())[1:] if isinstance(v, Tensor))
        if named.get("ask") is not None:
            raise MultiheadError(f"a layer without heads has no {named['ask']!r}", hint="call it without ask")
        self._lengthen(x, named)

        def out() -> Tensor:  # a function: of "z", W_O is not in this module
            bias: Tensor | None = module.get_submodule(data["out"]).bias
            zeros = x.new_zeros(*x.shape[:-1], data["width"])
            return zeros if bias is None else zeros + bias

        outputs: dict[str, Callable[[], Tensor | None]] = {
            "z": lambda: x.new_zeros(*x.shape[:-1], 0),
            "o": out,
            "r": lambda: named["residual"] + out(),
            "n": lambda: module.LayerNorm(x + out()),
            "b": lambda: self._bias(x, named),
            "-": lambda: None,
        }
        returns: str = data["returns"]
        if returns[0] == "=":
            return outputs[returns[1]]()
        return tuple(outputs[letter]() for letter in returns)

    def _lengthen(self, x: Tensor, named: Mapping[str, Any]) -> None:
        """Patched module without heads: count the tokens in the cache, whose length other layers read."""
        cache: Any = next((named[name] for name in CACHES if named.get(name) is not None), None)
        cross = any(named.get(name) is not None for name in ("key_value_states", "encoder_hidden_states"))
        if cache is None or cross:
            return
        cache = getattr(cache, "self_attention_cache", cache)
        index: Any = getattr(self, "layer_idx", getattr(self, "layer_id", None))
        zeros = x.new_zeros(x.shape[0], 1, x.shape[1], 1)
        cache.update(zeros, zeros, index)

    def _bias(self, x: Tensor, named: Mapping[str, Any]) -> Tensor | None:
        """Patched module without heads: the position bias that other layers share."""
        all_heads: Tensor | None = named["position_bias"]
        if all_heads is not None or not getattr(self, "has_relative_attention_bias", False):
            return all_heads
        cache: Any = named["past_key_values"]
        keys = x.shape[1] if cache is None else int(cache.get_seq_length(self.layer_idx))
        module: Any = self
        return module.compute_bias(x.shape[1], keys, device=x.device, past_seen_tokens=keys - x.shape[1])


class TorchAttention(PatchedModule, MultiheadAttention):
    """nn.MultiheadAttention with fewer heads than fill the width of the model; they may share keys and values."""

    def _rows(self) -> list[int]:
        data, size = self.multihead_patch, self.head_dim
        kv = (max(data["kv_of_head"]) + 1 if data["kv_of_head"] else 0) * size
        return [self.num_heads * size, kv, kv]

    def _groups(self) -> Groups:
        data = self.multihead_patch["kv_of_head"]
        return Groups(tuple(data), max(data) + 1 if data else 0)


class TimmAttention(PatchedModule):
    """timm's attention, out = proj(sdpa(qkv(x))), for modules that take their width from x."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Patched module: timm's attention with kv heads shared by query heads."""
        module: Any = self
        data = self.multihead_patch
        parts = module.get_submodule(data["qkv"])(x).split(data["sizes"], dim=-1)
        q, k, v = (part.unflatten(-1, (-1, data["dim"])).transpose(1, 2) for part in parts)
        q, k = (getattr(module, name, nn.Identity())(t) for name, t in (("q_norm", q), ("k_norm", k)))
        groups = Groups(tuple(data["kv_of_head"]), k.shape[1])
        dropout = getattr(module, "attn_drop", None)
        drop = dropout.p if self.training and isinstance(dropout, nn.Dropout) else 0.0
        heads = F.scaled_dot_product_attention(
            q, groups.expand(k), groups.expand(v), attn_mask=attn_mask, dropout_p=drop, is_causal=is_causal
        )
        out: Tensor = module.get_submodule(data["out"])(heads.transpose(1, 2).flatten(2))
        return getattr(module, "proj_drop", nn.Identity())(out)


class SelectBias(PatchedModule):
    """A position bias of multihead's layer, of which the layer uses some heads."""

    def bias(self, *args: Any, **kwargs: Any) -> Tensor:
        all_heads: Tensor = super().bias(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]  # a PositionBias
        return all_heads[:, self.multihead_patch["heads"]]


PATCHES: dict[str, type[PatchedModule]] = {
    "repeat kv": RepeatKV,
    "select heads": SelectHeads,
    "shared bias": SharedBias,
    "no heads": NoHeads,
    "torch": TorchAttention,
    "timm": TimmAttention,
    "select bias": SelectBias,
}


@cache
def _patched_class(mixin: type[PatchedModule], own: type[nn.Module]) -> type[nn.Module]:
    """A patched class with the name of the original, by which code recognises it."""
    suffix = "WithoutHeads" if mixin is NoHeads else ""
    named = {"__module__": own.__module__, "__qualname__": own.__qualname__ + suffix, "__doc__": own.__doc__}
    return type(own.__name__ + suffix, (mixin, own), named)


def _new(mixin: type[PatchedModule], own: type[nn.Module]) -> nn.Module:
    patched = _patched_class(mixin, own)
    return patched.__new__(patched)


def patch(module: nn.Module, name: str, data: Any) -> bool:
    """Patch a module with the mixin of this name and this data; returns False if it has them already."""
    mixin = PATCHES.get(name)
    if mixin is None:
        raise MultiheadError(f"unknown patch {name!r}", hint=f"known are {', '.join(PATCHES)}")
    if isinstance(module, mixin) and module.multihead_patch == data:
        return False
    if "forward" in module.__dict__:
        raise MultiheadError(
            f"this {type(module).__name__} has its own forward, set on the instance, which would hide the patch",
            hint="something hooks into it: accelerate.hooks.remove_hook_from_submodules(model), or leave capture",
        )
    if not isinstance(module, mixin):
        original = type(module)
        if issubclass(original, PatchedModule):  # the new patch replaces the old one: no heads need no bias
            original = next(base for base in original.__mro__ if not issubclass(base, PatchedModule))
        changed: Any = module
        changed.__class__ = _patched_class(mixin, original)
        if isinstance(module, nn.MultiheadAttention) and not issubclass(original, MultiheadAttention):
            disable_fast_path(module)
    module.multihead_patch = data
    return True


def own_copy(parent: nn.Module, name: str) -> nn.Module:
    """Before a patch, replace a child that other modules may use too by a copy with the same parameters."""
    child = getattr(parent, name)
    if isinstance(child, PatchedModule):
        return child
    mine = copy.copy(child)
    mine.__dict__["_parameters"] = dict(child._parameters)
    setattr(parent, name, mine)
    return mine


def is_patched(module: nn.Module, name: str) -> bool:
    return isinstance(module, PATCHES[name])
