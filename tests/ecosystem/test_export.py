"""torch.export: the whole layer as one graph that is saved, loaded and run without this package's code."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram, export

from ecosystem.variants import TOKENS, VARIANTS, WIDTH, Called, Variant, tensors_of
from multihead import mask


@pytest.fixture(autouse=True)
def _exact(fp64: None) -> None: ...


def reloaded(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def attention_calls(program: ExportedProgram) -> int:
    return sum("scaled_dot_product_attention" in str(node.target) for node in program.graph.nodes)


WRITTEN_OUT = {"softcap", "learned ALiBi", "relative bias"}  # the fused kernel cannot do it, or not its gradient


@pytest.mark.fast("grouped rotary")
@pytest.mark.parametrize("name", VARIANTS)
def test_exports_and_reloads(name: str) -> None:
    variant = VARIANTS[name]
    module = Called(variant, variant.layer()).eval()
    inputs = variant.inputs()
    program = reloaded(export(module, inputs))
    # What a runtime can replace by its own fused kernel is not taken apart.
    assert attention_calls(program) == (0 if name in WRITTEN_OUT else 1)
    torch.testing.assert_close(tensors_of(program.module()(*inputs)), tensors_of(module(*inputs)))


@pytest.mark.fast("ask")
@pytest.mark.parametrize("name", ["document offsets", "ALiBi", "ask"])
def test_strict_export_agrees(name: str) -> None:
    variant = VARIANTS[name]
    module = Called(variant, variant.layer()).eval()
    inputs = variant.inputs()
    program = reloaded(export(module, inputs, strict=True))
    torch.testing.assert_close(tensors_of(program.module()(*inputs)), tensors_of(module(*inputs)))


@pytest.mark.fast("lengths")
@pytest.mark.parametrize(
    "name, strict", [("causal", False), ("grouped rotary", True), ("window", False), ("lengths", True)]
)
def test_sizes_may_be_dynamic(name: str, strict: bool) -> None:
    variant = VARIANTS[name]
    if name == "lengths":
        variant = Variant(lambda attn, x, n: attn(x, mask=mask.causal() & mask.lengths(n)))
    module = Called(variant, variant.layer()).eval()

    def inputs(batch: int, tokens: int) -> tuple[Tensor, ...]:
        lengths = (torch.randint(0, tokens + 1, (batch,)),) if name == "lengths" else ()
        return torch.randn(batch, tokens, WIDTH), *lengths

    batch, tokens = Dim("batch", min=2, max=64), Dim("tokens", min=2, max=4096)
    sizes: Any = ({0: batch, 1: tokens}, {0: batch})[: len(inputs(3, 5))]
    program = reloaded(export(module, inputs(3, TOKENS), dynamic_shapes=(sizes,), strict=strict))
    for rows, length in ((2, 3), (7, 31)):
        given = inputs(rows, length)
        torch.testing.assert_close(program.module()(*given), module(*given))


def test_learned_biases_are_fused_once_they_are_frozen() -> None:
    variant = VARIANTS["relative bias"]
    module = Called(variant, variant.layer()).eval()
    assert attention_calls(export(module, variant.inputs())) == 0
    inputs = variant.inputs()
    program = export(module.requires_grad_(False), inputs)
    assert attention_calls(program) == 1
    torch.testing.assert_close(program.module()(*inputs), module(*inputs))


def test_hidden_nan_stays_hidden() -> None:
    variant = VARIANTS["causal"]
    module = Called(variant, variant.layer()).eval()
    x = torch.randn(2, TOKENS, WIDTH)
    program = export(module, (x,))
    clean = module(x)
    x[:, 6] = torch.nan
    out = program.module()(x)
    torch.testing.assert_close(out[:, :6], clean[:, :6])
    assert out[:, 6:].isnan().all()
