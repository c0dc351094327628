"""Checks of the inputs of a call; each error names the argument, its value and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from multihead._base.arguments import describe
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention


def check_inputs(
    attn: MultiHeadAttention, query: Tensor, key: Tensor | None, value: Tensor | None, *, known: bool = False
) -> None:
    """Raise if the inputs do not fit the layer or each other; `known` if a cache has the keys and values."""
    if value is not None and key is None:
        raise SizeError(
            f"value needs a key, got value of shape {tuple(value.shape)} and no key",
            hint="pass both for cross-attention, or neither for self-attention",
        )
    if known:
        key = value = None
    elif key is None and attn.d_key != attn.d_model:
        raise SizeError(
            f"self-attention needs d_key = d_model, got d_key={attn.d_key} and d_model={attn.d_model}",
            hint="this layer is for cross-attention: pass key= (and value=)",
        )
    check_tokens(attn.q_proj, "query", query, attn.d_model)
    if known:
        return
    source = query if key is None else key
    check_tokens(attn.k_proj, "key", source, attn.d_key)
    check_tokens(attn.v_proj, "value", source if value is None else value, attn.d_value)
    for name, x in (("key", source), ("value", value)):
        if x is not None and x.shape[0] != query.shape[0]:
            raise SizeError(
                f"query has batch {query.shape[0]}, {name} has batch {x.shape[0]}",
                hint="expand the smaller one: x.expand(batch, -1, -1)",
            )
    if value is not None and value.shape[1] != source.shape[1]:
        raise SizeError(
            f"key and value must have the same number of tokens, got {source.shape[1]} and {value.shape[1]}",
            hint="pass one value per key",
        )


def check_projections(attn: MultiHeadAttention) -> None:
    """Raise if q_proj, k_proj or v_proj was replaced by one of another size."""
    kv_heads = attn.num_kv_heads
    sizes = {
        "q_proj": (attn.num_heads * attn.head_dim, attn.d_model),
        "k_proj": (kv_heads * attn.head_dim, attn.d_key),
        "v_proj": (kv_heads * attn.value_dim, attn.d_value),
    }
    for name, (features, width) in sizes.items():
        weight: object = getattr(getattr(attn, name), "weight", None)
        if type(weight) in (Tensor, nn.Parameter) and (shape := tuple(cast(Tensor, weight).shape)) != (
            features,
            width,
        ):
            raise SizeError(
                f"{name} has a weight of shape {shape}, the layer needs {(features, width)}",
                hint=f"nn.Linear({width}, {features}), or build a layer with these sizes",
            )


def check_tensors(**inputs: object) -> None:
    """Raise unless each input is a tensor or None."""
    for name, x in inputs.items():
        if x is not None and not isinstance(x, Tensor):
            raise TypeMismatchError(f"{name} must be a tensor, got {describe(x)}", hint="torch.as_tensor(x)")


def check_tokens(projection: nn.Module, name: str, x: Tensor, width: int) -> None:
    """Raise unless `x` is (batch, tokens, width) with the dtype and device of a projection."""
    check_tensors(**{name: x})
    if x.ndim != 3 or x.shape[-1] != width:
        raise SizeError(
            f"{name} must have shape (batch, tokens, {width}), got {tuple(x.shape)}",
            hint=f"pass (batch, tokens, {width}) or (tokens, {width})",
        )
    weight = getattr(projection, "weight", None)
    if not isinstance(weight, Tensor):
        return
    if x.device != weight.device:
        raise TypeMismatchError(
            f"{name} is on {x.device}, the layer's weights are on {weight.device}",
            hint=f"move one of them: {name}.to({str(weight.device)!r})",
        )
    # A quantized weight accepts any float.
    plain = type(weight) in (Tensor, nn.Parameter) and weight.is_floating_point()
    mixed = plain and x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type)
    if not x.is_floating_point() or mixed:
        raise TypeMismatchError(
            f"{name} is {x.dtype}, the layer's weights are {weight.dtype}",
            hint=f"{name}.to({weight.dtype}), or run under torch.autocast",
        )


def check_gate(gate: Tensor, coordinates: Coordinates) -> Tensor:
    """The checked gate in a shape that multiplies head outputs: (batch, head, query, 1); axes may have size 1."""
    full = (coordinates.batch, coordinates.heads, coordinates.queries)
    shape = tuple(gate.shape) if isinstance(gate, Tensor) else ()  # pyright: ignore[reportUnnecessaryIsInstance]  # users
    expected = {1: full[1:2], 2: full[:2], 3: full}.get(len(shape))
    if expected is None or any(have not in (1, need) for have, need in zip(shape, expected, strict=True)):
        got = f"shape {shape}" if isinstance(gate, Tensor) else repr(gate)  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SizeError(
            f"head_gate must be (head,), (batch, head) or (batch, head, query) with sizes {full}, got {got}",
            hint=f"one factor per head: torch.ones({coordinates.heads})",
        )
    if gate.is_complex() or gate.device != coordinates.device:
        raise TypeMismatchError(
            f"head_gate must be real and on {coordinates.device}, got {gate.dtype} on {gate.device}",
            hint=f"head_gate.to({str(coordinates.device)!r})",
        )
    return gate.view(1, -1, 1, 1) if gate.ndim == 1 else gate.reshape(*shape, *(1,) * (4 - len(shape)))


def check_positions(positions: Tensor, position: object, query: Tensor, *, alone: bool) -> Tensor:
    """Checked explicit positions as int64: differences of smaller integers wrap around.

    Raises unless they fit the call; `alone` if the queries are all the keys.
    """
    batch, tokens = query.shape[:2]
    integers = isinstance(positions, Tensor) and not (  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool
    )
    if not integers:
        got = positions.dtype if isinstance(positions, Tensor) else repr(positions)[:60]  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeMismatchError(
            f"positions must be a tensor of integers, got {got}", hint="count tokens: torch.arange(tokens)"
        )
    if positions.is_meta and not query.is_meta:
        raise TypeMismatchError(
            f"positions are on {positions.device}, query is on {query.device}",
            hint=f"create them on {query.device}",
        )
    if position is None:
        raise SizeError(
            f"positions must be None for a layer without a position encoding, got shape {tuple(positions.shape)}",
            hint="pass no positions, or build the layer with position=position.Rotary()",
        )
    rows = positions.shape[0] if positions.ndim == 2 else 1
    if positions.ndim not in (1, 2) or positions.shape[-1] != tokens or rows not in (1, batch):
        raise SizeError(
            f"positions of shape {tuple(positions.shape)} do not fit batch={batch}, tokens={tokens}",
            hint=f"pass ({tokens},) or ({batch}, {tokens})",
        )
    if not alone and not hasattr(position, "rotated"):
        raise SizeError(
            f"positions must be None for {type(position).__name__} with keys in a cache, in another sequence or on "
            f"other ranks, got positions of shape {tuple(positions.shape)}",
            hint="pass no positions: the bias then counts the tokens",
        )
    return positions.long()
