"""Find the weights that the heads of multi-head latent attention share (DeepSeek-V2, 2024).

    c = norm(x W_DKVᵀ)    k_h = [c W_UK,hᵀ ; R(x W_KRᵀ)]    v_h = c W_UV,hᵀ    q_h = norm(x W_DQᵀ) W_Q,hᵀ

R rotates. W_DQ is missing if queries have no latent vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from multihead.errors import AnatomyError
from multihead.model.call_trace import Trace
from multihead.model.dependent_channels import Support, support_of
from multihead.model.graph import Product
from multihead.model.head_storage import LatentStorage, projection_of


@dataclass(frozen=True)
class Down:
    """A down-projection: the product, its channels, and the parameters of the norm after it."""

    product: Product
    support: Support
    norms: tuple[str, ...]


def find_latent(trace: Trace) -> LatentStorage | None:
    """Find where the weights of latent attention are stored; None if the attention has no latent vector."""
    rope = trace.k_rope
    if rope is None:
        return None
    channels = {support.channels for support in trace.k_rope_supports}
    if len(channels) > 1:
        raise AnatomyError(
            f"{trace.name}: keys come from {trace.product('k').weight.name} and {rope.weight.name}, and heads use "
            "different rows of both",
            hint="of two maps, all heads must share the rows of one, as in latent attention",
        )
    kv, query = down_of(trace, "v"), down_of(trace, "q")
    if kv is None:
        raise AnatomyError(
            f"{trace.name}: keys come from {trace.product('k').weight.name} and {rope.weight.name}, but no linear "
            "map makes the input of the first from the layer's input",
            hint="only latent attention has keys from two maps",
        )
    return LatentStorage(
        projection_of(kv.product, [kv.support.channels], trace.name),
        projection_of(rope, list(channels), trace.name),
        None if query is None else projection_of(query.product, [query.support.channels], trace.name),
        kv.norms + (() if query is None else query.norms),
    )


def down_of(trace: Trace, letter: str) -> Down | None:
    """The linear map down to the latent vector, which feeds attention only; None if there is none."""
    up = trace.product(letter)
    try:
        search = trace.graph.back(up.source())
    except AnatomyError:
        return None  # the residual stream
    ups = {trace.product(x).weight.name for x in "qkv"}
    if len(search.products) != 1 or not set(trace.graph.feeds(search.products[0])) <= ups:
        return None
    product = search.products[0]
    weights = torch.randn(up.x.shape, generator=torch.Generator().manual_seed(0)).to(up.x)
    support = support_of(up.source(), up.x, weights, product, search.ones)
    return None if support is None else Down(product, support, tuple(search.between))
