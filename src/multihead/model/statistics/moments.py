"""Count, mean, sum of squared deviations, extremes and histogram of many streams of numbers, mergeable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead.errors import SizeError
from multihead.model.statistics.arena import Scratch
from multihead.table.meaning import BINS, Scale

KEPT = ("count", "mean", "squares", "lowest", "highest", "histogram")


class Moments:
    """Of (statistic, head): what one pass over all numbers would give, whatever the order and the parts.

    Parts are joined by Chan et al. 1979: with δ = mean_b − mean_a,
    mean = mean_a + δ n_b / n, squares = squares_a + squares_b + δ² n_a n_b / n. NaN means: no number here.
    """

    def __init__(self, scales: Sequence[Scale | None], heads: int, room: Scratch | None = None) -> None:
        """`room`: memory apart from the heap, see `Scratch`."""
        shape, room = (len(scales), heads), room or Scratch()
        self.scales = list(scales)
        self.binned = [i for i, scale in enumerate(scales) if scale is not None]
        whole, real = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
        self.count: Int[Tensor, "statistic head"] = room.take(whole, *shape).zero_()
        self.mean: Float[Tensor, "statistic head"] = room.take(real, *shape).zero_()
        self.squares: Float[Tensor, "statistic head"] = room.take(real, *shape).zero_()
        self.lowest: Float[Tensor, "statistic head"] = room.take(real, *shape).fill_(torch.inf)
        self.highest: Float[Tensor, "statistic head"] = room.take(real, *shape).fill_(-torch.inf)
        self.histogram: Int[Tensor, "binned head bin"] = room.take(whole, len(self.binned), heads, BINS).zero_()

    def add(self, x: Float[Tensor, "some_statistic some_head row"], heads: slice, which: Sequence[int]) -> None:
        """Take in rows of the statistics `which` of some of the heads."""
        total = x.sum(-1, dtype=torch.float64)
        gaps = total.isnan().any(-1).tolist()
        for missing, run in groupby(range(len(gaps)), key=gaps.__getitem__):  # views, and no copy of what is whole
            rows = list(run)
            at = slice(rows[0], rows[-1] + 1)
            nan = x[at].isnan() if missing else None
            totals = x[at].nansum(-1, dtype=torch.float64) if missing else total[at]
            self._add(x[at], totals, nan, heads, list(which[at]))

    def _add(self, x: Tensor, total: Tensor, missing: Tensor | None, heads: slice, which: list[int]) -> None:
        rows = x.shape[2]
        count = torch.full_like(total, rows, dtype=torch.long) if missing is None else rows - missing.sum(-1)
        mean = total / count.clamp(min=1)
        pivot = mean.to(x.dtype)
        off = x - pivot.unsqueeze(-1)
        low = high = x
        if missing is not None:
            off.masked_fill_(missing, 0.0)
            low, high = x.masked_fill(missing, torch.inf), x.masked_fill(missing, -torch.inf)
        # Around a pivot that is the mean but for its rounding, what is left to subtract is next to nothing.
        squares = off.square_().sum(-1, dtype=torch.float64) - (mean - pivot).square() * count
        extremes = low.amin(-1).double().cpu(), high.amax(-1).double().cpu()
        self._join((which, heads), count.cpu(), mean.cpu(), squares.clamp_(min=0).cpu(), *extremes)
        for scale in set(filter(None, (self.scales[i] for i in which))):
            self._count_bins(scale, x, missing, heads, which)

    def _count_bins(self, scale: Scale, x: Tensor, missing: Tensor | None, heads: slice, which: list[int]) -> None:
        mine = [at for at, i in enumerate(which) if self.scales[i] == scale]
        bins = scale.bins(x[mine])
        if missing is not None:
            bins.masked_fill_(missing[mine], BINS)  # a bin of its own, which is then left out
        bins += torch.arange(len(mine) * x.shape[1], dtype=bins.dtype, device=x.device).view(-1, x.shape[1], 1) * (
            BINS + 1
        )
        counted = torch.bincount(bins.flatten(), minlength=len(mine) * x.shape[1] * (BINS + 1))
        target = [self.binned.index(which[at]) for at in mine]
        self.histogram[target, heads] += counted.view(len(mine), -1, BINS + 1)[..., :BINS].cpu()

    def _join(
        self,
        at: tuple[list[int] | slice, slice],
        count: Tensor,
        mean: Tensor,
        squares: Tensor,
        lowest: Tensor,
        highest: Tensor,
    ) -> None:
        before = self.count[at]
        both = before + count
        share = count.double() / both.clamp(min=1)
        step = mean - self.mean[at]
        self.squares[at] += squares + step.square() * before * share
        self.mean[at] += step * share
        self.count[at] = both
        self.lowest[at] = torch.minimum(self.lowest[at], lowest)
        self.highest[at] = torch.maximum(self.highest[at], highest)

    def merge(self, other: Moments) -> None:
        """Take in all that another has taken in."""
        if self.mean.shape != other.mean.shape or self.scales != other.scales:
            raise SizeError(
                f"{tuple(self.mean.shape)} and {tuple(other.mean.shape)} (statistics, heads) do not merge",
                hint="both must be made with the same options and the same number of heads",
            )
        self._join((slice(None), slice(None)), other.count, other.mean, other.squares, other.lowest, other.highest)
        self.histogram += other.histogram

    @staticmethod
    def merged(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state of both, for streams without a scale."""
        both = [Moments([None] * len(state["mean"]), state["mean"].shape[1]) for state in (first, second)]
        for made, state in zip(both, (first, second), strict=True):
            made.load(state)
        both[0].merge(both[1])
        return both[0].state()

    def state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).clone() for name in KEPT}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name in KEPT:
            mine: Tensor = getattr(self, name)
            if mine.shape != state[name].shape:
                raise SizeError(
                    f"{name} of the state is {tuple(state[name].shape)}, here it is {tuple(mine.shape)}",
                    hint="the state was made with other options or another number of heads",
                )
            mine.copy_(state[name])
