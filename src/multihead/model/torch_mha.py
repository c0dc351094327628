"""F.multi_head_attention_forward, computed by the drop-in: its heads then pass our `attend`, one by one."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer.dropin import MultiheadAttention
from multihead.model.kernel_arguments import HIDES

_M = TypeVar("_M", bound=nn.Module)
_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def as_dropin(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same call, (out, weights), with batch second as torch has it."""
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    if given["static_k"] is not None or given["static_v"] is not None:
        raise MultiheadError(
            "multi_head_attention_forward was given static_k or static_v, which skip the projections",
            hint="write an adapter for the module that calls it: mh.adapter",
        )
    if given["is_causal"] and given["attn_mask"] is None:
        raise MultiheadError(
            "nn.MultiheadAttention was called with is_causal=True and no attn_mask: "
            "its fast path ignores the flag, its slow path refuses it",
            hint="pass attn_mask=nn.Transformer.generate_square_subsequent_mask(n) as well",
        )
    return _shell(given)(
        given["query"],
        given["key"],
        given["value"],
        key_padding_mask=_plain(given["key_padding_mask"]),
        need_weights=given["need_weights"],
        attn_mask=_plain(given["attn_mask"]),
        average_attn_weights=given["average_attn_weights"],
    )


def _plain(hidden: Tensor | None) -> Tensor | None:
    """A float mask that only hides, as the bool mask that nn.MultiheadAttention made it of."""
    if hidden is None or hidden.dtype == torch.bool or hidden.requires_grad:
        return hidden
    hides = hidden <= HIDES
    return hidden if bool(hidden.masked_fill(hides, 0.0).any()) else hides


def _shell(given: dict[str, Any]) -> MultiheadAttention:
    """A drop-in around the caller's own tensors: nothing is drawn, copied or registered."""
    shell, out = _bare(MultiheadAttention), _bare(nn.Linear)
    out.__dict__.update(weight=given["out_proj_weight"], bias=given["out_proj_bias"])
    width, heads = given["embed_dim_to_check"], given["num_heads"]
    shell.__dict__.update(
        embed_dim=width,
        num_heads=heads,
        head_dim=width // heads,
        kdim=given["key"].shape[-1],
        vdim=given["value"].shape[-1],
        batch_first=False,
        dropout=given["dropout_p"],
        training=given["training"],
        in_proj_weight=None if given["use_separate_proj_weight"] else given["in_proj_weight"],
        add_zero_attn=given["add_zero_attn"],
        out_proj=out,
        **{name: given[name] for name in _OWN},
    )
    return shell


_OWN = ("in_proj_bias", "bias_k", "bias_v", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def _bare(kind: type[_M]) -> _M:
    """A module without its own constructor's work."""
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    return module
