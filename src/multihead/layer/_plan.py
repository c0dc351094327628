"""Plan a call: choose its route and its tiles.

| route     | method                                                             | memory besides q, k, v |
|-----------|--------------------------------------------------------------------|------------------------|
| reference | the explicit formula at once; defines the result of all others     | heads x n x n          |
| fused     | one call of the fused kernel                                       | n, or a written mask   |
| tiled     | the fused kernel on the rectangles that the mask does not hide     | n                      |
| folded    | few queries over many keys: the group folded into the length       | n                      |
| blocked   | the explicit formula on bounded blocks, recomputed in the backward | n                      |

The result never depends on the route. A plan depends on sizes, dtypes, flags and the mask's key, so plans are
cached; the key of a mask contains the values that its structure depends on.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch

from multihead._base.recent import Recent
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates
from multihead.layer._kv_store import NO_CACHE, KVStore
from multihead.layer._mask_algebra import EVERYTHING, Mask
from multihead.layer._mask_structured import CAUSAL
from multihead.layer._problem import Groups, Problem, ScoreConfig
from multihead.layer._tiles import ANY_SIZE, LARGEST_MASK, Tile, TileMask, single_tile, tile
from multihead.layer._tracing import is_compiling, transformed

ROUTES = ("folded", "tiled", "fused", "blocked", "reference")
"""In the order of trial."""

FEW_QUERIES = 16
"""Up to this many queries, attention is bound by reading keys and values, not by arithmetic."""

FOLDED_BYTES = 1 << 23
"""Bytes of the keys of one batch row, times group size², from which one read per group repays its extra calls.

Measured on one AVX2 core: 8 MB of keys without groups, where they no longer fit the cache; 0.5 MB in groups of
four.
"""

TILE_OVERHEAD = 25_000
"""The cost of one more kernel call, in scores: about 60 µs at 2.4 ns per score of 64 dimensions."""

SHORT = 1024
"""Up to this many keys, written-out blocks are faster than a fused kernel with padded heads (d_v ≠ d_k, CPU)."""

BLOCK = 3 << 19
"""Scores in one block: three fp32 buffers of this size fit a shared cache of 32 MB."""


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The route of a call, and its tiles."""

    route: str
    tiles: tuple[Tile, ...]
    hides_keys: bool
    """whether the mask hides a key, which may then hold NaN"""
    device: str = "cpu"
    direct: bool = False
    """one call of F.scaled_dot_product_attention on q, k and v as they are"""
    causal: bool = False
    """the `is_causal` flag of that call"""
    reads_output: bool = False
    """whether the host may read the output to find NaN: on CPU, and not under torch.func"""


@dataclass(frozen=True)
class Signature:
    """Everything a plan depends on."""

    key_dim: int
    value_dim: int
    dtype: torch.dtype
    groups: Groups
    mask: Mask
    coordinates: Coordinates
    scores: ScoreConfig
    needs_grad: bool
    packed: bool

    @property
    def on_cpu(self) -> bool:
        return self.coordinates.device.type == "cpu"

    @property
    def structured(self) -> bool:
        """Whether tiles can be planned on the host."""
        return self.mask.structured and self.coordinates.aligned and not is_compiling()

    @property
    def bias_needs_grad(self) -> bool:
        return torch.is_grad_enabled() and bool(self.mask.bias_params())


_PLANS = Recent[RoutePlan](1024)

_UNMASKED: dict[Hashable, RoutePlan] = {}
"""plans without a mask, a few per kind of layer: their keys hold no sizes of a call"""


def plan_for(
    q: torch.Tensor,
    value_dim: int,
    groups: Groups,
    mask: Mask,
    coordinates: Coordinates,
    scores: ScoreConfig,
    *,
    needs_grad: bool,
    packed: bool = False,
    route: str | None = None,
) -> RoutePlan:
    """The cheapest plan for these sizes, or the plan of `route`, which raises if it cannot compute them."""
    if route is not None:
        _check_route(route)
    if coordinates.shard is not None:
        _check_mask(mask, coordinates)
        return _ring_plan(route)
    if mask is CAUSAL and coordinates.queries == 1 and coordinates.query_positions is None:
        mask = EVERYTHING  # the last query sees every key, and without a mask all decoding steps share one plan
    if is_compiling():
        signature = Signature(q.shape[3], value_dim, q.dtype, groups, mask, coordinates, scores, needs_grad, packed)
        return choose(signature, route)
    key_dim, dtype = q.shape[3], q.dtype
    key = (
        key_dim, value_dim, dtype, q.device, groups.size, needs_grad, packed, route,
        scores.softcap is None, scores.sinks is None, scores.dropout > 0.0, scores.scale > 0.0,
        torch.is_grad_enabled(), transformed(),
    )  # fmt: skip
    unmasked_key = None
    if mask is EVERYTHING:
        queries, keys = coordinates.queries, coordinates.keys
        few = queries <= FEW_QUERIES and keys >= 4 * queries
        folds = few and _worth_folding(groups, keys, key_dim, dtype)
        unmasked_key = (few, folds, keys > SHORT, coordinates.empty, *key)
        plan = _UNMASKED.get(unmasked_key)
        if plan is not None:
            return plan
    key = (key, coordinates.key, mask.key)
    plan = _PLANS.get(key)
    if plan is None:
        signature = Signature(q.shape[3], value_dim, q.dtype, groups, mask, coordinates, scores, needs_grad, packed)
        plan = choose(signature, route)
        if unmasked_key is None or plan.route == "blocked":  # without a mask, only blocks depend on the sizes
            _PLANS.put(key, plan)
        else:
            plan = _UNMASKED[unmasked_key] = replace(plan, tiles=(ANY_SIZE,) if plan.tiles else ())
    return plan


