"""Follow the input sequences of attention modules to the kernel, to tell self-attention from cross-attention.

A module of attention, and the layer around it, take one sequence (x), or two (x and the encoder's output). Inside
their forwards every operation passes on the sequences of its inputs, and attention passes on that of its queries:
its output has a row per query. At the kernel, values and queries that have a sequence in common are self-attention.
Attribute names play no part.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from multihead._base.nested_tensors import tensors_in
from multihead.layer.attention import MultiHeadAttention
from multihead.model.attention_modules import AttentionModules, ancestors

EXACT = (nn.MultiheadAttention, MultiHeadAttention)
"""Modules that state whether their keys come from a different sequence."""


@dataclass
class _Running:
    """A module in its forward, and the bits of the tensors that it was called with: one bit per tensor."""

    module: nn.Module
    bits: int = 0


@dataclass
class Sequences:
    """The modules around attention that are running, and the sequences of the tensors inside them."""

    active: Callable[[], bool]
    """whether calls of modules count"""
    called: set[str] = field(default_factory=set[str])
    """paths of the modules that look like attention and were called"""
    running: list[_Running] = field(default_factory=list[_Running])
    """the outermost first"""
    _of: dict[int, tuple[weakref.ref[Tensor], int]] = field(default_factory=dict)
    """id of a tensor → the tensor, and the bits of its sequences"""
    _bits: int = 0
    _hooks: list[RemovableHandle] = field(default_factory=list[RemovableHandle])

    def watch(self, model: nn.Module, attentions: AttentionModules) -> None:
        """Start to follow sequences: put hooks on modules that look like attention, and on their layers."""
        modules = {path.replace("_orig_mod.", ""): module for path, module in model.named_modules()}
        for path, module in (attentions.wrappers | attentions.innermost).items():
            self._hooks.append(module.register_forward_pre_hook(partial(self._note_call, path)))
        inexact = {path: module for path, module in attentions.innermost.items() if not isinstance(module, EXACT)}
        around = {path: modules[path] for attention in inexact if (path := _layer_around(attention)) in modules}
        for module in (around | inexact).values():
            self._hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._leave, always_call=True))

    def begin(self) -> None:
        """Start to follow sequences in a forward of the model."""
        self.running.clear()
        self._of.clear()
        self._bits = 0

    def close(self) -> None:
        """Stop following sequences: remove all hooks from the model."""
        for hook in self._hooks:
            hook.remove()
        self.begin()

    def follow(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """`func(*args, **kwargs)` has returned `out`, which belongs to the sequences of the arguments."""
        bits = 0
        for x in tensors_in((*args, *kwargs.values())):
            bits |= self._bits_of(x)
        if not bits:
            return
        for x in tensors_in(out):
            self._add(x, bits)
        if func is Tensor.__setitem__ or getattr(func, "__name__", "").endswith("_"):  # changes its first argument
            for x in tensors_in(args[:1]):
                self._add(x, bits)

    def attended(self, q: Tensor, out: Tensor) -> None:
        """The output of attention belongs to the sequence of its queries alone."""
        if self.running and (bits := self._bits_of(q)):
            self._of[id(out)] = weakref.ref(out), bits

    def cross(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether the keys and values come from a different sequence than the queries, as far as is known."""
        apart = False
        of_q, of_k, of_v = (self._bits_of(x) for x in (q, k, v))
        for module in reversed(self.running):
            asks, holds, answers = of_q & module.bits, of_k & module.bits, of_v & module.bits
            if asks & answers:
                # An inner module got two tensors that are made from one: the same tokens if there are as many.
                return apart and q.shape[-2] != k.shape[-2]
            # Learned queries and cached keys of an encoder come from no argument. Where q, k and v come from an
            # argument each, they may be made from one tensor outside of the module.
            if (asks or answers) and (not asks or not answers or holds & answers):
                apart = True
        return apart

    # ---- hooks --------------------------------------------------------------------------------

    def _note_call(self, path: str, *_: object) -> None:
        if self.active():
            self.called.add(path)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An attention starts: follow the sequences in its arguments."""
        if not self.active():
            return
        entered = _Running(module)
        for x in {id(x): x for x in tensors_in((*args, *kwargs.values())) if x.dtype != torch.bool}.values():
            self._bits += 1
            entered.bits |= 1 << self._bits
            self._add(x, 1 << self._bits)
        self.running.append(entered)

    def _leave(self, module: nn.Module, *_: object) -> None:
        """An attention has ended: stop following its sequences."""
        if not self.active() or all(one.module is not module for one in self.running):
            return
        while self.running.pop().module is not module:
            pass  # an inner module raised
        if not self.running:
            self._of.clear()
            self._bits = 0

    # ---- sequences of tensors -----------------------------------------------------------------

    def _bits_of(self, x: Tensor) -> int:
        known, bits = self._of.get(id(x), (None, 0))
        return bits if known is not None and known() is x else 0  # Python may reuse the id of a deleted tensor

    def _add(self, x: Tensor, bits: int) -> None:
        self._of[id(x)] = weakref.ref(x), self._bits_of(x) | bits


def _layer_around(path: str) -> str:
    """The layer around an attention whose sequences are followed: the element of the innermost list, or parent."""
    for ancestor in ancestors(path):
        if ancestor.rpartition(".")[2].isdigit():
            return ancestor
    return path.rpartition(".")[0]
