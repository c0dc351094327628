"""What a run will take, said before it starts: batches, time and memory, about."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multihead.cli.console import duration, size
from multihead.cli.stages import names, runs

if TYPE_CHECKING:
    from multihead.cli.load import Loaded
    from multihead.cli.texts import Texts
    from multihead.corpus.accumulator import Batch
    from multihead.corpus.corpus import Corpus
    from multihead.corpus.run import Run

COUNTED = 2_000_000
"""Characters up to which batches are counted before the work; of more text they are estimated."""

PROCESS = 300e6
"""Python, torch, transformers, and the blocks of rows that statistics are taken of."""


@dataclass(frozen=True)
class Estimate:
    """Of the whole run: batches of a stage, and whether they were counted; heads; seconds that are left; bytes."""

    batches: int
    counted: bool
    heads: int
    seconds: float
    memory: float

    @staticmethod
    def of(loaded: Loaded, documents: Texts, corpus: Corpus, run: Run, batch_size: int) -> Estimate:
        """Runs the model twice on the first batch, and counts the others."""
        import torch

        first = corpus.first()
        with torch.no_grad():
            loaded.model(**first)  # the first run is slower than the others
            start = time.perf_counter()
            loaded.model(**first)
            once = time.perf_counter() - start
        counted = documents.size <= COUNTED
        batches = corpus.count() if counted else max(1, -(-documents.documents // batch_size))
        heads = _heads(loaded.model)
        seconds = sum(runs(s, heads) * once * max(0, batches - run.done[s.name]) for s in run.stages)
        seconds /= min(run.ranks.size, len(corpus.parts))
        deep = any(s.name in ("gradients", "ablation", "similarity") for s in run.stages)
        return Estimate(batches, counted, heads, seconds, _memory(loaded.model, first, deep))

    def lines(self, loaded: Loaded, documents: Texts, run: Run) -> list[str]:
        """In words."""
        parameters = sum(p.numel() for p in loaded.model.parameters())
        about = "" if self.counted else "about "
        done, every = sum(run.done.values()), self.batches * len(run.stages)
        went = f"going on after {done} of {about}{every} batches; " if done else ""
        went += f"{run.ranks.size} processes; " if run.ranks.size > 1 else ""
        return [
            f"{loaded.name}: {self.heads} heads, {parameters / 1e6:.3g} M parameters; {documents.name}: "
            f"{documents.documents} documents in {about}{self.batches} batches; {names(run.stages)}",
            f"{went}about {duration(self.seconds)}, about {size(self.memory)} of memory",
        ]


def _heads(model: Any) -> int:
    from multihead.model.known import sites_of

    return sum(site.heads for site in sites_of(model).values())


def _memory(model: Any, batch: Batch, deep: bool) -> float:
    """Weights, activations of a layer (of all layers where they are kept), logits."""
    config = getattr(model, "config", None)
    tokens = max((x.numel() for x in batch.values() if hasattr(x, "numel")), default=0)
    width = getattr(config, "hidden_size", None) or 0
    wide = getattr(config, "intermediate_size", None) or 4 * width
    layers = (getattr(config, "num_hidden_layers", None) or 1) if deep else 1
    embeddings = getattr(model, "get_output_embeddings", lambda: None)()
    logits = 0 if embeddings is None else getattr(embeddings, "out_features", 0) * (3 if deep else 1)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return PROCESS + weights + 4.0 * tokens * (layers * (8 * width + 2 * wide) + logits)
