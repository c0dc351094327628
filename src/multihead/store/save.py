"""Save a model, cut or not: safetensors, its config, and multihead.json, which says how to rebuild it.

If stock transformers can express the cut, `from_pretrained` loads the folder without multihead (`Saved.stock`).
Else the weights are in multihead.safetensors, which only `mh.load` reads. Either way the folder is reloaded and
compared with the model before it gets its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

from torch import nn

from multihead._base.arguments import check_flag, check_model, check_path, describe
from multihead._base.atomic_dir import atomic_dir, check_target
from multihead.errors import MultiheadError, TypeMismatchError
from multihead.model.compiled import inner
from multihead.store.aux_files import copy_aux_files, modules
from multihead.store.formats.custom import CustomFormat
from multihead.store.formats.sentence import SentenceFormat
from multihead.store.formats.stock import StockFormat
from multihead.store.manifest import add_checksums
from multihead.store.snapshot import Snapshot
from multihead.store.tensors import state_tensors

MODEL_FILES = ("multihead.json", "config.json", "modules.json")
"""A folder with one of these is a model's, and `force` may replace it."""
_AUX_BYTES = 64_000_000
"""space for the other files, mostly tokenizers"""


@runtime_checkable
class Format(Protocol):
    """A way to store a model. `can` and `verify` return a reason if they fail, else None."""

    def can(self) -> str | None: ...
    def write(self, folder: Path) -> None: ...
    def verify(self, folder: Path) -> str | None: ...


@dataclass(frozen=True)
class Saved:
    """Where a model is stored, and whether stock transformers loads it."""

    folder: Path
    stock: bool
    reason: str
    """why stock transformers loads it, or why not"""
    verified: str
    """the part compared after reloading: tensors and outputs; only tensors if the model cannot be rebuilt or run"""

    def __str__(self) -> str:
        return f"{self.folder}: {self.reason} (reloaded: same {self.verified})"


def save(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: Any = None,
    source: str | Path | None = None,
    force: bool = False,
) -> Saved:
    """Write a model to a folder, completely or not at all, and compare the reloaded model with it.

    Args:
        folder: the folder to write. If stock transformers can express the cut, `from_pretrained` loads it.
        tokenizer: saved with the model.
        source: the folder that the model was loaded from: its tokenizer, generation config and, for a
            sentence-transformers folder, its further modules are copied.
        force: replace an existing folder; it is kept until the new one is complete.

    Returns:
        A `Saved`: `saved.stock` is True if stock transformers loads the folder, `saved.reason` is why or why not.

    Raises:
        MultiheadError: if the folder exists and `force` is False, the disk is full, or the reloaded model differs.

    >>> import tempfile, multihead as mh
    >>> from pathlib import Path
    >>> model, tokenizer = mh.embedded()
    >>> small = mh.cut(model, mh.plan(model, remove=["L0H2", "L2H0"]), refit=False)
    >>> with tempfile.TemporaryDirectory() as here:
    ...     saved = mh.save(small, Path(here) / "small", tokenizer=tokenizer)
    >>> saved.stock, saved.verified
    (False, 'tensors and outputs')
    """
    check_model(model)
    _check(folder, tokenizer, source, force)
    root, target = inner(model), Path(folder)
    with atomic_dir(target, force=force, marks=MODEL_FILES, need=state_tensors(root).bytes + _AUX_BYTES) as part:
        saved = write_model(root, part, tokenizer=tokenizer, source=None if source is None else Path(source))
    return replace(saved, folder=target)


def check_folder(folder: Path, force: bool) -> None:
    """Raise unless `save` can write to this folder: before long work."""
    check_target(folder, force, MODEL_FILES)
    existing = next(above for above in folder.absolute().parents if above.exists())
    try:
        with TemporaryDirectory(dir=existing, prefix=".multihead"):
            pass
    except OSError as error:
        raise MultiheadError(
            f"nothing can be written to {existing}: {error.strerror}", hint="choose a different folder"
        ) from error


def write_model(model: nn.Module, folder: Path, *, tokenizer: Any = None, source: Path | None = None) -> Saved:
    """Write a model into an existing folder."""
    snapshot = Snapshot.of(model)
    if source is not None:
        copy_aux_files(source, folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    generation: Any = getattr(model, "generation_config", None)
    if generation is not None:
        generation.save_pretrained(folder)
    stock = StockFormat(snapshot)
    obstacle = _write_verified(stock, folder)
    if obstacle is not None:
        _require_equal(model, _write_verified(CustomFormat(snapshot, obstacle), folder))
    if source is not None and modules(source):
        sentence = SentenceFormat(source, stock=obstacle is None)
        if (reason := sentence.can()) is not None:
            raise MultiheadError(reason, hint="save without source, and put the folder together by hand")
        _require_equal(model, _write_verified(sentence, folder))
    add_checksums(folder)
    complete = snapshot.origin is not None and snapshot.outputs is not None
    return Saved(
        folder,
        obstacle is None,
        stock.reason if obstacle is None else obstacle,
        "tensors and outputs" if complete else "tensors",
    )


def _write_verified(form: Format, folder: Path) -> str | None:
    """Save in one format and verify it; if that fails, return why, and remove its files."""
    obstacle = form.can()
    if obstacle is not None:
        return obstacle
    before = set(folder.iterdir())
    form.write(folder)
    obstacle = form.verify(folder)
    if obstacle is not None:
        for path in set(folder.iterdir()) - before:
            path.unlink()
    return obstacle


def _require_equal(model: nn.Module, difference: str | None) -> None:
    """Raise if the saved model differs from the one in memory."""
    if difference is not None:
        raise MultiheadError(
            f"the saved {type(model).__name__} is not the one in memory, so it is not kept: {difference}",
            hint="config, cuts and weights are saved: save outside of mh.ablate, mh.gate and mh.patch, and undo "
            "changes of the model's code and attributes",
        )


def _check(folder: object, tokenizer: object, source: object, force: object) -> None:
    """Raise for wrong arguments of `save`."""
    check_path("folder", folder, "the path of a folder", hint="mh.save(model, 'smaller')")
    if not str(folder) or "\0" in str(folder):
        raise MultiheadError(
            f"folder must not be empty or hold a null character, got {str(folder)!r}", hint="choose a name"
        )
    if source is not None:
        check_path("source", source, "the path of a folder or None", hint="source='path/to/original'")
    check_flag("force", force)
    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise TypeMismatchError(
            f"tokenizer must have save_pretrained, got {describe(tokenizer)}",
            hint="AutoTokenizer.from_pretrained(name)",
        )
