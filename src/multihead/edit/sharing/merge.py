"""Two heads with near-equal attention become one: P_i X W_V,iᵀ W_O,iᵀ + P_j X W_V,jᵀ W_O,jᵀ ≈ P_i X W_Vᵀ W_Oᵀ.

With one map the two value maps are one of twice the rank, [W_O,i W_O,j] [W_V,i; W_V,j]; the head that stays takes
the best part of its own rank, in the metric of what it averages. Where other heads read its values too they are
left as they are, and only W_O takes over what it can. Which heads are twins: `multihead.measures.similarity`.

>>> import torch, multihead as mh
>>> from multihead.edit.sharing.merge import merged
>>> from multihead.edit.sharing.moments import moments_of
>>> from multihead.model.head_weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> layer = mh.anatomy(encoder)[0]
>>> found = moments_of(encoder, layer, [{"src": torch.randn(9, 13, 24)}])
>>> merged(HeadWeights.of(layer), 2, 0, found).keep([0, 1]).o.shape           # head 2 goes, head 0 speaks for it
torch.Size([2, 24, 8])
"""

from __future__ import annotations

from dataclasses import replace

import torch

from multihead.edit.sharing import factor
from multihead.edit.sharing.moments import Moments
from multihead.errors import SizeError
from multihead.model.head_weights import HeadWeights


def merged(own: HeadWeights, goes: int, stays: int, moments: Moments) -> HeadWeights:
    """The layer in which `stays` says what both said; W_O of `goes` is 0, so that it can be taken out.

    Heads are counted as in `own`.
    """
    if not (0 <= goes < own.heads and 0 <= stays < own.heads) or goes == stays:
        raise SizeError(
            f"head {stays} cannot take over head {goes} of {own.heads}", hint="two different heads of one layer"
        )
    kv_i, kv_j = own.groups.kv_of_head[stays], own.groups.kv_of_head[goes]
    alone = all(h in (goes, stays) or own.groups.kv_of_head[h] != kv_i for h in range(own.heads))
    o, v = own.o.double(), own.v.double()
    b_o = own.b_o.double() if own.b_o is not None and moments.sums_to_one else None  # what can take constants up
    metric = (moments.averaged[own.origin[stays]] + moments.averaged[own.origin[goes]]) / 2
    new_o, new_v = own.o.clone(), own.v.clone()
    new_b_v = None if own.b_v is None else own.b_v.clone()
    new_o[goes] = 0.0
    if kv_i == kv_j:  # they read the same values: with one map they are a sum already
        new_o[stays] = (o[stays] + o[goes]).to(own.o)
        return replace(own, o=new_o)
    both = torch.cat([o[stays], o[goes]], dim=1)  # d_out, 2 value_dim
    maps = torch.cat([v[kv_i], v[kv_j]])
    bias = None if own.b_v is None else torch.cat([own.b_v[kv_i], own.b_v[kv_j]]).double()
    mean = metric[:-1, -1]
    if b_o is None:  # constants are a column of the map
        maps = torch.cat([maps, torch.zeros_like(maps[:, :1]) if bias is None else bias[:, None]], dim=1)
    else:
        metric = metric[:-1, :-1] - mean[:, None] * mean[None, :]
    rank = v.shape[1]
    if alone:
        found = factor.shared(maps[None], (both.mT @ both)[None], metric[None], rank)
        size = v[kv_i].norm() / found.basis[:, : v.shape[2]].norm().clamp_min(1e-300)
        basis, mix = found.basis * size, found.mixes[0] / size
    else:
        basis = maps[:rank]
        mix = factor.best_mixes(basis, maps[None], metric[None])[0]
    if alone and b_o is None and new_b_v is None:  # no column to keep a constant in
        basis = basis.clone()
        basis[:, -1] = 0.0
    new_o[stays] = (both @ mix).to(own.o)
    new_v[kv_i] = basis[:, : v.shape[2]].to(own.v)
    if b_o is None:
        if new_b_v is not None:
            new_b_v[kv_i] = basis[:, -1].to(new_b_v)
        return replace(own, o=new_o, v=new_v, b_v=new_b_v)
    lost = (maps - mix @ basis) @ mean
    if bias is not None and new_b_v is not None and alone:
        lost = lost + bias
        new_b_v[kv_i] = 0.0
    elif bias is not None:
        lost = lost + bias - mix @ bias[:rank]
    return replace(own, o=new_o, v=new_v, b_v=new_b_v, b_o=(b_o + both @ lost).to(own.o))
