"""Sizes of a model's attention layers, read from its modules, for `mh.cost`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from multihead.layer.attention import MultiHeadAttention
from multihead.layer.latent import LatentAttention
from multihead.measures.cost.spec import Latent, Spec, merge_equal
from multihead.model.anatomy import anatomy
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.token_limit import token_limit


def sizes_of(model: nn.Module) -> tuple[Spec, ...]:
    """One spec for each kind of attention layer: multihead layers directly, others through their anatomy.

    Windows and causality come from the attributes of each module (`sliding_window`, `is_causal`), otherwise from
    the model (`is_causal`).
    """
    if isinstance(model, MultiHeadAttention):
        return (_spec_of_layer(model),)
    if isinstance(model, LatentAttention):
        return (_spec_of_latent(model),)
    config, causal = getattr(model, "config", None), bool(getattr(model, "is_causal", False))
    if getattr(config, "kv_lora_rank", None):
        return (latent_spec(config),)
    specs, unique = list[Spec](), list[bool]()
    used: set[str] = set()
    parameters = dict(model.named_parameters())
    for layer in anatomy(model):
        specs.append(_spec_of_anatomy(layer, config, parameters, causal))
        unique.append(layer.weights["q"].parameter not in used)
        used.add(layer.weights["q"].parameter)
    return merge_equal(specs, unique)


def _spec_of_layer(attn: MultiHeadAttention) -> Spec:
    """The sizes of a layer of multihead."""
    biases = "".join(x for x in "qkvo" if getattr(attn, f"{x}_proj").bias is not None)
    sinks = 0 if attn.sink_logits is None else 1
    norms = [p for part in (attn.q_norm, attn.k_norm) if part is not None for p in part.parameters()]
    tables = list(attn.position.parameters()) if isinstance(attn.position, nn.Module) else []
    return Spec(
        attn.d_model,
        attn.num_heads,
        attn.num_kv_heads,
        attn.head_dim,
        attn.value_dim,
        biases=biases,
        d_key=attn.d_key,
        d_value=attn.d_value,
        d_out=attn.d_out,
        extra_params=sum(p.numel() for p in norms),
        per_head=sinks + sum(p.numel() for p in tables) // attn.num_heads,
    )


def _spec_of_latent(attn: LatentAttention) -> Spec:
    """The sizes of a latent attention layer of multihead."""
    query = None if attn.q_down is None else attn.q_down.out_features
    return Spec(
        attn.d_model,
        attn.num_heads,
        head_dim=attn.nope_dim + attn.rope_dim,
        value_dim=attn.value_dim,
        biases="qko" if attn.o_proj.bias is not None else "",  # pyright: ignore[reportUnnecessaryComparison]
        latent=Latent(attn.latent_dim, attn.rope_dim, query),
        extra_params=attn.latent_dim + (query or 0),
    )


def latent_spec(config: Any) -> Spec:
    """Sizes of latent attention from the fields of DeepSeek's config, without a run."""
    query: int | None = config.q_lora_rank
    return Spec(
        config.hidden_size,
        config.num_attention_heads,
        head_dim=config.qk_nope_head_dim + config.qk_rope_head_dim,
        value_dim=config.v_head_dim,
        layers=config.num_hidden_layers,
        biases="qko" if getattr(config, "attention_bias", False) else "",
        latent=Latent(config.kv_lora_rank, config.qk_rope_head_dim, query),
        extra_params=config.kv_lora_rank + (query or 0),
    )


def _spec_of_anatomy(
    layer: LayerAnatomy, config: Any, parameters: Mapping[str, nn.Parameter], causal: bool
) -> Spec:
    """The sizes of an attention of any model, from its anatomy."""
    module, heads, stack = layer.module, layer.num_heads, layer.site.stack
    shared, per_head, per_kv_head = 0, int(layer.sinks is not None), 0
    for letter, names in layer.between.items():
        count = heads if letter == "q" else layer.num_kv_heads
        for size in (parameters[name].numel() for name in names if name in parameters):
            if count == 1 or size != count * layer.key_dim:  # a norm shared by all heads
                shared += size
            elif letter == "q":
                per_head += layer.key_dim
            else:
                per_kv_head += layer.key_dim
    if layer.W_G is not None:
        per_head += layer.W_G[0].numel() + (0 if layer.b_G is None else layer.b_G[0].numel())
    for part in module.modules():
        if isinstance(part, nn.Embedding) and part.weight.shape[-1] == heads:  # a table of relative positions
            per_head += part.weight.shape[0]
    return Spec(
        layer.W_Q[0].shape[1],
        heads,
        layer.num_kv_heads,
        layer.key_dim,
        layer.value_dim,
        biases="".join(x for x in "qkvo" if layer.weights[x].bias is not None),
        d_key=layer.W_K[0].shape[1],
        d_value=layer.W_V[0].shape[1],
        d_out=layer.W_O[0].shape[0],
        extra_params=shared,
        per_head=per_head,
        per_kv_head=per_kv_head,
        name=stack,
        **visible_keys(module, config, stack, cross=layer.site.cross, causal=causal),
    )


def visible_keys(module: nn.Module, config: Any, stack: str, *, cross: bool, causal: bool) -> dict[str, Any]:
    """The sizes of a spec's sequences, its window, and whether it is causal."""
    encodes = getattr(config, "is_encoder_decoder", False) and "encoder" in stack.split("_")
    window = getattr(module, "sliding_window", None)
    windowed = isinstance(window, int) and window > 0 and is_causal(module)
    return {
        "queries": "source" if encodes else "tokens",
        "keys": "source" if encodes or cross else "tokens",
        "window": window if windowed else None,
        "causal": not cross and not encodes and is_causal(module, causal),
    }


def context_of(model: nn.Module) -> int | None:
    """The size of a model's context, its longest input; None if modules and config do not say."""
    limit = token_limit(model) or getattr(getattr(model, "config", None), "max_target_positions", None)
    if isinstance(limit, int):
        return limit
    tables = ("position_embeddings", "position_embedding", "pos_embed")  # of images: (1, tokens, width)
    return next((p.shape[1] for name, p in model.named_parameters() if name.endswith(tables) and p.ndim == 3), None)


def is_causal(module: nn.Module, default: bool = False) -> bool:
    """Whether a module is causal by its attributes; without any, `default`."""
    return bool(getattr(module, "is_causal", getattr(module, "is_decoder", default)))
