"""A config of any model type, shrunk: few layers, small widths that differ, small towers.

What is known of configs is data: `RULES` says what a field of a name becomes, `exceptions.OVERRIDES` what a type
wants in addition. Sub-configs are shrunk in the same way. A type may refuse the odd sizes of the first `Sizes`;
`SIZES` are tried in order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

VOCABULARY, POSITIONS, WINDOW = 101, 64, 8


@dataclass(frozen=True)
class Sizes:
    """The sizes that all rules share."""

    name: str
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int  # of feed-forward layers
    layers: int = 2

    @property
    def rope_pairs(self) -> int:
        return self.head_dim // 2


SIZES = (
    Sizes("odd", width=48, heads=6, kv_heads=2, head_dim=8, hidden=40),
    Sizes("square", width=48, heads=6, kv_heads=6, head_dim=8, hidden=40),
    Sizes("round", width=64, heads=4, kv_heads=2, head_dim=16, hidden=128),
    Sizes("wide", width=128, heads=4, kv_heads=4, head_dim=32, hidden=256),
    Sizes("four", width=64, heads=4, kv_heads=4, head_dim=16, hidden=64, layers=4),
    Sizes("default", width=0, heads=0, kv_heads=0, head_dim=0, hidden=0),  # widths and heads as they are
)

Rule = Callable[[Any, Sizes], Any]


def _each(value: Any, new: Any) -> Any:
    """`new` in the shape of `value`: a number, or as many of them."""
    return [new] * len(value) if isinstance(value, list | tuple) else new


def _sections(count: int, pairs: int) -> list[int]:
    """Sections of the rotary frequencies that add up to the pairs of the tiny heads."""
    parts = [pairs // count] * count
    parts[0] += pairs - sum(parts)
    return parts


def _rules(*rows: tuple[str, Rule]) -> dict[str, Rule]:
    return {name: rule for names, rule in rows for name in names.split()}


RULES: dict[str, Rule] = _rules(
    # layers
    (
        """num_hidden_layers num_layers n_layer n_layers layers depth num_blocks encoder_layers decoder_layers
        num_encoder_layers num_decoder_layers encoder_num_hidden_layers decoder_num_hidden_layers decoder_num_layers
        speech_encoder_layers t2u_encoder_layers t2u_decoder_layers memory_attention_num_layers l_layers x_layers
        r_layers resampler_depth conf_num_hidden_layers perceiver_resampler_num_layers num_layers_per_stack
        folding_trunk_num_hidden_layers text_encoder_num_layers num_global_layers num_timestamp_prediction_layers
        num_mel_attn_blocks num_self_attends_per_block aligner_num_add_layers num_attention_layers
        query_dec_layers""",
        lambda value, sizes: sizes.layers if isinstance(value, int) else value,
    ),
    (
        "depths stage_num_blocks blocks_per_stage",
        lambda value, sizes: sizes.layers if isinstance(value, int) else [1] * (len(value) - 1) + [2],
    ),
    ("num_kv_shared_layers", lambda value, sizes: 0),
    ("first_k_dense_replace num_dense_layers", lambda value, sizes: min(value, 1)),
    # heads
    (
        """num_attention_heads num_heads n_head n_heads attention_heads encoder_attention_heads
        decoder_attention_heads encoder_num_attention_heads decoder_num_attention_heads decoder_num_heads
        decoder_self_attention_heads decoder_cross_attention_heads num_encoder_attention_heads
        num_decoder_attention_heads speech_encoder_attention_heads t2u_encoder_attention_heads
        t2u_decoder_attention_heads cross_num_attention_heads swa_num_attention_heads num_sliding_attention_heads
        resampler_heads resampler_n_heads conf_num_attention_heads num_self_attention_heads
        num_cross_attention_heads perceiver_resampler_num_attention_heads index_n_heads""",
        lambda value, sizes: sizes.heads if isinstance(value, int) else _heads_of_stages(value, sizes),
    ),
    (
        """num_key_value_heads num_kv_heads encoder_num_key_value_heads decoder_num_key_value_heads
        cross_num_key_value_heads swa_num_key_value_heads num_key_value_attention_heads""",
        lambda value, sizes: 1 if value == 1 else sizes.kv_heads,
    ),
    (
        """head_dim d_kv kv_channels d_head attention_head_size dim_head swa_head_dim cross_head_dim v_head_dim
        qk_nope_head_dim index_head_dim global_head_dim resampler_dim_head resampler_head_dim
        query_pre_attn_scalar""",
        lambda value, sizes: sizes.head_dim,
    ),
    ("qk_rope_head_dim rotary_dim", lambda value, sizes: sizes.head_dim if value else value),
    ("qk_head_dim", lambda value, sizes: 2 * sizes.head_dim),
    ("kv_lora_rank q_lora_rank o_lora_rank", lambda value, sizes: 20 if value else value),
    # widths
    (
        """hidden_size d_model n_embd dim width d_latents lru_width emb_dim embed_dim hidden_dim encoder_hidden_dim
        decoder_hidden_dim decoder_hidden_size encoder_hidden_size out_hidden_size cross_hidden_size
        text_hidden_size vision_hidden_size output_hidden_size backbone_hidden_size hidden_size_global
        image_text_hidden_size attention_hidden_size memory_attention_hidden_size projector_hidden_size
        word_embed_proj_dim fusion_hidden_size perceiver_resampler_hidden_size fpn_hidden_size mask_feature_size
        memory_encoder_hidden_size mm_embed_dim feature_size mask_dim output_dim pairwise_hidden_size
        text_encoder_width memory_fuser_embed_dim mask_downsampler_embed_dim vit_dim projection_dim
        embedding_size projection_size embedding_dim codevector_dim proj_codevector_dim classifier_proj_size
        pooler_output_size text_projection_in_dim text_projection_out_dim project_dim output_channels
        upsample_groups""",
        lambda value, sizes: sizes.width if isinstance(value, int) and value else value,
    ),
    (
        """intermediate_size ffn_dim d_ff dff n_inner ffn_hidden_size encoder_ffn_dim decoder_ffn_dim mlp_dim
        d_inner dim_ff moe_intermediate_size shared_expert_intermediate_size speech_encoder_intermediate_size
        feed_forward_size t2u_encoder_ffn_dim t2u_decoder_ffn_dim dim_feedforward encoder_dim_feedforward
        decoder_dim_feedforward encoder_feedforward_dim decoder_intermediate_size expert_ffn_hidden_size
        intermediate_size_mlp dense_intermediate_size moe_shared_expert_intermediate_size
        shared_intermediate_size share_expert_dim memory_fuser_intermediate_dim
        memory_attention_feed_forward_hidden_size memory_attention_mlp_hidden_size
        projection_intermediate_size projection_intermediate_dim pair_transition_intermediate_size
        alignment_intermediate_size perceiver_resampler_mlp_intermediate_size prompt_intermediate_size
        moe_hidden_size""",
        lambda value, sizes: sizes.hidden if isinstance(value, int) and value else value,
    ),
    ("decoder_in_channels", lambda value, sizes: _each(value, sizes.width)),
    # experts
    (
        "num_experts n_routed_experts num_local_experts moe_num_experts zero_expert_num",
        lambda value, sizes: 4 if value > 1 else value,
    ),
    ("num_experts_per_tok moe_topk moe_k top_k_experts", lambda value, sizes: min(value, 2)),
    ("n_group topk_group o_groups", lambda value, sizes: 1),
    ("expert_capacity", lambda value, sizes: 64),
    # text
    (
        """vocab_size text_vocab_size decoder_vocab_size src_vocab_size tgt_vocab_size codebook_vocab_size
        char_vocab_size audio_vocab_size t2u_vocab_size unit_hifi_gan_vocab_size mel_vocab_size
        text_encoder_vocab_size vision_vocab_size composer_vocab_size encoder_hash_byte_group_vocab
        vocab_size_per_layer_input""",
        lambda value, sizes: VOCABULARY if value else value,
    ),
    (
        """entity_vocab_size num_qa_labels num_object_labels num_attr_labels num_bpe_labels num_wordpiece_labels
        num_embeddings codebook_size num_hash_buckets num_codevectors_per_group""",
        lambda value, sizes: 32,
    ),
    (
        """max_position_embeddings n_positions n_ctx max_source_positions max_target_positions seq_len max_seq_len
        max_encoder_position_embeddings max_decoder_position_embeddings t2u_max_position_embeddings
        max_text_positions max_speech_positions original_max_position_embeddings max_text_len
        text_encoder_context_length""",
        lambda value, sizes: POSITIONS if isinstance(value, int) else value,
    ),
    (
        "sliding_window attention_window_size local_attention sliding_window_size attention_chunk_size",
        lambda value, sizes: WINDOW if isinstance(value, int) and value > 0 else value,
    ),
    ("context_size", lambda value, sizes: 16),
    ("attention_window", lambda value, sizes: 4 if isinstance(value, int) else value),
    ("index_topk index_block_size", lambda value, sizes: 4),
    ("index_topk_blocks index_kpool", lambda value, sizes: 2),
    ("relative_attention_num_buckets", lambda value, sizes: 6),
    ("relative_attention_max_distance", lambda value, sizes: 9),
    # pictures
    (
        "image_size img_size crop_size input_size spec_size pretrain_image_size",
        lambda value, sizes: _each(value, 32) if _largest(value) >= 64 else value,
    ),
    ("patch_size", lambda value, sizes: _each(value, 8) if _largest(value) >= 8 else value),
    ("num_frames", lambda value, sizes: 2),
    ("num_queries num_denoising two_stage_num_proposals", lambda value, sizes: min(value, 7)),
    (
        """num_query_tokens prompt_length resampler_n_latents resampler_num_latents num_latents num_image_tokens
        image_seq_length latent_query_num mm_tokens_per_image perceiver_resampler_num_latents
        perceiver_resampler_num_latents_2d""",
        lambda value, sizes: 4,
    ),
    ("num_position_embeddings", lambda value, sizes: 64),
    ("pos_emb_height pos_emb_width", lambda value, sizes: 8),
    # layers with a state
    (
        """mamba_d_state state_size ssm_state_size mamba_d_head mamba_head_dim linear_head_dim linear_key_head_dim
        linear_value_head_dim""",
        lambda value, sizes: 8,
    ),
    ("mamba_n_heads mamba_num_heads", lambda value, sizes: sizes.width // 4),  # × 8 = 2 × width
    ("mamba_d_ssm", lambda value, sizes: 2 * sizes.width),
    ("n_mamba_heads linear_num_heads linear_num_key_heads linear_num_value_heads", lambda value, sizes: 2),
    ("n_groups mamba_n_groups", lambda value, sizes: 1),
    ("mamba_dt_rank time_step_rank", lambda value, sizes: 4 if isinstance(value, int) else value),
    ("mamba_chunk_size chunk_size", lambda value, sizes: 8 if value > 0 else value),
)
"""What a field of a name becomes."""


def _heads_of_stages(value: Any, sizes: Sizes) -> Any:
    return [2, 4, 4, 4][: len(value)] if sizes.heads and len(value) <= 4 else value


def _largest(value: Any) -> float:
    return max(value) if isinstance(value, list | tuple) else value or 0


def tiny(model_type: str, sizes: Sizes, overrides: dict[str, Any] | None = None) -> PreTrainedConfig:
    """The config of a type at these sizes."""
    return _tiny(CONFIG_MAPPING[model_type], sizes, overrides or {})


def _tiny(cls: type[PreTrainedConfig], sizes: Sizes, overrides: dict[str, Any]) -> PreTrainedConfig:
    """The config with these fields changed; a dict for a sub-config changes fields of that."""
    options = _options(cls, sizes, overrides)
    subs = [name for name, value in options.items() if isinstance(value, PreTrainedConfig)]
    return cls(**options | {name: value for name, value in overrides.items() if name not in subs})


def _options(cls: type[PreTrainedConfig], sizes: Sizes, overrides: dict[str, Any]) -> dict[str, Any]:
    """What the constructor gets: every field that a rule knows, and every sub-config."""
    default = cls()
    options: dict[str, Any] = {}
    names = [f.name for f in fields(cls)] if is_dataclass(cls) else list(vars(default))
    for name in names:
        value = _value(default, name)
        if isinstance(value, PreTrainedConfig):
            if value.model_type == "timm_backbone":
                options[name] = _backbone(value)
            else:
                options[name] = _tiny(type(value), sizes, _stages(value, sizes) | overrides.get(name, {}))
        elif value is not None and not isinstance(value, bool | str):
            options |= _ruled(name, value, sizes)
        elif value is None and name in _WANTED:
            options |= _ruled(name, 1_000, sizes)
    if isinstance(options.get("depths"), list):  # one number per stage: then the layers are these stages
        options = {
            name: value for name, value in options.items() if name not in ("num_layers", "num_hidden_layers")
        }
    else:
        options |= _per_layer(default, names, sizes.layers)
    options |= _tokens(default, names)
    if "rope_parameters" in names and sizes.width:
        options |= _rope(default, sizes)
    return options


_WANTED = (
    "head_dim",
    "vocab_size",
    "n_routed_experts",
    "num_experts",
    "q_lora_rank",
    "kv_lora_rank",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
)
"""Fields that some configs leave to the checkpoint."""


def _backbone(timm: Any) -> PreTrainedConfig:
    """A small ResNet in place of one that needs timm."""
    stages = len(getattr(timm, "out_indices", None) or [4])
    features = [f"stage{i}" for i in range(5 - stages, 5)] if stages <= 4 else None
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    return CONFIG_MAPPING["resnet"](**sizes, out_features=features)


def _stages(backbone: Any, sizes: Sizes) -> dict[str, Any]:
    """The stages that a model reads from its backbone; in a backbone of plain layers, its last ones."""
    features = getattr(backbone, "_out_features", None) or []
    if len(features) < 2:
        return {}
    if isinstance(_value(backbone, "depths"), list | tuple):
        return {"out_features": list(features)}
    layers = max(sizes.layers, len(features))
    stages = range(layers - len(features) + 1, layers + 1)
    return {"num_hidden_layers": layers, "out_features": [f"stage{i}" for i in stages]}


def _value(config: Any, name: str) -> Any:
    try:
        return getattr(config, name, None)
    except Exception:  # a field that differs between layers cannot be read
        return None


def _ruled(name: str, value: Any, sizes: Sizes) -> dict[str, Any]:
    if name not in RULES:
        return {}
    new = RULES[name](value, sizes)
    return {} if new is value or (not sizes.width and new == 0) else {name: new}


def _per_layer(default: Any, names: list[str], layers: int) -> dict[str, Any]:
    """Lists with a value per layer: two kinds that differ, where there are two."""
    options: dict[str, Any] = {}
    count = _value(default, "num_hidden_layers")
    for name in names:
        value = _value(default, name)
        if isinstance(value, list | tuple) and isinstance(count, int) and len(value) == count != layers:
            kinds = list(dict.fromkeys(map(str, value)))
            firsts = [next(v for v in value if str(v) == kind) for kind in kinds][:layers]
            options[name] = [*firsts, *[firsts[-1]] * (layers - len(firsts))]
    return options


def _tokens(default: Any, names: list[str]) -> dict[str, Any]:
    """Special tokens inside the vocabulary: those of the text first, those of images and sound at the end."""
    options: dict[str, Any] = {}
    last = VOCABULARY
    for name in names:
        value = _value(default, name)
        special = name.endswith(("_token_id", "_token_index"))
        if special and isinstance(value, int) and value >= 5:
            last -= 1
            options[name] = last if last >= VOCABULARY - 40 else 5
    for i, name in enumerate(("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")):
        value = _value(default, name)
        if (isinstance(value, int) and value >= 5) or isinstance(value, list):
            options[name] = i
    return options


def _rope(default: Any, sizes: Sizes) -> dict[str, Any]:
    """Sections of the rotation for time, height and width, where the model has them."""
    rope = _value(default, "rope_parameters")
    if not isinstance(rope, dict) or "rope_type" not in rope:
        return {}
    source = Path(inspect.getfile(type(default)).replace("configuration_", "modeling_"))
    if "mrope_section" not in rope and not (source.exists() and "mrope_section" in source.read_text()):
        return {}
    pairs = int(sizes.rope_pairs * rope.get("partial_rotary_factor", 1.0))
    sections = _sections(len(rope.get("mrope_section", "thw")), pairs)
    return {"rope_parameters": rope | {"mrope_section": sections}}
