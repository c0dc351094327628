"""The statistics of every head over a corpus, a batch at a time; only sums are held.

>>> import multihead as mh
>>> from transformers import GPT2Config, GPT2Model
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> table = mh.measure(model, [[3, 1, 4, 1, 5], [9, 2, 6]])
>>> len(table), "entropy" in table.columns
(6, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from multihead._base.arguments import check_tokenizer
from multihead.corpus.accumulator import Batch, run_stage
from multihead.corpus.batches import WINDOW, Document, PaddingStats, batches
from multihead.model.capture import Capture
from multihead.model.forward import Forward
from multihead.model.keep import Keep
from multihead.model.statistics.options import Statistics, check_statistics
from multihead.table.table import HeadTable


def measure(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    statistics: Statistics | None = None,
    batch_size: int = 8,
    max_tokens: int | None = None,
    window: int = WINDOW,
    column: str = "text",
) -> HeadTable:
    """The mean of every statistic of every head over `data`; nothing is held but sums.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches: mappings that `model(**batch)` takes; a
            dataset of Hugging Face is an iterable of rows, of which `column` is read if it holds text.
        statistics: `multihead.Statistics`; with a tokenizer, its special tokens are filled in.
        max_tokens: longer documents are cut into pieces of so many tokens; else too long ones are an error.
        window: so many batches of documents are sorted by length, so that less is padded; 1 keeps their order.
    """
    stage, tally = StatisticsStage(model, with_special(statistics or Statistics(), tokenizer)), PaddingStats()
    read = batches(
        model,
        data,
        tokenizer=tokenizer,
        batch_size=batch_size,
        max_tokens=max_tokens,
        window=window,
        column=column,
        tally=tally,
    )
    table = run_stage(stage, read).table
    return replace(table, about={**table.about, "batching": tally.about()}) if tally.tokens else table


def with_special(statistics: Statistics, tokenizer: Any) -> Statistics:
    """The special tokens of a tokenizer, unless some are named already."""
    check_tokenizer(tokenizer)
    check_statistics(statistics)
    if tokenizer is None or statistics.special:
        return statistics
    return replace(statistics, special=tuple(tokenizer.all_special_ids))


class StatisticsStage:
    """Mean over all query rows of every statistic of every head."""

    name = "statistics"

    def __init__(self, model: nn.Module, statistics: Statistics) -> None:
        self.forward = Forward(model)
        self.heads = Capture(model, statistics, Keep())

    def step(self, batch: Batch) -> None:
        self.forward(batch, self.heads.listen, spread=True)

    def begin(self, batch: int) -> None:
        """Nothing is drawn at random."""

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        return Capture.merged(first, second)

    def state(self) -> dict[str, Any]:
        return self.heads.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.heads.load(state)

    @property
    def table(self) -> HeadTable:
        self.heads.finish()
        table = self.heads.table()
        return replace(table, about={**table.about, "notes": self.forward.notes}) if self.forward.notes else table
