"""One attention problem: q, k, v, who may see whom, and how scores become weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from multihead._base.shapes import Keys, Positions, Queries, ScoreBias, Values
from multihead.errors import SizeError
from multihead.layer.frame import Frame, Grid, Span
from multihead.layer.mask_algebra import Leaf, Mask
from multihead.layer.position import PositionBias


def own_precision(device: torch.device) -> AbstractContextManager[object]:
    """Without autocast: the kernels choose their precision, and autocast would round the scores of some routes."""
    kind = device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # the first is for "meta"
    return torch.autocast(kind, enabled=False) if on else nullcontext()


@dataclass(frozen=True)
class Groups:
    """Which kv head each query head reads: kv_of_head[h]. Even groups are h // size, torch's order."""

    kv_of_head: tuple[int, ...]
    kv_heads: int

    @staticmethod
    def even(heads: int, kv_heads: int) -> Groups:
        if kv_heads < 1 or heads % kv_heads:
            divisors = [n for n in range(1, heads + 1) if heads % n == 0]
            raise SizeError(
                f"num_kv_heads={kv_heads} does not divide num_heads={heads}",
                hint=f"choose one of {', '.join(map(str, divisors))}, or give kv_of_head for uneven groups",
            )
        return Groups(tuple(h // (heads // kv_heads) for h in range(heads)), kv_heads)

    @property
    def size(self) -> int | None:
        """Query heads per kv head where groups are even and in order, else None."""
        heads = len(self.kv_of_head)
        if self.kv_heads == 0 or heads % self.kv_heads:
            return None
        size = heads // self.kv_heads
        return size if all(kv == h // size for h, kv in enumerate(self.kv_of_head)) else None

    def expand(self, x: Float[Tensor, "batch kv_head key dim"]) -> Float[Tensor, "batch head key dim"]:
        """x[:, kv_of_head]: a copy of the kv head for every query head; x itself where each has its own."""
        if self.size == 1:
            return x
        if self.size is not None:
            return x.repeat_interleave(self.size, dim=1)
        return x.index_select(1, torch.tensor(self.kv_of_head, dtype=torch.long, device=x.device))


@dataclass(frozen=True)
class Scores:
    """weights = dropout(softmax([softcap(q·k·scale) + added, sink]) without the sink's column)."""

    scale: float
    softcap: float | None = None
    sinks: Float[Tensor, " head"] | None = None
    dropout: float = 0.0
    stream: int = 0
    """tells what is drawn for heads of this rank from what others draw with the same seed"""


@dataclass(frozen=True)
class Problem:
    """What a route is asked to compute.

    With `packing`, row b of the frame is stored at packing[b]..packing[b+1]-1 of one long row: q, k and v
    then have batch 1 and hold no padding. With `cross` the keys are of another sequence than the queries, which
    no route needs to know, but whoever looks at the heads does.
    """

    q: Queries
    k: Keys
    v: Values
    groups: Groups
    mask: Mask
    frame: Frame
    scores: Scores
    packing: Sequence[int] | None = None
    cross: bool = False

    @property
    def needs_grad(self) -> bool:
        tensors = (self.q, self.k, self.v, self.scores.sinks)
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)

    @property
    def added_needs_grad(self) -> bool:
        return torch.is_grad_enabled() and bool(self.mask.learned())


class PositionScores(Leaf):
    """bias(query position, key position): what ALiBi and relative positions add to the scores."""

    adds = True
    per_head = True
    sees_self = True

    def __init__(
        self,
        position: PositionBias,
        positions: Positions | None,
        dtype: torch.dtype,
        numbers: dict[str, Tensor] | None = None,
    ) -> None:
        self.position = position
        self.numbers = numbers  # in place of its own parameters
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.positions = positions  # of queries and keys alike, where the user gave them; else their places
        self.name = f"{type(position).__name__}"

    def learned(self) -> list[Tensor]:
        own = self.position.parameters() if isinstance(self.position, nn.Module) else ()
        return [p for p in (own if self.numbers is None else self.numbers.values()) if p.requires_grad]

    def added(self, grid: Grid) -> ScoreBias | None:
        query, key = grid.query[:, 0, :, 0], grid.key[:, 0, 0, :]
        if self.positions is not None:
            own = self.positions if self.positions.shape[0] == 1 else self.positions[grid.batches]
            query, key = own[:, grid.rows], grid.take_columns(own)
        return self._bias(query, key)[:, grid.head[0, :, 0, 0]]

    def _bias(
        self, query: Int[Tensor, "#batch query"], key: Int[Tensor, "#batch key"]
    ) -> Float[Tensor, "#batch head query key"]:
        if not self.numbers or not isinstance(self.position, nn.Module):
            return self.position.bias(query, key, self.dtype)
        named = {f"position.{name}": x for name, x in self.numbers.items()}
        return functional_call(_Biased(self.position), named, (query, key, self.dtype))

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return False


class _Biased(nn.Module):
    """`bias` as a forward, which is what functional_call calls."""

    def __init__(self, position: nn.Module) -> None:
        super().__init__()
        self.position = position

    def forward(self, query: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
        return cast(PositionBias, self.position).bias(query, key, dtype)
