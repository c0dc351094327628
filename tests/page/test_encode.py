"""Both ways of keeping a map give the model's own weights, for every mask and score that models use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import multihead as mh
from multihead.show import map_or_qk as qk_module
from multihead.show.encode import (
    NEAR,
    BlobTable,
    RowMask,
    halves_text,
    inflated,
    map_from_text,
    map_text,
    scaled,
    shares_text,
    weights_from,
)
from multihead.show.text_maps import encode_maps


def test_map_is_off_by_less_than_said_everywhere() -> None:
    every = torch.linspace(0, 1, 100_003)[None]
    off = (map_from_text(map_text(every), 1, every.shape[1]) - every).abs()
    assert off.max() < NEAR
    assert off.max() > 0.9 * NEAR, "the bound is tight: nothing was kept with more bits than said"
    assert off[every < 1e-4].max() < 1e-4, "small weights are kept best"


def test_shares_keep_both_ends_and_nan() -> None:
    given = torch.tensor([[-1.0, 0.0, 1.0], [torch.nan, 0.5, -0.5]])
    steps = torch.tensor(list(inflated(shares_text(given, -1.0)))).view(2, 3)
    assert steps.tolist() == [[0, 127, 254], [255, 190, 64]]


def test_halves_are_high_bytes_first() -> None:
    assert inflated(halves_text(torch.tensor([[1.0, -2.0]]))) == bytes([0x3C, 0xC0, 0x00, 0x00])


def test_mean_key_does_not_matter_and_saves_rounding() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(13, 7), torch.randn(11, 7) + 300.0
    mask = RowMask(torch.zeros(13, dtype=torch.long), torch.full((13,), 11))
    want = torch.softmax(q.double() @ k.double().T * 0.5, -1).float()
    for shift, near in ((True, True), (False, False)):
        q_half, k_half = (x.half() for x in scaled(q, k, 0.5, shift=shift))
        got = weights_from(q_half, k_half, mask, range(13))
        assert bool((got - want).abs().max() < NEAR) is near


# ---- models -----------------------------------------------------------------------------------


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(n_layer=1, n_head=3, n_embd=24, vocab_size=50, initializer_range=0.5))


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            vocab_size=50,
            hidden_size=24,
            num_hidden_layers=1,
            num_attention_heads=3,
            intermediate_size=8,
            initializer_range=0.5,
        )
    )


def _gemma2() -> Any:
    """Softcap, a window, and kv heads that are shared."""
    from transformers import Gemma2Config, Gemma2Model

    return Gemma2Model(
        Gemma2Config(
            vocab_size=50,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=8,
            sliding_window=5,
            initializer_range=0.8,
        )
    )


def _gpt_oss() -> Any:
    """Learned sinks."""
    from transformers import GptOssConfig, GptOssModel

    model = GptOssModel(
        GptOssConfig(
            vocab_size=50,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=8,
            num_local_experts=2,
            num_experts_per_tok=1,
            sliding_window=5,
            initializer_range=0.8,
        )
    )
    for layer in model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    return model


def _bloom() -> Any:
    """ALiBi: a bias by distance."""
    from transformers import BloomConfig, BloomModel

    return BloomModel(BloomConfig(vocab_size=50, hidden_size=24, n_layer=1, n_head=3, initializer_range=0.5))


MODELS = {"gpt2": _gpt2, "bert": _bert, "gemma2": _gemma2, "gpt_oss": _gpt_oss, "bloom": _bloom}


@dataclass(frozen=True)
class Ran:
    heads: Any
    ids: Tensor


@pytest.fixture(params=list(MODELS))
def ran(request: pytest.FixtureRequest) -> Ran:
    torch.manual_seed(1)
    model = MODELS[request.param]().eval()
    ids = torch.randint(0, 50, (1, 17))
    with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as heads:
        model(input_ids=ids)
    return Ran(heads, ids)


@pytest.mark.parametrize("only", ["maps", "qk"])
@pytest.mark.parametrize("rows", [5, 256])
def test_every_model_is_kept_near(ran: Ran, only: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qk_module, "ROWS", rows)
    lines = BlobTable()
    layers = encode_maps(ran.heads, lines, only=only)
    for site, layer in zip(ran.heads.sites, layers, strict=True):
        for h, stored in enumerate(layer.heads):
            assert stored is not None
            want = ran.heads[site.name(h)].weights()[0].float()
            kept = stored.to_json()
            assert set(kept) == {"map"} if only == "maps" else "q" in kept, "it was kept as asked"
            got = read(kept, lines, layer.queries, layer.keys)
            assert (got - want).abs().max() < NEAR
            assert want[5:].max() > 0.3, "the maps are not all alike"


def read(kept: dict[str, Any], lines: BlobTable, queries: int, keys: int) -> Tensor:
    """A map as the page has it, from its lines alone."""
    if "map" in kept:
        return map_from_text(lines.texts[kept["map"]], queries, keys)

    def numbers(name: str, dtype: torch.dtype) -> Tensor:
        return torch.frombuffer(bytearray(inflated(lines.texts[kept[name]])), dtype=dtype)

    def half(name: str, tokens: int) -> Tensor:
        high, low = numbers(name, torch.uint8).view(2, -1)
        return torch.stack([low, high], 1).contiguous().view(torch.float16).view(tokens, kept["dim"])

    def pair(name: str, tokens: int) -> Tensor:
        return numbers(name, torch.float32).view(tokens, kept["dim"]) if kept.get("wide") else half(name, tokens)

    bias = numbers("bias", torch.float32) if "bias" in kept else None
    first, end = (numbers(name, torch.int32).long() for name in ("first", "end"))
    mask = RowMask(first, end, bias, kept.get("softcap"), kept.get("sink"))
    return weights_from(pair("q", queries), pair("k", keys), mask, range(queries))


def test_smaller_way_is_taken() -> None:
    """Few tokens: maps. Many tokens of few dimensions: q and k, linear in tokens."""
    model = _gpt2().eval()
    sizes = {}
    for tokens in (7, 600):
        with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as heads:
            model(input_ids=torch.randint(0, 50, (1, tokens)))
        lines = BlobTable()
        first = encode_maps(heads, lines)[0].heads[0]
        sizes[tokens] = "map" if first.map is not None else "qk"
        each = {only: BlobTable() for only in ("maps", "qk")}
        for only, some in each.items():
            encode_maps(heads, some, only=only)
        assert sum(map(len, lines.texts)) <= 1.05 * min(sum(map(len, some.texts)) for some in each.values())
    assert sizes == {7: "map", 600: "qk"}


def test_a_mask_with_holes_is_kept_as_maps() -> None:
    layer = mh.MultiHeadAttention(12, 3)
    holes = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    holes[..., 3] = False
    with torch.no_grad(), mh.capture(layer, statistics=None, keep="qk v") as heads:
        layer(torch.randn(1, 7, 12), mask=mh.mask.tensor(holes))
    kept = encode_maps(heads, BlobTable(), only="qk")[0].heads
    assert all(set(one.to_json()) == {"map"} for one in kept if one is not None)


def test_norms_are_of_what_is_written() -> None:
    layer = mh.MultiHeadAttention(12, 3)
    with torch.no_grad(), mh.capture(layer, statistics=None, keep="qk v") as heads:
        layer(torch.randn(1, 7, 12))
    (label,) = (site.label for site in heads.sites)
    writes = {label: list(layer.o_proj.weight.detach().view(12, 3, 4).unbind(1))}
    for given in (writes, None):
        lines = BlobTable()
        kept = encode_maps(heads, lines, writes=given)[0].norms
        got = torch.frombuffer(bytearray(inflated(lines.texts[kept])), dtype=torch.float32).view(3, 7)
        values = torch.stack([heads[f"{label}H{h}"].value()[0] for h in range(3)])
        want = values if given is None else torch.einsum("hkd,hod->hko", values, torch.stack(given[label]))
        torch.testing.assert_close(got, want.norm(dim=-1))


def test_chosen_heads_only() -> None:
    with torch.no_grad(), mh.capture(model := _gpt2().eval(), statistics=None, keep="qk v") as heads:
        model(input_ids=torch.randint(0, 50, (1, 5)))
    kept = encode_maps(heads, BlobTable(), chosen=["L0H2"])[0].heads
    assert [one is not None for one in kept] == [False, False, True]
