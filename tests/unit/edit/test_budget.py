"""Budgets: what heads cost, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import multihead as mh
from multihead.edit.budget import cache_bytes, check_reachable, count_heads, flops_per_token, parse
from multihead.edit.calibration import Calibration
from multihead.errors import SizeError, TypeMismatchError

IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(7)] for i in range(16)]


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=18, intermediate_size=23, vocab_size=53, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=4,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


WHOLE = {"L0": range(6), "L1": range(6)}


def test_bytes_of_the_cache_are_those_of_kv_heads_in_use(llama: LlamaForCausalLM) -> None:
    cost = cache_bytes(mh.anatomy(llama))
    assert cost.of_all_heads == 2 * 2 * 8 * 4
    assert cost.total({"L0": (0, 3), "L1": (3, 4, 5)}) == 3 * 8 * 4
    assert cost.total({"L0": (), "L1": (0,)}) == 8 * 4


def test_flops_are_those_of_all_linear_maps_and_of_pairs(llama: LlamaForCausalLM) -> None:
    """Every document has 7 tokens."""
    cost = flops_per_token(llama, mh.anatomy(llama), Calibration(llama, IDS, batch_size=4))
    attention = 2 * (2 * 18 * (24 + 24 + 2 * 8))
    feed = 2 * (3 * 2 * 18 * 23)
    head, pairs = 2 * 18 * 53, 2 * (6 * 2 * 7 * 8)
    assert cost.of_all_heads == attention + feed + head + pairs
    one = 2 * (18 * 4 + 18 * 4) + 2 * 7 * 8
    assert cost.of_all_heads - cost.total(WHOLE | {"L1": (0, 1, 2, 3, 4)}) == one
    assert cost.of_all_heads - cost.total(WHOLE | {"L1": (0, 1, 2)}) == 3 * one + 2 * 18 * 8


def test_flops_of_a_layer_of_ours_do_not_depend_on_how_it_computes_them() -> None:
    """Of few tokens it computes q, k and v in one product."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.attn = nn.Embedding(53, 18), mh.MultiHeadAttention(18, 6, num_kv_heads=2, head_dim=4)
            self.head = nn.Linear(18, 53)

        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.embed(input_ids)
            return self.head(x + self.attn(x))

    model = Model().eval()
    cost = flops_per_token(model, mh.anatomy(model), Calibration(model, IDS, batch_size=4))
    head, maps, pairs = 2 * 18 * 53, 2 * 18 * (24 + 24 + 2 * 8), 6 * 2 * 7 * 8
    assert cost.of_all_heads == head + maps + pairs
    assert cost.total({"L0": ()}) == head


def test_flops_have_a_floor(llama: LlamaForCausalLM) -> None:
    cost = flops_per_token(llama, mh.anatomy(llama), Calibration(llama, IDS, batch_size=4))
    with pytest.raises(SizeError, match=r"flops=0\.1 cannot be reached .* 0\.\d+ of its FLOPs"):
        check_reachable(cost, 0.1)


def test_budgets_are_read_from_text() -> None:
    assert parse("flops=0.8") == ("flops", 0.8)
    assert parse(" Cache = 0.5") == ("cache", 0.5)


@pytest.mark.parametrize("text", ["flops", "flops=much", "power=0.5", "0.5", "", "heads=0.5", "latency=0.5"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SizeError, match=r"budget must be flops=X or cache=X"):
        parse(text)


@pytest.mark.parametrize("budget", [0.5, ("flops", 0.5), True])
def test_budgets_are_texts(budget: Any) -> None:
    with pytest.raises(TypeMismatchError, match=r"budget must be a text such as 'flops=0\.8', got the"):
        parse(budget)


@pytest.mark.parametrize("share", ["0.0", "-1.0", "1.5", "nan"])
def test_shares_outside_0_and_1_are_refused(share: str) -> None:
    for name in ("flops", "cache"):
        with pytest.raises(SizeError, match=rf"{name} must be in \(0, 1\], got"):
            parse(f"{name}={share}")


def test_heads_are_counted() -> None:
    model = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
    cost = count_heads(mh.anatomy(model))
    assert (cost.of_all_heads, cost.total({"L0": (2,)})) == (3, 1)
