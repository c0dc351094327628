"""ONNX, opset 23: the standard's own Attention operator, run by onnxruntime and by the standard's reference."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

import multihead as mh
from ecosystem.variants import TOKENS, VARIANTS, WIDTH, Called, Variant
from multihead import mask

onnx = import_module("onnx")
onnxruntime = import_module("onnxruntime")
import_module("onnxscript")


@functools.cache
def example(name: str) -> tuple[Any, torch.nn.Module, tuple[Tensor, ...]]:
    """A variant's model, the module it was made from, and inputs."""
    inputs = VARIANTS[name].inputs()
    return *exported(VARIANTS[name], inputs), inputs


def exported(variant: Variant, inputs: tuple[Tensor, ...], **options: Any) -> tuple[Any, torch.nn.Module]:
    module = Called(variant, variant.layer()).eval().requires_grad_(False)
    logging.disable(logging.WARNING)  # torchvision is not there, says the exporter for each of its operators
    try:
        program = torch.onnx.export(module, inputs, dynamo=True, opset_version=23, verbose=False, **options)
    finally:
        logging.disable(logging.NOTSET)
    return program.model_proto, module


def by_onnxruntime(model: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {given.name: t.numpy() for given, t in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(out) for out in session.run(None, feeds)]


def by_the_standard(model: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    from onnx.reference import ReferenceEvaluator

    feeds = {given.name: t.numpy() for given, t in zip(model.graph.input, inputs, strict=True)}
    return [torch.from_numpy(out) for out in ReferenceEvaluator(model).run(None, feeds)]


def attentions(model: Any) -> list[Any]:
    return [node for node in model.graph.node if node.op_type == "Attention"]


def assert_same(result: list[Tensor], expected: Tensor) -> None:
    torch.testing.assert_close(result[0], expected, rtol=1e-4, atol=2e-5)


FUSED = ["plain", "causal", "grouped rotary", "value size", "lengths", "additive", "sinks", "relative bias"]


@pytest.mark.fast("grouped rotary")
@pytest.mark.parametrize("name", FUSED)
def test_one_attention_node(name: str) -> None:
    model, module, inputs = example(name)
    onnx.checker.check_model(model)
    assert {o.domain: o.version for o in model.opset_import}[""] == 23
    assert len(attentions(model)) == 1, Counter(node.op_type for node in model.graph.node)
    expected = module(*inputs)
    assert_same(by_onnxruntime(model, inputs), expected)
    assert_same(by_the_standard(model, inputs), expected)


def test_nothing_beside_the_equation() -> None:
    """softmax(q kᵀ) v W_O is four products and one Attention; without a mask there is nothing else."""
    model, _, _ = example("plain")
    count = Counter(node.op_type for node in model.graph.node)
    assert count["Attention"] == 1
    assert set(count) <= {"Attention", "MatMul", "Gemm", "Add", "Reshape", "Transpose"}, count


def test_groups_are_not_copied() -> None:
    """Attention takes fewer kv heads by itself: keys and values reach it as they are."""
    model, module, _ = example("grouped rotary")
    shapes = {info.name: [d.dim_value for d in info.type.tensor_type.shape.dim] for info in model.graph.value_info}
    (node,) = attentions(model)
    attn: mh.MultiHeadAttention = module.attn  # type: ignore[assignment]
    assert [shapes[name][1] for name in node.input[:3]] == [attn.num_heads, attn.num_kv_heads, attn.num_kv_heads]


def test_sizes_of_keys_and_values_are_not_padded() -> None:
    model, _, _ = example("value size")
    assert "Pad" not in {node.op_type for node in model.graph.node}


def test_causal_is_a_flag_not_a_tensor() -> None:
    (node,) = attentions(example("causal")[0])
    flags = {a.name: a.i for a in node.attribute}
    assert flags["is_causal"] == 1
    assert len([name for name in node.input if name]) == 3


def test_softcap_has_no_kernel_but_the_same_numbers() -> None:
    model, module, inputs = example("softcap")
    assert not attentions(model)
    assert_same(by_onnxruntime(model, inputs), module(*inputs))


def test_sizes_may_be_dynamic() -> None:
    variant = Variant(
        lambda attn, x, n: attn(x, mask=mask.causal() & mask.lengths(n)), VARIANTS["grouped rotary"].options
    )
    batch, tokens = torch.export.Dim("batch", min=2), torch.export.Dim("tokens", min=2)
    inputs = torch.randn(3, TOKENS, WIDTH), torch.tensor([11, 5, 0])
    model, module = exported(variant, inputs, dynamic_shapes=(({0: batch, 1: tokens}, {0: batch}),))
    assert len(attentions(model)) == 1
    for given in (inputs, (torch.randn(2, 23, WIDTH), torch.tensor([23, 4]))):
        assert_same(by_onnxruntime(model, given), module(*given))


def test_hidden_nan_stays_hidden() -> None:
    model, module, inputs = example("causal")
    clean = module(*inputs)
    x = inputs[0].clone()
    x[:, 6] = torch.nan
    (out,) = by_onnxruntime(model, (x,))
    assert_same([out[:, :6]], clean[:, :6])
    assert out[:, 6:].isnan().all()
