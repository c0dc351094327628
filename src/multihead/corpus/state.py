"""Save the state of a pass as one safetensors file with a checksum; everything but tensors is stored as JSON.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from multihead.corpus.state import load_state, save_state
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "state.safetensors"
...     save_state(file, {"done": 3, "sums": [torch.tensor([1.0, 2.0]), None]})
...     load_state(file)
{'done': 3, 'sums': [tensor([1., 2.]), None]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from multihead._base.atomic_files import write_atomically
from multihead.errors import MultiheadError, TypeMismatchError

KEY, SUM = "multihead state", "multihead sha256"
_TENSOR = "$tensor"
_NO_SUM = "0" * 64
_AGAIN = "start again with force=True"


class DamagedError(MultiheadError):
    """A state whose bytes are not the bytes that were written."""


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of tensors, numbers, strings, bools and None, atomically."""
    write_atomically(path, pack(state))


def load_state(path: Path) -> dict[str, Any]:
    """Read a state written by `save_state`; tuples become lists."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error}", hint=_AGAIN) from error
    return unpack(data, str(path))


def pack(state: Mapping[str, Any]) -> bytes:
    """The state as bytes with a checksum over all of them, for a file or another process."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _extract_tensors(state, tensors, "state")
    data = save(tensors, metadata={KEY: json.dumps(plain), SUM: _NO_SUM})
    return _with_checksum(data, _NO_SUM, sha256(data).hexdigest())


def unpack(data: bytes, place: str) -> dict[str, Any]:
    """The state packed by `pack`; `place` names its origin in errors."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        size = int.from_bytes(data[:8], "little")
        about: dict[str, str] = json.loads(data[8 : 8 + size]).get("__metadata__", {}) if size < len(data) else {}
        tensors = load(data)
    except (SafetensorError, ValueError, AttributeError) as error:
        raise DamagedError(f"{place} cannot be read: {error}", hint=_AGAIN) from error
    if KEY not in about or SUM not in about:
        raise DamagedError(f"{place} is not the state of a run", hint=_AGAIN)
    stored, actual = about[SUM], sha256(_with_checksum(data, about[SUM], _NO_SUM)).hexdigest()
    if actual != stored:
        raise DamagedError(f"{place} is damaged: its checksum is {actual[:8]}…, not {stored[:8]}…", hint=_AGAIN)
    return _insert_tensors(json.loads(about[KEY]), tensors)


def _with_checksum(data: bytes, old: str, new: str) -> bytes:
    """The bytes with a different checksum. No other match is possible: inside JSON strings quotes are escaped."""
    return data.replace(f'"{SUM}":"{old}"'.encode(), f'"{SUM}":"{new}"'.encode(), 1)


def _extract_tensors(x: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """The state x with every tensor moved to `tensors` and replaced by its name."""
    if isinstance(x, Tensor):
        name = str(len(tensors))
        tensors[name] = x.detach().cpu().contiguous().clone()  # safetensors refuses tensors that share memory
        return {_TENSOR: name}
    if isinstance(x, Mapping):
        items = cast(Mapping[Any, Any], x).items()
        bad_key = next((k for k, _ in items if not isinstance(k, str) or k == _TENSOR), None)
        if bad_key is not None:
            raise TypeMismatchError(
                f"keys of {place} must be strings other than {_TENSOR!r}, got {bad_key!r}", hint="rename the key"
            )
        return {k: _extract_tensors(v, tensors, f"{place}[{k!r}]") for k, v in items}
    if isinstance(x, list | tuple):
        return [_extract_tensors(v, tensors, f"{place}[{i}]") for i, v in enumerate(cast(list[Any], x))]
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeMismatchError(
        f"{place} must be a tensor, number, string, bool or None, or a dict or list of these, got a "
        f"{type(x).__name__}",
        hint="convert it to tensors and plain data",
    )


def _insert_tensors(x: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state with its tensors, the inverse of `_extract_tensors`."""
    if isinstance(x, dict):
        items = cast(dict[str, Any], x)
        if _TENSOR in items:
            return tensors[items[_TENSOR]]
        return {k: _insert_tensors(v, tensors) for k, v in items.items()}
    return [_insert_tensors(v, tensors) for v in cast(list[Any], x)] if isinstance(x, list) else x
