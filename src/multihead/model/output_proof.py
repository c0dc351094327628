"""Compare the output of a model inside an interception with its output outside, once per model.

The comparison takes one more forward. It is made on the first run that can be repeated: the model is in eval mode,
no listener changes a head, and any cache that is passed can be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import Error as CopyError
from copy import deepcopy
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer.cache import Cache
from multihead.model.kernel_arguments import unobserved
from multihead.model.verify import Difference, largest_difference

_proven: WeakKeyDictionary[nn.Module, set[frozenset[str]]] = WeakKeyDictionary()
"""model → the sets of attention functions that it was compared with"""


class OutputProof:
    """Repeats the first run of a model outside the interception."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A run begins with these arguments."""
        self._arguments = None
        if not self._is_proven() and _can_be_repeated(self.model):
            try:
                self._arguments = copy_caches((args, kwargs))
            except (TypeError, RuntimeError, CopyError):  # a lock, a file, or tensors of an autograd graph
                return

    def end(self, output: object) -> None:
        """The run has ended, and nothing was changed in it."""
        if self._arguments is None:
            return
        (args, kwargs), self._arguments = self._arguments, None
        again = copy_caches((args, kwargs))
        mask = kwargs.get("attention_mask")
        with torch.random.fork_rng(), unobserved():
            outside = self.model.forward(*args, **kwargs)
            difference = _difference(output, outside, mask)
            if difference is not None and _difference(self.model.forward(*again[0], **again[1]), outside, mask):
                difference = None  # the model is random: two runs outside differ, too
        if difference is not None:
            raise MultiheadError(
                f"{type(self.model).__name__} computes another output while its heads are observed: it differs by "
                f"{difference}",
                hint="this model cannot be observed in this way; try another attention function: "
                'model.set_attn_implementation("sdpa")',
            )
        _proven.setdefault(self.model, set()).add(_implementations(self.model))

    def _is_proven(self) -> bool:
        return self.model in _proven and _implementations(self.model) in _proven[self.model]


def copy_caches(x: Any) -> Any:
    """Arguments for a call without side effects: caches are copied, tensors are not."""
    if type(x) is dict:
        return {name: copy_caches(value) for name, value in cast(dict[Any, Any], x).items()}
    if type(x) in (list, tuple):
        return type(x)([copy_caches(value) for value in x])
    return deepcopy(x) if isinstance(x, Cache) or hasattr(x, "update") else x


def _can_be_repeated(model: nn.Module) -> bool:
    """Whether two runs of a model give the same output, and one process can make the second one alone."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not distributed and not any(module.training or _holds_cache(module) for module in model.modules())


def _holds_cache(module: nn.Module) -> bool:
    """Whether a module keeps a cache between calls: a second run would append to it again."""
    values = vars(module).values()
    return any(isinstance(x, Cache) for value in values for x in (value if isinstance(value, list) else [value]))


def _implementations(model: nn.Module) -> frozenset[str]:
    """The names of the attention functions that the configs of a model choose."""
    configs = {id(c): c for m in model.modules() if (c := vars(m).get("config")) is not None}
    return frozenset(str(getattr(config, "_attn_implementation", "")) for config in configs.values())


def _difference(result: object, expected: object, mask: object) -> Difference | None:
    """The first difference between two outputs, in real tokens."""
    pairs = list(zip(_tensors(result), _tensors(expected), strict=True))
    return next((d for a, b in pairs if (d := largest_difference(a, b, _real(a, mask))) is not None), None)


def _tensors(output: object) -> list[Tensor]:
    """The floating-point tensors of an output, caches left out."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        return [x for value in cast(Mapping[str, Any], output).values() for x in _tensors(value)]
    if isinstance(output, list | tuple):
        return [x for value in cast(list[Any], output) for x in _tensors(value)]
    return []


def _real(x: Tensor, mask: object) -> Tensor | None:
    """The entries of real tokens; models may compute anything for padding."""
    if not isinstance(mask, Tensor) or mask.ndim != 2 or x.shape[:2] != mask.shape:
        return None
    return mask.bool().view(*mask.shape, *[1] * (x.ndim - 2)).expand_as(x)
