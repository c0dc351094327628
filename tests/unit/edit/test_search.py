"""The search: what goes first, under which shape, and when it stops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.choosing import search as searching
from multihead.edit.choosing.budget import CacheBytes, Heads
from multihead.edit.choosing.scores import Fixed
from multihead.edit.choosing.search import Choice, search
from multihead.edit.plan import distinct
from multihead.errors import SizeError

IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(4 + i % 7)] for i in range(24)]
SMALL: dict[str, Any] = {"hidden_size": 36, "intermediate_size": 23, "vocab_size": 53}


@pytest.fixture(scope="module")
def bert() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SMALL, num_hidden_layers=3, num_attention_heads=6)).eval()


@pytest.fixture(scope="module")
def llama() -> LlamaModel:
    torch.manual_seed(0)
    return LlamaModel(
        LlamaConfig(**SMALL, num_hidden_layers=2, num_attention_heads=9, num_key_value_heads=3, head_dim=4)
    ).eval()


def _search(monkeypatch: Any, model: nn.Module, costs: dict[str, list[float]], **asked: Any) -> Choice:
    """A search with costs that are given."""
    monkeypatch.setattr(searching, "scorer", lambda *_, **__: Fixed(costs, "given"))
    return search(model, distinct(mh.anatomy(model)), Calibration(model, IDS), **asked)


COSTS = {"L0": [1, 2, 3, 4, 5, 6.0], "L1": [0.5, 9, 9, 9, 9, 9], "L2": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}
GROUPED = {"L0": [1, 1, 1, 3, 3, 3, 0.1, 9, 9.0], "L1": [4, 4, 4, 5, 5, 5, 6, 6, 6]}


def test_the_cheapest_of_all_go_first_and_a_layer_may_lose_all(monkeypatch: Any, bert: BertModel) -> None:
    found = _search(monkeypatch, bert, COSTS, budget=Heads(0.5))
    assert found.keep == {"L0": (2, 3, 4, 5), "L1": (1, 2, 3, 4, 5), "L2": ()}
    assert found.notes == ("L2 lost all heads",)
    assert found.scores["L2H3"] == 0.4
    assert len(found.scores) == 18


def test_every_layer_keeps_the_least(monkeypatch: Any, bert: BertModel) -> None:
    found = _search(monkeypatch, bert, COSTS, budget=Heads(0.5), least=2)
    assert found.keep == {"L0": (4, 5), "L1": (1, 2, 3, 4, 5), "L2": (4, 5)}
    short = _search(monkeypatch, bert, COSTS, budget=Heads(0.1), least=2)
    assert [len(x) for x in short.keep.values()] == [2, 2, 2]
    assert "the budget does not hold: 0.33 of the heads are left" in short.notes[0]


def test_uniform_and_multiples(monkeypatch: Any, bert: BertModel) -> None:
    found = _search(monkeypatch, bert, COSTS, budget=Heads(0.7), uniform=True)
    assert {len(x) for x in found.keep.values()} == {4}
    found = _search(monkeypatch, bert, COSTS, budget=Heads(0.7), multiple_of=2)
    assert found.keep == {"L0": (0, 1, 2, 3, 4, 5), "L1": (0, 1, 2, 3, 4, 5), "L2": ()}
    found = _search(monkeypatch, bert, COSTS, budget=Heads(0.7), uniform=True, multiple_of=3)
    assert {len(x) for x in found.keep.values()} == {3}


def test_query_heads_of_groups_go_one_by_one(monkeypatch: Any, llama: LlamaModel) -> None:
    found = _search(monkeypatch, llama, GROUPED, budget=Heads(14 / 18))
    assert found.keep == {"L0": (3, 4, 5, 7, 8), "L1": tuple(range(9))}


def test_a_multiple_of_heads_keeps_groups_even(monkeypatch: Any, llama: LlamaModel) -> None:
    """To be split over devices, every kv head must have as many readers as before."""
    found = _search(monkeypatch, llama, GROUPED, budget=Heads(12 / 18), multiple_of=3)
    of = mh.anatomy(llama)[0].groups.kv_of_head
    for heads in found.keep.values():
        assert {sum(of[h] == kv for h in heads) for kv in range(3)} <= {0, 3}, found.keep
    assert sum(map(len, found.keep.values())) == 12


def test_bytes_of_a_cache_are_saved_by_whole_groups(monkeypatch: Any, llama: LlamaModel) -> None:
    found = _search(monkeypatch, llama, GROUPED, budget=CacheBytes(4 / 6))
    assert found.keep == {"L0": (6, 7, 8), "L1": tuple(range(9))}
    found = _search(monkeypatch, llama, GROUPED, budget=Heads(0.6), uniform=True)
    assert found.keep == {"L0": (6, 7, 8), "L1": (6, 7, 8)}


@pytest.mark.parametrize("method", ["random", "fisher", "obs"])
def test_every_method_holds_the_budget(method: str, bert: BertModel) -> None:
    turns, text = distinct(mh.anatomy(bert)), Calibration(bert, IDS)
    said: list[tuple[str, int, int]] = []
    found = search(bert, turns, text, budget=Heads(0.5), method=method, progress=lambda *step: said.append(step))
    assert sum(len(x) for x in found.keep.values()) == 9
    assert set(found.scores) == {f"L{i}H{h}" for i in range(3) for h in range(6)}
    assert all(done <= total for _, done, total in said)


def test_what_cannot_be_is_refused(bert: BertModel, llama: LlamaModel) -> None:
    turns, text = distinct(mh.anatomy(bert)), Calibration(bert, IDS)
    with pytest.raises(SizeError, match=r"least=7: L0 .* has 6 heads"):
        search(bert, turns, text, budget=Heads(0.5), least=7)
    with pytest.raises(SizeError, match=r"multiple_of=4 does not divide the 6 heads of L0[\s\S]*1, 2, 3, 6"):
        search(bert, turns, text, budget=Heads(0.5), multiple_of=4)
    with pytest.raises(SizeError, match=r"uniform: the layers have \[6, 9\] heads"):
        search(bert, [*turns, *distinct(mh.anatomy(llama))], text, budget=Heads(0.5), uniform=True)
    with pytest.raises(SizeError, match="method='best' is not known"):
        search(bert, turns, text, budget=Heads(0.5), method="best")


def test_a_budget_that_leaves_no_head_says_so(llama: LlamaModel) -> None:
    made = mh.plan(llama, IDS, budget="cache=0.01", method="random")
    assert made.kept == 0
    assert made.notes[-1] == "no head stays: cache=0.01 is less than the smallest choice of heads costs"
