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
from multihead.measures.corpus import batches
from multihead.measures.kinds.kinds import KindsStage
from multihead.measures.likeness.pairs import RedundancyStage
from multihead.measures.run import Run, Stopped, check_identity
from multihead.measures.stage import Steps, run_stage
from multihead.measures.state import load_state, save_state
from multihead.measures.statistics.options import Statistics
from multihead.measures.statistics.stage import StatisticsStage
from multihead.measures.tables.table import HeadTable
from multihead.measures.worth.ablation import Ablation
from multihead.measures.worth.importance import Gradients
from multihead.measures.worth.loss import LanguageModel, OwnOutputs
from multihead.measures.worth.means import MeanOutputs

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
    loss = LanguageModel() if causal else OwnOutputs()
    return [
        StatisticsStage(model, options),
        KindsStage(model, options, seed=3),
        Gradients(model, loss, seed=3),
        means,
        Ablation(model, loss, ("zero", "mean"), means=means),
        RedundancyStage(model, seed=3),
    ]


class Killed(Exception):
    pass


def killed_at(write: int, build: Callable[[], nn.Module], file: Path) -> HeadTable:
    """A run that dies right after a write, in a world of its own, and one that takes it up."""

    def started() -> tuple[nn.Module, Run]:
        model = build()
        return model, Run(everything(model), {"model": "a"}, file, every=0.0)

    def read(model: nn.Module) -> Any:
        return lambda: batches(model, DOCUMENTS, batch_size=2)

    model, run = started()
    writes = 0
    real = run.write

    def write_and_die() -> None:
        nonlocal writes
        real()
        writes += 1
        if writes == write:
            raise Killed

    run.write = write_and_die  # type: ignore[method-assign]
    try:
        return run.go(read(model))
    except Killed:
        model, run = started()
        torch.manual_seed(99)  # whoever draws from the global generator is found out
        run.resume()
        return run.go(read(model))


@pytest.mark.parametrize("build, deaths", [(gpt2, (4, 10, 18, 22)), (bert, (6, 13))])
def test_killed_after_a_write_the_table_is_the_same(
    tmp_path: Path, build: Callable[[], nn.Module], deaths: tuple[int, ...]
) -> None:
    """3 batches and an end in each of 6 stages: 24 writes."""
    whole = killed_at(10_000, build, tmp_path / "state")
    assert len(whole) == 6
    assert {"entropy", "kind", "importance", "ablation_mean", "twin_cka"} <= set(whole.columns)
    for write in deaths:
        assert killed_at(write, build, tmp_path / "state").to_json() == whole.to_json(), write


def test_a_run_that_is_asked_to_stop_has_its_state_on_disk(tmp_path: Path) -> None:
    model = gpt2()
    run = Run([StatisticsStage(model, Statistics())], {}, tmp_path / "state", every=1e9)
    read = lambda: batches(model, DOCUMENTS, batch_size=2)

    def progress(name: str, count: int) -> None:
        run.stopping = count == 2

    with pytest.raises(Stopped):
        run.go(read, progress)
    assert load_state(tmp_path / "state")["done"] == {"statistics": 2}


def test_another_run_is_not_taken_up(tmp_path: Path) -> None:
    model = gpt2()
    run = Run([StatisticsStage(model, Statistics())], {"model": "a", "seed": 1}, tmp_path / "state")
    run.write()
    other = Run([StatisticsStage(model, Statistics())], {"model": "b", "seed": 1}, tmp_path / "state")
    with pytest.raises(mh.MultiheadError, match="state was begun with model a, this is model b"):
        other.resume()
    with pytest.raises(mh.MultiheadError, match="state was begun with kinds not set, this is kinds on"):
        check_identity({"a": 1}, {"a": 1, "kinds": "on"}, tmp_path / "state")
    stage = StatisticsStage(model, Statistics(offsets=3))
    with pytest.raises(mh.MultiheadError, match="other options of the statistics"):
        stage.load(StatisticsStage(model, Statistics()).state())
