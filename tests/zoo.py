"""The zoo: one tiny random model per architecture family, with the facts about its heads written by hand.

>>> entry = ZOO["llama"]
>>> model = entry.build()
>>> model(**entry.inputs(model))

Sizes are odd where the config allows it, and the width of the residual stream differs from heads × head size where
that can be, so that a swapped axis crashes. Weights are drawn so that attention logits have a spread of 1 or more:
a test on such a model notices a forgotten mask, scale or rotation. Every `build()` gives a new model with the same
numbers; `model(name)` is the one that is kept, for tests that only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from zoo_blocks import Blocks, NanoAttention, OurAttention, TimmAttention, TorchCross, TorchDecoder

Batch = dict[str, Any]

VOCABULARY, TOKENS, OUTPUT_TOKENS, KEPT = 101, 11, 7, 6  # KEPT: real tokens of the second, padded row
POSITIONS = 37


@dataclass(frozen=True)
class Stack:
    """Attention sites of one kind, all with the same heads: what anatomy and capture must find."""

    name: str  # "encoder", "decoder", "vision", "text"
    sites: int  # modules that call attention, each counted once
    heads: int
    kv_heads: int
    head_dim: int
    cross: bool = False
    turns: int = 1  # how often each of them runs in one forward (ALBERT: one layer, several depths)


@dataclass(frozen=True)
class Entry:
    name: str
    make: Callable[[], nn.Module]
    stacks: tuple[Stack, ...]
    batch: Callable[[bool], Batch]
    padding: bool = True  # is there a padded batch at all
    tags: frozenset[str] = field(default_factory=frozenset[str])  # "rotary", "window", "softcap", "eager", ...

    def build(self) -> nn.Module:
        """A new model, eval, fp32, always the same numbers."""
        state = torch.random.get_rng_state()
        torch.manual_seed(0)
        try:
            model = self.make().float().eval()
            _draw(model)
        finally:
            torch.random.set_rng_state(state)
        return model

    def inputs(self, model: nn.Module) -> Batch:
        """Two rows, all tokens real."""
        return self.batch(False)

    def padded(self, model: nn.Module) -> Batch | None:
        """Two rows, the second with padding behind its KEPT tokens; None where there is no such thing (vision)."""
        return self.batch(True) if self.padding else None

    @property
    def sites(self) -> int:
        return sum(stack.sites for stack in self.stacks)


@cache
def model(name: str) -> nn.Module:
    """The one kept model of this name: to read, not to write."""
    return ZOO[name].build()


_QK_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm")  # they set the spread of the logits


@torch.no_grad()
def _draw(model: nn.Module) -> None:
    """Weights of spread 1.5 / √fan-in, tables of spread 1; biases, norms and sinks off their defaults."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for name, x in model.named_parameters():
        if x.dim() < 2:
            x.add_(torch.randn_like(x) * 0.3)
            x.add_(0.8 if any(norm in name for norm in _QK_NORMS) else 0.0)
        elif id(x) in tables:
            x.normal_(0.0, 1.0)
        elif x.dim() == 2:
            x.normal_(0.0, 1.5 * min(x.shape) ** -0.5)
        else:
            x.normal_(0.0, 0.3)


# ---- batches ----------------------------------------------------------------------------------


def _ids(tokens: int = TOKENS, seed: int = 0) -> Tensor:
    # From 5 on: below are the special tokens, and a padding id in the text would shift RoBERTa's positions.
    return torch.randint(5, VOCABULARY, (2, tokens), generator=torch.Generator().manual_seed(seed))


def _kept(tokens: int = TOKENS, kept: int = KEPT) -> Tensor:
    return (torch.arange(tokens) < torch.tensor([[tokens], [kept]])).long()


def _noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def text(padded: bool) -> Batch:
    if not padded:
        return {"input_ids": _ids()}
    kept = _kept()
    return {"input_ids": _ids() * kept + (1 - kept), "attention_mask": kept}  # 1: the padding id of RoBERTa and kin


def text_to_text(padded: bool) -> Batch:
    return text(padded) | {"decoder_input_ids": _ids(OUTPUT_TOKENS, seed=2)}


