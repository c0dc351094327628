"""A run that is killed anywhere and resumed ends in the same table, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs, State
from multihead.corpus.checkpoint import Checkpoint, Nodes, check_identity
from multihead.corpus.documents import Corpus
from multihead.corpus.ranks import Ranks
from multihead.corpus.run import BatchRunner, RunStopped, run
from multihead.corpus.state import load_state, save_state
from multihead.errors import TypeMismatchError
from multihead.measures.importance.ablation import Ablation, MeanOutputs
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.losses import LanguageModel, OutputDistance
from multihead.measures.kinds.kinds import KindsMeasure
from multihead.measures.kinds.pieces import Pieces
from multihead.measures.similarity.ov_circuits import find_weights
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.measures.statistics_sum import StatisticsSum
from multihead.model.call import Call
from multihead.model.statistics.statistics_options import Statistics
from multihead.table.table import HeadTable

DOCUMENTS = [[7, 8, 9, 7, 8, 3], [11, 12, 5], [13, 14, 15, 16, 17, 18, 13], [20, 21, 22], [5, 6, 5, 6, 5, 6, 5]]


def gpt2() -> nn.Module:
    torch.manual_seed(3)
    config = GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=37, n_positions=41, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


def bert() -> nn.Module:
    torch.manual_seed(5)
    config = BertConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=29, vocab_size=37,
        initializer_range=0.3,
    )  # fmt: skip
    return BertForMaskedLM(config).eval()


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 batches, so that few documents make several."""
    monkeypatch.setattr("multihead.corpus.documents.BATCHES", 4)


# ---- one accumulator --------------------------------------------------------------------------


class Seen(Accumulator):
    """Remembers the tokens of every batch."""

    name = "seen"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[int]] = []

    def inputs(self, batch: Batch) -> Inputs | None:
        return None if 0 in batch.inputs["input_ids"] else batch.inputs

    def end(self, batch: Batch, run: BatchRun) -> None:
        self.seen = [*self.seen, [batch.index, *run.inputs["input_ids"].flatten().tolist()]]

    def merge(self, later: Seen) -> None:
        self.seen = [*self.seen, *later.seen]

    def state(self) -> State:
        return {"seen": self.seen}

    def load(self, state: State) -> None:
        self.seen = list(state["seen"])


def test_an_accumulator_sees_every_batch_once_and_progress_counts_them() -> None:
    counts: list[float] = []
    seen, model = Seen(), gpt2()
    summary = run(model, Corpus(model, [[5], [6], [7]], batch_size=1, window=1), [seen], progress=counts.append)
    assert seen.seen == [[0, 5], [1, 6], [2, 7]]
    assert (summary.batches, counts) == (3, [1.0, 2.0, 3.0])


def test_a_batch_can_be_skipped() -> None:
    seen, model = Seen(), gpt2()
    run(model, Corpus(model, [[5], [0], [7]], batch_size=1, window=1), [seen])
    assert seen.seen == [[0, 5], [2, 7]]


def test_a_generator_is_read_once_and_batches_are_numbered_by_part() -> None:
    """Parts of 4 batches, of a corpus whose length nobody knows, a full last part included."""
    for count in (8, 9):
        seen, model = Seen(), gpt2()
        run(model, Corpus(model, ([5 + i] for i in range(count)), batch_size=1, window=1), [seen])
        numbers = [0, 1, 2, 3, *(10**6 + i for i in range(4)), 2 * 10**6][:count]
        assert seen.seen == [[number, 5 + i] for i, number in enumerate(numbers)]


def test_documents_that_came_before_are_marked() -> None:
    marks: list[list[bool] | None] = []

    class Marks(Seen):
        def inputs(self, batch: Batch) -> Inputs:
            marks.append(None if batch.repeated is None else batch.repeated.tolist())
            return batch.inputs

    model = gpt2()
    documents = [[5, 6], [7, 8], [5, 6], [9, 9], [7, 8], [7, 8]]
    ready = [{"input_ids": torch.tensor([[5, 6], [7, 8]])}, {"input_ids": torch.tensor([[7, 8], [1, 2]])}]
    run(model, Corpus(model, documents, batch_size=2), [Marks()])
    assert marks == [None, [True, False], [True, True]]
    marks.clear()
    run(model, Corpus(model, ready), [Marks()])
    assert marks == [None, [True, False]]
    marks.clear()
    run(model, Corpus(model, documents, batch_size=2, repeated=frozenset({3})), [Marks()])
    assert marks == [None, [False, True], None]


def test_nothing_to_measure_is_an_error() -> None:
    model = gpt2()
    with (
        pytest.warns(UserWarning, match="skipped 2 documents"),
        pytest.raises(mh.MultiheadError, match="no documents"),
    ):
        run(model, Corpus(model, [[], []]), [Seen()])


