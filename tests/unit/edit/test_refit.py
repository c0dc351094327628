"""The refit: closed forms, a brute-force twin, measurements after every fit, and what it must not do."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.fitted_map import LinearMap
from multihead.edit.least_squares import NormalEquations
from multihead.edit.refit import BlockRefit
from multihead.edit.residual_block import Block, Writer
from multihead.edit.surgery.install import arranged, install
from multihead.errors import MultiheadError, TypeMismatchError
from multihead.model.head_weights import HeadWeights
from unit.edit.sharp import sharp

SMALL: dict[str, Any] = {
    "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 23, "vocab_size": 53,
    "hidden_dropout_prob": 0.0,
}  # fmt: skip
IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(5 + i % 7)] for i in range(90)]


@pytest.fixture(scope="module")
def bert() -> BertModel:
    return sharp(0.4, BertModel(BertConfig(**SMALL)))


@pytest.fixture(scope="module")
def text(bert: BertModel) -> Calibration:
    return Calibration(bert, IDS, batch_size=7, held_out=0.2)


def _cut(model: nn.Module, at: int, keep: list[int]) -> nn.Module:
    layer, student = mh.anatomy(model)[at], copy.deepcopy(model)
    install(student, layer, arranged(HeadWeights.of(layer).keep(keep)))
    return student


def _refit(
    model: nn.Module, student: nn.Module, text: Calibration, block: Block, *, to_all: bool = True
) -> BlockRefit:
    run = text.block_run(model, student)
    run.advance(block.path)
    return BlockRefit(run, block, text, to_all=to_all)


def _only(block: Block, writer: int) -> Block:
    return replace(block, writers=block.writers[writer : writer + 1 or None])


def _rows(model: Any, text: Calibration, layer: int, *, every: bool = False) -> tuple[Tensor, Tensor]:
    """The input of W_O of a BERT layer, and its residual sum: by hooks, real tokens only."""
    block = model.encoder.layer[layer].attention.output
    rows: dict[str, list[Tensor]] = {"z": [], "s": []}
    for batch in [*text.fit(), *(text.held_out() if every else ())]:
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
        one = block.dense.register_forward_pre_hook(lambda _, a, r=real: rows["z"].append(a[0][r].double()))
        two = block.LayerNorm.register_forward_pre_hook(lambda _, a, r=real: rows["s"].append(a[0][r].double()))
        with torch.no_grad():
            model(**batch)
        one.remove()
        two.remove()
    return torch.cat(rows["z"]), torch.cat(rows["s"])


def _output_distance(model: nn.Module, student: nn.Module, batches: Iterable[Any]) -> float:
    """At the last hidden state, over real tokens: by plain runs of both models."""
    apart = size = 0.0
    with torch.no_grad():
        for batch in batches:
            real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
            theirs, ours = (m(**batch)[0][real].double() for m in (model, student))
            apart, size = apart + float((theirs - ours).square().sum()), size + float(theirs.square().sum())
    return apart / size


def test_sums_are_those_of_real_tokens_and_the_stream(bert: BertModel, text: Calibration) -> None:
    student, block = _cut(bert, 1, [0, 3]), text.blocks[1]
    sums = _refit(bert, student, text, block).normal_equations(LinearMap(student, block.writers[0]))
    z, ours = _rows(student, text, 1)
    _, theirs = _rows(bert, text, 1)
    z = torch.cat([z, torch.ones(len(z), 1)], dim=1)
    assert sums.rows == text.tokens == len(z)
    torch.testing.assert_close(sums.zz, z.T @ z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums.zr, z.T @ (theirs - ours), rtol=1e-4, atol=1e-4)
    assert sums.missing == pytest.approx(float((theirs - ours).square().sum()), rel=1e-5)


@pytest.mark.parametrize("to_all", [True, False])
def test_the_solution_is_that_of_ridge_towards_the_weights(
    bert: BertModel, text: Calibration, to_all: bool
) -> None:
    student = _cut(bert, 0, [1, 2, 4])
    before = copy.deepcopy(student)
    (fit,) = _refit(bert, student, text, _only(text.blocks[0], 0), to_all=to_all).fit()
    assert fit.kept
    z, ours = _rows(before, text, 0, every=to_all)
    _, theirs = _rows(bert, text, 0, every=to_all)
    ones = torch.cat([z, torch.ones(len(z), 1)], dim=1)
    ridge = fit.ridge * (ones.T @ ones).diagonal()[:-1].mean()
    pulled = torch.cat([ridge.sqrt() * torch.eye(z.shape[1]), torch.zeros(z.shape[1], 1)], dim=1).double()
    twin = torch.linalg.lstsq(
        torch.cat([ones, pulled]), torch.cat([theirs - ours, torch.zeros(z.shape[1], 30)]).double()
    ).solution
    old, new = (m.encoder.layer[0].attention.output.dense for m in (before, student))
    torch.testing.assert_close(new.weight, old.weight + twin[:-1].T.float(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(new.bias, old.bias + twin[-1].float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(
        before.encoder.layer[0].attention.self.query.weight, student.encoder.layer[0].attention.self.query.weight
    )


def test_every_fit_is_measured_on_the_model(bert: BertModel, text: Calibration) -> None:
    student = _cut(bert, 1, [1, 2, 4])
    with torch.no_grad():
        student.encoder.layer[1].output.dense.weight.mul_(0.5)
    before = _output_distance(bert, student, text.held_out())
    refit = _refit(bert, student, text, text.blocks[1])
    first, second = refit.fit()
    assert [first.where, second.where] == ["L1", "encoder.layer.1.output.dense.weight"]
    assert first.after < 0.9 * first.before
    assert first.tokens == text.tokens
    assert first.columns == 18
    assert first.distance_after is not None
    assert second.distance_after is not None
    assert first.distance_before > first.distance_after  # by a solution that has not seen the held-out tokens
    assert second.distance_before > second.distance_after
    assert (first.kept, second.kept) == (True, True)
    assert first.distance_written == pytest.approx(second.distance_before)  # with the one that is written
    assert second.distance_written == pytest.approx(refit.distance())
    assert second.distance_written < second.distance_after  # the last solution has seen these tokens too
    assert _output_distance(bert, student, text.held_out()) < 0.9 * before


@pytest.mark.parametrize("worse", [1, 2])
def test_a_solution_that_the_model_does_not_confirm_is_not_written(
    bert: BertModel, text: Calibration, worse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first measurement is of the solution that has not seen the held-out tokens, the second of all tokens."""
    student = _cut(bert, 0, [1, 2, 4])
    block = _only(text.blocks[0], 0)
    alone = copy.deepcopy(student)
    _refit(bert, alone, text, block, to_all=False).fit()
    expected = copy.deepcopy((student if worse == 1 else alone).state_dict())
    own, measured = BlockRefit.distance, list[float]()

    def distance(refit: BlockRefit) -> float:
        measured.append(own(refit) * (1e6 if len(measured) + 1 == worse else 1.0))
        return measured[-1]

    monkeypatch.setattr(BlockRefit, "distance", distance)
    (fit,) = _refit(bert, student, text, block).fit()
    assert (fit.kept, fit.undone, len(measured)) == (worse == 2, worse == 1, worse)
    assert fit.distance_written == (None if worse == 1 else measured[0])
    assert all(torch.equal(x, expected[name]) for name, x in student.state_dict().items())


