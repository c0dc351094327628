"""Convert state dicts of other layers to MultiHeadAttention and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack, cast

from torch import Tensor, nn

from multihead._base.arguments import check_count, describe
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._layouts import LAYOUTS, Layout, Order, Sizes, State, modulo_heads, to_layout, to_split
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.init import XavierPerHead
from multihead.layer.layer_options import QKNorm, Sinks
from multihead.layer.position import Position, PositionBias

_PROJECTIONS = [f"{letter}_proj.{kind}" for letter in "qkvo" for kind in ("weight", "bias")]


class LayerOptions(TypedDict, total=False):
    """The options of MultiHeadAttention that a state dict does not hold."""

    kv_of_head: Sequence[int] | None
    position: Position | None
    qk_norm: QKNorm | None
    scale: float | None
    softcap: float | None
    sinks: Sinks | None
    dropout: float


def from_state_dict(
    state: Mapping[str, Tensor],
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    layout: str | Layout | None = None,
    prefix: str = "",
    order: Order = "consecutive",
    strict: bool = True,
    **options: Unpack[LayerOptions],
) -> MultiHeadAttention:
    """A layer with a copy of these weights.

    Args:
        num_kv_heads, head_dim: default: read from the shapes; otherwise they must agree with the shapes.
        layout: a name in `LAYOUTS` or a `Layout`; default: the layout with these keys.
        prefix: prefix of the keys of this layer, such as "model.layers.3.self_attn.".
        order: "consecutive" if query head h reads kv head h // group_size, "modulo" if it reads h % kv_heads.
        strict: raise if a key under the prefix has no counterpart in the layer.
        options: position, scale, dropout, ... of MultiHeadAttention, which a state dict does not hold.
    """
    check_is("state must be a dict of tensors", state, Mapping, hint="module.state_dict(), or from_module(module)")
    check_is("prefix must be a string", prefix, str, hint="prefix='model.layers.3.self_attn.'")
    for name, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads), ("head_dim", head_dim)):
        if name == "num_heads" or count is not None:
            check_count(name, count, least=0)
    layer_state = {key.removeprefix(prefix): x for key, x in state.items() if key.startswith(prefix)}
    if not strict:
        layer_state = {key: x for key, x in layer_state.items() if isinstance(cast(object, x), Tensor)}
    for key, x in layer_state.items():
        check_is(
            f"state[{prefix + key!r}] must be a tensor", x, Tensor, hint="pass the inner dict, or strict=False"
        )
    chosen = _layout(layout) if layout is not None else recognise(layer_state, prefix=prefix)
    _check_tensors(chosen, layer_state, prefix)
    sizes = _sizes(chosen, layer_state, num_heads, num_kv_heads, head_dim)
    projections = to_split(chosen, layer_state, sizes, order)
    attn = _layer(projections, sizes, options)
    _check_head_order(attn, order)
    if strict:
        check_keys(attn, chosen, layer_state)
    extras = {key: layer_state[key] for key in _extra_keys(attn) if key in layer_state}
    attn.load_state_dict(projections | extras, strict=strict)
    return attn


def to_state_dict(
    attn: MultiHeadAttention, layout: str | Layout = "split", *, prefix: str = "", order: Order = "consecutive"
) -> State:
    """A copy of the weights under the keys of another layout: the inverse of `from_state_dict`.

    Parameters without a key in the layout (qk-norm, sinks, learned positions) keep their keys of
    MultiHeadAttention.
    """
    check_is("attn must be a MultiHeadAttention", attn, MultiHeadAttention, hint="from_module(attn) returns one")
    for letter in "qkvo":
        linear = cast(object, getattr(attn, f"{letter}_proj"))
        if not isinstance(linear, nn.Linear):
            raise TypeMismatchError(
                f"{letter}_proj must be an nn.Linear, got {type(linear).__name__}",
                hint="merge the adapter or dequantize first",
            )
    _check_head_order(attn, order)
    sizes = Sizes(attn.num_heads, attn.num_kv_heads, attn.head_dim, attn.value_dim)
    chosen = _layout(layout)
    if chosen.packing == "grouped" and attn.groups.size is None:
        raise SizeError(
            f"layout {chosen.name!r} packs by kv head and needs kv_of_head = h // group_size, got "
            f"kv_of_head={list(attn.kv_of_head)}",
            hint="choose a layout with separate q, k and v, such as 'split'",
        )
    state = {key: x.detach() for key, x in attn.state_dict().items()}
    packed = to_layout(chosen, {key: state[key] for key in _PROJECTIONS if key in state}, sizes, order)
    extras = {key: state[key].clone() for key in _extra_keys(attn)}
    return {prefix + key: x for key, x in (packed | extras).items()}


def recognise(state: Mapping[str, Tensor], *, prefix: str = "") -> Layout:
    """The layout that fits the keys of a state dict."""
    fits = [row for row in LAYOUTS.values() if set(row.weights.values()) <= set(state)]
    if len({row.transposed for row in fits}) > 1:  # equal keys: decide by the shapes
        fits = [row for row in fits if _transposition_fits(row, state)]
    if len(fits) == 1:
        return fits[0]
    seen = ", ".join(sorted(state)) or "nothing"
    if len(fits) > 1:
        raise SizeError(
            f"the keys under {prefix!r} must fit one layout, got {', '.join(row.name for row in fits)} for {seen}",
            hint="choose one: layout=...",
        )
    known = "\n".join(f"  {row.name}: {', '.join(row.weights.values())} ({row.seen})" for row in LAYOUTS.values())
    raise SizeError(
        f"no layout has the keys under {prefix!r}: {seen}",
        hint=f"set prefix= to the part before one of these keys, or pass a Layout\n{known}",
    )


def from_torch(mha: nn.MultiheadAttention) -> MultiHeadAttention:
    """The same layer as a MultiHeadAttention, with a copy of the weights; always batch first.

    add_zero_attn, a key of score 0 and value 0, becomes a sink with logit 0, which is not trained.
    """
    hint = "from_module(module) reads other modules, from_state_dict(state, num_heads=...) reads state dicts"
    check_is("mha must be an nn.MultiheadAttention", mha, nn.MultiheadAttention, hint=hint)
    if mha.bias_k is not None or mha.bias_v is not None:
        raise SizeError(
            "mha must have add_bias_kv=False, got add_bias_kv=True: MultiHeadAttention has no learned key",
            hint="multihead.layer.dropin.MultiheadAttention supports it and loads the same state dict",
        )
    state = mha.state_dict()
    layout = "torch" if "in_proj_weight" in state else "torch-kdim"
    sinks = Sinks(0.0) if mha.add_zero_attn else None
    if sinks is not None:
        state["sink_logits"] = mha.out_proj.weight.new_zeros(mha.num_heads)
    attn = from_state_dict(state, layout=layout, num_heads=mha.num_heads, sinks=sinks, dropout=mha.dropout)
    if attn.sink_logits is not None:
        attn.sink_logits.requires_grad_(False)
    setattr(attn, _BATCH_FIRST, mha.batch_first)
    return attn.train(mha.training)


# The attribute in which from_torch stores mha.batch_first for to_torch.
_BATCH_FIRST = "torch_batch_first"


def to_torch(attn: MultiHeadAttention, *, batch_first: bool | None = None) -> nn.MultiheadAttention:
    """An nn.MultiheadAttention with a copy of the weights.

    `batch_first` defaults to that of the layer passed to `from_torch`, otherwise to True.
    """
    check_is("attn must be a MultiHeadAttention", attn, MultiHeadAttention, hint="from_module(attn) returns one")
    unsupported = _unsupported_by_torch(attn)
    if unsupported:
        raise SizeError(
            f"nn.MultiheadAttention cannot hold this layer: {'; '.join(unsupported)}",
            hint="to_state_dict(attn, layout) converts the weights for other code",
        )
    if batch_first is None:
        batch_first = bool(getattr(attn, _BATCH_FIRST, True))
    weight = attn.q_proj.weight
    mha = nn.MultiheadAttention(
        attn.d_model, attn.num_heads, dropout=attn.dropout, bias=cast(object, attn.q_proj.bias) is not None,
        add_zero_attn=attn.sink_logits is not None, kdim=attn.d_key, vdim=attn.d_value, batch_first=batch_first,
        device="meta", dtype=weight.dtype,
    ).to_empty(device=weight.device)  # fmt: skip
    layout = "torch" if "in_proj_weight" in mha.state_dict() else "torch-kdim"
    packed = to_state_dict(attn, layout)
    mha.load_state_dict({key: x for key, x in packed.items() if key in LAYOUTS[layout].keys})
    return mha.train(attn.training)


def _unsupported_by_torch(attn: MultiHeadAttention) -> list[str]:
    """The features of a layer that torch's state dicts cannot hold: nn.MultiheadAttention lacks them."""
    heads, biases = attn.num_heads, [x for x in "qkvo" if getattr(attn, f"{x}_proj").bias is not None]
    sinks = attn.sink_logits
    unsupported = {
        f"num_heads={heads}": heads < 1,
        f"kv_of_head={list(attn.kv_of_head)}, {heads} heads on {attn.num_kv_heads} kv heads": (
            attn.kv_of_head != tuple(range(heads)) or attn.num_kv_heads != heads
        ),
        f"head_dim={attn.head_dim}, value_dim={attn.value_dim} with d_model / num_heads = {attn.d_model}/{heads}": (
            heads * attn.head_dim != attn.d_model or heads * attn.value_dim != attn.d_model
        ),
        f"d_out={attn.d_out} with d_model={attn.d_model}": attn.d_out != attn.d_model,
        f"bias on {''.join(biases) or 'none'} only": len(biases) not in (0, 4),
        f"position={attn.position}": attn.position is not None,
        f"qk_norm={attn.qk_norm}": attn.qk_norm is not None,
        f"scale={attn.scale:g}, not {attn.head_dim**-0.5:g}": attn.scale != attn.head_dim**-0.5,
        f"softcap={attn.softcap}": attn.softcap is not None,
        "sinks whose logits are not 0": sinks is not None and bool(sinks.detach().count_nonzero()),
    }
    return [feature for feature, present in unsupported.items() if present]