# ---- its state --------------------------------------------------------------------------------


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    state = {
        "numbers": [1, 2.5, True, None, "ü", math.inf],
        "tensors": {
            "a": shared, "same": shared, "part": shared[::2], "half": shared.half(), "whole": shared.long(),
            "none": torch.zeros(0, 3), "scalar": torch.tensor(7), "nan": torch.tensor([math.nan, -0.0]),
        },
    }  # fmt: skip
    save_state(tmp_path / "a", state)
    again = load_state(tmp_path / "a")
    assert again["numbers"] == state["numbers"]
    for name, tensor in state["tensors"].items():  # type: ignore[attr-defined]
        got = again["tensors"][name]
        assert got.dtype == tensor.dtype
        torch.testing.assert_close(got, tensor, rtol=0, atol=0, equal_nan=True)


def test_what_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match=r"state\['a'\]\[1\] must be .*, got a Linear"):
        save_state(tmp_path / "a", {"a": [1, nn.Linear(2, 2)]})
    with pytest.raises(TypeMismatchError, match=r"keys of state\['a'\] must be strings.*, got 3"):
        save_state(tmp_path / "a", {"a": {3: 1}})
    assert not list(tmp_path.iterdir())
    (tmp_path / "b").write_bytes(b"\x80\x04N.")
    with pytest.raises(mh.MultiheadError, match="b cannot be read"):
        load_state(tmp_path / "b")
    with pytest.raises(mh.MultiheadError, match="c cannot be read"):
        load_state(tmp_path / "c")
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, tmp_path / "d")
    with pytest.raises(mh.MultiheadError, match="d is not the state of a run"):
        load_state(tmp_path / "d")


# ---- killed anywhere --------------------------------------------------------------------------


class Everything:
    """All measures: a pass of most of them, the repeats, then the ablation."""

    def __init__(self, model: nn.Module) -> None:
        options = Statistics(special=[7], classes={"small": (8, 9)})
        loss = LanguageModel() if isinstance(model, GPT2LMHeadModel) else OutputDistance()
        self.model, self.kinds, means = model, KindsMeasure(model, options, seed=3), MeanOutputs()
        self.tables: list[Accumulator] = [
            StatisticsSum(options),
            Gradients(loss, seed=3),
            SimilaritySum(find_weights(model), seed=3),
        ]
        self.first = [*self.tables, *self.kinds.accumulators, means]
        self.tables.append(Ablation(loss, ("zero", "mean"), means=means))

    def run(self, corpus: Corpus, checkpoint: Checkpoint) -> HeadTable:
        run(self.model, corpus, self.first, checkpoint=checkpoint)
        self.kinds.finish(corpus, Pieces.of(corpus.documents, length=6), checkpoint=checkpoint)
        run(self.model, corpus, self.tables[-1:], checkpoint=checkpoint)
        return reduce(HeadTable.join, [one.columns() for one in self.tables], self.kinds.result().table)


class Killed(Exception):
    pass


MANY = [[*document, 3 + at % 30, 5 + at % 29] for at, document in enumerate(DOCUMENTS * 2)]


def corpus_of(model: nn.Module, documents: list[list[int]] = MANY) -> Corpus:
    return Corpus(model, documents, count=len(documents), batch_size=2, window=2)


def killed_at(write: int, build: Callable[[], nn.Module], folder: Path, patch: pytest.MonkeyPatch) -> HeadTable:
    """A run that dies right after a save, and one with fresh objects that resumes it."""
    writes = 0
    real = Nodes.save_part

    def write_and_die(self: Nodes, part: int, state: Mapping[str, Any]) -> None:
        nonlocal writes
        real(self, part, state)
        writes += 1
        if writes == write:
            raise Killed

    def started() -> tuple[Everything, Corpus, Checkpoint]:
        model = build()
        return Everything(model), corpus_of(model), Checkpoint(folder, {"model": "a"}, every=0.0)

    measures, corpus, checkpoint = started()
    try:
        with patch.context() as broken:
            broken.setattr(Nodes, "save_part", write_and_die)
            table = measures.run(corpus, checkpoint)
    except Killed:
        measures, corpus, checkpoint = started()
        torch.manual_seed(99)  # draws from the global generator would show
        checkpoint.resume()
        table = measures.run(corpus, checkpoint)
    checkpoint.forget()
    return table


@pytest.mark.fast("bert")
@pytest.mark.parametrize("build, deaths", [(gpt2, (1, 4, 5, 6, 8, 11)), (bert, (3, 9))])
def test_killed_after_a_save_the_table_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[], nn.Module], deaths: tuple[int, ...]
) -> None:
    """5 batches in 2 parts in each of 2 passes, and 1 of repeats: 11 saves."""
    whole = killed_at(10_000, build, tmp_path / "state", monkeypatch)
    assert len(whole) == 6
    assert {"entropy", "kind", "importance", "ablation_mean", "most_similar_cka"} <= set(whole.columns)
    for write in deaths:
        assert killed_at(write, build, tmp_path / "state", monkeypatch).to_json() == whole.to_json(), write


