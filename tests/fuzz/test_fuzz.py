"""Random layers and calls give the results and gradients of the dense oracle, and mistakes leave no trace.

`python tests/fuzz/report.py --seed N` runs the case of a seed that failed here, and makes it small.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date

import pytest
import torch
from hypothesis import settings

import multihead as mh
import oracle
from fuzz.answers import oracle as dense_results
from fuzz.cases import ROUTES, Call, Case, Change, Mistake, case
from fuzz.describe import features, show
from fuzz.findings import Finding
from fuzz.layers import Buckets, Layer, Rope, Slopes
from fuzz.mask_kinds import KINDS
from fuzz.masks import leaves
from fuzz.mistakes import MISTAKES
from fuzz.run import run
from fuzz.scene import Ready, realise
from fuzz.shrink import shrink
from multihead import cache

DRAWN = settings().max_examples  # of the tier: 25, 300 or 10,000
LAYERS = min(10 * DRAWN, 30_000)
CHUNK = 50
# By day the same commit gives the same result; every night looks at new cases.
START = 0 if DRAWN < 10_000 else date.today().toordinal() * 100_000

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")


def failures(seeds: range) -> Iterator[str]:
    for seed in seeds:
        for finding in run(case(seed)):
            yield f"seed {seed}: {finding.kind}: {finding.what}{finding.when}: {finding.detail}"


@pytest.mark.parametrize("first", range(START, START + LAYERS, CHUNK))
def test_drawn_layers(first: int) -> None:
    found = list(failures(range(first, first + CHUNK)))
    assert not found, f"{len(found)} findings\n" + "\n".join(found)


@pytest.mark.fast(17)
@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_refused_and_leaves_the_cache_as_it_was(kind: str) -> None:
    """With every cache, empty and filled, and for every kind of position."""
    found: dict[tuple[str, str], str] = {}
    for where in (None, Rope(), Slopes()):
        for kept in (None, "growing", "static", "ring", "cross"):
            layer = Layer(position=where, softcap=5.0)
            keys = 4 if kept == "cross" else None
            call = Call(batch=2, keys=keys, form="query" if keys is None else "query, key")
            mode = "no_grad" if kept == "static" else "grad"
            for before in ((), (call,)) if kept else ((),):
                drawn = Case(layer, (*before, Mistake(kind), call), kept, mode=mode)
                found |= {finding.cause: show(drawn) for finding in run(drawn) if finding.cause not in found}
    assert not found, "\n".join(f"{': '.join(cause)}\n    {example}" for cause, example in found.items())


# ---- the fuzz itself --------------------------------------------------------------------------------------


def test_everything_is_drawn() -> None:
    """Each variant of the layer, mask, cache, route and mistake is in some of the first 3,000 cases."""
    seen: Counter[str] = Counter()
    for seed in range(3000):
        drawn = case(seed)
        seen.update([str(drawn.cache), str(drawn.transform), drawn.mode, type(drawn.layer.position).__name__])
        seen.update([f"scale {drawn.layer.scale}", f"norm {drawn.layer.norm and drawn.layer.norm[:2]}"])
        if isinstance(drawn.layer.position, Rope) and drawn.layer.position.scaling:
            seen[drawn.layer.position.scaling[0]] += 1
        for step in drawn.steps:
            if isinstance(step, Call):
                seen.update(leaf.kind for leaf, _ in leaves(step.mask))
                seen.update([f"route {step.route}", f"gate {step.gate}", step.form, *step.ask])
                seen.update(name for name in ("unbatched", "changed", "poison", "frozen") if getattr(step, name))
                seen.update([f"batch {step.batch}", f"tokens {step.queries}", f"positions {step.positions}"])
            else:
                seen[step.how if isinstance(step, Change) else step.kind] += 1
    expected = [*KINDS, *MISTAKES, *(f"route {name}" for name in ROUTES), *(f"gate {n}" for n in range(4))]
    expected += ["growing", "static", "ring", "cross", "grad", "no_grad", "inference", "Rope", "Slopes", "Buckets"]
    expected += ["vmap parameters", "vmap inputs", "per-sample", "Linear", "NTK", "DynamicNTK", "YaRN", "Llama3"]
    expected += ["query", "query, query", "query, query, query", "query, key", "query, key, value"]
    expected += ["weights", "lse", "heads", "cells", "unbatched", "changed", "poison", "frozen"]
    expected += ["batch 0", "tokens 0", "tokens 1", "positions 1-D", "positions 2-D", "positions one row"]
    expected += ["scale 0.0", "scale -0.3", "reset", "crop", "reorder"]
    expected += [f"norm {(kind, when)}" for kind in ("rms", "layer") for when in ("before", "after")]
    assert not [name for name in expected if not seen[name]]


def row_by_row(drawn: Case) -> bool:
    """Whether the oracle of loops knows this layer."""
    layer, where = drawn.layer, drawn.layer.position
    scaled = isinstance(where, Rope) and (
        isinstance(where.dim, float) or (where.scaling or ("Linear",))[0] != "Linear"
    )
    slopes = isinstance(where, Slopes) and where.slopes is None and layer.heads & (layer.heads - 1) != 0
    normed = layer.norm is not None and layer.norm[2] != 1e-6
    return drawn.cache is None and drawn.transform is None and not (scaled or slopes or normed or layer.single)


def loops(drawn: Case, ready: Ready, parameters: dict[str, torch.Tensor]) -> oracle.Answer:
    layer, where, sight = drawn.layer, drawn.layer.position, ready.sight
    rule: oracle.Turn | oracle.Slopes | oracle.Buckets | None = None
    if isinstance(where, Rope):
        assert not isinstance(where.dim, float)
        rule = oracle.Turn(where.base, where.interleaved, where.dim, where.scaling[1] if where.scaling else 1.0)
    elif isinstance(where, Slopes):
        rule = oracle.Slopes(where.slopes)
    elif isinstance(where, Buckets):
        rule = oracle.Buckets(where.buckets, where.max_distance, where.bidirectional)
    norm = None if layer.norm is None else (layer.norm[0], layer.norm[1])
    variant = oracle.Variant(
        layer.heads,
        layer.head_dim,
        layer.values,
        tuple(layer.kv_map),
        rule,
        norm,
        layer.scale,
        layer.softcap,
    )
    allowed, added = sight.allowed(), sight.added(torch.float64)
    at = None if ready.positions is None else ready.query_at.tolist()
    return oracle.attention(
        variant,
        parameters,
        ready.query,
        ready.key,
        ready.value,
        allowed=lambda b, h, q, k, i: bool(allowed[b, h, i, k]),
        added=[] if added is None else [lambda b, h, q, k, i: added[b, h, i, k]],
        gate=ready.gate,
        positions=at,
    )


def test_the_dense_oracle_gives_the_numbers_of_the_loops() -> None:
    compared = 0
    for seed in range(min(20 * DRAWN, 2000)):
        drawn = case(seed)
        if not row_by_row(drawn):
            continue
        scene = realise(replace(drawn, mode="no_grad"))
        for ready in scene.steps:
            crosses = isinstance(ready, Ready) and ready.key is not None and ready.positions is not None
            if not isinstance(ready, Ready) or crosses or ready.query.shape[0] * ready.query.shape[1] > 9:
                continue
            got = dense_results(
                scene, [replace(ready, call=replace(ready.call, ask=("heads", "lse", "weights")))], torch.float64
            )
            want = loops(drawn, ready, scene.parameters)
            for name, x in got[0].items():
                torch.testing.assert_close(
                    x,
                    getattr(want, name),
                    rtol=1e-9,
                    atol=1e-9,
                    msg=lambda s, n=f"seed {seed}, {name}": f"{n}: {s}",
                )
            compared += 1
    assert compared > 2 * min(DRAWN, 100)


def test_a_layer_that_is_slightly_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mh.MultiHeadAttention.forward

    def wrong(self: mh.MultiHeadAttention, query: torch.Tensor, *args: object, **kwargs: object) -> object:
        return right(self, query * (1 + 1e-6), *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(mh.MultiHeadAttention, "forward", wrong)
    found = run(Case(steps=(Call(),)))
    assert [finding.cause for finding in found] == [("wrong", "out")]


def test_a_cache_that_keeps_one_token_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = cache.Growing.crop
    monkeypatch.setattr(cache.Growing, "crop", lambda self, tokens: right(self, tokens + 1))
    drawn = Case(steps=(Call(queries=5), Change("crop", 1), Call(queries=1)), cache="growing", mode="no_grad")
    assert run(drawn)


def test_a_failing_case_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer that forgets its softcap, only the softcap is left."""
    build = Layer.build

    def forgetful(self: Layer) -> mh.MultiHeadAttention:
        layer = build(self)
        layer.softcap = None
        return layer

    monkeypatch.setattr(Layer, "build", forgetful)
    drawn = Case(Layer(softcap=2.0, heads=3, sinks=True), (Call(), Call(batch=2, gate=1)), mode="no_grad")
    small = shrink(drawn, Finding("wrong", "out"))
    assert features(small) == "softcap"
    assert len(small.steps) == 1


def test_a_case_follows_from_its_seed() -> None:
    state = random.getstate()
    assert [case(seed) for seed in range(50)] == [case(seed) for seed in range(50)]
    assert random.getstate() == state
