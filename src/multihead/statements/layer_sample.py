"""One attention layer with real input: its weights per head, what went in, and what every head made of it.

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(2, 7, 12))
>>> layer
L0: 3 heads of 4, 14 tokens in 2 sequences
>>> copy = layer.rebuild()
>>> bool(copy.error < 1e-5), copy.layer.q_proj.weight.dtype
(True, torch.float64)
"""

from __future__ import annotations

import copy as copying
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import SizeError
from multihead.layer import mask as masks
from multihead.layer._mask_algebra import Mask
from multihead.layer._problem import ScoreConfig
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.position import Position, Rotary
from multihead.model.head_weights import HeadWeights
from multihead.statements.claim import plural


@dataclass(frozen=True)
class Passage:
    """One sequence as it passed the layer, padding left out, in fp64; q and k as the kernel saw them."""

    x: Float[Tensor, "query d_model"]
    memory: Float[Tensor, "key d_key"]
    """where keys and values came from: x itself in self-attention"""
    q: Float[Tensor, "head query key_dim"]
    k: Float[Tensor, "kv_head key key_dim"]
    v: Float[Tensor, "kv_head key value_dim"]
    z: Float[Tensor, "head query value_dim"]
    """the output of every head, before W_O"""
    map: Float[Tensor, "head query key"] | None = None
    """attention weights, of the first sequences only"""


@dataclass(frozen=True)
class Rebuilt:
    """A differentiable fp64 copy of a layer, with a batch of its own input.

    `error` is the largest difference between the copy's head outputs and those of the run, relative to their size;
    `left_out` says what the copy lacks where that is not rounding ("" where it is).
    """

    layer: MultiHeadAttention
    x: Float[Tensor, "batch query d_model"]
    memory: Float[Tensor, "batch key d_key"] | None
    mask: Mask
    error: float
    left_out: str

    def run(self) -> Float[Tensor, "batch query d_out"]:
        """The copy on its input, by the written-out formula: differentiable as often as one likes."""
        return self.layer(self.x, self.memory, mask=self.mask, route="reference")


