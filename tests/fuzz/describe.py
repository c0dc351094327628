"""A case in words: as the expression that makes it, as the calls it stands for, and by the variants it uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from torch import Tensor

from fuzz.cases import Call, Case, Change
from fuzz.layers import Buckets, Layer, Rope
from fuzz.masks import leaves
from fuzz.scene import Moved, Ready, Scene, Wrong, realise


def show(x: Any) -> str:
    """A case as the expression that makes it, without the arguments that have their default."""
    if isinstance(x, tuple):
        return f"({', '.join(map(show, x))}{',' * (len(x) == 1)})"
    if not is_dataclass(x):
        return repr(x)
    said = [
        f"{f.name}={show(value)}"
        for f in fields(x)
        if (value := getattr(x, f.name)) != f.default or f.default is MISSING
    ]
    return f"{type(x).__name__}({', '.join(said)})"


def calls(case: Case) -> str:
    """The calls of a case as one would write them; r is torch.randn."""
    scene = realise(case)
    lines = [f"a = A({case.layer.d_model}, {case.layer.heads}{_options(case.layer)})"]
    if case.cache is not None:
        made = {"ring": f"Ring({case.window}, first={case.first})", "growing": "Growing()", "cross": "Cross()"}
        lines.append(f"kept = cache.{made.get(case.cache, 'Static(...)')}")
    for step in scene.steps:
        if isinstance(step, Ready):
            lines += _call(scene, step)
        elif isinstance(step, Moved):
            argument = step.argument.tolist() if isinstance(step.argument, Tensor) else step.argument
            lines.append(f"kept.{step.how}({'' if argument is None else argument})")
        else:
            assert isinstance(step, Wrong)
            lines.append(f"a(...)  # mistake: {step.kind}")
    head = [f"# {case.transform}"] if case.transform else []
    head += [f"# {case.mode}"] if case.mode != "grad" else []
    head += [f"# tiles of at most {case.cells} cells"] if case.cells else []
    return "\n".join([*head, *lines])


def _options(layer: Layer) -> str:
    given = {name: value for name, value in layer.arguments().items() if (name, value) != ("bias", True)}
    return "".join(f", {name}={value!r}" for name, value in given.items())


def _call(scene: Scene, ready: Ready) -> Iterator[str]:
    call = ready.call
    shapes = [tuple(x.shape[ready.unbatched :]) for x in (ready.query, ready.key, ready.value) if x is not None]
    given = [f"r{shape}" for shape in shapes]
    if call.keys is None and call.form != "query":
        given = [f"x := r{shapes[0]}", *["x"] * call.form.count(",")]
    given += [f"mask={ready.sight.text}"] if call.mask is not None else []
    given += ["cache=kept"] if scene.case.cache else []
    if ready.positions is not None:
        given.append(f"positions=torch.tensor({ready.positions.tolist()})")
    given += [f"head_gate=r{tuple(ready.gate.shape)}"] if ready.gate is not None else []
    given += [f"ask={list(call.ask)}"] if call.ask else []
    given += [f"route={call.route!r}"] if call.route else []
    said = [" # under no_grad"] if call.frozen else []
    said += [" # NaN in the tokens that nobody sees"] if call.poison else []
    yield f"a({', '.join(given)}){''.join(said)}"
    if call.changed and ready.sight.changes:
        values = [part.values[1].tolist() for part in ready.sight.parts if part.tensor is not None]
        when = "before the call" if scene.case.cache else "and called again"
        yield f"# the tensor of the mask is changed to {', '.join(map(str, values))} {when}"


def features(case: Case) -> str:
    """The variants that a case uses, in words."""
    layer = case.layer
    words: list[str] = [] if case.cache is None else [f"cache {case.cache}"]
    words += [] if case.transform is None else [case.transform]
    sizes = {"d_model", "heads", "head_dim", "seed", "d_out"}
    for f in fields(Layer):
        value = getattr(layer, f.name)
        if value != f.default and f.name not in sizes:
            words.append({"position": _position_word(value), "scale": f"scale={value}"}.get(f.name, f.name))
    kinds = {kind for step in case.steps if isinstance(step, Call) for kind in _mask_words(step)}
    words += sorted(kinds)
    for step in case.steps:
        if isinstance(step, Call):
            words += [n for n in ("unbatched", "changed", "poison", "frozen") if getattr(step, n)]
            words += [f"positions {step.positions}"] if step.positions else []
            words += [f"route {step.route}"] if step.route else []
            words += ["ask " + "+".join(step.ask)] if step.ask else []
            words += ["gate"] if step.gate else []
            words += [step.form] if step.form != "query" else []
            words += ["0 tokens"] if step.queries == 0 or step.keys == 0 else []
            words += ["batch 0"] if step.batch == 0 else []
        else:
            words.append(step.how if isinstance(step, Change) else step.kind)
    return ", ".join(dict.fromkeys(words))


def _mask_words(call: Call) -> Iterator[str]:
    for leaf, whole in leaves(call.mask):
        yield leaf.kind if whole else f"|{leaf.kind}"


def _position_word(where: Any) -> str:
    if isinstance(where, Rope):
        return f"Rotary {where.scaling[0]}" if where.scaling else "Rotary"
    return (
        "RelativeBias"
        if isinstance(where, Buckets)
        else "learned ALiBi"
        if getattr(where, "learned", 0)
        else "ALiBi"
    )
