"""Costs of heads: each against its definition, computed in another way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel

import multihead as mh
from multihead.corpus.accumulator import Batch
from multihead.corpus.documents import Corpus
from multihead.corpus.run import BatchRunner, run
from multihead.edit.calibration import Calibration
from multihead.edit.choosing.curvature import curvature, own_loss
from multihead.edit.choosing.head_covariance import HeadCovariance, head_covariance
from multihead.edit.choosing.scores import METHODS, Surgeon, scorer
from multihead.edit.plan import distinct
from multihead.errors import SizeError
from multihead.measures.importance.gradients import Gradients
from unit.edit.sharp import sharp

IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(4 + i % 7)] for i in range(40)]
SMALL: dict[str, Any] = {
    "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 23, "vocab_size": 53,
}  # fmt: skip


@pytest.fixture(scope="module")
def bert() -> BertModel:
    return sharp(0.3, BertModel(BertConfig(**SMALL)))


@pytest.fixture(scope="module")
def text(bert: BertModel) -> Calibration:
    return Calibration(bert, IDS, batch_size=7)


def _turns(model: nn.Module) -> Any:
    return distinct(mh.anatomy(model))


def _left(z: Tensor, y: Tensor, columns: list[int], ridge: float) -> float:
    """Σ‖y − ŷ‖²/n of the best ridge fit of y to some columns of z, ridge part included."""
    n, part = len(z), z[:, columns]
    pull = (n * ridge) ** 0.5 * torch.eye(z.shape[1], dtype=z.dtype)
    wide = torch.cat([part, pull[:, columns]])  # the ridge is noise on every column, kept or not
    target = torch.cat([y, pull @ WEIGHT])
    fit = torch.linalg.lstsq(wide, target).solution
    return float((target - wide @ fit).square().sum()) / n


torch.manual_seed(1)
MIXED = torch.randn(211, 15, dtype=torch.float64) @ torch.randn(15, 15, dtype=torch.float64)
MIXED = MIXED - MIXED.mean(0)
WEIGHT = torch.randn(15, 4, dtype=torch.float64)


def test_the_surgeon_says_what_is_lost_after_the_best_fit() -> None:
    """The costs of three heads, one after the other, add up to the error of a least-squares fit without them."""
    covariance = MIXED.T @ MIXED / len(MIXED)
    ridge = 0.01 * float(covariance.diagonal().mean())
    score = Surgeon({"L0": WEIGHT}, {"L0": covariance}, {"L0": 5}, ridge=0.01)
    total, gone, together = 0.0, [], score.together("L0", (0, 3, 4))
    for head in (3, 0, 4):
        total += score.cost("L0", head)
        score.remove("L0", head)
        gone.append(head)
        columns = [3 * h + i for h in range(5) if h not in gone for i in range(3)]
        assert total == pytest.approx(_left(MIXED, MIXED @ WEIGHT, columns, ridge), rel=1e-6)
    assert together == pytest.approx(total)


def test_a_twin_costs_nothing_until_the_other_is_gone() -> None:
    z = MIXED.clone()
    z[:, 3:6] = z[:, 0:3]
    score = Surgeon({"L0": WEIGHT}, {"L0": z.T @ z / len(z)}, {"L0": 5}, ridge=1e-9)
    alone = score.cost("L0", 2)
    assert score.cost("L0", 0) < 1e-4 * alone
    score.remove("L0", 0)
    assert score.cost("L0", 1) > 0.1 * alone


def test_covariances_are_those_of_real_tokens(bert: BertModel, text: Calibration) -> None:
    found = head_covariance(bert, _turns(bert), text.fit())
    rows: list[Tensor] = []
    for batch in text.fit():
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
        hook = bert.encoder.layer[1].attention.output.dense.register_forward_pre_hook(
            lambda _, args, real=real: rows.append(args[0][real].double())
        )
        with torch.no_grad():
            bert(**batch)
        hook.remove()
    torch.testing.assert_close(found["L1"], torch.cat(rows).T.cov(correction=0), rtol=1e-4, atol=1e-5)


def test_covariances_of_parts_add_up(bert: BertModel, text: Calibration) -> None:
    batches, turns = list(text.fit()), _turns(bert)
    sums = HeadCovariance(turns, bert)
    assert run(bert, Corpus(bert, batches, batch_size=1, part_batches=2), [sums]).batches > 4
    for name, covariance in head_covariance(bert, turns, batches).items():
        torch.testing.assert_close(sums.moments()[name].covariance(), covariance)


def test_layers_with_the_same_weights_have_one_covariance() -> None:
    config = AlbertConfig(**SMALL, embedding_size=30)
    model = sharp(0.3, AlbertModel(config))
    batches = list(Calibration(model, IDS, batch_size=7).fit())
    (same,) = _turns(model)
    assert len(same) == 2
    together = head_covariance(model, [same], batches)["L0"]
    sums = HeadCovariance([[layer] for layer in same], model)
    run(model, Corpus(model, batches), [sums])
    each = [sums.of[layer.site.key].sums() for layer in same]
    tokens = 2 * sums.of[same[0].site.key].count
    mean = sum(sums.of[layer.site.key].mean for layer in same) / 2
    second = (each[0][0] + each[1][0]) / tokens
    torch.testing.assert_close(together, second - mean[:, None] * mean)


def test_the_diagonal_is_the_fisher_of_the_measures(bert: BertModel, text: Calibration) -> None:
    found = curvature(bert, _turns(bert), text, documents=10**6)
    gradients = Gradients(own_loss(bert, next(text.fit())))
    runner = BatchRunner(bert, [gradients])
    for index, inputs in enumerate(text.fit()):
        runner.run(Batch(inputs, index))
    torch.testing.assert_close(found.matrix.diagonal(), gradients.columns()["fisher"], rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(found.matrix, found.matrix.T)


def test_the_curvature_predicts_what_two_heads_cost_together(bert: BertModel, text: Calibration) -> None:
    found = curvature(bert, _turns(bert), text, documents=10**6, probes=64)
    loss, small, lost, count = own_loss(bert, next(text.fit())), 0.05, 0.0, 0
    for batch in text.fit():
        with torch.no_grad():
            seen = loss.read(bert(**batch))
            gates = {f"L{i}": torch.ones(5) for i in range(2)}
            gates["L0"][1] -= small
            gates["L1"][3] -= small
            with mh.gate(bert, gates):
                new = loss.read(bert(**batch))
            target = loss.target(batch, batch, seen)
            lost += float(loss.documents(new, target).sum())
            count += len(seen)
    change = torch.zeros(10, dtype=torch.float64)
    change[[1, 8]] = small
    assert lost / count == pytest.approx(0.5 * float(change @ found.matrix @ change), rel=0.25)


def test_random_is_drawn_by_the_seed(bert: BertModel, text: Calibration) -> None:
    turns = _turns(bert)
    costs = [[scorer("random", bert, turns, text, seed=s).cost("L0", h) for h in range(5)] for s in (0, 0, 1)]
    assert costs[0] == costs[1] != costs[2]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_scores_shared_layers_once(method: str) -> None:
    albert = sharp(0.3, AlbertModel(AlbertConfig(**{**SMALL, "embedding_size": 12, "num_hidden_layers": 3})))
    text = Calibration(albert, IDS[:16])
    turns = _turns(albert)
    assert [len(same) for same in turns] == [3]
    score = scorer(method, albert, turns, text)
    costs = [score.cost(turns[0][0].name, h) for h in range(5)]
    assert all(c > 0 for c in costs)
    assert len(set(costs)) == 5


def test_a_dead_head_is_the_cheapest_for_all_that_look(bert: BertModel, text: Calibration) -> None:
    model = copy.deepcopy(bert)
    with torch.no_grad():
        model.encoder.layer[1].attention.output.dense.weight[:, 12:18] = 0
    for method in ("fisher", "obs"):
        score = scorer(method, model, _turns(model), text)
        costs = {(n, h): score.cost(n, h) for n in ("L0", "L1") for h in range(5)}
        assert min(costs, key=lambda k: costs[k]) == ("L1", 2), method
        assert costs["L1", 2] == pytest.approx(0.0, abs=1e-12)


def test_an_unknown_method_is_refused(bert: BertModel, text: Calibration) -> None:
    with pytest.raises(SizeError, match=r"method='magic' is not known[\s\S]*obs, fisher, random"):
        scorer("magic", bert, _turns(bert), text)