def speech_to_text(padded: bool) -> Batch:
    batch: Batch = {"input_features": _noise(2, 10, 26), "decoder_input_ids": _ids(OUTPUT_TOKENS, seed=2)}
    if padded:
        batch["decoder_attention_mask"] = _kept(OUTPUT_TOKENS, 4)
    return batch


def image(padded: bool) -> Batch:
    return {"pixel_values": _noise(2, 3, 15, 15)}


def text_and_image(padded: bool) -> Batch:
    return text(padded) | image(padded)


def vectors(width: int, padded_name: str | None = None) -> Callable[[bool], Batch]:
    """For models without a vocabulary: x, and the name of their padding mask (True: padding, as in torch)."""

    def batch(padded: bool) -> Batch:
        x: Batch = {"src": _noise(2, TOKENS, width)}
        return x | {padded_name: _kept() == 0} if padded and padded_name else x

    return batch


# ---- Hugging Face -----------------------------------------------------------------------------

_PAD = {"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_BERT = _PAD | {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "max_position_embeddings": POSITIONS,
}
# 36: some configs want a multiple of the heads, and the experts' kernel wants multiples of four floats.
_LLAMA = _PAD | {
    "hidden_size": 36,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 20,
    "max_position_embeddings": POSITIONS,
}
# Families whose head size is width / heads.
_TIED = _LLAMA | {"hidden_size": 24}
_SEQ = _PAD | {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 19,
    "decoder_ffn_dim": 19,
    "decoder_start_token_id": 0,
}
_VIT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "image_size": 15,
    "patch_size": 5,
}


