"""Run a model over a corpus for several accumulators: the only loop over batches.

The corpus is in parts. Each process reads its share of them, and the states of the parts are merged along one tree.
So the result does not depend on the number of processes, nor on which of them were killed.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> from multihead.measures.statistics_sum import StatisticsSum
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> statistics = StatisticsSum()
>>> run(model, Corpus(model, [[3, 1, 4, 1, 5], [9, 2, 6]]), [statistics]).padding.tokens
8
>>> len(statistics.columns())
6
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from multihead._base.progress import Progress as NamedProgress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs, State
from multihead.corpus.batches import PaddingStats, no_tokens
from multihead.corpus.checkpoint import Checkpoint, Nodes
from multihead.corpus.documents import Corpus
from multihead.corpus.merge_tree import covered, share
from multihead.corpus.ranks import Ranks
from multihead.corpus.state import load_state
from multihead.layer._kv_store import in_backward
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.forward import Forward, StopForward
from multihead.model.model_inputs import plain_inputs

Progress = Callable[[float], None]
"""Called with the number of batches that all processes have finished."""

Runner = Callable[[Forward, Inputs], Any]
"""Runs a model on a batch, inside `Forward.listening`; `Forward.run` runs all of it."""


class RunStopped(Exception):
    """The run was stopped on request; its state is in the checkpoint."""


def with_total(progress: NamedProgress | None, corpus: Corpus) -> Callable[[str, float], None] | None:
    """`progress` of passes over a corpus, called with the number of its batches; 0 if it can be read only once."""
    if progress is None:
        return None
    total = 0 if iter(corpus.documents) is corpus.documents else corpus.count_batches()
    return lambda name, batches: progress(name, batches, total)


@dataclass
class Summary:
    """The number of batches of a run, and their padding."""

    batches: int = 0
    padding: PaddingStats = field(default_factory=PaddingStats)


def run(
    model: nn.Module,
    corpus: Corpus,
    accumulators: Sequence[Accumulator],
    *,
    checkpoint: Checkpoint | None = None,
    ranks: Ranks | None = None,
    progress: Progress | None = None,
    runner: Runner = Forward.run,
) -> Summary:
    """Run the model over all batches; afterwards the accumulators hold the whole corpus, on every rank.

    Args:
        checkpoint: a folder to save to and resume from; several ranks need one.
        progress: called after every batch.
        runner: runs the model, for example from a block on whose input is known from an earlier run.
    """
    with _threads(None if checkpoint is None else checkpoint.threads):
        batch_runner = BatchRunner(model, accumulators, runner)
        return _Pass(batch_runner, corpus, checkpoint, ranks or Ranks.alone(), progress).run()


@contextmanager
def _threads(count: int | None) -> Generator[None]:
    """Sums over rows are divided among threads: a resumed run needs as many as before."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Pass:
    """One pass over a corpus."""

    def __init__(
        self,
        batch_runner: BatchRunner,
        corpus: Corpus,
        checkpoint: Checkpoint | None,
        ranks: Ranks,
        progress: Progress | None,
    ) -> None:
        assert checkpoint is not None or ranks.size == 1, "several ranks exchange their states in a folder"
        self.batch_runner, self.accumulators = batch_runner, batch_runner.accumulators
        self.corpus, self.checkpoint, self.ranks, self.progress = corpus, checkpoint, ranks, progress
        self.name = self.accumulators[0].name
        self.nodes = Nodes(self.name, self._merged, checkpoint)
        self.done = 0.0 if checkpoint is None or not ranks.leads else float(checkpoint.batches(self.name))
        self._told = 0.0

    def run(self) -> Summary:
        """Run one pass, and hand notes on padding to its accumulators."""
        summary = self._run()
        for one in self.accumulators:
            one.note(self.corpus.padding_check.notes)
        return summary

    def _run(self) -> Summary:
        """Run one pass: all parts in memory, or with checkpoints and ranks."""
        blank = self._state()
        if self.checkpoint is None:
            self._read(self.corpus.parts(), blank)
            return self._load(self.nodes.root())
        self.ranks.on_rank_zero(self.checkpoint.begin)
        if not self.ranks.on_rank_zero(self.nodes.finished):
            self._read_shared(blank)
        summary = self._load(load_state(self.nodes.root_file))
        self.ranks.gather("loaded")  # rank 0 may delete the folder only after all have read the root
        return summary

    def _read(self, parts: Iterable[int], blank: Mapping[str, State]) -> None:
        for part in parts:
            self._read_part(part, blank)

    def _read_shared(self, blank: Mapping[str, State]) -> None:
        """Run this rank's share of the unfinished parts; rank 0 merges the nodes of all ranks."""
        finished = [(level, index) for level, index in self.ranks.on_rank_zero(self.nodes.found)]
        ranges, read = self.corpus.ranges(), covered(finished)
        unread = [part for part in range(len(ranges)) if part not in read]
        self._read(share(ranges, unread, self.ranks.rank, self.ranks.size), blank)
        self.nodes.save()
        for nodes in self.ranks.gather(json.dumps(list(self.nodes.tree.nodes)), self._wait):
            finished += [(level, index) for level, index in json.loads(nodes)]
        if self.ranks.leads:
            self.nodes.gather(finished)
        self.ranks.on_rank_zero(self.nodes.finish)

    def _read_part(self, part: int, blank: Mapping[str, State]) -> None:
        """Run the batches of a part that are not in its checkpoint."""
        saved = None if self.checkpoint is None else self.nodes.load_part(part)
        count = 0 if saved is None else int(saved["batches"])
        self._load_states(blank if saved is None else saved["states"])
        padding, before = PaddingStats(), self.done - count
        for number, batch in enumerate(self.corpus.read(part, padding), start=1):
            if number <= count:
                continue  # it is in the saved state
            self.batch_runner.run(batch, lambda share: self._tell(self.done + share))
            count, self.done = number, before + number
            self._tell(self.done)
            if self.checkpoint is not None and self.checkpoint.due():
                self.nodes.save()
                self.nodes.save_part(part, self._record(count, padding))
                self.checkpoint.saved_now()
            if self.checkpoint is not None and self.checkpoint.stopping:
                raise RunStopped
        self.nodes.put((0, part), self._record(count, padding))
        if self.checkpoint is not None and self.nodes.part_file(part).exists():
            self.nodes.save()
            self.nodes.drop_part(part)

    # ---- states -------------------------------------------------------------------------------

    def _state(self) -> dict[str, State]:
        return {one.name: one.state() for one in self.accumulators}

    def _record(self, batches: int, padding: PaddingStats) -> dict[str, Any]:
        counts = [padding.tokens, padding.positions, padding.unsorted]
        return {"batches": batches, "padding": counts, "states": self._state()}

    def _merged(self, first: State, second: State) -> dict[str, Any]:
        """The states of all accumulators of the run, merged from two parts."""
        states: dict[str, State] = {}
        for one in self.accumulators:
            left, right = copy(one), copy(one)
            left.load(first["states"][one.name])
            right.load(second["states"][one.name])
            left.merge(right)
            states[one.name] = left.state()
        padding = [a + b for a, b in zip(first["padding"], second["padding"], strict=True)]
        return {"batches": first["batches"] + second["batches"], "padding": padding, "states": states}

    def _load_states(self, states: Mapping[str, State]) -> None:
        for one in self.accumulators:
            one.load(states[one.name])

    def _load(self, root: State) -> Summary:
        """Load the merged states of the whole pass into the accumulators."""
        if not root["batches"]:
            raise no_tokens(0)
        self._load_states(root["states"])
        return Summary(int(root["batches"]), PaddingStats(*root["padding"]))

    # ---- progress -----------------------------------------------------------------------------

    def _tell(self, done: float, every: float = 0.2) -> None:
        """Publish the progress of this process; rank 0 shows the progress of all."""
        others = 0.0
        if self.ranks.size > 1:
            if time.monotonic() - self._told < max(every, 0.02 * self.ranks.size):
                return
            self._told, key = time.monotonic(), f"{self.name}/batches"
            self.ranks.store_set(key, str(done))
            if self.ranks.leads:
                counts = (self.ranks.store_get(key, rank) for rank in range(1, self.ranks.size))
                others = sum(float(count or 0) for count in counts)
        if self.progress is not None:
            self.progress(done + others)

    def _wait(self) -> None:
        """Report the progress of this pass while other ranks run; raise if it must stop."""
        assert self.checkpoint is not None
        if self.checkpoint.stopping:
            raise RunStopped
        self._tell(self.done, every=0.5)


