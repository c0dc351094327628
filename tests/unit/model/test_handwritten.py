"""The shipped adapters against the models themselves: outputs, maps head for head, padding, training, caches."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from handwritten_models import (
    BATCH,
    BERT,
    HEADS,
    OTHERS,
    TEXT,
    TOKENS,
    WIDTH,
    WORDS,
    build,
    ids,
    padding,
    text_batch,
)
from multihead.model.capture import Capture
from multihead.model.handwritten import ADAPTERS
from multihead.model.run_with_graph import tensors_in

TEN = (
    "codegen",
    "mpt",
    "xlnet",
    "xglm",
    "openai-gpt",
    "roformer",
    "rembert",
    "deberta",
    "luke",
    "led",
    "longformer",
)

_UNUSUAL_MAPS = ("led", "longformer", "squeezebert")
"""Band layout (compared below), and scores in place of weights."""


def weights(heads: Capture, site: Any) -> Tensor:
    """(batch, head, query, key)"""
    return torch.stack([heads[site.name(head)].weights() for head in range(site.heads)], 1)


def own_maps(output: Any, heads: Capture, site: Any) -> Tensor:
    if "encoder_attentions" in output:
        name = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
        return output[name[site.stack]][site.layer]
    return output.attentions[list(heads.sites).index(site)]


@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("name", TEXT)
@pytest.mark.fast(*TEN)
def test_text_models_and_their_maps(name: str, side: str | None) -> None:
    model, batch = build(TEXT[name][0]), text_batch(name, side)
    with torch.no_grad():
        own = model(**batch, output_attentions=True)
        with mh.capture(model, keep="qk") as heads:
            output = model(**batch)
    real = batch.get("attention_mask", torch.ones(BATCH, TOKENS)).bool()
    expected, result = own[0], output[0]
    rows = real if result.shape[1] == TOKENS else torch.ones(result.shape[:2], dtype=torch.bool)
    assert_close(result[rows], expected[rows], atol=1e-5, rtol=1e-4)
    if name in _UNUSUAL_MAPS:
        return
    for site in heads.sites:
        maps, own_map = weights(heads, site), own_maps(own, heads, site)
        visible = real if maps.shape[2] == TOKENS else torch.ones(maps.shape[0], maps.shape[2], dtype=torch.bool)
        assert_close(maps.transpose(1, 2)[visible], own_map.transpose(1, 2)[visible])


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.fast("swinv2", "cvt")
def test_other_models_compute_the_same_inside(name: str) -> None:
    make, inputs = OTHERS[name]
    model = build(make)
    with torch.no_grad():
        expected = list(tensors_in(model(**inputs())))
        with mh.capture(model) as heads:
            result = list(tensors_in(model(**inputs())))
    assert len(heads)
    assert len(result) == len(expected)
    for x, y in zip(result, expected, strict=True):
        assert_close(x, y, atol=1e-5 * max(1.0, float(y.abs().max())), rtol=1e-4)


@pytest.mark.parametrize("name", [*TEXT, *OTHERS])
@pytest.mark.fast(*TEN)
def test_training(name: str) -> None:
    """Gradients reach the projections of every attention, dropout and all."""
    make, inputs = TEXT[name] if name in TEXT else OTHERS[name]
    batch = text_batch(name, "right") if name in TEXT else inputs()
    model = build(make).train()
    with warnings.catch_warnings(), mh.capture(model) as heads:
        warnings.simplefilter("ignore")  # dropout is measured: the model trains
        loss = sum(x.float().square().mean() for x in tensors_in(model(**batch)) if x.requires_grad)
        assert isinstance(loss, Tensor)
        loss.backward()
    assert len(heads)
    for site in heads.sites:
        parent = model.get_submodule(site.path.rpartition(".")[0])
        assert any(p.grad is not None and bool(p.grad.any()) for p in parent.parameters()), site.path


@pytest.mark.parametrize("name", ["longformer", "led"])
@pytest.mark.parametrize("side", [None, "right"])
def test_the_band_of_longformer(name: str, side: str | None) -> None:
    """Its own maps have a column per offset: -2 … 2 for a window of 4."""
    model, batch = build(TEXT[name][0]), text_batch(name, side)
    with torch.no_grad():
        own = model(**batch, output_attentions=True)
        with mh.capture(model, keep="qk") as heads:
            model(**batch)
    bands = own.attentions if name == "longformer" else own.encoder_attentions
    for site in (s for s in heads.sites if s.stack in ("", "encoder")):
        maps, band = weights(heads, site)[:, :, :TOKENS], bands[site.layer]
        padded = nn.functional.pad(maps, (2, 2))
        diagonals = torch.stack([padded[:, :, range(TOKENS), range(o, TOKENS + o)] for o in range(5)], -1)
        assert_close(diagonals, band)
        assert_close(maps.sum(-1), band.sum(-1))  # nothing outside of the band


@pytest.mark.parametrize("side", [None, "right"])
def test_the_blocks_of_longt5(side: str | None) -> None:
    """Its own maps have, for each block of queries, the keys of three blocks; the outer ones lie half outside."""
    config = hf.LongT5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=5, d_ff=32, num_layers=2, num_heads=HEADS, local_radius=2
    )
    model = build(lambda: hf.LongT5EncoderModel(config))
    batch = {"input_ids": ids()} | ({} if side is None else {"attention_mask": padding(side)})
    with torch.no_grad():
        own = model(**batch, output_attentions=True)
        with mh.capture(model, keep="qk") as heads:
            output = model(**batch)
    real = batch.get("attention_mask", torch.ones(BATCH, TOKENS)).bool()
    assert_close(output[0][real], own[0][real], atol=1e-5, rtol=1e-4)
    assert len(heads.sites) == 2
    for site in heads.sites:
        maps, blocks = (
            weights(heads, site),
            own.attentions[site.layer],
        )  # batch, block, head, query, key of 3 blocks
        expected = torch.zeros(BATCH, HEADS, 12, 18)
        for block in range(4):
            expected[:, :, 3 * block : 3 * block + 3, 3 * block : 3 * block + 9] = blocks[:, block]
        assert_close(maps.transpose(1, 2)[real], expected[:, :, :TOKENS, 3 : TOKENS + 3].transpose(1, 2)[real])


def test_global_tokens_of_longformer_are_refused() -> None:
    model = build(TEXT["longformer"][0])
    batch = {"input_ids": ids(), "global_attention_mask": torch.zeros(BATCH, TOKENS, dtype=torch.long)}
    batch["global_attention_mask"][:, 0] = 1
    with torch.no_grad(), pytest.raises(mh.MultiheadError, match="the batch has 2 of them"), mh.capture(model):
        model(**batch)


def test_mixed_heads_of_deberta_are_refused() -> None:
    """Talking heads mix the scores of all heads before softmax: they are not softmax(q kᵀ + bias) v."""
    config = hf.DebertaConfig(**BERT | {"relative_attention": False, "talking_head": True})
    model = build(lambda: hf.DebertaModel(config))
    with torch.no_grad(), pytest.raises(mh.MultiheadError, match=r"DisentangledSelfAttention .* permute"):
        with mh.capture(model):
            model(input_ids=ids())


@pytest.mark.parametrize("name", ["codegen", "mpt", "xglm", "gpt_neox_japanese", "xlnet", "led", "mvp", "trocr"])
@pytest.mark.fast("codegen", "mpt", "xglm", "led")
def test_generate_inside_a_capture(name: str) -> None:
    model = build(TEXT[name][0])
    options = {"max_new_tokens": 5, "do_sample": False, "attention_mask": padding("left")}
    expected = model.generate(input_ids=ids(), **options)  # type: ignore[operator]
    with mh.capture(model) as heads:
        tokens = model.generate(input_ids=ids(), **options)  # type: ignore[operator]
    assert torch.equal(tokens, expected)
    assert len(heads)


@pytest.mark.parametrize("name", ["mpt", "rembert", "xlnet"])
def test_statistics_are_those_of_the_maps(name: str) -> None:
    model, batch = build(TEXT[name][0]), text_batch(name, "right")
    with torch.no_grad():
        own = model(**batch, output_attentions=True)
        with mh.capture(model) as heads:
            model(**batch)
    real = batch["attention_mask"].bool()
    for site in heads.sites:
        p = own_maps(own, heads, site).transpose(1, 2)[real]  # token, head, key
        entropy = torch.special.entr(p).sum(-1).mean(0)
        largest = p.amax(-1).mean(0)
        for head in range(site.heads):
            statistics = heads[site.name(head)]
            assert_close(statistics.mean("entropy"), float(entropy[head]), atol=1e-5, rtol=1e-4)
            assert_close(statistics.mean("max_weight"), float(largest[head]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "out"),
    [("xglm", "model.layers.1.self_attn.out_proj"), ("deberta", "encoder.layer.1.attention.output.dense")],
)
def test_an_ablated_head_adds_nothing(name: str, out: str) -> None:
    """Inside `ablate` the model computes what it computes with zeros in the head's columns of W_O."""
    model = build(TEXT[name][0])
    linear = model.get_submodule(out)
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        with mh.ablate(model, ["L1H2"]):
            result = model(input_ids=ids())[0]
        linear.weight[:, 2 * WIDTH // HEADS :] = 0
        assert_close(result, model(input_ids=ids())[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.fast(1)
def test_every_row_names_a_class(name: str) -> None:
    folder, kind = name.split(".")
    files = (Path(hf.__file__).parent / "models" / folder).glob("modeling_*.py")
    assert any(f"class {kind}(" in file.read_text() for file in files)
