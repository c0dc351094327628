"""The baselines of grouping: the mean of the heads (Ainslie et al. 2023), and the mean after turning them together.

Mean-pooling is made to be trained afterwards; without, it is what to beat. Turning a head by an orthogonal R (keys
and queries alike, or values and W_O) changes nothing; the best turns bring the heads of a group together before the
mean is taken.

>>> import torch, multihead as mh
>>> from multihead.edit.sharing.pool import mean_pooled
>>> from multihead.model.head_weights import HeadWeights
>>> own = HeadWeights.of(mh.anatomy(torch.nn.TransformerEncoderLayer(24, 4, batch_first=True))[0])
>>> pooled = mean_pooled(own, [0, 0, 1, 1])
>>> torch.allclose(pooled.k[1], own.k[2:].mean(0)), pooled.groups.kv_of_head
(True, (0, 0, 1, 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.edit.sharing.moments import Moments
from multihead.layer import Groups
from multihead.model.head_weights import HeadWeights


def mean_pooled(own: HeadWeights, kv_of: Sequence[int]) -> HeadWeights:
    """Each new kv head is the mean of those that its readers had; query head h reads kv_of[h]."""
    count = max(kv_of) + 1
    old = [sorted({own.groups.kv_of_head[h] for h in range(own.heads) if kv_of[h] == g}) for g in range(count)]

    def pooled(x: Tensor | None) -> Tensor | None:
        return (
            None if x is None else torch.stack([x[some].mean(0) if len(some) > 1 else x[some[0]] for some in old])
        )

    k, v = pooled(own.k), pooled(own.v)
    assert k is not None
    assert v is not None
    return replace(
        own,
        k=k,
        v=v,
        b_k=pooled(own.b_k),
        b_v=pooled(own.b_v),
        groups=Groups(tuple(kv_of), count),
        kv_origin=tuple(own.kv_origin[some[0]] for some in old),
    )


def procrustes(own: HeadWeights, kv_of: Sequence[int], moments: Moments, rounds: int = 10) -> HeadWeights:
    """Turn the heads of each group to their mean, then take it. Keys turn only where nothing rotates them."""
    q, k, v, o = (x.double() for x in (own.q, own.k, own.v, own.o))
    b_q, b_k, b_v = (None if x is None else x.double() for x in (own.b_q, own.b_k, own.b_v))
    reads = own.groups.kv_of_head
    for g in range(max(kv_of) + 1):
        old = sorted({reads[h] for h in range(own.heads) if kv_of[h] == g})
        if len(old) == 1:
            continue
        turns = {"v": _turns(_seen(v[old], None if b_v is None else b_v[old], moments.value), rounds)}
        if moments.kind == "plain":
            turns["k"] = _turns(_seen(k[old], None if b_k is None else b_k[old], moments.key), rounds)
        for letter, found in turns.items():
            for i, r in zip(old, found, strict=True):
                heads = [h for h in range(own.heads) if reads[h] == i]
                if letter == "k":
                    k[i] = r @ k[i]
                    q[heads] = r @ q[heads]
                    if b_k is not None:
                        b_k[i] = r @ b_k[i]
                    if b_q is not None:
                        b_q[heads] = b_q[heads] @ r.mT
                else:
                    v[i] = r @ v[i]
                    o[heads] = o[heads] @ r.mT
                    if b_v is not None:
                        b_v[i] = r @ b_v[i]
    turned = replace(
        own,
        q=q.to(own.q),
        k=k.to(own.k),
        v=v.to(own.v),
        o=o.to(own.o),
        b_q=_like(b_q, own.b_q),
        b_k=_like(b_k, own.b_k),
        b_v=_like(b_v, own.b_v),
    )
    return mean_pooled(turned, kv_of)


def _like(x: Tensor | None, old: Tensor | None) -> Tensor | None:
    return None if x is None or old is None else x.to(old)


def _seen(w: Tensor, b: Tensor | None, moment: Tensor) -> Float[Tensor, "head dim width"]:
    """W C^½: rows as the activations see them."""
    full = torch.cat([w, torch.zeros_like(w[..., :1]) if b is None else b[..., None]], dim=-1)
    values, vectors = torch.linalg.eigh(moment)
    return full @ (vectors * values.clamp_min(0).sqrt())


def _turns(w: Float[Tensor, "head dim width"], rounds: int) -> Float[Tensor, "head dim dim"]:
    """Orthogonal R_h that bring R_h W_h together: each in turn to the mean of the others."""
    turns = torch.eye(w.shape[1], dtype=w.dtype).repeat(len(w), 1, 1)
    for _ in range(rounds):
        for h in range(len(w)):
            mean = (turns @ w).sum(0) - turns[h] @ w[h]
            left, _, right = torch.linalg.svd(mean @ w[h].mT)
            turns[h] = left @ right
    return turns
