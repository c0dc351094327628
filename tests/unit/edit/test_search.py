"""The search: which heads are removed first, under which shape, and where an order is sliced."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import multihead as mh
from multihead.edit.budget import CostModel, LayerCost, cache_bytes, count_heads
from multihead.edit.calibration import Calibration
from multihead.edit.make_plan import prune_order
from multihead.edit.saliency import FixedSaliency, OBSSaliency
from multihead.edit.search import PruneOrder, Shape, greedy
from multihead.errors import SizeError, TypeMismatchError

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


def search(model: nn.Module, costs: dict[str, list[float]], share: float, **shape: Any) -> PruneOrder:
    """The heads that are left of a share of the heads, with fixed saliencies."""
    cost = count_heads(mh.anatomy(model))
    return greedy(FixedSaliency(costs), cost, Shape(**shape)).until(share * cost.of_all_heads)


COSTS = {"L0": [1, 2, 3, 4, 5, 6.0], "L1": [0.5, 9, 9, 9, 9, 9], "L2": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}
GROUPED = {"L0": [1, 1, 1, 3, 3, 3, 0.1, 9, 9.0], "L1": [4, 4, 4, 5, 5, 5, 6, 6, 6]}


def test_the_cheapest_of_all_go_first_and_a_layer_may_lose_all(bert: BertModel) -> None:
    order = search(bert, COSTS, 0.5)
    assert order.keep == {"L0": (2, 3, 4, 5), "L1": (1, 2, 3, 4, 5), "L2": ()}
    assert order.total == 9
    assert order.scores["L2", 3] == 0.4
    assert len(order.scores) == 18


def test_every_layer_keeps_the_least(bert: BertModel) -> None:
    assert search(bert, COSTS, 0.5, min_heads=2).keep == {"L0": (4, 5), "L1": (1, 2, 3, 4, 5), "L2": (4, 5)}
    short = search(bert, COSTS, 0.1, min_heads=2)
    assert [len(x) for x in short.keep.values()] == [2, 2, 2]
    assert short.total == 6


def test_uniform_and_multiples(bert: BertModel) -> None:
    assert {len(x) for x in search(bert, COSTS, 0.7, uniform=True).keep.values()} == {4}
    keep = search(bert, COSTS, 0.7, multiple_of=2).keep
    assert keep == {"L0": (0, 1, 2, 3, 4, 5), "L1": (0, 1, 2, 3, 4, 5), "L2": ()}
    assert {len(x) for x in search(bert, COSTS, 0.7, uniform=True, multiple_of=3).keep.values()} == {3}


@pytest.mark.parametrize("shape", [{}, {"uniform": True}, {"multiple_of": 3}, {"min_heads": 2, "multiple_of": 2}])
def test_every_prefix_of_an_order_has_the_shape(bert: BertModel, shape: dict[str, Any]) -> None:
    cost = count_heads(mh.anatomy(bert))
    complete = greedy(FixedSaliency(COSTS), cost, Shape(**shape))
    for heads in range(19):
        alone = greedy(FixedSaliency(COSTS), cost, Shape(**shape), limit=float(heads))
        prefix = complete.until(heads)
        assert (prefix.keep, prefix.scores, prefix.total) == (alone.keep, alone.scores, alone.total)
        counts = [len(x) for x in prefix.keep.values()]
        assert all(n % shape.get("multiple_of", 1) == 0 and n >= shape.get("min_heads", 0) for n in counts)
        assert not shape.get("uniform") or len(set(counts)) == 1


def test_query_heads_of_groups_go_one_by_one(llama: LlamaModel) -> None:
    assert search(llama, GROUPED, 14 / 18).keep == {"L0": (3, 4, 5, 7, 8), "L1": tuple(range(9))}


def test_a_multiple_of_heads_keeps_groups_even(llama: LlamaModel) -> None:
    """To be split over devices, every kv head must have as many query heads as before."""
    keep = search(llama, GROUPED, 12 / 18, multiple_of=3).keep
    of = mh.anatomy(llama)[0].groups.kv_of_head
    for heads in keep.values():
        assert {sum(of[h] == kv for h in heads) for kv in range(3)} <= {0, 3}, keep
    assert sum(map(len, keep.values())) == 12


def test_bytes_of_a_cache_are_saved_by_whole_groups(llama: LlamaModel) -> None:
    cost = cache_bytes(mh.anatomy(llama))
    order = greedy(FixedSaliency(GROUPED), cost).until(4 / 6 * cost.of_all_heads)
    assert order.keep == {"L0": (6, 7, 8), "L1": tuple(range(9))}
    assert search(llama, GROUPED, 0.6, uniform=True).keep == {"L0": (6, 7, 8), "L1": (6, 7, 8)}


@pytest.mark.parametrize("method", ["random", "fisher", "obs"])
def test_every_method_holds_the_budget(method: str, bert: BertModel) -> None:
    text = Calibration(bert, IDS)
    steps: list[tuple[str, int, int]] = []
    text.progress = lambda *step: steps.append(step)
    order = prune_order(text, [0.5], method=method, shape=Shape())
    assert sum(len(x) for x in order.keep.values()) == 9
    assert set(order.scores) == {(f"L{i}", h) for i in range(3) for h in range(6)}
    assert all(done <= total for _, done, total in steps)


@pytest.mark.fast("shape1")
@pytest.mark.parametrize("shape", [Shape(), Shape(min_heads=1, multiple_of=4), Shape(uniform=True)])
def test_a_search_over_32_layers_of_32_heads_takes_seconds(shape: Shape) -> None:
    names, draw = [f"L{i}" for i in range(32)], torch.Generator().manual_seed(0)
    dims = 4
    outputs = {name: torch.randn(32 * dims, 64, generator=draw, dtype=torch.float64) for name in names}
    mixed = {name: torch.randn(400, 32 * dims, generator=draw, dtype=torch.float64) for name in names}
    obs = OBSSaliency(outputs, {n: z.T @ z / 400 for n, z in mixed.items()}, dict.fromkeys(names, 32))
    layer = LayerCost(per_head=3.0, per_kv_head=2.0, kv_of_head=tuple(h // 4 for h in range(32)))
    start = time.process_time()
    order = greedy(obs, CostModel("FLOPs", dict.fromkeys(names, layer), fixed=100.0), shape)
    assert time.process_time() - start < 10  # about 1 s, minutes if every step evaluates every layer
    assert sum(map(len, order.keep.values())) == (32 * 4 if shape.min_heads else 0)


def test_shapes_that_cannot_be_are_refused(bert: BertModel) -> None:
    text = Calibration(bert, IDS)
    with pytest.raises(SizeError, match=r"min_heads=7, but L0 has 6 heads\n\nhint: choose at most 6"):
        prune_order(text, [0.5], method="random", shape=Shape(min_heads=7))
    with pytest.raises(SizeError, match=r"multiple_of=4 does not divide the 6 heads of L0[\s\S]*1, 2, 3, 6"):
        prune_order(text, [0.5], method="random", shape=Shape(multiple_of=4))
    with pytest.raises(SizeError, match=r"uniform .* got \[6, 9\]"):
        Shape(uniform=True).check({"L0": 6, "L1": 9})
    with pytest.raises(SizeError, match="min_heads must be at least 0, got -1"):
        Shape(min_heads=-1)
    with pytest.raises(TypeMismatchError, match=r"multiple_of must be an integer, got 1\.5"):
        Shape(multiple_of=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="uniform must be True or False, got 'yes'"):
        Shape(uniform="yes")  # type: ignore[arg-type]


def test_a_plan_without_heads_is_refused(llama: LlamaModel) -> None:
    """Nothing can look at a model without heads afterwards."""
    with pytest.raises(SizeError, match=r"must keep a head, got none of 18 heads \(request: budget cache=0\.01\)"):
        mh.plan(llama, IDS, budget="cache=0.01", method="random")
    with pytest.raises(SizeError, match=r"must keep a head, got none of 18 heads \(request: by hand\)"):
        mh.plan(llama, remove=[head for layer in mh.anatomy(llama) for head in layer.site.names])


def test_the_budget_of_flops_is_that_of_the_whole_model(bert: BertModel) -> None:
    """flops=0.9 keeps as many heads as cost 0.9 of the FLOPs, feed-forwards included."""
    text = Calibration(bert, IDS)
    order = prune_order(text, [0.9], method="random", budget="flops", shape=Shape())
    assert 0.85 < order.total / order.cost.of_all_heads <= 0.9
    assert sum(map(len, order.keep.values())) > 9
