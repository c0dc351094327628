"""A pass that is put down anywhere and taken up again ends in the same table, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead.corpus.accumulator import Steps, run_stage
from multihead.corpus.checkpoint import Shelf
from multihead.corpus.corpus import Corpus
from multihead.corpus.ranks import Ranks
from multihead.corpus.run import Run, Stopped, check_identity
from multihead.corpus.state import load_state, save_state
from multihead.measures.importance.ablation import Ablation
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.losses import LanguageModel, OutputDistance
from multihead.measures.importance.mean_outputs import MeanOutputs
from multihead.measures.kinds.kinds import KindsStage
from multihead.measures.measure import StatisticsStage
from multihead.measures.similarity.similarity import SimilarityStage
from multihead.model.statistics.options import Statistics
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


# ---- one stage --------------------------------------------------------------------------------


class Sum:
    """Remembers what it was given."""

    name = "sum"

    def __init__(self) -> None:
        self.seen: list[int] = []

    def step(self, batch: Mapping[str, Any]) -> None:
        self.seen.append(batch["x"])

    def state(self) -> dict[str, Any]:
        return {"seen": list(self.seen)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.seen = list(state["seen"])


def test_a_stage_sees_every_batch_once_and_says_how_far_it_is() -> None:
    counts: list[int] = []
    assert run_stage(Sum(), [{"x": i} for i in range(5)], progress=counts.append).seen == [0, 1, 2, 3, 4]
    assert counts == [1, 2, 3, 4, 5]
    resumed = Sum()
    resumed.load({"seen": [0, 1, 2]})
    assert run_stage(resumed, ({"x": i} for i in range(5)), done=3).seen == [0, 1, 2, 3, 4]


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
    with pytest.raises(mh.TypeMismatchError, match=r"state\['a'\]\[1\] is a Linear"):
        save_state(tmp_path / "a", {"a": [1, nn.Linear(2, 2)]})
    with pytest.raises(mh.TypeMismatchError, match=r"3 is no key of a state, in state\['a'\]"):
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


def everything(model: nn.Module) -> list[Steps]:
    options, means = Statistics(special=[7], classes={"small": (8, 9)}), MeanOutputs(model)
    causal = isinstance(model, GPT2LMHeadModel)
    loss = LanguageModel() if causal else OutputDistance()
    return [
        StatisticsStage(model, options),
        KindsStage(model, options, seed=3),
        Gradients(model, loss, seed=3),
        means,
        Ablation(model, loss, ("zero", "mean"), means=means),
        SimilarityStage(model, seed=3),
    ]


class Killed(Exception):
    pass


MANY = [[*document, 3 + at % 30, 5 + at % 29] for at, document in enumerate(DOCUMENTS * 2)]


def corpus_of(model: nn.Module, documents: list[list[int]] = MANY) -> Corpus:
    return Corpus(model, documents, len(documents), batch_size=2, window=2)


def killed_at(write: int, build: Callable[[], nn.Module], folder: Path, patch: pytest.MonkeyPatch) -> HeadTable:
    """A run that dies right after a write, in a world of its own, and one that takes it up."""
    writes = 0
    real = Shelf.save_part

    def write_and_die(self: Shelf, part: int, state: Mapping[str, Any]) -> None:
        nonlocal writes
        real(self, part, state)
        writes += 1
        if writes == write:
            raise Killed

    def started() -> tuple[Run, Corpus]:
        model = build()
        return Run(everything(model), {"model": "a"}, folder, every=0.0), corpus_of(model)

    run, corpus = started()
    try:
        with patch.context() as broken:
            broken.setattr(Shelf, "save_part", write_and_die)
            found = run.go(corpus)
    except Killed:
        run, corpus = started()
        torch.manual_seed(99)  # whoever draws from the global generator is found out
        run.resume()
        found = run.go(corpus)
    run.forget()
    assert found is not None
    return found


@pytest.mark.parametrize("build, deaths", [(gpt2, (4, 9, 23, 28)), (bert, (15,))])
def test_killed_after_a_write_the_table_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[], nn.Module], deaths: tuple[int, ...]
) -> None:
    """5 batches in 2 parts in each of 6 stages: 30 writes."""
    whole = killed_at(10_000, build, tmp_path / "state", monkeypatch)
    assert len(whole) == 6
    assert {"entropy", "kind", "importance", "ablation_mean", "most_similar_cka"} <= set(whole.columns)
    for write in deaths:
        assert killed_at(write, build, tmp_path / "state", monkeypatch).to_json() == whole.to_json(), write


def test_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    """Without random draws, 2 parts say what one pass over the same batches says, but for rounding."""
    model, parts = gpt2(), {}
    for name, most in (("one", 1), ("two", 64)):
        corpus = Corpus(model, MANY, 10, batch_size=2, window=1, most=most)
        assert len(corpus.parts) == (1 if most == 1 else 2)
        means = MeanOutputs(model)
        stages = [
            StatisticsStage(model, Statistics(covariance=True)),
            Gradients(model, LanguageModel()),
            means,
            Ablation(model, LanguageModel(), ("zero", "mean"), means=means),
        ]
        found = Run(stages, {}, tmp_path / name).go(corpus)
        assert found is not None
        parts[name] = found
    one, two = parts["one"], parts["two"]
    assert set(one.columns) == set(two.columns)
    for column, values in one.columns.items():
        if isinstance(values, torch.Tensor):
            torch.testing.assert_close(two[column], values, rtol=1e-9, atol=1e-12, equal_nan=True, msg=column)


def test_a_run_that_is_asked_to_stop_has_its_state_on_disk(tmp_path: Path) -> None:
    model = gpt2()
    run = Run([StatisticsStage(model, Statistics())], {}, tmp_path / "state", every=1e9)

    def progress(name: str, count: int) -> None:
        run.stopping = count == 2

    with pytest.raises(Stopped):
        run.go(corpus_of(model), progress)
    assert load_state(tmp_path / "state" / "statistics-part-0.safetensors")["batches"] == 2


def test_another_run_is_not_taken_up(tmp_path: Path) -> None:
    model = gpt2()
    run = Run([StatisticsStage(model, Statistics())], {"model": "a", "seed": 1}, tmp_path / "state")
    run.go(corpus_of(model))
    other = Run([StatisticsStage(model, Statistics())], {"model": "b", "seed": 1}, tmp_path / "state")
    with pytest.raises(mh.MultiheadError, match="state was begun with model a, this is model b"):
        other.resume()
    with pytest.raises(mh.MultiheadError, match="state was begun with kinds not set, this is kinds on"):
        check_identity({"a": 1}, {"a": 1, "kinds": "on"}, tmp_path / "state")
    stage = StatisticsStage(model, Statistics(offsets=3))
    with pytest.raises(mh.MultiheadError, match="other options of the statistics"):
        stage.load(StatisticsStage(model, Statistics()).state())


def test_a_stage_whose_parts_do_not_add_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mh.MultiheadError, match="the stage sum cannot be taken in parts"):
        Run([Sum()], {}, tmp_path)  # type: ignore[list-item]


def test_a_resumed_run_leaves_the_number_of_threads_alone(tmp_path: Path) -> None:
    """It computes with as many as before, since sums over rows are divided among them, and restores yours."""
    model = gpt2()
    torch.set_num_threads(2)
    try:
        stopped = Run([StatisticsStage(model, Statistics())], {}, tmp_path, every=0.0)
        stopped.stopping = True
        with pytest.raises(Stopped):
            stopped.go(corpus_of(model))
        torch.set_num_threads(1)
        resumed = Run([StatisticsStage(model, Statistics())], {}, tmp_path)
        resumed.resume()
        assert resumed.go(corpus_of(model)) is not None
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


def test_one_process_gets_what_many_get() -> None:
    """A result goes through JSON for followers, so it does for rank 0 and for a process alone."""
    assert Ranks.alone().first(lambda: (1, {2: "two"})) == [1, {"2": "two"}]
