"""Initial weights of a layer. The same seed draws the same weights: one draw per projection, q, k, v, o.

>>> import torch, multihead as mh
>>> from multihead.layer import init
>>> _ = torch.manual_seed(0)
>>> attn = mh.MultiHeadAttention(64, 4, init=init.Normal(0.02, layers=12))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import nn

from multihead._base.arguments import check_count, check_number
from multihead._base.lazy_names import listed_names

__all__ = ["Init", "XavierPerHead", "Xavier", "Normal"]
__dir__ = listed_names(__name__)

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention


@runtime_checkable
class Init(Protocol):
    """Sets the weights of the four projections in place; biases are zero before the call."""

    def __call__(self, attn: MultiHeadAttention) -> None: ...


@dataclass(frozen=True)
class XavierPerHead:
    """U(-a, a), a = gain √(6 / (fan_in + head_dim)): each head is drawn as a matrix d_model → head_dim.

    Glorot and Bengio 2010, per head: the scale of a head's scores then does not depend on the number of heads. W_O
    is drawn as one matrix. The default.
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        check_number("gain", self.gain, least=0.0)

    def __call__(self, attn: MultiHeadAttention) -> None:
        for linear, fan_out in _with_head_dims(attn):
            _uniform(linear, self.gain, linear.in_features + fan_out)
        _uniform(attn.o_proj, self.gain, attn.o_proj.in_features + attn.o_proj.out_features)


@dataclass(frozen=True)
class Xavier:
    """U(-a, a), a = gain √(6 / (fan_in + fan_out)), each projection as one matrix."""

    gain: float = 1.0

    def __post_init__(self) -> None:
        check_number("gain", self.gain, least=0.0)

    def __call__(self, attn: MultiHeadAttention) -> None:
        for linear in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj):
            _uniform(linear, self.gain, linear.in_features + linear.out_features)


@dataclass(frozen=True)
class Normal:
    """N(0, std²); with `layers`, W_O is drawn with std / √(2 · layers), as GPT-2 does (Radford et al. 2019)."""

    std: float = 0.02
    layers: int | None = None

    def __post_init__(self) -> None:
        check_number("std", self.std, least=0.0)
        if self.layers is not None:
            check_count("layers", self.layers)

    def __call__(self, attn: MultiHeadAttention) -> None:
        for linear in (attn.q_proj, attn.k_proj, attn.v_proj):
            nn.init.normal_(linear.weight, std=self.std)
        depth = 1 if self.layers is None else 2 * self.layers
        nn.init.normal_(attn.o_proj.weight, std=self.std / math.sqrt(depth))


def _with_head_dims(attn: MultiHeadAttention) -> list[tuple[nn.Linear, int]]:
    return [(attn.q_proj, attn.head_dim), (attn.k_proj, attn.head_dim), (attn.v_proj, attn.value_dim)]


@torch.no_grad()
def _uniform(linear: nn.Linear, gain: float, fans: int) -> None:
    bound = gain * math.sqrt(6.0 / max(fans, 1))
    linear.weight.uniform_(-bound, bound)