def _no_init(attn: MultiHeadAttention) -> None:
    """Draw nothing: the weights are loaded, and the random state is unchanged."""


def _layer(projections: State, sizes: Sizes, options: LayerOptions) -> MultiHeadAttention:
    """A layer from a converted state dict."""
    q, k, v, o = (projections[f"{letter}_proj.weight"] for letter in "qkvo")
    attn = MultiHeadAttention(
        q.shape[1], sizes.heads, num_kv_heads=sizes.kv_heads, head_dim=sizes.key_dim, value_dim=sizes.value_dim,
        d_key=k.shape[1], d_value=v.shape[1], d_out=o.shape[0],
        bias="".join(letter for letter in "qkvo" if f"{letter}_proj.bias" in projections),
        init=_no_init, device=q.device, dtype=q.dtype, **options,
    )  # fmt: skip
    attn.init = XavierPerHead()
    return attn


def _layout(layout: str | Layout) -> Layout:
    """The layout of a state dict by its name."""
    if isinstance(layout, Layout):
        return layout
    if not isinstance(cast(object, layout), str) or layout not in LAYOUTS:
        raise SizeError(f"unknown layout {layout!r}", hint=f"choose one of {', '.join(LAYOUTS)}, or pass a Layout")
    return LAYOUTS[layout]


