"""explain: names the route that then runs, says why not the others, and counts what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import multihead as mh
from multihead import cache, mask, position
from multihead.errors import SizeError
from multihead.layer import Sinks
from multihead.layer._attend import KERNELS
from multihead.layer._plan import ROUTES

WIDTH, HEADS = 30, 6


def layer_of(**options: Any) -> mh.MultiHeadAttention:
    return mh.MultiHeadAttention(WIDTH, HEADS, **options)


@contextmanager
def watched() -> Iterator[list[str]]:
    """The kernels that run, without repetitions; "direct" for one call of torch's function outside of them."""
    ran: list[str] = []
    kernels, direct, depth = dict(KERNELS), F.scaled_dot_product_attention, 0

    def noted(name: str, run: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth == 0 and ran[-1:] != [name]:
                ran.append(name)
            depth += 1
            try:
                return run(*args, **kwargs)
            finally:
                depth -= 1

        return call

    with ExitStack() as patches:
        patches.enter_context(mock.patch.dict(KERNELS, {name: noted(name, run) for name, run in kernels.items()}))
        patches.enter_context(mock.patch.object(F, "scaled_dot_product_attention", noted("direct", direct)))
        yield ran


def routes_of(ran: list[str]) -> list[str]:
    """The routes whose kernels ran: a call of torch's function is that of "fused", or of a single tile."""
    return [route for route in ROUTES if ran in ([route], ["direct"] if route in ("fused", "tiled") else [route])]


MASKS: dict[str, Any] = {
    "none": lambda n: None,
    "causal": lambda n: mask.causal(),
    "window": lambda n: mask.causal() & mask.window(64),
    "documents": lambda n: mask.documents(offsets=[0, n // 3, n]) & mask.causal(),
    "lengths": lambda n: mask.lengths([n, n // 3]),
    "ragged": lambda n: mask.causal() & mask.ragged([n, n // 3]),
    "tensor": lambda n: torch.ones(n, n, dtype=torch.bool),
    "additive": lambda n: torch.zeros(n, n),
    "where": lambda n: mask.where(lambda b, h, q, k: (q + k) % 2 == 0),
}
VARIANTS: dict[str, Any] = {
    "plain": {},
    "grouped": {"num_kv_heads": 2},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": Sinks()},
    "dropout": {"dropout": 0.1},
    "alibi": {"position": position.ALiBi(HEADS)},
    "relative": {"position": position.RelativeBias(HEADS)},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", MASKS)
def test_the_route_it_names_is_the_route_that_runs(variant: str, kind: str) -> None:
    layer = layer_of(**VARIANTS[variant])
    for tokens, grad, train in ((5, True, True), (5, False, False), (300, False, True), (300, True, False)):
        x, seen = torch.randn(2, tokens, WIDTH), MASKS[kind](tokens)
        layer.train(train)
        with torch.set_grad_enabled(grad), watched() as ran:
            said = layer.explain(x, mask=seen)
            assert ran == [], "explaining computes nothing"
            layer(x, mask=seen)
        assert said.route in routes_of(ran), f"{tokens} tokens, grad {grad}"
        assert said.route not in said.refused
        assert said.tiles >= 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["growing", "static", "ring", "cross"])
def test_with_a_cache_too_and_it_is_not_filled(variant: str, kind: str) -> None:
    layer = layer_of(**VARIANTS[variant]).eval()
    sizes = (2, layer.num_kv_heads, 100, layer.head_dim)
    kept = {"growing": cache.Growing, "ring": lambda: cache.Ring(20), "cross": cache.Cross}.get(
        kind, lambda: cache.Static(*sizes)
    )()
    seen = None if kind == "cross" else mask.causal()
    key = torch.randn(2, 50, WIDTH) if kind == "cross" else None
    with torch.no_grad():
        for tokens in (40, 1, 7, 1):
            x = torch.randn(2, tokens, WIDTH)
            before = kept.lengths.tolist()
            said = layer.explain(x, key, mask=seen, cache=kept)
            assert kept.lengths.tolist() == before
            with watched() as ran:
                layer(x, key, mask=seen, cache=kept)
            assert said.route in routes_of(ran)


def test_rows_of_a_cache_that_differ() -> None:
    layer, kept = layer_of().eval(), cache.Growing()
    with torch.no_grad():
        for lengths in ([5, 2], [1, 3]):
            x, seen = torch.randn(2, 5, WIDTH), mask.causal() & mask.ragged(lengths)
            said = layer.explain(x, mask=seen, cache=kept)
            with watched() as ran:
                layer(x, mask=seen, cache=kept)
            assert said.route in routes_of(ran)


def counted(layer: mh.MultiHeadAttention, *args: Tensor, **call: Any) -> int:
    """What torch counts for the explicit formula: it does not know the fused kernel's FLOPs on CPU."""
    call["route"] = "reference"
    with FlopCounterMode(display=False) as counter:
        layer(*args, **call)
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_kv_heads": 2},
        {"head_dim": 7, "d_out": 11},
        {"head_dim": 7, "value_dim": 3, "softcap": 2.0},
        {"kv_of_head": [0, 1, 1, 0, 0, 1], "softcap": 2.0},
    ],
)
@pytest.mark.parametrize("shape", [(2, 13), (1, 40)])
def test_flops_are_those_that_torch_counts(options: dict[str, Any], shape: tuple[int, int]) -> None:
    layer, x = layer_of(**options), torch.randn(*shape, WIDTH)
    said = layer.explain(x)
    assert said.flops == counted(layer, x)
    assert said.flops == said.projection_flops + said.attention_flops


def test_flops_of_cross_attention_and_of_its_cache() -> None:
    layer = mh.MultiHeadAttention(WIDTH, HEADS, d_key=17, d_value=19)
    x, key, value = torch.randn(2, 5, WIDTH), torch.randn(2, 11, 17), torch.randn(2, 11, 19)
    assert layer.explain(x, key, value).flops == counted(layer, x, key, value)
    kept = cache.Cross()
    with torch.no_grad():
        layer(x, key, value, cache=kept)
        later = layer.explain(x, key, value, cache=kept)
        assert later.flops == counted(layer, x, key, value, cache=kept)
    assert later.flops < layer.explain(x, key, value).flops


def test_flops_by_the_formula() -> None:
    """2 (b n d h d_k + ...) and 2 b h n² (d_k + d_v), halved by the causal square."""
    layer, x = layer_of(head_dim=4, value_dim=3, num_kv_heads=2), torch.randn(2, 32, WIDTH)
    said = layer.explain(x)
    assert said.projection_flops == 2 * 64 * (30 * 24 + 30 * 8 + 30 * 6 + 18 * 30)
    assert said.attention_flops == 2 * 2 * 6 * 32 * 32 * (4 + 3)
    assert layer.explain(x, mask=mask.causal()).attention_flops == said.attention_flops // 2
    assert layer.explain(x, mask=mask.causal()).saved == pytest.approx(0.5)


def test_structure_shows_in_the_numbers() -> None:
    layer = layer_of()
    x = torch.empty(1, 4096, WIDTH, device="cpu")
    dense = layer.explain(x)
    band = layer.explain(x, mask=mask.window(256))
    packed = layer.explain(x, mask=mask.documents(offsets=[0, 1024, 2048, 4096]))
    assert band.route == packed.route == "tiled"
    assert band.attention_flops < 0.15 * dense.attention_flops
    assert band.saved > 0.85
    assert packed.attention_flops == dense.attention_flops * 6 // 16
    assert band.bytes < dense.bytes + 4 * 4096 * 512


def test_padding_is_projected_only_where_it_must_be() -> None:
    layer, x = layer_of(), torch.randn(2, 40, WIDTH)
    both, ragged = layer.explain(x), layer.explain(x, mask=mask.ragged([40, 10]))
    assert ragged.projection_flops == both.projection_flops * 50 // 80
    assert ragged.attention_flops == both.attention_flops * (1600 + 100) // 3200
    assert "packed to 50 tokens" in ragged.sizes


def test_bytes_are_at_least_weights_and_activations() -> None:
    layer, x = layer_of(), torch.randn(3, 11, WIDTH)
    floor = sum(p.nbytes for p in layer.parameters()) + 5 * x.nbytes  # in, q, k, v, out
    assert floor <= layer.explain(x).bytes <= floor + x.nbytes
    assert layer.double().explain(x.double()).bytes == pytest.approx(2 * layer.float().explain(x).bytes)


def test_it_prints() -> None:
    layer = layer_of(num_kv_heads=2, softcap=2.0)
    text = str(layer.explain(torch.randn(2, 13, WIDTH), mask=mask.causal() & mask.lengths([13, 5])))
    lines = text.splitlines()
    assert lines[0].startswith("route      blocked: ")
    assert "batch 2, 13 queries, 13 keys, 6 heads on 2 kv heads, 5 + 5 dims" in text
    assert "causal() & lengths([13, 5])" in text
    assert "FLOPs" in text
    assert "B moved" in text
    refused = {line.split()[1]: line for line in lines if line.startswith("not ")}
    assert "softcap" in refused["fused"]
    assert "softcap" in refused["tiled"]
    assert "reference" not in refused


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_nothing_costs_nothing(shape: tuple[int, int]) -> None:
    layer, x = layer_of(), torch.randn(*shape, WIDTH)
    said = layer.explain(x, mask=mask.causal())
    assert said.flops == 0
    assert str(said)


def test_without_a_batch_and_with_bad_input() -> None:
    layer, x = layer_of(), torch.randn(13, WIDTH)
    assert layer.explain(x).flops == layer.explain(x[None]).flops
    assert layer.explain(x, x[:3]).sizes.startswith("batch 1, 13 queries, 3 keys")
    with pytest.raises(SizeError, match="29"):
        layer.explain(x[:, :-1])
    with pytest.raises(SizeError, match="causal"):
        layer.explain(x, x[:3], mask=mask.causal())
