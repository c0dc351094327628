"""Options of a layer: QKNorm, Sinks, and the checks of its sizes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import nn

from multihead._base.arguments import MOST_ITEMS, check_count, check_instance, check_number, describe, integers
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._problem import Groups
from multihead.layer.init import Init
from multihead.layer.position import PositionBias, Rotary

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention


@dataclass(frozen=True)
class QKNorm:
    """Normalise q and k within each head, `when` = "before" or "after" the rotation.

    Weights are shared by the heads. Qwen 3 is QKNorm(); see Henry et al. 2020 and Dehghani et al. 2023.

    >>> import multihead as mh
    >>> from multihead import position
    >>> from multihead.layer import QKNorm
    >>> mh.MultiHeadAttention(96, 6, position=position.Rotary(), qk_norm=QKNorm()).q_norm
    RMSNorm((16,), eps=1e-06, elementwise_affine=True)
    """

    kind: Literal["rms", "layer"] = "rms"
    when: Literal["before", "after"] = "before"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.kind not in ("rms", "layer") or self.when not in ("before", "after"):
            raise SizeError(
                f"kind must be 'rms' or 'layer' and when 'before' or 'after', got {self.kind!r} and {self.when!r}",
                hint="QKNorm('rms', when='before') normalises before the rotation",
            )
        check_number("eps", self.eps, least=0.0)

    def module(self, dim: int, device: torch.device | str | None, dtype: torch.dtype | None) -> nn.Module:
        norm = nn.RMSNorm if self.kind == "rms" else nn.LayerNorm
        return norm(dim, eps=self.eps, device=device, dtype=dtype)


@dataclass(frozen=True)
class Sinks:
    """A learned logit per head that receives attention weight and adds nothing (GPT-OSS; cf. Miller 2023).

    >>> import multihead as mh
    >>> from multihead.layer import Sinks
    >>> mh.MultiHeadAttention(96, 6, sinks=Sinks()).sink_logits.shape
    torch.Size([6])
    """

    init: float = 0.0

    def __post_init__(self) -> None:
        check_number("init", self.init)


def linear(
    width: int, out: int, bias: bool, device: torch.device | str | None, dtype: torch.dtype | None
) -> nn.Linear:
    """A projection of a layer without drawn weights; without heads it is empty."""
    # `reset_parameters` draws the weights later; the random state does not change here.
    device = torch.get_default_device() if device is None else device
    if width == 0 or out == 0:  # a layer without heads; torch warns about empty weights
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return nn.Linear(width, out, bias=bias, device=device, dtype=dtype)
    return cast(nn.Linear, nn.utils.skip_init(nn.Linear, width, out, bias=bias, device=device, dtype=dtype))


def head_dim_of(d_model: int, num_heads: int) -> int:
    """The option head_dim by default: d_model / num_heads."""
    if num_heads == 0 or d_model % num_heads:
        divisors = [n for n in range(1, min(d_model, 256) + 1) if d_model % n == 0]
        raise SizeError(
            f"num_heads={num_heads} does not divide d_model={d_model}",
            hint=f"choose one of {', '.join(map(str, divisors))}, or pass head_dim",
        )
    return d_model // num_heads


def groups_of(heads: int, kv_heads: int | None, kv_of_head: Sequence[int] | None) -> Groups:
    """The groups by the options kv_heads or kv_of_head, checked."""
    if kv_of_head is None:
        kv_heads = heads if kv_heads is None else kv_heads
        return Groups((), kv_heads) if heads == 0 else Groups.even(heads, kv_heads)
    kv_of_head = integers("kv_of_head", kv_of_head)
    count = max(kv_of_head, default=-1) + 1 if kv_heads is None else kv_heads
    if len(kv_of_head) != heads or any(not 0 <= kv < count for kv in kv_of_head):
        raise SizeError(
            f"kv_of_head={list(kv_of_head)} does not map {heads} query heads to {count} kv heads",
            hint="pass one entry per query head, each in 0..num_kv_heads-1",
        )
    return Groups(kv_of_head, count)


def biased_projections(bias: bool | str) -> str:
    """The projections with a bias, as letters, by the option `bias`."""
    if isinstance(bias, bool):
        return "qkvo" if bias else ""
    if not isinstance(bias, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        raise TypeMismatchError(
            f"bias must be a bool or letters, got {describe(bias)}", hint="bias='qkv', for example"
        )
    if set(bias) - set("qkvo"):
        raise SizeError(
            f"bias must be a bool or letters of 'qkvo', got {bias!r}", hint="bias='qkv' for q, k and v, for example"
        )
    return bias


def check_sizes(*, d_model: int, num_heads: int, num_kv_heads: int | None, **widths: int | None) -> None:
    """Raise unless the sizes among a layer's options are integers in range or None."""
    check_count("d_model", d_model)
    check_count("num_heads", num_heads, least=0, most=MOST_ITEMS)
    if num_kv_heads is not None:
        check_count("num_kv_heads", num_kv_heads, least=0, most=MOST_ITEMS)
    for name, width in widths.items():
        if width is not None:
            check_count(name, width)


def check_options(attn: MultiHeadAttention) -> None:
    """Raise unless the options fit each other and the sizes of the layer."""
    check_number("scale", attn.scale)
    check_number("dropout", attn.dropout, least=0.0, most=1.0)
    if attn.softcap is not None:
        check_number("softcap", attn.softcap, above=0.0)
    check_instance(
        "init",
        attn.init,
        Init,
        "a function that draws the weights",
        hint="init=multihead.layer.init.Xavier()",
    )
    for name, kind in (("sinks", Sinks), ("qk_norm", QKNorm)):
        if getattr(attn, name) is not None:
            hint = f"{name}=mh.{kind.__name__}()"
            check_instance(name, getattr(attn, name), kind, f"a {kind.__name__}", hint=hint)
    if attn.position is not None:
        check_instance(
            "position", attn.position, Rotary | PositionBias, "an object of multihead.position",
            hint="for example position.Rotary(), position.ALiBi(num_heads), position.RelativeBias(num_heads)",
        )  # fmt: skip
    if isinstance(attn.position, PositionBias) and attn.position.num_heads != attn.num_heads:
        raise SizeError(
            f"position must have {attn.num_heads} heads like the layer, got {attn.position} with "
            f"{attn.position.num_heads} heads",
            hint=f"{type(attn.position).__name__}({attn.num_heads})",
        )
    if isinstance(attn.position, Rotary):
        attn.position.rotated(attn.head_dim)
