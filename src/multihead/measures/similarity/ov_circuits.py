"""The subspaces that a head reads and writes: the row and column space of its OV circuit W_O W_V.

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
from multihead.model.anatomy import anatomy
from multihead.model.layer_anatomy import Head, LayerAnatomy
from multihead.model.sites import Key

Basis = Float[Tensor, "_ _"]  # width, rank


def spaces(head: Head) -> tuple[Basis, Basis]:
    """Orthonormal bases of the subspaces that the head's OV circuit writes and reads, both of its rank."""
    W_O, W_V = head.W_O.detach().double().cpu(), head.W_V.detach().double().cpu()
    written, read = torch.linalg.qr(W_O), torch.linalg.qr(W_V.T)
    U, s, Vh = torch.linalg.svd(written.R @ read.R.T)  # of W_O W_V, in these bases
    rank = int((s > s.max().clamp_min(torch.finfo(s.dtype).tiny) * 1e-7).sum()) if len(s) else 0
    return written.Q @ U[:, :rank], read.Q @ Vh[:rank].T


def overlaps(bases: Sequence[Basis], streams: Sequence[object] | None = None) -> Float[Tensor, "head other"]:
    """Overlaps of OV circuits: mean cos² of the principal angles; NaN if a subspace is empty or widths differ.

    `streams` name the vectors that each subspace is of, by default the same for all; else pairs are NaN too.
    """
    count = len(bases)
    streams = [None] * count if streams is None else streams
    overlap = torch.full((count, count), torch.nan, dtype=torch.float64)
    for i, basis in enumerate(bases):
        comparable = [
            j
            for j, other in enumerate(bases)
            if other.shape[0] == basis.shape[0] and other.shape[1] and streams[i] == streams[j]
        ]
        if not basis.shape[1] or not comparable:
            continue
        others = torch.cat([bases[j] for j in comparable], dim=1).double()
        parts = (basis.T.double() @ others).square().split([bases[j].shape[1] for j in comparable], dim=1)
        for j, part in zip(comparable, parts, strict=True):
            overlap[i, j] = (part.sum() / min(basis.shape[1], bases[j].shape[1])).clamp(0.0, 1.0)
    return overlap


@dataclass(frozen=True)
class OVWeights:
    """The weights of every attention, by key; empty if they were not found, with the reason."""

    layers: Mapping[Key, LayerAnatomy]
    reason: str = ""


def find_weights(model: nn.Module, inputs: Inputs | None = None) -> OVWeights:
    """W_V and W_O of every head's OV circuit, from a run on `inputs`, by default on a small example."""
    try:
        layers = anatomy(model) if inputs is None else anatomy(model, dict(inputs))
        for layer in layers:
            layer.require("the comparison of what heads write", ungated=True)
    except (MultiheadError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        return OVWeights({}, str(error).partition("\n")[0])
    return OVWeights({layer.site.key: layer for layer in layers})
