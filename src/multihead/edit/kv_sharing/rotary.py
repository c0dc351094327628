"""k_j ≈ c_j k_g for every pair of dimensions that is rotated: only complex scalars commute with a rotation.

Rotary positions rotate each pair of dimensions of q and k, (a, b) → (a + ib) e^{iθp}. A factor may move from keys
to queries only if it commutes with that: a complex number per pair, q ← c̄ q. So the keys of several heads become
one pair by pair: k_g is the first principal component of their complex keys. Dimensions without rotation are free,
as all dimensions are in models without it.

How a model pairs its dimensions is found from queries and keys before and after the rotation.

>>> import torch
>>> from multihead.edit.kv_sharing.rotary import find_pairs
>>> from multihead.layer._rotary import Rotary
>>> x = torch.randn(2, 3, 11, 8)
>>> find_pairs([(x, Rotary(interleaved=True)(x))])
Pairs(first=(0, 2, 4, 6), second=(1, 3, 5, 7), rest=())
>>> find_pairs([(x, Rotary(dim=4)(x))])
Pairs(first=(0, 1), second=(2, 3), rest=(4, 5, 6, 7))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from multihead._base.float64 import float64

Vectors = Float[Tensor, "batch _ token key_dim"]  # queries or keys, of any number of heads
Rotations = Sequence[tuple[Vectors, Vectors]]
"""Queries and keys before and after the rotation."""


@dataclass(frozen=True)
class Pairs:
    """Dimensions first[f] and second[f] are rotated together; those in `rest` are not rotated."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    rest: tuple[int, ...]

    @staticmethod
    def halves(start: int, size: int, dim: int) -> Pairs:
        """(i, i + size/2), as in Llama."""
        half = range(start, start + size // 2)
        return Pairs(tuple(half), tuple(i + size // 2 for i in half), _others(start, size, dim))

    @staticmethod
    def neighbours(start: int, size: int, dim: int) -> Pairs:
        """(2i, 2i + 1), as in GPT-J."""
        even = range(start, start + size, 2)
        return Pairs(tuple(even), tuple(i + 1 for i in even), _others(start, size, dim))

    def complex(self, x: Float[Tensor, "*batch key_dim"]) -> Complex[Tensor, "*batch pair"]:
        """The rotated dimensions as complex numbers."""
        return torch.complex(x[..., list(self.first)], x[..., list(self.second)])

    def error(self, rotations: Rotations) -> float:
        """The relative error of the best rotary rotation in these pairs, times one number for all tokens."""
        error = total = 0.0
        for before, after in rotations:
            x, y = self.complex(float64(before)), self.complex(float64(after))
            square = x.abs().square().sum(1, keepdim=True)  # the rotation is the same for all heads
            rotation = (y * x.conj()).sum(1, keepdim=True) / square.clamp_min(1e-300)
            rotation = rotation / rotation.abs().clamp_min(1e-300)
            scale = (y.abs().square().sum() / x.abs().square().sum().clamp_min(1e-300)).sqrt()
            error += float((y - scale * rotation * x).abs().square().sum())
            total += float(y.abs().square().sum())
            still, unchanged = float64(before[..., list(self.rest)]), float64(after[..., list(self.rest)])
            error += float((unchanged - still).square().sum())
            total += float(unchanged.square().sum())
        return (error / max(total, 1e-300)) ** 0.5


def tolerance(after: Tensor) -> float:
    """Half of the digits: a wrong pairing is wrong in all of them."""
    return torch.finfo(after.dtype).eps ** 0.5


def find_pairs(rotations: Rotations) -> Pairs | None:
    """The rotary pairs of dimensions; None if the change is not a rotation."""
    dim = rotations[0][0].shape[-1]
    change = torch.zeros(dim, dtype=torch.float64, device="cpu")
    for before, after in rotations:
        size = float64(after).square().mean((0, 1, 2)).sqrt().clamp_min(1e-300)
        change = torch.maximum(change, (float64(after - before).square().mean((0, 1, 2)).sqrt() / size).cpu())
    changed = (change > 32 * torch.finfo(rotations[0][1].dtype).eps).nonzero().flatten().tolist()
    if len(changed) < 2:
        return None
    start, end = changed[0], changed[-1] + 1
    sizes = [n for n in range(end - start, dim - start + 1) if n % 2 == 0]
    candidates = [kind(start, n, dim) for n in sizes for kind in (Pairs.halves, Pairs.neighbours)]
    if not candidates:
        return None
    best = min(candidates, key=lambda pairs: pairs.error(rotations))
    # transformers computes sine and cosine in fp32, also for a model in fp64.
    return best if best.error(rotations) <= max(tolerance(rotations[0][1]), 1e-6) else None


@dataclass(frozen=True)
class ComplexPCA:
    """k_j ≈ scale_j k_g pair by pair, with k_g = Σ_j combination_j k_j, and the loss."""

    combination: Complex[Tensor, "pair kv_head"]
    scale: Complex[Tensor, "pair kv_head"]
    loss: float


def complex_pca(keys: Complex[Tensor, "pair kv_head other"], weights: Float[Tensor, "pair kv_head"]) -> ComplexPCA:
    """PCA of rotary pairs, min Σ_j w_j² E|k_j − c_j k_g|²: `keys` are E[k_j k̄_l], `weights` w² = E|q|²."""
    w = weights.clamp_min(1e-12 * weights.amax(1, keepdim=True).clamp_min(1e-300)).sqrt()
    values, vectors = torch.linalg.eigh(w[:, :, None] * keys * w[:, None, :])
    u = vectors[..., -1]
    # The phase is free: k_g is close to the mean of the keys, and real where they are.
    phase = (u * w).sum(1, keepdim=True)
    u = u * (phase / phase.abs().clamp_min(1e-300)).conj()
    # So is the size: k_g is as large as the keys are.
    ratio = (values.sum(1) / keys.diagonal(dim1=1, dim2=2).real.sum(1).clamp_min(1e-300)).clamp_min(1e-300).sqrt()
    size = ratio[:, None] * len(u[0]) ** 0.5
    return ComplexPCA(u.conj() * w / size, u / w * size, float(values[:, :-1].clamp_min(0).sum()))


def _others(start: int, size: int, dim: int) -> tuple[int, ...]:
    return tuple(i for i in range(dim) if not start <= i < start + size)
