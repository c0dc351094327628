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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.corpus.accumulator import Mergeable
from multihead.corpus.corpus import Corpus
from multihead.corpus.ranks import Ranks, restarted
from multihead.corpus.run import Run
from multihead.measures.importance.ablation import Ablation
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.losses import OutputDistance
from multihead.measures.importance.mean_outputs import MeanOutputs
from multihead.measures.kinds.kinds import KindsStage
from multihead.measures.measure import StatisticsStage
from multihead.measures.similarity.similarity import SimilarityStage
from multihead.model.statistics.options import Statistics

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


def stages(of: nn.Module) -> list[Mergeable]:
    options, loss, means = Statistics(classes={"few": (3, 5)}), OutputDistance(), MeanOutputs(of)
    return [
        StatisticsStage(of, options),
        KindsStage(of, options, seed=3),
        Gradients(of, loss, seed=3),
        means,
        Ablation(of, loss, ("zero", "mean"), means=means),
        SimilarityStage(of, seed=3),
    ]


def corpus(of: nn.Module) -> Corpus:
    copies = frozenset({30, 31})
    return Corpus(of, documents(), DOCUMENTS, batch_size=BATCH, window=2, copies=copies)


class Dying(StatisticsStage):
    """Kills its process at a batch."""

    at = 0

    def step(self, batch: Mapping[str, Any]) -> None:
        Dying.at -= 1
        if not Dying.at:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(batch)


def measure(
    folder: Path,
    *,
    patience: float = 60.0,
    every: float = 0.0,
    die: tuple[int, int] | None = None,
    which: slice = slice(None),
) -> int:
    """Bytes that this rank has sent; `which` of the stages run."""
    torch.set_num_threads(1)
    of = model()
    with Ranks.started(patience) as ranks:
        made = stages(of)[which]
        if die is not None and ranks.rank == die[0] and not restarted():
            made[0], Dying.at = Dying(of, made[0].heads.options), die[1]  # type: ignore[attr-defined]
        run = Run(made, {"model": "small"}, folder / "state", every=every, ranks=ranks)
        if ranks.first(run.file.exists):
            run.resume()
        table = run.go(corpus(of))
        if table is not None:
            table.save(folder / "table.json")
        return ranks.sent


def main() -> None:
    words = sys.argv[1:]
    die = (int(words[2]), int(words[3])) if "--die" in words else None
    sent = measure(Path(words[0]), every=1e9 if die is None else 0.0, die=die)
    print(f"rank {os.environ.get('RANK', '0')} sent {sent}")


if __name__ == "__main__":
    main()
