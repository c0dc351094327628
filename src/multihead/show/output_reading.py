"""How the outputs of a model are compared: by tokens that it predicts, by classes, or by vectors.

>>> import torch
>>> from transformers import ViTConfig, ViTForImageClassification
>>> from multihead.model.forward import Forward
>>> from multihead.show.output_reading import OutputReading
>>> sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 16}
>>> model = ViTForImageClassification(ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=2)).eval()
>>> image = {"pixel_values": torch.ones(1, 3, 8, 8)}
>>> reading = OutputReading.of(Forward(model), image)
>>> reading.kind, reading.rows(model(**image)).shape, reading.labels(model, 2)
('classes', torch.Size([1, 2]), ['LABEL_0', 'LABEL_1'])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.two_texts import shifted_right
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.losses import LanguageModel, MaskedLanguageModel, tensor_in
from multihead.model.forward import Forward
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.pooling import pooling_of

Kind = Literal["next", "masked", "classes", "vector"]


@dataclass(frozen=True)
class OutputReading:
    """What of an output is compared, and which input has a token per row of it."""

    kind: Kind
    tokens: str | None
    """the input with the token ids; None of a model that reads other things"""
    tensor: str
    """the output that is compared"""

    @staticmethod
    def of(forward: Forward, inputs: Inputs, tokenizer: Any = None) -> OutputReading:
        """How a model is compared, by its outputs and its behaviour; it runs on `inputs`."""
        ids = inputs.get("input_ids")
        two = "decoder_input_ids" in inputs
        probe = inputs
        if isinstance(ids, Tensor) and ids.shape[1] == 1 and not two:
            probe = {"input_ids": ids.repeat(1, 2)}  # the second token tells whether the model looks ahead
        loss = loss_for(forward.model, probe, tokenizer)
        tokens = next((name for name in ("decoder_input_ids", "input_ids") if name in inputs), None)
        if isinstance(loss, LanguageModel):
            return OutputReading("next", tokens, "logits")
        if isinstance(loss, MaskedLanguageModel):
            return OutputReading("masked", tokens, "logits")
        output = forward(inputs)
        for name in ("logits", "last_hidden_state"):
            if isinstance(_entry(output, name), Tensor):
                classes = name == "logits" and _are_classes(forward.model, _entry(output, name))
                return OutputReading("classes" if classes else "vector", tokens, name)
        return OutputReading("vector", tokens, "output")

    def rows(self, output: Any) -> Float[Tensor, "row width"]:
        """The compared part: a row per token, or one row. Outputs with more axes, such as images, are one row."""
        values = tensor_in(output, self.tensor)[0].float().cpu()
        return values if values.ndim == 2 else values.reshape(1, -1)

    def probabilities(self, model: nn.Module, rows: Float[Tensor, "*row width"]) -> Float[Tensor, "*row width"]:
        """Of tokens or classes; classes that do not exclude each other have one each."""
        apart = getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification"
        return rows.sigmoid() if self.kind == "classes" and apart else rows.softmax(-1)

    def labels(self, model: nn.Module, count: int) -> list[str]:
        """The names of classes: those of the config, if it has one for each."""
        named: Any = getattr(getattr(model, "config", None), "id2label", None)
        if isinstance(named, Mapping) and len(named) == count and all(i in named for i in range(count)):
            return [str(named[i]) for i in range(count)]
        return [f"class {i}" for i in range(count)]

    def vector_name(self, model: nn.Module, rows: int) -> str:
        """What the compared vector is, in words."""
        names = {"logits": "logits", "last_hidden_state": "last hidden states", "output": "output"}
        pooled = rows > 1 and self.tensor != "logits"
        return names[self.tensor] + (f", {pooling_of(model)}-pooled" if pooled else "")


def _are_classes(model: nn.Module, logits: Tensor) -> bool:
    """Whether logits are of classes: several per document or token, and not one per token of the vocabulary."""
    width = logits.shape[-1]
    return logits.ndim <= 3 and 1 < width != getattr(getattr(model, "config", None), "vocab_size", None)


def complete_inputs(model: nn.Module, batch: Inputs) -> Inputs:
    """A batch whose outputs are read: without labels, with the decoder ids that an encoder–decoder derives."""
    inputs = {name: x for name, x in batch.items() if name != "labels"}
    derived = is_encoder_decoder(model) and "decoder_input_ids" not in batch
    labels = batch.get("labels", batch.get("input_ids"))
    if derived and isinstance(labels, Tensor) and hasattr(model, "prepare_decoder_input_ids_from_labels"):
        inputs["decoder_input_ids"] = shifted_right(model, labels)
    return inputs


def relative_change(before: Float[Tensor, " width"], after: Float[Tensor, " width"]) -> float:
    """‖after − before‖ / ‖before‖; 0 if both are 0."""
    size = before.norm().clamp_min(torch.finfo(before.dtype).tiny)
    return float((after - before).norm() / size)


def _entry(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
