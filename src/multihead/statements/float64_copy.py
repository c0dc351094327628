"""An fp64 copy of a layer as a `MultiHeadAttention`, compared with the run that the sample is of.

>>> import torch, multihead as mh
>>> from multihead.statements.collect_samples import layer_samples
>>> from multihead.statements.float64_copy import Float64Copy
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(2, 7, 12))
>>> copied = Float64Copy.of(layer)
>>> copied.error < 1e-5, copied.layer.q_proj.weight.dtype
(True, torch.float64)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from multihead.layer import mask as masks
from multihead.layer._mask_algebra import Mask
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.interop import from_state_dict
from multihead.layer.position import Position
from multihead.statements.layer_sample import LayerSample


@dataclass(frozen=True)
class Float64Copy:
    """A copy of a layer in fp64, with a batch of its input.

    `error` is the largest difference between the head outputs of the copy and of the run, relative to their size;
    `missing` names what the copy lacks if that is more than rounding ("" otherwise).
    """

    layer: MultiHeadAttention
    x: Float[Tensor, "batch query d_model"]
    memory: Float[Tensor, "batch key d_key"] | None
    mask: Mask
    error: float
    missing: str

    @staticmethod
    def of(layer: LayerSample, sequences: int = 4, tokens: int = 32) -> Float64Copy:
        """The copy that agrees best with the run: with one of the positions it may have, or with none."""
        x, memory = layer.batch(sequences, tokens)
        mask = masks.causal() if layer.causal else masks.everything()
        if isinstance(layer.module, MultiHeadAttention):
            candidates = [copy.deepcopy(layer.module).double().eval()]
        else:
            candidates = [_from_weights(layer, position) for position in (*layer.positions, None)]
        errors = [_error(candidate, layer, mask) for candidate in candidates]
        error = min(errors)
        missing = "" if error < 1e-4 else "the positions, norms or bias between its projections and its kernel"
        return Float64Copy(candidates[errors.index(error)], x, memory, mask, error, missing)

    def run(self) -> Float[Tensor, "batch query d_out"]:
        """The copy on its input, by the written-out formula."""
        return self.layer(self.x, self.memory, mask=self.mask, route="reference")

    @torch.no_grad()
    def maps(self) -> Float[Tensor, "batch head query key"]:
        weights = self.layer(self.x, self.memory, mask=self.mask, ask="weights", route="reference").weights
        assert weights is not None
        return weights

    def normalised(self) -> Float64Copy:
        """The same layer on tokens of mean 0 and variance 1."""
        x, memory = (None if t is None else F.layer_norm(t, t.shape[-1:], eps=1e-12) for t in (self.x, self.memory))
        assert x is not None
        return replace(self, x=x, memory=memory)

    def redrawn(self, seed: int) -> Float64Copy:
        """A layer of the same shape with new weights, on the same input."""
        new = copy.deepcopy(self.layer)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            new.reset_parameters()
        return replace(self, layer=new)


def _from_weights(layer: LayerSample, position: Position | None) -> MultiHeadAttention:
    """Head outputs in float64, computed from the weights."""
    w = layer.weights
    state = {
        "q_proj.weight": w.q.flatten(0, 1), "q_proj.bias": w.bias("q").flatten(),
        "k_proj.weight": w.k.flatten(0, 1), "k_proj.bias": w.bias("k").flatten(),
        "v_proj.weight": w.v.flatten(0, 1), "v_proj.bias": w.bias("v").flatten(),
        "o_proj.weight": w.o.transpose(0, 1).flatten(1), "o_proj.bias": w.bias("o"),
    }  # fmt: skip
    return from_state_dict(
        state,
        num_heads=layer.heads,
        kv_of_head=layer.kv_of_head,
        position=position,
        scale=layer.scores.scale * (_query_factor(layer) if position is None else 1.0),
        softcap=layer.scores.softcap,
    ).eval()


def _query_factor(layer: LayerSample) -> float:
    """c in q = c (x W_Qᵀ + b_Q), for models that scale queries before the kernel; 1 if q has another form."""
    w, first = layer.weights, layer.sequences[0]
    projected = torch.einsum("td,hkd->htk", first.x, w.q) + w.bias("q")[:, None]
    size = float(projected.square().sum())
    factor = float((projected * first.q).sum()) / size if size else 1.0
    return factor if torch.allclose(factor * projected, first.q, rtol=1e-4, atol=1e-5) else 1.0


@torch.no_grad()
def _error(module: MultiHeadAttention, layer: LayerSample, mask: Mask) -> float:
    """The error of the float64 copy, relative to the layer's own output."""
    worst = size = 0.0
    for s in layer.sequences[:4]:
        key = s.memory[None] if layer.cross else None
        heads = module(s.x[None], key, mask=mask, ask="heads", route="reference").heads
        assert heads is not None
        worst = max(worst, float((heads[0] - s.z).abs().max()))
        size = max(size, float(s.z.abs().max()))
    return worst / size if size else worst