def test_held_out_text_judges_as_other_text_does() -> None:
    """Of few tokens. Judged by a solution that has seen the held-out tokens, this is 0.72."""
    bert = sharp(0.4, BertModel(BertConfig(**SMALL | {"num_hidden_layers": 1})))
    judged = elsewhere = 0.0
    for seed in range(6):
        documents = torch.randint(1, 53, (311, 4), generator=torch.Generator().manual_seed(seed))
        text = Calibration(bert, documents[:11].tolist(), held_out=0.25)
        student = _cut(bert, 0, [1, 3])
        (fit,) = _refit(bert, student, text, _only(text.blocks[0], 0)).fit()
        assert fit.distance_after is not None
        judged += fit.distance_after
        elsewhere += _output_distance(bert, student, [{"input_ids": documents[11:]}])
    assert 0.85 < judged / elsewhere < 1.35


def test_layers_see_what_is_already_cut(bert: BertModel, text: Calibration) -> None:
    """With the first layer cut, the second has something to give back though it is whole."""
    block = _only(text.blocks[1], 0)
    (fit,) = _refit(bert, _cut(bert, 0, [2]), text, block).fit()
    assert fit.kept
    assert fit.after < fit.before
    (alone,) = _refit(bert, copy.deepcopy(bert), text, block).fit()
    assert (alone.before, alone.kept, alone.undone) == (0.0, False, False)


