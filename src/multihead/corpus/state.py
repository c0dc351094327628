"""The state of a pass as one safetensors file with a checksum: tensors as they are, everything around them as JSON.

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
_AGAIN = "start again with --force"


class DamagedError(MultiheadError):
    """A state whose bytes are not those that were written."""


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of tensors, numbers, strings, bools and None, at once or not at all."""
    write_atomically(path, pack(state))


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote; tuples come back as lists."""
    try:
        data = path.read_bytes()
    except OSError as wrong:
        raise DamagedError(f"{path} cannot be read: {wrong}", hint=_AGAIN) from wrong
    return unpack(data, str(path))


def pack(state: Mapping[str, Any]) -> bytes:
    """The state as bytes, with a checksum of all of them: what goes to a file, or to another process."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _flat(state, tensors, "state")
    data = save(tensors, metadata={KEY: json.dumps(plain), SUM: _NO_SUM})
    return _signed(data, _NO_SUM, sha256(data).hexdigest())


def unpack(data: bytes, place: str) -> dict[str, Any]:
    """The state of `pack`; `place` says in an error where it came from."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        size = int.from_bytes(data[:8], "little")
        about: dict[str, str] = json.loads(data[8 : 8 + size]).get("__metadata__", {}) if size < len(data) else {}
        tensors = load(data)
    except (SafetensorError, ValueError, AttributeError) as wrong:
        raise DamagedError(f"{place} cannot be read: {wrong}", hint=_AGAIN) from wrong
    if KEY not in about or SUM not in about:
        raise DamagedError(f"{place} is not the state of a run", hint=_AGAIN)
    is_, was = sha256(_signed(data, about[SUM], _NO_SUM)).hexdigest(), about[SUM]
    if is_ != was:
        raise DamagedError(f"{place} is damaged: its checksum is {is_[:8]}…, it says {was[:8]}…", hint=_AGAIN)
    return _full(json.loads(about[KEY]), tensors)


def _signed(data: bytes, before: str, after: str) -> bytes:
    """The bytes with another checksum in its place; inside of other texts its quotes would be escaped."""
    return data.replace(f'"{SUM}":"{before}"'.encode(), f'"{SUM}":"{after}"'.encode(), 1)


def _flat(x: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """The same with every tensor put aside, and its name in its place."""
    if isinstance(x, Tensor):
        name = str(len(tensors))
        tensors[name] = x.detach().cpu().contiguous().clone()  # two names for one memory are not allowed
        return {_TENSOR: name}
    if isinstance(x, Mapping):
        items = cast(Mapping[Any, Any], x).items()
        wrong = next((k for k, _ in items if not isinstance(k, str) or k == _TENSOR), None)
        if wrong is not None:
            raise TypeMismatchError(f"{wrong!r} is no key of a state, in {place}", hint="keys are strings")
        return {k: _flat(v, tensors, f"{place}[{k!r}]") for k, v in items}
    if isinstance(x, list | tuple):
        return [_flat(v, tensors, f"{place}[{i}]") for i, v in enumerate(cast(list[Any], x))]
    if x is None or isinstance(x, bool | int | float | str):
        return x
    raise TypeMismatchError(
        f"{place} is a {type(x).__name__}", hint="a state is made of tensors, numbers, strings, bools and None"
    )


def _full(x: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(x, dict):
        held = cast(dict[str, Any], x)
        return tensors[held[_TENSOR]] if _TENSOR in held else {k: _full(v, tensors) for k, v in held.items()}
    return [_full(v, tensors) for v in cast(list[Any], x)] if isinstance(x, list) else x
