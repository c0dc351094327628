"""multihead.json: how to rebuild a saved model, as JSON that is checked before it is used."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import torch

import multihead
from multihead._base.json_files import read_json_object
from multihead.edit.surgery.record import Record
from multihead.errors import MultiheadError
from multihead.store.tensors import DAMAGED, damaged

MANIFEST = "multihead.json"
FORMAT, VERSION = "multihead model", 2


@dataclass(frozen=True)
class Manifest:
    """The class of a model, its original config, the cut, its files."""

    model: str
    """the name of its class"""
    origin: str | None
    """where the class comes from (`skeleton.class_of`); None if `load` needs a model"""
    cut: Record | None
    weights: str
    """STEM of STEM.safetensors"""
    shared: Mapping[str, str]
    """names of tied weights → the name under which they are stored"""
    attention: str | None
    stock: bool
    """whether stock transformers loads the folder"""
    reason: str
    """why it does, or why not"""
    config: Mapping[str, Any] | None
    """the original config, if it is not the one in config.json"""
    pooling: list[str] | None
    """how an encoder's token vectors are pooled; None if by their mean"""
    runs: bool
    """whether the model ran on an example input; `load` runs it again"""
    versions: Mapping[str, str]
    checksums: Mapping[str, str] = field(default_factory=dict[str, str])
    """file → SHA-256"""

    def original_config(self, folder: Path) -> Mapping[str, Any]:
        return read_json_object(folder / "config.json", hint=DAMAGED) if self.config is None else self.config

    def write(self, folder: Path) -> None:
        """Write the manifest to a folder, with its own checksum."""
        data: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(self)}
        lines = [
            f"{_json(key)}: {_cut_lines(value) if key == 'cut' else _json(value)}" for key, value in data.items()
        ]
        checksum_of_all = _checksum_of(json.loads("{" + ",".join(lines) + "}"))
        lines.append(f'"checksum": {_json(checksum_of_all)}')
        (folder / MANIFEST).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a folder; raises if it is damaged or of a different version."""
        path = folder / MANIFEST
        data = read_json_object(path, hint=DAMAGED)
        if data.get("format") != FORMAT:
            raise MultiheadError(f"{path} does not describe a saved model", hint=DAMAGED)
        if data.get("version") != VERSION:
            raise _version_error(folder, data)
        stored = data.pop("checksum", None)
        if stored != _checksum_of(data):
            raise damaged(path, "its checksum does not fit its contents")
        for name, kinds in _KINDS.items():
            if not isinstance(data.get(name), kinds):
                raise damaged(path, f"{name} must be a {kinds[0].__name__}, got {data.get(name)!r}")
        for name in ("shared", "checksums"):
            if not all(isinstance(value, str) for value in data[name].values()):
                raise damaged(path, f"{name} must map names to texts")
        if data["weights"] not in ("model", "multihead"):
            raise damaged(path, f"weights must be model or multihead, got {data['weights']!r}")
        try:
            data["cut"] = None if data.get("cut") is None else Record.from_json(data["cut"])
        except MultiheadError as error:
            raise damaged(path, error.message) from error
        values: dict[str, Any] = {name: data.get(name) for name in _KINDS}
        return Manifest(**values)

    def check_files(self, folder: Path) -> None:
        """Raise unless every file has the checksum in the manifest."""
        for name, stored in self.checksums.items():
            path = folder / name
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise MultiheadError(f"{MANIFEST} names {name!r}, which must be inside {folder}", hint=DAMAGED)
            if not path.is_file():
                raise MultiheadError(f"there is no {name} in {folder}", hint=DAMAGED)
            if checksum(path) != stored:
                raise damaged(path, "it is not the file that was saved (SHA-256)")

    def other_versions(self) -> str:
        """The packages whose version differs from the manifest's, for messages."""
        current = package_versions()
        return ", ".join(
            f"saved with {name} {saved}, this is {current[name]}"
            for name, saved in self.versions.items()
            if name in current and current[name] != saved
        )


_NONE = type(None)
_KINDS: dict[str, tuple[type, ...]] = {
    "model": (str,), "origin": (str, _NONE), "cut": (dict, _NONE), "weights": (str,), "shared": (dict,),
    "attention": (str, _NONE), "stock": (bool,), "reason": (str,), "config": (dict, _NONE),
    "pooling": (list, _NONE), "runs": (bool,), "versions": (dict,), "checksums": (dict,),
}  # fmt: skip
"""the types of the fields in the file"""


def package_versions() -> dict[str, str]:
    """The versions of packages that a manifest names."""
    versions = {"multihead": multihead.__version__, "torch": str(torch.__version__)}
    with suppress(PackageNotFoundError):
        versions["transformers"] = version("transformers")
    return versions


def add_checksums(folder: Path) -> None:
    """Add the checksums of all other files in the folder to the manifest."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    checksums = {name: checksum(folder / name) for name in names if name != MANIFEST}
    replace(Manifest.read(folder), checksums=checksums).write(folder)


def checksum(path: Path) -> str:
    """SHA-256: `sha256sum` prints the same, and most processors have instructions for it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_of(data: Mapping[str, Any]) -> str:
    """Of data read from JSON, independent of its layout in the file."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _version_error(folder: Path, data: Mapping[str, Any]) -> MultiheadError:
    """The error for a manifest of a different version of the format."""
    stored, versions = data.get("version"), data.get("versions")
    by = f" (multihead {versions['multihead']})" if isinstance(versions, dict) and "multihead" in versions else ""
    newer = isinstance(stored, int) and stored > VERSION
    return MultiheadError(
        f"{folder} has version {stored!r} of the format{by}, this multihead reads version {VERSION}",
        hint="pip install -U multihead" if newer else "cut and save the model again with this multihead",
    )


# ---- JSON -------------------------------------------------------------------------------------


def _cut_lines(cut: Mapping[str, Any] | None) -> str:
    """The steps of a cut in the manifest, one per line."""
    if cut is None:
        return "null"
    steps = ",\n".join(f"  {_json(step)}" for step in cut["steps"])
    return f'{{\n "plan": {_json(cut["plan"])},\n "steps": [\n{steps}\n ]}}'


def _finite(x: Any) -> Any:
    """A value of the manifest without infinity and NaN, which JSON lacks: they become null."""
    if isinstance(x, float) and not math.isfinite(x):
        return None
    if isinstance(x, Mapping):
        return {key: _finite(value) for key, value in cast(Mapping[Any, Any], x).items()}
    return [_finite(value) for value in cast(list[Any], x)] if isinstance(x, list | tuple) else x


def _json(x: object) -> str:
    """A value of the manifest as JSON text."""
    try:
        return json.dumps(_finite(x), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MultiheadError(
            f"{MANIFEST} cannot hold this: {error}", hint="plans and steps must be JSON"
        ) from error
