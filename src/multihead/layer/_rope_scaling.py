"""Rotary frequencies, and scalings of them for texts longer than a model was trained on.

Frequencies are Python floats, so they are constants in eager mode, in compiled and exported graphs and on the meta
device, and `model.half()` cannot round them.

Each step is rounded to float32 where transformers rounds it (`Round`). A frequency off by one unit in the last
place shifts the angle at position 4096 by up to 2e-4 radians, so agreeing with pretrained models requires the same
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from multihead._base.arguments import check_count, check_flag, check_number
from multihead.errors import SizeError

Round = Callable[[float], float]


def exactly(x: float) -> float:
    """x, unchanged (float64)."""
    return x


def to_float32(x: float) -> float:
    """x rounded to 24 bits (Veltkamp's split), by arithmetic that torch.compile can trace."""
    big = x * 536870913.0  # 2**29 + 1
    return big - (big - x)


def frequencies(base: float, dim: int, rounded: Round = exactly) -> list[float]:
    """base ** (-2i / dim) for i in 0..dim/2-1: radians per position of each pair of dimensions."""
    return [rounded(1.0 / rounded(base ** rounded(i / dim))) for i in range(0, dim, 2)]


@runtime_checkable
class Scaling(Protocol):
    """The frequencies of a scaling, and its gain on cos and sin."""

    @property
    def gain(self) -> float: ...

    def frequencies(self, base: float, dim: int, rounded: Round = exactly) -> list[float]: ...


@dataclass(frozen=True)
class Linear:
    """frequency / factor: positions are divided by `factor` (Chen et al. 2023, position interpolation)."""

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0.0)

    @property
    def gain(self) -> float:
        return 1.0

    def frequencies(self, base: float, dim: int, rounded: Round = exactly) -> list[float]:
        return [rounded(f / self.factor) for f in frequencies(base, dim, rounded)]


@dataclass(frozen=True)
class NTK:
    """base · factor ** (dim / (dim − 2)): stretches slow pairs by `factor` and the fastest not at all (bloc97)."""

    factor: float

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0.0)

    @property
    def gain(self) -> float:
        return 1.0

    def frequencies(self, base: float, dim: int, rounded: Round = exactly) -> list[float]:
        return frequencies(base * self.factor ** _ntk_power(dim), dim, rounded)


@dataclass(frozen=True)
class DynamicNTK:
    """NTK with a factor that grows with the length: factor · length / original − (factor − 1), at least 1.

    `length` is one more than the largest position of the call. Cached keys keep the rotation of the length at which
    they were written (as in transformers), so past `original` tokens decoding with a cache differs from a full
    pass. With every other scaling the two agree.
    """

    factor: float
    original: int

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0.0)
        check_count("original", self.original)

    @property
    def gain(self) -> float:
        return 1.0

    def stretch(self, length: Tensor, dim: int) -> Tensor:
        """The factor on each RoPE frequency at `length`, a tensor because the length is data."""
        ratio = length.to(torch.float64).clamp(min=self.original) / self.original
        powers = [-i * _ntk_power(dim) / dim for i in range(0, dim, 2)]
        return (self.factor * ratio - (self.factor - 1)) ** torch.tensor(
            powers, dtype=torch.float64, device=length.device
        )

    def frequencies(self, base: float, dim: int, rounded: Round = exactly) -> list[float]:
        """The frequencies within the original length, which are not stretched."""
        return frequencies(base, dim, rounded)


@dataclass(frozen=True)
class YaRN:
    """frequency / factor for slow pairs, frequency for fast ones, a ramp between (Peng et al. 2023).

    A pair is fast if it rotates more than `beta_fast` times within the `original` length, slow if less than
    `beta_slow` times. cos and sin are multiplied by `attention_factor`; if None, by 0.1 · ln(factor) + 1.
    `truncate` rounds the ends of the ramp outwards to integer pairs, as most published models do.
    """

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0.0)
        check_count("original", self.original)
        check_number("beta_slow", self.beta_slow, above=0.0)
        check_number("beta_fast", self.beta_fast, above=self.beta_slow)
        if self.attention_factor is not None:
            check_number("attention_factor", self.attention_factor)
        check_flag("truncate", self.truncate)

    @property
    def gain(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def frequencies(self, base: float, dim: int, rounded: Round = exactly) -> list[float]:
        """RoPE frequencies by YaRN: high ones unchanged, low ones divided, a ramp between."""
        low, high = (self._pair_with_rotations(n, base, dim) for n in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        width = rounded(high - low) if high != low else rounded(0.001)
        low = rounded(low)
        out: list[float] = []
        for i in range(dim // 2):
            period = rounded(base ** rounded(2 * i / dim))
            ramp = rounded(rounded(i - low) / width)
            if ramp <= 0:
                out.append(rounded(1.0 / period))
                continue
            slow = rounded(1.0 / rounded(self.factor * period))
            if ramp < 1:
                keep = rounded(1.0 - ramp)
                fast = rounded(1.0 / period)
                slow = rounded(rounded(slow * rounded(1.0 - keep)) + rounded(fast * keep))
            out.append(slow)
        return out

    def _pair_with_rotations(self, count: float, base: float, dim: int) -> float:
        """The index, as a real number, of the pair that rotates `count` times within the original length."""
        return dim * math.log(self.original / (count * 2 * math.pi)) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3:
    """frequency / factor for waves longer than original / low, unchanged below original / high, a ramp between.

    The scaling of Llama 3.1 (Grattafiori et al. 2024); its models use factor 8, low 1, high 4, original 8192.
    """

    factor: float
    low: float
    high: float
    original: int

    def __post_init__(self) -> None:
        check_number("factor", self.factor, above=0.0)
        check_number("low", self.low, above=0.0)
        check_number("high", self.high, above=self.low)
        check_count("original", self.original)

    @property
    def gain(self) -> float:
        return 1.0

    def frequencies(self, base: float, dim: int, rounded: Round = exactly) -> list[float]:
        return [self._stretch(f, rounded) for f in frequencies(base, dim, rounded)]

    def _stretch(self, f: float, rounded: Round) -> float:
        """A RoPE frequency scaled as Llama 3 does: by wavelength, low ones divided."""
        # torch computes number / tensor as the number times the rounded reciprocal.
        wavelength = rounded(rounded(2 * math.pi) * rounded(1.0 / f))
        if wavelength > self.original / self.low:
            return rounded(f / self.factor)
        if wavelength < self.original / self.high:
            return f
        turns = rounded(self.original * rounded(1.0 / wavelength))
        share = rounded(rounded(turns - self.low) / (self.high - self.low))
        slow = rounded(rounded(rounded(1.0 - share) * f) / self.factor)
        return rounded(slow + rounded(share * f))


def _ntk_power(dim: int) -> float:
    if dim <= 2:
        raise SizeError(f"NTK scaling needs a rotary dim > 2, got {dim}", hint="choose dim > 2")
    return dim / (dim - 2)
