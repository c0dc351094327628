"""The inputs of a model that does not read text, from a file or a function: images, sound, vectors.

>>> import tempfile, torch
>>> from pathlib import Path
>>> from safetensors.torch import save_file
>>> from multihead.corpus.read_inputs import read_inputs
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "images.safetensors"
...     save_file({"pixel_values": torch.zeros(5, 3, 8, 8)}, file)
...     images = read_inputs(file)
>>> len(images), images[0]["pixel_values"].shape
(5, torch.Size([1, 3, 8, 8]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead._base.user_function import call_function, is_function, with_article
from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import InputRow
from multihead.errors import MultiheadError
from multihead.model.model_inputs import argument_names, needed_inputs, takes_argument

ENDING = ".safetensors"


def read_inputs(source: str | Path | Sequence[Inputs], model: nn.Module | None = None) -> list[Inputs]:
    """Documents of tensors: the rows of a file, or the batches that a function returns.

    Args:
        source: a .safetensors file whose tensors are named as the arguments of the model; each row is a document.
            Or "module:function", called without arguments, which returns a batch, or a list of batches. Or these
            batches themselves.
        model: the one that reads them; floating-point tensors get its precision.

    Returns:
        Batches: data for `mh.measure` and every other function that runs a model.

    Raises:
        MultiheadError: if the file cannot be read, its tensors have different numbers of rows, the function returns
            something else, or the model does not take the inputs.

    >>> read_inputs("images.npy")
    Traceback (most recent call last):
    multihead.errors.MultiheadError: inputs must be a .safetensors file or module:function, got images.npy
    ...
    """
    name = str(source)
    if not isinstance(source, str | Path):
        batches = list(source)
    elif is_function(name) and not Path(name).exists():
        batches = _returned(name)
    elif name.endswith(ENDING):
        batches = _rows(Path(name))
    else:
        raise MultiheadError(
            f"inputs must be a {ENDING} file or module:function, got {name}",
            hint="safetensors.torch.save_file({'pixel_values': images}, 'inputs.safetensors') writes one",
        )
    if model is None:
        return batches
    _check_names(model, batches[0])
    weight = next((p for p in model.parameters() if p.is_floating_point()), None)
    return batches if weight is None else [_with_dtype(batch, weight.dtype) for batch in batches]


def is_inputs(value: Any) -> bool:
    """Whether a value is a batch, or a list of batches: mappings of tensors by name."""
    if not isinstance(value, list | tuple):
        return _is_batch(value)
    batches = cast(Sequence[Any], value)
    return bool(batches) and all(map(_is_batch, batches))


def check_reads(model: nn.Module, documents: str) -> None:
    """Raise unless a model reads token ids, which documents become: "text" or "token ids"."""
    needed = needed_inputs(model)
    if needed[0] != "input_ids":
        raise MultiheadError(
            f"{type(model).__name__} reads {' and '.join(needed)}, not {documents}",
            hint=f"pass inputs='FILE{ENDING}', which holds {' and '.join(needed)}, or inputs='module:function', "
            "which returns batches",
        )


def _is_batch(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    batch = cast(Mapping[Any, Any], value)
    return all(isinstance(name, str) for name in batch) and any(isinstance(x, Tensor) for x in batch.values())


def _returned(name: str) -> list[Inputs]:
    """The batches that a user's function returns."""
    result: Any = call_function(name, "{'pixel_values': images}")
    if not is_inputs(result):
        empty = isinstance(result, list | tuple | Mapping) and not result
        kind = with_article(type(result).__name__)
        raise MultiheadError(
            f"{name} must return batches, got {f'an empty {type(result).__name__}' if empty else kind}",
            hint="a batch is a dict of tensors, named as the arguments of the model: {'pixel_values': images}",
        )
    return [result] if isinstance(result, Mapping) else list(result)


def _rows(path: Path) -> list[Inputs]:
    """Every row of a file of tensors as a document."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise MultiheadError(f"no such file: {path}", hint="inputs are tensors in a .safetensors file")
    try:
        tensors = load_file(path)
    except (SafetensorError, ValueError) as error:
        raise MultiheadError(
            f"{path} cannot be read: {error}", hint="a file of safetensors may be truncated: write it again"
        ) from error
    counts = {name: x.shape[0] if x.ndim else 0 for name, x in tensors.items()}
    if len(set(counts.values())) > 1:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
        raise MultiheadError(
            f"the tensors of {path} must have the same number of rows, got {shapes}",
            hint="the first dimension counts documents",
        )
    if not any(counts.values()):
        raise MultiheadError(f"{path} contains no row", hint="the first dimension counts documents")
    count = next(iter(counts.values()))
    return [InputRow({name: x[row : row + 1] for name, x in tensors.items()}) for row in range(count)]


def _check_names(model: nn.Module, batch: Inputs) -> None:
    """Raise for inputs that a model does not take, or ignores."""
    needed, takes = needed_inputs(model), argument_names(model)
    unknown = [name for name in batch if name not in takes]
    if unknown and (needed[0] not in batch or not takes_argument(model, unknown[0])):
        raise MultiheadError(
            f"{type(model).__name__} does not take the inputs {', '.join(unknown)}",
            hint=f"it reads {' and '.join(needed)}; its forward takes {', '.join(takes)}",
        )


def _with_dtype(batch: Inputs, dtype: torch.dtype) -> Inputs:
    """A batch whose floating-point tensors have this precision."""
    cast_to = {n: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for n, x in batch.items()}
    return InputRow(cast_to) if isinstance(batch, InputRow) else cast_to
