"""The re-fit: closed forms, a brute-force twin, the residual sum of many blocks, and what it must not do."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    Dinov2Config,
    Dinov2Model,
    Gemma2Config,
    Gemma2Model,
    GPT2Config,
    GPT2Model,
    GPTNeoXConfig,
    GPTNeoXModel,
    GraniteConfig,
    GraniteModel,
    LlamaConfig,
    LlamaModel,
)

import multihead as mh
from multihead import mask
from multihead.edit.fitting.calibration import Calibration
from multihead.edit.fitting.gather import gather
from multihead.edit.fitting.refit import Refit, correct, fit_map, refit, solutions
from multihead.edit.fitting.residual import behind, watched
from multihead.edit.physical.surgery import arranged, install
from multihead.errors import MultiheadError, SizeError
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


def _cut(model: nn.Module, at: int, keep: list[int]) -> tuple[nn.Module, Any, HeadWeights]:
    layer, student = mh.anatomy(model)[at], copy.deepcopy(model)
    new = arranged(HeadWeights.of(layer).keep(keep))
    install(student, layer, new)
    return student, layer, new


def _rows(model: Any, text: Calibration, layer: int, *, every: bool = False) -> tuple[Tensor, Tensor]:
    """What goes into W_O of a BERT layer, and its residual sum: by hooks, real tokens only."""
    block = model.encoder.layer[layer].attention.output
    found: dict[str, list[Tensor]] = {"z": [], "s": []}
    for batch in [*text.fit(), *(text.held_out() if every else ())]:
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
        one = block.dense.register_forward_pre_hook(lambda _, a, r=real: found["z"].append(a[0][r].double()))
        two = block.LayerNorm.register_forward_pre_hook(lambda _, a, r=real: found["s"].append(a[0][r].double()))
        with torch.no_grad():
            model(**batch)
        one.remove()
        two.remove()
    return torch.cat(found["z"]), torch.cat(found["s"])


def test_sums_are_those_of_real_tokens_and_the_stream(bert: BertModel, text: Calibration) -> None:
    student, layer, _ = _cut(bert, 1, [0, 3])
    sums = gather(bert, student, layer.weights["o"].parameter, text.fit(), bias=True)
    z, ours = _rows(student, text, 1)
    _, theirs = _rows(bert, text, 1)
    z = torch.cat([z, torch.ones(len(z), 1)], dim=1)
    assert sums.tokens == 2 * text.tokens == len(z)  # every document is there again, spliced
    assert sums.stream
    torch.testing.assert_close(sums.zz, z.T @ z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums.zr, z.T @ (theirs - ours), rtol=1e-4, atol=1e-4)
    assert sums.missing == pytest.approx(float((theirs - ours).square().sum()), rel=1e-5)


@pytest.mark.parametrize("to_all", [True, False])
def test_the_solution_is_that_of_ridge_towards_the_weights(
    bert: BertModel, text: Calibration, to_all: bool
) -> None:
    student, layer, new = _cut(bert, 0, [1, 2, 4])
    found, fitted = refit(bert, student, layer, new, text, Refit(ridges=(0.1,), to_all=to_all))
    assert fitted.kept
    z, ours = _rows(student, text, 0, every=to_all)
    _, theirs = _rows(bert, text, 0, every=to_all)
    ones = torch.cat([z, torch.ones(len(z), 1)], dim=1)
    ridge = 0.1 * (ones.T @ ones).diagonal()[:-1].mean()
    pulled = torch.cat([ridge.sqrt() * torch.eye(z.shape[1]), torch.zeros(z.shape[1], 1)], dim=1).double()
    twin = torch.linalg.lstsq(
        torch.cat([ones, pulled]), torch.cat([theirs - ours, torch.zeros(z.shape[1], 30)]).double()
    ).solution
    expected = new.o + twin[:-1].view(3, 6, 30).mT.float()
    assert new.b_o is not None
    assert found.b_o is not None
    torch.testing.assert_close(found.o, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.b_o, new.b_o + twin[-1].float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(found.q, new.q)


def test_errors_are_those_of_held_out_tokens_and_sink(bert: BertModel, text: Calibration) -> None:
    student, layer, new = _cut(bert, 0, [1, 2, 4])
    found, fitted = refit(bert, student, layer, new, text, Refit())
    install(student, layer, found)
    name = layer.weights["o"].parameter
    after = gather(bert, student, name, text.held_out(), bias=True)
    # the last solution has seen them too
    assert 0.8 * fitted.after < after.missing / after.size < fitted.after
    assert fitted.after < 0.9 * fitted.before
    assert fitted.tokens == 2 * text.tokens  # every document is there again, spliced
    assert (fitted.rank, fitted.columns) == (18, 18)


def test_layers_see_what_is_already_cut(bert: BertModel, text: Calibration) -> None:
    """With the first layer cut, the second has something to give back though it is whole."""
    student, _, _ = _cut(bert, 0, [2])
    second, own = mh.anatomy(bert)[1], HeadWeights.of(mh.anatomy(bert)[1])
    _, fitted = refit(bert, student, second, own, text)
    assert fitted.kept
    assert fitted.after < fitted.before
    _, alone = refit(bert, bert, second, own, text)
    assert (alone.before, alone.kept) == (0.0, False)


def test_what_would_be_worse_is_left_as_it_was(bert: BertModel) -> None:
    """A fit to noise: so few tokens that every ridge makes held-out tokens worse."""
    student, layer, new = _cut(bert, 0, [0, 1, 2, 3])
    few = Calibration(bert, [[3, 5], *IDS[:40]], held_out=0.97)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found, fitted = refit(bert, student, layer, new, few, Refit(ridges=(1e-9,)))
    if not fitted.kept:
        assert found is new
        assert fitted.after == fitted.before
        assert "left as it was" in str(fitted)
    assert fitted.after <= fitted.before
    assert any("calibration tokens say something about" in str(w.message) for w in said)
    assert any("calibration text is short" in str(w.message) for w in said)


def test_an_empty_layer_gets_the_mean_as_its_bias(bert: BertModel, text: Calibration) -> None:
    student, layer, new = _cut(bert, 0, [])
    found, fitted = refit(bert, student, layer, new, text)
    _, ours = _rows(student, text, 0, every=True)
    _, theirs = _rows(bert, text, 0, every=True)
    assert found.b_o is not None
    assert new.b_o is not None
    assert (fitted.kept, fitted.columns) == (True, 0)
    torch.testing.assert_close(found.b_o, new.b_o + (theirs - ours).mean(0).float(), rtol=1e-4, atol=1e-4)


def test_heads_may_lie_in_any_order(bert: BertModel, text: Calibration) -> None:
    student, layer, new = _cut(bert, 0, [1, 2, 4])
    plain, _ = refit(bert, student, layer, new, text)
    turned = replace(new, o=new.o.flip(0), q=new.q.flip(0), k=new.k.flip(0), v=new.v.flip(0), origin=(4, 2, 1))
    other, _ = refit(bert, student, layer, turned, text)
    torch.testing.assert_close(other.o.flip(0), plain.o)
    with pytest.raises(MultiheadError, match="head 0 of L0 is not in the cut model's W_O"):
        refit(bert, student, layer, replace(new, o=new.o + 1), text)
    with pytest.raises(SizeError, match=r"has 18 columns, 5 heads of 6 need 30"):
        refit(bert, student, layer, HeadWeights.of(layer), text)


def test_a_ridge_is_never_dropped() -> None:
    with pytest.raises(SizeError, match=r"ridges=\(0\.1, 0\)"):
        Refit(ridges=(0.1, 0))
    with pytest.raises(SizeError, match=r"hold=-1 bytes"):
        Refit(hold=-1)


def test_more_ridge_changes_less(bert: BertModel, text: Calibration) -> None:
    student, layer, _ = _cut(bert, 0, [1, 2, 4])
    sums = gather(bert, student, layer.weights["o"].parameter, text.fit(), bias=True)
    sizes = [float(change[:-1].norm()) for _, change in solutions(sums, (0.001, 0.1, 10.0))]
    assert sizes[0] > sizes[1] > sizes[2]


def test_maps_behind_a_cut_layer_are_fitted_in_place(bert: BertModel, text: Calibration) -> None:
    student, layer, _ = _cut(bert, 0, [1, 2, 4])
    before = student.encoder.layer[0].output.dense.weight.clone()
    (fitted,) = correct(bert, student, layer, text)
    assert fitted.where == "encoder.layer.0.output.dense.weight"
    assert fitted.kept
    after = gather(bert, student, fitted.where, text.held_out(), bias=True)
    assert 0.5 * fitted.after < after.missing / after.size < fitted.after < fitted.before
    assert not torch.equal(before, student.encoder.layer[0].output.dense.weight)
    assert correct(bert, student, layer, text, Refit(behind=False)) == []


def test_a_transposed_weight_is_fitted_too() -> None:
    model = sharp(0.4, GPT2Model(GPT2Config(n_layer=1, n_head=3, n_embd=12, vocab_size=53)))
    text = Calibration(model, IDS, batch_size=7)
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.h[0].mlp.c_proj.weight.mul_(0.5)
    fitted = fit_map(model, student, "h.0.mlp.c_proj.weight", text, Refit(ridges=(1e-6,)))
    assert fitted.after < 1e-6 * fitted.before


# ---- where the residual sum is --------------------------------------------------------------------

LLAMA = {**SMALL, "num_key_value_heads": 5, "head_dim": 6}
PRE_NORM = {
    "gpt2": (lambda: GPT2Model(GPT2Config(n_layer=2, n_head=5, n_embd=30, vocab_size=53)), "h.1.ln_2"),
    "llama": (lambda: LlamaModel(LlamaConfig(**LLAMA)), "layers.1.post_attention_layernorm"),
}


@pytest.mark.parametrize("name", PRE_NORM)
def test_the_sum_is_what_the_next_norm_gets(name: str) -> None:
    make, norm = PRE_NORM[name]
    model = sharp(0.4, make())
    seen: list[Tensor] = []
    model.get_submodule(norm).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    ids = torch.tensor(IDS[6:7])
    with torch.no_grad():
        model(input_ids=ids)
    layer = mh.anatomy(model)[1]
    found = watched(model, {"input_ids": ids}, layer.weights["o"].parameter)
    assert found.total is not None
    torch.testing.assert_close(found.total, seen[0][0])


def test_sums_of_parallel_blocks_are_followed_to_the_last() -> None:
    model = sharp(0.4, GPTNeoXModel(GPTNeoXConfig(**SMALL, use_parallel_residual=True)))
    ids = torch.tensor(IDS[6:7])
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
    found = watched(model, {"input_ids": ids}, mh.anatomy(model)[0].weights["o"].parameter)
    assert found.total is not None
    torch.testing.assert_close(found.total, states[1][0])


def test_a_scale_before_the_sum_is_known() -> None:
    model = sharp(0.4, GraniteModel(GraniteConfig(**LLAMA, residual_multiplier=0.25)))
    found = watched(model, {"input_ids": torch.tensor(IDS[:1])}, mh.anatomy(model)[0].weights["o"].parameter)
    assert (found.scale, found.total is not None) == (0.25, True)
    vision = sharp(
        0.4,
        Dinov2Model(
            Dinov2Config(hidden_size=30, num_hidden_layers=1, num_attention_heads=5, image_size=28, patch_size=14)
        ),
    )
    pixels = {"pixel_values": torch.randn(2, 3, 28, 28)}
    found = watched(vision, pixels, mh.anatomy(vision, pixels)[0].weights["o"].parameter)
    assert isinstance(found.scale, Tensor)
    torch.testing.assert_close(found.scale, vision.encoder.layer[0].layer_scale1.lambda1.detach())


def test_a_norm_before_the_sum_leaves_the_output_alone() -> None:
    model = sharp(0.4, Gemma2Model(Gemma2Config(**{**LLAMA, "num_hidden_layers": 1})))
    name = mh.anatomy(model)[0].weights["o"].parameter
    assert watched(model, {"input_ids": torch.tensor(IDS[:1])}, name).total is None
    text = Calibration(model, IDS[:30])
    student, layer, new = _cut(model, 0, [0, 2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, fitted = refit(model, student, layer, new, text)
    assert not fitted.stream
    assert "no residual sum found" in str(fitted) or not fitted.kept
    assert behind(model, {"input_ids": torch.tensor(IDS[:1])}, name) == []


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("parameter", ["layers.1.self_attn.out_proj.weight", "layers.0.linear2.weight"])
def test_torchs_own_order_of_tokens_is_told_apart(batch_first: bool, parameter: str) -> None:
    """o = W z + b row by row, in one order of documents, whatever torch does inside; padding is gone."""
    torch.manual_seed(3)
    block = nn.TransformerEncoderLayer(14, 2, 11, batch_first=batch_first)
    model = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
    x, hidden = torch.randn(5, 7, 14), torch.arange(7) >= torch.tensor([7, 3, 5, 1, 6])[:, None]
    batch = {"src": x if batch_first else x.transpose(0, 1), "src_key_padding_mask": hidden}
    found = watched(model, batch, parameter)
    one = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(14, 2, 11, batch_first=True), 2, enable_nested_tensor=False
    )
    one.load_state_dict(model.state_dict())
    twin = [watched(one.eval(), {"src": x[i : i + 1, : int((~hidden[i]).sum())]}, parameter) for i in range(5)]
    for part in ("z", "o", "total"):
        torch.testing.assert_close(
            getattr(found, part), torch.cat([getattr(t, part) for t in twin]), rtol=1e-4, atol=1e-5
        )


class _Ragged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = mh.MultiHeadAttention(12, 3)

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        return x + self.attn(x, mask=mask.causal() & mask.ragged(lengths))


@pytest.mark.parametrize("lengths", [[7, 3, 0], [7, 7, 6], [7, 7, 7]])
def test_padding_under_a_ragged_mask_is_left_out(lengths: list[int]) -> None:
    """W_O reads the real tokens of all rows one after the other, and one more row for the padding."""
    torch.manual_seed(0)
    model, x = _Ragged().eval(), torch.randn(3, 7, 12)
    found = watched(model, {"x": x, "lengths": lengths}, "attn.o_proj.weight")
    alone = [
        watched(model, {"x": x[i : i + 1, :n], "lengths": [n]}, "attn.o_proj.weight")
        for i, n in enumerate(lengths)
        if n
    ]
    for part in ("z", "o"):
        torch.testing.assert_close(getattr(found, part), torch.cat([getattr(one, part) for one in alone]))


def test_a_parameter_that_no_map_uses_is_said(bert: BertModel) -> None:
    batch = {"input_ids": torch.tensor(IDS[:1])}
    with pytest.raises(MultiheadError, match=r"has no parameter nowhere\.weight"):
        watched(bert, batch, "nowhere.weight")
    with pytest.raises(MultiheadError, match=r"no linear map with the weight embeddings"):
        watched(bert, batch, "embeddings.word_embeddings.weight")


def test_an_empty_layer_is_fitted_where_its_projection_does_not_run() -> None:
    model = sharp(0.4, GPT2Model(GPT2Config(n_layer=2, n_head=5, n_embd=30, vocab_size=53)))
    text = Calibration(model, IDS, batch_size=7)
    student, layer, new = _cut(model, 0, [])
    found, fitted = refit(model, student, layer, new, text)
    assert (fitted.kept, fitted.stream, fitted.columns) == (True, True, 0)
    assert found.b_o is not None
    install(student, layer, found)
    after = gather(model, student, layer.weights["o"].parameter, text.fit(), bias=True)
    together = after + gather(model, student, layer.weights["o"].parameter, text.held_out(), bias=True)
    torch.testing.assert_close(
        together.zr[0] / together.tokens, torch.zeros(30, dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_without_heads_and_bias_there_is_nothing_to_fit() -> None:
    model = sharp(0.4, LlamaModel(LlamaConfig(**LLAMA)))
    student, layer, new = _cut(model, 0, [])
    found, fitted = refit(model, student, layer, new, Calibration(model, IDS[:9]))
    assert (found is new, fitted.kept) == (True, False)


def test_a_pooler_is_no_writer_into_the_stream(bert: BertModel) -> None:
    batch = {"input_ids": torch.tensor(IDS[6:7] * 3)}
    last = mh.anatomy(bert)[1].weights["o"].parameter
    assert behind(bert, batch, last) == ["encoder.layer.1.output.dense.weight"]
