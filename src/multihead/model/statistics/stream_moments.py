"""Mergeable count, mean, sum of squared deviations, extremes and histogram of many streams of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead.errors import SizeError
from multihead.model.statistics.arena import Scratch
from multihead.table.column_info import BINS, Scale

KEPT = ("count", "mean", "squares", "lowest", "highest", "histogram")


class StreamMoments:
    """Moments per (statistic, head), independent of the order of the rows and of how they are split.

    Parts are merged as in Chan et al. 1979: with δ = mean_b − mean_a,
    mean = mean_a + δ n_b / n, squares = squares_a + squares_b + δ² n_a n_b / n. NaN marks a missing value.
    """

    def __init__(self, scales: Sequence[Scale | None], heads: int, room: Scratch | None = None) -> None:
        """`room`: memory outside the heap, see `Scratch`."""
        shape, scratch = (len(scales), heads), room or Scratch()
        self.scales = list(scales)
        self.binned = [i for i, scale in enumerate(scales) if scale is not None]
        integer, real = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
        self.count: Int[Tensor, "statistic head"] = scratch.take(integer, *shape).zero_()
        self.mean: Float[Tensor, "statistic head"] = scratch.take(real, *shape).zero_()
        self.squares: Float[Tensor, "statistic head"] = scratch.take(real, *shape).zero_()
        self.lowest: Float[Tensor, "statistic head"] = scratch.take(real, *shape).fill_(torch.inf)
        self.highest: Float[Tensor, "statistic head"] = scratch.take(real, *shape).fill_(-torch.inf)
        bins = len(self.binned), heads, BINS
        self.histogram: Int[Tensor, "binned head bin"] = scratch.take(integer, *bins).zero_()

    def add(self, x: Float[Tensor, "some_statistic some_head row"], heads: slice, indices: Sequence[int]) -> None:
        """Add rows to the moments of some streams of values, those of some heads."""
        total = x.sum(-1, dtype=torch.float64)
        has_nan = total.isnan().any(-1).tolist()
        # Slices are views: statistics without NaN are not copied.
        for missing, run in groupby(range(len(has_nan)), key=has_nan.__getitem__):
            rows = list(run)
            part = slice(rows[0], rows[-1] + 1)
            nan = x[part].isnan() if missing else None
            totals = x[part].nansum(-1, dtype=torch.float64) if missing else total[part]
            self._add(x[part], totals, nan, heads, list(indices[part]))

    def _add(self, x: Tensor, total: Tensor, missing: Tensor | None, heads: slice, indices: list[int]) -> None:
        """Add values of streams to mean, squares and extremes."""
        rows = x.shape[2]
        count = torch.full_like(total, rows, dtype=torch.long) if missing is None else rows - missing.sum(-1)
        mean = total / count.clamp(min=1)
        pivot = mean.to(x.dtype)
        deviation = x - pivot.unsqueeze(-1)
        low = high = x
        if missing is not None:
            deviation.masked_fill_(missing, 0.0)
            low, high = x.masked_fill(missing, torch.inf), x.masked_fill(missing, -torch.inf)
        # The pivot is the rounded mean, so the correction term is tiny and does not cancel.
        squares = deviation.square_().sum(-1, dtype=torch.float64) - (mean - pivot).square() * count
        extremes = low.amin(-1).double().cpu(), high.amax(-1).double().cpu()
        self._join((indices, heads), count.cpu(), mean.cpu(), squares.clamp_(min=0).cpu(), *extremes)
        for scale in set(filter(None, (self.scales[i] for i in indices))):
            self._count_bins(scale, x, missing, heads, indices)

    def _count_bins(
        self, scale: Scale, x: Tensor, missing: Tensor | None, heads: slice, indices: list[int]
    ) -> None:
        """Count the values of streams in histogram bins."""
        selected = [i for i, index in enumerate(indices) if self.scales[index] == scale]
        bins = scale.bins(x[selected])
        if missing is not None:
            bins.masked_fill_(missing[selected], BINS)  # an extra bin, dropped below
        streams = len(selected) * x.shape[1]
        bins += torch.arange(streams, dtype=bins.dtype, device=x.device).view(-1, x.shape[1], 1) * (BINS + 1)
        counts = torch.bincount(bins.flatten(), minlength=streams * (BINS + 1))
        target = [self.binned.index(indices[i]) for i in selected]
        self.histogram[target, heads] += counts.view(len(selected), -1, BINS + 1)[..., :BINS].cpu()

    def _join(
        self,
        index: tuple[list[int] | slice, slice],
        count: Tensor,
        mean: Tensor,
        squares: Tensor,
        lowest: Tensor,
        highest: Tensor,
    ) -> None:
        """Join the moments of further values to the streams'."""
        old_count = self.count[index]
        count_of_both = old_count + count
        share = count.double() / count_of_both.clamp(min=1)
        delta = mean - self.mean[index]
        self.squares[index] += squares + delta.square() * old_count * share
        self.mean[index] += delta * share
        self.count[index] = count_of_both
        self.lowest[index] = torch.minimum(self.lowest[index], lowest)
        self.highest[index] = torch.maximum(self.highest[index], highest)

    def merge(self, other: StreamMoments) -> None:
        """Add the moments of other rows, stream by stream."""
        if self.mean.shape != other.mean.shape or self.scales != other.scales:
            raise SizeError(
                f"{tuple(self.mean.shape)} and {tuple(other.mean.shape)} (statistics, heads) cannot merge",
                hint="create both with the same options and number of heads",
            )
        self._join((slice(None), slice(None)), other.count, other.mean, other.squares, other.lowest, other.highest)
        self.histogram += other.histogram

    @staticmethod
    def merged(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The moments of two states merged, for streams without a scale."""
        both = [StreamMoments([None] * len(state["mean"]), state["mean"].shape[1]) for state in (first, second)]
        for moments, state in zip(both, (first, second), strict=True):
            moments.load(state)
        both[0].merge(both[1])
        return both[0].state()

    def state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).clone() for name in KEPT}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore the moments of all streams."""
        for name in KEPT:
            field: Tensor = getattr(self, name)
            if field.shape != state[name].shape:
                raise SizeError(
                    f"{name} of the state must have shape {tuple(field.shape)}, got {tuple(state[name].shape)}",
                    hint="the state comes from different options or a different number of heads",
                )
            field.copy_(state[name])
