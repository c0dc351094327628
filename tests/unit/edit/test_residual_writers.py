"""The block equation: which maps write into the residual stream, and where it is read, family by family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    Dinov2Config,
    Dinov2Model,
    Gemma2Config,
    Gemma2Model,
    GPT2Config,
    GPT2Model,
    GPTJConfig,
    GPTJModel,
    GPTNeoXConfig,
    GPTNeoXModel,
    GraniteConfig,
    GraniteModel,
    LlamaConfig,
    LlamaModel,
    T5Config,
    T5Model,
)

import multihead as mh
from multihead import mask
from multihead.edit.residual_block import Block, TokenLayout
from multihead.edit.residual_writers import MapReader, find_blocks, linear_maps
from multihead.model.forward import Forward
from unit.edit.sharp import sharp

SMALL: dict[str, Any] = {
    "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 23, "vocab_size": 53,
    "hidden_dropout_prob": 0.0,
}  # fmt: skip
LLAMA = {**SMALL, "num_key_value_heads": 5, "head_dim": 6}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


def _blocks(model: nn.Module, example: dict[str, Any] | None = None) -> tuple[Block, ...]:
    given = {"input_ids": IDS} if example is None else example
    return find_blocks(model, list(mh.anatomy(model, given)), given)


FAMILIES: dict[str, tuple[Callable[[], nn.Module], list[tuple[str, str]]]] = {
    "gpt2": (
        lambda: GPT2Model(GPT2Config(n_layer=2, n_head=5, n_embd=30, vocab_size=53)),
        [("h.1.attn.c_proj.weight", "input of h.1.ln_2"), ("h.1.mlp.c_proj.weight", "output of h.1")],
    ),
    "llama": (
        lambda: LlamaModel(LlamaConfig(**LLAMA)),
        [
            ("layers.1.self_attn.o_proj.weight", "input of layers.1.post_attention_layernorm"),
            ("layers.1.mlp.down_proj.weight", "output of layers.1"),
        ],
    ),
    "bert": (
        lambda: BertModel(BertConfig(**SMALL)),
        [
            (
                "encoder.layer.1.attention.output.dense.weight",
                "input of encoder.layer.1.attention.output.LayerNorm",
            ),
            ("encoder.layer.1.output.dense.weight", "input of encoder.layer.1.output.LayerNorm"),
        ],
    ),
    "neox": (
        lambda: GPTNeoXModel(GPTNeoXConfig(**SMALL, use_parallel_residual=True)),
        [
            ("layers.1.attention.dense.weight", "output of layers.1"),
            ("layers.1.mlp.dense_4h_to_h.weight", "output of layers.1"),
        ],
    ),
    "gptj": (
        lambda: GPTJModel(GPTJConfig(n_layer=2, n_head=5, n_embd=30, vocab_size=53, rotary_dim=2)),
        [("h.1.attn.out_proj.weight", "output of h.1"), ("h.1.mlp.fc_out.weight", "output of h.1")],
    ),
    "pre-norm": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(30, 5, 23, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        ),
        [
            ("layers.1.self_attn.out_proj.weight", "input of layers.1.norm2"),
            ("layers.1.linear2.weight", "output of layers.1"),
        ],
    ),
    "post-norm": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(30, 5, 23, batch_first=True), 2, enable_nested_tensor=False
        ),
        [
            ("layers.1.self_attn.out_proj.weight", "input of layers.1.norm1"),
            ("layers.1.linear2.weight", "input of layers.1.norm2"),
        ],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_writers_of_a_block_and_where_the_stream_is_read(family: str) -> None:
    make, expected = FAMILIES[family]
    torch.manual_seed(0)
    model = sharp(0.4, make())
    block = _blocks(model, {"src": torch.randn(2, 7, 30)} if "norm" in family else None)[1]
    assert [(w.parameter, str(w.tap)) for w in block.writers] == expected
    assert [w.scale for w in block.writers] == [1.0, 1.0]
    assert str(block.output) == expected[-1][1]


def test_an_encoder_and_a_decoder_have_a_block_for_every_attention() -> None:
    model = sharp(
        0.4,
        T5Model(
            T5Config(d_model=30, d_kv=6, d_ff=23, num_layers=1, num_decoder_layers=1, num_heads=5, vocab_size=53)
        ),
    )
    blocks = _blocks(model, {"input_ids": IDS, "decoder_input_ids": IDS.flip(1)[:, :5]})
    taps = [[str(w.tap) for w in block.writers] for block in blocks]
    one, two = "encoder.block.0.layer", "decoder.block.0.layer"
    assert taps == [
        [f"output of {one}.0", f"output of {one}.1"], [f"output of {two}.0"],
        [f"output of {two}.1", f"output of {two}.2"],
    ]  # fmt: skip


def test_scales_before_the_sum_are_found() -> None:
    model = sharp(0.4, GraniteModel(GraniteConfig(**LLAMA, residual_multiplier=0.25)))
    assert [w.scale for w in _blocks(model)[0].writers] == [0.25, 0.25]
    sizes: dict[str, Any] = {"hidden_size": 30, "num_hidden_layers": 1, "num_attention_heads": 5}
    vision = sharp(0.4, Dinov2Model(Dinov2Config(**sizes, image_size=28, patch_size=14)))
    (block,) = _blocks(vision, {"pixel_values": torch.randn(2, 3, 28, 28)})
    scale = block.writers[0].scale
    assert isinstance(scale, Tensor)
    torch.testing.assert_close(scale, vision.encoder.layer[0].layer_scale1.lambda1.detach())


def test_a_norm_before_the_sum_leaves_the_output_of_w_o_alone() -> None:
    model = sharp(0.4, Gemma2Model(Gemma2Config(**LLAMA)))
    for i, block in enumerate(_blocks(model)):
        assert [(w.parameter, w.tap) for w in block.writers] == [(f"layers.{i}.self_attn.o_proj.weight", None)]
        assert str(block.output) == f"output of layers.{i}"
    texts = [[(11 * i + j * j + 1) % 51 + 1 for j in range(9)] for i in range(40)]
    small: Any = mh.cut(model, mh.plan(model, texts, remove=["L0H1", "L1H3"]))
    assert {fit["stream"] for fit in small.multihead_cut.plan["fits"]} == {False}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "neox"])
def test_writers_are_found_in_every_dtype(family: str, dtype: torch.dtype) -> None:
    make, expected = FAMILIES[family]
    torch.manual_seed(0)
    block = _blocks(sharp(0.4, make()).to(dtype), {"input_ids": IDS})[1]
    assert [(w.parameter, str(w.tap), w.scale) for w in block.writers] == [(*e, 1.0) for e in expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_norm_before_the_sum_is_no_writer_in_any_dtype(dtype: torch.dtype) -> None:
    for block in _blocks(sharp(0.4, Gemma2Model(Gemma2Config(**LLAMA))).to(dtype)):
        assert [w.tap for w in block.writers] == [None]


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "neox", "gptj"])
def test_equal_tokens_have_the_same_writers(family: str) -> None:
    """On equal tokens any map times a scale per channel would solve the equation: q_proj, say."""
    make, expected = FAMILIES[family]
    torch.manual_seed(0)
    model = sharp(0.4, make())
    block = _blocks(model, {"input_ids": torch.full((1, 13), 5)})[1]
    assert [(w.parameter, str(w.tap)) for w in block.writers] == expected


def test_text_of_one_repeated_token_is_text() -> None:
    model = sharp(0.4, LlamaModel(LlamaConfig(**LLAMA)))
    texts = [[5] * 20, [5] * 21]
    with pytest.warns(UserWarning, match="the calibration text is short"):
        small: Any = mh.cut(model, mh.plan(model, texts, keep=0.5))
    assert sum(layer.num_heads for layer in mh.anatomy(small)) == 5
    writers = {fit["where"] for fit in small.multihead_cut.plan["fits"]}
    assert writers <= {"L0", "L1", "layers.0.mlp.down_proj.weight", "layers.1.mlp.down_proj.weight"}


def test_weights_that_run_several_times_are_not_fitted() -> None:
    sizes: dict[str, Any] = {**SMALL, "embedding_size": 11, "intermediate_size": 23}
    (block,) = _blocks(sharp(0.4, AlbertModel(AlbertConfig(**sizes))))
    assert block.writers == ()


def test_a_pooler_does_not_write_into_the_stream() -> None:
    model = sharp(0.4, BertModel(BertConfig(**SMALL)))
    assert "pooler.dense.weight" in linear_maps(model, {"input_ids": IDS})
    assert len(_blocks(model)[1].writers) == 2


@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_order_of_tokens_is_told_apart(batch_first: bool) -> None:
    """Rows are in one order of documents whatever torch does inside, without padding: o = W z + b, s = x + o."""
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(14, 2, 11, batch_first=batch_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, hidden = torch.randn(5, 7, 14), torch.arange(7) >= torch.tensor([7, 3, 5, 1, 6])[:, None]
    block = _blocks(model, {"src": torch.randn(2, 3, 14) if batch_first else torch.randn(3, 2, 14)})[1]
    layout = TokenLayout(5, 7, ~hidden)
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    weights = {w.parameter: model.get_parameter(w.parameter) for w in block.writers}
    sums: list[Tensor] = []
    model.layers[1].norm1.register_forward_pre_hook(lambda _, args: sums.append(args[0]))
    batch = {"src": x if batch_first else x.transpose(0, 1), "src_key_padding_mask": hidden}
    with MapReader(weights, lambda name, z, o, _: seen.update({name: (z, o)})):
        expected = Forward(model)(batch, lambda call, compute: compute())
    out, down = block.writers
    (z, o), (_, f) = seen[out.parameter], seen[down.parameter]
    bias = model.layers[1].self_attn.out_proj.bias
    rows = layout.rows(z, out.token_first) @ weights[out.parameter].T + bias
    torch.testing.assert_close(rows, layout.rows(o, out.token_first))
    stream = layout.rows(sums[0], out.tap_token_first)
    norm1, norm2 = model.layers[1].norm1, model.layers[1].norm2
    after = norm2(norm1(stream) + layout.rows(f, down.token_first))
    wanted = expected if batch_first else expected.transpose(0, 1)
    torch.testing.assert_close(after, wanted[~hidden], rtol=1e-4, atol=1e-5)


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
    whole, alone = (
        _w_o_inputs(model, x, lengths),
        [_w_o_inputs(model, x[i : i + 1, :n], [n]) for i, n in enumerate(lengths) if n],
    )
    torch.testing.assert_close(whole, torch.cat(alone))


def _w_o_inputs(model: nn.Module, x: Tensor, lengths: list[int]) -> Tensor:
    seen: list[Tensor] = []
    layouts: list[TokenLayout] = []

    def listen(call: Any, compute: Any) -> Tensor:
        heads = compute()
        layouts.append(TokenLayout.of(call, heads))
        return heads

    weights = {"attn.o_proj.weight": model.get_parameter("attn.o_proj.weight")}
    with MapReader(weights, lambda _, z, *__: seen.append(z)):
        Forward(model)({"x": x, "lengths": lengths}, listen)
    return layouts[-1].rows(seen[-1])