def plan_of(problem: Problem, route: str | None = None, store: KVStore = NO_CACHE) -> RoutePlan:
    """The plan of a problem; `store` adds cached keys and values to it later."""
    return plan_for(
        problem.q, problem.v.shape[3], problem.groups, problem.mask, problem.coordinates, problem.scores,
        needs_grad=problem.needs_grad or (store.requires_grad and torch.is_grad_enabled()),
        packed=problem.packed is not None, route=route,
    )  # fmt: skip


def choose(call: Signature, route: str | None = None) -> RoutePlan:
    """The plan of the first route that can compute this call and is not slower than a later one, or of `route`."""
    _check_mask(call.mask, call.coordinates)
    if call.coordinates.empty:
        return RoutePlan("reference", (), hides_keys=False)
    for name in ROUTES if route is None else (route,):
        reason, tiles = _try(call, name, forced=route is not None)
        if reason is None:
            return _plan(call, name, tiles)
        if route is not None:
            possible = [n for n in ROUTES if _try(call, n, forced=True)[0] is None]
            raise SizeError(
                f"route={route!r} cannot compute this: {reason}",
                hint=f"choose one of {', '.join(possible)}, or pass no route",
            )
    raise AssertionError("the reference route can compute everything")


def _check_mask(mask: Mask, coordinates: Coordinates) -> None:
    """Raise, before the call is planned, if the mask is on the wrong device or does not fit."""
    for tensor in mask.tensors():
        if tensor.device.type == "meta" != coordinates.device.type:
            raise TypeMismatchError(
                f"{mask} is on the meta device, the call is on {coordinates.device}",
                hint="create the mask on the device of the layer",
            )
    mask.check(coordinates)


def refusals(call: Signature) -> dict[str, str]:
    """The reason against each route tried before the chosen one."""
    reasons: dict[str, str] = {}
    for name in ROUTES:
        reason, _ = _try(call, name, forced=False)
        if reason is None:
            break
        reasons[name] = reason
    return reasons


WHY = {
    "folded": "few queries over many keys: keys and values are read once per group",
    "tiled": "the mask hides part of the scores",
    "fused": "one call of the fused kernel",
    "blocked": "the fused kernel does not support this call or is slow on it; blocks keep memory linear in tokens",
    "reference": "the fused kernel does not support this call, and a traced graph has no blocks",
    "ring": "keys and values are passed around the ranks",
}


def _check_route(route: str) -> None:
    if route not in ROUTES:
        raise SizeError(f"unknown route {route!r}", hint=f"choose one of {', '.join(ROUTES)}, or pass no route")


def _try(call: Signature, route: str, *, forced: bool) -> tuple[str | None, tuple[Tile, ...]]:
    """The reason against a route (None if the plan may take it), and its tiles."""
    reason = _refusal(call, route)
    if reason is None and not forced:
        reason = _slower(call, route)
    if reason is not None:
        return reason, ()
    tiles = _tiles_for(call, route)
    if route == "folded" and len(tiles) > 1:
        return "rows see different keys", ()
    if route == "tiled" and not forced and not _worth_tiling(call, tiles):
        return "one call over everything costs no more", ()
    return None, tiles


def _plan(call: Signature, route: str, tiles: tuple[Tile, ...]) -> RoutePlan:
    """The plan of a route with its tiles: which checks and guards the call needs."""
    traced = is_compiling()
    reads_output = call.on_cpu and not transformed()
    complete = len(tiles) == 1 and (
        traced or tiles[0].shape[1:] == (call.coordinates.queries, call.coordinates.keys)
    )
    hides_keys = bool(call.mask.parts()) and not (complete and tiles[0].mask is TileMask.FULL)
    direct = (
        route in ("fused", "tiled") and complete and tiles[0].mask is not TileMask.MASKED
        and not call.packed and call.scores.sinks is None and call.scores.scale > 0
        and call.key_dim == call.value_dim and call.groups.size is not None
        and not traced and call.coordinates.device.type != "meta" and (reads_output or not hides_keys)
    )  # fmt: skip
    causal = direct and tiles[0].mask is TileMask.CAUSAL
    return RoutePlan(route, tiles, hides_keys, call.coordinates.device.type, direct, causal, reads_output)


