"""Every family: removing heads is ablating them; heads may share keys and values; a layer may lose them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from multihead.model.anatomy import anatomy
from multihead.model.head_weights import HeadWeights
from zoo import COVERING, ZOO, Entry
from zoo_cut import check, layers, made, shared, uneven

GROUPED = [name for name, entry in ZOO.items() if any(s.kv_heads < s.heads for s in entry.stacks)]
EXACT = ["bert", "modernbert", "gpt2", "gpt-neox", "falcon-alibi", "llama", "olmo2", "t5", "torch-cross", "timm"]

pytestmark = pytest.mark.fast(*COVERING)


@pytest.fixture(scope="module", params=list(ZOO))
def entry(request: pytest.FixtureRequest) -> Entry:
    return ZOO[request.param]


def test_heads_that_go_are_as_if_ablated_heads(entry: Entry) -> None:
    """Another number of heads in every layer."""
    check(entry.name, made(entry.name, uneven))


def test_heads_that_share(entry: Entry) -> None:
    """Keys and values of a group are one head's, with numbers of their own; its readers are not neighbours."""
    if any(layer.num_kv_heads > 1 for layer in layers(entry.name)):
        cut = made(entry.name, shared)
        small = check(entry.name, cut)
        for layer in anatomy(small, entry.inputs(small)):
            assert layer.num_kv_heads == cut[layer.path].kv_heads
            assert layer.num_heads == cut[layer.path].heads


def test_a_layer_without_heads(entry: Entry) -> None:
    """The first: others may need what it computes (T5), and caches ask it for their length."""
    layer = layers(entry.name)[0]
    small = check(entry.name, {layer.path: HeadWeights.of(layer).keep([])})
    left = {name for name in layer.parameters if small.get_parameter(name).numel()}
    assert left <= {layer.weights["o"].bias}


@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_two_sizes(name: str) -> None:
    cut = made(name, lambda layer, i: HeadWeights.of(layer).keep([h for h in range(layer.num_heads) if h]))
    small = check(name, cut)
    for layer in anatomy(small, ZOO[name].inputs(small)):
        assert layer.groups == cut[layer.path].groups


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("how", [uneven, shared])
def test_to_the_last_bits_of_float64(name: str, how: Callable[..., HeadWeights]) -> None:
    check(name, made(name, how), torch.float64)
