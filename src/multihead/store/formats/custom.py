"""multihead's own format: any cut of any model. `mh.load` reads it.

The weights are called multihead.safetensors: no other reader takes them for those of the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from multihead.errors import MultiheadError
from multihead.store.example_outputs import difference, example_outputs
from multihead.store.manifest import Manifest
from multihead.store.replay import rebuild
from multihead.store.snapshot import BUFFERS, Snapshot
from multihead.store.tensors import (
    TensorIndex,
    assign_buffers,
    assign_tensors,
    non_persistent_buffers,
    same_bits,
)


@dataclass(frozen=True)
class CustomFormat:
    """The original's config, the tensors, and multihead.json with the steps of the cut."""

    snapshot: Snapshot
    reason: str
    """why stock transformers does not load the model"""

    def can(self) -> str | None:
        return None

    def write(self, folder: Path) -> None:
        self.snapshot.write(folder, "multihead", None, self.reason)

    def verify(self, folder: Path) -> str | None:
        return verify_reload(self.snapshot, folder)


def verify_reload(snapshot: Snapshot, folder: Path) -> str | None:
    """How the model in a folder differs from the one in memory; None if it does not.

    Stored tensors are read one at a time and compared bit by bit. Then the model is rebuilt from the files, as in
    `load`, and runs on an example input with the tensors in memory, which equal the stored ones. So a check takes
    the memory of one tensor, not of a second model.

    Of a class that `load` cannot rebuild, only the tensors are compared.
    """
    try:
        manifest = Manifest.read(folder)
        index = TensorIndex.of(folder, manifest.weights, manifest.shared)
        return _tensor_difference(snapshot, index) or _model_difference(snapshot, manifest, index, folder)
    except MultiheadError as error:
        return f"it cannot be loaded again: {error.message}"


def _tensor_difference(snapshot: Snapshot, index: TensorIndex) -> str | None:
    """How the reloaded tensors differ from the saved ones; None if they are identical."""
    tensors = snapshot.state.tensors
    if index.files.keys() != tensors.keys():
        return f"the file lacks {min(tensors.keys() ^ index.files.keys())}, or has it in excess"
    for name, stored in index.stream(torch.device("cpu")):
        if not same_bits(stored, tensors[name]):
            return f"the stored {name} differs"
    return None


def _model_difference(snapshot: Snapshot, manifest: Manifest, index: TensorIndex, folder: Path) -> str | None:
    """How the model rebuilt from the saved files differs from the one in memory; None if it does not."""
    if manifest.origin is None:
        return None
    config = manifest.original_config(folder)
    model = rebuild(type(snapshot.model), config, manifest.attention, manifest.cut, index.shapes)
    assign_tensors(model, snapshot.state.tensors, manifest.shared)
    if snapshot.buffers:
        assign_buffers(model, TensorIndex.of(folder, BUFFERS).read(torch.device("cpu")))
    buffers, rebuilt = non_persistent_buffers(snapshot.model), non_persistent_buffers(model)
    if (name := _differs(buffers, rebuilt)) is not None:
        return f"the buffer {name} differs"
    if snapshot.outputs is None:
        return None
    device = next((t.device for t in snapshot.state.tensors.values()), torch.device("cpu"))
    return difference(snapshot.outputs, example_outputs(model.to(device)), snapshot.dtype)


def _differs(a: dict[str, Tensor], b: dict[str, Tensor]) -> str | None:
    """The first name whose reloaded tensor is missing on one side, or has different bits."""
    return next(
        (n for n in sorted(a.keys() | b.keys()) if n not in a or n not in b or not same_bits(a[n], b[n])), None
    )