def _transposition_fits(row: Layout, state: Mapping[str, Tensor]) -> bool:
    """Whether a packed weight in a state dict has the layout's orientation, (out, in) or (in, out)."""
    for letters, key in row.weights.items():
        if len(letters) == 1 or state[key].ndim != 2:
            continue
        rows, columns = state[key].shape
        out = columns if row.transposed else rows
        bias = row.biases.get(letters)
        if bias is not None and bias in state:
            return state[bias].numel() == out
        return out == max(rows, columns)  # three projections are wider than their input, unless heads are removed
    return True


def _sizes(
    layout: Layout, state: Mapping[str, Tensor], heads: int, kv_heads: int | None, head_dim: int | None
) -> Sizes:
    """Numbers of heads and their sizes, read from a state dict and checked against the arguments."""
    shapes = {
        letters: (state[key].mT if layout.transposed else state[key]).shape
        for letters, key in layout.weights.items()
    }
    columns = shapes["o"][1]
    if heads < 1 and head_dim is None:
        raise SizeError(f"head_dim is required for num_heads={heads}", hint="pass head_dim=")
    value_dim = columns // heads if heads else cast(int, head_dim)
    if value_dim * heads != columns:
        raise SizeError(
            f"num_heads={heads} does not divide the {columns} columns of {layout.weights['o']!r}",
            hint="num_heads counts query heads",
        )
    if "q" in shapes:
        key_dim = shapes["q"][0] // heads if heads else cast(int, head_dim)
        if head_dim not in (None, key_dim) or key_dim * heads != shapes["q"][0]:
            raise SizeError(
                f"{layout.weights['q']!r} has {shapes['q'][0]} rows, which is not num_heads={heads} times "
                f"head_dim={head_dim or key_dim}",
                hint="head_dim is the size of one head's query; omit it to read it from the shape",
            )
    else:
        key_dim = value_dim if head_dim is None else head_dim
    # rows of the matrix with k: (heads · key_dim if it has q) + kv_heads · (key_dim, + value_dim if it has v)
    letters, shape = next((x, s) for x, s in shapes.items() if "k" in x)
    rest = shape[0] - heads * key_dim * ("q" in letters)
    per_head = key_dim + value_dim * ("v" in letters)
    count = rest // per_head
    if count < min(heads, 1) or count * per_head != rest or kv_heads not in (None, count):
        argument = "" if kv_heads is None else f"num_kv_heads={kv_heads} and "
        raise SizeError(
            f"{layout.weights[letters]!r} has {shape[0]} rows, which does not fit {argument}num_heads={heads} of "
            f"key size {key_dim} and value size {value_dim}: {rest} rows remain for kv heads of {per_head}",
            hint="check num_heads, num_kv_heads, head_dim and the layout",
        )
    return Sizes(heads, count, key_dim, value_dim)


