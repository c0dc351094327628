"""Pruning and grouping for one budget: what sharing costs after a re-fit, and a search that weighs both."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, LlamaModel

import multihead as mh
from multihead.edit.choosing import search as searching
from multihead.edit.choosing.budget import CacheBytes, Flops, Heads
from multihead.edit.choosing.rungs import Ladders, Rung
from multihead.edit.choosing.scores import RIDGE, Clusters, Surgeon, scorer
from multihead.edit.choosing.search import Choice, search
from multihead.edit.fitting.calibration import Calibration
from multihead.edit.physical.surgery import arranged, install
from multihead.edit.plan import distinct
from multihead.edit.sharing.group import grouped
from multihead.edit.sharing.moments import moments_of
from multihead.errors import SizeError
from multihead.model.head_weights import HeadWeights
from unit.edit.sharp import sharp

IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(5 + i % 7)] for i in range(60)]
SMALL: dict[str, Any] = {"hidden_size": 28, "intermediate_size": 23, "vocab_size": 53}


@pytest.fixture(scope="module")
def bert() -> BertModel:
    torch.manual_seed(0)
    return sharp(0.4, BertModel(BertConfig(**SMALL, num_hidden_layers=2, num_attention_heads=4)))


@pytest.fixture(scope="module")
def text(bert: BertModel) -> Calibration:
    return Calibration(bert, IDS, batch_size=11, spliced=0)


@pytest.fixture(scope="module")
def llama() -> LlamaModel:
    torch.manual_seed(0)
    return LlamaModel(
        LlamaConfig(
            **{**SMALL, "hidden_size": 40},
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=6,
        )
    ).eval()


def _outputs(model: Any, text: Calibration, layer: int) -> tuple[Tensor, Tensor]:
    """What goes into W_O of a BERT layer, and what comes out: real tokens, in fp64."""
    found: dict[str, list[Tensor]] = {"z": [], "o": []}
    for batch in text.fit():
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()

        def keep(_: Any, args: Any, out: Tensor, real: Tensor = real) -> None:
            found["z"].append(args[0][real].double())
            found["o"].append(out[real].double())

        hook = model.encoder.layer[layer].attention.output.dense.register_forward_hook(keep)
        with torch.no_grad():
            model(**batch)
        hook.remove()
    return torch.cat(found["z"]), torch.cat(found["o"])


def _best(z: Tensor, o: Tensor) -> tuple[Tensor, Tensor, float]:
    """W, b and what is left of min E‖o − W z − b‖², with the ridge of the scores."""
    one, two = z - z.mean(0), o - o.mean(0)
    covariance, crossed = one.T @ one / len(z), one.T @ two / len(z)
    ridge = RIDGE * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=z.dtype)
    # the ridge pulls towards the weights as they are, which gave o₀ = W₀ z: here, in what is still missing
    best = torch.linalg.solve(covariance + ridge, crossed)
    return best, o.mean(0) - z.mean(0) @ best, float((two - one @ best).square().sum() / len(z))


def _shared(model: BertModel, text: Calibration, layer: int, clusters: Clusters) -> tuple[Any, Tensor, HeadWeights]:
    """A copy with these clusters and W_O fitted by least squares, and what goes into it."""
    found, student = mh.anatomy(model)[layer], copy.deepcopy(model)
    new = arranged(grouped(HeadWeights.of(found), clusters, moments_of(model, found, text.fit())))
    install(student, found, new)
    z, now = _outputs(student, text, layer)
    _, target = _outputs(model, text, layer)
    change, shift, _ = _best(z, target - now)
    dense = student.encoder.layer[layer].attention.output.dense
    with torch.no_grad():
        dense.weight.add_(change.T.float())
        dense.bias.add_(shift.float())
    return student, z, new


def _loss(model: BertModel, student: Any, text: Calibration) -> float:
    """1 − cos of mean-pooled vectors, over held-out documents."""
    found: list[Tensor] = []
    for batch in text.held_out():
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))[:, :, None]
        with torch.no_grad():
            a, b = ((m(**batch).last_hidden_state * real).sum(1) / real.sum(1) for m in (model, student))
        found.append(1 - torch.cosine_similarity(a, b))
    return float(torch.cat(found).double().mean())


def test_a_rung_costs_what_the_output_moves_after_the_best_refit(bert: BertModel, text: Calibration) -> None:
    """Brute force: the grouped layer in a copy of the model, W_O fitted by least squares, run on held-out text."""
    found = scorer("obs", bert, distinct(mh.anatomy(bert)), text, group=True)
    plain = scorer("obs", bert, distinct(mh.anatomy(bert)), text)
    assert isinstance(found, Ladders)
    assert [len(clusters) for clusters, _ in found.steps("L1")] == [2, 1]
    for clusters, cost in found.steps("L1"):
        student, _, _ = _shared(bert, text, 1, clusters)
        assert cost == pytest.approx(2 * _loss(bert, student, text), rel=1e-3)
    scale = [found.cost("L1", h) / plain.cost("L1", h) for h in range(4)]
    assert scale == pytest.approx([scale[0]] * 4)  # heads are told in the same unit


def test_heads_of_a_grouped_layer_cost_what_the_refit_then_loses(bert: BertModel, text: Calibration) -> None:
    found = scorer("obs", bert, distinct(mh.anatomy(bert)), text, group=True)
    assert isinstance(found, Ladders)
    (clusters, cost), (_, lowest) = found.steps("L0")
    _, z, new = _shared(bert, text, 0, clusters)
    _, target = _outputs(bert, text, 0)
    found.share("L0", clusters)
    whole, lost = _best(z, target)[2], dict[int, float]()
    for h in range(4):
        at = new.origin.index(h)
        rest = torch.cat([z[:, : at * 7], z[:, (at + 1) * 7 :]], dim=1)
        lost[h] = _best(rest, target)[2] - whole
    for h in range(1, 4):
        assert found.cost("L0", h) / found.cost("L0", 0) == pytest.approx(lost[h] / lost[0], rel=0.1)
    ((_, further),) = found.steps("L0")
    assert further == pytest.approx(lowest - cost)
    before = found.cost("L0", 1)
    found.remove("L0", 3)
    assert found.cost("L0", 1) > before
    assert len(found.steps("L0")) == 1


# ---- the search ----------------------------------------------------------------------------------------


class _Given:
    """Costs that are given, of heads and of rungs."""

    unit = "given"

    def __init__(self, heads: dict[str, list[float]], rungs: dict[str, list[tuple[Clusters, float]]]) -> None:
        self.heads, self.rungs, self.notes = heads, {n: list(r) for n, r in rungs.items()}, ["told"]
        self.lost = dict.fromkeys(heads, 0.0)

    def cost(self, layer: str, head: int) -> float:
        return self.heads[layer][head]

    def together(self, layer: str, heads: Sequence[int]) -> float:
        return sum(self.heads[layer][h] for h in heads)

    def remove(self, layer: str, head: int) -> None:
        pass

    def steps(self, layer: str) -> list[tuple[Clusters, float]]:
        return [(clusters, cost - self.lost[layer]) for clusters, cost in self.rungs.get(layer, [])]

    def share(self, layer: str, clusters: Clusters) -> None:
        at = [c for c, _ in self.rungs[layer]].index(clusters)
        self.lost[layer] = self.rungs[layer][at][1]
        self.rungs[layer] = self.rungs[layer][at + 1 :]


TWO: Clusters = ((0, 2), (1, 3))
ONE: Clusters = ((0, 1, 2, 3),)


def _search(monkeypatch: Any, model: nn.Module, given: Any, **asked: Any) -> Choice:
    monkeypatch.setattr(searching, "scorer", lambda *_, **__: given)
    return search(model, distinct(mh.anatomy(model)), Calibration(model, IDS), group=True, **asked)


def test_the_cheaper_per_byte_goes_first_and_nothing_is_counted_twice(monkeypatch: Any, bert: BertModel) -> None:
    """L0 shares (2 kv heads for 1.0), L1 loses its cheap heads, until half of 8 kv heads is left."""
    given = _Given({"L0": [9.0] * 4, "L1": [0.1, 0.7, 9, 9]}, {"L0": [(TWO, 1.0), (ONE, 8.0)]})
    found = _search(monkeypatch, bert, given, budget=CacheBytes(0.5))
    assert found.moves == ("L1H0", "L0 on 2 kv heads", "L1H1")
    assert found.keep == {"L0": (0, 1, 2, 3), "L1": (2, 3)}
    assert found.groups == {"L0": TWO}
    assert found.notes == ("told",)


def test_heads_that_share_save_bytes_only_together(monkeypatch: Any, bert: BertModel) -> None:
    """After L0 shares, H0 and H2 read one kv head: only both together save it, and only it."""
    given = _Given({"L0": [0.2, 9, 0.2, 9], "L1": [9.0] * 4}, {"L0": [(TWO, 0.1)]})
    found = _search(monkeypatch, bert, given, budget=CacheBytes(5 / 8))
    assert found.moves == ("L0 on 2 kv heads", "L0H0, L0H2")
    assert found.keep["L0"] == (1, 3)
    assert found.groups == {"L0": ((1, 3),)}


def test_a_layer_that_shared_may_still_lose_all(monkeypatch: Any, bert: BertModel) -> None:
    given = _Given({"L0": [0.1] * 4, "L1": [9.0] * 4}, {"L0": [(ONE, 0.1)]})
    found = _search(monkeypatch, bert, given, budget=CacheBytes(0.5))
    assert found.moves == ("L0 on 1 kv heads", "L0H0, L0H1, L0H2, L0H3")
    assert (found.keep["L0"], found.groups) == ((), {})


def test_a_far_rung_is_taken_at_once_where_it_is_the_best_buy(monkeypatch: Any, bert: BertModel) -> None:
    given = _Given({"L0": [9.0] * 4, "L1": [9.0] * 4}, {"L0": [(TWO, 4.0), (ONE, 4.5)], "L1": [(TWO, 3.5)]})
    found = _search(monkeypatch, bert, given, budget=CacheBytes(5 / 8))
    assert found.moves == ("L0 on 1 kv heads",)


def test_flops_count_kv_heads_after_grouping(monkeypatch: Any, bert: BertModel) -> None:
    """Sharing saves the rows of W_K and W_V, half of what a head saves: at half its cost it is as good."""
    layers, text = [s[0] for s in distinct(mh.anatomy(bert))], Calibration(bert, IDS)
    ledger = Flops(0.9).ledger(bert, layers, text)
    whole = {"L0": range(4), "L1": range(4)}
    grouped = ledger.whole - ledger.of(whole, {"L0": [0, 1, 0, 1]})
    assert grouped == pytest.approx(2 * (2 * 7 * 28) * 2)
    assert ledger.of({"L0": (0, 2), "L1": range(4)}, {"L0": [0, 1, 0, 1]}) < ledger.of(whole, {"L0": [0, 1, 0, 1]})


def test_a_plan_spends_one_budget_on_both_and_is_cut(llama: LlamaModel) -> None:
    data = Calibration(llama, IDS, batch_size=11)
    plan = mh.plan(llama, data, budget="cache=0.5", group=True)
    assert plan.kv_kept == 4
    assert any(x.groups is not None for x in plan.layers), str(plan)
    assert "group=True" in plan.asked
    small = mh.cut(llama, plan)
    assert [layer.num_kv_heads for layer in mh.anatomy(small)] == [x.kv_after for x in plan.layers if x.keep]
    ids = torch.tensor(IDS[:1])
    assert small(input_ids=ids).last_hidden_state.shape == (1, 5, 40)


def test_sharing_is_better_than_losing_where_heads_say_the_same() -> None:
    """Heads 0 and 1 have almost the same keys and values, as have 2 and 3: half of the cache is for nothing."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **{**SMALL, "hidden_size": 24},
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=6,
    )
    model = sharp(0.4, LlamaForCausalLM(config))
    with torch.no_grad():
        for block in model.model.layers:
            for w in (block.self_attn.k_proj.weight, block.self_attn.v_proj.weight):
                rows = w.view(4, 6, 24)
                rows[[1, 3]] = rows[[0, 2]] + 1e-4 * torch.randn(2, 6, 24)  # the very same would be one kv head
    data = Calibration(model, IDS, batch_size=11)
    plan = mh.plan(model, data, budget="cache=0.5", group=True)
    assert [x.groups for x in plan.layers] == [((0, 1), (2, 3))] * 2, str(plan)
    assert (plan.kept, plan.kv_kept) == (8, 4)
    ids = torch.tensor(IDS[6:9][-1:])
    torch.testing.assert_close(mh.cut(model, plan, refit=None)(ids).logits, model(ids).logits, rtol=1e-2, atol=1e-2)


