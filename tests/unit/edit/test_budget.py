"""Budgets: what heads cost, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.choosing.budget import CacheBytes, Flops, Heads, parse
from multihead.errors import SizeError

IDS = [[(11 * i + j * j + 1) % 51 + 1 for j in range(7)] for i in range(16)]


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=18, intermediate_size=23, vocab_size=53, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=4,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


WHOLE = {"L0": range(6), "L1": range(6)}


def test_bytes_of_the_cache_are_those_of_kv_heads_that_are_read(llama: LlamaForCausalLM) -> None:
    layers = mh.anatomy(llama)
    ledger = CacheBytes(0.5).ledger(llama, layers, None)
    assert (ledger.whole, ledger.limit) == (2 * 2 * 8 * 4, 2 * 8 * 4)
    assert ledger.of({"L0": (0, 3), "L1": (3, 4, 5)}) == 3 * 8 * 4
    assert ledger.of({"L0": (), "L1": (0,)}) == 8 * 4


def test_flops_are_those_of_all_linear_maps_and_of_pairs(llama: LlamaForCausalLM) -> None:
    """Every document has 7 tokens, also those that are spliced."""
    text = Calibration(llama, IDS, batch_size=4)
    ledger = Flops(0.9).ledger(llama, mh.anatomy(llama), text)
    attention = 2 * (2 * 18 * (24 + 24 + 2 * 8))
    feed = 2 * (3 * 2 * 18 * 23)
    head, pairs = 2 * 18 * 53, 2 * (6 * 2 * 7 * 8)
    assert ledger.whole == attention + feed + head + pairs
    one = 2 * (18 * 4 + 18 * 4) + 2 * 7 * 8
    assert ledger.whole - ledger.of(WHOLE | {"L1": (0, 1, 2, 3, 4)}) == one
    assert ledger.whole - ledger.of(WHOLE | {"L1": (0, 1, 2)}) == 3 * one + 2 * 18 * 8


def test_flops_have_a_floor(llama: LlamaForCausalLM) -> None:
    text = Calibration(llama, IDS, batch_size=4)
    with pytest.raises(
        SizeError, match=r"flops=0\.1 cannot be reached by heads: without any the model still has 0\.\d"
    ):
        Flops(0.1).ledger(llama, mh.anatomy(llama), text)


def test_budgets_are_read_from_words() -> None:
    assert parse("flops=0.8") == Flops(0.8)
    assert parse(" Cache = 0.5") == CacheBytes(0.5)


@pytest.mark.parametrize("text", ["flops", "flops=much", "power=0.5", "0.5", "", "heads=0.5", "latency=0.5"])
def test_words_that_are_no_budget_are_refused(text: str) -> None:
    with pytest.raises(SizeError, match=r"is no budget[\s\S]*flops=0\.8, cache=0\.8"):
        parse(text)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_shares_outside_0_and_1_are_refused(share: float) -> None:
    kinds: list[Any] = [Heads, Flops, CacheBytes]
    for kind in kinds:
        with pytest.raises(SizeError, match="is no share of the original"):
            kind(share)


def test_all_heads_cost_the_whole() -> None:
    model = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
    ledger = Heads(1.0).ledger(model, mh.anatomy(model), None)
    assert ledger.of({"L0": range(3)}) == ledger.whole == ledger.limit
