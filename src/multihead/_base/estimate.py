"""An estimate of time and memory before a run starts, from one timed forward pass.

>>> from multihead._base.estimate import ForwardCost, duration, size
>>> once = ForwardCost(seconds=0.5, tokens=128, parameters=1000, weights=4000, width=24, layers=2, logits=0)
>>> print(once.estimate(forwards=120, batches=10))
about 10 min 0 s, about 300 MB of memory
>>> duration(75), size(1536)
('1 min 15 s', '1.5 kB')
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PROCESS = 300e6
"""Bytes of Python, torch and transformers."""


@dataclass(frozen=True)
class Estimate:
    """The estimated time and memory of a whole run."""

    seconds: float
    memory: float

    def __str__(self) -> str:
        return f"about {duration(self.seconds)}, about {size(self.memory)} of memory"


@dataclass(frozen=True)
class ForwardCost:
    """One forward pass on one batch, and the sizes that memory depends on."""

    seconds: float
    tokens: int
    parameters: int
    weights: int
    """bytes"""
    width: int
    layers: int
    logits: int
    """values per token"""

    @staticmethod
    def of(
        model: Any,
        inputs: Mapping[str, Any],
        run: Callable[[Mapping[str, Any]], object],
        *,
        warmed_up: bool = False,
    ) -> ForwardCost:
        """Estimate the cost of a forward: `run` runs the model, once to warm up unless it is `warmed_up`."""
        if not warmed_up:
            run(inputs)
        start = time.perf_counter()
        run(inputs)
        seconds = time.perf_counter() - start
        config = getattr(model, "config", None)
        embeddings = getattr(model, "get_output_embeddings", lambda: None)()
        return ForwardCost(
            seconds=seconds,
            tokens=max((x.numel() for x in inputs.values() if hasattr(x, "numel")), default=0),
            parameters=sum(p.numel() for p in model.parameters()),
            weights=sum(p.numel() * p.element_size() for p in model.parameters()),
            width=getattr(config, "hidden_size", None) or 0,
            layers=getattr(config, "num_hidden_layers", None) or 1,
            logits=0 if embeddings is None else getattr(embeddings, "out_features", 0),
        )

    def estimate(
        self, forwards: float, batches: float, *, overhead: float = 0.0, copies: int = 1, every_layer: bool = False
    ) -> Estimate:
        """Estimate time and memory of a run of `forwards` passes over `batches` batches.

        Args:
            overhead: seconds that do not depend on the model: imports, probes.
            copies: how many models are held.
            every_layer: whether the activations of all layers are held, as for gradients.
        """
        layers = self.layers if every_layer else 1
        activations = 4.0 * self.tokens * (16 * layers * self.width + self.logits * (3 if every_layer else 1))
        return Estimate(overhead + forwards * batches * self.seconds, PROCESS + copies * self.weights + activations)


def size(count: float) -> str:
    """Bytes in an estimate: 1536 → 1.5 kB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """Seconds in an estimate: 75 → 1 min 15 s."""
    rounded = max(1, round(seconds))
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
