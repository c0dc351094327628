"""A layer as plain data, and the layer it describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

import multihead as mh
from multihead import position
from multihead.layer import QKNorm, Sinks, init

GAIN = 1.4  # of the init: logits then have a standard deviation of 2 to 3, so nothing hides in a flat softmax


@dataclass(frozen=True)
class Rope:
    """Rotary; `scaling` is the name of a scaling and its arguments: ("Linear", 2.5)."""

    base: float = 10_000.0
    interleaved: bool = False
    dim: int | float | None = None
    scaling: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Slopes:
    """ALiBi."""

    slopes: tuple[float, ...] | None = None
    learned: bool = False


@dataclass(frozen=True)
class Buckets:
    """RelativeBias."""

    buckets: int = 8
    max_distance: int = 16
    bidirectional: bool = True


Norm = tuple[Literal["rms", "layer"], Literal["before", "after"], float]


@dataclass(frozen=True)
class Layer:
    """The arguments of the constructor. Fields of None keep the default of the layer."""

    d_model: int = 8
    heads: int = 2
    head_dim: int = 4
    value_dim: int | None = None
    kv_heads: int | None = None
    kv_of_head: tuple[int, ...] | None = None
    d_key: int | None = None
    d_value: int | None = None
    d_out: int | None = None
    bias: bool | str = True
    position: Rope | Slopes | Buckets | None = None
    norm: Norm | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    single: bool = False  # float32 instead of float64
    seed: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.single else torch.float64

    @property
    def values(self) -> int:
        """Size of a head's value."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def kv_count(self) -> int:
        if self.kv_heads is not None:
            return self.kv_heads
        return self.heads if self.kv_of_head is None else max(self.kv_of_head) + 1

    @property
    def kv_map(self) -> list[int]:
        """The kv head of each query head: head // group_size, unless given."""
        if self.kv_of_head is not None:
            return list(self.kv_of_head)
        return [head // (self.heads // self.kv_count) for head in range(self.heads)]

    @property
    def key_width(self) -> int:
        return self.d_model if self.d_key is None else self.d_key

    @property
    def value_width(self) -> int:
        return self.key_width if self.d_value is None else self.d_value

    @property
    def dynamic(self) -> bool:
        """Whether frequencies depend on the length of the call."""
        rope = self.position
        return isinstance(rope, Rope) and rope.scaling is not None and rope.scaling[0] == "DynamicNTK"

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of MultiHeadAttention, apart from dtype and init."""
        given: dict[str, Any] = {"head_dim": self.head_dim, "bias": self.bias}
        given |= {
            name: getattr(self, name)
            for name in ("value_dim", "kv_of_head", "d_key", "d_value", "d_out", "scale", "softcap")
            if getattr(self, name) is not None
        }
        if self.kv_heads is not None:
            given["num_kv_heads"] = self.kv_heads
        if self.norm is not None:
            given["qk_norm"] = QKNorm(*self.norm)
        if self.sinks:
            given["sinks"] = Sinks()
        if self.position is not None:
            given["position"] = self._encoding()
        return given

    def build(self) -> mh.MultiHeadAttention:
        """The layer, with no parameter at zero or one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layer = mh.MultiHeadAttention(
                self.d_model, self.heads, **self.arguments(), init=init.XavierPerHead(GAIN)
            )
            with torch.no_grad():
                for name, parameter in layer.named_parameters():
                    if parameter.ndim == 1:
                        parameter.add_(torch.randn(parameter.shape), alpha=0.4)
                    elif name.startswith("position"):
                        parameter.normal_()
        return layer.to(self.dtype)

    def _encoding(self) -> Any:
        where = self.position
        if isinstance(where, Rope):
            name, *numbers = where.scaling or (None,)
            scaling = None if name is None else getattr(position, name)(*numbers)
            return position.Rotary(where.base, interleaved=where.interleaved, dim=where.dim, scaling=scaling)
        if isinstance(where, Slopes):
            return position.ALiBi(self.heads, slopes=where.slopes, learned=where.learned)
        assert isinstance(where, Buckets)
        return position.RelativeBias(
            self.heads,
            buckets=where.buckets,
            max_distance=where.max_distance,
            bidirectional=where.bidirectional,
        )
