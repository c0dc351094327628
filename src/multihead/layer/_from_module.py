"""Convert attention modules of textbooks and tutorials to MultiHeadAttention.

The names of the parameters identify W_Q, W_K, W_V and W_O. The weight of an nn.Linear is (out, in). A plain matrix
W, or the weight of any other class, may be used as x @ W or as x @ Wᵀ. If both readings fit the shapes, the output
of the module on an example decides.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, isnan
from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from multihead._base.arguments import check_instance, describe
from multihead._base.eval_mode import eval_mode
from multihead.errors import ModelRunError, MultiheadError, SizeError, TypeMismatchError
from multihead.layer import mask as masks
from multihead.layer._layouts import LAYOUTS, Layout, State
from multihead.layer._state_dicts import LayerOptions, check_keys, layer_of_state_dict
from multihead.layer.attention import MultiHeadAttention

HEAD_COUNTS = ("num_heads", "n_heads", "heads", "h", "n_head", "nhead", "nheads", "num_head")


def from_module(
    module: nn.Module,
    *,
    num_heads: int | None = None,
    example: Tensor | Sequence[Tensor | None] | None = None,
    strict: bool = True,
    **options: Unpack[LayerOptions],
) -> MultiHeadAttention:
    """A layer with a copy of the weights of a textbook module, recognised by the names of its parameters.

    The layer computes softmax(q kᵀ / √head_dim) v. To verify that the module does too, pass `example`, and the
    outputs are compared. The layer stores no mask: for a causal module, call it with mask=mask.causal().

    Args:
        num_heads: default: the attribute num_heads, n_heads, heads, h, n_head, ... of the module.
        example: an input of the module, or a tuple of the arguments of its forward. The layer must reproduce the
            output in eval mode, without a mask or with a causal one. Required for square matrices outside of an
            nn.Linear: both x @ W and x @ Wᵀ are tried.
        strict: raise if a parameter has no counterpart in the layer.
        options: position, scale, ... of MultiHeadAttention. Dropout defaults to the module's.
    """
    hint = "from_state_dict(state, ...) reads state dicts"
    check_instance("module", module, nn.Module, "an nn.Module", hint=hint)
    run = None if example is None else _run(module, example)
    matches: list[MultiHeadAttention] = []
    closest = inf
    for attn in _layers(module, num_heads, options, strict=strict, compared=run is not None):
        difference = 0.0 if run is None else run.difference(attn)
        closest = min(closest, difference)
        if (run is None or difference <= run.tolerance) and not any(_equal(attn, other) for other in matches):
            matches.append(attn)
    if len(matches) == 1:
        if run is not None and run.ignores_scores(matches[0]):
            raise SizeError(
                f"the example does not decide: the output of {type(module).__name__} is the same with other scores",
                hint="pass several different tokens, scaled up if all scores are near 0, in float32 or float64",
            )
        return matches[0].train(module.training)
    name = type(module).__name__
    if run is None:
        raise SizeError(
            f"{len(matches)} readings of {name} fit: its matrices may be used as x @ W or as x @ W.T",
            hint="pass example=, an input of the module: its output decides",
        )
    if matches:
        raise SizeError(
            f"{len(matches)} readings of {name} reproduce its output on the example",
            hint="use several different tokens, larger values if all scores are near 0, and float32 or float64",
        )
    raise SizeError(
        f"the layer does not reproduce {name} on the example: the smallest difference is {closest:.3g} for "
        f"outputs up to {run.size:.3g}",
        hint="the layer computes softmax(q kᵀ / √head_dim) v, compared without a mask and with mask=mask.causal(); "
        "check num_heads, or pass the option that differs (scale=, position=, ...)",
    )


# ---- readings of the parameters ---------------------------------------------------------------


def _layers(
    module: nn.Module, num_heads: int | None, options: LayerOptions, *, strict: bool, compared: bool
) -> Iterator[MultiHeadAttention]:
    """A layer for every reading of a textbook module that fits its shapes."""
    if isinstance(module, nn.MultiheadAttention):
        if options or num_heads not in (None, module.num_heads):
            raise SizeError(
                f"an nn.MultiheadAttention takes no options, got {dict(options, num_heads=num_heads)}",
                hint="pass only the module: from_torch(module)",
            )
        yield MultiHeadAttention.from_torch(module)
        return
    heads = _head_count(module) if num_heads is None else num_heads
    options = {"dropout": _dropout(module), **options}
    first_error, built = None, False
    for layout, state in _readings(module, packings=compared):
        try:
            attn = layer_of_state_dict(MultiHeadAttention, state, layout, num_heads=heads, strict=False, **options)
        except SizeError as error:
            first_error = first_error or error
            continue
        if strict and not built:
            check_keys(attn, layout, state)
            if not compared:
                _check_options(module)
        built = True
        yield attn
    if first_error is not None and not built:
        raise first_error


def _readings(module: nn.Module, *, packings: bool) -> Iterator[tuple[Layout, State]]:
    """Every way to read a textbook module's parameters: a layout, and a state whose weights are (out, in).

    With `packings`, q, k and v in one matrix are read both as blocks and as grouped.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    lazy = next((name for name, x in named.items() if is_lazy(x)), None)
    if lazy is not None:
        raise SizeError(f"{lazy!r} has no shape yet", hint="call the module once to initialise its lazy layers")
    layout = _layout(module, named)
    packed = packings and any(len(letters) > 1 for letters in layout.weights)
    groups = {name: _weight_use(module, name) for name in layout.weights.values()}
    undecided = [*dict.fromkeys(group for group in groups.values() if group is not nn.Linear)]
    for choice in product((False, True), repeat=len(undecided)):
        in_out = dict(zip(undecided, choice, strict=True))
        state = {name: x.detach() for name, x in named.items()}
        for letters, name in layout.weights.items():
            state[name] = _out_in(state[name], letters, in_out=in_out.get(groups[name], False))
        state |= {name: state[name].flatten() for name in layout.biases.values() if name in state}
        for packing in ("blocks", "grouped") if packed else (layout.packing,):
            yield replace(layout, packing=packing), state


