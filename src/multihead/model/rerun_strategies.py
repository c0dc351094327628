"""Outputs of a model with changed heads, many variants of one batch, by the fastest strategy that is proven on it.

    side by side   several variants run together along the batch axis, from their first changed attention on
    one by one     each variant runs alone, from its first changed attention on
    whole          each variant runs alone, from the start

A strategy is proven by an unchanged variant that runs along: its output must be that of the recorded run. If it is
not, the next slower strategy takes over, and a note says so.

>>> import torch
>>> from torch import nn
>>> from multihead.model.forward import Forward
>>> from multihead.model.rerun_strategies import Reruns
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> forward, reruns = Forward(model), Reruns()
>>> with forward.recording() as recording:
...     output = forward.run({"src": torch.randn(2, 7, 12)})
...     variants = [{site.key: torch.zeros_like} for site in recording.sites]
...     first, second = reruns.outputs(forward, variants, lambda output: output, output)
>>> first.shape, reruns.strategy
(torch.Size([2, 7, 12]), 'side by side')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.forward import Forward
from multihead.model.rerun_from_attention import Change
from multihead.model.sites import Key

Variant = Mapping[Key, Change]
"""The changes of one run, by attention."""

Read = Callable[[Any], Tensor]
"""The tensor of an output that is compared and returned, documents in front."""

Strategy = Literal["", "side by side", "one by one", "whole"]
STRATEGIES: tuple[Strategy, ...] = ("", "side by side", "one by one", "whole")
"""the slowest last"""

PACKED = 1 << 19
"""Values of one layer's heads up to which variants run side by side. Measured on 2 cores: four times the heads of a
small model in one batch take 0.8 of the time; larger matrices gain nothing, and memory grows."""


class Reruns:
    """Remembers which strategy is proven, from batch to batch."""

    def __init__(self, *, packed: int = PACKED) -> None:
        self.packed = packed
        self.strategy: Strategy = ""
        self.notes: list[str] = []
        self._proven: set[Key] = set()

    def resumed(self, strategy: Strategy) -> Reruns:
        """Reruns that begin with a strategy, and prove it again."""
        reruns = Reruns(packed=self.packed)
        reruns.strategy = strategy
        return reruns

    def outputs(
        self,
        forward: Forward,
        variants: Sequence[Variant],
        read: Read,
        unchanged: Tensor,
        *,
        splits: bool = True,
        batch: int = 0,
        progress: Callable[[float], None] | None = None,
    ) -> list[Tensor]:
        """Rerun every variant by the strategy, inside `forward.recording()`, and return the results of `read`.

        Args:
            unchanged: its result for the recorded run.
            splits: whether the tensor can be split along its documents, so that variants can run side by side.
        """
        recording = forward.recorded
        order = [site.key for site in recording.sites]
        starts = [min(variant, key=order.index) for variant in variants]
        copies = max(1, self.packed // recording.width)
        if not self.strategy:
            self.strategy = "side by side" if splits and copies > 1 else "one by one"
        results: list[Tensor | None] = [None] * len(variants)
        last, done = order[-1], 0
        for start in sorted(set(starts), key=order.index):
            waiting = [i for i, key in enumerate(starts) if key == start]
            # Side by side, the unchanged variant also runs: a different batch size would change the last bits,
            # and a resumed run must end in the same ones. Alone it runs once, and at the last start of every batch.
            prove = self.strategy == "side by side" or start not in self._proven or start == last
            while waiting:
                some = waiting[: copies if splits and self.strategy == "side by side" else 1]
                outputs = self._run(forward, start, [variants[i] for i in some], read, unchanged, prove, batch)
                if outputs is None:
                    continue  # by the next slower strategy
                for i, tensor in zip(some, outputs, strict=True):
                    results[i] = tensor
                waiting, prove, done = waiting[len(some) :], False, done + len(some)
                if progress is not None:
                    progress(done / len(variants))
            self._proven.add(start)
        return [tensor for tensor in results if tensor is not None]

    def _run(
        self,
        forward: Forward,
        start: Key,
        variants: Sequence[Variant],
        read: Read,
        unchanged: Tensor,
        prove: bool,
        batch: int,
    ) -> list[Tensor] | None:
        """Run some variants by a strategy; None if it is disproven and a slower one has to do it."""
        together = self.strategy == "side by side"
        if not prove:
            return self._changed(forward, start, variants, read)
        nothing: list[Variant] = [{}]
        try:
            proof, *outputs = self._changed(forward, start, [*nothing, *(variants if together else ())], read)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, MultiheadError) as failed:
            self._fall_back(forward, start, str(failed).partition("\n")[0], batch)
            return None
        if not _equal(proof, unchanged):
            self._fall_back(forward, start, "the output differs", batch)
            return None
        return outputs if together else self._changed(forward, start, variants, read)

    def _changed(self, forward: Forward, start: Key, variants: Sequence[Variant], read: Read) -> list[Tensor]:
        """One rerun of the model with all variants along the batch axis."""
        keys = {start, *(key for variant in variants for key in variant)}
        changes = {key: _packed([variant.get(key) for variant in variants]) for key in keys}
        output = read(forward.rerun(changes, len(variants), whole=self.strategy == "whole"))
        return [output] if len(variants) == 1 else list(output.chunk(len(variants)))

    def _fall_back(self, forward: Forward, start: Key, reason: str, batch: int) -> None:
        """Take the next slower strategy; raises if there is none."""
        label = forward.sites[start].label
        if self.strategy == "whole":
            raise MultiheadError(
                f"batch {batch} has a different output in every run (starting at {label}: {reason}), so "
                "the effect of a head cannot be measured",
                hint="does the model keep state between calls, or draw random numbers in eval mode?",
            )
        slower = STRATEGIES[STRATEGIES.index(self.strategy) + 1]
        self.notes.append(f"heads cannot run {self.strategy} (starting at {label}: {reason}); they run {slower}")
        self.strategy = slower


def _packed(changes: Sequence[Change | None]) -> Change:
    """Change each copy of the documents in a packed rerun, or leave it."""

    def change(heads: HeadOutputs) -> HeadOutputs:
        parts = heads.chunk(len(changes))
        changed = [part if one is None else one(part) for part, one in zip(parts, changes, strict=True)]
        return changed[0] if len(changed) == 1 else torch.cat(changed)

    return change


def _equal(first: Tensor, second: Tensor) -> bool:
    """Equal except for the rounding of a different batch size."""
    room = min(1e3 * torch.finfo(second.dtype).eps, 0.05) * float(second.nan_to_num().abs().max())
    return first.shape == second.shape and torch.allclose(first, second, rtol=0.0, atol=room, equal_nan=True)
