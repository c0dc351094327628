"""The tensors of a model as safetensors: each once, in files of a few GB, read back without pickle.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from multihead.store.tensors import Contents, held, write
>>> contents = held(torch.nn.Linear(3, 2))
>>> with tempfile.TemporaryDirectory() as folder:
...     write(contents.tensors, Path(folder), "model")
...     Contents.of(Path(folder), "model").shapes
{'bias': (2,), 'weight': (2, 3)}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.atomic_files import umask
from multihead.errors import MultiheadError, TypeMismatchError

LARGEST = 4_000_000_000
"""bytes of one file"""


# ---- out of a model ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """Every tensor of a model once; `shared` says under which other names some are known."""

    tensors: Mapping[str, Tensor]
    shared: Mapping[str, str]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """By every name, those of tied weights included."""
        own = {name: tuple(t.shape) for name, t in self.tensors.items()}
        return own | {name: own[of] for name, of in self.shared.items()}

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in self.tensors.values())


def held(model: nn.Module) -> Held:
    """What `model.state_dict()` holds; tied weights are told by being the same object."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, t in model.state_dict(keep_vars=True).items():
        if not isinstance(t, Tensor) or type(t) not in (Tensor, nn.Parameter, nn.Buffer):
            raise TypeMismatchError(
                f"{name} is a {type(t).__name__}, which has no place in a safetensors file",
                hint="quantize the model again after loading it, save it before",
            )
        if t.is_meta:
            raise MultiheadError(f"{name} is on the meta device: it has no numbers", hint="load the weights first")
        if id(t) in first:
            shared[name] = first[id(t)]
        else:
            first[id(t)] = name
            tensors[name] = t.detach()
    return Held(tensors, shared)


def temporary_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that a state dict leaves out: tables that a model computes as it is built."""
    kept = set(model.state_dict(keep_vars=True))
    return {name: b for name, b in model.named_buffers(remove_duplicate=False) if name not in kept}


# ---- files ------------------------------------------------------------------------------------


def write(tensors: Mapping[str, Tensor], folder: Path, stem: str) -> None:
    """STEM.safetensors, or, above LARGEST bytes, numbered files and the index that transformers reads."""
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, t in sorted(tensors.items()):
        if files[-1] and size + t.nbytes > LARGEST:
            files.append({})
            size = 0
        files[-1][name] = t
        size += t.nbytes
    if len(files) == 1:
        _write(files[0], folder / f"{stem}.safetensors")
        return
    where: dict[str, str] = {}
    for i, part in enumerate(files, 1):
        file = f"{stem}-{i:05}-of-{len(files):05}.safetensors"
        _write(part, folder / file)
        where |= dict.fromkeys(part, file)
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write(tensors: Mapping[str, Tensor], file: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: _alone(t) for name, t in tensors.items()}, file, metadata={"format": "pt"})
    except SafetensorError as failed:
        raise OSError(None, str(failed)) from failed
    file.chmod(0o666 & ~umask())  # it is written for its owner only


def _alone(t: Tensor) -> Tensor:
    """On the CPU, in one piece, with memory of its own."""
    t = t.cpu().contiguous()
    return t if t.untyped_storage().nbytes() == t.nbytes else t.clone()


@dataclass(frozen=True)
class Contents:
    """What the safetensors of a folder hold, by their headers; nothing else is read yet."""

    files: Mapping[str, Path]
    """tensor → its file"""
    shapes: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(folder: Path, stem: str) -> Contents:
        index = folder / f"{stem}.safetensors.index.json"
        if index.is_file():
            names = sorted(set(_weight_map(index).values()))
        else:
            names = [f"{stem}.safetensors"]
        files: dict[str, Path] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name in names:
            path = folder / name
            with _opened(path, "cpu") as file:
                for key in file.keys():  # noqa: SIM118  it is no dict
                    files[key] = path
                    shapes[key] = tuple(file.get_slice(key).get_shape())
        return Contents(files, shapes)

    def read(self, device: torch.device, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """All of them; `dtype` is for those of floating point."""
        found: dict[str, Tensor] = {}
        for path in sorted(set(self.files.values())):
            with _opened(path, str(device)) as file:
                for key in file.keys():  # noqa: SIM118
                    t: Tensor = file.get_tensor(key)
                    found[key] = t if dtype is None or not t.is_floating_point() else t.to(dtype)
        return found


def _weight_map(index: Path) -> dict[str, str]:
    try:
        where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = {str(name): str(file) for name, file in where.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as wrong:
        raise MultiheadError(f"{index} is damaged: {wrong!r}", hint="copy or save the folder again") from wrong
    outside = [file for file in files.values() if not re.fullmatch(r"[\w.-]+\.safetensors", file)]
    if outside:
        raise MultiheadError(f"{index} names {outside[0]!r}, which is no safetensors file of its folder")
    return files


class _opened:
    """safe_open, whose errors say which file it was."""

    def __init__(self, path: Path, device: str) -> None:
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            raise MultiheadError(f"there is no {path.name} in {path.parent}", hint="copy or save the folder again")
        try:
            self._file: Any = safe_open(path, framework="pt", device=device)
        except (SafetensorError, OSError) as wrong:
            raise MultiheadError(
                f"{path} is damaged: {wrong}", hint="copy or save the folder again; pickle is never read"
            ) from wrong

    def __enter__(self) -> Any:
        return self._file.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)