class _Square(nn.Module):
    """y = x Wᵀ + b with a square W in a module that is not nn.Linear."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(width, 2, batch_first=True), _Square(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return h + self.last(h.relu())


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _Layer(12), _Layer(12)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def _squares() -> tuple[nn.Module, nn.Module, Calibration]:
    torch.manual_seed(0)
    model = _Layers().eval()
    text = Calibration(model, [{"x": torch.randn(8, 7, 12)} for _ in range(12)])
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.second.last.weight.mul_(0.5)
    return model, student, text


def test_a_square_weight_outside_a_linear_is_written_the_right_way_round() -> None:
    model, student, text = _squares()
    block = text.blocks[1]
    assert [(w.parameter, w.transposed) for w in block.writers] == [
        ("second.attention.out_proj.weight", False), ("second.last.weight", False),
    ]  # fmt: skip
    (fit,) = _refit(model, student, text, _only(block, 1)).fit()
    assert fit.distance_after is not None
    assert fit.distance_after < 0.01 * fit.distance_before


def test_a_fit_that_makes_the_model_worse_is_undone() -> None:
    """The change is right for the equations, and wrong for the model: here its transpose is written."""
    model, student, text = _squares()
    block, before = _only(text.blocks[1], 1), copy.deepcopy(student.state_dict())
    wrong = replace(block, writers=(replace(block.writers[0], transposed=True),))
    (fit,) = _refit(model, student, text, wrong).fit()
    assert fit.after < 0.01 * fit.before  # by the equations all is well
    assert (fit.undone, fit.kept) == (True, False)
    assert fit.to_json()["undone"] is True
    assert fit.distance_after is not None
    assert fit.distance_after >= fit.distance_before
    for name, x in student.state_dict().items():
        assert torch.equal(x, before[name])


def test_values_that_are_not_finite_are_refused(bert: BertModel, text: Calibration) -> None:
    student = _cut(bert, 0, [1, 2])
    with torch.no_grad():
        student.encoder.layer[0].attention.self.value.bias[0] = float("inf")
    with pytest.raises(MultiheadError, match=r"L0 .* not finite"):
        _refit(bert, student, text, text.blocks[0]).fit()
    sums = NormalEquations(bias=False)
    with pytest.raises(MultiheadError, match="no batch reached L3"):
        sums.check("L3")


@pytest.mark.parametrize("bias", [False, True])
def test_merged_equations_are_those_of_all_rows(bias: bool) -> None:
    """Also if the solutions of some of the rows were computed before."""
    z, r = torch.randn(53, 7), torch.randn(53, 3)
    parts = [NormalEquations(bias=bias) for _ in range(3)]
    for equations, rows in zip(parts, (slice(0, 29), slice(29, 53), slice(0, 53)), strict=True):
        equations.add(z[rows], r[rows], size=2.0)
        list(equations.solutions([0.1]))
    first, later, both = parts
    first.merge(later)
    assert (first.rows, first.size) == (53, 4.0)
    for (_, one), (_, two) in zip(first.solutions([0.1]), both.solutions([0.1]), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    list(first.solutions([0.1]))
    first.add(z[:5], r[:5], size=0.0)
    assert not torch.equal(next(first.solutions([0.1]))[1], next(both.solutions([0.1]))[1])


def test_an_empty_layer_gets_the_mean_as_its_bias(bert: BertModel, text: Calibration) -> None:
    student = _cut(bert, 0, [])
    before = copy.deepcopy(student)
    (fit,) = _refit(bert, student, text, _only(text.blocks[0], 0)).fit()
    _, ours = _rows(before, text, 0, every=True)
    _, theirs = _rows(bert, text, 0, every=True)
    assert (fit.kept, fit.columns) == (True, 0)
    old, new = (m.encoder.layer[0].attention.output.dense.bias for m in (before, student))
    torch.testing.assert_close(new, old + (theirs - ours).mean(0).float(), rtol=1e-4, atol=1e-4)


def test_an_empty_layer_is_fitted_where_its_projection_does_not_run() -> None:
    model = sharp(0.4, GPT2Model(GPT2Config(n_layer=2, n_head=5, n_embd=30, vocab_size=53)))
    text = Calibration(model, IDS, batch_size=7)
    student, block = _cut(model, 0, []), text.blocks[0]
    (fit,) = _refit(model, student, text, _only(block, 0)).fit()
    assert (fit.kept, fit.stream, fit.columns) == (True, True, 0)
    again, output = _refit(model, student, text, block), LinearMap(student, block.writers[0])
    together = again.normal_equations(output)
    together.merge(again.measure(output)[0])
    torch.testing.assert_close(
        together.zr[0] / together.rows, torch.zeros(30, dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_without_heads_and_bias_there_is_nothing_to_fit() -> None:
    model = sharp(0.4, LlamaModel(LlamaConfig(**SMALL, num_key_value_heads=5, head_dim=6)))
    text = Calibration(model, IDS[:9])
    assert _refit(model, _cut(model, 0, []), text, _only(text.blocks[0], 0)).fit() == []


@pytest.mark.parametrize("norm_first", [True, False])
def test_layers_of_torch_are_fitted_cut_or_not(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    text = Calibration(model, [{"src": torch.randn(8, 7, 12)} for _ in range(12)])
    small: Any = mh.cut(model, mh.plan(model, text, remove=["L1H0", "L1H2"]))
    fits = {fit["where"]: fit for fit in small.multihead_cut.plan["fits"]}
    assert {"L1", "layers.1.linear2.weight", "L2", "layers.2.linear2.weight"} == fits.keys()
    assert all(fit["stream"] for fit in fits.values())
    assert fits["L1"]["kept"]


def test_more_ridge_changes_less(bert: BertModel, text: Calibration) -> None:
    block = text.blocks[0]
    student = _cut(bert, 0, [1, 2, 4])
    sums = _refit(bert, student, text, block).normal_equations(LinearMap(student, block.writers[0]))
    sizes = [float(change[:-1].norm()) for _, change in sums.solutions((0.001, 0.1, 10.0))]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_transposed_weight_is_fitted_too() -> None:
    model = sharp(0.4, GPT2Model(GPT2Config(n_layer=1, n_head=3, n_embd=12, vocab_size=53)))
    text = Calibration(model, IDS, batch_size=7)
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.h[0].mlp.c_proj.weight.mul_(0.5)
    (fit,) = _refit(model, student, text, _only(text.blocks[0], 1)).fit()
    assert text.blocks[0].writers[1].transposed
    assert fit.distance_after is not None
    assert fit.distance_after < 0.01 * fit.distance_before


def test_a_map_that_does_not_run_is_named(bert: BertModel, text: Calibration) -> None:
    block = replace(text.blocks[0], writers=(Writer("embeddings.word_embeddings.weight"),))
    with pytest.raises(MultiheadError, match=r"embeddings\.word_embeddings\.weight was not seen"):
        _refit(bert, copy.deepcopy(bert), text, block).fit()


# ---- wrong use ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, message",
    [
        ({"plan": None}, "plan must be a Plan, got None"),
        ({"model": None}, "model must be a torch.nn.Module, got None"),
        ({"data": 5}, "data must be documents or batches, got the int 5"),
        ({"refit": "yes"}, "refit must be True or False, got 'yes'"),
        ({"refit": None}, "refit must be True or False, got None"),
        ({"distill": 5}, "distill must be a Distill or None, got the int 5"),
        ({"progress": 5}, "progress must be True, False or a function, got the int 5"),
    ],
)
def test_wrong_use_is_named(bert: BertModel, text: Calibration, given: dict[str, Any], message: str) -> None:
    plan = mh.plan(bert, text, remove=["L0H1"])
    with pytest.raises(TypeMismatchError) as wrong:
        mh.cut(**{"model": bert, "plan": plan, **given})
    assert message in str(wrong.value)


def test_a_cut_without_text_says_how_to_get_along(bert: BertModel) -> None:
    plan = mh.plan(bert, remove=["L0H1"])
    with pytest.raises(MultiheadError, match="no calibration text"):
        mh.cut(bert, plan, data=None)
    assert mh.cut(bert, plan, refit=False) is not bert
