"""Adapters for Hugging Face models whose attention is written by hand."""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer import mask as masks
from multihead.model.adapters import Adapter, Attend
from multihead.model.kernel_arguments import mask_of
from multihead.model.lazy_scores import lazily


def _openai_gpt(
    module: Any,
    attend: Attend,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_mask: Tensor | None = None,
    output_attentions: bool = False,
) -> list[Tensor]:
    """OpenAI GPT by hand: softmax(q k / √d) v with causality; k comes transposed."""
    mask = mask_of(attention_mask) & masks.causal()
    scale = v.shape[-1] ** -0.5 if module.scale else 1.0
    dropout = module.attn_dropout.p if module.training else 0.0
    return [attend(q, k.mT, v, mask=mask, scale=scale, dropout=dropout)]


def _gpt_2_upcast(
    module: Any, attend: Attend, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scaling) v in float32, as GPT-2 does with `reorder_and_upcast_attn`; (query, head, dim)."""
    dropout = module.attn_dropout.p if module.training else 0.0
    q, k, v = query.float(), key.float(), value.float()
    heads = attend(q, k, v, mask=mask_of(attention_mask), scale=module.scaling, dropout=dropout)
    return heads.to(value.dtype).transpose(1, 2), None


def _luke(
    module: Any,
    attend: Attend,
    word_hidden_states: Tensor,
    entity_hidden_states: Tensor | None,
    attention_mask: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """LUKE (Yamada et al. 2020): softmax(q kᵀ / √d) v over words and entities, a query for either kind of key.

    Queries are [q to words, q to entities], keys are [k, 0] for words and [0, k] for entities: their product is
    the score that each pair of kinds has in the module.
    """
    words, size = word_hidden_states.shape[1], module.attention_head_size
    if entity_hidden_states is None or not module.use_entity_aware_attention:
        return lazily(module, attend, "forward", word_hidden_states, entity_hidden_states, attention_mask)
    tokens = torch.cat([word_hidden_states, entity_hidden_states], dim=1)
    k, v = _split(module.key(tokens), size), _split(module.value(tokens), size)
    to_words = torch.cat([module.query(word_hidden_states), module.e2w_query(entity_hidden_states)], dim=1)
    to_entities = torch.cat([module.w2e_query(word_hidden_states), module.e2e_query(entity_hidden_states)], dim=1)
    q = torch.cat([_split(to_words, size), _split(to_entities, size)], dim=3)
    is_word = (torch.arange(tokens.shape[1], device=k.device) < words)[:, None]
    k = torch.cat([k * is_word, k * ~is_word], dim=3)
    dropout = module.dropout.p if module.training else 0.0
    z = attend(q, k, v, mask=attention_mask, scale=size**-0.5, dropout=dropout).transpose(1, 2).flatten(2)
    return z[:, :words], z[:, words:]


def _longformer(
    module: Any,
    attend: Attend,
    hidden_states: Tensor,
    attention_mask: Tensor,
    is_index_masked: Tensor,
    is_index_global_attn: Tensor | None = None,
    is_global_attn: bool = False,
    output_attentions: bool = False,
) -> tuple[Tensor]:
    """Longformer (Beltagy et al. 2020): softmax(q kᵀ / √d) v over a window around each token; none for padding."""
    if is_global_attn:
        raise MultiheadError(
            f"{type(module).__name__} has queries, keys and values of their own for global tokens, which multihead "
            f"cannot show; the batch has {int(cast(Tensor, is_index_global_attn).sum())} of them",
            hint="run the model without global_attention_mask; models for classification and questions set one "
            "themselves: run the encoder inside them, for example model.longformer(**batch)",
        )
    size, reach = module.head_dim, module.one_sided_attn_window_size
    q, k, v = (_split(linear(hidden_states), size) for linear in (module.query, module.key, module.value))
    real = ~is_index_masked
    mask = masks.window(reach + 1, reach) & masks.padding(real)
    mask = mask & masks.where(lambda batch, head, query, key: real[batch, query])
    return (
        attend(q, k, v, mask=mask, dropout=module.dropout if module.training else 0.0).transpose(1, 2).flatten(2),
    )


def _longt5_local(
    module: Any,
    attend: Attend,
    hidden_states: Tensor,
    mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ + relative position bias) v over nearby tokens, computed in blocks (Guo et al. 2022)."""
    block, heads = module.block_len, module.n_heads
    q, k, v = (
        _split(linear(hidden_states), module.key_value_proj_dim) for linear in (module.q, module.k, module.v)
    )
    if position_bias is None:
        if module.has_relative_attention_bias:
            position_bias = cast(Tensor, module.compute_bias(block))
        else:
            position_bias = hidden_states.new_zeros(1, 1, heads, block, 3 * block)
        if mask is not None:
            position_bias = position_bias + torch.where(mask > 0, 0.0, -1e10).transpose(1, 2)
    bias = _without_blocks(position_bias, hidden_states.shape[1])
    z = attend(q, k, v, mask=bias, scale=1.0, dropout=module.dropout if module.training else 0.0)
    return module.o(z.transpose(1, 2).flatten(2)), position_bias