def _ring_plan(route: str | None) -> RoutePlan:
    """The plan of a call inside context_parallel."""
    if route is not None:
        raise SizeError(
            f"route={route!r} cannot be chosen inside context_parallel, which passes keys around the ranks",
            hint="pass no route",
        )
    return RoutePlan("ring", (), hides_keys=False)


def _slower(call: Signature, route: str) -> str | None:
    """Why the plan prefers a later route to one that can compute this call; None if it does not."""
    size = call.coordinates
    scores = size.batch * size.heads * size.queries * size.keys
    if route == "tiled" and scores < 2 * TILE_OVERHEAD and not call.packed:
        return f"{scores} scores cost less than a second call"
    if route == "folded" and not is_compiling():
        simple = call.scores.softcap is None and call.scores.sinks is None and not call.mask.parts()
        if simple and not _worth_folding(call.groups, size.keys, call.key_dim, call.dtype):
            return f"{size.keys} keys are read faster by one call of the fused kernel"
    padded = call.key_dim != call.value_dim and route in ("tiled", "fused") and call.on_cpu
    if padded and call.structured and size.keys <= SHORT:
        return f"key heads of {call.key_dim} and value heads of {call.value_dim} would be padded; blocks are faster"
    return None


def _worth_folding(groups: Groups, keys: int, key_dim: int, dtype: torch.dtype) -> bool:
    """Whether few queries gain from one read of the keys per group; always in half precision, slow when fused."""
    size = groups.size or 1
    return dtype.itemsize < 4 or keys * groups.kv_heads * key_dim * dtype.itemsize * size * size >= FOLDED_BYTES


def _worth_tiling(call: Signature, tiles: tuple[Tile, ...]) -> bool:
    """Plan tiles if they are cheaper than one call, or one call would write out a mask quadratic in tokens."""
    one, heads = single_tile(call.mask, call.coordinates), call.coordinates.heads
    written = one.cells * (heads if call.mask.per_head else 1) // call.coordinates.batch
    too_large = one.mask is TileMask.MASKED and written > LARGEST_MASK
    cost = sum(t.work * heads + TILE_OVERHEAD for t in tiles)
    return call.packed or too_large or cost < one.work * heads + TILE_OVERHEAD


def _refusal(call: Signature, route: str) -> str | None:
    """Why a route cannot be planned for this call; None if it can."""
    if call.packed and route not in ("tiled", "blocked"):
        return "the rows are packed"
    if route == "reference":
        return None
    if route == "blocked":
        if is_compiling():
            return "a traced graph is one call"
        return "a loop over blocks cannot be transformed by torch.func" if transformed() else None
    if route == "folded":
        return _folding_refusal(call)
    if call.scores.softcap is not None:
        return "the fused kernel has no softcap"
    if call.scores.dropout:
        return "dropout on the weights makes the fused kernel fall back to slow math"
    if call.bias_needs_grad:
        return "the bias added to the scores needs a gradient"
    if route == "tiled":
        if is_compiling():
            return "a traced graph is one call"
        if not call.coordinates.aligned:
            return "the rows of the cache differ in length"
        if not call.mask.structured:
            return "the mask's values are on the device; reading them would stall it"
        if not call.mask.parts():
            return "no mask hides any work"
    return None


def _folding_refusal(call: Signature) -> str | None:
    """Why the plan cannot fold groups into the query axis; None if it can."""
    queries, keys, traced = call.coordinates.queries, call.coordinates.keys, is_compiling()
    if traced and (call.coordinates.aligned or torch.compiler.is_exporting()):
        return "a traced graph is one call"  # except with a Static cache, whose sizes never change
    if queries > FEW_QUERIES or queries * 4 > keys:
        # A size may be a symbol in a traced graph; formatting it would specialize the graph to one value.
        return "too many queries" if traced else f"{queries} queries over {keys} keys are too many"
    if call.needs_grad or call.bias_needs_grad or call.scores.dropout:
        return "inference only: this call needs a gradient or dropout"
    return "the groups are uneven" if call.groups.size is None else None


def _tiles_for(call: Signature, route: str) -> tuple[Tile, ...]:
    """The tiles that a plan has for a route."""
    if route == "tiled" or (route == "folded" and call.structured):
        return tuple(tile(call.mask, call.coordinates))
    if route == "blocked":
        return bounded_tiles(call.mask, call.coordinates)
    return (single_tile(call.mask, call.coordinates),)


def bounded_tiles(mask: Mask, coordinates: Coordinates, *, rows: int = 1) -> tuple[Tile, ...]:
    """Plan tiles small enough to write out the scores of `rows` heads at once; one if structure is unknown."""
    if not mask.structured or not coordinates.aligned or is_compiling():
        return (single_tile(mask, coordinates),)
    return tuple(tile(mask, coordinates, largest=max(1, BLOCK // max(rows, 1)), every=True))
