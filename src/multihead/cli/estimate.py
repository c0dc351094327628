"""An estimate of time and memory, printed before a run starts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multihead.cli.console import duration, size

if TYPE_CHECKING:
    from multihead.cli.load import Loaded
    from multihead.cli.stages import Measures
    from multihead.cli.texts import Texts
    from multihead.corpus.accumulator import Inputs
    from multihead.corpus.checkpoint import Checkpoint
    from multihead.corpus.documents import Corpus
    from multihead.corpus.ranks import Ranks

COUNTED = 2_000_000
"""Characters up to which batches are counted before the work; of more text their number is estimated."""

PROCESS = 300e6
"""Bytes of Python, torch, transformers, and the blocks of rows that statistics are computed of."""


@dataclass(frozen=True)
class PlainForward:
    """One plain forward on the first batch: its seconds, and the heads that ran."""

    seconds: float
    heads: int
    layers: int

    @staticmethod
    def of(model: Any, inputs: Inputs) -> PlainForward:
        """Run the model twice; the first run is slower than the others."""
        from multihead.model.find_sites import find_sites
        from multihead.model.forward import Forward

        sites = find_sites(model, inputs)
        start = time.perf_counter()
        Forward(model)(inputs)
        return PlainForward(time.perf_counter() - start, len(sites.heads), len(sites))


@dataclass(frozen=True)
class Estimate:
    """Of a whole run: its batches and whether they were counted, heads, remaining seconds, bytes."""

    batches: int
    counted: bool
    heads: int
    seconds: float
    memory: float
    done: int

    @staticmethod
    def of(
        loaded: Loaded, documents: Texts, corpus: Corpus, measures: Measures, checkpoint: Checkpoint, ranks: Ranks
    ) -> Estimate:
        """Runs the model on the first batch, and counts the others."""
        first = corpus.first().inputs
        plain = PlainForward.of(loaded.model, first)
        counted = documents.size <= COUNTED
        size = corpus.batching.batch_size
        batches = corpus.count_batches() if counted else max(1, -(-documents.documents // size))
        seconds, finished = 0.0, 0
        for accumulators in (measures.first, measures.second):
            if accumulators:
                done = checkpoint.batches(accumulators[0].name)
                forwards = sum(_forwards(one, plain.heads) for one in accumulators)
                seconds += forwards * plain.seconds * max(0, batches - done)
                finished += done
        seconds /= min(ranks.size, len(corpus.ranges()))
        deep = any(one.name in ("gradients", "ablation", "similarity") for one in measures.accumulators)
        return Estimate(batches, counted, plain.heads, seconds, _memory(loaded.model, first, deep), finished)

    def lines(self, loaded: Loaded, documents: Texts, measures: Measures, ranks: Ranks) -> list[str]:
        """As text."""
        parameters = sum(p.numel() for p in loaded.model.parameters())
        about = "" if self.counted else "about "
        passes = 1 + bool(measures.second)
        resumed = f"resuming after {self.done} of {about}{self.batches * passes} batches; " if self.done else ""
        resumed += f"{ranks.size} processes; " if ranks.size > 1 else ""
        return [
            f"{loaded.name}: {self.heads} heads, {parameters / 1e6:.3g} M parameters; {documents.name}: "
            f"{documents.documents} documents in {about}{self.batches} batches; {measures.names}",
            f"{resumed}about {duration(self.seconds)}, about {size(self.memory)} of memory",
        ]


def _forwards(accumulator: Any, heads: int) -> float:
    """About how many plain forwards an accumulator takes per batch."""
    replacements = getattr(accumulator, "replace", ())  # an ablation does not know the heads before it runs
    return len(replacements) * heads / 2 if replacements else accumulator.forwards


def _memory(model: Any, inputs: Inputs, deep: bool) -> float:
    """Weights, activations of a layer (of all layers where they are kept), logits."""
    config = getattr(model, "config", None)
    tokens = max((x.numel() for x in inputs.values() if hasattr(x, "numel")), default=0)
    width = getattr(config, "hidden_size", None) or 0
    wide = getattr(config, "intermediate_size", None) or 4 * width
    layers = (getattr(config, "num_hidden_layers", None) or 1) if deep else 1
    embeddings = getattr(model, "get_output_embeddings", lambda: None)()
    logits = 0 if embeddings is None else getattr(embeddings, "out_features", 0) * (3 if deep else 1)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return PROCESS + weights + 4.0 * tokens * (layers * (8 * width + 2 * wide) + logits)
