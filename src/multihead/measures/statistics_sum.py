"""The statistics of attention as an accumulator: the mean over all query rows of every head; only sums are held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from multihead._base.arguments import check_tokenizer
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, State
from multihead.model.call import Call
from multihead.model.capture import Capture
from multihead.model.kept_tensors import Keep
from multihead.model.statistics.statistics_options import Statistics, check_statistics
from multihead.table.table import HeadTable


def with_special(statistics: Statistics, tokenizer: Any) -> Statistics:
    """Options of statistics with the special tokens of a tokenizer, unless some are named already."""
    check_tokenizer(tokenizer)
    check_statistics(statistics)
    if tokenizer is None or statistics.special:
        return statistics
    return replace(statistics, special=tuple(tokenizer.all_special_ids))


class StatisticsSum(Accumulator):
    """The mean over all query rows of every statistic of every head."""

    name = "statistics"
    sharded = True
    forwards = 1.5

    def __init__(self, statistics: Statistics | None = None) -> None:
        super().__init__()
        self.capture = Capture(statistics or Statistics(), Keep())

    def add(self, call: Call, out: HeadOutputs) -> None:
        self.capture.add(call, out)

    def merge(self, later: StatisticsSum) -> None:
        self.capture.merge(later.capture)

    def state(self) -> State:
        return self.capture.state()

    def load(self, state: State) -> None:
        self.capture = Capture(self.capture.options, Keep())
        self.capture.load(state)

    def columns(self) -> HeadTable:
        self.capture.finish()
        table = self.capture.table()
        return replace(table, about={**table.about, "notes": list(self.notes)}) if self.notes else table
