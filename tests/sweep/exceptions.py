"""What single types want in addition to the rules: fields of their config, another class, inputs of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sweep.inputs import OUTPUT_TOKENS, ROWS, TOKENS, first, ids, noise

_FORECAST = {"prediction_length": 8, "context_length": 16, "num_time_features": 1}
_FOUR_STAGES = {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False}
_DAVIT = {
    "embed_dim": [16, 24, 32, 48],
    "num_heads": [2, 2, 2, 2],
    "num_groups": [2, 2, 2, 2],
    "depths": [1, 1, 1, 1],
    "projection_dim": 48,
}

OVERRIDES: dict[str, dict[str, Any]] = {
    # one layer of each kind, where the default has none of them among the first two
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 5},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "reformer": {
        "axial_pos_embds_dim": [16, 32],
        "axial_pos_shape": [8, 8],
        "attn_layers": ["local", "lsh"],
        "attention_head_size": 8,
        "local_attn_chunk_length": 4,
        "lsh_attn_chunk_length": 4,
        "num_buckets": 4,
    },
    # fields that the config leaves to the checkpoint
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"num_experts_per_tok": 2, "n_shared_experts": 1},
    "esm": {"mask_token_id": 99, "pad_token_id": 1},
    "step3p5": {"sliding_window": 8},
    "xmod": {"default_language": "en_XX"},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "t5gemma2_encoder": {"text_config": {"dropout_rate": 0.0}},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "autoformer": _FORECAST,
    "informer": _FORECAST,
    "time_series_transformer": _FORECAST,
    # sizes that the code fixes, or that must fit each other
    "mpnet": {"relative_attention_num_buckets": 32},
    "mamba2": {"num_heads": 12},
    "dbrx": {
        "attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 40},
    },
    "depth_anything": {"backbone_config": _FOUR_STAGES, "reassemble_hidden_size": 48},
    "prompt_depth_anything": {"backbone_config": _FOUR_STAGES, "reassemble_hidden_size": 48},
    "zoedepth": {"backbone_config": _FOUR_STAGES, "bottleneck_features": 48},
    "vitmatte": {"fusion_hidden_sizes": [16, 24, 32, 48], "convstream_hidden_sizes": [16, 24, 32]},
    "florence_vision": _DAVIT,
    "florence2": {"vision_config": _DAVIT},
    "janus": {"vq_config": {"base_channels": 32}},
    "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 32},
    "donut-swin": {"window_size": 2, "image_size": [64, 64]},
    "seggpt": {"image_size": [64, 32]},
    "blip-2": {"image_token_index": 99},
    "instructblip": {"image_token_index": 99},
    "instructblipvideo": {"video_token_index": 99},
    "lw_detr": {"backbone_config": {"num_windows": 4}},
    "lw_detr_vit": {"num_windows": 4},
    "chameleon": {"vocabulary_map": {"<image>": 99}},
}  # fmt: skip

CLASSES: dict[str, tuple[str, ...]] = {
    "speecht5": ("SpeechT5ForSpeechToText",),
}


def _words() -> dict[str, Any]:
    return {"input_ids": ids(), "attention_mask": torch.ones(ROWS, TOKENS, dtype=torch.long)}


def _patches(config: Any) -> dict[str, Any]:
    """Row and column of each patch, from 1, then its pixels."""
    width = first(config, "patch_embed_hidden_size", default=48)
    cells = torch.stack(torch.meshgrid(torch.arange(1.0, 4), torch.arange(1.0, 4), indexing="ij"), -1).view(1, 9, 2)
    return {
        "flattened_patches": torch.cat([cells.expand(ROWS, -1, -1), noise(ROWS, 9, width)], -1),
        "decoder_input_ids": ids(OUTPUT_TOKENS, seed=2),
    }


def _forecast(config: Any) -> dict[str, Any]:
    past = config.context_length + max(config.lags_sequence)
    return {
        "past_values": noise(ROWS, past),
        "past_time_features": noise(ROWS, past, 1),
        "past_observed_mask": torch.ones(ROWS, past),
        "future_values": noise(ROWS, config.prediction_length, seed=2),
        "future_time_features": noise(ROWS, config.prediction_length, 1),
    }


INPUTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "pix2struct": _patches,
    "pix2struct_vision_model": lambda c: {"flattened_patches": _patches(c)["flattened_patches"]},
    "autoformer": _forecast,
    "informer": _forecast,
    "time_series_transformer": _forecast,
    "moshi_depth": lambda c: {"input_ids": ids(7), "last_hidden_state": noise(ROWS, 1, c.input_size)},
    "blip_2_qformer": lambda c: {
        "query_embeds": noise(ROWS, 4, c.hidden_size),
        "encoder_hidden_states": noise(ROWS, 9, c.encoder_hidden_size),
    },
    "kosmos-2": lambda c: (
        _words()
        | {
            "pixel_values": noise(ROWS, 3, 32, 32),
            "image_embeds_position_mask": (torch.arange(TOKENS) < 4).long().expand(ROWS, -1),
        }
    ),
    "lxmert": lambda c: (
        _words() | {"visual_feats": noise(ROWS, 5, c.visual_feat_dim), "visual_pos": noise(ROWS, 5, 4).abs()}
    ),
    "speecht5": lambda c: {"input_values": noise(ROWS, 4000), "decoder_input_ids": ids(OUTPUT_TOKENS)},
    "timesfm2_5": lambda c: {"past_values": noise(ROWS, 64)},
    "timesfm": lambda c: {
        "past_values": noise(ROWS, 64),
        "past_values_padding": torch.zeros(ROWS, 64, dtype=torch.long),
        "freq": torch.zeros(ROWS, 1, dtype=torch.long),
    },
    "rag": lambda c: (
        _words()
        | {
            "context_input_ids": ids(rows=ROWS * 2),
            "context_attention_mask": torch.ones(ROWS * 2, TOKENS, dtype=torch.long),
            "doc_scores": noise(ROWS, 2),
            "decoder_input_ids": ids(OUTPUT_TOKENS),
            "n_docs": 2,
        }
    ),
    "florence_vision": lambda c: {"hidden_states": noise(ROWS, 3, 32, 32)},
    "oneformer": lambda c: {"pixel_values": noise(ROWS, 3, 32, 32), "task_inputs": ids(c.task_seq_len)},
    "granite_speech_encoder": lambda c: {"hidden_states": noise(ROWS, TOKENS, c.input_dim)},
    "granite_speech_plus_encoder": lambda c: {"hidden_states": noise(ROWS, TOKENS, c.input_dim)},
    "audioflamingo3_encoder": lambda c: {
        "input_features": noise(ROWS, c.num_mel_bins, 2 * c.max_source_positions),
        "input_features_mask": torch.ones(ROWS, 2 * c.max_source_positions, dtype=torch.long),
    },
    "dia": lambda c: _words() | {"decoder_input_ids": ids(9 * OUTPUT_TOKENS).view(ROWS, OUTPUT_TOKENS, 9)},
    "mimi_decoder": lambda c: {"latents": noise(ROWS, c.hidden_size, TOKENS)},
    "pocket_tts_audio_tokenizer_decoder": lambda c: {"latents": noise(ROWS, c.hidden_size, TOKENS)},
    "seamless_m4t": lambda c: _words() | {"decoder_input_ids": ids(OUTPUT_TOKENS, seed=2)},
    "seamless_m4t_v2": lambda c: _words() | {"decoder_input_ids": ids(OUTPUT_TOKENS, seed=2)},
    "idefics": lambda c: (
        _words()
        | {
            "pixel_values": noise(ROWS, 1, 3, 32, 32),
            "image_attention_mask": torch.ones(ROWS, TOKENS, 1, dtype=torch.long),
        }
    ),
    "seggpt": lambda c: {
        "pixel_values": noise(ROWS, 3, 32, 32),
        "prompt_pixel_values": noise(ROWS, 3, 32, 32),
        "prompt_masks": noise(ROWS, 3, 32, 32),
    },
}

_NOT_TRIED = {
    "needs the package timm": """
        edgetam edgetam_video edgetam_vision_model fast_vlm gemma3n gemma3n_vision omdet-turbo pe_video
        pe_video_encoder perception_lm timm_backbone timm_wrapper
    """,
    "needs the package natten": "dinat",
    "needs the package torchaudio": "higgs_audio_v2_tokenizer",
    "needs the package detectron2": "layoutlmv2",
    "part of another type, without a model of its own": """
        chameleon_vqgan deepseek_ocr2_encoder edgetam_mask_decoder edgetam_prompt_encoder
        edgetam_video_mask_decoder edgetam_video_prompt_encoder emu3_vqgan gemma4_unified_audio
        gemma4_unified_vision glm_image_vqmodel idefics_perciever idefics_vision layoutxlm pp_chart2table
        pp_chart2table_vision pp_formulanet_text sam2_mask_decoder sam2_prompt_encoder sam2_video_mask_decoder
        sam2_video_prompt_encoder sam3_geometry_encoder sam3_lite_text_geometry_encoder
        sam3_tracker_mask_decoder sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder
        sam3_tracker_video_prompt_encoder sam_hq_mask_decoder sam_hq_prompt_encoder sam_mask_decoder
        sam_prompt_encoder sapiens2_head t5_gemma_module vibevoice_diffusion
    """,
    "runs on a session of a video": "sam2_video sam3_tracker_video sam3_video",
    "too large at every size tried": """
        align align_vision_model bark blt efficientnet emu3 kosmos_2_5_vision_model muse_spark neucodec
        qwen2_5_omni_bigvgan qwen2_5_omni_token2wav vibevoice vibevoice_acoustic_tokenizer
        vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder vibevoice_asr xcodec xcodec2
    """,
    "a vocoder, without attention": "fastspeech2_conformer_hifigan speecht5_hifigan",
    "no small config and inputs that run": """
        blt_local_decoder blt_local_encoder bridgetower_vision_model chmv2 clap clap_audio_model cohere_compass
        cohere_compass_text deepseek_ocr2 deepseek_ocr2_vision depth_pro dia_decoder diffusion_gemma
        diffusion_gemma_text efficientloftr ernie4_5_vl_moe ernie4_5_vl_moe_text esmfold2 fun_asr_nano
        fun_asr_nano_encoder gemma3n_audio gemma4_assistant gemma4_unified_assistant gradium_phonon_tts
        granite4_vision granite_speech5_ctc granite_speech5_encoder hrm_text idefics2_perceiver inkling_audio
        inkling_vision janus_vqgan llama4_vision_model lw_detr minicpm_ocr_vision minicpmv4_6_vision
        minicpmv4_7_vision mllama_vision_model molmo2 molmo2_adapter molmo2_vision moonshine_streaming
        muse_glimmer_assistant muse_spark_audio musicgen musicgen_melody nemo_speechlm
        nemotron3_5_transcribe_audio nemotron3_diarization nemotron_h_omni nougat pe_audio_video
        pe_audio_video_encoder phi4_multimodal_audio pi0 pocket_tts pp_ocrv5_mobile_det pp_ocrv5_server_det
        pp_ocrv6_medium_det pp_ocrv6_small_det qwen2_5_omni qwen2_5_omni_audio_encoder qwen2_5_omni_dit
        qwen3_asr_encoder qwen3_omni_moe qwen3_omni_moe_audio_encoder qwen3_omni_moe_talker_text qwen4_exp
        qwen4_exp_text sam2 sam2_hiera_det_model sam2_vision_model sam3_detr_decoder sam3_detr_encoder
        sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_mask_decoder sam3_mask_decoder
        sam3_tracker shieldgemma2 slanet step3p7 t5gemma2_decoder tipsv2_dpt tvp unlimited_ocr_vision
        unlimited_ocr_vision_encoder uvdoc video_llama_3_vision vitmatte voxtral_realtime voxtral_realtime_text
        zamba
    """,
}
UNBUILT: dict[str, str] = {name: reason for reason, names in _NOT_TRIED.items() for name in names.split()}
"""Types that are not tried, and why."""
