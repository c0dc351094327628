"""A small run of all stages that needs no transformers: what the tests of this folder start as many processes.

python measuring.py FOLDER [--die RANK BATCH]: measures with the processes that torchrun started, and writes
FOLDER/table.json. It goes on with what is in FOLDER/state. With --die, a rank kills itself at a batch, unless
torchrun has started it again.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor, nn

from multihead.corpus.accumulator import Accumulator, Batch, Inputs
from multihead.corpus.checkpoint import Checkpoint
from multihead.corpus.documents import Corpus
from multihead.corpus.ranks import Ranks, restarted
from multihead.corpus.run import run
from multihead.measures.importance.ablation import Ablation, MeanOutputs
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.losses import OutputDistance
from multihead.measures.kinds.kinds import KindsMeasure
from multihead.measures.kinds.pieces import Pieces
from multihead.measures.similarity.ov_circuits import find_weights
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.measures.statistics_sum import StatisticsSum
from multihead.model.statistics.statistics_options import Statistics
from multihead.table.table import HeadTable

WORDS, DOCUMENTS, BATCH = 37, 43, 2


class Small(nn.Module):
    """Two encoder layers of three heads over ids; logits have a spread of a few units."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 24)
        layer = nn.TransformerEncoderLayer(24, 3, 29, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        padded = None if attention_mask is None else attention_mask == 0
        return self.encoder(self.words(input_ids), src_key_padding_mask=padded)

    def get_input_embeddings(self) -> nn.Module:
        return self.words


def model() -> nn.Module:
    torch.manual_seed(11)
    made = Small()
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(1.7)
    return made.eval()


def documents() -> list[list[int]]:
    """Of lengths 3 to 19; some of them twice."""
    draw = random.Random(5)
    found = [[draw.randrange(1, WORDS) for _ in range(draw.randrange(3, 20))] for _ in range(DOCUMENTS - 2)]
    return [*found[:30], found[2], found[7], *found[30:]]


class Measures:
    """All measures: a pass of most of them, the repeats, then the ablation."""

    def __init__(self, of: nn.Module, *, quick: bool = False) -> None:
        options, loss, means = Statistics(classes={"few": (3, 5)}), OutputDistance(), MeanOutputs()
        self.of, self.kinds = of, KindsMeasure(of, options, seed=3)
        self.tables: list[Accumulator] = [StatisticsSum(options), Gradients(loss, seed=3)]
        self.first: list[Accumulator] = [*self.tables, *self.kinds.accumulators]
        self.second: list[Accumulator] = []
        if not quick:
            self.tables.append(SimilaritySum(find_weights(of), seed=3))
            self.first += [self.tables[-1], means]
            self.second.append(Ablation(loss, ("zero", "mean"), means=means))
            self.tables += self.second

    def run(self, checkpoint: Checkpoint, ranks: Ranks) -> HeadTable:
        run(self.of, corpus(self.of), self.first, checkpoint=checkpoint, ranks=ranks)
        pieces = Pieces.of(documents(), length=6)  # several batches, so that every rank has some
        self.kinds.finish(corpus(self.of), pieces, checkpoint=checkpoint, ranks=ranks)
        if self.second:
            run(self.of, corpus(self.of), self.second, checkpoint=checkpoint, ranks=ranks)
        return reduce(HeadTable.join, [one.columns() for one in self.tables], self.kinds.result().table)


def corpus(of: nn.Module) -> Corpus:
    repeated = frozenset({30, 31})
    return Corpus(of, documents(), count=DOCUMENTS, batch_size=BATCH, window=2, repeated=repeated, part_batches=4)


class Dying(StatisticsSum):
    """Kills its process at a batch."""

    at = 0

    def inputs(self, batch: Batch) -> Inputs:
        Dying.at -= 1
        if not Dying.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch.inputs


def measure(
    folder: Path,
    *,
    timeout: float = 60.0,
    every: float = 0.0,
    die: tuple[int, int] | None = None,
    quick: bool = False,
) -> None:
    """Measure with the processes that torchrun started; rank 0 writes the table. `quick`: fewer measures."""
    torch.set_num_threads(1)
    of = model()
    with Ranks.started(timeout) as ranks:
        measures = Measures(of, quick=quick)
        if die is not None and ranks.rank == die[0] and not restarted():
            Dying.at = die[1]
            measures.first[0] = Dying(Statistics(classes={"few": (3, 5)}))
        checkpoint = Checkpoint(folder / "state", {"model": "small"}, every=every)
        if ranks.on_rank_zero(checkpoint.file.exists):
            checkpoint.resume()
        table = measures.run(checkpoint, ranks)
        if ranks.leads:
            table.save(folder / "table.json")


def main() -> None:
    words = sys.argv[1:]
    die = (int(words[2]), int(words[3])) if "--die" in words else None
    measure(Path(words[0]), every=1e9 if die is None else 0.0, die=die)


if __name__ == "__main__":
    main()
