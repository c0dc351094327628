"""Attention as people write it outside of Hugging Face: torch's modules, the layouts of timm and nanoGPT, ours."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
from multihead import mask, position


class TorchDecoder(nn.Module):
    """nn.TransformerDecoder over a memory of its own width, with the causal mask that it needs to be told."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(24, 3, 19, batch_first=True), 2)

    def forward(self, src: Tensor, memory: Tensor, memory_key_padding_mask: Tensor | None = None) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(src.shape[1])
        out: Tensor = self.decoder(src, memory, tgt_mask=causal, memory_key_padding_mask=memory_key_padding_mask)
        return out


class TorchCross(nn.Module):
    """nn.MultiheadAttention with inputs of three widths: q, k and v have a weight each, and one bias for all."""

    def __init__(self) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(24, 3, kdim=13, vdim=17, batch_first=True)

    def forward(self, src: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        memory = torch.cat([src, src.flip(1)], dim=1)
        pad = None if key_padding_mask is None else torch.cat([key_padding_mask, key_padding_mask.flip(1)], dim=1)
        out: Tensor = self.mha(src, memory[..., :13], memory[..., 3:20], key_padding_mask=pad)[0]
        return out


class TimmAttention(nn.Module):
    """timm's layout: qkv packed as (3, head, dim), proj."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = F.scaled_dot_product_attention(q, k, v)
        mixed: Tensor = self.proj(out.transpose(1, 2).reshape(batch, tokens, width))
        return mixed


class NanoAttention(nn.Module):
    """nanoGPT's layout: c_attn an nn.Linear, split into thirds, is_causal."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.n_head, self.n_embd = heads, width
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            p.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for p in self.c_attn(x).split(self.n_embd, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.c_proj(y.transpose(1, 2).contiguous().flatten(2))
        return mixed


class OurAttention(nn.Module):
    """mh.MultiHeadAttention: grouped, rotary, causal."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = mh.MultiHeadAttention(width, 6, num_kv_heads=2, head_dim=4, position=position.Rotary())

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        seen = mask.causal()
        out: Tensor = self.attn(x, mask=seen if padding is None else seen & mask.padding(~padding))
        return out


class Blocks(nn.Module):
    """x + attn(norm(x)), then x + mlp(norm(x)), a few times: the shortest transformer around a layer."""

    def __init__(self, layers: list[nn.Module], width: int, vocabulary: int | None = None) -> None:
        super().__init__()
        self.embed = None if vocabulary is None else nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "attn": layer,
                    "mlp": nn.Sequential(
                        nn.LayerNorm(width), nn.Linear(width, 19), nn.GELU(), nn.Linear(19, width)
                    ),
                }
            )
            for layer in layers
        )

    def forward(self, src: Tensor, **options: Any) -> Tensor:
        x = src if self.embed is None else self.embed(src)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleDict)
            x = x + block["attn"](block["norm"](x), **options)
            x = x + block["mlp"](x)
        return x
