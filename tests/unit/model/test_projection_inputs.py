"""The inputs of projections are those that q, k and v were computed from, in the order (batch, token)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead import mask
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.layer.attention import MultiHeadAttention
from multihead.model.anatomy import anatomy
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.projection_inputs import ProjectionInputs, QKVInputs, projections_of
from zoo import ZOO

Taken = list[tuple[HeadWeights, Call, QKVInputs]]


def taken(model: nn.Module, batch: dict[str, Any]) -> Taken:
    layers = {layer.site.key: layer for layer in anatomy(model, batch)}
    weights = {key: HeadWeights.of(layer) for key, layer in layers.items()}
    inputs = ProjectionInputs({layer.path: projections_of(layer, model) for layer in layers.values()})
    calls: Taken = []

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        calls.append((weights[call.key], call, inputs.take(call, weights[call.key])))
        return compute()

    with inputs:
        Forward(model)(batch, listen)
    return calls


@pytest.mark.parametrize(
    "name", ["bert", "albert", "gpt2", "qwen3", "t5", "deberta-v2", "torch-decoder", "torch-cross"]
)
def test_values_are_computed_from_the_inputs(name: str) -> None:
    model = ZOO[name].build()
    calls = taken(model, dict(ZOO[name].inputs(model)))
    assert len(calls) == sum(stack.sites * stack.turns for stack in ZOO[name].stacks)
    for weights, call, inputs in calls:
        values = torch.einsum("btd,hvd->bhtv", inputs.v, weights.v) + weights.bias("v")[:, None]
        of_kernel = [
            call.problem.groups.kv_of_head[weights.groups.kv_of_head.index(i)] for i in range(weights.kv_heads)
        ]
        assert_close(values, call.problem.v[:, of_kernel], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("batch_first", [True, False])
def test_both_orders_of_tokens_and_batch(batch_first: bool) -> None:
    layer = nn.MultiheadAttention(12, 3, batch_first=batch_first, dtype=torch.float64)
    x = torch.randn(5, 7, 12, dtype=torch.float64)
    passed = x if batch_first else x.transpose(0, 1)
    [(_, _, inputs)] = taken(layer, {"query": passed, "key": passed, "value": passed})
    for one in (inputs.q, inputs.k, inputs.v):
        assert_close(one, x)


def test_inputs_under_a_ragged_mask_are_padded_with_zeros() -> None:
    """The projections read the real tokens of all rows one after the other."""
    layer = mh.MultiHeadAttention(12, 3, dtype=torch.float64)
    x = torch.randn(3, 7, 12, dtype=torch.float64)
    [(_, call, inputs)] = taken(layer, {"query": x, "mask": mask.ragged([7, 2, 0])})
    expected = torch.cat([x[:1], torch.cat([x[1:2, :2], torch.zeros_like(x[1:2, 2:])], 1), torch.zeros_like(x[2:])])
    for one in (inputs.q, inputs.k, inputs.v):
        assert_close(one, expected)
    assert call.real_rows.sum(1).tolist() == [7, 2, 0]


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen3"])
def test_under_autocast_the_inputs_are_seen(name: str) -> None:
    """The product then reads copies of the weights, which lie elsewhere in memory."""
    model = ZOO[name].build()
    batch = dict(ZOO[name].inputs(model))
    layers = {layer.site.key: layer for layer in anatomy(model, batch)}
    weights = {key: HeadWeights.of(layer) for key, layer in layers.items()}
    inputs = ProjectionInputs({layer.path: projections_of(layer, model) for layer in layers.values()})

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        x, own = inputs.take(call, weights[call.key]), weights[call.key]
        assert x.same_kv
        values = torch.einsum("btd,hvd->bhtv", x.v.float(), own.v) + own.bias("v")[:, None]
        of_kernel = [call.problem.groups.kv_of_head[own.groups.kv_of_head.index(i)] for i in range(own.kv_heads)]
        assert_close(values.to(call.problem.v), call.problem.v[:, of_kernel], atol=0.1, rtol=0.05)
        return compute()

    with inputs, torch.autocast("cpu", dtype=torch.bfloat16):
        Forward(model)(batch, listen)


class _OwnParameters(nn.Module):
    """Keeps its matrices itself and reads two sequences of one length and width."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Parameter(torch.randn(12, 12) / 2) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            (y @ w).unflatten(-1, (3, 4)).transpose(1, 2)
            for y, w in ((x, self.q), (memory, self.k), (memory, self.v))
        )
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).flatten(2) @ self.o


def test_of_a_module_that_reads_two_tensors_the_values_tell_which() -> None:
    model, x, memory = _OwnParameters(), torch.randn(2, 7, 12), torch.randn(2, 7, 12)
    [(_, _, inputs)] = taken(model, {"x": x, "memory": memory})
    assert_close(inputs.q, x)
    assert_close(inputs.k, memory)
    assert_close(inputs.v, memory)


def test_an_input_that_did_not_pass_is_an_error() -> None:
    layer = mh.MultiHeadAttention(12, 3)
    other = mh.MultiHeadAttention(12, 3)  # its modules do not run
    inputs = ProjectionInputs({"": (other.q_proj, other.k_proj, other.v_proj)})

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        inputs.take(call, HeadWeights.of_module(layer))
        return compute()

    with inputs, pytest.raises(MultiheadError, match="projections of MultiHeadAttention were not seen"):
        Forward(layer)({"query": torch.randn(2, 7, 12)}, listen)


@pytest.mark.parametrize("bias", [True, False])
def test_weights_of_our_layer_are_those_of_its_anatomy(bias: bool) -> None:
    layer = MultiHeadAttention(12, 6, num_kv_heads=3, head_dim=5, value_dim=7, d_out=11, bias=bias)
    found, known = HeadWeights.of(anatomy(layer)[0]), HeadWeights.of_module(layer)
    for name, value in vars(known).items():
        if isinstance(value, Tensor):
            assert_close(value, getattr(found, name))
        else:
            assert value == getattr(found, name)
    assert known.bias("o").shape == (11,)
    assert known.bias("v").shape == (3, 7)
    assert known.double().q.dtype == torch.float64
