"""k_j ≈ c_j k_g for every pair of dimensions that turns: only complex scalars pass through a rotation.

Rotary positions turn each pair of dimensions of q and k, (a, b) → (a + ib) e^{iθp}. What may be moved from keys to
queries must come out the same before and after it: a complex number per pair, q ← c̄ q. So heads that are to share
keys are brought together pair by pair: k_g is the first principal component of their complex keys. Dimensions that
do not turn are free, as keys without rotation are.

How a model pairs its dimensions is found by looking at queries and keys before and after the turn.

>>> import torch
>>> from multihead.edit.sharing.rotary_factor import pairs_of
>>> from multihead.layer._rotary import Rotary
>>> x = torch.randn(2, 3, 11, 8)
>>> pairs_of([(x, Rotary(interleaved=True)(x))])
Pairs(first=(0, 2, 4, 6), second=(1, 3, 5, 7), rest=())
>>> pairs_of([(x, Rotary(dim=4)(x))])
Pairs(first=(0, 1), second=(2, 3), rest=(4, 5, 6, 7))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from multihead.errors import MultiheadError

Turned = Float[Tensor, "batch _ token key_dim"]  # of queries or keys: as many heads as there are


@dataclass(frozen=True)
class Pairs:
    """Dimensions first[f] and second[f] turn together; those in `rest` do not turn."""

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
        """What turns, as complex numbers."""
        return torch.complex(x[..., list(self.first)], x[..., list(self.second)])

    def off(self, seen: Sequence[tuple[Turned, Turned]]) -> float:
        """How far from a turn (times one number for all tokens) each pair is, relative to what it is."""
        top = bottom = 0.0
        for before, after in seen:
            x, y = self.complex(before.double()), self.complex(after.double())
            square = x.abs().square().sum(1, keepdim=True)  # heads turn alike
            turn = (y * x.conj()).sum(1, keepdim=True) / square.clamp_min(1e-300)
            turn = turn / turn.abs().clamp_min(1e-300)
            grown = (y.abs().square().sum() / x.abs().square().sum().clamp_min(1e-300)).sqrt()
            top += float((y - grown * turn * x).abs().square().sum())
            bottom += float(y.abs().square().sum())
            still = list(self.rest)
            top += float((after[..., still].double() - before[..., still].double()).square().sum())
            bottom += float(after[..., still].double().square().sum())
        return (top / max(bottom, 1e-300)) ** 0.5

    def check(self, seen: Sequence[tuple[Turned, Turned]], place: str) -> None:
        """Raise unless queries and keys turn in these pairs."""
        off = self.off(seen)
        if not off <= tolerance(seen[0][1]):
            raise MultiheadError(
                f"{place}: in pairs {self.first[:3]}... with {self.second[:3]}... queries and keys do not turn: "
                f"off by {off:.2g} of their size",
                hint="another pairing, or a norm between the projection and the kernel",
            )


def tolerance(after: Tensor) -> float:
    """Half of the digits: another pairing is off by all of them."""
    return torch.finfo(after.dtype).eps ** 0.5


def pairs_of(seen: Sequence[tuple[Turned, Turned]]) -> Pairs | None:
    """Which dimensions turn together, from queries and keys before and after it; None where that is no rotation."""
    dim = seen[0][0].shape[-1]
    moved = torch.zeros(dim, dtype=torch.float64)
    for before, after in seen:
        size = after.double().square().mean((0, 1, 2)).sqrt().clamp_min(1e-300)
        moved = torch.maximum(moved, ((after - before).double().square().mean((0, 1, 2)).sqrt() / size).cpu())
    eps = torch.finfo(seen[0][1].dtype).eps
    changed = (moved > 32 * eps).nonzero().flatten().tolist()
    if len(changed) < 2:
        return None
    start, end = changed[0], changed[-1] + 1
    sizes = [n for n in range(end - start, dim - start + 1) if n % 2 == 0]
    found = [kind(start, n, dim) for n in sizes for kind in (Pairs.halves, Pairs.neighbours)]
    if not found:
        return None
    best = min(found, key=lambda pairs: pairs.off(seen))
    return best if best.off(seen) <= tolerance(seen[0][1]) else None


@dataclass(frozen=True)
class SharedTurn:
    """k_j ≈ scale_j k_g pair by pair, k_g = Σ_j mix_j k_j, and what is lost by it."""

    mix: Complex[Tensor, "pair kv_head"]
    scale: Complex[Tensor, "pair kv_head"]
    loss: float


def shared_turn(keys: Complex[Tensor, "pair kv_head other"], weights: Float[Tensor, "pair kv_head"]) -> SharedTurn:
    """min Σ_j w_j² E|k_j − c_j k_g|² for every pair: `keys` are E[k_j k̄_l], `weights` w² = E|q|² of the readers."""
    w = weights.clamp_min(1e-12 * weights.amax(1, keepdim=True).clamp_min(1e-300)).sqrt()
    values, vectors = torch.linalg.eigh(w[:, :, None] * keys * w[:, None, :])
    u = vectors[..., -1]
    # The phase is free: such that k_g is near the plain mean of the keys, and real where they are.
    turn = (u * w).sum(1, keepdim=True)
    u = u * (turn / turn.abs().clamp_min(1e-300)).conj()
    # So is the size: keys of the size that they had.
    big = (values.sum(1) / keys.diagonal(dim1=1, dim2=2).real.sum(1).clamp_min(1e-300)).clamp_min(1e-300).sqrt()
    size = big[:, None] * len(u[0]) ** 0.5
    return SharedTurn(u.conj() * w / size, u / w * size, float(values[:, :-1].clamp_min(0).sum()))


def _others(start: int, size: int, dim: int) -> tuple[int, ...]:
    return tuple(i for i in range(dim) if not start <= i < start + size)
