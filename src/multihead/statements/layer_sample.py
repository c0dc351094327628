"""One attention layer with real input: its weights per head, what it read, and the outputs of every head.

>>> import torch, multihead as mh
>>> from multihead.statements.collect_samples import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(2, 7, 12))
>>> layer
L0: 3 heads of 4, 14 tokens in 2 sequences
>>> layer.outputs.shape
torch.Size([14, 3, 4])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.plural import plural
from multihead.errors import SizeError
from multihead.layer._problem import ScoreConfig
from multihead.layer.position import Position
from multihead.model.head_weights import HeadWeights
from multihead.statements.layer_shape import LayerShape


@dataclass(frozen=True)
class SequenceSample:
    """One sequence at the layer, without padding, in fp64; q and k as the kernel saw them."""

    x: Float[Tensor, "query d_model"]
    memory: Float[Tensor, "key d_key"]
    """the input of keys and values: x itself in self-attention"""
    q: Float[Tensor, "head query key_dim"]
    k: Float[Tensor, "kv_head key key_dim"]
    v: Float[Tensor, "kv_head key value_dim"]
    z: Float[Tensor, "head query value_dim"]
    """the output of every head, before W_O"""
    map: Float[Tensor, "head query key"] | None = None
    """attention weights, of the first sequences only"""

    @property
    def length(self) -> int:
        return min(self.x.shape[0], self.memory.shape[0])


@dataclass(frozen=True, repr=False)
class LayerSample:
    """One attention layer with real input, in fp64."""

    name: str
    weights: HeadWeights
    sequences: Sequence[SequenceSample]
    scores: ScoreConfig
    causal: bool
    seed: int = 0
    module: Any = None
    """the module that calls the kernel"""
    positions: Sequence[Position] = ()
    """encodings that the layer may have, by the config of its model"""
    ablation: Callable[[], Float[Tensor, " head"]] | None = None
    """the change of the model's output without each head, see output_change.py"""

    # ---- sizes --------------------------------------------------------------------------------

    @property
    def heads(self) -> int:
        return self.weights.heads

    @property
    def kv_heads(self) -> int:
        return self.weights.kv_heads

    @property
    def kv_of_head(self) -> tuple[int, ...]:
        return self.weights.groups.kv_of_head

    @property
    def d_model(self) -> int:
        return self.weights.q.shape[2]

    @property
    def d_out(self) -> int:
        return self.weights.o.shape[1]

    @property
    def key_dim(self) -> int:
        return self.weights.q.shape[1]

    @property
    def value_dim(self) -> int:
        return self.weights.v.shape[1]

    @property
    def shape(self) -> LayerShape:
        longest = max(s.x.shape[0] for s in self.sequences)
        return LayerShape(self.d_model, self.key_dim, self.value_dim, self.kv_of_head, self.kv_heads, longest)

    @property
    def cross(self) -> bool:
        """Whether keys come from a different sequence than queries."""
        return any(s.memory is not s.x for s in self.sequences)

    @property
    def tokens(self) -> int:
        return sum(s.x.shape[0] for s in self.sequences)

    @property
    def size_text(self) -> str:
        """The sizes of the sampled layer: 3 heads of 4, 6 heads of 2 (3 kv heads)."""
        size = f"{self.key_dim}" if self.key_dim == self.value_dim else f"{self.key_dim}/{self.value_dim}"
        shared = "" if self.kv_heads == self.heads else f" ({self.kv_heads} kv heads)"
        return f"{self.heads} heads of {size}{shared}"

    @property
    def token_text(self) -> str:
        """14 tokens in 2 sequences."""
        return f"{plural(self.tokens, 'token')} in {plural(len(self.sequences), 'sequence')}"

    def __repr__(self) -> str:
        return f"{self.name}: {self.size_text}, {self.token_text}"

    # ---- all tokens, one sequence after the other ------------------------------------------------

    @cached_property
    def inputs(self) -> Float[Tensor, "token d_model"]:
        return torch.cat([s.x for s in self.sequences])

    @cached_property
    def outputs(self) -> Float[Tensor, "token head value_dim"]:
        """The outputs of the heads, before W_O."""
        return torch.cat([s.z for s in self.sequences], 1).transpose(0, 1)

    @cached_property
    def deviations(self) -> Float[Tensor, "token head value_dim"]:
        """Sampled outputs − their mean over tokens; 0 for heads that never change beyond the rounding of fp32."""
        deviations = self.outputs - self.outputs.mean(0)
        constant = deviations.square().sum((0, 2)) <= 1e-12 * self.outputs.square().sum((0, 2))
        return deviations.masked_fill(constant[:, None], 0.0)

    @cached_property
    def output(self) -> Float[Tensor, "token d_out"]:
        """Σ_i z_i W_O[i]ᵀ + b_O: the output of the layer."""
        return torch.einsum("thv,hov->to", self.outputs, self.weights.o) + self.weights.bias("o")

    def part(self, head: int) -> Float[Tensor, "token d_out"]:
        """z_i W_O[i]ᵀ: what head i adds to the output."""
        return self.outputs[:, head] @ self.weights.o[head].T

    @cached_property
    def part_covariance(self) -> Float[Tensor, "head head"]:
        """tr Cov(p_i, p_j) of the parts that two sampled heads add to the output."""
        z = self.deviations
        count, heads, dim = z.shape
        moments = (z.flatten(1).T @ z.flatten(1) / count).view(heads, dim, heads, dim)
        gram = torch.einsum("ioa,job->iajb", self.weights.o, self.weights.o)
        return (moments * gram).sum((1, 3))

    @property
    def maps(self) -> list[Float[Tensor, "head query key"]]:
        """Attention weights of the first sequences."""
        return [s.map for s in self.sequences if s.map is not None]

    def longest(self, count: int) -> list[SequenceSample]:
        """The longest sequences, of queries and of keys."""
        return sorted(self.sequences, key=lambda s: -s.length)[:count]

    def batch(self, sequences: int, tokens: int) -> tuple[Tensor, Tensor | None]:
        """Sampled inputs of queries and, in cross-attention, of keys: the longest sequences, cut to one length.

        Raises where keys and values have different inputs: only the input of the keys is in the sample.
        """
        d_key, d_value = self.weights.k.shape[2], self.weights.v.shape[2]
        if d_key != d_value:
            raise SizeError(
                f"the keys of {self.name} have an input of width {d_key}, its values one of {d_value}",
                hint="statements that run a copy of the layer need one input for keys and values",
            )
        chosen = self.longest(sequences)
        length = min(tokens, *(s.length for s in chosen))
        x = torch.stack([s.x[:length] for s in chosen])
        return x, torch.stack([s.memory[:length] for s in chosen]) if self.cross else None
