"""Tests for tracers and transforms: torch.compile, torch.func, dispatch modes."""

from __future__ import annotations

import torch
from torch import Tensor

is_compiling = torch.compiler.is_compiling
"""whether torch.compile traces this call; a name of this module saves two lookups in each of ten tests per call"""

transformed = torch._C._are_functorch_transforms_active  # pyright: ignore[reportPrivateUsage]  # no public name
"""whether vmap, func.grad or another transform of torch.func is active"""

function_modes = torch._C._len_torch_function_stack  # pyright: ignore[reportPrivateUsage]  # no public name
"""the number of active TorchFunctionModes, which see every function of torch"""

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
_dispatch_modes = torch._C._len_torch_dispatch_stack  # pyright: ignore[reportPrivateUsage]


def is_eager(x: Tensor) -> bool:
    """Whether x is a plain tensor and no tracer, transform or dispatch mode is active."""
    return type(x) is Tensor and not (is_compiling() or transformed() or _dispatch_modes())


def readable(x: Tensor) -> bool:
    """Whether the host can read the values of a tensor: a plain CPU tensor outside any traced graph."""
    if x.device.type != "cpu" or type(x) is not Tensor or is_compiling():
        return False
    return not (transformed() and _is_wrapped(x))
