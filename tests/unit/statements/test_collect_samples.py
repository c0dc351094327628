"""The sample of a layer is what the model had: inputs, values, outputs, maps, and a copy that agrees."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import multihead as mh
from multihead import mask
from multihead.corpus.accumulator import Batch
from multihead.corpus.batches import batches
from multihead.corpus.run import BatchRunner
from multihead.errors import MultiheadError, SizeError
from multihead.layer import QKNorm
from multihead.statements import collect_samples
from multihead.statements.collect_samples import LayerSampler, layer_samples
from multihead.statements.float64_copy import Float64Copy
from multihead.statements.layer_sample import LayerSample
from unit.statements import made
from zoo import ZOO

FAMILIES = (
    "bert",
    "albert",
    "gpt2",
    "gpt-j",
    "qwen3",
    "gemma2",
    "gpt-oss",
    "t5",
    "bart",
    "vit",
    "torch-decoder",
    "deberta-v2",
    "multihead",
)


def check(subject: LayerSample) -> None:
    """v = x W_Vᵀ + b_V, and outputs are maps times values: rotation and norms touch neither."""
    w = subject.weights
    for s in subject.sequences:
        assert_close(torch.einsum("kd,hvd->hkv", s.memory, w.v) + w.bias("v")[:, None], s.v, atol=1e-5, rtol=1e-4)
        if s.map is not None:
            values = s.v[list(subject.kv_of_head)]
            assert_close(s.map @ values, s.z, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_inputs_values_and_maps_fit_together(name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    batch = entry.padded(model) or entry.inputs(model)
    found = list(layer_samples(model, batch))
    assert len(found) == sum(stack.sites * stack.turns for stack in entry.stacks)
    for subject in found:
        check(subject)
        assert len(subject.maps) == 2


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "opt", "bart"])
def test_a_copy_agrees_with_the_run(name: str) -> None:
    model = ZOO[name].build()
    for subject in layer_samples(model, ZOO[name].inputs(model)):
        copy = Float64Copy.of(subject)
        assert copy.error < 1e-4, copy.missing
        assert (copy.missing, copy.x.dtype) == ("", torch.float64)
        copy.run().square().sum().backward()
        assert copy.layer.q_proj.weight.grad is not None


def test_a_copy_says_what_it_lacks() -> None:
    model = ZOO["t5"].build()  # scores have a learned bias
    subject = next(iter(layer_samples(model, ZOO["t5"].inputs(model))))
    assert "positions, norms or bias" in Float64Copy.of(subject).missing


def test_a_layer_with_everything_is_its_own_copy() -> None:
    layer = made.layer(12, 6, num_kv_heads=3, qk_norm=QKNorm("rms"), position=mh.position.Rotary(dim=2))
    x = made.tokens()
    [subject] = layer_samples(layer, {"query": x, "mask": mask.causal()})
    check(subject)
    assert (subject.causal, Float64Copy.of(subject).error < 1e-9) == (True, True)
    assert_close(subject.output.view(6, 13, 12), layer(x, mask=mask.causal()))
    assert_close(subject.inputs.view(6, 13, 12), x)
    assert repr(subject) == "L0: 6 heads of 2 (3 kv heads), 78 tokens in 6 sequences"


def test_packed_and_padded_rows_are_left_out() -> None:
    x = made.tokens(2, 7)
    for m in (mask.ragged([7, 3]), mask.lengths([7, 3])):
        [subject] = layer_samples(made.layer(), {"query": x, "mask": m})
        assert_close(subject.inputs, torch.cat([x[0], x[1, :3]]))
        check(subject)


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_of_torch_in_either_order(batch_first: bool) -> None:
    layer = nn.MultiheadAttention(12, 3, batch_first=batch_first, dtype=torch.float64)
    x = made.tokens(5, 7)
    [subject] = layer_samples(layer, x)
    assert_close(subject.inputs, x.flatten(0, 1))
    check(subject)


def test_keys_and_values_of_two_widths_have_no_copy() -> None:
    model = ZOO["torch-cross"].build()
    [subject] = layer_samples(model, ZOO["torch-cross"].inputs(model))
    assert subject.cross
    with pytest.raises(SizeError, match="its values one of"):
        Float64Copy.of(subject)


def test_the_sample_is_bounded_and_the_model_is_as_it_was() -> None:
    model = ZOO["gpt2"].build().train()
    frozen = next(m for m in model.modules() if isinstance(m, nn.LayerNorm)).eval()
    documents = [[1, 2, 3, 4, 5]] * 100
    found = list(layer_samples(model, documents, tokens=43))
    assert all(43 <= s.tokens < 50 for s in found)
    assert (model.training, frozen.training) == (True, False)


def test_a_model_that_does_not_fit_at_once_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ZOO["gpt2"].build()
    batch = ZOO["gpt2"].inputs(model)
    at_once = list(layer_samples(model, batch))
    monkeypatch.setattr(collect_samples, "ROOM", 1)
    for one, other in zip(at_once, layer_samples(model, batch), strict=True):
        assert_close(one.outputs, other.outputs)


def test_bad_data_is_refused() -> None:
    with pytest.raises(SizeError, match=r"got shape \(2, 0, 12\)"):
        list(layer_samples(made.layer(), torch.zeros(2, 0, 12)))
    with pytest.raises(SizeError, match="got 0 heads"):
        list(layer_samples(made.layer(12, 0, head_dim=4), made.tokens()))
    x = made.tokens()
    x[1, 2, 3] = torch.nan
    with pytest.raises(MultiheadError, match="the input or the weights of L0 have NaN or inf"):
        list(layer_samples(made.layer(), x))
    with pytest.raises(MultiheadError, match="is text, and no tokenizer"):
        list(layer_samples(ZOO["gpt2"].build(), ["a text"]))
    with pytest.raises(SizeError, match="unknown layer 'L7'; the model has L0, L1"):
        list(layer_samples(ZOO["gpt2"].build(), [[1, 2, 3]], layers=["L7"]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("room", [1 << 21, 3 * 16 * 16, 10])
def test_which_way_a_layer_looks_does_not_hang_on_the_room_for_maps(
    causal: bool, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_samples, "CELLS", room)
    x = made.tokens(batch=20, length=16)
    data = {"query": x, "mask": mask.causal()} if causal else x
    [subject] = layer_samples(made.layer(), data)
    assert subject.causal == causal
    assert len(subject.maps) == {1 << 21: 20, 3 * 16 * 16: 8, 10: 0}[room]


def test_packed_rows_say_which_way_they_look() -> None:
    lengths, x = torch.tensor([16, 5]), made.tokens(batch=2, length=16)
    for causal in (False, True):
        packed = mask.lengths(lengths) & mask.causal() if causal else mask.lengths(lengths)
        [subject] = layer_samples(made.layer(), {"query": x, "mask": packed})
        assert subject.causal == causal


# ---- the accumulator ----------------------------------------------------------------------------


def sampler(model: nn.Module, tokens: int) -> LayerSampler:
    return LayerSampler(collect_samples._layers(model, {"input_ids": torch.tensor([[1, 2, 3]])}), tokens)


def test_the_model_runs_until_the_sample_is_full() -> None:
    model = ZOO["gpt2"].build()
    sample, calls = sampler(model, 10), list[int]()
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    runner = BatchRunner(model, [sample])
    for index, inputs in enumerate(batches(model, [[1, 2, 3, 4, 5]] * 8, batch_size=2)):
        runner.run(Batch(inputs, index))
    assert len(calls) == 1
    assert [one.tokens for one in sample.of.values()] == [10, 10]