def _without_blocks(
    bias: Float[Tensor, " batch #blocks head block three_blocks"], tokens: int
) -> Float[Tensor, "batch head tokens tokens"]:
    """LongT5's bias of every query and key, written out; -inf where a key is in no block near the query's."""
    block = bias.shape[3]
    token = torch.arange(tokens, device=bias.device)
    rows = bias.expand(-1, -(-tokens // block), -1, -1, -1)[:, token // block, :, token % block]
    rows = rows.permute(1, 2, 0, 3)  # batch, head, query, key of three blocks
    column = token - (token // block - 1)[:, None] * block  # of each key in the three blocks of each query
    inside = (column >= 0) & (column < 3 * block)
    cells = rows.gather(3, column.clamp(0, 3 * block - 1).expand(*rows.shape[:2], -1, -1))
    return cells.masked_fill(~inside, -torch.inf)


def _split(x: Tensor, size: int) -> Tensor:
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def _lazily(module: nn.Module, attend: Attend, *args: Any, **kwargs: Any) -> Any:
    """The module's own forward, see `lazy_scores.py`."""
    return lazily(module, attend, "forward", *args, **kwargs)


_LAZY = """
    big_bird.BigBirdSelfAttention bigbird_pegasus.BigBirdPegasusSelfAttention bloom.BloomAttention
    bros.BrosSelfAttention canine.CanineSelfAttention codegen.CodeGenAttention convbert.ConvBertSelfAttention
    cpmant.CpmAntAttention deberta.DisentangledSelfAttention deberta_v2.DisentangledSelfAttention
    flaubert.MultiHeadAttention fsmt.Attention funnel.FunnelRelMultiheadAttention git.GitSelfAttention
    gpt_neo.GPTNeoSelfAttention gpt_neox_japanese.GPTNeoXJapaneseAttention gptj.GPTJAttention
    ibert.IBertSelfAttention layoutlmv2.LayoutLMv2SelfAttention layoutlmv3.LayoutLMv3SelfAttention
    led.LEDDecoderAttention lxmert.LxmertAttention megatron_bert.MegatronBertSelfAttention
    mpnet.MPNetSelfAttention mpt.MptAttention mvp.MvpAttention rembert.RemBertSelfAttention
    roformer.RoFormerSelfAttention squeezebert.SqueezeBertSelfAttention tapas.TapasSelfAttention
    trocr.TrOCRAttention visual_bert.VisualBertSelfAttention xglm.XGLMAttention xlm.MultiHeadAttention
    xlnet.XLNetRelativeAttention

    blip.BlipAttention blip.BlipTextSelfAttention clap.ClapAudioSelfAttention cvt.CvtSelfAttention
    dab_detr.DabDetrAttention dab_detr.DetrAttention data2vec.Data2VecVisionSelfAttention
    donut.DonutSwinSelfAttention flava.FlavaSelfAttention glpn.GLPNEfficientSelfAttention
    groupvit.GroupViTAttention imagegpt.ImageGPTAttention levit.LevitAttention levit.LevitAttentionSubsample
    mask2former.Mask2FormerAttention maskformer.MaskFormerSwinSelfAttention mgp_str.MgpstrAttention
    mobilevit.MobileViTSelfAttention oneformer.OneFormerAttention perceiver.PerceiverSelfAttention
    pvt.PvtEfficientSelfAttention pvt_v2.PvtV2SelfAttention sam.SamVisionAttention sam_hq.SamHQVisionAttention
    swin2sr.Swin2SRSelfAttention swinv2.Swinv2SelfAttention table_transformer.TableTransformerAttention
    timesformer.TimesformerSelfAttention vilt.ViltSelfAttention vitdet.VitDetAttention

    bark.BarkSelfAttention clvp.ClvpSelfAttention fastspeech2_conformer.FastSpeech2ConformerAttention
    sew_d.DisentangledSelfAttention speecht5.SpeechT5Attention vits.VitsAttention
"""
"""Modules that compute softmax(scale · q kᵀ + bias) v in plain steps: text, images, speech."""

# By folder of transformers.models and class: two architectures may have classes of one name.
ADAPTERS: dict[str, Adapter] = {
    "openai.Attention": Adapter(_openai_gpt, "_attn"),
    "gpt2.GPT2Attention": Adapter(_gpt_2_upcast, "_upcast_and_reordered_attn"),
    "decision_transformer.DecisionTransformerGPT2Attention": Adapter(_gpt_2_upcast, "_upcast_and_reordered_attn"),
    "luke.LukeSelfAttention": Adapter(_luke),
    "longformer.LongformerSelfAttention": Adapter(_longformer),
    "led.LEDEncoderSelfAttention": Adapter(_longformer),
    "longt5.LongT5LocalAttention": Adapter(_longt5_local),
    **{name: Adapter(_lazily) for name in _LAZY.split()},
}