def _layout(module: nn.Module, named: Mapping[str, Tensor]) -> Layout:
    """The layout of a textbook module's parameters, with W_q for W_q.weight and b_q for W_q.bias if so named."""
    fits: list[Layout] = []
    rows = [row for row in LAYOUTS.values() if not row.transposed]
    for row in rows:
        weights = {x: key if key in named else key.removesuffix(".weight") for x, key in row.weights.items()}
        plain = {x: "b" + key.removesuffix(".bias")[1:] for x, key in row.biases.items() if key[0] in "Ww"}
        biases = {x: key if key in named else plain.get(x, key) for x, key in row.biases.items()}
        if set(weights.values()) <= set(named):
            fits.append(replace(row, weights=weights, biases=biases))
    if len(fits) == 1:
        return fits[0]
    shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in named.items()) or "none"
    known = "\n".join(f"  {', '.join(row.weights.values())}" for row in rows).replace(".weight", "")
    raise SizeError(
        f"{type(module).__name__} must hold one attention with known parameter names, got "
        f"{' and '.join(row.name for row in fits) or 'none'}; its parameters: {shapes}",
        hint="pass the attention module itself, or use from_state_dict(module.state_dict(), layout=...); known "
        f"names:\n{known}",
    )


def _weight_use(module: nn.Module, name: str) -> Hashable:
    """How a textbook module uses a key (x @ W or x @ Wᵀ): equal for those of one class, or a single matrix."""
    path, _, attribute = name.rpartition(".")
    owner = module.get_submodule(path)
    if isinstance(owner, nn.Linear):
        return nn.Linear
    return type(owner) if attribute == "weight" else name


def _out_in(x: Tensor, letters: str, *, in_out: bool) -> Tensor:
    """A textbook matrix as (out, in); `in_out`: used as input @ x. The first of three axes is the head."""
    if x.ndim == 3:  # (head, dim, width) or (head, width, dim)
        x = x.flatten(0, 1) if (letters == "o") == in_out else x.transpose(0, 1).flatten(1)
    return x.mT if in_out and x.ndim == 2 else x


def _equal(one: MultiHeadAttention, other: MultiHeadAttention) -> bool:
    state = other.state_dict()
    return all(torch.equal(x, state[key]) for key, x in one.state_dict().items())


def _head_count(module: nn.Module) -> int:
    """The number of heads that a textbook module names."""
    values = {name: cast(object, getattr(module, name)) for name in HEAD_COUNTS if hasattr(module, name)}
    counts = {n for n in values.values() if isinstance(n, int) and not isinstance(n, bool)}
    if len(counts) != 1:
        shown = ", ".join(f"{name}={n!r:.20}" for name, n in values.items()) or "none"
        raise SizeError(
            f"{type(module).__name__} must have one number of heads, got {shown} of {', '.join(HEAD_COUNTS)}",
            hint="pass num_heads=",
        )
    return counts.pop()


def _dropout(module: nn.Module) -> float:
    """The dropout of a textbook module: of the nn.Dropout with "att" in its name, or the attribute `dropout`."""
    on_weights = [x for name, x in module.named_modules() if isinstance(x, nn.Dropout) and "att" in name.lower()]
    dropout = cast(object, on_weights[0] if on_weights else getattr(module, "dropout", 0.0))
    p = dropout.p if isinstance(dropout, nn.Dropout) else dropout
    return float(p) if isinstance(p, float | int) else 0.0


