"""The state of a pass as one safetensors file: tensors as they are, everything around them as JSON.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from multihead.measures.state import load_state, save_state
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "state.safetensors"
...     save_state(file, {"done": 3, "sums": [torch.tensor([1.0, 2.0]), None]})
...     load_state(file)
{'done': 3, 'sums': [tensor([1., 2.]), None]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from multihead.errors import MultiheadError, TypeMismatchError
from multihead.measures.tables.files import write_at_once

KEY = "multihead state"
_TENSOR = "$tensor"


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dicts and lists of tensors, numbers, strings, bools and None, at once or not at all."""
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _flat(state, tensors, "state")
    write_at_once(path, save(tensors, metadata={KEY: json.dumps(plain)}))


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote; tuples come back as lists."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportGeneralTypeIssues]  # has no stubs
            found: dict[str, str] = file.metadata() or {}
            if KEY not in found:
                raise MultiheadError(f"{path} is not the state of a run", hint="start again with --force")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no iterator
    except (SafetensorError, OSError) as wrong:
        raise MultiheadError(f"{path} cannot be read: {wrong}", hint="start again with --force") from wrong
    return _full(json.loads(found[KEY]), tensors)


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
