"""Modules whose code is unknown: try strategies to give them different heads, and compare each with a run.

The expected output is that of the module before the cut, with the new weights in the remaining heads and the
removed heads ablated. The model runs once, as far as the module; then only the module is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.eval_mode import eval_mode
from multihead._base.nested_tensors import tensors_in
from multihead._base.shapes import HeadOutputs
from multihead.corpus.run import Runner
from multihead.edit.surgery.patched_modules import RepeatKV
from multihead.edit.surgery.steps import Step, apply
from multihead.edit.surgery.structure import Attention, Structure, Way
from multihead.errors import ModelRunError, MultiheadError
from multihead.model.call import Call, Compute
from multihead.model.example_inputs import example_inputs
from multihead.model.families import SIZES
from multihead.model.forward import Forward, ModelInputs, StopForward
from multihead.model.head_weights import HeadWeights

Inputs = ModelInputs | Tensor | None
_FAILS = (ModelRunError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def put(root: nn.Module, structure: Structure, weights: HeadWeights) -> list[Step]:
    """Try a structure: do its steps, write the weights of the heads; returns the steps that changed something."""
    values = structure.values | {name: stored(weights) for name, stored in structure.weights.items()}
    done = apply(root, structure.steps)
    with torch.no_grad():
        for name, x in values.items():
            root.get_parameter(name).copy_(x)
    return done


def try_strategies(attention: Attention, inputs: Inputs, run: Runner) -> tuple[Structure, list[Step]]:
    """Apply the first strategy after which the module computes the expected output; returns its structure."""
    root, layer = attention.root, attention.layer
    inputs = example_inputs(root) if inputs is None else inputs
    inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
    with torch.no_grad(), eval_mode(root, freeze=False):
        expected = _expected(attention, inputs, run)
        home = root.get_submodule(_home(attention))
        before = {name: p.detach().clone() for name, p in attention.own_parameters().items()}
        tried: list[str] = []
        for strategy, make in _candidates(attention, expected.returned).items():
            restore: Callable[[], None] | None = None
            try:
                structure = make()
                restore = _restorer(root, {step.at for step in structure.steps})
                done = put(root, structure, attention.new)
                difference = _difference(_outputs(home(*expected.args, **expected.kwargs)), expected.outputs)
                if difference is not None and difference <= _tolerance(expected.outputs):
                    return structure, done
                reason = "other shapes" if difference is None else f"differs by {difference:.2g}"
                tried.append(f"{strategy}: {reason}")
            except _FAILS as failed:
                reason = failed.__cause__ if isinstance(failed, ModelRunError) else failed
                tried.append(f"{strategy}: {str(reason).partition(chr(10))[0]}")
            if restore is not None:
                restore()
            for name, values in before.items():
                root.get_parameter(name).copy_(values)
    raise MultiheadError(
        f"{layer.where}: the code of {type(attention.module).__name__} does not take "
        f"{attention.new.heads} heads on {attention.new.kv_heads} kv heads instead of {layer.num_heads} on "
        f"{layer.num_kv_heads}; tried {'; '.join(tried)}",
        hint="let it take its sizes from its weights: view(..., -1, head_dim), and no width of its input",
    )


def _home(attention: Attention) -> str:
    """The smallest module around the kernel call and all projections of a trial."""
    paths = [attention.layer.path, *(part.module for part in attention.layer.weights.values())]
    parts = [path.split(".") if path else [] for path in paths]
    shared = 0
    while all(len(p) > shared and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return ".".join(parts[0][:shared])


def _candidates(attention: Attention, returned: Any) -> dict[str, Callable[[], Structure]]:
    """Functions that make the strategies to try, by name, best first; they may raise."""
    strategies: dict[str, tuple[Way, Callable[[Attention], list[Step]]]] = {}
    for way in attention.ways():
        strategies |= {way: (way, lambda _: []), f"{way}, widths": (way, _widths)}
    q, v = attention.layer.weights["q"], attention.layer.weights["v"]
    if q.parameter == v.parameter and q.module != attention.layer.path:  # a module that holds all three
        strategies["plain"] = ("sizes", _plain)

    def make(way: Way, more: Callable[[Attention], list[Step]]) -> Structure:
        structure = attention.structure(way, returns=_returns(attention, returned))
        structure.steps += more(attention)
        return structure

    return {name: partial(make, *strategy) for name, strategy in strategies.items()}


def _widths(attention: Attention) -> list[Step]:
    """Steps to try: attributes as large as all heads together are taken for their width."""
    size, named = attention.layer.key_dim, {name for names in SIZES.values() for name in names.split()}
    return [
        Step("set", attention.layer.path, name, attention.new.heads * size)
        for name, value in attention.module.__dict__.items()
        if type(value) is int and value == attention.q.count * size and name not in named
    ]


def _plain(attention: Attention) -> list[Step]:
    """Steps to try: our own code around qkv and proj, for a module that takes its width from its input."""
    path, layer, new = attention.layer.path, attention.layer, attention.new
    start, home = f"{path}." if path else "", layer.weights["q"].module
    data = {
        "qkv": home.removeprefix(start),
        "out": layer.weights["o"].module.removeprefix(start),
        "sizes": [new.heads * layer.key_dim, new.kv_heads * layer.key_dim, new.kv_heads * layer.value_dim],
        "dim": layer.key_dim,
        "kv_of_head": list(new.groups.kv_of_head),
    }
    steps = [Step("patch", path, "timm", data)]
    if isinstance(attention.root.get_submodule(home), RepeatKV):  # an earlier cut used a different strategy
        pieces = new.heads + 2 * new.kv_heads
        plain = {"sizes": [layer.key_dim] * pieces, "order": list(range(pieces)), "packing": "blocks"}
        steps.insert(0, Step("patch", home, "repeat kv", plain))
    return steps


def _returns(attention: Attention, returned: Any) -> str:
    """The output of a module without heads in a trial, from what it returned before."""
    path, out = attention.layer.path, attention.layer.weights["o"].module
    first = "o" if not path or f"{out}.".startswith(f"{path}.") else "z"
    return f"={first}" if isinstance(returned, Tensor) or returned is None else first + "-" * (len(returned) - 1)


@dataclass
class _Expected:
    """A call of the module before the cut: its arguments, and the outputs that the cut one must have."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Tensor]
    returned: Any
    """what the module that calls the kernel returned"""


