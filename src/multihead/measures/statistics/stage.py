"""The statistics of every head as a stage: one plain run of the model per batch, sums that can be put down.

>>> import torch
>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.measures.statistics.options import Statistics
>>> from multihead.measures.statistics.stage import StatisticsStage
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> stage = StatisticsStage(model, Statistics())
>>> stage.step({"input_ids": torch.tensor([[3, 1, 4, 1, 5]])})
>>> len(stage.table), stage.heads.tokens
(6, 5)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from multihead.measures.stage import Batch
from multihead.measures.statistics.options import Statistics
from multihead.measures.tables.table import HeadTable
from multihead.model.capture import Heads
from multihead.model.keep import Keep


class StatisticsStage:
    """Mean over all query rows of every statistic of every head."""

    name = "statistics"

    def __init__(self, model: nn.Module, statistics: Statistics) -> None:
        self.model = model
        self.heads = Heads(model, statistics, Keep())

    def step(self, batch: Batch) -> None:
        with torch.no_grad(), self.heads.watch():
            self.model(**batch)

    def begin(self, batch: int) -> None:
        """Nothing is drawn at random."""

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        return Heads.merged(first, second)

    def state(self) -> dict[str, Any]:
        return self.heads.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self.heads.load(state)

    @property
    def table(self) -> HeadTable:
        self.heads.finish()
        return HeadTable.of(self.heads)