def _check_options(module: nn.Module) -> None:
    """Raise if a textbook module has more than parameters. Masks (matrices of two values) are ignored."""
    buffers = [name for name, x in module.named_buffers() if x.ndim < 2 or x.unique().numel() > 2]
    if buffers or hasattr(module, "config") or isinstance(module, MultiHeadAttention):
        raise TypeMismatchError(
            f"{type(module).__name__} may compute more than its parameters show: it has "
            f"{'the buffers ' + ', '.join(buffers) if buffers else 'options'}",
            hint="pass example=, an input to compare outputs, and the options (position=, scale=, ...)",
        )


# ---- the module on an example -----------------------------------------------------------------


@dataclass(frozen=True)
class _ExampleRun:
    """The output of a module, and its query, key and value (or the first of these), batch first."""

    inputs: Sequence[Tensor]
    output: Tensor

    @property
    def size(self) -> float:
        return float(self.output.abs().amax()) if self.output.numel() else 0.0

    @property
    def tolerance(self) -> float:
        return self.size * torch.finfo(self.output.dtype).eps ** 0.5

    @torch.no_grad()
    def difference(self, attn: MultiHeadAttention) -> float:
        """How far the layer's outputs are from the textbook module's, without a mask or with a causal one."""
        with eval_mode(attn, freeze=False):
            try:
                outputs = [attn(*self.inputs, mask=mask) for mask in (None, masks.causal())]
            except MultiheadError:  # the input widths of this reading differ
                return inf
        outputs = [out for out in outputs if out.shape == self.output.shape]
        differences = (float((out - self.output).abs().amax()) for out in outputs if out.numel())
        return min((x for x in differences if not isnan(x)), default=inf)

    def ignores_scores(self, attn: MultiHeadAttention) -> bool:
        """Whether a textbook module is unchanged by halved scores, as of one token, equal tokens and zeros."""
        scale = attn.scale
        attn.scale = scale / 2 if scale else 1.0
        try:
            return self.difference(attn) <= self.tolerance
        finally:
            attn.scale = scale


def _run(module: nn.Module, example: object) -> _ExampleRun:
    """Run the textbook module on the example."""
    arguments, inputs = _arguments(module, example)
    name = type(module).__name__
    try:
        with torch.no_grad(), eval_mode(module, freeze=False):
            output: object = module(*arguments)
    except Exception as error:
        raise ModelRunError(
            f"{name} raised {type(error).__name__} on the example: {error}",
            hint="example= is an input of the module, or a tuple of the arguments of its forward",
        ) from error
    if isinstance(output, tuple | list) and output:
        output = cast(object, output[0])
    if not isinstance(output, Tensor):
        raise TypeMismatchError(
            f"{name} must return a tensor, or a tuple with the output first, got {describe(output)}",
            hint="omit example= to skip the comparison",
        )
    if getattr(module, "batch_first", True) or output.ndim != 3:
        return _ExampleRun(inputs, output)
    return _ExampleRun([x.transpose(0, 1) for x in inputs], output.transpose(0, 1))


def _arguments(module: nn.Module, example: object) -> tuple[Sequence[Any], list[Tensor]]:
    """The arguments of the module's forward, and which of them are query, key and value."""
    accepted = inspect.signature(module.forward).parameters.values()
    positional = [p for p in accepted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if isinstance(example, Tensor):  # for q, k and v; None for masks and other required arguments
        required = [p.name for p in positional if p.default is p.empty] or ["x"]
        example = [example if i < 3 and not _is_mask(name) else None for i, name in enumerate(required)]
    values = cast(Sequence[Any], example) if isinstance(example, tuple | list) else ()
    if not values or not isinstance(values[0], Tensor):
        raise TypeMismatchError(
            f"example must be a tensor, or a tuple of the arguments of forward, got {describe(example)}",
            hint="example=torch.randn(2, 7, d_model), or (q, k, v)",
        )
    tokens = {
        p.name: x
        for p, x in zip(positional, values, strict=False)
        if isinstance(x, Tensor) and x.is_floating_point() and x.ndim == values[0].ndim and not _is_mask(p.name)
    }
    initials = {name[0].lower(): x for name, x in tokens.items()}
    if set(initials) == set("qkv"):  # in any order, as forward(values, keys, query)
        return values, [initials[letter] for letter in "qkv"]
    return values, [*tokens.values()][:3]


def _is_mask(name: str) -> bool:
    return "mask" in name or "len" in name  # valid_lens