def test_what_cannot_be_asked_together_is_refused(bert: BertModel, text: Calibration) -> None:
    turns = distinct(mh.anatomy(bert))
    with pytest.raises(SizeError, match=r"method='fisher' does not say what it costs to share"):
        search(bert, turns, text, budget=CacheBytes(0.5), method="fisher", group=True)
    with pytest.raises(SizeError, match=r"sharing keys and values saves nothing of heads"):
        search(bert, turns, text, budget=Heads(0.5), group=True)
    with pytest.raises(SizeError, match=r"uneven heads and kv heads[\s\S]*leave uniform and multiple_of out"):
        search(bert, turns, text, budget=CacheBytes(0.5), uniform=True, group=True)
    with pytest.raises(SizeError, match=r"group=True spends a budget .*, and there is none"):
        mh.plan(bert, text, keep=0.5, group=True)
    with pytest.raises(SizeError, match=r"and kv_heads=2 says how many"):
        mh.plan(bert, text, budget="cache=0.5", kv_heads=2, group=True)


def test_a_ladder_ends_where_it_was_taken_to() -> None:
    rungs = [Rung(TWO, 1.0, Surgeon({}, {}, {}), 1.0), Rung(ONE, 3.0, Surgeon({}, {}, {}), 1.0)]
    ladders = Ladders({"L0": rungs}, [])
    assert ladders.steps("L0") == [(ONE, 2.0)]
    ladders.share("L0", ONE)
    assert ladders.steps("L0") == []