def _hf(config: str, model: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made

    return make


def _towers(config: str, model: str, text_config: Batch, vision_config: Batch) -> Callable[[], nn.Module]:
    return _hf(config, model, text_config=text_config, vision_config=vision_config)


_LAYERS = 2


def _encoder(name: str, make: Callable[[], nn.Module], *tags: str, **stack: int) -> Entry:
    facts = {"sites": _LAYERS, "heads": 3, "kv_heads": 3, "head_dim": 8} | stack
    return Entry(name, make, (Stack("encoder", **facts),), text, tags=frozenset(tags))


def _decoder(name: str, make: Callable[[], nn.Module], *tags: str, **stack: int) -> Entry:
    facts = {"sites": _LAYERS, "heads": 3, "kv_heads": 3, "head_dim": 8} | stack
    return Entry(name, make, (Stack("decoder", **facts),), text, tags=frozenset(tags))


def _grouped(name: str, make: Callable[[], nn.Module], *tags: str, **stack: int) -> Entry:
    return _decoder(name, make, *tags, **({"heads": 6, "kv_heads": 2, "head_dim": 4} | stack))


def _both(
    name: str, make: Callable[[], nn.Module], batch: Callable[[bool], Batch], *tags: str, layers: int = _LAYERS
) -> Entry:
    stacks = (
        Stack("encoder", layers, 3, 3, 8),
        Stack("decoder", layers, 3, 3, 8),
        Stack("decoder", layers, 3, 3, 8, cross=True),
    )
    return Entry(name, make, stacks, batch, tags=frozenset(tags))


def _vision(name: str, make: Callable[[], nn.Module], *tags: str) -> Entry:
    return Entry(
        name, make, (Stack("vision", _LAYERS, 3, 3, 8),), image, padding=False, tags=frozenset({*tags, "vision"})
    )


def _distilbert() -> nn.Module:
    return _hf(
        "DistilBertConfig", "DistilBertForMaskedLM", vocab_size=VOCABULARY, max_position_embeddings=POSITIONS,
        n_layers=2, n_heads=3, dim=24, hidden_dim=19, pad_token_id=1,
    )()  # fmt: skip


_FALCON = _PAD | {"num_hidden_layers": 2, "ffn_hidden_size": 19, "max_position_embeddings": POSITIONS}

_HF = (
    # encoders
    _encoder("bert", _hf("BertConfig", "BertForMaskedLM", **_BERT)),
    _encoder("roberta", _hf("RobertaConfig", "RobertaForMaskedLM", **_BERT)),
    _encoder("distilbert", _distilbert),
    _encoder(
        "albert",
        _hf("AlbertConfig", "AlbertForMaskedLM", **_BERT | {"embedding_size": 13, "num_hidden_layers": 3}),
        "shared", sites=1, turns=3,
    ),
    _encoder("electra", _hf("ElectraConfig", "ElectraForMaskedLM", **_BERT | {"embedding_size": 13})),
    _encoder("mpnet", _hf("MPNetConfig", "MPNetForMaskedLM", **_BERT), "adapter", "bias"),
    _encoder(
        "deberta-v2",
        _hf(
            "DebertaV2Config", "DebertaV2ForMaskedLM", **_BERT, relative_attention=True, position_buckets=5,
            pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
        ),
        "adapter", "bias",
    ),
    _encoder(
        "modernbert",
        _hf(
            "ModernBertConfig", "ModernBertForMaskedLM", **_BERT | {"num_hidden_layers": 3}, local_attention=4,
            global_attn_every_n_layers=3, cls_token_id=0, sep_token_id=2,
        ),
        "rotary", "window", "packed", sites=3,
    ),
    # decoders, a kv head for every query head
    _decoder(
        "gpt2", _hf("GPT2Config", "GPT2LMHeadModel", **_PAD, n_embd=24, n_layer=2, n_head=3, n_positions=POSITIONS),
        "packed", "transposed",
    ),
    _decoder(
        "gpt-neo",
        _hf(
            "GPTNeoConfig", "GPTNeoForCausalLM", **_PAD, hidden_size=24, num_layers=2, num_heads=3,
            attention_types=[[["global", "local"], 1]], window_size=4, intermediate_size=19,
            max_position_embeddings=POSITIONS,
        ),
        "adapter", "window",
    ),
    _decoder(
        "gpt-j",
        _hf(
            "GPTJConfig", "GPTJForCausalLM", **_PAD, n_embd=24, n_layer=2, n_head=3, n_positions=POSITIONS,
            rotary_dim=4,
        ),
        "adapter", "rotary",
    ),
    _decoder(
        "gpt-neox", _hf("GPTNeoXConfig", "GPTNeoXForCausalLM", **_BERT, rotary_pct=0.5),
        "rotary", "packed", "interleaved",
    ),
    _decoder(
        "opt",
        _hf(
            "OPTConfig", "OPTForCausalLM", **_PAD, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
            ffn_dim=19, max_position_embeddings=POSITIONS, word_embed_proj_dim=24,
        ),
    ),
    _decoder(
        "bloom", _hf("BloomConfig", "BloomForCausalLM", **_PAD, hidden_size=24, n_layer=2, n_head=3),
        "adapter", "bias", "packed", "interleaved",
    ),
    _decoder(
        "falcon-multi-query",
        _hf(
            "FalconConfig", "FalconForCausalLM", **_FALCON, hidden_size=24, num_attention_heads=3, multi_query=True
        ),
        "rotary", "packed", kv_heads=1,
    ),
    _decoder(
        "falcon-grouped",
        _hf(
            "FalconConfig", "FalconForCausalLM", **_FALCON, hidden_size=24, num_attention_heads=6, num_kv_heads=2,
            new_decoder_architecture=True, bias=True,
        ),
        "rotary", "packed", "interleaved", heads=6, kv_heads=2, head_dim=4,
    ),
    _decoder(
        "falcon-alibi",
        _hf(
            "FalconConfig", "FalconForCausalLM", **_FALCON, hidden_size=24, num_attention_heads=3,
            multi_query=False, alibi=True, bias=True,
        ),
        "bias", "packed", "interleaved",
    ),
    # decoders with grouped heads
    _grouped("llama", _hf("LlamaConfig", "LlamaForCausalLM", **_LLAMA), "rotary"),
    _grouped("mistral", _hf("MistralConfig", "MistralForCausalLM", **_LLAMA, sliding_window=4), "rotary", "window"),
    _grouped(
        "mixtral",
        _hf(
            "MixtralConfig", "MixtralForCausalLM", **_LLAMA, sliding_window=None, num_local_experts=3,
            num_experts_per_tok=2,
        ),
        "rotary",
    ),
    _grouped("qwen2", _hf("Qwen2Config", "Qwen2ForCausalLM", **_TIED), "rotary"),
    _grouped("qwen3", _hf("Qwen3Config", "Qwen3ForCausalLM", **_LLAMA), "rotary", "qk_norm"),
    _grouped("gemma", _hf("GemmaConfig", "GemmaForCausalLM", **_LLAMA), "rotary"),
    _grouped(
        "gemma2",
        _hf(
            "Gemma2Config", "Gemma2ForCausalLM", **_LLAMA, sliding_window=4, query_pre_attn_scalar=5,
            attn_logit_softcapping=3.0, final_logit_softcapping=7.0,
        ),
        "rotary", "window", "softcap", "eager",
    ),
    _grouped(
        "gemma3",
        _hf(
            "Gemma3TextConfig", "Gemma3ForCausalLM", **_LLAMA | {"num_hidden_layers": 3}, sliding_window=4,
            query_pre_attn_scalar=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        "rotary", "window", "qk_norm", sites=3,
    ),
    _grouped("phi3", _hf("Phi3Config", "Phi3ForCausalLM", **_TIED), "rotary", "packed"),
    _grouped("olmo2", _hf("Olmo2Config", "Olmo2ForCausalLM", **_TIED), "rotary", "qk_norm"),
    _grouped(
        "stablelm",
        _hf("StableLmConfig", "StableLmForCausalLM", **_TIED, partial_rotary_factor=0.5, use_qkv_bias=True),
        "rotary",
    ),
    _grouped(
        "stablelm-qk-norm",
        _hf("StableLmConfig", "StableLmForCausalLM", **_TIED, partial_rotary_factor=0.5, qk_layernorm=True),
        "rotary", "qk_norm",
    ),
    _grouped("cohere", _hf("CohereConfig", "CohereForCausalLM", **_TIED), "rotary"),
    _grouped("smollm3", _hf("SmolLM3Config", "SmolLM3ForCausalLM", **_TIED, no_rope_layers=[1, 0]), "rotary"),
    _grouped(
        "gpt-oss",
        _hf(
            "GptOssConfig", "GptOssForCausalLM", **_LLAMA, sliding_window=4, num_local_experts=3,
            num_experts_per_tok=2, layer_types=["sliding_attention", "full_attention"],
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
        "rotary", "window", "sinks", "eager",
    ),
    # encoder and decoder
    _both(
        "t5",
        _hf(
            "T5Config", "T5ForConditionalGeneration", **_PAD, d_model=20, d_kv=8, num_heads=3, d_ff=19,
            num_layers=2, num_decoder_layers=2, relative_attention_num_buckets=6, relative_attention_max_distance=9,
            decoder_start_token_id=0,
        ),
        text_to_text, "bias",
    ),
    _both(
        "bart", _hf("BartConfig", "BartForConditionalGeneration", **_SEQ, max_position_embeddings=POSITIONS),
        text_to_text,
    ),
    _both("marian", _hf("MarianConfig", "MarianMTModel", **_SEQ, max_position_embeddings=POSITIONS), text_to_text),
    _both(
        "whisper",
        _hf(
            "WhisperConfig", "WhisperForConditionalGeneration", **_SEQ, num_mel_bins=10, max_source_positions=13,
            max_target_positions=POSITIONS,
        ),
        speech_to_text,
    ),
    # vision
    _vision("vit", _hf("ViTConfig", "ViTModel", **_VIT)),
    _vision("deit", _hf("DeiTConfig", "DeiTModel", **_VIT)),
    _vision("dinov2", _hf("Dinov2Config", "Dinov2Model", **_VIT)),
    Entry(
        "clip",
        _towers("CLIPConfig", "CLIPModel", _BERT | {"hidden_size": 12, "projection_dim": 13}, _VIT),
        (Stack("text", _LAYERS, 3, 3, 4), Stack("vision", _LAYERS, 3, 3, 8)),
        text_and_image,
    ),
    Entry(
        "siglip",
        _towers("SiglipConfig", "SiglipModel", _BERT | {"hidden_size": 24}, _VIT),
        (
            Stack("text", _LAYERS, 3, 3, 8),
            Stack("vision", _LAYERS, 3, 3, 8),
            Stack("vision", 1, 3, 3, 8, cross=True),  # the pooling head: a learned probe asks the patches
        ),
        text_and_image,
    ),
)  # fmt: skip


# ---- torch's own, and layouts of other libraries ----------------------------------------------


def _torch_decoder_batch(padded: bool) -> Batch:
    batch: Batch = {"src": _noise(2, OUTPUT_TOKENS, 24), "memory": _noise(2, TOKENS, 24, seed=3)}
    return batch | {"memory_key_padding_mask": _kept() == 0} if padded else batch


def _torch_transformer_batch(padded: bool) -> Batch:
    batch: Batch = {"src": _noise(2, TOKENS, 24), "tgt": _noise(2, OUTPUT_TOKENS, 24, seed=3)}
    if padded:
        batch |= {"src_key_padding_mask": _kept() == 0, "memory_key_padding_mask": _kept() == 0}
    return batch


def _torch_encoder(heads: int) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        layer = nn.TransformerEncoderLayer(24, heads, 19, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    return make


def _nano_batch(padded: bool) -> Batch:
    return {"src": _ids()}


_REST = (
    Entry(
        "torch-encoder", _torch_encoder(3), (Stack("encoder", 2, 3, 3, 8),), vectors(24, "src_key_padding_mask"),
        tags=frozenset({"torch"}),
    ),
    Entry(  # an even number of heads: the one case where torch takes its fused layer in eval without gradients
        "torch-encoder-fast", _torch_encoder(4), (Stack("encoder", 2, 4, 4, 6),),
        vectors(24, "src_key_padding_mask"), tags=frozenset({"torch"}),
    ),
    Entry(
        "torch-decoder", TorchDecoder, (Stack("decoder", 2, 3, 3, 8), Stack("decoder", 2, 3, 3, 8, cross=True)),
        _torch_decoder_batch, tags=frozenset({"torch"}),
    ),
    Entry(
        "torch-transformer", lambda: nn.Transformer(24, 3, 2, 2, 19, batch_first=True),
        (Stack("encoder", 2, 3, 3, 8), Stack("decoder", 2, 3, 3, 8), Stack("decoder", 2, 3, 3, 8, cross=True)),
        _torch_transformer_batch, tags=frozenset({"torch"}),
    ),
    Entry(
        "torch-cross", TorchCross, (Stack("decoder", 1, 3, 3, 8, cross=True),), vectors(24, "key_padding_mask"),
        tags=frozenset({"torch"}),
    ),
    Entry(
        "timm", lambda: Blocks([TimmAttention(24, 3) for _ in range(2)], 24), (Stack("encoder", 2, 3, 3, 8),),
        vectors(24), padding=False, tags=frozenset({"packed"}),
    ),
    Entry(
        "nanogpt", lambda: Blocks([NanoAttention(24, 3) for _ in range(2)], 24, VOCABULARY),
        (Stack("decoder", 2, 3, 3, 8),), _nano_batch, padding=False, tags=frozenset({"packed"}),
    ),
    Entry(
        "multihead", lambda: Blocks([OurAttention(20) for _ in range(2)], 20), (Stack("decoder", 2, 6, 2, 4),),
        vectors(20, "padding"), tags=frozenset({"rotary"}),
    ),
)  # fmt: skip

ZOO: dict[str, Entry] = {entry.name: entry for entry in (*_HF, *_REST)}

COVERING = (
    "bert", "distilbert", "albert", "mpnet", "deberta-v2", "modernbert", "gpt2", "gpt-neo", "gpt-j", "gpt-neox",
    "bloom", "falcon-grouped", "llama", "qwen3", "gemma2", "phi3", "gpt-oss", "t5", "bart", "vit", "clip",
    "torch-encoder-fast", "torch-cross", "timm", "nanogpt", "multihead",
)  # fmt: skip
"""What the fast tier runs: every weight layout with every position scheme, and every tag (test_zoo_anatomy.py)."""
