"""Tiny random models with latent attention, and with a gate on the heads' outputs.

They are not in the zoo, because `mh.theory` and sharing of keys and values refuse them.
"""

from __future__ import annotations

from typing import Any

import transformers
from torch import nn

from zoo import POSITIONS, VOCABULARY, Entry, text

HEADS, NOPE, ROPE, VALUE, LATENT, QUERY = 3, 6, 4, 7, 14, 11
"""DeepSeek-V2 views its rotary part as complex numbers, so the sizes beside it must be even."""

_MODEL = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 19,
    "max_position_embeddings": POSITIONS, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
_LATENT = _MODEL | {
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "kv_lora_rank": LATENT, "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "q_lora_rank": QUERY, "rope_interleave": True,
}  # fmt: skip
_DENSE = {"first_k_dense_replace": 2}
_NO_POSITIONS = _DENSE | {"qk_rope_head_dim": 0, "layer_types": ["indexed_attention"] * 2}
_GATED = _MODEL | {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}
_EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
_HYBRID = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 5, "linear_value_head_dim": 5,
}  # fmt: skip


def _entry(name: str, config: str, model: str, options: dict[str, Any]) -> Entry:
    def make() -> nn.Module:
        built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return built

    return Entry(name, make, (), text)


_ENTRIES = (
    _entry("deepseek-v2", "DeepseekV2Config", "DeepseekV2ForCausalLM", _LATENT | _DENSE | {"head_dim": ROPE}),
    _entry("deepseek-v3", "DeepseekV3Config", "DeepseekV3ForCausalLM", _LATENT | _DENSE | {"attention_bias": True}),
    _entry(
        "deepseek-v3-direct", "DeepseekV3Config", "DeepseekV3ForCausalLM", _LATENT | _DENSE | {"q_lora_rank": None}
    ),
    _entry("minicpm3", "MiniCPM3Config", "MiniCPM3ForCausalLM", _LATENT),
    _entry("youtu", "YoutuConfig", "YoutuForCausalLM", _LATENT),
    _entry("axk2", "AXK2Config", "AXK2ForCausalLM", _LATENT | _DENSE),
    _entry("glm5-next", "Glm5NextTextConfig", "Glm5NextTextModel", _LATENT | _NO_POSITIONS),
    _entry("qwen3-next", "Qwen3NextConfig", "Qwen3NextForCausalLM", _GATED | _HYBRID | {"mlp_only_layers": [0, 1]}),
    _entry("qwen3.5", "Qwen3_5TextConfig", "Qwen3_5ForCausalLM", _GATED | _HYBRID | {"attention_bias": True}),
    _entry("afmoe", "AfmoeConfig", "AfmoeForCausalLM", _GATED | _EXPERTS | {"num_dense_layers": 2}),
    _entry("laguna", "LagunaConfig", "LagunaForCausalLM", _GATED | {"mlp_layer_types": ["dense"] * 2}),
)

MODELS = {entry.name: entry for entry in _ENTRIES}
LATENT_MODELS = ("deepseek-v2", "deepseek-v3", "deepseek-v3-direct", "minicpm3", "youtu", "axk2")
GATED_MODELS = ("axk2", "qwen3-next", "qwen3.5", "afmoe", "laguna")


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The modules of softmax attention, by path."""
    return {path: module for path, module in model.named_modules() if path.endswith("self_attn")}
