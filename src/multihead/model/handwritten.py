"""Adapters for Hugging Face models whose attention is written by hand."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from multihead.layer import mask as masks
from multihead.model.adapters import Adapter, Attend
from multihead.model.kernel_arguments import mask_of


def _gpt_neo(
    module: Any, attend: Attend, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """softmax(q kᵀ) v without a scale; causal, with a local window in every other layer."""
    mask = mask_of(attention_mask) & masks.causal()
    if module.attention_type == "local":
        mask = mask & masks.window(module.config.window_size)
    dropout = module.attn_dropout.p if module.training else 0.0
    return attend(query.float(), key.float(), value.float(), mask=mask, scale=1.0, dropout=dropout).to(
        value.dtype
    ), None


def _gpt_j(
    module: Any, attend: Attend, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """softmax(q kᵀ / √d) v; the mask includes causality."""
    dropout = module.attn_dropout.p if module.training else 0.0
    scale = 1.0 / float(module.scale_attn)
    heads = attend(query.float(), key.float(), value.float(), mask=attention_mask, scale=scale, dropout=dropout)
    return heads.to(value.dtype), None


def _gpt_2_upcast(
    module: Any, attend: Attend, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scaling) v in float32, as GPT-2 does with `reorder_and_upcast_attn`; (query, head, dim)."""
    dropout = module.attn_dropout.p if module.training else 0.0
    q, k, v = query.float(), key.float(), value.float()
    heads = attend(q, k, v, mask=mask_of(attention_mask), scale=module.scaling, dropout=dropout)
    return heads.to(value.dtype).transpose(1, 2), None


def _mpnet(
    module: Any,
    attend: Attend,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Tensor, ...]:
    """softmax(q kᵀ / √d + relative position bias) v, then W_O."""
    size = module.attention_head_size
    q, k, v = (_split(linear(hidden_states), size) for linear in (module.q, module.k, module.v))
    mask = mask_of(attention_mask)
    if position_bias is not None:
        mask = mask & masks.additive(position_bias)
    heads = attend(q, k, v, mask=mask, dropout=module.dropout.p if module.training else 0.0)
    return (module.o(heads.transpose(1, 2).flatten(2)),)


def _bloom(
    module: Any,
    attend: Attend,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Tensor | None,
    layer_past: Any = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ / √d + ALiBi) v, then W_O and the residual."""
    q, k, v = module._reshape(module.query_key_value(hidden_states))
    if layer_past is not None:
        k, v = layer_past.update(k, v, module.layer_idx)
    if attention_mask is not None:
        attention_mask = attention_mask[..., : k.shape[2]]
    slopes = alibi.view(q.shape[0], module.num_heads, -1, alibi.shape[-1])
    mask = mask_of(attention_mask) & masks.additive(slopes.expand(-1, -1, q.shape[2], -1))
    dropout = module.attention_dropout.p if module.training else 0.0
    heads = attend(q, k, v, mask=mask, scale=module.inv_norm_factor, dropout=dropout)
    out = module.dense(heads.transpose(1, 2).flatten(2))
    return residual + nn.functional.dropout(out, module.hidden_dropout, module.training), None


def _deberta_v2(
    module: Any,
    attend: Attend,
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, None]:
    """softmax((q kᵀ + content-to-position + position-to-content) / √(s·d)) v (He et al. 2021)."""
    query_input = hidden_states if query_states is None else query_states
    size = module.attention_head_size
    q = _split(module.query_proj(query_input), size)
    k, v = _split(module.key_proj(hidden_states), size), _split(module.value_proj(hidden_states), size)
    parts = 1 + ("c2p" in module.pos_att_type) + ("p2c" in module.pos_att_type)
    mask = masks.tensor(attention_mask.bool())
    if module.relative_attention:
        flat = [x.reshape(-1, x.shape[2], x.shape[3]) for x in (q, k)]
        bias = module.disentangled_attention_bias(*flat, relative_pos, module.pos_dropout(rel_embeddings), parts)
        mask = mask & masks.additive(bias.view(*q.shape[:3], k.shape[2]))
    dropout = module.dropout.p if module.training else 0.0
    heads = attend(q, k, v, mask=mask, scale=(size * parts) ** -0.5, dropout=dropout)
    return heads.transpose(1, 2).flatten(2), None


def _split(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


ADAPTERS = {
    "GPTNeoSelfAttention": Adapter(_gpt_neo, "_attn"),
    "GPTJAttention": Adapter(_gpt_j, "_attn"),
    "GPT2Attention": Adapter(_gpt_2_upcast, "_upcast_and_reordered_attn"),
    "DecisionTransformerGPT2Attention": Adapter(_gpt_2_upcast, "_upcast_and_reordered_attn"),
    "MPNetSelfAttention": Adapter(_mpnet),
    "BloomAttention": Adapter(_bloom),
    "DisentangledSelfAttention": Adapter(_deberta_v2),
}
