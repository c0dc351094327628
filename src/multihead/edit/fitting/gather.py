"""ZᵀZ and ZᵀR of a linear map, summed over batches in fp64: all that a least-squares fit of it needs.

z is what goes into the map in the cut model, R what is missing behind it. With the residual sum s = x + c·o found
in both, R = (s_T − s_S) / c: what the map must add so that the *stream* is the original's, errors of earlier layers
included. Without, R = o_T − o_S.

>>> import copy, torch
>>> from multihead.edit.fitting.gather import gather
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> other = copy.deepcopy(model)
>>> sums = gather(model, other, "self_attn.out_proj.weight", [{"src": torch.randn(2, 7, 12)}], bias=True)
>>> sums.tokens, sums.missing, sums.zz.shape             # nothing was cut: nothing is missing
(14, 0.0, torch.Size([13, 13]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.data_parallel import shard
from multihead.corpus.run import Runner
from multihead.edit.fitting.residual import watched
from multihead.errors import MultiheadError
from multihead.model.forward import Forward
from multihead.model.statistics.cross_moments import Crossed, CrossMoments, Square


@dataclass(frozen=True)
class Sums:
    """The moments of z with R, Σ ‖R‖² and Σ ‖target‖² over tokens."""

    moments: CrossMoments
    missing: float
    size: float
    stream: bool
    """whether R is what is missing of the residual stream, not only of the map's output"""
    bias: bool

    @property
    def tokens(self) -> int:
        return int(self.moments.count)

    @property
    def zz(self) -> Square:
        """Σ z zᵀ; with a bias the last column of z is 1."""
        return self._sums[0]

    @property
    def zr(self) -> Crossed:
        """Σ z Rᵀ"""
        return self._sums[1]

    @cached_property
    def _sums(self) -> tuple[Square, Crossed]:
        return self.moments.sums(bias=self.bias)

    def __add__(self, other: Sums) -> Sums:
        """Over the tokens of both."""
        both = CrossMoments()
        both.merge(self.moments)
        both.merge(other.moments)
        stream = self.stream and other.stream
        return Sums(both, self.missing + other.missing, self.size + other.size, stream, self.bias)

    def error(self, change: Crossed) -> float:
        """Σ ‖R − changeᵀ z‖²: what is still missing after the map was changed so."""
        return self.missing + float((change * (self.zz @ change - 2 * self.zr)).sum())


def gather(
    teacher: nn.Module,
    student: nn.Module,
    parameter: str,
    batches: Iterable[Inputs],
    *,
    bias: bool,
    run: Runner = Forward.run,
    progress: Callable[[int], None] | None = None,
) -> Sums:
    """Run both models up to the map, batch by batch; real tokens only. Ranks take their share, and get all sums."""
    moments = CrossMoments()
    mine, all_reduce = shard(batches)
    missing, size, stream = 0.0, 0.0, True
    for done, batch in enumerate(mine, start=1):
        old = watched(teacher, batch, parameter, run=run)
        new = watched(student, batch, parameter, old, run=run)
        if old.o.shape != new.o.shape:
            raise MultiheadError(
                f"{parameter} gives {tuple(old.o.shape)} in the original and {tuple(new.o.shape)} in the cut model",
                hint="both must be of the same architecture, and run every token",
            )
        stream = old.total is not None and new.total is not None
        if old.total is not None and new.total is not None:
            rest, whole = (old.total.double() - new.total.double()) / _wide(new.scale), old.total
        else:
            rest, whole = old.o.double() - new.o.double(), old.o
        moments.add(new.z, rest)
        missing += float(rest.square().sum())
        size += float(whole.double().square().sum())
        if progress is not None:
            progress(done)
    if not moments.count:
        raise MultiheadError(f"there was no batch to see {parameter} on", hint="the calibration text is empty")
    errors = torch.tensor([missing, size], dtype=torch.float64)
    moments.all_reduce(all_reduce)
    all_reduce(errors)
    return Sums(moments, float(errors[0]), float(errors[1]), stream, bias)


def _wide(scale: float | Tensor) -> float | Tensor:
    return scale.double() if isinstance(scale, Tensor) else scale
