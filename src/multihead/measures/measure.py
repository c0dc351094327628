"""The statistics of every head over a corpus, batch by batch; only sums are held.

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
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, State
from multihead.corpus.batches import BATCH_SIZE, WINDOW, Document
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.model.call import Call
from multihead.model.capture import Capture
from multihead.model.keep import Keep
from multihead.model.statistics.options import Statistics, check_statistics
from multihead.table.table import HeadTable


def measure(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    statistics: Statistics | None = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    window: int = WINDOW,
    column: str = "text",
) -> HeadTable:
    """The mean of every statistic of every head over `data`; only sums are held.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches: mappings with the arguments of the model's
            forward. A dataset of Hugging Face is an iterable of rows; `column` is read if it holds text.
        statistics: `multihead.Statistics`; with a tokenizer, its special tokens are filled in.
        max_tokens: longer documents are cut into pieces of so many tokens; default: the positions of the model.
        window: the documents of so many batches are sorted by length, to pad less; 1 keeps their order.
    """
    sums = StatisticsSum(with_special(statistics or Statistics(), tokenizer))
    corpus = Corpus(
        model,
        data,
        tokenizer=tokenizer,
        batch_size=batch_size,
        max_tokens=max_tokens,
        window=window,
        column=column,
    )
    summary, table = run(model, corpus, [sums]), sums.columns()
    if not summary.padding.tokens:
        return table
    return replace(table, about={**table.about, "batching": summary.padding.about()})


def with_special(statistics: Statistics, tokenizer: Any) -> Statistics:
    """The special tokens of a tokenizer, unless some are named already."""
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
