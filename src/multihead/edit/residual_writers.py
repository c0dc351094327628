"""The block equation: the linear maps of a block that write into the residual stream, and where the stream is read.

    t − b = Σ c_i w_i

b and t are inputs or outputs of modules of the block, w_i = W_i z_i + b_i the outputs of the linear maps that run
between them. The first t for which the equation has a solution with c_i ≠ 0 is where the stream with w_i added is
read: the input of a norm (GPT-2, BERT), or the output of the block. Parallel blocks (NeoX, GPT-J) have one equation
with two maps. Where a norm stands before the sum (Gemma 2), or the sum has no module boundary, there is no
equation, and only the output of W_O is fitted.

>>> import torch, multihead as mh
>>> from multihead.edit.residual_writers import find_blocks
>>> model = torch.nn.TransformerEncoderLayer(12, 3, 24, batch_first=True).eval()
>>> (block,) = find_blocks(model, list(mh.anatomy(model)), {"src": torch.randn(2, 7, 12)})
>>> for writer in block.writers:
...     print(writer.parameter, writer.scale, writer.tap)
self_attn.out_proj.weight 1.0 input of norm1
linear2.weight 1.0 input of norm2
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float64
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from multihead._base.nested_tensors import tensors_in
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.edit.residual_block import Block, Tap, TokenLayout, Writer
from multihead.model.active_interceptions import isolation_depth
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.run_by_blocks import blocks_of

ROWS = 48
"""Tokens that the equation is solved on."""
TOLERANCE = 1e-4
"""The equation holds if it leaves less than this share of t − b; in half precision, `ROUNDINGS` of the dtype."""
ROUNDINGS = 4

_MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__, operator.matmul, torch.mm, Tensor.mm}


# ---- reading a run --------------------------------------------------------------------------------


class MapReader(TorchFunctionMode):
    """Calls `seen(name, z, o, transposed)` for every linear map o = W z + b with one of these weights.

    `transposed`: the parameter is Wᵀ, as in Hugging Face's Conv1D.
    """

    def __init__(self, weights: Mapping[str, Tensor], seen: Callable[[str, Tensor, Tensor, bool], None]) -> None:
        super().__init__()
        self.seen = seen
        self._weights = {id(w): (name, w) for name, w in weights.items()}
        self._places = {w.data_ptr(): (name, w) for name, w in weights.items() if w.numel()}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        z, weight = _product(func, args, kwargs or {})
        if isinstance(z, Tensor) and isinstance(weight, Tensor) and isinstance(result, Tensor):
            name, own = self._weights.get(id(weight)) or self._places.get(weight.data_ptr(), ("", weight))
            if name and own.numel() == weight.numel():  # the parameter, or a transpose of it
                same = weight.shape == own.shape and weight.stride() == own.stride()
                self.seen(name, z, result, same != (func is F.linear))
        return result


def _product(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """(z, W) of a function that computes W z (+ b) and may write into the stream; else (None, None)."""
    if func is F.linear:
        z, weight, *_ = (*args, *(kwargs[name] for name in ("input", "weight") if name in kwargs))
        return z, weight
    if func in (torch.addmm, Tensor.addmm) and len(args) == 3:
        return args[1], args[2]
    return (args[0], args[1]) if func in _MATMUL and len(args) == 2 else (None, None)


def tap_value(tap: Tap, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any = None) -> Tensor | None:
    """The tensor at a tap of the residual stream."""
    if tap.side == "output":
        return next(tensors_in(output), None)
    value = kwargs.get(tap.argument) if isinstance(tap.argument, str) else (*args, None)[tap.argument]
    return value if isinstance(value, Tensor) else None


# ---- finding the writers --------------------------------------------------------------------------


@dataclass
class _Seen:
    """What one run showed between the starts of two blocks, in order."""

    maps: list[tuple[int, str, Tensor, bool]] = field(default_factory=list[tuple[int, str, Tensor, bool]])
    taps: list[tuple[int, Tap, Tensor]] = field(default_factory=list[tuple[int, Tap, Tensor]])
    layout: TokenLayout | None = None
    heads: HeadOutputs | None = None
    inputs: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """z of the maps"""


def find_blocks(model: nn.Module, layers: Sequence[LayerAnatomy], example: Inputs) -> tuple[Block, ...]:
    """The blocks of the attentions in the order of the run, with their writers, from one run on an example.

    Maps that the model uses more than once are not writers: what is fitted to one use would be wrong for the
    others.
    """
    finder = _Finder(inner(model), layers)
    forward = Forward(model)
    hooks = finder.hooks()
    try:
        with finder.reader, forward.listening(finder.listen, required=False):
            forward.run(example)
    finally:
        for hook in hooks:
            hook.remove()
    finder.close()
    return tuple(finder.blocks())


class _Finder:
    """Listens to one run, and solves the equations of a block when the next one starts."""

    def __init__(self, root: nn.Module, layers: Sequence[LayerAnatomy]) -> None:
        self.root = root
        owners = blocks_of([layer.path for layer in layers])
        self.layers = {owners[layer.path]: layer for layer in reversed(layers)}
        self.repeated = {block for block, n in Counter(owners[x.path] for x in layers).items() if n > 1}
        outputs = {layer.weights["o"].parameter for layer in layers}
        weights = {name: p for name, p in root.named_parameters() if p.ndim == 2}
        self.outputs, self.reader = outputs, MapReader(weights, self.map_ran)
        self.uses: Counter[str] = Counter()
        self.order: list[str] = []
        self.seen, self.now, self.time = _Seen(), "", 0
        self.solved: dict[str, Block] = {}
        self.depth = isolation_depth()
        if "" in self.layers:
            self.order.append("")

    def hooks(self) -> list[Any]:
        """Hooks that find where modules read and write the stream."""
        hooks: list[Any] = []
        for name, module in self.root.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(self.module_starts, name), with_kwargs=True))
            hooks.append(module.register_forward_hook(partial(self.module_ends, name)))
        return hooks

    def module_starts(self, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the input of a module, which may be the residual stream."""
        if name in self.layers and name not in self.order:
            self.close()
            self.order.append(name)
            self.now = name
        for argument, value in (*enumerate(args), *kwargs.items()):
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1:
                self.note(Tap(name, "input", argument), value)
                break

    def module_ends(self, name: str, _: nn.Module, args: Any, output: Any) -> None:
        value = next(tensors_in(output), None)
        if value is not None and value.is_floating_point() and value.ndim > 1:
            self.note(Tap(name, "output"), value)

    def note(self, tap: Tap, value: Tensor) -> None:
        """Note a value that may be the residual stream."""
        if isolation_depth() != self.depth:  # a comparison with the model's own code
            return
        self.time += 1
        self.seen.taps.append((self.time, tap, value.detach().clone()))  # later code may write into it

    def map_ran(self, name: str, z: Tensor, o: Tensor, transposed: bool) -> None:
        """Note a linear map that may write into the residual stream."""
        if isolation_depth() != self.depth:
            return
        self.time += 1
        self.uses[name] += 1
        if o.ndim > 1:
            self.seen.maps.append((self.time, name, o.detach().clone(), transposed))
            self.seen.inputs[name] = z.detach()

    def listen(self, call: Call, run: Compute) -> HeadOutputs:
        """Note the order of rows of a block's heads."""
        heads = run()
        if self.now in self.layers and call.path == self.layers[self.now].path:
            self.seen.layout, self.seen.heads = TokenLayout.of(call, heads), heads.detach()
        return heads

    def close(self) -> None:
        """Solve for the writers of the block that ends."""
        seen, self.seen = self.seen, _Seen()
        layer = self.layers.get(self.now)
        if layer is not None and seen.layout is not None and self.now not in self.repeated:
            self.solved[self.now] = _solved(self.now, layer, seen, seen.layout)

    def blocks(self) -> list[Block]:
        blocks = [self.solved.get(path, Block(path, self.layers[path], ())) for path in self.order]
        return [replace(b, writers=tuple(w for w in b.writers if self.uses[w.parameter] == 1)) for b in blocks]


