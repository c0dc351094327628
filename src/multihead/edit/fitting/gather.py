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

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.data_parallel import shard
from multihead.edit.fitting.residual import watched
from multihead.edit.fitting.resume import Runner, from_start
from multihead.edit.fitting.square import Square
from multihead.errors import MultiheadError

Crossed = Float64[Tensor, "column row"]


@dataclass(frozen=True)
class Sums:
    """Σ z zᵀ, Σ z Rᵀ, Σ ‖R‖² and Σ ‖target‖² over tokens; with a bias the last column of z is 1."""

    zz: Float64[Tensor, "column column"]
    zr: Crossed
    missing: float
    size: float
    tokens: int
    stream: bool
    """whether R is what is missing of the residual stream, not only of the map's output"""
    bias: bool

    def __add__(self, other: Sums) -> Sums:
        """Over the tokens of both."""
        return Sums(
            self.zz + other.zz,
            self.zr + other.zr,
            self.missing + other.missing,
            self.size + other.size,
            self.tokens + other.tokens,
            self.stream and other.stream,
            self.bias,
        )

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
    run: Runner = from_start,
    progress: Callable[[int], None] | None = None,
) -> Sums:
    """Run both models up to the map, batch by batch; real tokens only. Ranks take their share, and get all sums."""
    square, zr = Square(), None
    mine, summed = shard(batches)
    missing, size, tokens, stream = 0.0, 0.0, 0, True
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
        z = new.z.double()
        z = torch.cat([z, z.new_ones(len(z), 1)], dim=1) if bias else z
        square.add(z)
        zr = z.T @ rest if zr is None else zr.addmm_(z.T, rest)
        missing += float(rest.square().sum())
        size += float(whole.double().square().sum())
        tokens += len(z)
        if progress is not None:
            progress(done)
    zz = square.whole()
    if zz is None or zr is None:
        raise MultiheadError(f"there was no batch to see {parameter} on", hint="the calibration text is empty")
    counted = torch.tensor([missing, size, tokens], dtype=torch.float64)
    summed(zz, zr, counted)
    missing, size, tokens = float(counted[0]), float(counted[1]), int(counted[2])
    return Sums(zz, zr, missing, size, tokens, stream, bias)


def _wide(scale: float | Tensor) -> float | Tensor:
    return scale.double() if isinstance(scale, Tensor) else scale
