"""Golden values of captures, and of models run with interventions on their heads."""

from __future__ import annotations

import torch
from torch import Tensor

import multihead as mh
from golden.models import Model, load
from golden.record import Recorder


def capture(record: Recorder, name: str) -> None:
    """The attention map, queries, keys, values and output of every head."""
    model = load(name)
    with torch.no_grad(), mh.capture(model.module, statistics=None, keep="qk v outputs") as heads:
        _logits(model)
    for head in heads:
        record.tensor(f"{head.name}/map", head.weights())
        for what in (head.query, head.key, head.value, head.output):
            record.tensor(f"{head.name}/{what.__name__}", what())


def intervene(record: Recorder, name: str, layer: str) -> None:
    """Logits with one head ablated or patched from another run, and the gradients of all gates."""
    model = load(name)
    head = f"{layer}H1"
    with torch.no_grad():
        for how in ("zero", "mean", "uniform"):
            with mh.ablate(model.module, [head], replace=how):
                record.tensor(f"silence/{how}/logits", _logits(model))
        with mh.capture(model.module, statistics=None, keep="qk v outputs") as source:
            model.module(**_other(model))
        for what in ("output", "q", "k", "v"):
            with mh.patch(model.module, source, [head], what=what):
                record.tensor(f"patch/{what}/logits", _logits(model))
    with mh.gate(model.module) as gates:
        _logits(model).square().mean().backward()
        for head, gradient in gates.gradients().items():
            record.value(f"gate/{head}/gradient", gradient)


def _logits(model: Model) -> Tensor:
    return model.module(**model.batch).logits


def _other(model: Model) -> dict[str, Tensor]:
    """A batch of the same shape with other tokens."""
    return {name: x if "mask" in name else x.flip(0) for name, x in model.batch.items()}