def _expected(attention: Attention, inputs: ModelInputs, run: Runner) -> _Expected:
    """What a trial must compute: run the uncut model to the module with the new weights, removed heads ablated."""
    layer, parameters = attention.layer, attention.own_parameters()
    before = {name: p.detach().clone() for name, p in parameters.items()}
    removed = [h for h in range(layer.num_heads) if h not in attention.q.now]
    calls: list[_Expected] = []
    returned: list[Any] = [None]

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        out = compute()
        heads = torch.tensor(removed, dtype=torch.long, device=out.device)
        return out.index_fill(1, heads, 0.0) if call.path == layer.path else out

    def look(module: nn.Module, args: Any, output: Any) -> None:
        returned[0] = output

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append(_Expected(args, kwargs, _outputs(output), returned[0]))
        raise StopForward

    home, forward = attention.root.get_submodule(_home(attention)), Forward(attention.root)
    with attention.module.register_forward_hook(look), home.register_forward_hook(stop, with_kwargs=True):
        try:
            _write(attention)
            with forward.listening(listen):
                run(forward, inputs)  # pyright: ignore[reportArgumentType]  # Forward.run takes a tuple too
        finally:
            for name, values in before.items():
                parameters[name].data.copy_(values)
    if not calls or not calls[0].outputs:
        raise MultiheadError(
            f"{type(home).__name__} returned no tensor: the {attention.new.heads} heads of {layer.where} cannot be "
            "compared with the uncut ones",
            hint="pass inputs for which the module runs",
        )
    return calls[0]


def _write(attention: Attention) -> None:
    """Write the weights of a trial over those of the old heads, and the output bias."""
    layer, new, parameters = attention.layer, attention.new, attention.own_parameters()
    kv_of = {layer.groups.kv_of_head[h]: new.groups.kv_of_head[i] for i, h in enumerate(new.origin)}
    query_of = {h: i for i, h in enumerate(new.origin)}
    of = {"q": query_of, "k": kv_of, "v": kv_of} | ({"g": query_of} if layer.gated else {})
    for letter, heads in of.items():
        part = layer.weights[letter]
        for old, i in heads.items():
            view = part.heads[old].of(parameters[part.parameter].data, part.axis)
            (view if part.axis == 0 else view.mT).copy_(getattr(new, letter)[i])
            bias: Tensor | None = getattr(new, f"b_{letter}")
            if part.bias is not None:
                slots = part.bias_heads[old].of(parameters[part.bias].data, 0)
                slots.copy_(torch.zeros_like(slots) if bias is None else bias[i])
    part = layer.weights["o"]
    for i, old in enumerate(new.origin):
        view = part.heads[old].of(parameters[part.parameter].data, part.axis)
        (view if part.axis == 1 else view.mT).copy_(new.o[i])
    if part.bias is not None:
        parameters[part.bias].data.copy_(torch.zeros_like(parameters[part.bias]) if new.b_o is None else new.b_o)


def _outputs(x: Any) -> list[Tensor]:
    """All float tensors in what a tried module returned."""
    return [tensor for tensor in tensors_in(x) if tensor.is_floating_point()]


def _difference(outputs: list[Tensor], expected: list[Tensor]) -> float | None:
    """The largest relative difference of a trial; None if shapes differ. Caches may have fewer heads."""
    pairs = [(a, b) for a, b in zip(outputs, expected, strict=False) if a.shape == b.shape]
    if not pairs or outputs[0].shape != expected[0].shape:
        return None
    largest = max(float((a - b).abs().max()) / max(float(b.abs().max()), 1e-30) for a, b in pairs)
    return largest if largest == largest else float("inf")


def _tolerance(expected: list[Tensor]) -> float:
    return 100 * max(torch.finfo(x.dtype).eps for x in expected) ** 0.75


def _restorer(root: nn.Module, paths: set[str]) -> Callable[[], None]:
    """Undo a trial: give modules their class, attributes, parameters and hooks again."""
    saved = [(m, m.__class__, _copied(m.__dict__)) for m in (root.get_submodule(path) for path in paths)]

    def restore() -> None:
        """Restore the modules of a trial."""
        for module, own, state in saved:
            module.__class__ = own
            module.__dict__.clear()
            module.__dict__.update(state)

    return restore


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, dict) else value for name, value in state.items()}
