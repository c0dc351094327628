"""The embedded model's network: a causal transformer of `mh.MultiHeadAttention` with rotary positions.

>>> import torch
>>> from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
>>> model = EmbeddedModel(EmbeddedConfig(vocab_size=11, width=8, layers=2, heads=2))
>>> model(torch.tensor([[3, 1, 4, 1, 5]])).logits.shape
torch.Size([1, 5, 11])
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from multihead.layer import mask
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.position import Rotary


@dataclass(frozen=True)
class EmbeddedConfig:
    """The sizes of an `EmbeddedModel`."""

    vocab_size: int
    width: int = 64
    layers: int = 3
    heads: int = 4
    head_dim: int = 24
    hidden: int = 128
    rotary_dim: int = 8
    """dimensions of a head that are rotated; the others compare words at any distance"""
    rotary_base: float = 100.0
    max_position_embeddings: int = 512
    """positions are computed; the model was trained on 72 tokens and reads longer documents less well"""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json_string(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EmbeddedConfig:
        """Unknown fields are ignored."""
        return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})


@dataclass
class Output:
    """The result of a call."""

    logits: Float[Tensor, "batch token word"]


class EmbeddedBlock(nn.Module):
    """x + attention(norm(x)), then x + hidden layer of norm(x)."""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = MultiHeadAttention(
            config.width,
            config.heads,
            head_dim=config.head_dim,
            position=Rotary(config.rotary_base, dim=config.rotary_dim),
        )
        self.hidden_norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, x: Float[Tensor, "batch token width"], seen: mask.Mask) -> Float[Tensor, "batch token width"]:
        x = x + self.attention(self.attention_norm(x), mask=seen)
        return x + self.down(nn.functional.gelu(self.up(self.hidden_norm(x))))


class EmbeddedModel(nn.Module):
    """Predicts the next word at every position."""

    config_class = EmbeddedConfig
    is_causal = True
    """forward builds its causal mask, which a caller cannot see (`mh.cost`)"""

    def __init__(self, config: EmbeddedConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList([EmbeddedBlock(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.guess = nn.Linear(config.width, config.vocab_size, bias=False)
        self.guess.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=config.width**-0.5)

    @property
    def dtype(self) -> torch.dtype:
        return self.words.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        return self.words

    def forward(
        self,
        input_ids: Int[Tensor, "batch token"],
        attention_mask: Int[Tensor, "batch token"] | None = None,
    ) -> Output:
        """`attention_mask` is 0 at padding, which is masked out."""
        seen = mask.causal()
        if attention_mask is not None:
            seen = seen & mask.padding(attention_mask.bool())
        x = self.words(input_ids)
        for block in self.layers:
            x = block(x, seen)
        return Output(self.guess(self.norm(x)))
