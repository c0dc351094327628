"""What a head reads and where it writes, by its weights alone: the row and column space of its OV circuit W_O W_V.

For orthonormal bases U_i, U_j of two spaces the principal angles θ have cos θ = singular values of U_iᵀ U_j, and

    overlap_ij = mean cos² θ = ‖U_iᵀ U_j‖_F² / min(rank_i, rank_j)        0 orthogonal … 1 one inside the other

Random spaces of d dimensions in a width of D overlap by d / D.

>>> import torch
>>> from multihead.measures.similarity.ov_circuits import overlaps
>>> e = torch.eye(4)
>>> overlaps([e[:, :2], e[:, 1:3], e[:, 2:]]).tolist()
[[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.errors import MultiheadError
from multihead.model.anatomy import Head, LayerAnatomy, anatomy
from multihead.model.sites import Key

Basis = Float[Tensor, "width _"]


def spaces(head: Head) -> tuple[Basis, Basis]:
    """Orthonormal bases of what the head's OV circuit writes into and of what it reads, both of its rank."""
    W_O, W_V = head.W_O.detach().double().cpu(), head.W_V.detach().double().cpu()
    written, read = torch.linalg.qr(W_O), torch.linalg.qr(W_V.T)
    U, s, Vh = torch.linalg.svd(written.R @ read.R.T)  # of W_O W_V, in these bases
    rank = int((s > s.max().clamp_min(torch.finfo(s.dtype).tiny) * 1e-7).sum()) if len(s) else 0
    return written.Q @ U[:, :rank], read.Q @ Vh[:rank].T


def overlaps(bases: Sequence[Basis]) -> Float[Tensor, "head other"]:
    """mean cos² of the principal angles of every pair; NaN where a space is empty or the widths differ."""
    count = len(bases)
    found = torch.full((count, count), torch.nan, dtype=torch.float64)
    for i, mine in enumerate(bases):
        fits = [j for j, other in enumerate(bases) if other.shape[0] == mine.shape[0] and other.shape[1]]
        if not mine.shape[1] or not fits:
            continue
        together = torch.cat([bases[j] for j in fits], dim=1).double()
        parts = (mine.T.double() @ together).square().split([bases[j].shape[1] for j in fits], dim=1)
        for j, part in zip(fits, parts, strict=True):
            found[i, j] = (part.sum() / min(mine.shape[1], bases[j].shape[1])).clamp(0.0, 1.0)
    return found


@dataclass(frozen=True)
class OVWeights:
    """The weights of every attention, by key; empty where they were not found, and why."""

    layers: Mapping[Key, LayerAnatomy]
    reason: str = ""


def find_weights(model: nn.Module, inputs: Inputs | None = None) -> OVWeights:
    """W_V and W_O of every head, from a run on `inputs`, by default on a small example."""
    try:
        found = anatomy(model) if inputs is None else anatomy(model, dict(inputs))
    except (MultiheadError, RuntimeError, ValueError, TypeError, AttributeError) as failed:
        return OVWeights({}, str(failed).partition("\n")[0])
    return OVWeights({layer.site.key: layer for layer in found})
