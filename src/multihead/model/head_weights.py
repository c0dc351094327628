"""Copies of the weights of one attention, head by head, however the model packs them into parameters.

`LayerAnatomy` has views of the model's parameters; these are copies, to compute with and to change.

>>> import torch, multihead as mh
>>> from multihead.model.head_weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True)
>>> weights = HeadWeights.of(mh.anatomy(encoder)[0])
>>> weights.keep([0, 2]).o.shape, weights.keep([0, 2]).origin
(torch.Size([2, 24, 8]), (0, 2))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.errors import SizeError
from multihead.layer import Groups
from multihead.layer.attention import MultiHeadAttention
from multihead.model.layer_anatomy import LayerAnatomy


@dataclass(frozen=True)
class HeadWeights:
    """q = x W_Qᵀ + b_q for every query head, k and v for every kv head; the layer returns Σ_h z_h W_O,hᵀ + b_o.

    With a gate, z_h is multiplied by an activation of x W_G,hᵀ + b_g,h before W_O. In latent attention k and v are
    the up-projections of a latent vector that all heads share: k has no rotary part.

    `groups` maps query heads to the kv heads that they read. `origin` is the index of each head in the uncut layer,
    which selects its other parameters (sinks, position biases, norms).
    """

    q: Float[Tensor, "head key_dim d_query"]
    k: Float[Tensor, "kv_head _ d_key"]
    v: Float[Tensor, "kv_head value_dim d_value"]
    o: Float[Tensor, "head d_out value_dim"]
    b_q: Float[Tensor, "head key_dim"] | None
    b_k: Float[Tensor, "kv_head _"] | None
    b_v: Float[Tensor, "kv_head value_dim"] | None
    b_o: Float[Tensor, " d_out"] | None
    groups: Groups
    origin: tuple[int, ...]
    kv_origin: tuple[int, ...]
    """the index of each kv head in the uncut layer; of a merged one, of its first part"""
    g: Float[Tensor, "head gate_dim d_gate"] | None = None
    b_g: Float[Tensor, "head gate_dim"] | None = None

    @staticmethod
    def of(layer: LayerAnatomy) -> HeadWeights:
        """A copy of the weights of a layer's heads."""

        def copied(parts: Sequence[Tensor] | None) -> Tensor | None:
            return None if parts is None else torch.stack([p.detach() for p in parts])

        b_o = layer.b_O
        return HeadWeights(
            torch.stack([w.detach() for w in layer.W_Q]),
            torch.stack([w.detach() for w in layer.W_K]),
            torch.stack([w.detach() for w in layer.W_V]),
            torch.stack([w.detach() for w in layer.W_O]),
            copied(layer.b_Q),
            copied(layer.b_K),
            copied(layer.b_V),
            None if b_o is None else b_o.detach().clone(),
            layer.groups,
            tuple(range(layer.num_heads)),
            tuple(range(layer.num_kv_heads)),
            copied(layer.W_G),
            copied(layer.b_G),
        )

    @staticmethod
    def of_module(layer: MultiHeadAttention) -> HeadWeights:
        """A copy of the weights of our layer, whose layout needs no proof: it may have heads that do nothing."""

        def rows(linear: nn.Linear, dim: int) -> tuple[Tensor, Tensor | None]:
            bias = cast(Tensor | None, linear.bias)
            weight = linear.weight.detach().clone()
            return weight.unflatten(0, (-1, dim)), None if bias is None else bias.detach().clone().view(-1, dim)

        q, b_q = rows(layer.q_proj, layer.head_dim)
        k, b_k = rows(layer.k_proj, layer.head_dim)
        v, b_v = rows(layer.v_proj, layer.value_dim)
        o = layer.o_proj.weight.detach().unflatten(1, (layer.num_heads, -1)).transpose(0, 1).contiguous()
        b_o = cast(Tensor | None, layer.o_proj.bias)
        b_o = None if b_o is None else b_o.detach().clone()
        groups = Groups(tuple(layer.kv_of_head), k.shape[0])
        return HeadWeights(
            q, k, v, o, b_q, b_k, b_v, b_o, groups, tuple(range(q.shape[0])), tuple(range(k.shape[0]))
        )

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[0]

    def bias(self, letter: Literal["q", "k", "v", "o"]) -> Float[Tensor, "..."]:
        """The bias of the heads' projection, (head, dim) or (d_out) for "o"; zeros if it has none."""
        weight, bias = {
            "q": (self.q, self.b_q),
            "k": (self.k, self.b_k),
            "v": (self.v, self.b_v),
            "o": (self.o, self.b_o),
        }[letter]
        shape = weight.shape[1:2] if letter == "o" else weight.shape[:2]
        return weight.new_zeros(shape) if bias is None else bias

    def double(self) -> HeadWeights:
        """The same in fp64."""
        tensors = {name: x.double() for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **tensors)

    def keep(self, heads: Sequence[int]) -> HeadWeights:
        """The weights of these query heads only, in this order, and of the kv heads that they read."""
        wrong = [h for h in heads if not 0 <= h < self.heads]
        if wrong or len(set(heads)) < len(heads):
            raise SizeError(
                f"cannot keep heads {list(heads)} of {self.heads}", hint="each once, counted from 0, any order"
            )
        read = [self.groups.kv_of_head[h] for h in heads]
        kv = list(dict.fromkeys(read))
        return replace(
            self,
            q=self.q[list(heads)],
            k=self.k[kv],
            v=self.v[kv],
            o=self.o[list(heads)],
            b_q=None if self.b_q is None else self.b_q[list(heads)],
            b_k=None if self.b_k is None else self.b_k[kv],
            b_v=None if self.b_v is None else self.b_v[kv],
            groups=Groups(tuple(kv.index(i) for i in read), len(kv)),
            g=None if self.g is None else self.g[list(heads)],
            b_g=None if self.b_g is None else self.b_g[list(heads)],
            origin=tuple(self.origin[h] for h in heads),
            kv_origin=tuple(self.kv_origin[i] for i in kv),
        )

    def apart(self) -> HeadWeights:
        """The weights with a copy of the kv head for every query head: equal multi-head attention."""
        kv = list(self.groups.kv_of_head)
        return replace(
            self,
            k=self.k[kv],
            v=self.v[kv],
            b_k=None if self.b_k is None else self.b_k[kv],
            b_v=None if self.b_v is None else self.b_v[kv],
            groups=Groups.even(self.heads, self.heads) if self.heads else Groups((), 0),
            kv_origin=tuple(self.kv_origin[i] for i in kv),
        )
