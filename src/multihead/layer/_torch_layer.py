"""Convert nn.MultiheadAttention to MultiHeadAttention and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import nn

from multihead._base.arguments import check_instance
from multihead.errors import SizeError
from multihead.layer._layouts import LAYOUTS, Layout, State
from multihead.layer._state_dicts import layer_of_state_dict, state_dict_of_layer
from multihead.layer.layer_options import Sinks

if TYPE_CHECKING:
    from multihead.layer._state_dicts import Layer
    from multihead.layer.attention import MultiHeadAttention

# The attribute in which from_torch stores mha.batch_first for to_torch.
_BATCH_FIRST = "torch_batch_first"


def layer_of_torch(kind: type[Layer], mha: nn.MultiheadAttention) -> Layer:
    """A layer of a class with a copy of an nn.MultiheadAttention's weights."""
    hint = "from_module(module) reads other modules, from_state_dict(state, num_heads=...) reads state dicts"
    check_instance("mha", mha, nn.MultiheadAttention, "an nn.MultiheadAttention", hint=hint)
    if mha.bias_k is not None or mha.bias_v is not None:
        raise SizeError(
            "mha must have add_bias_kv=False, got add_bias_kv=True: MultiHeadAttention has no learned key",
            hint="multihead.layer.dropin.MultiheadAttention supports it and loads the same state dict",
        )
    state = mha.state_dict()
    layout = _layout(state)
    sinks = Sinks(0.0) if mha.add_zero_attn else None
    if sinks is not None:
        state["sink_logits"] = mha.out_proj.weight.new_zeros(mha.num_heads)
    attn = layer_of_state_dict(kind, state, layout, num_heads=mha.num_heads, sinks=sinks, dropout=mha.dropout)
    if attn.sink_logits is not None:
        attn.sink_logits.requires_grad_(False)
    setattr(attn, _BATCH_FIRST, mha.batch_first)
    return attn.train(mha.training)


def torch_of_layer(attn: MultiHeadAttention, *, batch_first: bool | None = None) -> nn.MultiheadAttention:
    """An nn.MultiheadAttention with a copy of the weights of a layer."""
    unsupported = _unsupported_by_torch(attn)
    if unsupported:
        raise SizeError(
            f"nn.MultiheadAttention cannot hold this layer: {'; '.join(unsupported)}",
            hint="to_state_dict(attn, layout) converts the weights for other code",
        )
    if batch_first is None:
        batch_first = bool(getattr(attn, _BATCH_FIRST, True))
    weight = attn.q_proj.weight
    mha = nn.MultiheadAttention(
        attn.d_model, attn.num_heads, dropout=attn.dropout, bias=cast(object, attn.q_proj.bias) is not None,
        add_zero_attn=attn.sink_logits is not None, kdim=attn.d_key, vdim=attn.d_value, batch_first=batch_first,
        device="meta", dtype=weight.dtype,
    ).to_empty(device=weight.device)  # fmt: skip
    layout = _layout(mha.state_dict())
    packed = state_dict_of_layer(attn, layout)
    mha.load_state_dict({key: x for key, x in packed.items() if key in layout.keys})
    return mha.train(attn.training)


def _layout(state: State) -> Layout:
    """The layout of an nn.MultiheadAttention's state dict: one matrix for q, k and v, or three."""
    return LAYOUTS["torch" if "in_proj_weight" in state else "torch-kdim"]


def _unsupported_by_torch(attn: MultiHeadAttention) -> list[str]:
    """The features of a layer that torch's state dicts cannot hold: nn.MultiheadAttention lacks them."""
    heads, biases = attn.num_heads, [x for x in "qkvo" if getattr(attn, f"{x}_proj").bias is not None]
    sinks = attn.sink_logits
    unsupported = {
        f"num_heads={heads}": heads < 1,
        f"kv_of_head={list(attn.kv_of_head)}, {heads} heads on {attn.num_kv_heads} kv heads": (
            attn.kv_of_head != tuple(range(heads)) or attn.num_kv_heads != heads
        ),
        f"head_dim={attn.head_dim}, value_dim={attn.value_dim} with d_model / num_heads = {attn.d_model}/{heads}": (
            heads * attn.head_dim != attn.d_model or heads * attn.value_dim != attn.d_model
        ),
        f"d_out={attn.d_out} with d_model={attn.d_model}": attn.d_out != attn.d_model,
        f"bias on {''.join(biases) or 'none'} only": len(biases) not in (0, 4),
        f"position={attn.position}": attn.position is not None,
        f"qk_norm={attn.qk_norm}": attn.qk_norm is not None,
        f"scale={attn.scale:g}, not {attn.head_dim**-0.5:g}": attn.scale != attn.head_dim**-0.5,
        f"softcap={attn.softcap}": attn.softcap is not None,
        "sinks whose logits are not 0": sinks is not None and bool(sinks.detach().count_nonzero()),
    }
    return [feature for feature, present in unsupported.items() if present]
