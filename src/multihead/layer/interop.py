"""Convert the weights of other layers to MultiHeadAttention and back, bit for bit.

>>> import torch, multihead as mh
>>> from torch import nn
>>> attn = mh.interop.from_torch(nn.MultiheadAttention(64, 4, batch_first=True))
>>> gpt2 = {"c_attn.weight": torch.randn(64, 192), "c_attn.bias": torch.randn(192),
...         "c_proj.weight": torch.randn(64, 64), "c_proj.bias": torch.randn(64)}
>>> attn = mh.interop.from_state_dict(gpt2, num_heads=4)  # recognised as "conv1d"
>>> attn
MultiHeadAttention(...)
>>> list(mh.interop.to_state_dict(attn, "grouped"))
['query_key_value.weight', 'dense.weight', 'query_key_value.bias', 'dense.bias']

Query head h reads kv head `h // group_size` in every layout here; order="modulo" reads and writes `h % kv_heads`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack, cast

from torch import Tensor, nn

from multihead._base.arguments import check_instance
from multihead._base.lazy_names import listed_names
from multihead.layer._from_module import from_module
from multihead.layer._layouts import LAYOUTS, Layout, Order, State, linears
from multihead.layer._rotary_config import rotary_candidates
from multihead.layer._state_dicts import (
    LayerOptions,
    layer_of_state_dict,
    layout_of,
    recognise,
    state_dict_of_layer,
)
from multihead.layer.attention import MultiHeadAttention

__all__ = [
    "LAYOUTS",
    "Layout",
    "from_module",
    "from_state_dict",
    "from_torch",
    "linears",
    "recognise",
    "rotary_candidates",
    "to_state_dict",
    "to_torch",
]
__dir__ = listed_names(__name__)


def from_state_dict(
    state: Mapping[str, Tensor],
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    layout: str | Layout | None = None,
    prefix: str = "",
    order: Order = "consecutive",
    strict: bool = True,
    **options: Unpack[LayerOptions],
) -> MultiHeadAttention:
    """A layer with a copy of these weights.

    Args:
        num_kv_heads, head_dim: default: read from the shapes; otherwise they must agree with the shapes.
        layout: a name in `LAYOUTS` or a `Layout`; default: the layout with these keys.
        prefix: prefix of the keys of this layer, such as "model.layers.3.self_attn.".
        order: "consecutive" if query head h reads kv head h // group_size, "modulo" if it reads h % kv_heads.
        strict: raise if a key under the prefix has no counterpart in the layer.
        options: position, scale, dropout, ... of MultiHeadAttention, which a state dict does not hold.
    """
    check_instance("state", state, Mapping, "a dict of tensors", hint="module.state_dict(), or from_module(module)")
    check_instance("prefix", prefix, str, "a string", hint="prefix='model.layers.3.self_attn.'")
    layer_state = {key.removeprefix(prefix): x for key, x in state.items() if key.startswith(prefix)}
    if not strict:
        layer_state = {key: x for key, x in layer_state.items() if isinstance(cast(object, x), Tensor)}
    for key, x in layer_state.items():
        hint = "pass the inner dict, or strict=False"
        check_instance(f"state[{prefix + key!r}]", x, Tensor, "a tensor", hint=hint)
    return layer_of_state_dict(
        MultiHeadAttention, layer_state,
        recognise(layer_state, prefix=prefix) if layout is None else layout_of(layout),
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
        prefix=prefix, order=order, strict=strict, **options,
    )  # fmt: skip


def to_state_dict(
    attn: MultiHeadAttention, layout: str | Layout = "split", *, prefix: str = "", order: Order = "consecutive"
) -> State:
    """A copy of the weights under the keys of another layout: the inverse of `from_state_dict`.

    Parameters without a key in the layout (qk-norm, sinks, learned positions) keep their keys of
    MultiHeadAttention.
    """
    _check_layer(attn)
    state = state_dict_of_layer(attn, layout_of(layout), order)
    return {prefix + key: x for key, x in state.items()}


def from_torch(mha: nn.MultiheadAttention) -> MultiHeadAttention:
    """The same layer as a MultiHeadAttention, with a copy of the weights; always batch first.

    add_zero_attn, a key of score 0 and value 0, becomes a sink with logit 0, which is not trained.
    """
    return MultiHeadAttention.from_torch(mha)


def to_torch(attn: MultiHeadAttention, *, batch_first: bool | None = None) -> nn.MultiheadAttention:
    """An nn.MultiheadAttention with a copy of the weights.

    `batch_first` defaults to that of the layer passed to `from_torch`, otherwise to True.
    """
    _check_layer(attn)
    return attn.to_torch(batch_first=batch_first)


def _check_layer(attn: object) -> None:
    """Raise unless the layer to convert is a MultiHeadAttention."""
    hint = "from_module(attn) returns one"
    check_instance("attn", attn, MultiHeadAttention, "a MultiHeadAttention", hint=hint)
