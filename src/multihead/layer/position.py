"""Position encodings: rotary embedding of queries and keys, and biases on the scores.

>>> from multihead import position
>>> position.Rotary(500_000.0, scaling=position.Llama3(8, low=1, high=4, original=8192))
Rotary(base=500000, scaling=Llama3(factor=8, low=1, high=4, original=8192))
>>> position.ALiBi(4).slopes.tolist()
[0.25, 0.0625, 0.015625, 0.00390625]

`Rotary` rotates q and k; a `PositionBias` is added to the scores, block by block.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from multihead._base.arguments import (
    MOST_ITEMS,
    allocating,
    check_count,
    check_device_and_dtype,
    check_flag,
    check_number,
    describe,
)
from multihead._base.lazy_names import listed_names
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._rope_scaling import NTK, DynamicNTK, Linear, Llama3, Scaling, YaRN, to_float32
from multihead.layer._rotary import Rotary, consecutive_from
from multihead.layer._tracing import is_compiling

__all__ = [
    "Rotary",
    "ALiBi",
    "RelativeBias",
    "Position",
    "PositionBias",
    "Scaling",
    "Linear",
    "NTK",
    "DynamicNTK",
    "YaRN",
    "Llama3",
]
__dir__ = listed_names(__name__)


@runtime_checkable
class PositionBias(Protocol):
    """bias[b, h, i, j], added to the score of query i and key j: a function of their two positions."""

    num_heads: int

    def bias(
        self,
        query_positions: Int[Tensor, "#batch query"],
        key_positions: Int[Tensor, "#batch key"],
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "_ head query key"]: ...


Position: TypeAlias = Rotary | PositionBias


class ALiBi(nn.Module):
    """−slope_h · |query − key| (Press et al. 2022).

    Slopes are 2^(−8/n), 2^(−16/n), …, 2^(−8) for n heads; if n is not a power of two, those of the power below and
    every second one of the power above, as in the paper. `slopes` overrides them. With `learned` they are a
    parameter with these initial values.

    >>> ALiBi(slopes=[0.5]).bias(torch.tensor([[3]]), torch.tensor([[0, 1, 2, 4]]))
    tensor([[[[-1.5000, -1.0000, -0.5000, -0.5000]]]])
    """

    weight: nn.Parameter | None

    def __init__(
        self,
        num_heads: int | None = None,
        *,
        slopes: Sequence[float] | Float[Tensor, " head"] | None = None,
        learned: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_heads is None and slopes is None:
            raise SizeError("ALiBi needs num_heads or slopes, got None for both", hint="pass one of them: ALiBi(8)")
        if num_heads is not None:
            check_count("num_heads", num_heads, least=0, most=MOST_ITEMS)
        check_flag("learned", learned)
        check_device_and_dtype(device, dtype)
        # Floats, not a buffer, so the meta device and .half() cannot change them.
        self._initial = tuple(_alibi_slopes(num_heads or 0) if slopes is None else _numbers("slopes", slopes))
        self.num_heads = len(self._initial) if num_heads is None else num_heads
        if self.num_heads != len(self._initial):
            raise SizeError(
                f"num_heads must be the number of slopes, {len(self._initial)}, got {num_heads}",
                hint="omit num_heads if you pass slopes",
            )
        self.register_parameter("weight", None)
        if learned:
            self.weight = nn.Parameter(torch.empty(self.num_heads, device=device, dtype=dtype))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset learned ALiBi slopes to their initial values."""
        if self.weight is not None:
            with torch.no_grad():
                self.weight.copy_(torch.tensor(self._initial, dtype=torch.float64, device="cpu"))

    @property
    def slopes(self) -> Float[Tensor, " head"]:
        """The ALiBi slope of each head: the parameter if learned, otherwise float64 on the CPU."""
        if self.weight is not None:
            return self.weight
        return torch.tensor(self._initial, dtype=torch.float64, device="cpu")

    @property
    def constant(self) -> tuple[float, ...] | None:
        """The slopes if they are fixed, which determine the bias; otherwise None."""
        return self._initial if self.weight is None else None

    def bias(
        self,
        query_positions: Int[Tensor, "#batch query"],
        key_positions: Int[Tensor, "#batch key"],
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "_ head query key"]:
        """The position bias of ALiBi: −slope · distance."""
        distance = (query_positions.long()[:, None, :, None] - key_positions.long()[:, None, None, :]).abs()
        return distance.to(dtype) * -self.slopes.to(distance.device, dtype)[:, None, None]

    def extra_repr(self) -> str:
        return f"{self.num_heads}" + (", learned" if self.weight is not None else "")


