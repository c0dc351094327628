"""The projections of a layer in as few calls as possible: in small layers, calls are most of the cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
import torch.nn.modules.module as torch_module
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

from multihead._base.shapes import Keys, Queries, Values
from multihead.layer._tracing import function_modes, is_eager

FEW_TOKENS = 64
"""Up to this many tokens, one product is faster than three."""

FEW_WEIGHTS = 3 << 13
"""Up to this many weights, copying them into one matrix costs less than two more calls and their gradients."""

_GLOBAL_HOOKS = (
    torch_module._global_forward_hooks,  # pyright: ignore[reportPrivateUsage]  # no public names
    torch_module._global_forward_pre_hooks,  # pyright: ignore[reportPrivateUsage]
    torch_module._global_backward_hooks,  # pyright: ignore[reportPrivateUsage]
    torch_module._global_backward_pre_hooks,  # pyright: ignore[reportPrivateUsage]
)


_LINEAR_FORWARD = nn.Linear.forward  # a patch of the class replaces it


def is_plain(*modules: nn.Module, kind: type[nn.Module] = nn.Linear, watched: bool = False) -> bool:
    """Whether calling each of these modules is F.linear of its parameters and nothing else.

    With `watched`, hooks on all modules, as a FLOP counter has, are no objection.
    """
    if nn.Linear.forward is not _LINEAR_FORWARD:
        return False
    if not watched and (_GLOBAL_HOOKS[0] or _GLOBAL_HOOKS[1] or _GLOBAL_HOOKS[2] or _GLOBAL_HOOKS[3]):
        return False
    for module in modules:
        if type(module) is not kind:
            return False
        state = module.__dict__
        if (
            state["_forward_hooks"] or state["_forward_pre_hooks"]
            or state["_backward_hooks"] or state["_backward_pre_hooks"]
            or "forward" in state or state.get("_compiled_call_impl") is not None
            or "weight" not in state["_parameters"] or "bias" not in state["_parameters"]
        ):  # fmt: skip
            return False
    return True


def project(projection: nn.Module, x: Float[Tensor, "... width"]) -> Float[Tensor, "... out"]:
    """projection(x); a plain Linear is computed directly, which saves a tenth of the time of a small layer."""
    if not is_plain(projection) or torch.compiler.is_compiling():
        return projection(x)
    parameters = projection.__dict__["_parameters"]
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
        """Joins the parameters of plain layers on CPU that read the same input."""
        plain = all(is_eager(p.weight.detach()) and p.weight.is_cpu for p in projections)
        if len({p.in_features for p in projections}) > 1 or not plain or torch.is_inference_mode_enabled():
            return None
        return JointWeights(*projections)

    def matrix(self, *parameters: Tensor | None) -> Tensor | None:
        """[W_Q, W_K, W_V], if the parameters are still where they were put."""
        if self.weight is not None and not self._in_place(parameters):
            self.weight = self.bias = None  # other memory: this one can go
        return self.weight

    def _in_place(self, parameters: Sequence[Tensor | None]) -> bool:
        try:
            for parameter, (pointer, shape) in zip(parameters, self.places, strict=True):
                if parameter is None or type(parameter) not in _PLAIN:
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
    """Moves parameters into one tensor, the result; from_dlpack gives each a storage of its own."""
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
    if not is_eager(x) or function_modes() or not is_plain(q_proj, k_proj, v_proj):  # a mode sees each product
        q, k, v = project(q_proj, x), project(k_proj, x), project(v_proj, x)
        return split_heads(q, key_dim), split_heads(k, key_dim), split_heads(v, value_dim)
    of_q, of_k, of_v = (
        q_proj.__dict__["_parameters"],
        k_proj.__dict__["_parameters"],
        v_proj.__dict__["_parameters"],
    )
    w_q, w_k, w_v = of_q["weight"], of_k["weight"], of_v["weight"]
    b_q, b_k, b_v = of_q["bias"], of_k["bias"], of_v["bias"]
    grad = torch.is_grad_enabled()
    split = _viewed if grad else _strided
    rows = x.reshape(batch * tokens, width)  # once; F.linear would reshape in each call
    weight = bias = None
    if joint is not None:  # in every call, so that memory that a parameter has left is freed
        parameters = (w_q, w_k, w_v) if joint.bias is None else (w_q, w_k, w_v, b_q, b_k, b_v)
        weight, bias = joint.matrix(*parameters), joint.bias
    if batch * tokens > FEW_TOKENS:
        weight = None
    elif weight is None or grad or _has_tangents():  # the joint matrix has neither a gradient nor a tangent
        weight = _copied_together(w_q, w_k, w_v)
        bias = None if weight is None else _copied_together(b_q, b_k, b_v)
    if weight is None or (bias is None and not b_q is b_k is b_v is None):
        q, k, v = F.linear(rows, w_q, b_q), F.linear(rows, w_k, b_k), F.linear(rows, w_v, b_v)
    elif key_dim == value_dim:  # split heads before q, k and v: three views instead of seven
        heads = split(F.linear(rows, weight, bias), batch, tokens, key_dim)
        sizes = w_q.shape[0] // key_dim, w_k.shape[0] // key_dim, w_v.shape[0] // key_dim
        q, k, v = heads.split_with_sizes(sizes, 1)  # `Tensor.split` is Python and takes twice the time
        return q, k, v
    else:
        q, k, v = F.linear(rows, weight, bias).split_with_sizes((w_q.shape[0], w_k.shape[0], w_v.shape[0]), 1)
        split = _viewed
    return split(q, batch, tokens, key_dim), split(k, batch, tokens, key_dim), split(v, batch, tokens, value_dim)


def _copied_together(q: Tensor | None, k: Tensor | None, v: Tensor | None) -> Tensor | None:
    """Three parameters copied into one, if they are small and plain tensors (not quantized or distributed)."""
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
    """Whether one tensor can hold all three: not sparse, and frozen and rounded as each of them."""
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
    """The same for contiguous memory, in one view instead of two."""
    width = x.shape[-1]
    if width % dim:
        return _viewed(x, batch, tokens, dim)  # which raises
    return x.as_strided((batch, width // dim, tokens, dim), (tokens * width, dim, width, 1))


def join_heads(heads: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch token width"]:
    """Concat(heads)."""
    batch, count, tokens, dim = heads.shape
    width = count * dim
    if tokens == 1:
        return heads.reshape(batch, 1, width)
    strides = (tokens * width, dim, width, 1)  # of the kernels' outputs
    if not torch.is_grad_enabled() and is_eager(heads) and heads.stride() == strides:
        return heads.as_strided((batch, tokens, width), (tokens * width, width, 1))
    return heads.transpose(1, 2).flatten(2)
