"""Compare the output of a model inside an interception with its output outside, once per model.

The comparison takes one more forward. It is made on the first run that can be repeated: the model is in eval mode,
no listener changes a head, and any cache that is passed can be copied. Both runs draw the same random numbers from
torch's generators; a model that is random by other means is not compared.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from copy import Error as CopyError
from copy import deepcopy
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from multihead._base.nested_tensors import tensors_in
from multihead.errors import MultiheadError
from multihead.layer.cache import Cache
from multihead.model.kernel_arguments import unobserved
from multihead.model.verify_kernel import largest_difference

_proven: WeakKeyDictionary[nn.Module, set[frozenset[str]]] = WeakKeyDictionary()
"""model → the sets of attention functions that it was compared with"""


class OutputProof:
    """Repeats the first run of a model outside the interception."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._draws = _Draws(model)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A run to verify begins with these arguments."""
        self._arguments = None
        if not self._is_proven() and _can_be_repeated(self.model):
            try:
                self._arguments = copy_caches((args, kwargs))
            except (TypeError, RuntimeError, CopyError):  # a lock, a file, or tensors of an autograd graph
                return
            self._draws.remember()

    def end(self, output: object) -> None:
        """The run has ended, and nothing was changed in it: verify its output by the model's own."""
        if self._arguments is None:
            return
        (args, kwargs), self._arguments = self._arguments, None
        again = copy_caches((args, kwargs))
        mask = kwargs.get("attention_mask")
        with unobserved():
            with self._draws.again():
                outside = self.model.forward(*args, **kwargs)
            difference = _difference(output, outside, mask)
            if difference is not None:
                with self._draws.again():
                    repeated = self.model.forward(*again[0], **again[1])
                if _difference(repeated, outside, mask) is not None:
                    difference = None  # the model is random: two runs outside differ, too
        if difference is not None:
            raise MultiheadError(
                f"{type(self.model).__name__} computes another output while its heads are observed: {difference}",
                hint="this model cannot be observed in this way; try another attention function: "
                'model.set_attn_implementation("sdpa")',
            )
        _proven.setdefault(self.model, set()).add(_implementations(self.model))

    def _is_proven(self) -> bool:
        return self.model in _proven and _implementations(self.model) in _proven[self.model]


def copy_caches(x: Any) -> Any:
    """Arguments to verify a call without side effects: caches are copied, tensors are not."""
    if type(x) is dict:
        return {name: copy_caches(value) for name, value in cast(dict[Any, Any], x).items()}
    if type(x) in (list, tuple):
        return type(x)([copy_caches(value) for value in x])
    return deepcopy(x) if isinstance(x, Cache) or hasattr(x, "update") else x


def _can_be_repeated(model: nn.Module) -> bool:
    """Whether two runs of a model compute the same output, and one process can make the second one alone."""
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


def _difference(result: object, expected: object, mask: object) -> str | None:
    """The first difference between two outputs to verify, in real tokens."""
    ours, theirs = _floats(result), _floats(expected)
    if len(ours) != len(theirs):
        return f"it has {len(ours)} tensors, not {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            return f"it has a tensor of shape {tuple(a.shape)}, not {tuple(b.shape)}"
        difference = largest_difference(a, b, _real(a, mask))
        if difference is not None:
            return f"it differs by {difference}"
    return None


class _Draws:
    """The random numbers of a run, to be drawn again from all generators that the model uses."""

    def __init__(self, model: nn.Module) -> None:
        self._devices = sorted({p.get_device() for p in model.parameters() if p.is_cuda})
        self._states: list[Tensor] = []

    def remember(self) -> None:
        """The run begins."""
        self._states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._devices)]

    @contextmanager
    def again(self) -> Generator[None]:
        """Inside the block the verified run draws the same numbers; the draws after it do not change."""
        with torch.random.fork_rng(self._devices):
            torch.set_rng_state(self._states[0])
            for device, state in zip(self._devices, self._states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            yield


def _floats(output: object) -> list[Tensor]:
    """The floating-point tensors of an output to verify, without caches."""
    return [x for x in tensors_in(output) if x.is_floating_point()]


def _real(x: Tensor, mask: object) -> Tensor | None:
    """The entries of real tokens in an output to verify; models may compute anything for padding."""
    if not isinstance(mask, Tensor) or mask.ndim != 2 or x.shape[:2] != mask.shape:
        return None
    return mask.bool().view(*mask.shape, *[1] * (x.ndim - 2)).expand_as(x)
