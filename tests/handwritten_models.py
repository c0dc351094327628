"""Tiny random models of architectures whose attention is written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from transformers.models.layoutlmv2.modeling_layoutlmv2 import LayoutLMv2SelfAttention
from transformers.models.oneformer.modeling_oneformer import OneFormerAttention

BATCH, TOKENS, WORDS, HEADS, WIDTH = 2, 11, 97, 3, 24
Batch = dict[str, Any]

BERT: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "intermediate_size": 32, "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
_GPT: dict[str, Any] = {
    "vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 64, "pad_token_id": 1,
    "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
_BART: dict[str, Any] = {
    "vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "decoder_ffn_dim": 32, "pad_token_id": 1,
    "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 2,
}  # fmt: skip
_SWIN: dict[str, Any] = {
    "image_size": 32, "patch_size": 4, "embed_dim": 12, "depths": [2], "num_heads": [HEADS], "window_size": 4,
}  # fmt: skip
_RESNET: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_sizes": [8] * 4,
    "depths": [1] * 4,
    "out_features": ["stage4"],
}
_DETR: dict[str, Any] = {
    "use_timm_backbone": False, "backbone": None, "encoder_layers": 2, "decoder_layers": 2, "num_queries": 5,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}  # fmt: skip


def ids(tokens: int = TOKENS) -> Tensor:
    return torch.randint(5, WORDS, (BATCH, tokens), generator=torch.Generator().manual_seed(tokens))


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def boxes() -> Tensor:
    return torch.randint(0, 20, (BATCH, TOKENS, 4), generator=torch.Generator().manual_seed(1)).sort(-1).values


class WithoutWeights(nn.Module):
    """An attention module without the rest of its model."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, **inputs: Any) -> Tensor:
        return self.attention(**inputs)[0]


