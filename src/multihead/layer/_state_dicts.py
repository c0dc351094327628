"""Convert state dicts of other layers to MultiHeadAttention and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack, cast

from torch import Tensor, nn

from multihead._base.arguments import check_count
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._layouts import LAYOUTS, Layout, Order, Sizes, State, modulo_heads, to_layout, to_split
from multihead.layer.init import XavierPerHead
from multihead.layer.layer_options import QKNorm, Sinks
from multihead.layer.position import Position, PositionBias

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention

    Layer = TypeVar("Layer", bound=MultiHeadAttention)

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


def layer_of_state_dict(
    kind: type[Layer],
    state: Mapping[str, Tensor],
    layout: Layout,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    prefix: str = "",
    order: Order = "consecutive",
    strict: bool = True,
    **options: Unpack[LayerOptions],
) -> Layer:
    """A layer of a class with a copy of these weights: `interop.from_state_dict`; errors name the prefix."""
    for name, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads), ("head_dim", head_dim)):
        if name == "num_heads" or count is not None:
            check_count(name, count, least=0)
    _check_tensors(layout, state, prefix)
    sizes = _sizes(layout, state, num_heads, num_kv_heads, head_dim)
    projections = to_split(layout, state, sizes, order)
    attn = _layer(kind, projections, sizes, options)
    _check_head_order(attn, order)
    if strict:
        check_keys(attn, layout, state)
    extras = {key: state[key] for key in _extra_keys(attn) if key in state}
    attn.load_state_dict(projections | extras, strict=strict)
    return attn


def state_dict_of_layer(attn: MultiHeadAttention, layout: Layout, order: Order = "consecutive") -> State:
    """A copy of the weights of a layer under the keys of a layout: `interop.to_state_dict`."""
    for letter in "qkvo":
        linear = cast(object, getattr(attn, f"{letter}_proj"))
        if not isinstance(linear, nn.Linear):
            raise TypeMismatchError(
                f"{letter}_proj must be an nn.Linear, got {type(linear).__name__}",
                hint="merge the adapter or dequantize first",
            )
    _check_head_order(attn, order)
    sizes = Sizes(attn.num_heads, attn.num_kv_heads, attn.head_dim, attn.value_dim)
    if layout.packing == "grouped" and attn.groups.size is None:
        raise SizeError(
            f"layout {layout.name!r} packs by kv head and needs kv_of_head = h // group_size, got "
            f"kv_of_head={list(attn.kv_of_head)}",
            hint="choose a layout with separate q, k and v, such as 'split'",
        )
    state = {key: x.detach() for key, x in attn.state_dict().items()}
    packed = to_layout(layout, {key: state[key] for key in _PROJECTIONS if key in state}, sizes, order)
    return packed | {key: state[key].clone() for key in _extra_keys(attn)}


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


def layout_of(layout: str | Layout) -> Layout:
    """The layout of a state dict by its name."""
    if isinstance(layout, Layout):
        return layout
    if not isinstance(cast(object, layout), str) or layout not in LAYOUTS:
        raise SizeError(f"unknown layout {layout!r}", hint=f"choose one of {', '.join(LAYOUTS)}, or pass a Layout")
    return LAYOUTS[layout]


def _no_init(attn: MultiHeadAttention) -> None:
    """Draw nothing: the weights are loaded, and the random state is unchanged."""


def _layer(kind: type[Layer], projections: State, sizes: Sizes, options: LayerOptions) -> Layer:
    """A layer from a converted state dict."""
    q, k, v, o = (projections[f"{letter}_proj.weight"] for letter in "qkvo")
    attn = kind(
        q.shape[1], sizes.heads, num_kv_heads=sizes.kv_heads, head_dim=sizes.key_dim, value_dim=sizes.value_dim,
        d_key=k.shape[1], d_value=v.shape[1], d_out=o.shape[0],
        bias="".join(letter for letter in "qkvo" if f"{letter}_proj.bias" in projections),
        init=_no_init, device=q.device, dtype=q.dtype, **options,
    )  # fmt: skip
    attn.init = XavierPerHead()
    return attn


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
