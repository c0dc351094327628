"""Where the weights of heads are stored: a parameter, an axis, and the indices of each head along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from torch import Tensor

from multihead.errors import AnatomyError
from multihead.layer import Groups
from multihead.model.graph import Product


@dataclass(frozen=True)
class Slots:
    """start, start + step, …: `count` indices along one axis of a parameter."""

    start: int
    count: int
    step: int = 1

    def of(self, x: Tensor, axis: int) -> Tensor:
        """The rows of a parameter that are stored at these indices, a view."""
        index = [slice(None)] * x.dim()
        index[axis] = slice(self.start, self.start + (self.count - 1) * self.step + 1, self.step)
        return x[tuple(index)]

    def indices(self) -> list[int]:
        return [self.start + i * self.step for i in range(self.count)]


@dataclass(frozen=True)
class Projection:
    """Where the heads of one projection are stored: `heads[i]` along `axis` of `parameter`, likewise for the bias.

    `axis` is the one that heads are laid out along: output rows for q, k and v, input columns for o. The bias of o
    belongs to no head, so its `bias_heads` is empty.
    """

    parameter: str
    axis: int
    heads: tuple[Slots, ...]
    bias: str | None = None
    bias_heads: tuple[Slots, ...] = ()

    @property
    def module(self) -> str:
        """The path of the module that holds the parameter."""
        return self.parameter.rpartition(".")[0]


@dataclass(frozen=True)
class LatentStorage:
    """Where multi-head latent attention stores the weights that its heads share, each as one head.

    k = [c W_UKᵀ ; R(x W_KRᵀ)] and v = c W_UVᵀ with c = norm(x W_DKVᵀ); q = norm(x W_DQᵀ) W_Qᵀ, or x W_Qᵀ.
    """

    kv_down: Projection
    """W_DKV"""
    k_rope: Projection
    """W_KR"""
    q_down: Projection | None
    """W_DQ"""
    norms: tuple[str, ...]
    """the parameters of the norms of the latent vectors"""


@dataclass(frozen=True)
class Storage:
    """Where all projections of one attention are stored, and which kv head each query head reads.

    With `latent`, k and v hold the rows of W_UK and W_UV, which read the latent vector. `g` is the gate.
    """

    q: Projection
    k: Projection
    v: Projection
    o: Projection
    groups: Groups
    g: Projection | None = None
    latent: LatentStorage | None = None

    def __getitem__(self, letter: str) -> Projection:
        return cast(Projection, getattr(self, letter))

    @property
    def projections(self) -> dict[str, Projection]:
        """By letter: q, k, v, o, and g if there is a gate."""
        return {letter: self[letter] for letter in ("qkvo" if self.g is None else "qkvog")}


def projection_of(product: Product, heads: Sequence[Sequence[int]], name: str) -> Projection:
    """The storage of one projection: where the channels of each head are in its weight and bias."""
    weight, bias = product.weight, product.bias

    def slots(indices: Tensor, parameter: str) -> tuple[Slots, ...]:
        return tuple(as_slots(indices[list(rows)].tolist(), f"{name}: {parameter}") for rows in heads)

    return Projection(
        weight.name,
        weight.axis,
        slots(weight.indices, weight.name),
        None if bias is None else bias.name,
        () if bias is None else slots(bias.indices, bias.name),
    )


def as_slots(indices: Sequence[int], name: str) -> Slots:
    """Stored rows as a range of evenly spaced indices; empty for none. Raises for others: they have no view."""
    if not indices:
        return Slots(0, 0)
    steps = {b - a for a, b in pairwise(indices)}
    if len(steps) > 1 or any(step < 1 for step in steps):
        raise AnatomyError(
            f"{name}: the indices of a head must be evenly spaced, got {list(indices)[:8]}",
            hint="other indices have no view: sort the weight's rows by head",
        )
    return Slots(indices[0], len(indices), steps.pop() if steps else 1)
