"""The projections of a layer in as few calls as possible: in small layers, calls are most of the cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
import torch.nn.modules.module as torch_module
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

from multihead._base.shapes import Keys, Queries, Values
from multihead.layer._tracing import function_modes, is_compiling, is_eager

FEW_TOKENS = 64
"""Up to this many tokens, one product is faster than three."""

FEW_WEIGHTS = 3 << 13
"""Up to this many weights, copying them into one matrix costs less than two more calls and their gradients."""

_FORWARD_HOOKS = torch_module._global_forward_hooks  # pyright: ignore[reportPrivateUsage]  # no public names
_FORWARD_PRE_HOOKS = torch_module._global_forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
_BACKWARD_HOOKS = torch_module._global_backward_hooks  # pyright: ignore[reportPrivateUsage]
_BACKWARD_PRE_HOOKS = torch_module._global_backward_pre_hooks  # pyright: ignore[reportPrivateUsage]
_LINEAR_FORWARD = nn.Linear.forward  # a patch of the class replaces it

Parameters = dict[str, Any]
"""weight: Tensor, bias: Tensor | None"""


def calls_are_plain() -> bool:
    """Whether no hook sees the calls of all modules, and nn.Linear has its own forward."""
    watched = _FORWARD_HOOKS or _FORWARD_PRE_HOOKS or _BACKWARD_HOOKS or _BACKWARD_PRE_HOOKS
    return not watched and nn.Linear.forward is _LINEAR_FORWARD


def plain_parameters(module: nn.Module, kind: type[nn.Module] = nn.Linear) -> Parameters | None:
    """The parameters of a projection whose call is F.linear of them and nothing else; otherwise None."""
    if type(module) is not kind:
        return None
    state = module.__dict__
    if (
        state["_forward_hooks"] or state["_forward_pre_hooks"]
        or state["_backward_hooks"] or state["_backward_pre_hooks"]
        or "forward" in state or "_compiled_call_impl" in state
    ):  # fmt: skip
        return None
    parameters = state["_parameters"]
    return parameters if "weight" in parameters and "bias" in parameters else None


def project(projection: nn.Module, x: Float[Tensor, "... width"]) -> Float[Tensor, "... out"]:
    """projection(x); a plain Linear is computed directly, which saves a tenth of the time of a small layer."""
    parameters = plain_parameters(projection) if calls_are_plain() else None
    if parameters is None or is_compiling():
        return projection(x)
    return F.linear(x, parameters["weight"], parameters["bias"])


class JointWeights:
    """The weights of q_proj, k_proj and v_proj in consecutive memory, which inference reads as one matrix.

    Each parameter has a storage of its own, so optimizers and files see three. Once a parameter has moved, as by
    `to`, the matrix is dropped; a copy of the layer has none.
    """

    def __init__(self, *projections: nn.Linear) -> None:
        self.weight = _consecutive([p.weight for p in projections])
        biased = all(p.bias is not None for p in projections)  # pyright: ignore[reportUnnecessaryComparison]  # torch's stub forgets None
        self.bias = _consecutive([p.bias for p in projections]) if biased else None
        parameters = [p.weight for p in projections] + [p.bias for p in projections if biased]
        self.places = [(p.data_ptr(), p.shape) for p in parameters]

    @staticmethod
    def of(*projections: nn.Linear) -> JointWeights | None:
        """Joins the weights of plain projections on CPU that read the same input."""
        plain = all(is_eager(p.weight.detach()) and p.weight.is_cpu for p in projections)
        if len({p.in_features for p in projections}) > 1 or not plain or torch.is_inference_mode_enabled():
            return None
        return JointWeights(*projections)

    def matrix(self, parameters: Sequence[Tensor | None]) -> Tensor | None:
        """The joint projection [W_Q, W_K, W_V], if the parameters are still where they were put."""
        if self.weight is not None and not self._in_place(parameters):
            self.weight = self.bias = None  # other memory: this one can go
        return self.weight

    def _in_place(self, parameters: Sequence[Tensor | None]) -> bool:
        """Whether the projections still have the parameters that were joined."""
        try:
            for parameter, (pointer, shape) in zip(parameters, self.places):  # noqa: B905  # `strict` costs time
                if type(parameter) is not nn.Parameter and type(parameter) is not Tensor:
                    return False
                if parameter.data_ptr() != pointer or parameter.shape != shape or not parameter.is_contiguous():
                    return False
        except RuntimeError:  # a sparse tensor has no pointer
            return False
        return True

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()


def _consecutive(parameters: Sequence[Tensor]) -> Tensor:
    """Moves the projections' weights into one tensor, the result; from_dlpack gives each its own storage."""
    joint = torch.cat([p.detach() for p in parameters])
    parts = joint.split_with_sizes([len(p) for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = torch.from_dlpack(part)
    return joint


def project_together(
    x: Float[Tensor, "batch token width"], q_proj: nn.Module, k_proj: nn.Module, v_proj: nn.Module,
    key_dim: int, value_dim: int, joint: JointWeights | None = None,
) -> tuple[Queries, Keys, Values]:  # fmt: skip
    """Queries, keys and values of one input, split into heads; of few tokens, in one product if possible."""
    batch, tokens, width = x.shape
    of_q = of_k = of_v = None
    if is_eager(x) and not function_modes() and calls_are_plain():  # a mode sees each product
        of_q, of_k, of_v = plain_parameters(q_proj), plain_parameters(k_proj), plain_parameters(v_proj)
    if of_q is None or of_k is None or of_v is None:
        q, k, v = project(q_proj, x), project(k_proj, x), project(v_proj, x)
        return split_heads(q, key_dim), split_heads(k, key_dim), split_heads(v, value_dim)
    w_q, w_k, w_v = of_q["weight"], of_k["weight"], of_v["weight"]
    b_q, b_k, b_v = of_q["bias"], of_k["bias"], of_v["bias"]
    grad = torch.is_grad_enabled()
    split = _viewed if grad else _strided
    rows = x.reshape(batch * tokens, width)  # once; F.linear would reshape in each call
    weight = bias = None
    if joint is not None:  # in every call, so that memory that a parameter has left is freed
        weight = joint.matrix((w_q, w_k, w_v) if joint.bias is None else (w_q, w_k, w_v, b_q, b_k, b_v))
        bias = joint.bias
    if batch * tokens > FEW_TOKENS:
        weight = None
    elif weight is None:
        weight = _copied_together(w_q, w_k, w_v)
        bias = None if weight is None else _copied_together(b_q, b_k, b_v)
    elif grad or _has_tangents():  # the joint matrix has neither a gradient nor a tangent
        few = weight.numel() <= FEW_WEIGHTS and w_q.requires_grad is w_k.requires_grad is w_v.requires_grad
        weight = torch.cat((w_q, w_k, w_v)) if few else None
        bias = _copied_together(b_q, b_k, b_v) if few and bias is not None else None
    if weight is None or (bias is None and not b_q is b_k is b_v is None):
        q, k, v = F.linear(rows, w_q, b_q), F.linear(rows, w_k, b_k), F.linear(rows, w_v, b_v)
        return (
            split(q, batch, tokens, key_dim),
            split(k, batch, tokens, key_dim),
            split(v, batch, tokens, value_dim),
        )
    product, widths = F.linear(rows, weight, bias), (w_q.shape[0], w_k.shape[0], w_v.shape[0])
    if key_dim != value_dim:
        q, k, v = product.split_with_sizes(widths, 1)  # `Tensor.split` is Python and takes twice the time
        return (
            _viewed(q, batch, tokens, key_dim),
            _viewed(k, batch, tokens, key_dim),
            _viewed(v, batch, tokens, value_dim),
        )
    counts = widths[0] // key_dim, widths[1] // key_dim, widths[2] // key_dim
    if grad:  # the gradients of q, k and v are then joined in the memory order of `product`, in one copy
        heads = product.view(batch, tokens, sum(counts), key_dim)
        q, k, v = heads.split_with_sizes(counts, 2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    q, k, v = _strided(product, batch, tokens, key_dim).split_with_sizes(counts, 1)  # three views instead of seven
    return q, k, v


def _copied_together(q: Tensor | None, k: Tensor | None, v: Tensor | None) -> Tensor | None:
    """Weights of three projections copied into one, if small and plain (not quantized or distributed)."""
    if type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN:
        parts = cast(tuple[Tensor, ...], (q, k, v))
        if parts[0].numel() + parts[1].numel() + parts[2].numel() <= FEW_WEIGHTS and _same_kind(*parts):
            return torch.cat(parts)
    return None


_PLAIN = (nn.Parameter, Tensor)


def _has_tangents() -> bool:
    """Whether tensors may have tangents of forward-mode differentiation, which `no_grad` leaves on."""
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]  # no public name


def _same_kind(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether one tensor can hold three projections: not sparse, and frozen and rounded as each of them."""
    return (
        q.dtype is k.dtype is v.dtype
        and q.requires_grad is k.requires_grad is v.requires_grad
        and q.layout is k.layout is v.layout is torch.strided
    )


def split_heads(x: Float[Tensor, "batch token width"], dim: int) -> Float[Tensor, "batch head token dim"]:
    strided = not torch.is_grad_enabled() and is_eager(x) and x.is_contiguous()
    return (_strided if strided else _viewed)(x, x.shape[0], x.shape[1], dim)


def _viewed(
    x: Float[Tensor, "... width"], batch: int, tokens: int, dim: int
) -> Float[Tensor, "batch head token dim"]:
    return x.view(batch, tokens, x.shape[-1] // dim, dim).transpose(1, 2)


def _strided(
    x: Float[Tensor, "... width"], batch: int, tokens: int, dim: int
) -> Float[Tensor, "batch head token dim"]:
    """q, k and v of a joint projection as strided views of contiguous memory."""
    width = x.shape[-1]
    if width % dim:
        return _viewed(x, batch, tokens, dim)  # which raises
    return x.as_strided((batch, width // dim, tokens, dim), (tokens * width, dim, width, 1))


def join_heads(heads: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch token width"]:
    """Concat(heads), the input of the output projection."""
    batch, count, tokens, dim = heads.shape
    width = count * dim
    if tokens == 1:
        return heads.reshape(batch, 1, width)
    strides = (tokens * width, dim, width, 1)  # of the kernels' outputs
    if not torch.is_grad_enabled() and is_eager(heads) and heads.stride() == strides:
        return heads.as_strided((batch, tokens, width), (tokens * width, width, 1))
    return heads.transpose(1, 2).flatten(2)
