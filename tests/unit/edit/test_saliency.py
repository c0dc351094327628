"""Costs of heads: each against its definition, computed in another way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel

import multihead as mh
from multihead.corpus.accumulator import Batch
from multihead.corpus.run import BatchRunner
from multihead.edit.calibration import Calibration
from multihead.edit.head_covariance import HeadCovariance, head_covariance
from multihead.edit.saliency import METHODS, OBSSaliency, saliency
from multihead.edit.sensitivity import head_sensitivity, output_distance
from multihead.edit.weight_sets import weight_sets
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


def _sets(model: nn.Module) -> Any:
    return weight_sets(mh.anatomy(model))


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


def test_obs_is_the_loss_after_the_best_fit() -> None:
    """The costs of three heads, one after the other, add up to the error of a least-squares fit without them."""
    covariance = MIXED.T @ MIXED / len(MIXED)
    ridge = 0.01 * float(covariance.diagonal().mean())
    score = OBSSaliency({"L0": WEIGHT}, {"L0": covariance}, {"L0": 5}, ridge=0.01)
    total, gone, together = 0.0, [], score.joint_cost("L0", (0, 3, 4))
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
    score = OBSSaliency({"L0": WEIGHT}, {"L0": z.T @ z / len(z)}, {"L0": 5}, ridge=1e-9)
    alone = score.cost("L0", 2)
    assert score.cost("L0", 0) < 1e-4 * alone
    score.remove("L0", 0)
    assert score.cost("L0", 1) > 0.1 * alone


def test_covariances_are_those_of_real_tokens(bert: BertModel, text: Calibration) -> None:
    found = head_covariance(bert, _sets(bert), text.fit())
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


def test_layers_with_the_same_weights_have_one_covariance() -> None:
    config = AlbertConfig(**SMALL, embedding_size=30)
    model = sharp(0.3, AlbertModel(config))
    batches = list(Calibration(model, IDS, batch_size=7).fit())
    (same,) = _sets(model)
    assert len(same) == 2
    together = head_covariance(model, [same], batches)["L0"]
    sums = HeadCovariance([[layer] for layer in same], model)
    runner = BatchRunner(model, [sums])
    for batch in batches:
        runner.run(Batch(batch))
    first, second = sums.moments.values()
    each = [one.sums() for one in (first, second)]
    tokens, mean = 2 * first.count, (first.mean + second.mean) / 2
    square = (each[0][0] + each[1][0]) / tokens
    torch.testing.assert_close(together, square - mean[:, None] * mean)


def test_the_sensitivity_is_the_fisher_of_the_measures(bert: BertModel, text: Calibration) -> None:
    sensitivity = head_sensitivity(bert, _sets(bert), text.fit(), documents=10**6)
    gradients = Gradients(output_distance(bert, next(text.fit())))
    runner = BatchRunner(bert, [gradients])
    for index, inputs in enumerate(text.fit()):
        runner.run(Batch(inputs, index))
    together = torch.cat([sensitivity["L0"], sensitivity["L1"]])
    torch.testing.assert_close(together, gradients.columns()["fisher"], rtol=1e-12, atol=0)


def test_the_sensitivity_predicts_the_loss_of_closing_a_gate(bert: BertModel, text: Calibration) -> None:
    sensitivity = head_sensitivity(bert, _sets(bert), text.fit(), documents=10**6, probes=64)
    assert _loss_of_gate(bert, text, "L1", 3) == pytest.approx(
        0.5 * 0.05**2 * float(sensitivity["L1"][3]), rel=0.25
    )


def test_a_head_that_is_used_twice_has_one_gate() -> None:
    """Its slopes add up before they are squared: removing it removes it everywhere."""
    model = sharp(0.3, AlbertModel(AlbertConfig(**SMALL, embedding_size=30)))
    text = Calibration(model, IDS, batch_size=7)
    sensitivity = head_sensitivity(model, _sets(model), text.fit(), documents=10**6, probes=64)
    assert list(sensitivity) == ["L0"]
    expected = 0.5 * 0.05**2 * float(sensitivity["L0"][2])
    assert _loss_of_gate(model, text, ("L0", "L1"), 2) == pytest.approx(expected, rel=0.25)


def _loss_of_gate(model: nn.Module, text: Calibration, layers: str | tuple[str, ...], head: int) -> float:
    """The mean output distance over documents with the gate of a head at 0.95."""
    loss, total, count = output_distance(model, next(text.fit())), 0.0, 0
    gate = torch.ones(5)
    gate[head] -= 0.05
    for batch in text.fit():
        with torch.no_grad():
            seen = loss.read(model(**batch))
            with mh.gate(model, dict.fromkeys([layers] if isinstance(layers, str) else layers, gate)):
                new = loss.read(model(**batch))
            total += float(loss.documents(new, loss.target(batch, batch, seen)).sum())
            count += len(seen)
    return total / count


def test_an_encoder_is_judged_by_its_own_pooling(tmp_path: Path, bert: BertModel, text: Calibration) -> None:
    bert.save_pretrained(tmp_path)
    (tmp_path / "modules.json").write_text(
        '[{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
    )
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    model, batch = BertModel.from_pretrained(tmp_path).eval(), next(text.fit())
    first, mean = output_distance(model, batch), output_distance(bert, batch)
    seen = first.read(model(**batch))
    target = first.target(batch, batch, seen)
    torch.testing.assert_close(first.pooled(seen, target), seen[:, 0])
    assert not torch.allclose(mean.pooled(seen, target), seen[:, 0])


def test_random_is_drawn_by_the_seed(bert: BertModel, text: Calibration) -> None:
    costs = [[saliency("random", text, seed=s).cost("L0", h) for h in range(5)] for s in (0, 0, 1)]
    assert costs[0] == costs[1] != costs[2]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_scores_shared_layers_once(method: str) -> None:
    albert = sharp(0.3, AlbertModel(AlbertConfig(**{**SMALL, "embedding_size": 12, "num_hidden_layers": 3})))
    text = Calibration(albert, IDS[:16])
    assert [len(same) for same in text.weight_sets] == [3]
    score = saliency(method, text)
    costs = [score.cost("L0", h) for h in range(5)]
    assert all(c > 0 for c in costs)
    assert len(set(costs)) == 5


def test_a_dead_head_is_the_cheapest_for_all_that_look(bert: BertModel, text: Calibration) -> None:
    model = copy.deepcopy(bert)
    with torch.no_grad():
        model.encoder.layer[1].attention.output.dense.weight[:, 12:18] = 0
    for method in ("fisher", "obs"):
        score = saliency(method, Calibration(model, IDS, batch_size=7))
        costs = {(n, h): score.cost(n, h) for n in ("L0", "L1") for h in range(5)}
        assert min(costs, key=lambda k: costs[k]) == ("L1", 2), method
        assert costs["L1", 2] == pytest.approx(0.0, abs=1e-12)


def test_an_unknown_method_is_refused(bert: BertModel, text: Calibration) -> None:
    with pytest.raises(
        SizeError, match=r"unknown method 'fishr'\n\nhint: did you mean 'fisher'\? .*obs, fisher, random"
    ):
        saliency("fishr", text)
    with pytest.raises(SizeError, match=r"unknown method None\n\nhint: choose one of obs, fisher, random"):
        saliency(None, text)  # type: ignore[arg-type]


def test_obs_and_fisher_share_one_pass(bert: BertModel, forwards: Callable[[nn.Module], list[int]]) -> None:
    text = Calibration(bert, IDS, batch_size=7)
    saliency("obs", text)
    calls = forwards(bert)
    saliency("fisher", text)
    saliency("obs", text)
    assert not calls


@pytest.fixture
def forwards() -> Iterator[Callable[[nn.Module], list[int]]]:
    """The calls of a model's forward from now on."""
    hooks: list[Any] = []

    def counted(model: nn.Module) -> list[int]:
        calls: list[int] = []
        hooks.append(model.register_forward_pre_hook(lambda *_: calls.append(1)))
        return calls

    yield counted
    for hook in hooks:
        hook.remove()