def _solved(path: str, layer: LayerAnatomy, seen: _Seen, layout: TokenLayout) -> Block:
    """The writers into the residual stream of a block, W_O in any case."""
    output = layer.weights["o"].parameter
    width, transposed = next(((o.shape[-1], t) for _, name, o, t in seen.maps if name == output), (0, False))
    count = layout.documents * layout.tokens
    maps = [
        _Map(time, name, o, turned, _orders(o, layout))
        for time, name, o, turned in seen.maps
        if o.shape[-1] == width and o.shape[:-1].numel() == count
    ]
    taps = [t for t in seen.taps if t[2].shape[-1] == width and t[2].shape[:-1].numel() == count]
    writers: dict[str, Writer] = {}
    for time, tap, total in _distinct_taps(taps):
        order = _orders(total, layout)[0]
        for start, _, base in _distinct_taps(taps):
            between = [m for m in maps if start < m.time < time]
            if all(m.name in writers for m in between):
                continue
            change = total.double().reshape(count, width) - base.double().reshape(count, width)
            for m, scale, turned in _solution(change, between, order, layout):
                writers.setdefault(m.name, Writer(m.name, tap, scale, m.transposed, turned, order))
    last = next(((w.tap, w.tap_token_first) for w in reversed(writers.values())), None)
    returned = [(tap, _orders(x, layout)[0]) for _, tap, x in taps if tap == Tap(path, "output")]
    writers.setdefault(output, Writer(output, transposed=transposed, token_first=_by_token(seen, output)))
    place = {m.name: m.time for m in reversed(maps)}
    ordered = sorted(writers.values(), key=lambda w: place.get(w.parameter, 0))
    return Block(path, layer, tuple(ordered), *(last or (returned or [(None, False)])[-1]))


@dataclass(frozen=True, eq=False)
class _Map:
    time: int
    name: str
    value: Tensor
    transposed: bool
    orders: tuple[bool, ...]
    """whether its rows may run over (token, document)"""

    def rows(self, token_first: bool, like: bool, layout: TokenLayout) -> Float64[Tensor, "row width"]:
        """All rows that a writer adds, in the order of a tensor with rows over (token, document) if `like`."""
        flat = self.value.double().reshape(-1, self.value.shape[-1])
        if token_first == like:
            return flat
        first, second = (layout.documents, layout.tokens) if like else (layout.tokens, layout.documents)
        return flat.view(first, second, -1).transpose(0, 1).flatten(0, 1)


