"""W_V and W_O fitted together: its rows, its solutions against closed forms, and that it helps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import multihead as mh
from multihead.edit import value_refit
from multihead.edit.calibration import Calibration
from multihead.edit.refit import BlockRefit
from multihead.edit.surgery.install import install
from multihead.edit.value_refit import Maps, ValueEquations, ValueMap
from multihead.model.head_weights import HeadWeights
from unit.edit.sharp import sharp

SIZES: dict[str, Any] = {
    "hidden_size": 30, "num_hidden_layers": 1, "num_attention_heads": 5, "intermediate_size": 23, "vocab_size": 53,
}  # fmt: skip
_WORDS = torch.randint(1, 53, (300, 11), generator=torch.Generator().manual_seed(0)).tolist()
IDS = [row[: 5 + i % 7] for i, row in enumerate(_WORDS)]


def _bert() -> BertModel:
    return sharp(0.4, BertModel(BertConfig(**SIZES, hidden_dropout_prob=0.0)))


def _llama() -> LlamaModel:
    sizes = SIZES | {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4}
    return sharp(0.4, LlamaModel(LlamaConfig(**sizes)))


def _gpt2() -> GPT2Model:
    return sharp(0.4, GPT2Model(GPT2Config(n_layer=1, n_head=5, n_embd=30, vocab_size=53)))


def _refit(model: nn.Module, keep: list[int], *, values: bool = True) -> tuple[BlockRefit, ValueMap]:
    """The refit of a copy with these heads, which is `refit.student`."""
    text, student = Calibration(model, IDS, batch_size=7, held_out=0.2), copy.deepcopy(model)
    layer = mh.anatomy(model)[0]
    heads = install(student, layer, HeadWeights.of(layer).keep(keep))
    run, (block,) = text.block_run(model, student), text.blocks
    run.advance(block.path)
    refit = BlockRefit(run, block, text, heads=heads if values else None)
    return refit, ValueMap(student, block.writers[0], layer, heads)


@pytest.mark.parametrize("make, keep", [(_bert, [3, 1]), (_gpt2, [0, 2, 3]), (_llama, [0, 1, 5])])
def test_the_values_of_its_rows_are_what_the_projection_reads(make: Any, keep: list[int]) -> None:
    refit, of_values = _refit(make(), keep)
    w_o = refit.normal_equations(value_refit.LinearMap(refit.student, refit.block.writers[0]))
    sums, maps = refit.normal_equations(of_values), of_values.maps
    v = torch.block_diag(*maps.v[list(maps.kv_of_head)])
    v = torch.block_diag(v, torch.ones(1, 1).double()) if sums.bias else v
    torch.testing.assert_close(v @ sums.zz @ v.T, w_o.zz, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(v @ sums.zr, w_o.zr, rtol=1e-4, atol=1e-3)


@pytest.mark.fast("_bert", "_llama")
@pytest.mark.parametrize("make, keep", [(_bert, [3, 1]), (_gpt2, [0, 2, 3]), (_llama, [0, 1, 5])])
def test_it_brings_the_model_closer_than_the_projection_alone(make: Any, keep: list[int]) -> None:
    together, alone = (_refit(make(), keep, values=values)[0].fit()[0] for values in (True, False))
    assert (together.values, alone.values) == (True, False)
    assert together.kept
    assert together.after < 0.99 * alone.after
    assert together.distance_after is not None
    assert together.distance_after < together.distance_before


def test_a_kept_head_takes_over_what_a_removed_one_with_the_same_map_wrote() -> None:
    """Both write half as many dimensions as a head has: W_O alone cannot return what the second one read."""
    model = _bert()
    layer = model.encoder.layer[0].attention
    with torch.no_grad():
        for linear in (layer.self.query, layer.self.key):
            for x in (linear.weight, linear.bias):
                x[6:12] = x[:6]
        layer.output.dense.weight[:, 3:6] = layer.output.dense.weight[:, 9:12] = 0.0
    fits = [_refit(model, [0, 2, 3, 4], values=values)[0].fit()[0] for values in (True, False)]
    assert fits[0].after < 1e-4 * fits[0].before
    assert fits[1].after > 0.1 * fits[1].before


def test_a_fit_of_values_that_is_undone_leaves_the_projection_to_be_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    refit, _ = _refit(_bert(), [3, 1])
    alone, _ = _refit(_bert(), [3, 1], values=False)
    own, measured = BlockRefit.distance, list[float]()

    def distance(self: BlockRefit) -> float:
        measured.append(own(self) * (1e6 if not measured else 1.0))
        return measured[-1]

    expected = alone.fit()[0]
    monkeypatch.setattr(BlockRefit, "distance", distance)
    fit = refit.fit()[0]
    assert (fit.values, fit.kept) == (False, True)
    assert fit.after == pytest.approx(expected.after)
    ours, theirs = (dict(x.student.named_parameters()) for x in (refit, alone))
    name = "encoder.layer.0.attention.self.value.weight"
    assert torch.equal(ours[name], theirs[name])


def test_heads_whose_values_are_changed_before_the_kernel_are_left_to_the_projection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refit, of_values = _refit(_bert(), [3, 1])
    example = refit.calibration.example()
    assert of_values.explains(refit.run, example)
    value = refit.student.get_submodule("encoder.layer.0.attention.self.value")
    with value.register_forward_hook(lambda _, __, v: v.tanh()):
        assert not of_values.explains(refit.run, example)
        refit.run.weights_changed(refit.student)
        assert not refit.fit()[0].values


# ---- the solutions --------------------------------------------------------------------------------


def _problem(kv_of_head: tuple[int, ...]) -> tuple[Tensor, Tensor, Maps]:
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    heads, width, out, dim = len(kv_of_head), 7, 11, 3
    rows = random(97, heads * width)
    maps = Maps(random(heads, out, dim), random(max(kv_of_head) + 1, dim, width), kv_of_head)
    return rows.T @ rows / 97, random(heads * width, out), maps


def _loss(gram: Tensor, target: Tensor, maps: Maps) -> float:
    m = maps.products.flatten(0, 1)
    return float((m * (gram @ m - 2 * target)).sum())


def test_one_head_gets_the_reduced_rank_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """L Lᵀ = G: the d leading singular values of L⁻¹ T are what rank d can gain (Izenman 1975)."""
    gram, target, maps = _problem((0,))
    monkeypatch.setattr(value_refit, "SWEEPS", 50)
    best = torch.linalg.svdvals(torch.linalg.solve(torch.linalg.cholesky(gram), target))[:3].square().sum()
    assert _loss(gram, target, value_refit._descend(gram, target, maps)) == pytest.approx(-float(best), rel=1e-6)


@pytest.mark.fast("kv_of_head1")
@pytest.mark.parametrize("kv_of_head", [(0, 1, 2), (0, 0, 1), (0, 0, 0)])
def test_every_sweep_lowers_the_loss_to_where_nothing_improves(
    kv_of_head: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gram, target, maps = _problem(kv_of_head)
    losses: list[float] = []
    for sweeps in (0, 1, 2, 300):
        monkeypatch.setattr(value_refit, "SWEEPS", sweeps)
        losses.append(_loss(gram, target, value_refit._descend(gram, target, maps)))
    assert losses[0] > losses[1] > losses[2] > losses[3]
    end = value_refit._descend(gram, target, maps)
    for x in (end.o, end.v):
        x.requires_grad_(True)
    m = end.products.flatten(0, 1)
    (m * (gram @ m - 2 * target)).sum().backward()
    for x in (end.o, end.v):
        assert x.grad is not None
        assert float(x.grad.norm()) < 1e-3 * float(target.norm())


@pytest.mark.parametrize("bias", [True, False])
def test_more_ridge_changes_less(bias: bool) -> None:
    _, _, maps = _problem((0, 0, 1))
    sums = ValueEquations(maps, bias=bias)
    sums.add(torch.randn(97, 21), torch.randn(97, 11), 1.0)
    sizes = [float(change[:21].norm()) for _, change in sums.solutions((0.01, 1.0, 100.0))]
    assert sizes[0] > sizes[1] > sizes[2]
    assert len(next(iter(sums.solutions()))[1]) == 21 + bias


def test_products_are_factored_exactly_and_values_keep_their_size() -> None:
    _, _, maps = _problem((0, 0, 1))
    other = Maps(3 * maps.o, maps.v + 0.5, maps.kv_of_head)
    factored = maps.factored(other.products)
    torch.testing.assert_close(factored.products, other.products)
    torch.testing.assert_close(factored.v.norm(dim=(1, 2)), maps.v.norm(dim=(1, 2)))


def test_a_head_whose_values_are_zero() -> None:
    """It has no size to scale its new values to, and whatever is not finite must not stay in the model."""
    model = _gpt2()
    with torch.no_grad():
        model.h[0].attn.c_attn.weight[:, 60:66] = 0  # W_V of head 0
        model.h[0].attn.c_attn.bias[60:66] = 0
    fit = _refit(model, [0, 2, 3])[0].fit()[0]
    assert fit.values
    assert fit.distance_written is not None
    assert fit.distance_written < fit.distance_before