TEXT: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "codegen": (lambda: hf.CodeGenForCausalLM(hf.CodeGenConfig(**_GPT | {"n_head": 4, "rotary_dim": 4})), dict),
    "mpt": (
        lambda: hf.MptForCausalLM(
            hf.MptConfig(vocab_size=WORDS, d_model=WIDTH, n_layers=2, n_heads=HEADS, max_seq_len=64)
        ),
        dict,
    ),
    "xlnet": (
        lambda: hf.XLNetLMHeadModel(
            hf.XLNetConfig(vocab_size=WORDS, d_model=WIDTH, n_layer=2, n_head=HEADS, d_inner=32)
        ),
        dict,
    ),
    "xglm": (
        lambda: hf.XGLMForCausalLM(
            hf.XGLMConfig(vocab_size=WORDS, d_model=WIDTH, num_layers=2, attention_heads=HEADS, ffn_dim=32)
        ),
        dict,
    ),
    "openai-gpt": (lambda: hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(**_GPT)), dict),
    "roformer": (lambda: hf.RoFormerModel(hf.RoFormerConfig(**BERT)), dict),
    "rembert": (lambda: hf.RemBertModel(hf.RemBertConfig(**BERT, input_embedding_size=16)), dict),
    "deberta": (
        lambda: hf.DebertaModel(
            hf.DebertaConfig(**BERT, relative_attention=True, pos_att_type="c2p|p2c", max_relative_positions=16)
        ),
        dict,
    ),
    "luke": (
        lambda: hf.LukeModel(hf.LukeConfig(**BERT, entity_vocab_size=13, entity_emb_size=16)),
        lambda: {
            "entity_ids": torch.tensor([[1, 2], [3, 4]]),
            "entity_position_ids": torch.tensor([[[0, 1, -1], [4, -1, -1]]] * 2),
            "entity_attention_mask": torch.tensor([[1, 1], [1, 0]]),
        },
    ),
    "luke words": (lambda: hf.LukeModel(hf.LukeConfig(**BERT, entity_vocab_size=13, entity_emb_size=16)), dict),
    "led": (
        lambda: hf.LEDForConditionalGeneration(hf.LEDConfig(**_BART, attention_window=4)),
        lambda: {"decoder_input_ids": ids(7)},
    ),
    "longformer": (lambda: hf.LongformerModel(hf.LongformerConfig(**BERT, attention_window=4)), dict),
    "big_bird": (lambda: hf.BigBirdModel(hf.BigBirdConfig(**BERT, attention_type="original_full")), dict),
    "bros": (
        lambda: hf.BrosModel(hf.BrosConfig(**BERT | {"hidden_size": 64, "num_attention_heads": 4})),
        lambda: {"bbox": boxes() / 20},
    ),
    "canine": (lambda: hf.CanineModel(hf.CanineConfig(**BERT)), dict),
    "convbert": (lambda: hf.ConvBertModel(hf.ConvBertConfig(**BERT, embedding_size=WIDTH)), dict),
    "flaubert": (
        lambda: hf.FlaubertModel(
            hf.FlaubertConfig(n_words=WORDS, vocab_size=WORDS, emb_dim=WIDTH, n_layers=2, n_heads=HEADS)
        ),
        dict,
    ),
    "xlm": (
        lambda: hf.XLMModel(
            hf.XLMConfig(n_words=WORDS, vocab_size=WORDS, emb_dim=WIDTH, n_layers=2, n_heads=HEADS, mask_index=5)
        ),
        dict,
    ),
    "fsmt": (
        lambda: hf.FSMTForConditionalGeneration(
            hf.FSMTConfig(**_BART, langs=["en", "de"], src_vocab_size=WORDS, tgt_vocab_size=WORDS)
        ),
        lambda: {"decoder_input_ids": ids(7)},
    ),
    "funnel": (
        lambda: hf.FunnelModel(
            hf.FunnelConfig(
                vocab_size=WORDS,
                block_sizes=[1, 2],
                num_decoder_layers=1,
                d_model=WIDTH,
                n_head=HEADS,
                d_head=8,
                d_inner=32,
            )
        ),
        dict,
    ),
    "gpt_neox_japanese": (lambda: hf.GPTNeoXJapaneseForCausalLM(hf.GPTNeoXJapaneseConfig(**BERT)), dict),
    "ibert": (lambda: hf.IBertModel(hf.IBertConfig(**BERT)), dict),
    "imagegpt": (lambda: hf.ImageGPTModel(hf.ImageGPTConfig(**_GPT)), dict),
    "layoutlmv3": (
        lambda: hf.LayoutLMv3Model(
            hf.LayoutLMv3Config(
                **BERT,
                coordinate_size=4,
                shape_size=4,
                has_relative_attention_bias=True,
                has_spatial_attention_bias=True,
                visual_embed=False,
            )
        ),
        lambda: {"bbox": boxes()},
    ),
    "megatron-bert": (lambda: hf.MegatronBertModel(hf.MegatronBertConfig(**BERT)), dict),
    "mvp": (lambda: hf.MvpForConditionalGeneration(hf.MvpConfig(**_BART)), lambda: {"decoder_input_ids": ids(7)}),
    "squeezebert": (lambda: hf.SqueezeBertModel(hf.SqueezeBertConfig(**BERT, embedding_size=WIDTH)), dict),
    "tapas": (lambda: hf.TapasModel(hf.TapasConfig(**BERT)), dict),
    "trocr": (lambda: hf.TrOCRForCausalLM(hf.TrOCRConfig(**_BART)), dict),
    "visual_bert": (lambda: hf.VisualBertModel(hf.VisualBertConfig(**BERT)), dict),
}

OTHERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch]]] = {
    "bark": (
        lambda: hf.BarkSemanticModel(
            hf.BarkSemanticConfig(
                block_size=64,
                input_vocab_size=WORDS,
                output_vocab_size=WORDS,
                num_layers=2,
                num_heads=HEADS,
                hidden_size=WIDTH,
            )
        ),
        lambda: {"input_ids": ids()},
    ),
    "clap": (
        lambda: hf.ClapAudioModel(
            hf.ClapAudioConfig(
                hidden_size=WIDTH,
                depths=[1, 1],
                num_attention_heads=[2, 2],
                patch_embeds_hidden_size=12,
                spec_size=64,
                window_size=4,
                num_mel_bins=16,
                patch_size=4,
            )
        ),
        lambda: {"input_features": noise(BATCH, 1, 256, 16)},
    ),
    "clvp": (
        lambda: hf.ClvpForCausalLM(
            hf.ClvpDecoderConfig(
                vocab_size=WORDS,
                hidden_size=WIDTH,
                num_hidden_layers=2,
                num_attention_heads=HEADS,
                max_position_embeddings=64,
                max_text_tokens=64,
                num_mel_attn_blocks=1,
                feature_size=8,
            )
        ),
        lambda: {"input_ids": ids()},
    ),
    "cpmant": (
        lambda: hf.CpmAntModel(
            hf.CpmAntConfig(
                vocab_size=WORDS,
                hidden_size=WIDTH,
                num_attention_heads=HEADS,
                dim_head=8,
                dim_ff=32,
                num_hidden_layers=2,
                prompt_length=3,
                segment_types=5,
            )
        ),
        lambda: {"input_ids": ids()},
    ),
    "cvt": (
        lambda: hf.CvtModel(hf.CvtConfig(embed_dim=[12, 24, 36], num_heads=[1, 3, 3], depth=[1, 2, 3])),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "dab-detr": (
        lambda: hf.DabDetrModel(
            hf.DabDetrConfig(**_DETR, hidden_size=WIDTH, backbone_config=hf.ResNetConfig(**_RESNET))
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "data2vec-vision": (
        lambda: hf.Data2VecVisionModel(hf.Data2VecVisionConfig(**BERT, image_size=32, patch_size=8)),
        lambda: {"pixel_values": noise(BATCH, 3, 32, 32)},
    ),
    "donut-swin": (
        lambda: hf.DonutSwinModel(hf.DonutSwinConfig(**_SWIN)),
        lambda: {"pixel_values": noise(2, 3, 32, 32)},
    ),
    "swinv2": (lambda: hf.Swinv2Model(hf.Swinv2Config(**_SWIN)), lambda: {"pixel_values": noise(2, 3, 32, 32)}),
    "swin2sr": (
        lambda: hf.Swin2SRModel(hf.Swin2SRConfig(**_SWIN | {"patch_size": 1})),
        lambda: {"pixel_values": noise(BATCH, 3, 8, 8)},
    ),
    "glpn": (
        lambda: hf.GLPNModel(hf.GLPNConfig(depths=[1] * 4, hidden_sizes=[8, 16, 40, 64])),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "layoutlmv2": (  # the whole model needs detectron2
        lambda: WithoutWeights(
            LayoutLMv2SelfAttention(
                hf.LayoutLMv2Config(**BERT, has_relative_attention_bias=True, has_spatial_attention_bias=True)
            )
        ),
        lambda: {
            "hidden_states": noise(BATCH, TOKENS, WIDTH).requires_grad_(),
            "attention_mask": torch.where(padding("right").bool(), 0.0, -1e9)[:, None, None],
            "rel_pos": noise(BATCH, HEADS, TOKENS, TOKENS),
            "rel_2d_pos": noise(BATCH, HEADS, TOKENS, TOKENS),
        },
    ),
    "levit": (
        lambda: hf.LevitModel(
            hf.LevitConfig(
                hidden_sizes=[16, 24, 32], num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8] * 3
            )
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 224, 224)},
    ),
    "lxmert": (
        lambda: hf.LxmertModel(hf.LxmertConfig(**BERT, l_layers=1, r_layers=1, x_layers=1, visual_feat_dim=17)),
        lambda: {"input_ids": ids(), "visual_feats": noise(BATCH, 5, 17), "visual_pos": noise(BATCH, 5, 4)},
    ),
    "mgp-str": (
        lambda: hf.MgpstrModel(
            hf.MgpstrConfig(image_size=[32, 32], hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS)
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 32, 32)},
    ),
    "mobilevit": (
        lambda: hf.MobileViTModel(
            hf.MobileViTConfig(image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 8])
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "oneformer": (  # the whole model is large
        lambda: WithoutWeights(OneFormerAttention(WIDTH, HEADS)),
        lambda: {
            "hidden_states": noise(TOKENS, BATCH, WIDTH),
            "position_embeddings": noise(TOKENS, BATCH, WIDTH),
        },
    ),
    "perceiver": (
        lambda: hf.PerceiverModel(
            hf.PerceiverConfig(
                d_model=WIDTH,
                d_latents=30,
                num_latents=5,
                num_self_attends_per_block=2,
                num_self_attention_heads=3,
                num_cross_attention_heads=1,
            )
        ),
        lambda: {"inputs": noise(BATCH, TOKENS, WIDTH)},
    ),
    "pvt": (
        lambda: hf.PvtModel(hf.PvtConfig(image_size=64, depths=[1] * 4, hidden_sizes=[8, 16, 40, 64])),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "pvt_v2": (
        lambda: hf.PvtV2Model(hf.PvtV2Config(image_size=64, depths=[1] * 4, hidden_sizes=[8, 16, 40, 64])),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "sam": (
        lambda: hf.SamVisionModel(
            hf.SamVisionConfig(
                hidden_size=WIDTH,
                num_hidden_layers=2,
                num_attention_heads=HEADS,
                image_size=64,
                patch_size=8,
                window_size=3,
                global_attn_indexes=[1],
                mlp_dim=32,
                output_channels=8,
            )
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "sam_hq": (
        lambda: hf.SamHQVisionModel(
            hf.SamHQVisionConfig(
                hidden_size=WIDTH,
                num_hidden_layers=2,
                num_attention_heads=HEADS,
                image_size=64,
                patch_size=8,
                window_size=3,
                global_attn_indexes=[1],
                mlp_dim=32,
                output_channels=8,
            )
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "speecht5": (
        lambda: hf.SpeechT5ForSpeechToText(
            hf.SpeechT5Config(
                vocab_size=WORDS,
                hidden_size=WIDTH,
                encoder_layers=2,
                decoder_layers=2,
                encoder_attention_heads=HEADS,
                decoder_attention_heads=HEADS,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                num_conv_pos_embedding_groups=2,
                conv_dim=(8,) * 7,
                mask_time_length=2,
            )
        ),
        lambda: {"input_values": noise(BATCH, 3000), "decoder_input_ids": ids(7)},
    ),
    "table-transformer": (
        lambda: hf.TableTransformerModel(
            hf.TableTransformerConfig(**_DETR, d_model=WIDTH, backbone_config=hf.ResNetConfig(**_RESNET))
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 64, 64)},
    ),
    "timesformer": (
        lambda: hf.TimesformerModel(hf.TimesformerConfig(**BERT, image_size=32, patch_size=8, num_frames=2)),
        lambda: {"pixel_values": noise(BATCH, 2, 3, 32, 32)},
    ),
    "vitdet": (
        lambda: hf.VitDetModel(
            hf.VitDetConfig(
                hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, image_size=32, patch_size=8
            )
        ),
        lambda: {"pixel_values": noise(BATCH, 3, 32, 32)},
    ),
}


@torch.no_grad()
def build(make: Callable[[], nn.Module]) -> nn.Module:
    """Weights that are neither flat nor saturated, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p.normal_(0, 1.5 / p[0].numel() ** 0.5)
            elif "norm" not in name.lower() and "ln" not in name.lower():
                p.normal_(0, 0.3)
    return model


def padding(side: str) -> Tensor:
    real = torch.ones(BATCH, TOKENS, dtype=torch.long)
    real[1, slice(7, None) if side == "right" else slice(0, 4)] = 0
    return real


def text_batch(name: str, side: str | None) -> Batch:
    batch = {"input_ids": ids()} | TEXT[name][1]()
    return batch if side is None else batch | {"attention_mask": padding(side)}
