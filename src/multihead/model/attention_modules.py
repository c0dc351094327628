"""The modules of a model that look like attention, whether multihead can see inside them or not.

>>> from torch import nn
>>> from multihead.model.attention_modules import AttentionModules
>>> modules = AttentionModules.of(nn.TransformerDecoder(nn.TransformerDecoderLayer(12, 3), 1))
>>> list(modules.innermost)
['layers.0.self_attn', 'layers.0.multihead_attn']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

_WORDS = ("attention", "attn")
_LISTS = (nn.ModuleList, nn.ModuleDict)
_PAIRS = (
    ("q_proj", "k_proj"), ("query", "key"), ("to_q", "to_k"), ("q", "k"), ("wq", "wk"), ("q_lin", "k_lin"),
    ("query_proj", "key_proj"), ("linear_q", "linear_k"), ("q_linear", "k_linear"),
)  # fmt: skip
_PACKED = ("qkv", "qkv_proj", "to_qkv", "wqkv", "c_attn", "query_key_value")


@dataclass(frozen=True)
class AttentionModules:
    """The modules that look like attention, by path, in the order of the module tree.

    Such a module has at least two matrices (projections), and its class or its name is that of attention, or its
    submodules are named like the projections of queries and keys. The elements of a list called attention have its
    name, because the list itself never runs.
    """

    innermost: dict[str, nn.Module]
    wrappers: dict[str, nn.Module]
    """those with another such module inside: BertAttention around BertSelfAttention"""

    @staticmethod
    def of(model: nn.Module) -> AttentionModules:
        """The modules of a model that look like attention, the innermost and those around them."""
        modules = {path.replace("_orig_mod.", ""): module for path, module in model.named_modules()}
        candidates = {path: m for path, m in modules.items() if _looks_like_attention(_name(path, modules), m)}
        outer = {ancestor for path in candidates for ancestor in ancestors(path)}
        innermost = {path: module for path, module in candidates.items() if path not in outer}
        return AttentionModules(innermost, {path: m for path, m in candidates.items() if path in outer})

    def unseen(self, called: Iterable[str], seen: Iterable[str]) -> dict[str, nn.Module]:
        """The called attention modules in which no kernel was intercepted; `seen`: the modules that called one."""
        called, seen = set(called), set(seen)
        candidates = self.innermost | self.wrappers
        computed = {path for path in called if any(is_inside(caller, path) for caller in seen)}
        # What runs inside a module of attention that was seen is part of it.
        computed |= {path for path in called if any(is_inside(path, caller) for caller in seen & candidates.keys())}
        # A wrapper counts if its modules did not run: some models exchange them in the middle of a forward.
        full = {path for path in self.wrappers if any(is_inside(other, path) for other in called - {path})}
        return {path: module for path, module in candidates.items() if path in called - computed - full}


def ancestors(path: str) -> Iterator[str]:
    """The paths of the modules around a module, the nearest first; the model itself is ""."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def is_inside(path: str, outer: str) -> bool:
    """Whether a module is another one, or inside it."""
    return path == outer or not outer or path.startswith(f"{outer}.")


def _name(path: str, modules: Mapping[str, nn.Module]) -> str:
    """The attribute that holds a module, or the lists around it."""
    holder, _, name = path.rpartition(".")
    return _name(holder, modules) if path and isinstance(modules[holder], _LISTS) else name


def _looks_like_attention(name: str, module: nn.Module) -> bool:
    """Whether a module looks like attention, by its name, its class and its projections."""
    kind = type(module).__name__.lower()
    if isinstance(module, _LISTS):
        return False
    named = any(word in kind for word in _WORDS) or name.endswith(_WORDS)
    if not named and not _has_projections(module):
        return False
    return sum(p.ndim >= 2 for p in module.parameters()) >= 2


def _has_projections(module: nn.Module) -> bool:
    names = {name.lower() for name in module._modules}  # pyright: ignore[reportPrivateUsage]  # named_children is slow
    return any(q in names and k in names for q, k in _PAIRS) or any(name in names for name in _PACKED)
