"""Run a model once with gradients, and record every attention call and the autograd graph around it.

Two modes are active during the run:

- `Frozen` treats the statistics of norms as constants; their outputs do not change. A norm over all heads at once
  then does not make every head depend on every row of the weights, and everything between a projection and the
  kernel (rotation, scaling, norms) is linear.
- `Products` records the results of all matrix products, to verify weights against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from multihead._base.nested_tensors import CACHES, tensors_in
from multihead._base.shapes import HeadOutputs
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.forward import Forward, ModelInputs

_STATISTICS: frozenset[Any] = frozenset(
    {
        torch.rsqrt, Tensor.rsqrt, torch.sqrt, Tensor.sqrt, torch.norm, Tensor.norm,
        torch.linalg.norm, torch.linalg.vector_norm,
    }
)  # fmt: skip
_POWERS: frozenset[Any] = frozenset({torch.pow, Tensor.pow, Tensor.__pow__})


class Frozen(TorchFunctionMode):
    """Norms with constant statistics: out = x · s + c · one, with s and c detached.

    Each norm has its `one`, a scalar 1 that requires a gradient. q is then homogeneous in (projection, one), and
    Euler's theorem, q = ∂q/∂projection · projection + ∂q/∂one, holds across a norm with a mean and a bias.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ones: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.layer_norm:
            return self._layer_norm(*args, **kwargs)
        if func is F.rms_norm or func is torch.rms_norm:
            return self._rms_norm(*args, **kwargs)
        if func is F.normalize:
            return self._normalize(*args, **kwargs)
        out = func(*args, **kwargs)
        if func in _STATISTICS or (func in _POWERS and _is_square_root(args, kwargs)):
            return out.detach() if isinstance(out, Tensor) and out.is_floating_point() else out
        return out

    def _normalize(self, input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, **_: Any) -> Tensor:
        return input / torch.linalg.vector_norm(input.detach(), p, dim, keepdim=True).clamp_min(eps)

    def _layer_norm(
        self,
        input: Tensor,
        normalized_shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Layer norm with frozen statistics, so that the graph is linear."""
        axes = tuple(range(-len(normalized_shape), 0))
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        mean = x.detach().mean(axes, keepdim=True)
        inverse_std = (x.detach().var(axes, correction=0, keepdim=True) + eps).rsqrt()
        one = x.new_ones((), requires_grad=True)
        self.ones.append(one)
        out = x * inverse_std - mean * inverse_std * one
        out = out if weight is None else out * weight
        out = out if bias is None else out + bias * one
        return out.to(input.dtype).contiguous()  # as torch's: models view the result in other shapes

    def _rms_norm(
        self, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        """RMS norm with a frozen scale, so that the graph is linear."""
        axes = tuple(range(-len(normalized_shape), 0))
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        eps = torch.finfo(input.dtype).eps if eps is None else eps
        out = x * (x.detach().square().mean(axes, keepdim=True) + eps).rsqrt()
        return (out if weight is None else out * weight).to(input.dtype)


def _is_square_root(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments of a power are those of √x or 1/√x."""
    power = kwargs.get("exponent", args[1] if len(args) > 1 else None)
    return isinstance(power, float) and math.isclose(abs(power), 0.5)


class Products(TorchDispatchMode):
    """Records the inputs and the result of every x @ w and bias + x @ w."""

    def __init__(self) -> None:
        super().__init__()
        self.results: dict[tuple[int, int], list[tuple[Tensor, Tensor, Tensor]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            x, w = cast(tuple[Tensor, Tensor], args[-2:])
            # Keep references to x and w, so no later tensor reuses their addresses.
            self.results.setdefault((x.data_ptr(), w.data_ptr()), []).append((x, w, out))
        return out

    def result(self, x: Tensor, w: Tensor) -> Tensor | None:
        """The model's result of x @ w in the run; None if it did not compute one."""
        for x_, w_, out in self.results.get((x.data_ptr(), w.data_ptr()), ()):
            if x_.shape == x.shape and w_.shape == w.shape and w_.stride() == w.stride():
                return out
        return None


@dataclass(frozen=True)
class TracedAttention:
    """One attention call of the run: the kernel's arguments and its outputs."""

    call: Call
    heads: HeadOutputs


@dataclass
class Discovery:
    """The record of one run of a model."""

    model: nn.Module
    seen: list[TracedAttention] = field(default_factory=list[TracedAttention])
    outputs: list[Tensor] = field(default_factory=list[Tensor])
    results: list[Node] = field(default_factory=list[Node])
    """the graph behind the results of all modules: some do not reach the output"""
    products: Products = field(default_factory=Products)
    frozen: Frozen = field(default_factory=Frozen)
    notes: list[str] = field(default_factory=list[str])
    """attentions that ran and were not seen"""


@contextmanager
def discover(model: nn.Module, inputs: ModelInputs) -> Generator[Discovery]:
    """Run the model with a graph and record its attention calls; restores the model at the end of the block."""
    traced = Discovery(inner(model))

    def listen(call: Call, run: Compute) -> HeadOutputs:
        """Record an attention call and its place in the graph."""
        heads = run()
        heads = heads.view_as(heads)  # a separate graph node, where searches start
        traced.seen.append(TracedAttention(call, heads))
        return heads

    def keep_result(module: nn.Module, args: Any, output: Any) -> None:
        traced.results.extend(x.grad_fn for x in tensors_in(output, objects=CACHES) if x.grad_fn is not None)

    forward = Forward(model, grad=True, learning=True)
    with ExitStack() as stack, _all_learning(model), torch.inference_mode(False), torch.enable_grad():
        for module in traced.model.modules():
            stack.callback(module.register_forward_hook(keep_result).remove)
        with traced.frozen, traced.products, forward.listening(listen):
            before = len(forward.notes)  # notes on eval mode: nothing is measured here
            if isinstance(inputs, tuple):
                out = forward.run(tuple(_requiring_gradient(x) for x in inputs))
            else:
                out = forward.run({name: _requiring_gradient(x) for name, x in inputs.items()})
        traced.notes.extend(forward.notes[before:])
        traced.outputs.extend(x for x in tensors_in(out, objects=CACHES) if x.grad_fn is not None)
        yield traced


@contextmanager
def nonzero(parameters: Iterable[nn.Parameter]) -> Generator[None]:
    """For a run with a graph, give parameters random values in [0.5, 1.5] inside the block, and restore them."""
    generator = torch.Generator().manual_seed(0)
    originals = [(p, p.data) for p in parameters]
    try:
        with torch.inference_mode(False):
            for p, data in originals:
                p.data = torch.rand(data.shape, generator=generator).add(0.5).to(data)
        yield
    finally:
        for p, data in originals:
            p.data = data


@contextmanager
def _all_learning(model: nn.Module) -> Generator[None]:
    """For a run with a graph all weights require gradients inside the block; afterwards flags are restored."""
    frozen = [p for p in model.parameters() if p.is_floating_point() and not p.requires_grad]
    try:
        for p in frozen:
            p.requires_grad = True
        yield
    finally:
        for p in frozen:
            p.requires_grad = False


def _requiring_gradient(x: Any) -> Any:
    """A float input that requires a gradient: only then does the graph save the weight of the first product."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x.detach().clone().requires_grad_(True) * 1.0
    return x
