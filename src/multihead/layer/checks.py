"""Bad input, said clearly: both values, the place, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from multihead.errors import CacheError, SizeError, TypeMismatchError

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention


def check_inputs(
    attn: MultiHeadAttention,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    head_gate: Tensor | None,
    *,
    known: bool = False,
    caching: bool = False,
) -> None:
    """Raise where the inputs do not fit the layer or each other."""
    if value is not None and key is None:
        raise SizeError(
            f"value of shape {tuple(value.shape)} was given without a key",
            hint="pass both for cross-attention, or neither for self-attention",
        )
    if known:
        key, value = None, None
    elif key is not None and caching:
        raise SizeError(
            f"a key of shape {tuple(key.shape)} was given with a cache of the layer's own tokens",
            hint="self-attention with a cache takes no key; for cross-attention use cache.Cross()",
        )
    elif key is None and attn.d_key != attn.d_model:
        raise SizeError(
            f"self-attention needs d_key = d_model, but d_key={attn.d_key} and d_model={attn.d_model}",
            hint="pass key= (and value=): this layer was built for cross-attention",
        )
    source = query if key is None else key
    given = [("query", query, attn.d_model)]
    if key is not None or attn.d_value != attn.d_model:
        given += [("key", source, attn.d_key), ("value", source if value is None else value, attn.d_value)]
    for name, x, width in given[:1] if known else given:  # a cache that has keys and values asks for none
        if x.ndim != 3 or x.shape[-1] != width:
            raise SizeError(
                f"{name} has shape {tuple(x.shape)}, the layer takes (batch, tokens, {width})",
                hint=f"the last axis is the width; {name} is (batch, tokens, {width}) or (tokens, {width})",
            )
        if x.shape[0] != query.shape[0]:
            raise SizeError(
                f"query has batch {query.shape[0]}, {name} has batch {x.shape[0]}",
                hint="expand the smaller one: x.expand(batch, -1, -1)",
            )
        _check_kind(attn, name, x)
    if value is not None and value.shape[1] != source.shape[1]:
        raise SizeError(
            f"key has {source.shape[1]} tokens, value has {value.shape[1]}",
            hint="keys and values come in pairs",
        )
    if head_gate is not None:
        _check_gate(attn, query, head_gate)


def _check_kind(attn: MultiHeadAttention, name: str, x: Tensor) -> None:
    weight = getattr(attn.q_proj, "weight", None)
    if not isinstance(weight, Tensor):
        return
    if x.device != weight.device:
        raise TypeMismatchError(
            f"{name} is on {x.device}, the layer's weights are on {weight.device}",
            hint=f"move one of them: {name}.to({str(weight.device)!r})",
        )
    plain = x.is_floating_point() and type(weight.data) in (Tensor, torch.nn.Parameter)
    mixed = x.dtype != weight.dtype and weight.is_floating_point() and plain
    if not x.is_floating_point() or (mixed and not torch.is_autocast_enabled(x.device.type)):
        raise TypeMismatchError(
            f"{name} is {x.dtype}, the layer's weights are {weight.dtype}",
            hint=f"{name}.to({weight.dtype}), or run under torch.autocast",
        )


def _check_gate(attn: MultiHeadAttention, query: Tensor, gate: Tensor) -> None:
    full = (query.shape[0], attn.num_heads, query.shape[1])
    want = {1: full[1:2], 2: full[:2], 3: full}.get(gate.ndim)
    if want is None or any(have not in (1, need) for have, need in zip(gate.shape, want, strict=True)):
        raise SizeError(
            f"head_gate has shape {tuple(gate.shape)}, it must be (head,), (batch, head) or (batch, head, query) "
            f"of {full}",
            hint=f"for one number per head: torch.ones({attn.num_heads})",
        )


def check_known(attn: MultiHeadAttention, query: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise where the keys and values that a Cross cache holds are not this layer's and this batch's."""
    have = (k.shape[0], k.shape[1], k.shape[3], v.shape[3])
    kv_heads = attn.num_kv_heads if attn.share is None else len(attn.share.kv_heads)
    want = (query.shape[0], kv_heads, attn.head_dim, attn.value_dim)
    if have != want:
        raise CacheError(
            f"Cross holds (batch, kv_head, key_dim, value_dim) = {have}, this call needs {want}",
            hint="a cache serves one layer and one batch: reset() it, or make one for each",
        )
