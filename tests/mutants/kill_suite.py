"""Quick, deterministic checks of the layer against the oracle: what each mutant is run against.

A script and not a test file, so that a run costs little more than importing torch:

    python kill_suite.py [check ...]

prints one JSON object, check → "ok", "differs: ..." or "error: ...".
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor, nn

import multihead as mh
import oracle
from blocks import blocks_of
from multihead import cache, mask, position
from multihead.errors import CacheError, SizeError
from multihead.layer import Ask, Cells, QKNorm, Sinks, init
from multihead.layer._coordinates import Span
from multihead.layer._plan import ROUTES

WIDTH, HEADS, DIM = 9, 4, 6
CHECKS: dict[str, Callable[[], None]] = {}


def check(run: Callable[[], None]) -> Callable[[], None]:
    CHECKS[run.__name__] = run
    return run


def same(got: Tensor, want: Tensor, what: str) -> None:
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
    assert torch.allclose(got, want, rtol=1e-8, atol=1e-8, equal_nan=True), (
        f"{what}: off by {(got - want).abs().max():.3g}"
    )


def made(heads: int = HEADS, **options: Any) -> mh.MultiHeadAttention:
    """Loud and with nothing at its starting value."""
    options.setdefault("head_dim", DIM)
    layer = mh.MultiHeadAttention(WIDTH, heads, **options, init=init.XavierPerHead(1.4)).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.5)
            elif name.startswith("position"):
                parameter.normal_()
    return layer


def tokens(batch: int, count: int) -> Tensor:
    return torch.randn(batch, count, WIDTH, dtype=torch.float64)


def agree(
    layer: mh.MultiHeadAttention,
    seen: mask.Mask | Tensor | None = None,
    rule: oracle.Allowed | None = None,
    *,
    queries: int = 7,
    keys: int | None = None,
    batch: int = 2,
    place: Any = None,
    norm: Any = None,
    cells: int | None = None,
    gate: Tensor | None = None,
    added: Sequence[oracle.Added] = (),
    learned: Tensor | None = None,
    kv_of_head: tuple[int, ...] | None = None,
    expect: set[str] | None = None,
) -> None:
    """Output and gradients of every route that can do it are the oracle's."""
    heads = layer.num_heads
    group = heads // layer.num_kv_heads
    kv = tuple(h // group for h in range(heads)) if kv_of_head is None else kv_of_head
    scale = getattr(layer, "said_scale", None)
    variant = oracle.Variant(heads, layer.head_dim, layer.value_dim, kv, place, norm, scale, layer.softcap)
    x = tokens(batch, queries).requires_grad_()
    inputs = {"query": x} | ({} if keys is None else {"key": tokens(batch, keys).requires_grad_()})
    wanted = [*inputs.values(), *layer.parameters(), *([] if learned is None else [learned])]
    parameters = dict(layer.named_parameters())
    want = oracle.attention(variant, parameters, **inputs, allowed=rule, added=added, gate=gate)
    towards = torch.randn_like(want.out)
    slopes = torch.autograd.grad((want.out * towards).sum(), wanted, allow_unused=True, materialize_grads=True)
    ran: set[str] = set()
    for route in [None, *ROUTES]:
        for grad in (False, True):
            try:
                with torch.set_grad_enabled(grad), nullcontext() if cells is None else blocks_of(cells):
                    out = layer(**inputs, mask=seen, head_gate=gate, route=route)
            except SizeError as refusal:
                if "cannot compute this" not in str(refusal):
                    raise
                continue
            ran.add(str(route))
            same(out, want.out, f"{route}")
            if grad:
                found = torch.autograd.grad(
                    (out * towards).sum(), wanted, allow_unused=True, materialize_grads=True
                )
                for got, slope in zip(found, slopes, strict=True):
                    same(got, slope, f"{route}, a gradient")
    with torch.no_grad():
        asked = layer(**inputs, mask=seen, head_gate=gate, ask=["weights", "lse"])
    same(asked.weights, want.weights, "weights")
    same(asked.lse, want.lse, "lse")
    assert ran >= (expect or {"reference", "blocked"}), f"only {ran} ran"


# ---- variants ---------------------------------------------------------------------------------


@check
def rotary() -> None:
    for place, rule in (
        (position.Rotary(50.0), oracle.Turn(50.0)),
        (position.Rotary(50.0, interleaved=True), oracle.Turn(50.0, interleaved=True)),
        (position.Rotary(50.0, dim=4), oracle.Turn(50.0, dim=4)),
        (position.Rotary(50.0, scaling=position.Linear(2.5)), oracle.Turn(50.0, factor=2.5)),
    ):
        agree(made(position=place), mask.causal(), lambda b, h, q, k, i: k <= q, place=rule)
    agree(made(position=position.Rotary(50.0)), place=oracle.Turn(50.0), queries=3, keys=7)


@check
def scale() -> None:
    agree(made(value_dim=3))
    layer = made(scale=0.9)
    layer.said_scale = 0.9
    agree(layer, mask.causal(), lambda b, h, q, k, i: k <= q)
    agree(layer, queries=1, keys=7)
    layer = made(scale=-0.4)
    layer.said_scale = -0.4
    agree(layer, mask.causal(), lambda b, h, q, k, i: k <= q)


@check
def groups() -> None:
    for kv in (1, 2):
        agree(made(num_kv_heads=kv), mask.causal(), lambda b, h, q, k, i: k <= q, expect={"fused", "reference"})
        agree(made(num_kv_heads=kv), queries=2, keys=11, expect={"folded", "reference"})
    agree(made(9, num_kv_heads=1, head_dim=3), queries=2, keys=11)  # many rows to one kv head


@check
def uneven_groups() -> None:
    for kv in ((1, 0, 1, 1), (0, 2, 1, 0)):
        agree(made(kv_of_head=kv, num_kv_heads=3), kv_of_head=kv, expect={"fused", "reference", "blocked"})


@check
def value_sizes() -> None:
    for size in (1, 3, 8):
        agree(made(value_dim=size), mask.causal(), lambda b, h, q, k, i: k <= q, expect={"fused", "blocked"})
        agree(made(value_dim=size, sinks=Sinks(0.4)), expect={"fused", "blocked"})


@check
def norms() -> None:
    for when in ("before", "after"):
        layer = made(position=position.Rotary(50.0), qk_norm=QKNorm(when=when))
        agree(layer, place=oracle.Turn(50.0), norm=("rms", when))
    agree(made(qk_norm=QKNorm("layer")), norm=("layer", "before"))


@check
def softcap() -> None:
    layer = made(softcap=1.5, num_kv_heads=2)
    agree(layer, mask.causal(), lambda b, h, q, k, i: k <= q)
    agree(layer, mask.lengths([4, 9]), lambda b, h, q, k, i: k < [4, 9][b], queries=2, keys=9)


@check
def sinks() -> None:
    layer = made(sinks=Sinks(0.7), num_kv_heads=2)
    for seen, rule in ((None, None), (mask.causal(), lambda b, h, q, k, i: k <= q)):
        agree(layer, seen, rule, expect={"fused", "blocked", "reference"})
    agree(layer, mask.lengths([4, 9]), lambda b, h, q, k, i: k < [4, 9][b], queries=2, keys=9)
    agree(made(sinks=Sinks(0.7), softcap=1.5))


@check
def alibi() -> None:
    agree(made(position=position.ALiBi(HEADS)), place=oracle.Slopes())
    layer = made(position=position.ALiBi(HEADS, learned=True))
    agree(layer, mask.causal(), lambda b, h, q, k, i: k <= q, place=oracle.Slopes())
    slopes = (0.1, 0.5, 0.9, 1.3)
    ragged = made(position=position.ALiBi(slopes=slopes))
    agree(
        ragged, mask.ragged([3, 7]), lambda b, h, q, k, i: k < [3, 7][b] and i < [3, 7][b],
        place=oracle.Slopes(slopes),
    )  # fmt: skip


@check
def relative_bias() -> None:
    for both in (True, False):
        bias = position.RelativeBias(HEADS, buckets=8 if both else 5, max_distance=9, bidirectional=both)
        rule = oracle.Buckets(8 if both else 5, 9, both)
        agree(made(position=bias), place=rule, queries=7)
        agree(made(position=bias), place=rule, queries=3, keys=11)


@check
def gates() -> None:
    for shape in ((4,), (2, 4), (2, 4, 4)):  # every axis is 4, so that a wrong one shows as a number
        agree(made(head_dim=4), queries=4, gate=torch.randn(shape, dtype=torch.float64))


@check
def dropout() -> None:
    keys = 64
    layer = mh.MultiHeadAttention(
        WIDTH, HEADS, num_kv_heads=1, head_dim=DIM, value_dim=keys, d_value=keys, bias=False, dropout=0.25
    ).double()
    with torch.no_grad():
        layer.v_proj.weight.copy_(torch.eye(keys))
    x, values = tokens(2, keys), torch.eye(keys, dtype=torch.float64).expand(2, -1, -1)
    for route in (None, "reference", "blocked"):
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                got = layer.train()(x, x, values, mask=mask.causal(), route=route, ask=["weights", "heads"])
                clean = layer.eval()(x, x, values, mask=mask.causal(), route=route, ask="heads").heads
            same(clean, got.weights, f"{route}: eval drops nothing, weights are before dropout")
            sees = got.weights > 1e-12
            ratio = got.heads[sees] / got.weights[sees]
            kept = ratio > 0.5
            same(ratio, kept.double() / 0.75, f"{route}: kept ones are divided by the share")
            assert abs(kept.double().mean() - 0.75) < 0.02, f"{route}: kept {kept.double().mean():.3f} of 0.75"
            assert not got.heads.triu(1).any(), f"{route}: hidden keys"
    values = values.clone().requires_grad_()
    for route in (None, "reference", "blocked"):
        heads = layer.train()(x, x, values, mask=mask.causal(), route=route, ask="heads").heads
        (slope,) = torch.autograd.grad(heads.sum(), values)
        same(slope[..., 0], heads.sum((1, 2)), f"{route}: the backward drops what the forward dropped")


# ---- masks ------------------------------------------------------------------------------------


@check
def causal() -> None:
    layer = made(num_kv_heads=2)
    for queries, keys in ((7, None), (3, 7), (1, 7), (2, 11)):
        agree(layer, mask.causal(), lambda b, h, q, k, i: k <= q, queries=queries, keys=keys)
    agree(layer, mask.causal(), lambda b, h, q, k, i: k <= q, queries=11, cells=13)


@check
def window() -> None:
    for left, right, first in ((3, 0, 0), (2, 2, 0), (1, 1, 2)):
        for queries, keys in ((11, None), (3, 11), (1, 11)):
            band = mask.window(left, right, first=first)
            band.block = 2
            rule: oracle.Allowed = lambda b, h, q, k, i, s=(left, right, first): (
                q - s[0] < k <= q + s[1] or k < s[2]
            )
            agree(made(), band, rule, queries=queries, keys=keys, cells=9)
    both = mask.causal() & mask.window(3)
    agree(made(), both, lambda b, h, q, k, i: q - 3 < k <= q, queries=11, cells=9)


@check
def lengths() -> None:
    n = [4, 0, 7]
    rule: oracle.Allowed = lambda b, h, q, k, i: k < n[b]
    for keys in (None, 7):
        agree(made(), mask.lengths(n), rule, batch=3, queries=7 if keys is None else 2, keys=keys, cells=5)
    agree(made(), mask.lengths(n) & mask.causal(), lambda *c: rule(*c) and c[3] <= c[2], batch=3)
    real = torch.tensor([[True, False, True, True, False, True, True]] * 3)
    agree(made(), mask.padding(real), lambda b, h, q, k, i: bool(real[b, k]), batch=3, cells=5)


@check
def ragged() -> None:
    n = [2, 7, 0]
    rule: oracle.Allowed = lambda b, h, q, k, i: k < n[b] and i < n[b]
    agree(made(), mask.ragged(n), rule, batch=3)
    both = mask.ragged(n) & mask.causal()
    agree(made(num_kv_heads=2), both, lambda *c: rule(*c) and c[3] <= c[2], batch=3)
    either = mask.ragged(n) | mask.lengths([7, 1, 3])
    agree(made(), either, lambda *c: rule(*c) or c[3] < (7, 1, 3)[c[0]], batch=3)
    layer = made(position=position.Rotary(50.0))
    agree(layer, both, lambda *c: rule(*c) and c[3] <= c[2], batch=3, place=oracle.Turn(50.0))
    x = tokens(3, 7)
    padding = (torch.arange(7) >= torch.tensor(n)[:, None])[..., None]
    for route in (None, "reference", "blocked", "fused", "tiled"):
        slopes = []
        for source in (x.clone().requires_grad_(), x.masked_fill(padding, torch.nan).requires_grad_()):
            out = layer(source, mask=both, route=route)
            slopes.append(torch.autograd.grad(out.square().sum(), source)[0].masked_fill(padding, 0.0))
        same(slopes[1], slopes[0], f"{route}: a gradient with NaN in the padding")


@check
def documents() -> None:
    ids = torch.tensor([[0, 0, 1, 1, 1, 0, -1], [-1, 2, 2, 2, 0, 0, 0]])
    rule: oracle.Allowed = lambda b, h, q, k, i: bool(ids[b, q] == ids[b, k] >= 0)
    agree(made(), mask.documents(ids), rule, cells=9)
    agree(made(), mask.documents(ids), rule, queries=3, keys=7)
    at: oracle.Allowed = lambda b, h, q, k, i: (q < 3) == (k < 3)
    agree(made(), mask.documents(offsets=[0, 3, 7]) & mask.causal(), lambda *c: at(*c) and c[3] <= c[2])
    agree(made(), mask.documents(offsets=[0, 3, 7]), at)


@check
def prefix() -> None:
    n = [3, 5]
    agree(made(), mask.prefix(n), lambda b, h, q, k, i: k <= q or k < n[b])
    agree(made(), mask.prefix(n), lambda b, h, q, k, i: k <= q or k < n[b], cells=6)
    agree(made(), mask.prefix(4), lambda b, h, q, k, i: k <= q or k < 4, queries=3, keys=7)


@check
def tensors() -> None:
    sees = torch.rand(2, HEADS, 7, 7) < 0.6
    agree(made(), mask.tensor(sees), lambda b, h, q, k, i: bool(sees[b, h, i, k]), cells=9)
    flat = torch.rand(3, 7) < 0.6
    agree(made(), flat, lambda b, h, q, k, i: bool(flat[i, k]), queries=3, keys=7)
    rule = lambda b, h, q, k: (b + 2 * h + 3 * q + 5 * k) % 7 < 4
    agree(made(), mask.where(rule), lambda b, h, q, k, i: rule(b, h, q, k), queries=3, keys=7)


@check
def additive() -> None:
    scores = torch.randn(2, 1, 7, 7, dtype=torch.float64)
    scores = scores.masked_fill(torch.rand(2, 1, 7, 7) < 0.3, -torch.inf)
    sees: oracle.Allowed = lambda b, h, q, k, i: bool(scores[b, 0, i, k] > -torch.inf)
    number: oracle.Added = lambda b, h, q, k, i: scores[b, 0, i, k]
    agree(made(), mask.additive(scores), sees, added=(number,))
    scores.requires_grad_()
    agree(made(softcap=1.5), scores, sees, added=(number,), learned=scores)
    agree(made(), scores, sees, added=(number,), learned=scores)


@check
def composed() -> None:
    n = [3, 6]
    either = mask.causal() | mask.lengths(n)
    agree(made(), either, lambda b, h, q, k, i: k <= q or k < n[b], cells=9)
    band = mask.window(2)
    band.block = 2
    some = (band | mask.documents(offsets=[0, 4, 11])) & mask.lengths([11, 6])
    sees: oracle.Allowed = lambda b, h, q, k, i: (q - 2 < k <= q or (q < 4) == (k < 4)) and k < [11, 6][b]
    agree(made(), some, sees, queries=11, cells=8)


@check
def empty_rows() -> None:
    third_blind = (torch.arange(5) != 2)[:, None].expand(5, 7)
    for options in ({}, {"sinks": Sinks(0.7)}, {"softcap": 1.5}):
        layer = made(**options)
        agree(layer, mask.lengths([7, 0]), lambda b, h, q, k, i: b == 0)
        agree(layer, mask.lengths([9, 0]), lambda b, h, q, k, i: b == 0, queries=2, keys=9)
        agree(layer, third_blind, lambda b, h, q, k, i: i != 2, queries=5, keys=7)


@check
def hidden_nan() -> None:
    layer = made(num_kv_heads=2)
    key, x = tokens(2, 9), tokens(2, 2)
    for bad in (torch.nan, torch.inf):
        for where in ("key", "value", "both"):
            dirty = {"key": key.clone(), "value": key.clone()}
            for name in ("key", "value"):
                if where in (name, "both"):
                    dirty[name][0, 4:], dirty[name][1, 7:] = bad, bad
            seen = mask.tensor(torch.arange(9) < torch.tensor([4, 7])[:, None, None])
            for route in [None, *ROUTES]:
                for grad in (False, True):
                    query = x.clone().requires_grad_(grad)
                    outs = []
                    for k, v in ((key, key), (dirty["key"], dirty["value"])):
                        try:
                            outs.append(layer(query, k, v, mask=seen, route=route))
                        except SizeError:
                            break
                    if len(outs) < 2:
                        continue
                    same(outs[1], outs[0], f"{route}: {bad} in {where}")
                    if grad:
                        one, two = (torch.autograd.grad(o.square().sum(), query)[0] for o in outs)
                        same(two, one, f"{route}: gradient with {bad} in {where}")
    seen_bad = layer(x, torch.full_like(key, torch.nan), mask=mask.lengths([9, 9]))
    assert seen_bad.isnan().all(), "what may be seen is not swallowed"


# ---- caches, asking, shapes -------------------------------------------------------------------


@check
def caches() -> None:
    n = 11
    for place in (position.Rotary(50.0), position.ALiBi(HEADS), None):
        layer, x = made(num_kv_heads=2, position=place), tokens(2, n)
        static = lambda layer=layer: cache.Static(2, 2, n, DIM, dtype=torch.float64)
        for make, seen in (
            (cache.Growing, mask.causal()),
            (static, mask.causal()),
            (lambda: cache.Ring(3), mask.causal() & mask.window(3)),
            (lambda: cache.Ring(3, first=2), mask.causal() & mask.window(3, first=2)),
        ):
            with torch.no_grad():
                want = layer(x, mask=seen)
                for cut in ([4, 1, 1, 5], [1, 7, 1, 1, 1]):
                    kept = make()
                    outs = [layer(part, mask=mask.causal(), cache=kept) for part in x.split(cut, 1)]
                    same(torch.cat(outs, 1), want, f"{kept}")
                    assert kept.lengths.tolist() == [n, n]


@check
def ragged_caches() -> None:
    layer, texts = made(num_kv_heads=2, position=position.Rotary(50.0)), tokens(2, 12)
    with torch.no_grad():
        alone = [layer(t[None], mask=mask.causal())[0] for t in texts]
        kept, fed = cache.Growing(), [0, 0]
        for counts in ([4, 1], [0, 3], [1, 1], [3, 4]):
            new = torch.full((2, 4, WIDTH), torch.nan, dtype=torch.float64)
            for b, n in enumerate(counts):
                new[b, :n] = texts[b, fed[b] : fed[b] + n]
            out = layer(new, mask=mask.causal() & mask.ragged(counts), cache=kept)
            for b, n in enumerate(counts):
                same(out[b, :n], alone[b][fed[b] : fed[b] + n], f"row {b}")
                same(out[b, n:], layer.o_proj.bias.expand(4 - n, -1), f"the padding of row {b}")
                fed[b] += n

    with torch.no_grad():  # without a causal mask only the cache knows which slots are empty
        kept = cache.Growing()
        layer(texts[:, :4], mask=mask.ragged([4, 1]), cache=kept)
        out = layer(texts[:, :4], mask=mask.ragged([1, 2]), cache=kept)
        for b, (old, n) in enumerate(((4, 1), (1, 2))):
            row = torch.cat([texts[b, :old], texts[b, :n]])
            same(out[b, :n], layer(row[old:], row), f"row {b}, all that was said")

    with torch.no_grad():
        kept = cache.Growing()
        layer(texts, mask=mask.ragged([5, 2]) & mask.ragged([3, 4]), cache=kept)
        assert kept.lengths.tolist() == [3, 2], f"two lengths per row: {kept.lengths.tolist()} tokens"


@check
def ring_masks() -> None:
    """A ring is a growing cache under a window, also where a mask is written key by key."""
    layer, x, real = made(num_kv_heads=2), tokens(2, 6), torch.rand(2, 6) < 0.6
    ring, grown, band = cache.Ring(4), cache.Growing(), mask.window(4)
    with torch.no_grad():
        for kept in (ring, grown):
            layer(x[:, :3], mask=band & mask.ragged([3, 1]), cache=kept)
        for seen in (mask.padding(real), mask.tensor(real[:, None, None])):
            outs = [layer(x[:, 3:], mask=band & seen, cache=copy.deepcopy(kept)) for kept in (ring, grown)]
            same(outs[0], outs[1], f"{seen}")


@check
def refused_calls() -> None:
    """A call that raises leaves a cache as it was."""
    layer, x = made(softcap=1.5), tokens(2, 3)
    for wrong in (
        {"route": "fused"}, {"mask": mask.where(lambda b, h, q, k: q - k)}, {"head_gate": torch.ones(9)},
        {"ask": "nothing"}, {"mask": mask.lengths([9, 9])},
    ):  # fmt: skip
        for kept in (cache.Growing(), cache.Static(2, HEADS, 9, DIM, dtype=torch.float64), cache.Ring(5)):
            with torch.no_grad():
                try:
                    layer(x, cache=kept, **wrong)
                except mh.MultiheadError:
                    assert not kept.lengths.any(), f"{kept} after a refused call with {wrong}"
                    continue
            raise AssertionError(f"{wrong} is accepted")
    kept = cache.Growing()
    layer(x, cache=kept)
    try:
        made(softcap=1.5)(x, cache=kept)
    except CacheError:
        return
    raise AssertionError("a cache takes the keys of two layers")


@check
def plans() -> None:
    """A plan is found again only for the same call."""
    layer, wide = made(softcap=1.5), made(value_dim=3)
    for n in (5, 9, 5):
        agree(layer, queries=n)
        agree(wide, mask.causal(), lambda b, h, q, k, i: k <= q, queries=n)
    for lengths in ([7, 3], [2, 7]):
        agree(layer, mask.lengths(lengths), lambda b, h, q, k, i, n=lengths: k < n[b])
    with blocks_of(20):
        x = tokens(2, 40)
        for left in (3, 9):
            agree_with_dense(layer, x, mask.window(left))


def agree_with_dense(layer: mh.MultiHeadAttention, x: Tensor, seen: mask.Mask) -> None:
    want = layer(x, mask=mask.tensor(seen.tensor(x.shape[1], batch=x.shape[0])), route="reference")
    same(layer(x, mask=seen), want, f"{seen}")


@check
def changed_masks() -> None:
    """A mask whose tensor is changed in place is the mask of the new values."""
    layer, x = made(value_dim=3), tokens(2, 40)
    real = torch.rand(2, 40) < 0.5
    for make, first, then in (
        (mask.padding, real, ~real), (mask.lengths, torch.tensor([5, 30]), torch.tensor([40, 7])),
        (mask.ragged, torch.tensor([5, 30]), torch.tensor([40, 7])),
        (mask.prefix, torch.tensor([5, 30]), torch.tensor([40, 7])),
        (mask.documents, torch.arange(40) // 9, torch.arange(40) // 17),
    ):  # fmt: skip
        held = first.clone()
        seen = make(held)
        for values in (first, then):
            held.copy_(values)
            with torch.no_grad():
                for route in (None, "blocked", "tiled"):
                    want = layer(x, mask=mask.tensor(make(values.clone()).tensor(40, batch=2)), route="reference")
                    same(layer(x, mask=seen, route=route), want, f"{seen} by {route}")


@check
def dynamic_ntk() -> None:
    """The frequencies are those of the longest row, the same for queries and keys."""
    layer = made(position=position.Rotary(scaling=position.DynamicNTK(2.0, 4)))
    x, query = tokens(2, 9), tokens(1, 1)
    want = layer(x[:, :6], mask=mask.ragged([6, 5]))
    for route in (None, "reference", "blocked"):
        same(layer(x, mask=mask.ragged([6, 5]), route=route)[:, :6], want, f"{route}: padding has no length")
    keys = tokens(1, 12)
    want = layer(query, keys, mask=mask.lengths([3]))
    same(layer(query, keys[:, :3], positions=torch.tensor([11])), want, "a query behind the keys")


@check
def structure() -> None:
    """Outside its key ranges a mask allows nothing; where it is full, everything."""
    n, keys = [3, 5], 7
    ids = torch.tensor([[0, 0, 1, 1, 1, 0, -1], [-1, 2, 2, 2, 0, 0, 0]])
    band = mask.window(2, 1, first=1)
    for seen in (
        mask.causal(), band, mask.lengths(n), mask.prefix(n), mask.documents(ids), mask.ragged([7, 4]),
        mask.padding(ids > 0), mask.causal() & band, mask.documents(ids) | band, band & mask.lengths(n),
    ):  # fmt: skip
        for queries in (7,) if "ragged" in str(seen) else (7, 3):
            cells, offset = seen.tensor(queries, keys, batch=2)[:, 0], keys - queries
            for row, start, stop in itertools.product((0, 1), range(offset, keys), range(offset, keys + 1)):
                if stop <= start:
                    continue
                span = Span(row, start, stop, offset, keys)
                block = cells[row, start - offset : stop - offset]
                inside = {k for lo, hi in seen.key_ranges(span) for k in range(lo, hi)}
                outside = [k for k in range(keys) if k not in inside]
                assert not block[:, outside].any(), f"{seen} allows keys outside its ranges"
                for lo, hi in itertools.combinations(range(keys + 1), 2):
                    if seen.is_full(span, lo, hi):
                        assert block[:, lo:hi].all(), f"{seen} is full where it hides"


@check
def cross_cache() -> None:
    layer, x, key, kept = made(num_kv_heads=2), tokens(2, 3), tokens(2, 5), cache.Cross()
    with torch.no_grad():
        want = layer(x, key)
        same(layer(x, key, cache=kept), want, "the first call")
        layer.k_proj.weight.zero_()  # the keys are not projected again
        same(layer(x, key, cache=kept), want, "a later call")
        same(layer(x, cache=kept), want, "a later call without a key")
        for changed in (key.clone(), key.add_(1)):
            try:
                layer(x, changed, cache=kept)
            except CacheError:
                continue
            raise AssertionError("a filled Cross cache accepts another key")


@check
def asking() -> None:
    layer, x = made(num_kv_heads=2, sinks=Sinks(0.6)), tokens(2, 7)
    full = layer(x, mask=mask.causal(), ask="weights").weights
    some = layer(x, mask=mask.causal(), ask=Ask(weights=Cells([3, 1], [6, 2]))).weights
    same(some, full[:, [3, 1]][:, :, [6, 2]], "chosen cells")
    for seen in (mask.causal(), mask.ragged([7, 2])):
        got = layer(x, mask=seen, ask=["weights", "lse", "heads"])
        assert torch.equal(got.out, layer(x, mask=seen)), "asking changed the output"
        same(layer.o_proj(got.heads.transpose(1, 2).flatten(2)), got.out, "heads")


@check
def positions() -> None:
    layer, x = made(position=position.Rotary(50.0)), tokens(2, 7)
    at = torch.tensor([[0, 2, 4, 6, 8, 10, 12], [5, 6, 7, 9, 11, 13, 15]])
    slopes = made(position=position.ALiBi(HEADS))
    for seen in (None, mask.ragged([3, 7])):
        for attn in (layer, slopes):
            got = attn(x, mask=seen, positions=at)
            for b, n in enumerate((7, 7) if seen is None else (3, 7)):
                same(got[b, :n], attn(x[b, :n], positions=at[b, :n]), f"row {b}")
    same(layer(x, x, x, positions=at), layer(x, positions=at), "the key is the query")
    distance = (at[0, :, None] - at[0]).abs().double()
    by_hand = -position.ALiBi(HEADS).slopes[:, None, None] * distance
    plain = made()
    plain.load_state_dict(slopes.state_dict())
    same(slopes(x[:1], positions=at[0]), plain(x[:1], mask=mask.additive(by_hand[None])), "ALiBi by hand")


@check
def zero_heads() -> None:
    layer = mh.MultiHeadAttention(WIDTH, 0, head_dim=3).double()
    nn.init.normal_(layer.o_proj.bias)
    same(layer(tokens(2, 7)), layer.o_proj.bias.expand(2, 7, -1), "no heads")


def main(names: Sequence[str]) -> dict[str, str]:
    torch.set_num_threads(1)
    found: dict[str, str] = {}
    if not set(names) or set(names) - set(CHECKS):
        import kill_package  # noqa: F401  # adds its checks; most mutants are of the layer and need none of it
    for name in names or CHECKS:
        torch.manual_seed(0)
        try:
            CHECKS[name]()
            found[name] = "ok"
        except AssertionError as differs:
            found[name] = f"differs: {differs}"
        except Exception:  # noqa: BLE001  # whatever a broken layer raises
            found[name] = f"error: {traceback.format_exc(limit=-2)}"
    return found


if __name__ == "__main__":
    import kill_suite  # kill_package adds its checks to the module of this name

    print(json.dumps(kill_suite.main(sys.argv[1:])))
