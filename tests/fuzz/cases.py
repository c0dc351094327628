"""A case: one layer and its calls, as plain data. `case(seed)` draws one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from fuzz.layers import Buckets, Layer, Rope, Slopes
from fuzz.mask_kinds import KINDS
from fuzz.masks import Join, Leaf, Spec
from fuzz.mistakes import MISTAKES


@dataclass(frozen=True)
class Call:
    """One call of the layer. The numbers of its tensors follow from the seed."""

    batch: int = 1
    queries: int = 3
    keys: int | None = None
    """None: self-attention"""
    form: str = "query"
    """the arguments: "query", "query, query", "query, query, query", "query, key" or "query, key, value" """
    unbatched: bool = False
    mask: Spec | None = None
    raw: bool = False
    """pass the tensor of a mask, not the mask"""
    changed: bool = False
    """change the tensors behind the mask in place, before the call in a cache, else between it and a second one"""
    positions: str | None = None
    """"1-D", "2-D" or "one row" """
    gate: int = 0
    """dimensions of head_gate"""
    ask: tuple[str, ...] = ()
    route: str | None = None
    """the route tried beside None"""
    poison: bool = False
    """NaN or inf in the tokens that no query may see"""
    frozen: bool = False
    """under no_grad, while other calls are trained"""
    seed: int = 0


@dataclass(frozen=True)
class Change:
    """What happens to the cache between two calls: "reset", "crop" or "reorder"."""

    how: str
    seed: int = 0


@dataclass(frozen=True)
class Mistake:
    """A call that must be refused, and leave the cache as it was."""

    kind: str
    seed: int = 0


Step = Call | Change | Mistake


LAYER = Layer()
ROUTES = ("folded", "tiled", "fused", "blocked", "reference")


@dataclass(frozen=True)
class Case:
    """A layer, and calls that share a cache if there is one."""

    layer: Layer = LAYER
    steps: tuple[Step, ...] = (Call(),)
    cache: str | None = None
    """"growing", "static", "ring" or "cross" """
    window: int = 4
    first: int = 0
    mode: str = "grad"
    """"grad", "no_grad" or "inference" """
    cells: int | None = None
    """size of the largest tile; None: as the package chooses"""
    transform: str | None = None
    """"vmap parameters", "vmap inputs", "grad" or "per-sample" """


def case(seed: int) -> Case:
    """The case of this seed."""
    draw = random.Random(seed)
    kind = draw.choices(["plain", "cache", "cross cache", "transform"], [45, 35, 10, 10])[0]
    if kind == "transform":
        return _transformed(draw)
    if kind == "plain":
        return _plain(draw)
    return _cached(draw) if kind == "cache" else _crossed(draw)


def count_calls(case: Case) -> int:
    return sum(isinstance(step, Call) for step in case.steps)


# ---- layers ---------------------------------------------------------------------------------------


def _layer(draw: random.Random, *, cross: bool = False, single: bool = True) -> Layer:
    heads = draw.randint(1, 5)
    head_dim = draw.choice([1, 2, 3, 4, 4, 6, 8])
    given: dict[str, Any] = {"d_model": draw.choice([5, 7, 8, 11]), "heads": heads, "head_dim": head_dim}
    match draw.randrange(3):
        case 0:
            given["kv_heads"] = draw.choice([n for n in range(1, heads + 1) if heads % n == 0])
        case 1:
            count = draw.randint(1, 3)  # some kv heads may have no query head
            given["kv_of_head"] = tuple(draw.randrange(count) for _ in range(heads))
            given["kv_heads"] = count if draw.random() < 0.5 else None
    if draw.random() < 0.4:
        given["value_dim"] = draw.choice([1, 3, 5, 8])
    if cross and draw.random() < 0.4:
        given |= {"d_key": draw.choice([None, 6]), "d_value": draw.choice([None, 9])}
    if draw.random() < 0.3:
        given["d_out"] = draw.choice([1, 9])
    if draw.random() < 0.5:
        given["bias"] = draw.choice([False, "".join(c for c in "qkvo" if draw.random() < 0.5)])
    if draw.random() < 0.65:
        given["position"] = _position(draw, heads, head_dim)
    if head_dim >= 4 and draw.random() < 0.25:  # fewer numbers leave little but their signs
        when = draw.choice(["before", "after"])
        given["norm"] = (draw.choice(["rms", "layer"]), when, draw.choice([1e-6, 1e-3]))
    if draw.random() < 0.3:
        given["scale"] = draw.choice([0.7, 1.0, 0.0, -0.3])
    if draw.random() < 0.15:
        given["softcap"] = draw.choice([2.0, 5.0])
    given["sinks"] = draw.random() < 0.15
    given["single"] = single and draw.random() < 0.2
    return Layer(**given, seed=draw.randrange(10**6))


def _position(draw: random.Random, heads: int, head_dim: int) -> Rope | Slopes | Buckets:
    kinds = ["slopes", "buckets"] + ["rope"] * (3 if head_dim >= 2 else 0)
    match draw.choice(kinds):
        case "slopes":
            own = tuple(round(draw.uniform(0.05, 0.9), 2) for _ in range(heads))
            return Slopes(own if draw.random() < 0.4 else None, draw.random() < 0.4)
        case "buckets":
            both = draw.random() < 0.6
            return Buckets(draw.choice([8, 12] if both else [5, 8]), draw.choice([9, 16]), both)
    dims = list(range(2, head_dim + 1, 2))
    dim: int | float | None = draw.choice(dims)
    if head_dim % 2 == 0 and draw.random() < 0.6:
        dim = None
    elif head_dim % 4 == 0 and draw.random() < 0.3:
        dim = 0.5
    turning = head_dim if dim is None else int(head_dim * dim) if isinstance(dim, float) else dim
    scalings: list[tuple[Any, ...]] = [
        ("Linear", draw.choice([2.0, 2.5])),
        ("Llama3", 8.0, 1.0, 4.0, draw.choice([8, 32])),
        ("YaRN", 4.0, draw.choice([8, 64])),
    ]
    if turning > 2:
        scalings += [("NTK", 3.0), *[("DynamicNTK", 2.0, draw.choice([2, 4, 8]))] * 3]
    scaling = draw.choice(scalings) if draw.random() < 0.5 else None
    return Rope(draw.choice([10_000.0, 50.0]), draw.random() < 0.4, dim, scaling)


# ---- masks ----------------------------------------------------------------------------------------


def _mask(draw: random.Random, *, ragged: float, cached: bool = False) -> Spec | None:
    """Up to three masks. In a cache a ragged mask is joined with & alone."""
    kinds = [kind for kind in KINDS if kind != "ragged"]

    def leaf(*, adds: bool = True, may_be_ragged: bool = False) -> Leaf:
        if may_be_ragged and draw.random() < ragged:
            return Leaf("ragged", draw.randrange(10**6))
        some = [kind for kind in kinds if adds or kind != "additive"]
        return Leaf(draw.choice([*some, "causal", "causal"]), draw.randrange(10**6))

    count = draw.choice([0, 1, 1, 1, 2, 2, 3])
    if count == 0:
        return None
    if count == 1:
        return leaf(may_be_ragged=True)
    if draw.random() < 0.7:
        return Join("&", tuple(leaf(may_be_ragged=True) for _ in range(count)))
    inner = [leaf(adds=False, may_be_ragged=not cached) for _ in range(2)]
    if count == 2:
        return Join("|", tuple(inner))
    if draw.random() < 0.7:
        return Join("&", (Join("|", tuple(inner)), leaf(may_be_ragged=True)))
    return Join("|", (Join("&", tuple(inner)), leaf(adds=False, may_be_ragged=not cached)))


# ---- calls ----------------------------------------------------------------------------------------

TOKENS = [0, 1, 1, 2, 3, 3, 5, 7, 9, 13]
ASKED = ("weights", "lse", "heads", "cells")


def _extras(draw: random.Random) -> dict[str, Any]:
    """The arguments that any call may have."""
    return {
        "gate": draw.choice([0, 0, 0, 1, 2, 3]),
        "ask": tuple(sorted(draw.sample(ASKED, draw.choice([1, 2])))) if draw.random() < 0.2 else (),
        "route": draw.choice([None, *ROUTES]),
        "seed": draw.randrange(10**6),
        "poison": draw.random() < 0.25,
    }


def _plain(draw: random.Random) -> Case:
    cross = draw.random() < 0.45
    layer = _layer(draw, cross=cross)
    steps: list[Step] = []
    for _ in range(draw.randint(1, 5)):
        if draw.random() < 0.12:
            steps.append(Mistake(draw.choice(sorted(MISTAKES)), draw.randrange(10**6)))
            continue
        steps.append(_call(draw, layer, cross))
    return Case(layer, tuple(steps), mode=_mode(draw), cells=draw.choice([None, None, 29, 101]))


def _call(draw: random.Random, layer: Layer, cross: bool) -> Call:
    batch, queries = draw.choice([0, 1, 1, 2, 2, 3]), draw.choice(TOKENS)
    form, keys = draw.choice(["query", "query", "query, query", "query, query, query"]), None
    needs_value = layer.value_width != layer.key_width
    if cross and (layer.key_width != layer.d_model or needs_value or draw.random() < 0.8):
        form, keys = draw.choice(["query, key", "query, key, value"]), draw.choice(TOKENS)
        form = "query, key, value" if needs_value else form
        if draw.random() < 0.3:
            queries = draw.choice([1, 2])  # few queries over many keys, as in decoding
    spec = _mask(draw, ragged=0.05 if keys is not None else 0.3)
    if keys is not None and not layer.dynamic and draw.random() < 0.1:
        keys = queries  # the only sizes that a ragged mask takes here
    elif keys is not None:
        spec = _without_ragged(spec)
    place: str | None = None
    if draw.random() < 0.3 and layer.position is not None and (keys is None or isinstance(layer.position, Rope)):
        place = draw.choice(["1-D", "2-D", "one row"])
    return Call(
        batch=batch,
        queries=queries,
        keys=keys,
        form=form,
        unbatched=batch == 1 and draw.random() < 0.3,
        mask=spec,
        raw=draw.random() < 0.4,
        changed=draw.random() < 0.25,
        positions=place,
        **_extras(draw),
    )


def _without_ragged(spec: Spec | None) -> Spec | None:
    if isinstance(spec, Leaf):
        return Leaf("causal") if spec.kind == "ragged" else spec
    return spec and Join(spec.how, tuple(part for p in spec.parts if (part := _without_ragged(p)) is not None))


def _mode(draw: random.Random) -> str:
    return draw.choices(["grad", "no_grad", "inference"], [60, 25, 15])[0]


def _cached(draw: random.Random) -> Case:
    layer, cache = _layer(draw), draw.choice(["growing", "growing", "static", "ring", "ring"])
    mode = _mode(draw)
    if cache == "static" and mode == "grad":
        mode = "no_grad"
    batch, style = draw.choice([1, 2, 2, 3, 0]), draw.choice(["any", "prompt", "uneven"])
    steps: list[Step] = []
    for i in range(draw.randint(1, 5)):
        chance = draw.random()
        if chance < 0.12:
            steps.append(Mistake(draw.choice(sorted(MISTAKES)), draw.randrange(10**6)))
        elif chance < 0.3:
            steps.append(
                Change(draw.choice(["reset", "crop", "crop", "reorder", "reorder"]), draw.randrange(10**6))
            )
        place = None
        if draw.random() < 0.15 and isinstance(layer.position, Rope):
            place = draw.choice(["1-D", "2-D", "one row"])
        spec, tokens = _mask(draw, ragged=0.4, cached=True), draw.choice([0, 1, 2, 3, 5, 7])
        if style == "prompt":  # a long text, then few tokens at a time
            spec, tokens = _mask(draw, ragged=0.1, cached=True), draw.choice([8, 11] if i == 0 else [1, 1, 2, 3])
            if draw.random() < 0.5:
                spec = Leaf("causal") if spec is None else Join("&", (Leaf("causal"), spec))
        elif style == "uneven":  # rows of different lengths, then chunks
            spec = Leaf("ragged", draw.randrange(10**6)) if i == 0 else _mask(draw, ragged=0.1, cached=True)
            tokens = draw.choice([2, 3, 5])
        steps.append(
            Call(
                batch=batch,
                queries=tokens,
                form=draw.choice(["query", "query", "query", "query, query", "query, query, query"]),
                unbatched=batch == 1 and draw.random() < 0.3,
                mask=spec,
                raw=draw.random() < 0.4,
                changed=draw.random() < 0.2,
                positions=place,
                frozen=mode == "grad" and draw.random() < 0.15,
                **_extras(draw),
            )
        )
    return Case(
        layer,
        tuple(steps),
        cache,
        window=draw.randint(1, 6),
        first=draw.choice([0, 0, 1, 2]),
        mode=mode,
        cells=draw.choice([None, None, 29, 101]),
    )


def _crossed(draw: random.Random) -> Case:
    layer, mode = _layer(draw, cross=True), _mode(draw)
    batch, keys = draw.choice([1, 2, 3]), draw.choice(TOKENS)
    form = (
        "query, key, value"
        if layer.value_width != layer.key_width
        else draw.choice(["query, key", "query, key, value"])
    )
    steps: list[Step] = []
    for _ in range(draw.choice([1, 2, 3])):
        chance = draw.random()
        if chance < 0.25:
            steps.append(Mistake(draw.choice(sorted(MISTAKES)), draw.randrange(10**6)))
        elif chance < 0.4:
            steps.append(Change(draw.choice(["reset", "crop", "reorder"]), draw.randrange(10**6)))
        place = None
        if draw.random() < 0.2 and not layer.dynamic and isinstance(layer.position, Rope):
            place = draw.choice(["1-D", "2-D", "one row"])
        steps.append(
            Call(
                batch=batch,
                queries=draw.choice([0, 1, 1, 2, 3, 5, 7]),
                keys=keys,
                form=form,
                unbatched=batch == 1 and draw.random() < 0.3,
                mask=_without_ragged(_mask(draw, ragged=0.0)),
                raw=draw.random() < 0.4,
                changed=draw.random() < 0.2,
                positions=place,
                **_extras(draw),
            )
        )
    return Case(layer, tuple(steps), "cross", mode=mode, cells=draw.choice([None, None, 29]))


def _transformed(draw: random.Random) -> Case:
    layer = _layer(draw, single=False)
    transform = draw.choice(["vmap parameters", "vmap inputs", "grad", "per-sample"])
    call = Call(
        batch=draw.choice([1, 2]) if transform in ("vmap parameters", "grad") else 1,
        queries=draw.choice([1, 2, 3, 5]),
        mask=_mask(draw, ragged=0.4),
        positions="1-D" if layer.position is not None and draw.random() < 0.2 else None,
        gate=draw.choice([0, 0, 1]),
        route=draw.choice([None, None, *ROUTES]),
        seed=draw.randrange(10**6),
    )
    return Case(layer, (call,), transform=transform)
