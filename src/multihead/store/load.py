"""Load what `save` wrote: the structure from JSON, the weights from safetensors, nothing from pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from multihead._base.arguments import check_device_and_dtype, check_flag, check_instance, check_path
from multihead._base.json_files import read_json_object
from multihead.edit.surgery.record import attach
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.compiled import inner
from multihead.model.pooling import ATTRIBUTE as POOLING
from multihead.model.pooling import pooling_of
from multihead.store.example_outputs import example_outputs
from multihead.store.manifest import MANIFEST, Manifest
from multihead.store.replay import rebuild, replay
from multihead.store.skeleton import class_of, import_transformers, without_weights
from multihead.store.snapshot import BUFFERS
from multihead.store.tensors import DAMAGED, TensorIndex, assign_buffers, assign_tensors, damaged


def load(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> nn.Module:
    """Load the model that `mh.save` wrote to a folder, in eval mode, to the last bit.

    Args:
        folder: a folder that `mh.save` wrote; `mh.load_pretrained` reads others, too.
        model: for a class that transformers does not have: a new model of the *original* sizes, which is changed in
            place and returned.
        device: where the weights are put.
        dtype: of the weights. If None, as they were saved.
        trust_remote_code: run the Python code in the folder, if the model's class needs it.

    Returns:
        The model.

    Raises:
        MultiheadError: if the folder does not exist or was not written by `mh.save`, if a file is not the one that
            was saved (SHA-256), or if the model does not run on an example input.

    >>> import tempfile, multihead as mh
    >>> from pathlib import Path
    >>> model, _ = mh.embedded()
    >>> small = mh.cut(model, mh.plan(model, remove=["L0H2", "L2H0"]), refit=False)
    >>> with tempfile.TemporaryDirectory() as here:
    ...     _ = mh.save(small, Path(here) / "small")
    ...     same = mh.load(Path(here) / "small")
    >>> [layer.num_heads for layer in mh.anatomy(same)]
    [3, 4, 3]
    """
    _check(folder, model, device, dtype, trust_remote_code)
    path = Path(folder)
    _check_saved(path)
    manifest = Manifest.read(path)
    manifest.check_files(path)
    try:
        return _load(path, manifest, model, torch.device(device), dtype, trust_remote_code)
    except MultiheadError as error:
        versions = manifest.other_versions()
        if not versions:
            raise
        raise type(error)(f"{error.message} ({versions})", hint=error.hint) from error


def structure(folder: Path) -> nn.Module:
    """The model that was saved in a folder, without weights: of their file only the shapes are read."""
    manifest = Manifest.read(folder)
    return _built(folder, manifest, TensorIndex.of(folder, manifest.weights, manifest.shared), trust=False)


def _built(folder: Path, manifest: Manifest, index: TensorIndex, *, trust: bool) -> nn.Module:
    """The model to load weights into, built from its class."""
    if manifest.origin is None:
        raise MultiheadError(
            f"{folder} holds a model of class {manifest.model}, which transformers cannot build from a config",
            hint=f"build one of the original sizes and pass it: load(folder, model={manifest.model}(...))",
        )
    original_config = manifest.original_config(folder)
    cls = class_of(manifest.model, manifest.origin, original_config, folder, trust)
    return rebuild(cls, original_config, manifest.attention, manifest.cut, index.shapes)


def _load(
    folder: Path,
    manifest: Manifest,
    original: nn.Module | None,
    device: torch.device,
    dtype: torch.dtype | None,
    trust: bool,
) -> nn.Module:
    """Load weights, structure and record of a saved model."""
    index = TensorIndex.of(folder, manifest.weights, manifest.shared)
    if original is not None:
        model = without_weights(inner(original))
        replay(model, manifest.cut, index.shapes)
    else:
        model = _built(folder, manifest, index, trust=trust)
    assign_tensors(model, index.read(device, dtype), manifest.shared)
    if (folder / f"{BUFFERS}.safetensors").is_file():
        assign_buffers(model, TensorIndex.of(folder, BUFFERS).read(device))
    if hasattr(model, "generation_config") and (folder / "generation_config.json").is_file():
        model.generation_config = _generation_config(folder)
    if manifest.cut is not None:
        attach(model, manifest.cut)
    if manifest.pooling is not None:
        setattr(model, POOLING, tuple(manifest.pooling))
        pooling_of(model)  # raises if a mode is unknown
    config: Any = getattr(model, "config", None)
    if hasattr(config, "_name_or_path"):
        config._name_or_path = str(folder)  # as from_pretrained does
    model = model.to(device).eval()
    if manifest.runs:
        _check_runs(model, folder)
    return model


def _generation_config(folder: Path) -> Any:
    """The generation config of a loaded model."""
    file = folder / "generation_config.json"
    try:
        return import_transformers().GenerationConfig.from_dict(read_json_object(file, hint=DAMAGED))
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(file, str(error)) from error


def _check_runs(model: nn.Module, folder: Path) -> None:
    """Raise if a loaded module's sizes contradict its weights, which only a run shows."""
    try:
        example_outputs(model)
    except MultiheadError as error:
        raise SizeError(
            f"the {type(model).__name__} in {folder} has sizes that do not fit its weights: {error.message}",
            hint=f"{MANIFEST} or config.json was changed: copy or save the folder again",
        ) from error


def _check(folder: object, model: object, device: object, dtype: object, trust_remote_code: object) -> None:
    """Raise for wrong arguments of `load`."""
    check_path("folder", folder, "the path of a folder", hint="mh.load('smaller')")
    check_instance(
        "model", model, nn.Module | None, "a torch.nn.Module or None", hint="a new model of the original sizes"
    )
    check_instance("device", device, str | torch.device, "a device", hint="device='cpu'")
    check_device_and_dtype(device, dtype)
    if str(device).partition(":")[0] == "meta":
        raise MultiheadError(
            f"device must hold values, got {str(device)!r}: a model without weights is not the saved one",
            hint="device='cpu'",
        )
    if isinstance(dtype, torch.dtype) and dtype.itemsize < 2:
        raise TypeMismatchError(
            f"dtype must be one that models compute in, got {dtype}", hint="dtype=torch.float32, for example"
        )
    check_flag("trust_remote_code", trust_remote_code)


def _check_saved(folder: Path) -> None:
    """Raise unless `save` wrote the folder to load."""
    try:
        if (folder / MANIFEST).is_file():
            return
        message = f"there is no folder {folder}"
        if folder.exists():
            message = f"there is no {MANIFEST} in {folder}" if folder.is_dir() else f"{folder} is a file"
    except OSError as error:  # a name that is too long
        message = f"the folder {folder!s:.60} cannot be read: {error.strerror}"
    raise MultiheadError(
        message, hint="mh.load reads folders that mh.save wrote; for others use from_pretrained of transformers"
    )
