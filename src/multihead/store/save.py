"""Save a model, cut or not: safetensors, its config, and multihead.json, which says how to build it again.

Where stock transformers can express what was cut, the folder is an ordinary one that `from_pretrained` loads with
no multihead installed (`Saved.plain`). Else its weights are called multihead.safetensors, so that no other reader
takes them for the original's.

>>> import tempfile
>>> from pathlib import Path
>>> from transformers import BertConfig, BertModel
>>> from multihead.store.save import save
>>> model = BertModel(BertConfig(vocab_size=50, hidden_size=24, num_hidden_layers=1, num_attention_heads=3))
>>> with tempfile.TemporaryDirectory() as here:
...     saved = save(model, Path(here) / "out")
...     sorted(p.name for p in saved.folder.iterdir())
['config.json', 'model.safetensors', 'multihead.json']
>>> saved.plain
True
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multihead
from multihead.edit.surgery.record import Record, record_of
from multihead.errors import MultiheadError
from multihead.model.compiled import inner
from multihead.store.companions import copy_companions
from multihead.store.folder import written
from multihead.store.load import BUFFERS, built, rebuild
from multihead.store.manifest import Manifest
from multihead.store.plain import Plain, plain, proven
from multihead.store.sentence import adapt
from multihead.store.skeleton import config_of, import_transformers, is_known
from multihead.store.tensors import Held, held, temporary_buffers, write

_SPARE = 64_000_000
"""bytes for what is not weights: tokenizers, mostly"""


@dataclass(frozen=True)
class Saved:
    """Where a model is now, and whether stock transformers loads it; `why` says why it does not."""

    folder: Path
    plain: bool
    why: str

    def __str__(self) -> str:
        return f"{self.folder}: {self.why}"


def save(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: Any = None,
    source: str | Path | None = None,
    force: bool = False,
) -> Saved:
    """Write a model to a folder, all of it or nothing.

    Args:
        tokenizer: written along.
        source: the folder that the model came from: its tokenizer, generation config and, for a
            sentence-transformers folder, its other modules are copied along.
        force: replace a folder that exists; it stays until the new one is complete.
    """
    root, target = inner(model), Path(folder)
    with written(target, force=force, need=held(root).bytes + _SPARE) as part:
        found = put(root, part, tokenizer=tokenizer, source=None if source is None else Path(source))
    return Saved(target, found.config is not None, found.why)


def put(root: nn.Module, part: Path, *, tokenizer: Any = None, source: Path | None = None) -> Plain:
    """Fill a folder that exists."""
    contents, record = held(root), record_of(root)
    config = _config(root) if is_known(root) else None
    bare, misfit = _again(root, config, record, contents)
    if source is not None:
        copy_companions(source, part)
    if tokenizer is not None:
        tokenizer.save_pretrained(part)
    generation: Any = getattr(root, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(part)
    _write_buffers(root, bare, part)
    found = Plain(type(root).__name__, None, misfit)
    if bare is not None and config is not None:
        found = plain(root, config, contents.shapes, [] if record is None else record.steps)
    found = _write_weights(root, contents, config, found, part)
    Manifest(
        model=type(root).__name__,
        known=bare is not None,
        cut=None if record is None else record.to_json(),
        weights="multihead" if found.config is None else "model",
        shared=contents.shared,
        attention=getattr(getattr(root, "config", None), "_attn_implementation", None),
        plain=found.config is not None,
        why=found.why,
        config=config if found.config not in (None, config) else None,
        versions=_versions(),
    ).write(part)
    adapt(part, found.config is not None)
    return found


def _config(root: nn.Module) -> dict[str, Any]:
    """The config as `save_pretrained` would write it, without changing the model's."""
    own: Any = root.config
    data: dict[str, Any] = json.loads(own.to_json_string())
    data["architectures"] = [type(root).__name__]
    data["dtype"] = str(getattr(root, "dtype", torch.float32)).removeprefix("torch.")
    return dict(sorted(data.items()))


def _again(
    root: nn.Module, config: dict[str, Any] | None, record: Record | None, contents: Held
) -> tuple[nn.Module | None, str]:
    """What `load` will build, without numbers; or why it cannot be built from a config."""
    if config is None:
        return None, f"{type(root).__name__} is no model of transformers"
    attention = getattr(root.config, "_attn_implementation", None)
    try:
        bare = built(type(root), config_of(type(root), config, "config.json"), attention)
        rebuild(bare, record, contents.shapes)
    except MultiheadError as failed:
        return None, failed.message
    own = {name: tuple(t.shape) for name, t in bare.state_dict(keep_vars=True).items()}
    shapes = contents.shapes
    for name in sorted(own.keys() | shapes.keys()):
        if own.get(name) != shapes.get(name):
            return None, (
                f"{type(root).__name__} was changed by other hands: by its config and its cuts it would have "
                f"{name} {own.get(name, 'nowhere')}, it has it {shapes.get(name, 'nowhere')}"
            )
    return bare, ""


def _write_buffers(root: nn.Module, bare: nn.Module | None, part: Path) -> None:
    """Tables that a new model would not compute alike: of another dtype, changed by hand, of an unknown class."""
    fresh = {} if bare is None else temporary_buffers(bare)
    own = temporary_buffers(root)
    other = {name: t for name, t in own.items() if name not in fresh or not _same(t, fresh[name])}
    if other:
        write(other, part, BUFFERS)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu(), b.cpu())


def _write_weights(
    root: nn.Module, contents: Held, config: dict[str, Any] | None, found: Plain, part: Path
) -> Plain:
    """config.json and the weights, for stock transformers if it is proven to load them, else for us."""
    if found.config is not None:
        _write_config(found.config, part)
        write(contents.tensors, part, "model")
        wrong = proven(part, found.model, root)
        if wrong is None:
            return found
        for file in part.glob("model*.safetensors*"):
            file.unlink()
        found = Plain(found.model, None, wrong)
    if config is not None:
        _write_config(config, part)
    write(contents.tensors, part, "multihead")
    return found


def _write_config(config: dict[str, Any], part: Path) -> None:
    (part / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    found = {"multihead": multihead.__version__, "torch": torch.__version__}
    with suppress(MultiheadError):
        found["transformers"] = import_transformers().__version__
    return found