def _numbers(name: str, values: Sequence[float] | Float[Tensor, " head"]) -> list[float]:
    """A list of finite floats, such as position slopes."""
    if getattr(values, "ndim", 0) == 1:  # a tensor or an array
        values = cast(Tensor, values).tolist()
    if isinstance(values, Tensor | str) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        raise TypeMismatchError(
            f"{name} must be a list of numbers or a 1-D tensor, got {describe(values)}",
            hint="pass one number per head",
        )
    numbers = list(values)
    for number in numbers:
        check_number(name, number)
    return [float(number) for number in numbers]


def _alibi_slopes(heads: int) -> list[float]:
    """The slopes of the ALiBi paper, for any number of heads."""
    if heads == 0:
        return []
    below = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / below) for i in range(below)]
    between = [2.0 ** (-4.0 * (2 * i + 1) / below) for i in range(heads - below)]
    return slopes + between


class RelativeBias(nn.Module):
    """table[bucket(key − query), h] (Raffel et al. 2020, T5): one bias per distance; large distances share buckets.

    Half of the buckets hold one distance each, the others grow geometrically up to `max_distance`. If
    `bidirectional`, half of all buckets are for keys after the query; otherwise such keys are in the bucket of
    distance 0.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_count("num_heads", num_heads, least=0, most=MOST_ITEMS)
        check_count("buckets", buckets, most=MOST_ITEMS)
        check_count("max_distance", max_distance, most=MOST_ITEMS)
        check_flag("bidirectional", bidirectional)
        check_device_and_dtype(device, dtype)
        one_way = buckets // 2 if bidirectional else buckets
        if one_way < 2:
            raise SizeError(
                f"buckets must be >= {4 if bidirectional else 2} if bidirectional={bidirectional}, got {buckets}",
                hint=f"choose at least {4 if bidirectional else 2}",
            )
        if max_distance <= one_way // 2:
            raise SizeError(
                f"max_distance must be > {one_way // 2} for buckets={buckets}, got {max_distance}",
                hint=f"choose max_distance > {one_way // 2}, or fewer buckets",
            )
        self.num_heads = num_heads
        self.buckets = buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self._bounds = _bucket_bounds(one_way, max_distance)
        with allocating(num_heads=num_heads, buckets=buckets):
            self.weight = nn.Parameter(torch.empty(buckets, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight ~ N(0, 0.02²)."""
        nn.init.normal_(self.weight, std=0.02)

    def bucket(self, distance: Int[Tensor, "*block"]) -> Int[Tensor, "*block"]:
        """The row of the relative position table for the distance key − query."""
        steps = distance.abs() if self.bidirectional else (-distance).clamp(min=0)
        bounds = torch.tensor(self._bounds, device=distance.device)
        bucket = (steps[..., None] >= bounds).sum(-1)
        if self.bidirectional:
            bucket = bucket + (distance > 0) * (self.buckets // 2)
        return bucket

    def bias(
        self,
        query_positions: Int[Tensor, "#batch query"],
        key_positions: Int[Tensor, "#batch key"],
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "_ head query key"]:
        """The learned bias of each bucket of relative positions."""
        far = self.max_distance  # larger distances have the same bias
        distances = torch.arange(-far, far + 1, device=self.weight.device)
        by_distance = self.weight.to(dtype)[self.bucket(distances)].t()  # (head, distance)
        queries, keys = query_positions.shape[-1], key_positions.shape[-1]
        if not is_compiling() and queries and keys:
            q, k = consecutive_from(query_positions), consecutive_from(key_positions)
            if q is not None and k is not None:
                # Constant along diagonals: look up queries + keys − 1 distances, then take sliding windows.
                diagonals = torch.arange(k - q - queries + 1, k - q + keys, device=distances.device)
                values = by_distance[:, diagonals.clamp(-far, far) + far]
                return values.unfold(-1, keys, 1).flip(-2).unsqueeze(0)
        distance = key_positions.long()[:, None, :] - query_positions.long()[:, :, None]
        return by_distance[:, distance.clamp(-far, far) + far].transpose(0, 1)

    def extra_repr(self) -> str:
        ways = "both ways" if self.bidirectional else "backwards only"
        return f"{self.num_heads}, buckets={self.buckets}, max_distance={self.max_distance}, {ways}"


def _bucket_bounds(buckets: int, max_distance: int) -> tuple[int, ...]:
    """First distances of position buckets 1, 2, …: the bucket of a distance is the number of bounds ≤ it.

    Rounded in float32 as in T5: if a logarithm is near an integer, rounding decides the bucket.
    """
    exact = buckets // 2
    scale = to_float32(math.log(max_distance / exact))

    def bucket(distance: int) -> int:
        """The relative position bucket of a distance."""
        if distance < exact:
            return distance
        share = to_float32(to_float32(math.log(to_float32(distance / exact))) / scale)
        return min(exact + int(to_float32(share * (buckets - exact))), buckets - 1)

    return tuple(bisect_left(range(max_distance + 1), i, key=bucket) for i in range(1, buckets))
