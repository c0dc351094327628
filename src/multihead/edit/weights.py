"""The numbers of one attention, head by head, whatever parameters a model packs them in.

Methods change these numbers; `surgery.install` puts them into the model, whose matrices take their sizes.

>>> import torch, multihead as mh
>>> from multihead.edit.weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True)
>>> own = HeadWeights.of(mh.anatomy(encoder)[0])
>>> own.keep([0, 2]).o.shape, own.keep([0, 2]).origin
(torch.Size([2, 24, 8]), (0, 2))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import SizeError
from multihead.layer.problem import Groups
from multihead.model.anatomy import LayerAnatomy


@dataclass(frozen=True)
class HeadWeights:
    """q = x Wᵀ + b for every query head, k and v for every kv head; the layer gives o = Σ z_h W_O,hᵀ + b_O.

    With a gate, z_h is multiplied by an activation of x W_G,hᵀ + b_G,h before W_O. In latent attention k and v are
    the up-projections of a latent vector that all heads share: k has no rotary part.

    `groups` says which kv head each query head reads; `origin`, which head of the uncut layer each one was: what
    else a layer has per head (sinks, position biases, norms) goes with it.
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
    """which kv head of the uncut layer each one was, or was made of first"""
    g: Float[Tensor, "head gate_dim d_gate"] | None = None
    b_g: Float[Tensor, "head gate_dim"] | None = None

    @staticmethod
    def of(layer: LayerAnatomy) -> HeadWeights:
        """A copy of a layer's own."""

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

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[0]

    def keep(self, heads: Sequence[int]) -> HeadWeights:
        """Only these query heads, in this order, and the kv heads that they read, in the order they first do."""
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
        """Every query head with a kv head of its own: the same function, written as multi-head attention."""
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