class BatchRunner:
    """Runs batches for some accumulators; those with equal inputs share one forward."""

    def __init__(self, model: nn.Module, accumulators: Sequence[Accumulator], runner: Runner = Forward.run) -> None:
        self.model, self.accumulators, self.runner = model, list(accumulators), runner
        self._forwards = {grad: Forward(model, grad=grad) for grad in (False, True)}

    def run(self, batch: Batch, progress: Progress | None = None) -> None:
        for inputs, group in self._groups(batch):
            self._forward(batch, inputs, group, progress or (lambda _: None))

    def _groups(self, batch: Batch) -> list[tuple[Inputs, list[Accumulator]]]:
        """The accumulators whose inputs are equal, which share one run of the model."""
        groups: list[tuple[Inputs, list[Accumulator]]] = []
        for one in self.accumulators:
            inputs = one.inputs(batch)
            if inputs is None:
                continue
            plain = plain_inputs(inner(self.model), inputs)
            shared = next((g for i, g in groups if not one.grad and not g[0].grad and _same(i, plain)), None)
            if shared is None:
                groups.append((plain, [one]))
            else:
                shared.append(one)
        return groups

    def _forward(self, batch: Batch, inputs: Inputs, group: Sequence[Accumulator], progress: Progress) -> None:
        """Run the model once for a group of accumulators."""
        forward, unsatisfied = self._forwards[group[0].grad], list(group)

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            """Pass an attention call to the accumulators of the run."""
            out = compute()
            for one in group:
                out = one.change(call, out)
            if not in_backward():  # a checkpointed layer that runs again in the backward pass was added before
                for one in group:
                    one.add(call, out)
                unsatisfied[:] = [one for one in unsatisfied if not one.satisfied(call)]
                if not unsatisfied:
                    raise StopForward
            return out

        record = any(one.record for one in group)
        listening = forward.recording if record else forward.listening
        with listening(listen, sharded=all(one.sharded for one in group)):
            with ExitStack() as stack:
                for one in group:
                    stack.enter_context(one.watching())
                output = self.runner(forward, inputs)
            run = BatchRun(inputs, output, forward, progress)
            for one in group:
                one.end(batch, run)
                one.note(forward.notes)


def _same(first: Inputs, second: Inputs) -> bool:
    return first.keys() == second.keys() and all(first[name] is second[name] for name in first)