def _orders(x: Tensor, layout: TokenLayout) -> tuple[bool, ...]:
    """The orders of rows of the residual stream: (document, token) and (token, document)."""
    documents, tokens = layout.documents, layout.tokens
    if x.ndim == 3 and x.shape[:2] == (documents, tokens) and documents != tokens:
        return (False,)
    if x.ndim == 3 and x.shape[:2] == (tokens, documents) and documents != tokens:
        return (True,)
    return (False,) if min(documents, tokens) == 1 else (False, True)


def _distinct_taps(taps: list[tuple[int, Tap, Tensor]]) -> list[tuple[int, Tap, Tensor]]:
    """Taps of the block equation, without those whose tensor an earlier tap has: an output is the next input."""
    kept: list[tuple[int, Tap, Tensor]] = []
    for tap in taps:
        if not any(tap[2].shape == x.shape and torch.equal(tap[2], x) for _, _, x in kept):
            kept.append(tap)
    return kept


def _solution(
    change: Tensor, maps: Sequence[_Map], order: bool, layout: TokenLayout
) -> list[tuple[_Map, float | Tensor, bool]]:
    """The writers whose maps add up to t − b of the stream, with scales and order of rows; else empty."""
    step = max(1, len(change) // ROWS)
    turns = [order] if all(len(m.orders) == 1 for m in maps) else [order, not order]
    for turned in turns:
        each = [m.orders[0] if len(m.orders) == 1 else turned for m in maps]
        rows = torch.stack([m.rows(o, order, layout)[::step] for m, o in zip(maps, each, strict=True)])
        tolerance = max(TOLERANCE, ROUNDINGS * max(torch.finfo(m.value.dtype).eps for m in maps))
        scales = _scalars(change[::step], rows, tolerance) or _channels(change[::step], rows)
        if scales is not None:
            parts = zip(maps, scales, each, strict=True)
            return [(m, s, o) for m, s, o in parts if bool(torch.as_tensor(s).abs().max() > 0)]
    return []


def _scalars(change: Tensor, maps: Float64[Tensor, "map row width"], tolerance: float) -> list[float] | None:
    """c with t − b = Σ c_i w_i, one number per writer."""
    flat, total = maps.flatten(1), change.flatten()
    size = float(total.norm())
    scales = torch.linalg.pinv(flat @ flat.T, rtol=1e-10, hermitian=True) @ (flat @ total)
    scales = torch.where(scales.abs() < 1e-3, 0.0, scales)
    holds = size > 0 and float((total - scales @ flat).norm()) < tolerance * size
    return [_plain(float(c), tolerance) for c in scales] if holds and bool(scales.any()) else None


def _channels(change: Tensor, maps: Float64[Tensor, "map row width"]) -> list[Tensor] | None:
    """c of one writer with a number per channel: c_j = Σ w_j (t − b)_j / Σ w_j².

    On equal tokens every map would solve this: it must explain how t − b varies over tokens, not only its mean.
    """
    variation = float((change - change.mean(0)).norm())
    for i, w in enumerate(maps) if len(change) >= 4 else ():
        scale = (w * change).sum(0) / w.square().sum(0)
        holds = float((change - scale * w).norm()) < TOLERANCE * variation  # False for NaN
        if holds and bool((scale != 0).all()):
            return [scale.float() if j == i else torch.zeros(1) for j in range(len(maps))]
    return None


def _plain(scale: float, tolerance: float) -> float:
    """Without the rounding of the solution: 1.0000001 is 1."""
    return 1.0 if abs(scale - 1) < tolerance else round(scale, 4)


def _by_token(seen: _Seen, output: str) -> bool:
    """Whether the input z of a writer has its rows over (token, document), as heads do in this order."""
    z, heads = seen.inputs.get(output), seen.heads
    if z is None or heads is None:
        return False
    documents, _, tokens, _ = heads.shape
    if z.ndim == 3 and documents != tokens:
        return z.shape[:2] == (tokens, documents)
    lying = heads.permute(2, 0, 1, 3).flatten(2)  # token, document, head · dim
    if min(documents, tokens) == 1 or lying.shape[-1] != z.shape[-1]:
        return False
    return torch.equal(lying.flatten(0, 1), z.reshape(-1, z.shape[-1]))


def linear_maps(model: nn.Module, batch: Inputs) -> list[str | None]:
    """The weights of all linear maps, possible writers, in the order of the run; None for every attention."""
    seen: list[str | None] = []

    def listen(call: Call, run: Compute) -> HeadOutputs:
        seen.append(None)
        return run()

    def map_ran(name: str, z: Tensor, o: Tensor, transposed: bool) -> None:
        seen.append(name)

    weights = {name: p for name, p in inner(model).named_parameters() if p.ndim == 2}
    with MapReader(weights, map_ran):
        Forward(model)(batch, listen, required=False)
    return seen
