"""Several stages over one corpus, by one process or many, put down on disk and taken up again: always the same end.

The corpus is in parts (`scale.parts`), each process takes its share of them, and what parts have taken in is joined
along one tree. So the table does not depend on the number of processes, nor on when which of them died.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.model.statistics.options import Statistics
>>> from multihead.corpus.run import Run
>>> from multihead.measures.measure import StatisticsStage
>>> from multihead.corpus.corpus import Corpus
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> with tempfile.TemporaryDirectory() as folder:
...     run = Run([StatisticsStage(model, Statistics())], {"model": "a"}, Path(folder) / "state")
...     len(run.go(Corpus(model, [[3, 1, 4, 1, 5], [9, 2, 6]], 2)))
6
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from multihead.corpus.accumulator import Mergeable, run_stage
from multihead.corpus.batches import PaddingStats
from multihead.corpus.checkpoint import ENDING, Shelf, State, before
from multihead.corpus.corpus import Corpus
from multihead.corpus.merge_tree import covered, share
from multihead.corpus.ranks import Ranks, job
from multihead.corpus.state import DamagedError, load_state, save_state
from multihead.errors import MultiheadError
from multihead.table.files import write_at_once
from multihead.table.table import HeadTable

Progress = Callable[[str, int], None]
"""Called with the name of the stage and the batches that were taken in, by all processes together."""

NUMBERED = 1_000_000
"""Batches of part p are numbered from p · this: random draws are of that number, whoever makes them."""

ABOUT = "run.json"


class Stopped(Exception):
    """The run was asked to stop; its state is on disk."""


class Run:
    """Stages one after another, each over all parts. Every so often what was taken in is written into `folder`.

    `identity` says what is measured and how, as plain data: a run is only taken up with the same.
    `every`: seconds between two writes. `ranks`: the processes that share the work; the table is rank 0's.
    """

    def __init__(
        self,
        stages: Sequence[Mergeable],
        identity: Mapping[str, Any],
        folder: Path,
        *,
        every: float = 30.0,
        ranks: Ranks | None = None,
    ) -> None:
        odd = next((stage.name for stage in stages if not hasattr(stage, "merged")), None)
        if odd is not None:
            raise MultiheadError(
                f"the stage {odd} cannot be taken in parts: what two parts of a corpus give does not add up",
                hint="give it begin() and merged(), see multihead.corpus.accumulator.Mergeable; or use run_stage",
            )
        self.stages, self.identity, self.folder, self.every = list(stages), dict(identity), folder, every
        self.ranks = ranks or Ranks.alone()
        self.done = {stage.name: 0 for stage in stages}
        """batches taken in, as far as this process knows"""
        self.tally = PaddingStats()
        self.stopping = False
        """set it, and the run stops after the batch at hand, with its state on disk"""
        self._taken: Mapping[str, Any] = {}
        self._written = self._said = time.monotonic()

    def go(self, corpus: Corpus, progress: Progress | None = None) -> HeadTable | None:
        """Run what is left; the columns of all stages, on rank 0."""
        threads = torch.get_num_threads()
        if self._taken:  # sums over rows are divided among threads: a resumed run needs as many as before
            torch.set_num_threads(int(self._taken["threads"]))
        try:
            self._go(corpus, progress)
        finally:
            torch.set_num_threads(threads)
        return self.table if self.ranks.leads else None

    def _go(self, corpus: Corpus, progress: Progress | None) -> None:
        self.ranks.first(self._begin)
        for stage in self.stages:
            shelf = Shelf(self.folder, stage.name, lambda a, b, stage=stage: _joined(stage, a, b))
            finished: bool = self.ranks.first(lambda shelf=shelf: self._finished(shelf))
            if not finished:
                self._pass(stage, shelf, corpus, progress)
            self._end(stage, shelf)

    @property
    def table(self) -> HeadTable:
        """The columns of all stages; `about` has a part for each."""
        # Not isinstance(stage, Stage): before Python 3.12 that computes the table to see whether there is one.
        having: list[Any] = [stage for stage in self.stages if hasattr(type(stage), "table")]
        tables: dict[str, HeadTable] = {stage.name: stage.table for stage in having}
        plain = [replace(table, about={name: dict(table.about)}) for name, table in tables.items()]
        return reduce(HeadTable.join, plain)

    # ---- one stage ----------------------------------------------------------------------------

    def _pass(self, stage: Mergeable, shelf: Shelf, corpus: Corpus, progress: Progress | None) -> None:
        """Each process takes its share of the parts that are left; what it made of them goes to rank 0."""
        blank, key = stage.state(), stage.name
        rest: list[int] = self.ranks.first(lambda: self._rest(shelf, len(corpus.parts)))
        for part in share(rest, self.ranks.rank, self.ranks.size):
            self._part(stage, shelf, corpus, part, blank, progress)
        if self.ranks.size > 1:
            shelf.save()  # the others may take long
        if not self.ranks.leads:
            made = ({"node": list(node), "kept": shelf.get(node)} for node in shelf.nodes())
            self.ranks.give(key, len(shelf.nodes()), made, self._meanwhile)
            return
        shelf.take_earlier()
        for rank in range(1, self.ranks.size):
            for given in self.ranks.take(key, rank, lambda: self._meanwhile(key, progress)):
                shelf.put((given["node"][0], given["node"][1]), given["kept"])
        save_state(shelf.whole_file, shelf.whole())

    def _part(
        self,
        stage: Mergeable,
        shelf: Shelf,
        corpus: Corpus,
        part: int,
        blank: State,
        progress: Progress | None,
    ) -> None:
        found, tally, earlier = shelf.load_part(part), PaddingStats(), self.done[stage.name]
        count = 0 if found is None else int(found["batches"])
        stage.load(blank if found is None else found["state"])
        if found is None:
            stage.begin(part * NUMBERED)
        resumed = count

        def record() -> dict[str, Any]:
            return {"batches": count, "tally": [tally.tokens, tally.places, tally.unsorted], "state": stage.state()}

        def after(batches: int) -> None:
            nonlocal count
            count = batches
            self.done[stage.name] = earlier + count - resumed
            self._tell(stage.name, progress)
            if self.stopping or time.monotonic() - self._written >= self.every:
                shelf.save()
                shelf.save_part(part, record())
                self._written = time.monotonic()
            if self.stopping:
                raise Stopped

        read = corpus.read(part, once=getattr(stage, "once", False), tally=tally)
        run_stage(stage, read, done=count, progress=after)
        getattr(stage, "end", lambda: None)()
        shelf.put((0, part), record())
        if found is not None or shelf.part_file(part).exists():  # it was written, so its end is, too
            shelf.save()
            shelf.drop_part(part)

    def _end(self, stage: Mergeable, shelf: Shelf) -> None:
        """The stage holds what all parts have taken in, where it is needed: for the table, or by a later stage."""
        needed = any(getattr(later, "means", None) is stage for later in self.stages)
        if not self.ranks.leads and not needed:
            return
        whole = load_state(shelf.whole_file) if self.ranks.leads else None
        if needed:
            whole = self.ranks.spread(whole)
        assert whole is not None
        stage.load(whole["state"])
        self.done[stage.name] = int(whole["batches"])
        tokens, places, unsorted = whole["tally"]
        self.tally = PaddingStats(tokens, places, unsorted) if stage is self.stages[0] else self.tally
        for file in self.folder.glob(f"{stage.name}-*") if self.ranks.leads else ():
            if file != shelf.whole_file:
                file.unlink(missing_ok=True)

    # ---- together -----------------------------------------------------------------------------

    def _tell(self, name: str, progress: Progress | None, every: float = 0.2) -> None:
        """Say how far this process is; rank 0 shows how far all are."""
        others = 0
        if self.ranks.size > 1:
            if time.monotonic() - self._said < max(every, 0.02 * self.ranks.size):
                return
            self._said = time.monotonic()
            self.ranks.say(f"{name}/batches", self.done[name])
            others = sum(self.ranks.said(f"{name}/batches").values()) if self.ranks.leads else 0
        if progress is not None:
            progress(name, self.done[name] + others)

    def _meanwhile(self, name: str | None = None, progress: Progress | None = None) -> None:
        if self.stopping:
            raise Stopped
        if name is not None:
            self._tell(name, progress, every=0.5)

    # ---- keeping ------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        return self.folder / ABOUT

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._taken:
            about = {"identity": self.identity, "threads": torch.get_num_threads(), "job": job()}
            write_at_once(self.file, json.dumps(about).encode())

    def _finished(self, shelf: Shelf) -> bool:
        if not shelf.whole_file.exists():
            return False
        try:
            load_state(shelf.whole_file)
        except DamagedError as damaged:
            import warnings

            warnings.warn(f"{damaged.message}; {shelf.stage} is measured again", stacklevel=2)
            shelf.whole_file.unlink()
            return False
        return True

    def _rest(self, shelf: Shelf, parts: int) -> list[int]:
        """The parts that nobody has finished."""
        shelf.earlier = shelf.found()
        shelf.sweep(shelf.earlier)
        known = covered(shelf.earlier)
        return [part for part in range(parts) if part not in known]

    def resume(self) -> None:
        """Take up what `folder` holds; an error that names both where it is of something else."""

        def found() -> dict[str, Any]:
            try:
                about = json.loads(self.file.read_bytes())
            except (OSError, ValueError) as wrong:
                raise MultiheadError(
                    f"{self.file} cannot be read: {wrong}", hint="start again with --force"
                ) from wrong
            check_identity(about["identity"], self.identity, self.folder)
            return about

        self._taken = self.ranks.first(found)
        if self.ranks.leads:
            for stage in self.stages:
                self.done[stage.name] = self._batches(stage.name)

    def _batches(self, name: str) -> int:
        """Batches of a stage that are in the folder."""
        known, files = 0, self.folder.glob(f"{name}-*{ENDING}*")
        for file in {self.folder / (file.name.partition(ENDING)[0] + ENDING) for file in files}:
            for one in (file, before(file)):
                with suppress(DamagedError):  # whoever takes it up will say so
                    known += int(load_state(one)["batches"])
                    break
        return known

    def forget(self) -> None:
        """Take away all that is in the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _joined(stage: Mergeable, first: State, second: State) -> dict[str, Any]:
    return {
        "batches": first["batches"] + second["batches"],
        "tally": [a + b for a, b in zip(first["tally"], second["tally"], strict=True)],
        "state": stage.merged(first["state"], second["state"]),
    }


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
