"""The tensors inside nested lists, tuples, mappings and objects, such as the outputs of modules.

>>> import torch
>>> from multihead._base.nested_tensors import tensors_in
>>> [x.tolist() for x in tensors_in({"out": torch.tensor([1]), "layers": [(torch.tensor([2]), None)]})]
[[1], [2]]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from torch import Tensor, nn

CACHES = 3
"""Objects in each other in an output with caches: the cache of an encoder–decoder, its caches, their layers."""


def tensors_in(x: Any, *, objects: int = 0) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples and mappings, in order; `objects`: and in so many nested objects."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, list | tuple):
        for part in cast(list[Any], x):
            yield from tensors_in(part, objects=objects)
    elif isinstance(x, Mapping):
        for part in cast(Mapping[Any, Any], x).values():
            yield from tensors_in(part, objects=objects)
    elif objects and hasattr(x, "__dict__") and not isinstance(x, nn.Module | type):
        yield from tensors_in(vars(x), objects=objects - 1)
