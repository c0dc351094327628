"""F.multi_head_attention_forward, computed by the drop-in, whose heads go through multihead's `attend`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer.dropin import MultiheadAttention
from multihead.model.kernel_arguments import HIDES, unobserved
from multihead.model.verify_kernel import largest_difference

_M = TypeVar("_M", bound=nn.Module)
_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def as_dropin(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Compute a call of torch's MHA by the drop-in; returns (out, weights) with the batch second."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    if arguments["static_k"] is not None or arguments["static_v"] is not None:
        raise MultiheadError(
            "multi_head_attention_forward does not support static_k and static_v here: they skip the projections",
            hint="write an adapter for the calling module: multihead.model.adapter",
        )
    if arguments["is_causal"] and arguments["attn_mask"] is None:
        raise MultiheadError(
            "nn.MultiheadAttention needs an attn_mask with is_causal=True: "
            "without one, its fast path ignores the flag and its slow path raises",
            hint="pass attn_mask=nn.Transformer.generate_square_subsequent_mask(n) as well",
        )
    return _dropin_of(arguments)(
        arguments["query"],
        arguments["key"],
        arguments["value"],
        key_padding_mask=_as_bool(arguments["key_padding_mask"]),
        need_weights=arguments["need_weights"],
        attn_mask=_as_bool(arguments["attn_mask"]),
        average_attn_weights=arguments["average_attn_weights"],
    )


def verify_dropin(
    path: str, result: Tensor, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise unless torch's own MHA function computes the same result, without dropout."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.arguments["training"] and bound.arguments["dropout_p"] > 0:
        return
    with unobserved():
        difference = largest_difference(result, func(*args, **kwargs)[0])
    if difference is not None:
        raise MultiheadError(
            f"{path}: the drop-in for nn.MultiheadAttention computes a different output than torch: they differ by "
            f"{difference}",
            hint="this is a bug in multihead: please report the arguments of the call",
        )


def _as_bool(hidden: Tensor | None) -> Tensor | None:
    """A float mask of torch's MHA that only hides keys as a bool mask; other masks unchanged."""
    if hidden is None or hidden.dtype == torch.bool or hidden.requires_grad:
        return hidden
    hides = hidden <= HIDES
    return hidden if bool(hidden.masked_fill(hides, 0.0).any()) else hides


def _dropin_of(arguments: dict[str, Any]) -> MultiheadAttention:
    """A drop-in for torch's MHA with the caller's tensors: nothing is initialized, copied or registered."""
    module, out = _uninitialized(MultiheadAttention), _uninitialized(nn.Linear)
    out.__dict__.update(weight=arguments["out_proj_weight"], bias=arguments["out_proj_bias"])
    width, heads = arguments["embed_dim_to_check"], arguments["num_heads"]
    module.__dict__.update(
        embed_dim=width,
        num_heads=heads,
        head_dim=width // heads,
        kdim=arguments["key"].shape[-1],
        vdim=arguments["value"].shape[-1],
        batch_first=False,
        dropout=arguments["dropout_p"],
        training=arguments["training"],
        in_proj_weight=None if arguments["use_separate_proj_weight"] else arguments["in_proj_weight"],
        add_zero_attn=arguments["add_zero_attn"],
        out_proj=out,
        **{name: arguments[name] for name in _SHARED},
    )
    return module


_SHARED = ("in_proj_bias", "bias_k", "bias_v", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def _uninitialized(kind: type[_M]) -> _M:
    """A drop-in for torch's MHA whose constructor did not run."""
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    return module