def test_parts_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without random draws, 3 parts teach what one pass over the same batches teaches, but for rounding."""
    model, parts = gpt2(), {}
    for name, batches in (("one", 64), ("two", 2)):
        monkeypatch.setattr("multihead.corpus.documents.BATCHES", batches)
        corpus, means = Corpus(model, MANY, batch_size=2, window=1), MeanOutputs()
        first = [StatisticsSum(), Gradients(LanguageModel()), means]
        ablation = Ablation(LanguageModel(), ("zero", "mean"), means=means)
        run(model, corpus, first)
        run(model, corpus, [ablation])
        parts[name] = reduce(HeadTable.join, [one.columns() for one in (*first[:2], ablation)])
    one, two = parts["one"], parts["two"]
    assert set(one.columns) == set(two.columns)
    for column, values in one.columns.items():
        if isinstance(values, torch.Tensor):
            torch.testing.assert_close(two[column], values, rtol=1e-9, atol=1e-12, equal_nan=True, msg=column)


class Until(Seen):
    """Needs no attention after those of the first `layers`."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.name, self.layers, self.calls = f"until{layers}", layers, 0
        self.outputs: list[Any] = []

    def add(self, call: Call, out: HeadOutputs) -> None:
        self.calls += 1

    def satisfied(self, call: Call) -> bool:
        return f".h.{self.layers - 1}." in call.path

    def end(self, batch: Batch, run: BatchRun) -> None:
        self.outputs.append(run.output)


def test_a_forward_stops_where_all_are_satisfied() -> None:
    model, ends = gpt2(), list[int]()
    model.register_forward_hook(lambda *_: ends.append(1))
    batch = Batch({"input_ids": torch.tensor([DOCUMENTS[0]])})
    for layers, calls, reaches_end in (((1,), 1, False), ((1, 2), 2, False), ((1, 3), 2, True)):
        ends.clear()
        accumulators = [Until(count) for count in layers]
        BatchRunner(model, accumulators).run(batch)
        for one in accumulators:
            assert one.calls == calls, "those that share a forward see all of it"
            assert (one.outputs[0] is not None) == reaches_end
        assert len(ends) == reaches_end


def test_with_a_checkpoint_or_without_the_numbers_are_the_same(tmp_path: Path) -> None:
    model = gpt2()
    kept, plain = StatisticsSum(), StatisticsSum()
    run(model, corpus_of(model), [kept], checkpoint=Checkpoint(tmp_path / "state", {}, every=0.0))
    run(model, Corpus(model, iter(MANY), batch_size=2, window=2), [plain])
    assert kept.columns().to_json() == plain.columns().to_json()


def test_a_run_that_is_told_to_stop_has_its_state_on_disk(tmp_path: Path) -> None:
    model, checkpoint = gpt2(), Checkpoint(tmp_path / "state", {}, every=1e9)

    def progress(count: float) -> None:
        checkpoint.stopping = count == 2

    with pytest.raises(RunStopped):
        run(model, corpus_of(model), [StatisticsSum()], checkpoint=checkpoint, progress=progress)
    assert load_state(tmp_path / "state" / "statistics-part-0.safetensors")["batches"] == 2
    assert checkpoint.batches("statistics") == 2


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    model = gpt2()
    first = Checkpoint(tmp_path / "state", {"model": "a", "seed": 1})
    run(model, corpus_of(model), [StatisticsSum()], checkpoint=first)
    other = Checkpoint(tmp_path / "state", {"model": "b", "seed": 1})
    with pytest.raises(mh.MultiheadError, match="state holds a run with model a, this run has model b"):
        other.resume()
    with pytest.raises(mh.MultiheadError, match="kinds not set, this run has kinds on"):
        check_identity({"a": 1}, {"a": 1, "kinds": "on"}, tmp_path / "state")
    with pytest.raises(mh.MultiheadError, match="options of the statistics"):
        StatisticsSum(Statistics(offsets=3)).load(StatisticsSum().state())


def test_a_resumed_run_leaves_the_number_of_threads_alone(tmp_path: Path) -> None:
    """It computes with as many as before, since sums over rows are divided among them, and restores yours."""
    model = gpt2()
    torch.set_num_threads(2)
    try:
        stopped = Checkpoint(tmp_path, {}, every=0.0)
        stopped.stopping = True
        with pytest.raises(RunStopped):
            run(model, corpus_of(model), [StatisticsSum()], checkpoint=stopped)
        torch.set_num_threads(1)
        resumed = Checkpoint(tmp_path, {})
        resumed.resume()
        assert resumed.threads == 2
        assert run(model, corpus_of(model), [StatisticsSum()], checkpoint=resumed).batches == 5
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


def test_one_process_gets_what_many_get() -> None:
    """A result goes through JSON for followers, so it does for rank 0 and for a process alone."""
    assert Ranks.alone().on_rank_zero(lambda: (1, {2: "two"})) == [1, {"2": "two"}]
