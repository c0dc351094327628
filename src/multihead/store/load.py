"""Load what `save` wrote: the structure from plain data, the numbers from safetensors, nothing from pickle.

>>> import tempfile
>>> from pathlib import Path
>>> from transformers import BertConfig, BertModel
>>> import torch
>>> from multihead.store.load import load
>>> from multihead.store.save import save
>>> model = BertModel(BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=1, num_attention_heads=3))
>>> with tempfile.TemporaryDirectory() as here:
...     _ = save(model, Path(here) / "out")
...     same = load(Path(here) / "out")
>>> torch.equal(same.pooler.dense.weight, model.pooler.dense.weight), same.training
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.edit.surgery.record import NAME, Record
from multihead.edit.surgery.steps import apply
from multihead.errors import MultiheadError, SizeError
from multihead.model.compiled import inner
from multihead.store.manifest import MANIFEST, Manifest, check_steps, read_json
from multihead.store.skeleton import class_of, config_of, emptied, import_transformers, skeleton
from multihead.store.tensors import Contents

BUFFERS = "buffers"
"""BUFFERS.safetensors holds tables that a new model of this class would not compute alike, if there are any"""


def load(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> nn.Module:
    """The model that was saved in a folder, in eval mode, to the last bit.

    Args:
        model: for a class that transformers does not know: a new one of the *original's* sizes, which is changed
            in place and returned.
        dtype: of the weights; None: as they were saved.
        trust_remote_code: run the Python code in the folder, where the model's class is made by it.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        raise MultiheadError(
            f"there is no {MANIFEST} in {folder}" if folder.is_dir() else f"there is no folder {folder}",
            hint="mh.load reads what mh.save wrote; transformers' from_pretrained reads the rest",
        )
    manifest = Manifest.read(folder)
    contents = Contents.of(folder, manifest.weights)
    bare = _bare(folder, manifest, trust_remote_code) if model is None else emptied(inner(model))
    record = manifest.record()
    rebuild(bare, record, contents.shapes)
    fill(bare, contents.read(torch.device(device), dtype), manifest.shared)
    if (folder / f"{BUFFERS}.safetensors").is_file():
        put_buffers(bare, Contents.of(folder, BUFFERS).read(torch.device(device)))
    if hasattr(bare, "generation_config") and (folder / "generation_config.json").is_file():
        with suppress(OSError, ValueError):  # it says how to sample, and a default does too
            bare.generation_config = import_transformers().GenerationConfig.from_pretrained(folder)
    if record is not None:
        setattr(bare, NAME, record)
    return bare.to(device).eval()


def _bare(folder: Path, manifest: Manifest, trust: bool) -> nn.Module:
    """A new model of the original's sizes, without numbers."""
    if not manifest.known:
        raise MultiheadError(
            f"{folder} holds a {manifest.model}, which is no model of transformers",
            hint=f"build one of the original's sizes and pass it: load(folder, model={manifest.model}(...))",
        )
    data = read_json(folder / "config.json") if manifest.config is None else manifest.config
    cls = class_of(manifest.model, data, folder, trust)
    config = config_of(cls, data, f"the config in {folder}")
    return built(cls, config, manifest.attention)


def built(cls: type[nn.Module], config: Any, attention: str | None) -> nn.Module:
    """A new model of a class, without numbers, that attends as told."""
    if attention in ("eager", "sdpa"):
        config._attn_implementation = attention
    return skeleton(cls, config)


def rebuild(bare: nn.Module, record: Record | None, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give a model without numbers the structure that the cut one has."""
    steps = [] if record is None else record.steps
    check_steps(steps, shapes)
    try:
        apply(bare, steps)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as wrong:
        if isinstance(wrong, MultiheadError):
            raise
        raise MultiheadError(
            f"the steps in {MANIFEST} do not fit {type(bare).__name__}: {type(wrong).__name__}: {wrong}",
            hint="steps belong to the model that was cut: same class, same config",
        ) from wrong


def fill(bare: nn.Module, tensors: Mapping[str, Tensor], shared: Mapping[str, str]) -> None:
    """The stored tensors become the model's own, of their dtype; tied ones are one."""
    wanted = bare.state_dict(keep_vars=True)
    given = {
        name: nn.Parameter(t, requires_grad=t.is_floating_point())
        if isinstance(wanted.get(name), nn.Parameter)
        else t
        for name, t in tensors.items()
    }
    given |= {name: given[own] for name, own in shared.items() if own in given}
    missing, extra = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing or extra:
        raise MultiheadError(
            f"the weights do not fit {type(bare).__name__}: "
            + "; ".join(
                f"{what} {_some(names)}" for what, names in (("missing", missing), ("unknown", extra)) if names
            ),
            hint="the model must be of the class and the original sizes of the one that was saved",
        )
    for name, own in wanted.items():
        if own.shape != given[name].shape:
            raise SizeError(
                f"{name} of {type(bare).__name__} has shape {tuple(own.shape)}, "
                f"the stored one {tuple(given[name].shape)}",
                hint="the model must be of the class and the original sizes of the one that was saved",
            )
    bare.load_state_dict(given, assign=True)


def put_buffers(bare: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Buffers that no state dict holds."""
    for name, value in buffers.items():
        path, _, leaf = name.rpartition(".")
        with suppress(AttributeError):
            module = bare.get_submodule(path)
            if leaf in dict(module.named_buffers(recurse=False, remove_duplicate=False)):
                module.register_buffer(leaf, value, persistent=False)
                continue
        raise MultiheadError(f"{type(bare).__name__} has no buffer {name}, which the folder holds")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f", ... ({len(names)})" if len(names) > 3 else "")
