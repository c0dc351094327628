"""Everything that is saved of a model, collected once; formats write it and verify the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.edit.surgery.record import Record, record_of
from multihead.errors import MultiheadError
from multihead.model.pooling import Pooling, pooling_of
from multihead.store.example_outputs import example_outputs
from multihead.store.manifest import Manifest, package_versions
from multihead.store.replay import rebuild
from multihead.store.skeleton import origin_of
from multihead.store.tensors import (
    StateTensors,
    non_persistent_buffers,
    same_bits,
    state_tensors,
    write_tensors,
)

BUFFERS = "buffers"
"""BUFFERS.safetensors holds the buffers that a new model would not compute the same, if there are any"""


@dataclass(frozen=True)
class Snapshot:
    """A model and everything that is stored of it."""

    model: nn.Module
    state: StateTensors
    record: Record | None
    origin: str | None
    """of its class, if the model can be rebuilt from config, steps and weights; else None"""
    reason: str
    """why it cannot be rebuilt"""
    config: dict[str, Any] | None
    buffers: Mapping[str, Tensor]

    @staticmethod
    def of(model: nn.Module) -> Snapshot:
        """A snapshot of a model: its tensors, config, record, and whether it can be rebuilt."""
        state, record, origin = state_tensors(model), record_of(model), origin_of(model)
        config = None if origin is None else _config(model)
        computed: dict[str, Tensor] = {}
        reason = f"{type(model).__name__} is not a model of transformers"
        if config is not None:
            try:
                rebuilt = rebuild(type(model), config, attention_of(model), record, state.shapes)
                reason, computed = "", non_persistent_buffers(rebuilt)
            except MultiheadError as error:
                reason = error.message
        if reason:
            origin = None
        buffers = {
            name: b
            for name, b in non_persistent_buffers(model).items()
            if name not in computed or not same_bits(b, computed[name])
        }
        return Snapshot(model, state, record, origin, reason, config, buffers)

    @property
    def dtype(self) -> torch.dtype:
        return getattr(self.model, "dtype", torch.float32)

    @cached_property
    def outputs(self) -> list[Tensor] | None:
        """The outputs of the snapshot's model on an example input; None if no example input fits."""
        try:
            return example_outputs(self.model)
        except MultiheadError:
            return None

    def write(self, folder: Path, stem: str, config: Mapping[str, Any] | None, reason: str) -> None:
        """Write the snapshot: tensors, config.json (`config` for stock transformers) and the manifest."""
        shown = self.config if config is None else config
        if shown is not None:
            text = json.dumps(shown, indent=2, sort_keys=True) + "\n"
            (folder / "config.json").write_text(text, encoding="utf-8")
        write_tensors(self.state.tensors, folder, stem)
        pooling = pooling_of(self.model)
        if self.buffers:
            write_tensors(self.buffers, folder, BUFFERS)
        Manifest(
            model=type(self.model).__name__,
            origin=self.origin,
            cut=self.record,
            weights=stem,
            shared=self.state.shared,
            attention=attention_of(self.model),
            stock=config is not None,
            reason=reason,
            config=self.config if shown != self.config else None,
            pooling=None if pooling == Pooling() else list(pooling.modes),
            runs=self.outputs is not None,
            versions=package_versions(),
        ).write(folder)


def attention_of(model: nn.Module) -> str | None:
    return getattr(getattr(model, "config", None), "_attn_implementation", None)


def _config(model: nn.Module) -> dict[str, Any]:
    """The config as `save_pretrained` writes it, without changing the model's."""
    config: Any = model.config
    data: dict[str, Any] = json.loads(config.to_json_string())
    data["architectures"] = [type(model).__name__]
    data["dtype"] = str(getattr(model, "dtype", torch.float32)).removeprefix("torch.")
    return dict(sorted(data.items()))