def check_is(rule: str, value: object, kind: type, *, hint: str) -> None:
    """Raise unless `value` is of this kind; the message starts with `rule`."""
    if not isinstance(value, kind):
        raise TypeMismatchError(f"{rule}, got {describe(value)}", hint=hint)


def _extra_keys(attn: MultiHeadAttention) -> list[str]:
    """The keys of the layer besides its projections."""
    return [key for key in attn.state_dict() if key not in _PROJECTIONS]


def check_keys(attn: MultiHeadAttention, layout: Layout, state: Mapping[str, Tensor]) -> None:
    """Raise if the layer does not use a key of the state, or the state lacks a key of the layer."""
    extras = _extra_keys(attn)
    missing = [key for key in extras if key not in state]
    unused = [key for key in state if key not in layout.keys and key not in extras]
    if missing or unused:
        raise SizeError(
            f"the state must match layout {layout.name!r}; unused keys: {unused}; missing keys: {missing}",
            hint="pass the option they belong to (qk_norm=, sinks=, position=), or strict=False to ignore them",
        )


def _check_tensors(layout: Layout, state: Mapping[str, Tensor], prefix: str) -> None:
    """Raise unless a state dict has the tensors of its layout, with the right number of axes."""
    absent = [key for key in layout.weights.values() if key not in state]
    if absent:
        raise SizeError(
            f"layout {layout.name!r} needs {', '.join(absent)} under {prefix!r}, got the keys "
            f"{', '.join(sorted(state)) or 'none'}",
            hint="check prefix= and layout=",
        )
    for kind, keys, axes in (("weight", layout.weights, 2), ("bias", layout.biases, 1)):
        for key in keys.values():
            if key in state and state[key].ndim != axes:
                raise SizeError(
                    f"{key!r} must be {axes}-D like the {kind} of an nn.Linear, got {tuple(state[key].shape)}",
                    hint="reshape it first: (out, in) and (out,)",
                )
    present = {key: state[key] for key in (*layout.weights.values(), *layout.biases.values()) if key in state}
    first_key, first = next(iter(present.items()))
    for key, x in present.items():
        if x.dtype != first.dtype or x.device != first.device or not x.is_floating_point():
            raise TypeMismatchError(
                f"all weights must have one floating dtype and device, got {key!r} as {x.dtype} on {x.device} and "
                f"{first_key!r} as {first.dtype} on {first.device}",
                hint="convert the state first",
            )


def _check_head_order(attn: MultiHeadAttention, order: Order) -> None:
    """Raise if a conversion reorders heads, and the layer has options that depend on their order."""
    if order == "consecutive" or modulo_heads(attn.num_heads, attn.num_kv_heads) == list(range(attn.num_heads)):
        return
    if attn.sink_logits is not None or isinstance(attn.position, PositionBias) or attn.groups.size is None:
        option = (
            "kv_of_head" if attn.groups.size is None else "sinks" if attn.sink_logits is not None else "position"
        )
        raise SizeError(
            f"order='modulo' reorders query heads, and {option} depends on their order",
            hint=f"convert without {option}, then set it for the order h // group_size",
        )