@dataclass(frozen=True, repr=False)
class LayerSample:
    """One attention layer with real input, all numbers in fp64."""

    name: str
    weights: HeadWeights
    sequences: Sequence[Passage]
    scores: ScoreConfig
    causal: bool
    seed: int = 0
    module: Any = None
    """the module that calls the kernel"""
    positions: Sequence[Position] = ()
    """encodings that the layer may have, by what its model says of itself"""
    ablation: Callable[[], Float[Tensor, " head"]] | None = None
    """how much the model's own output changes without each head, see without.py"""

    # ---- sizes --------------------------------------------------------------------------------

    @property
    def heads(self) -> int:
        return self.weights.q.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.weights.k.shape[0]

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
    def cross(self) -> bool:
        """Whether keys come from another sequence than queries."""
        return any(s.memory is not s.x for s in self.sequences)

    @property
    def tokens(self) -> int:
        return sum(s.x.shape[0] for s in self.sequences)

    def __repr__(self) -> str:
        size = f"{self.key_dim}" if self.key_dim == self.value_dim else f"{self.key_dim}/{self.value_dim}"
        shared = "" if self.kv_heads == self.heads else f" ({self.kv_heads} kv heads)"
        count = f"{plural(self.tokens, 'token')} in {plural(len(self.sequences), 'sequence')}"
        return f"{self.name}: {self.heads} heads of {size}{shared}, {count}"

    # ---- all tokens, one after the other ---------------------------------------------------------

    @property
    def borders(self) -> tuple[int, ...]:
        """Where each sequence begins among the tokens; the last number is their count."""
        ends = torch.tensor([0, *(s.x.shape[0] for s in self.sequences)]).cumsum(0)
        return tuple(ends.tolist())

    @cached_property
    def inputs(self) -> Float[Tensor, "token d_model"]:
        return torch.cat([s.x for s in self.sequences])

    @cached_property
    def q(self) -> Float[Tensor, "head token key_dim"]:
        return torch.cat([s.q for s in self.sequences], 1)

    @cached_property
    def k(self) -> Float[Tensor, "kv_head key_token key_dim"]:
        return torch.cat([s.k for s in self.sequences], 1)

    @cached_property
    def v(self) -> Float[Tensor, "kv_head key_token value_dim"]:
        return torch.cat([s.v for s in self.sequences], 1)

    @cached_property
    def outputs(self) -> Float[Tensor, "token head value_dim"]:
        """What every head gave, before W_O."""
        return torch.cat([s.z for s in self.sequences], 1).transpose(0, 1)

    @cached_property
    def deviations(self) -> Float[Tensor, "token head value_dim"]:
        """outputs − their mean over tokens; 0 for heads that always say the same, but for the rounding of fp32."""
        off = self.outputs - self.outputs.mean(0)
        still = off.square().sum((0, 2)) <= 1e-12 * self.outputs.square().sum((0, 2))
        return off.masked_fill(still[:, None], 0.0)

    @cached_property
    def output(self) -> Float[Tensor, "token d_out"]:
        """Σ_i z_i W_O[i]ᵀ + b_O: what the layer gave."""
        w = self.weights
        return torch.einsum("thv,hov->to", self.outputs, w.o) + w.bias("o")

    def part(self, head: int) -> Float[Tensor, "token d_out"]:
        """z_i W_O[i]ᵀ: what one head added to the layer's output."""
        return self.outputs[:, head] @ self.weights.o[head].T

    @property
    def maps(self) -> list[Float[Tensor, "head query key"]]:
        """Attention weights of the first sequences."""
        return [s.map for s in self.sequences if s.map is not None]

    # ---- a copy to differentiate and to train ----------------------------------------------------

    def rebuild(self, sequences: int = 4, tokens: int = 32) -> Rebuilt:
        """A differentiable fp64 copy of the layer, and a batch of its longest sequences, cut to one length."""
        self.check_one_memory()
        chosen = sorted(self.sequences, key=lambda s: -min(s.x.shape[0], s.memory.shape[0]))[:sequences]
        length = min(tokens, *(min(s.x.shape[0], s.memory.shape[0]) for s in chosen))
        x = torch.stack([s.x[:length] for s in chosen])
        memory = torch.stack([s.memory[:length] for s in chosen]) if self.cross else None
        mask = masks.causal() if self.causal else masks.everything()
        layer, error = self._copy(mask)
        left_out = (
            "" if error < 1e-4 else "what lies between its projections and its kernel (positions, norms, bias)"
        )
        return Rebuilt(layer, x, memory, mask, error, left_out)

    def check_one_memory(self) -> None:
        """Raise where keys and values are made of different inputs, of which only the keys' was kept."""
        d_key, d_value = self.weights.k.shape[2], self.weights.v.shape[2]
        if d_key != d_value:
            raise SizeError(
                f"keys of {self.name} are made of {d_key} numbers, values of {d_value}: they are two inputs",
                hint="a copy to train is made of layers whose keys and values come from one sequence",
            )

    def _copy(self, mask: Mask) -> tuple[MultiHeadAttention, float]:
        """The copy that agrees best with the run: with one of the positions that the layer may have, or without."""
        if isinstance(self.module, MultiHeadAttention):
            layer = copying.deepcopy(self.module).double().eval()
            return layer, self._error(layer, mask)
        tried = [self._plain(position) for position in (*self.positions, None)]
        return min(((layer, self._error(layer, mask)) for layer in tried), key=lambda pair: pair[1])

    @cached_property
    def _factor(self) -> float:
        """c in q = c (x W_Qᵀ + b_Q), for models that scale queries before the kernel; 1 where it is no such c."""
        w, first = self.weights, self.sequences[0]
        made = torch.einsum("td,hkd->htk", first.x, w.q) + w.bias("q")[:, None]
        size = float(made.square().sum())
        factor = float((made * first.q).sum()) / size if size else 1.0
        return factor if torch.allclose(factor * made, first.q, rtol=1e-4, atol=1e-5) else 1.0

    def _plain(self, position: Position | None) -> MultiHeadAttention:
        w = self.weights
        layer = MultiHeadAttention(
            self.d_model,
            self.heads,
            head_dim=self.key_dim,
            value_dim=self.value_dim,
            kv_of_head=w.groups.kv_of_head,
            d_key=w.k.shape[2],
            d_value=w.v.shape[2],
            d_out=self.d_out,
            position=position,
            scale=self.scores.scale * (self._factor if position is None else 1.0),
            softcap=self.scores.softcap,
            dtype=torch.float64,
        )
        with torch.no_grad():
            for linear, weight, bias in (
                (layer.q_proj, w.q.flatten(0, 1), w.bias("q").flatten()),
                (layer.k_proj, w.k.flatten(0, 1), w.bias("k").flatten()),
                (layer.v_proj, w.v.flatten(0, 1), w.bias("v").flatten()),
                (layer.o_proj, w.o.transpose(0, 1).flatten(1), w.bias("o")),
            ):
                linear.weight.copy_(weight)
                linear.bias.copy_(bias)
        return layer.eval()

    @torch.no_grad()
    def _error(self, layer: MultiHeadAttention, mask: Mask) -> float:
        worst = size = 0.0
        for s in self.sequences[:4]:
            key = s.memory[None] if self.cross else None
            heads = layer(s.x[None], key, mask=mask, ask="heads", route="reference").heads
            assert heads is not None
            worst = max(worst, float((heads[0] - s.z).abs().max()))
            size = max(size, float(s.z.abs().max()))
        return worst / size if size else worst


def rotations(config: Any, key_dim: int) -> list[Position]:
    """The rotary encodings that a model's config may mean; which one it is, the numbers of the run decide."""
    given = getattr(config, "rope_parameters", None) or {}
    base = (
        given.get("rope_theta") or getattr(config, "rope_theta", None) or getattr(config, "rotary_emb_base", None)
    )
    share = given.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None)
    dim = getattr(config, "rotary_dim", None) or (int(key_dim * share) if share else key_dim)
    if base is None and getattr(config, "rotary_dim", None) is None:
        return []
    if dim < 2 or dim % 2 or dim > key_dim:
        return []
    return [Rotary(base or 10_000.0, dim=dim, interleaved=pairs) for pairs in (False, True)]
