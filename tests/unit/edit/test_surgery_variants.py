"""Options of known architectures that the zoo leaves out: norms per head, cross-attention, own position weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import multihead as mh
from multihead.edit import Plan
from multihead.edit.surgery.install import install
from multihead.model.anatomy import anatomy
from multihead.model.head_weights import HeadWeights
from zoo_cut import outputs, shared

IDS = torch.randint(5, 101, (2, 7), generator=torch.Generator().manual_seed(0))
BERT = {
    "vocab_size": 101, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 19,
    "max_position_embeddings": 37,
}  # fmt: skip
LLAMA = BERT | {"num_attention_heads": 6, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 101, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 37}
MEMORY = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1))


def build(kind: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(
        transformers, kind.replace("ForCausalLM", "").replace("LMHeadModel", "").replace("Model", "") + "Config"
    )
    model: nn.Module = getattr(transformers, kind)(config(**options)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


class Gained(nn.Module):
    """Keys and queries are normalised and get a gain of their own in every head; found by no row of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(24, 24) for _ in range(4))
        self.gain_q, self.gain_k = (nn.Parameter(1 + 3 * torch.rand(3, 8)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (linear(x).unflatten(-1, (-1, 8)) for linear in (self.q, self.k, self.v))
        q, k = (nn.functional.rms_norm(t, (8,)) * gain for t, gain in ((q, self.gain_q), (k, self.gain_k)))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out: Tensor = self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return out


VARIANTS: dict[str, tuple[Any, dict[str, Tensor]]] = {
    "a gain for every head": (lambda: Gained().eval(), {"x": MEMORY}),
    "deberta, positions with weights of their own": (
        lambda: build(
            "DebertaV2Model", **BERT, relative_attention=True, position_buckets=5, pos_att_type=["p2c", "c2p"],
            share_att_key=False,
        ),
        {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)},
    ),
    "gpt-2, cross-attention": (
        lambda: build("GPT2LMHeadModel", **GPT2, add_cross_attention=True),
        {"input_ids": IDS, "encoder_hidden_states": MEMORY},
    ),
    "gpt-2, upcast": (
        lambda: build("GPT2LMHeadModel", **GPT2, reorder_and_upcast_attn=True, attn_implementation="eager"),
        {"input_ids": IDS},
    ),
    "bert, decoder with cross-attention": (
        lambda: build("BertModel", **BERT, is_decoder=True, add_cross_attention=True),
        {"input_ids": IDS, "encoder_hidden_states": MEMORY},
    ),
    "llama, biases": (lambda: build("LlamaForCausalLM", **LLAMA, attention_bias=True), {"input_ids": IDS}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(VARIANTS))
@pytest.mark.parametrize("left", [2, 0])
def test_heads_that_go_are_as_if_ablated_heads(name: str, left: int) -> None:
    """Every second attention keeps `left` heads that are not the first."""
    make, batch = VARIANTS[name]
    full = make()
    small, off = copy.deepcopy(full), list[str]()
    for layer in anatomy(full, batch)[::2]:
        keep = list(range(layer.num_heads))[-left or layer.num_heads :]
        off += [layer.site.name(h) for h in range(layer.num_heads) if h not in keep]
        install(small, layer, HeadWeights.of(layer).keep(keep), inputs=batch)
    with mh.capture(full) as heads, torch.no_grad():
        full(**batch)
    with mh.ablate(full, off, sites=heads.sites):
        expected = outputs(full, batch)
    torch.testing.assert_close(outputs(small, batch), expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_heads_share(name: str) -> None:
    make, batch = VARIANTS[name]
    small = make()
    if name == "a gain for every head":  # copies come before the gains, so that they would be no copies
        with pytest.raises(mh.MultiheadError, match=r"Gained does not take 3 heads on 2 kv heads"):
            install(small, anatomy(small, batch)[0], shared(anatomy(small, batch)[0], 0), inputs=batch)
        return
    for i, layer in enumerate(anatomy(small, batch)):
        install(small, layer, shared(layer, i))
    again = anatomy(small, batch)
    assert {layer.num_kv_heads for layer in again} == {again[0].num_kv_heads}
    assert again[0].num_kv_heads < again[0].num_heads


def test_silence_knows_what_is_left() -> None:
    make, batch = VARIANTS["llama, biases"]
    model = make()
    layers = anatomy(model, batch)
    with mh.capture(model), torch.no_grad():
        model(**batch)
    install(model, layers[0], HeadWeights.of(layers[0]).keep([0, 5]))
    install(model, layers[1], HeadWeights.of(layers[1]).keep([]))
    with pytest.raises(mh.MultiheadError, match=r"L0 has heads 0, 5, got head 2"):
        mh.ablate(model, ["L0H2"])
    with pytest.raises(mh.MultiheadError, match=r"unknown layer in 'L1H0'"):
        mh.ablate(model, ["L1H0"])


def test_all_heads_of_an_unknown_class_go_where_the_output_projection_is_outside_of_it() -> None:
    model = build("RobertaPreLayerNormForCausalLM", **BERT, is_decoder=True)
    names = [f"L0H{h}" for h in range(3)]
    small = mh.cut(model, Plan.whole(model, anatomy(model)).edit(remove=names), refit=False)
    with torch.no_grad(), mh.ablate(model, names):
        expected = model(IDS).logits
    with torch.no_grad():
        torch.testing.assert_close(small(IDS).logits, expected)
