"""The tensors of a model as safetensors: each once, in files of a few GB, read back without pickle.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from multihead.store.tensors import TensorIndex, state_tensors, write_tensors
>>> state = state_tensors(torch.nn.Linear(3, 2))
>>> with tempfile.TemporaryDirectory() as folder:
...     write_tensors(state.tensors, Path(folder), "model")
...     TensorIndex.of(Path(folder), "model").shapes
{'bias': (2,), 'weight': (2, 3)}
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.json_files import read_json_object
from multihead.errors import MultiheadError, TypeMismatchError

MAX_FILE_BYTES = 4_000_000_000
DAMAGED = "copy or save the folder again"


def damaged(path: Path, reason: str, *, hint: str = DAMAGED) -> MultiheadError:
    """The error for a file that is not as it was saved."""
    return MultiheadError(f"{path} is damaged: {reason}", hint=hint)


# ---- out of a model ---------------------------------------------------------------------------


@dataclass(frozen=True)
class StateTensors:
    """Every tensor of a state dict once. `shared` maps the other names of tied weights to the stored one."""

    tensors: Mapping[str, Tensor]
    shared: Mapping[str, str]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """By every name, including those of tied weights."""
        stored = {name: tuple(t.shape) for name, t in self.tensors.items()}
        return stored | {name: stored[first] for name, first in self.shared.items()}

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in self.tensors.values())


def state_tensors(model: nn.Module) -> StateTensors:
    """The tensors of `model.state_dict()`; tied weights are the same object under two names."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, t in model.state_dict(keep_vars=True).items():
        if not isinstance(t, Tensor) or type(t) not in (Tensor, nn.Parameter, nn.Buffer):
            raise TypeMismatchError(
                f"{name} is a {type(t).__name__}, which safetensors cannot store",
                hint="save the model before quantizing it, and quantize it again after loading",
            )
        if t.is_meta:
            raise MultiheadError(f"{name} is on the meta device: it has no values", hint="load the weights first")
        if id(t) in first:
            shared[name] = first[id(t)]
        else:
            first[id(t)] = name
            tensors[name] = t.detach()
    return StateTensors(tensors, shared)


def non_persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers outside the state dict: tables that a model computes when it is built."""
    persistent = set(model.state_dict(keep_vars=True))
    return {name: b for name, b in model.named_buffers(remove_duplicate=False) if name not in persistent}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bytes: a NaN equals itself, and 0.0 is not -0.0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    one, other = (x.detach().cpu().contiguous().flatten().view(torch.uint8) for x in (a, b))
    return torch.equal(one, other)


# ---- into a model -----------------------------------------------------------------------------


def assign_tensors(model: nn.Module, tensors: Mapping[str, Tensor], shared: Mapping[str, str]) -> None:
    """Make these tensors the parameters and buffers of a model, without copying; tied weights become one."""
    old = model.state_dict(keep_vars=True)
    new = {
        name: nn.Parameter(t, requires_grad=t.is_floating_point()) if isinstance(old[name], nn.Parameter) else t
        for name, t in tensors.items()
    }
    model.load_state_dict(new | {name: new[first] for name, first in shared.items() if first in new}, assign=True)


def assign_buffers(model: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Replace non-persistent buffers by the stored tensors."""
    known = dict(model.named_buffers(remove_duplicate=False))
    for name, value in buffers.items():
        if name not in known:
            raise MultiheadError(
                f"{type(model).__name__} has no buffer {name}, which the folder holds", hint=DAMAGED
            )
        path, _, leaf = name.rpartition(".")
        model.get_submodule(path).register_buffer(leaf, value, persistent=False)


# ---- files ------------------------------------------------------------------------------------


def write_tensors(tensors: Mapping[str, Tensor], folder: Path, stem: str) -> None:
    """STEM.safetensors, or, above MAX_FILE_BYTES, numbered files and the index that transformers reads."""
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, t in sorted(tensors.items()):
        if files[-1] and size + t.nbytes > MAX_FILE_BYTES:
            files.append({})
            size = 0
        files[-1][name] = t
        size += t.nbytes
    if len(files) == 1:
        _write_file(files[0], folder / f"{stem}.safetensors")
        return
    weight_map: dict[str, str] = {}
    for i, part in enumerate(files, 1):
        file = f"{stem}-{i:05}-of-{len(files):05}.safetensors"
        _write_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write_file(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Write tensors to one safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: _separate(t) for name, t in tensors.items()}, file, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(None, str(error)) from error
    file.chmod(file.parent.stat().st_mode & 0o666)  # safetensors makes it readable by its owner only


def _separate(t: Tensor) -> Tensor:
    """On the CPU, contiguous, in a storage that it shares with no other tensor."""
    t = t.cpu().contiguous()
    return t if t.untyped_storage().nbytes() == t.nbytes else t.clone()


@dataclass(frozen=True)
class TensorIndex:
    """Names, shapes and files of the stored tensors, from the headers alone."""

    files: Mapping[str, Path]
    """tensor → its file"""
    shapes: Mapping[str, tuple[int, ...]]
    """by every name, including those of tied weights"""

    @staticmethod
    def of(folder: Path, stem: str, shared: Mapping[str, str] | None = None) -> TensorIndex:
        """The index of a folder's safetensors files; `shared` maps other names of tied weights to stored ones."""
        index = folder / f"{stem}.safetensors.index.json"
        names = sorted(set(_weight_map(index).values())) if index.is_file() else [f"{stem}.safetensors"]
        files: dict[str, Path] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name in names:
            with _open(folder / name, "cpu") as file:
                for key in file.keys():  # noqa: SIM118  not a dict
                    files[key] = folder / name
                    shapes[key] = tuple(file.get_slice(key).get_shape())
        tied = {name: shapes[first] for name, first in (shared or {}).items() if first in shapes}
        return TensorIndex(files, shapes | tied)

    def stream(self, device: torch.device) -> Generator[tuple[str, Tensor]]:
        """Each stored tensor with its name; a caller that keeps none needs the memory of one."""
        for path in sorted(set(self.files.values())):
            with _open(path, str(device)) as file:
                for key in file.keys():  # noqa: SIM118
                    yield key, file.get_tensor(key)

    def read(self, device: torch.device, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """All stored tensors; floating-point ones are converted to `dtype`."""
        return {
            name: t if dtype is None or not t.is_floating_point() else t.to(dtype)
            for name, t in self.stream(device)
        }


def _weight_map(index: Path) -> dict[str, str]:
    """{tensor: file} of a safetensors index; raises if it is damaged or leaves the folder."""
    try:
        data = read_json_object(index, hint=DAMAGED)["weight_map"]
        files = {str(name): str(file) for name, file in data.items()}
    except (KeyError, AttributeError) as error:
        raise damaged(index, repr(error)) from error
    outside = [file for file in files.values() if not re.fullmatch(r"[\w.-]+\.safetensors", file)]
    if outside:
        raise MultiheadError(
            f"{index} names {outside[0]!r}, which must be a safetensors file in its folder", hint=DAMAGED
        )
    return files


@contextmanager
def _open(path: Path, device: str) -> Generator[Any]:
    """Open a safetensors file; errors name it."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise MultiheadError(f"there is no {path.name} in {path.parent}", hint=DAMAGED)
    try:
        opened: Any = safe_open(path, framework="pt", device=device)
    except (SafetensorError, OSError) as error:
        raise damaged(path, str(error), hint=f"{DAMAGED}; pickle is never read") from error
    with opened as file:
        yield file
