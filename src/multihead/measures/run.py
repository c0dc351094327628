"""Several stages over one corpus, put down in one file and taken up again with exactly the same result.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.measures.corpus import batches
>>> from multihead.measures.statistics.options import Statistics
>>> from multihead.measures.run import Run
>>> from multihead.measures.statistics.stage import StatisticsStage
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> with tempfile.TemporaryDirectory() as folder:
...     run = Run([StatisticsStage(model, Statistics())], {"model": "a"}, Path(folder) / "state.safetensors")
...     len(run.go(lambda: batches(model, [[3, 1, 4, 1, 5], [9, 2, 6]])))
6
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from multihead.errors import MultiheadError
from multihead.measures.stage import Batch, Steps, run_stage
from multihead.measures.state import load_state, save_state
from multihead.measures.tables.table import HeadTable

Progress = Callable[[str, int], None]
"""Called with the name of the stage and the batches that it has taken in."""


class Stopped(Exception):
    """The run was asked to stop; its state is on disk."""


class Run:
    """Stages one after another, each over all batches. Every so often what was taken in is written to `file`.

    `identity` says what is measured and how, as plain data: a run is only taken up with the same.
    `every`: seconds between two writes.
    """

    def __init__(
        self, stages: Sequence[Steps], identity: Mapping[str, Any], file: Path, *, every: float = 30.0
    ) -> None:
        self.stages, self.identity, self.file, self.every = list(stages), dict(identity), file, every
        self.done = {stage.name: 0 for stage in stages}
        self.finished: set[str] = set()
        self.stopping = False
        """set it, and the run stops after the batch at hand, with its state on disk"""
        self._written = time.monotonic()

    def go(self, read: Callable[[], Iterable[Batch]], progress: Progress | None = None) -> HeadTable:
        """Run what is left; the columns of all stages. `read` gives the same batches every time."""
        for stage in self.stages:
            if stage.name in self.finished:
                continue
            run_stage(stage, read(), done=self.done[stage.name], progress=self._after(stage.name, progress))
            self.finished.add(stage.name)
            self.write()
        return self.table

    @property
    def table(self) -> HeadTable:
        """The columns of all stages; `about` has a part for each."""
        # Not isinstance(stage, Stage): before Python 3.12 that computes the table to see whether there is one.
        having: list[Any] = [stage for stage in self.stages if hasattr(type(stage), "table")]
        tables: dict[str, HeadTable] = {stage.name: stage.table for stage in having}
        plain = [replace(table, about={name: dict(table.about)}) for name, table in tables.items()]
        return reduce(HeadTable.join, plain)

    def _after(self, name: str, progress: Progress | None) -> Callable[[int], None]:
        def after(count: int) -> None:
            self.done[name] = count
            if progress is not None:
                progress(name, count)
            if self.stopping or time.monotonic() - self._written >= self.every:
                self.write()
            if self.stopping:
                raise Stopped

        return after

    # ---- keeping ------------------------------------------------------------------------------

    def write(self) -> None:
        """Put down what was taken in so far."""
        begun = [stage for stage in self.stages if self.done[stage.name]]
        save_state(
            self.file,
            {
                "identity": self.identity,
                "threads": torch.get_num_threads(),
                "done": self.done,
                "finished": sorted(self.finished),
                "stages": {stage.name: stage.state() for stage in begun},
            },
        )
        self._written = time.monotonic()

    def resume(self) -> None:
        """Take up what `file` holds; an error that names both where it is of something else."""
        state = load_state(self.file)
        check_identity(state["identity"], self.identity, self.file)
        torch.set_num_threads(int(state["threads"]))  # sums over rows are cut by threads: as many as before
        for stage in self.stages:
            if stage.name in state["stages"]:
                stage.load(state["stages"][stage.name])
        self.done = {name: int(state["done"][name]) for name in self.done}
        self.finished = set(state["finished"])


def check_identity(before: Mapping[str, Any], now: Mapping[str, Any], place: Path) -> None:
    """Raise unless both are the same; the text says what differs, and both values."""
    for name in (*before, *now):
        if before.get(name) != now.get(name):
            raise MultiheadError(
                f"{place} was begun with {name} {_said(before.get(name))}, this is {name} {_said(now.get(name))}",
                hint="go on with the same as before, or start again with --force",
            )


def _said(x: object) -> str:
    return "not set" if x is None else str(x)
