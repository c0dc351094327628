"""A cut model leaves PyTorch: exported to ONNX, onnxruntime computes what the cut model does."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.surgery.install import install
from multihead.model.head_weights import HeadWeights
from multihead.store.load import load
from multihead.store.save import save
from zoo import ZOO

onnx = import_module("onnx")
onnxruntime = import_module("onnxruntime")
import_module("onnxscript")


class Called(nn.Module):
    """ids and a mask in, the first output out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        made: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
        return made


def cut(model: nn.Module, keep: dict[int, list[int]]) -> nn.Module:
    for i, layer in enumerate(mh.anatomy(model)):
        own = HeadWeights.of(layer)
        install(model, layer, own.keep(keep.get(i, list(range(own.heads)))))
    return model


def exported(model: nn.Module, inputs: tuple[Tensor, ...], file: Path, opset: int) -> Any:
    batch, tokens = torch.export.Dim("batch", min=1), torch.export.Dim("tokens", min=2)
    logging.disable(logging.WARNING)  # torchvision is not there, says the exporter for each of its operators
    try:
        program = torch.onnx.export(
            Called(model).eval().requires_grad_(False), inputs, dynamo=True, opset_version=opset, verbose=False,
            dynamic_shapes=({0: batch, 1: tokens},) * 2,
        )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    program.save(str(file))
    onnx.checker.check_model(str(file))
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def run(session: Any, inputs: tuple[Tensor, ...]) -> Tensor:
    feeds = {given.name: t.numpy() for given, t in zip(session.get_inputs(), inputs, strict=True)}
    return torch.from_numpy(session.run(None, feeds)[0])


def padded(vocabulary: int, batch: int, tokens: int, kept: int) -> tuple[Tensor, Tensor]:
    """The first row is whole, the others have padding behind `kept` tokens."""
    draw = torch.Generator().manual_seed(batch * tokens)
    mask = (torch.arange(tokens) < torch.tensor([[tokens]] + [[kept]] * (batch - 1))).long()
    return torch.randint(5, vocabulary, (batch, tokens), generator=draw), mask


def assert_exported(model: nn.Module, file: Path, vocabulary: int, opset: int = 23) -> None:
    """The exported model computes the same, for the batch that it was exported with and for a larger one."""
    made = padded(vocabulary, 2, 11, 6)
    session = exported(model, made, file, opset)
    for inputs in (made, padded(vocabulary, 3, 17, 5)):
        with torch.no_grad():
            expected = Called(model)(*inputs)
        real = inputs[1].bool()
        torch.testing.assert_close(run(session, inputs)[real], expected[real], rtol=1e-4, atol=1e-4)


def test_gpt2(tmp_path: Path) -> None:
    assert_exported(cut(ZOO["gpt2"].build(), {1: [0, 2]}), tmp_path / "model.onnx", 101)


def test_llama_with_uneven_groups(tmp_path: Path) -> None:
    """Opset 23 has a RotaryEmbedding, whose kernel in onnxruntime wants angles for every row of a batch.

    Exported LLaMAs have them once, cut or not: they run with opset 22.
    """
    assert_exported(
        cut(ZOO["llama"].build(), {0: [0, 1, 2], 1: [0, 3, 4, 5]}), tmp_path / "model.onnx", 101, opset=22
    )


def test_cut_unevenly_and_loaded_again(tmp_path: Path) -> None:
    """Every layer of a BERT has a different number of heads."""
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 3, "num_attention_heads": 12, "hidden_size": 60, "intermediate_size": 31}
    whole = BertModel(BertConfig(vocab_size=101, max_position_embeddings=37, initializer_range=0.3, **sizes)).eval()
    save(cut(whole, {i: list(range(i, 12 - i % 3)) for i in range(3)}), tmp_path / "small")
    model = load(tmp_path / "small")
    assert [layer.num_heads for layer in mh.anatomy(model)] == [12, 10, 8]
    assert_exported(model, tmp_path / "model.onnx", 101)


def test_a_layer_without_heads(tmp_path: Path) -> None:
    assert_exported(cut(ZOO["bert"].build(), {1: []}), tmp_path / "model.onnx", 101)
