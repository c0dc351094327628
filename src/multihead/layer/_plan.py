"""How one call is computed: the route, its tiles, and why.

| route     | what it does                                                       | memory besides q, k, v |
|-----------|--------------------------------------------------------------------|------------------------|
| reference | the explicit formula at once; the meaning of all others            | heads x n x n          |
| fused     | one call of the fused kernel                                       | n, or a written mask   |
| tiled     | the fused kernel on the rectangles that the mask leaves            | n                      |
| folded    | few queries over many keys: the group folded into the length       | n                      |
| blocked   | the explicit formula on bounded blocks, recomputed in the backward | n                      |

The result never depends on the route. A plan depends on sizes, dtypes, flags and the mask's key, so it is kept and
found again; the key of a mask contains the values that its structure depends on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from multihead._base.recent import Recent
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates
from multihead.layer._kv_store import NO_CACHE, KVStore
from multihead.layer._mask_algebra import EVERYTHING, Mask
from multihead.layer._mask_structured import CAUSAL
from multihead.layer._problem import Groups, Problem, ScoreConfig
from multihead.layer._tiles import ANY_SIZE, LARGEST_MASK, Inside, Tile, single_tile, tile
from multihead.layer._tracing import transformed

ROUTES = ("folded", "tiled", "fused", "blocked", "reference")
"""In the order in which they are tried."""

FEW_QUERIES = 16
"""Up to this many queries, attention is bound by reading keys and values, not by arithmetic."""

FOLDED_BYTES = 1 << 23
"""Keys of one batch row, times group size², from which one read per group is worth its extra calls.

Measured on one AVX2 core: 8 MB of keys without groups, where they leave the cache; 0.5 MB in groups of four.
"""

TILE_OVERHEAD = 25_000
"""The cost of one more kernel call, in scores: about 60 µs at 2.4 ns a score of 64 dimensions."""

SHORT = 1024
"""Up to this many keys, written-out blocks beat a fused kernel that has to be padded (d_v ≠ d_k, CPU)."""

BLOCK = 3 << 19
"""Scores of one block: three fp32 buffers of it stay inside a shared cache of 32 MB."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The route of a call, and its tiles."""

    route: str
    tiles: tuple[Tile, ...]
    hides: bool
    """whether the mask hides any key, which may then hold NaN"""
    device: str = "cpu"
    direct: bool = False
    """one call of F.scaled_dot_product_attention on q, k and v as they are"""
    causal: bool = False
    """the flag of that call"""
    looks: bool = False
    """whether the output may be read to look for NaN: on CPU, and not under vmap"""


@dataclass(frozen=True)
class Signature:
    """What a plan depends on."""

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
        return self.mask.structured and self.coordinates.aligned and not torch.compiler.is_compiling()

    @property
    def bias_needs_grad(self) -> bool:
        return torch.is_grad_enabled() and bool(self.mask.bias_params())


_PLANS = Recent[Plan](1024)


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
) -> Plan:
    """The cheapest plan for these sizes, or that of a named route, which raises if it cannot compute them."""
    if route is not None:
        check_route(route)
    if coordinates.shard is not None:
        _check_mask(mask, coordinates)
        return _ring_plan(route)
    if mask is CAUSAL and coordinates.queries == 1 and coordinates.query_positions is None:
        mask = EVERYTHING  # the last query sees every key; without a mask, steps of decoding share one plan
    if torch.compiler.is_compiling():
        signature = Signature(q.shape[3], value_dim, q.dtype, groups, mask, coordinates, scores, needs_grad, packed)
        return choose(signature, route)
    key_dim = q.shape[3]
    key = (
        key_dim, value_dim, q.dtype, q.device, groups.size, needs_grad, packed, route,
        scores.softcap is None, scores.sinks is None, scores.dropout > 0.0, scores.scale > 0.0,
        torch.is_grad_enabled(), transformed(),
    )  # fmt: skip
    at_once = None
    if mask is EVERYTHING:
        queries, keys = coordinates.queries, coordinates.keys
        few = queries <= FEW_QUERIES and keys >= 4 * queries
        folds = few and worth_folding(groups, keys, key_dim, q.dtype)
        at_once = (key, few, folds, keys > SHORT, coordinates.empty)
        plan = _PLANS.get(at_once)
        if plan is not None:
            return plan
    key = (key, coordinates.key, mask.key)
    plan = _PLANS.get(key)
    if plan is None:
        signature = Signature(q.shape[3], value_dim, q.dtype, groups, mask, coordinates, scores, needs_grad, packed)
        plan = choose(signature, route)
        if at_once is not None and plan.route != "blocked":  # without a mask, only blocks depend on the sizes
            plan, key = replace(plan, tiles=(ANY_SIZE,) if plan.tiles else ()), at_once
        _PLANS.put(key, plan)
    return plan


def plan_of(problem: Problem, route: str | None = None, store: KVStore = NO_CACHE) -> Plan:
    """The plan of a problem whose keys and values `store` will complete."""
    return plan_for(
        problem.q, problem.v.shape[3], problem.groups, problem.mask, problem.coordinates, problem.scores,
        needs_grad=torch.is_grad_enabled() and (problem.needs_grad or store.requires_grad),
        packed=problem.packing is not None, route=route,
    )  # fmt: skip


def choose(call: Signature, route: str | None = None) -> Plan:
    """The first route that can compute this and does not lose to a later one; or the named one."""
    _check_mask(call.mask, call.coordinates)
    if call.coordinates.empty:
        return Plan("reference", (), hides=False)
    for name in ROUTES if route is None else (route,):
        reason, tiles = _try(call, name, by_name=route is not None)
        if reason is None:
            return _plan(call, name, tiles)
        if route is not None:
            possible = [n for n in ROUTES if _try(call, n, by_name=True)[0] is None]
            raise SizeError(
                f"route={route!r} cannot compute this: {reason}",
                hint=f"choose one of {', '.join(possible)}, or pass no route",
            )
    raise AssertionError("the reference route can compute everything")


def _check_mask(mask: Mask, coordinates: Coordinates) -> None:
    for tensor in mask.tensors():
        if tensor.device.type == "meta" != coordinates.device.type:
            raise TypeMismatchError(
                f"{mask} is on the meta device, the call is on {coordinates.device}",
                hint="a mask needs values: make it on the device of the layer",
            )
    mask.check(coordinates)


def refusals(call: Signature) -> dict[str, str]:
    """Why each route that is tried before the chosen one is not taken."""
    reasons: dict[str, str] = {}
    for name in ROUTES:
        reason, _ = _try(call, name, by_name=False)
        if reason is None:
            break
        reasons[name] = reason
    return reasons


WHY = {
    "folded": "few queries over a cache: keys and values are read once per group",
    "tiled": "the mask hides part of the scores",
    "fused": "one call of the fused kernel",
    "blocked": "the fused kernel cannot do this, or not well; blocks keep memory linear in tokens",
    "reference": "the fused kernel cannot do this, and a traced graph has no blocks",
    "ring": "keys and values are passed around the ranks",
}


def check_route(route: str) -> None:
    if route not in ROUTES:
        raise SizeError(f"unknown route {route!r}", hint=f"choose one of {', '.join(ROUTES)}, or pass no route")


def _try(call: Signature, route: str, *, by_name: bool) -> tuple[str | None, tuple[Tile, ...]]:
    """Why a route is not taken (None if it can be), and its tiles."""
    reason = _refusal(call, route)
    if reason is None and not by_name:
        reason = _slower(call, route)
    if reason is not None:
        return reason, ()
    tiles = _tiles_for(call, route)
    if route == "folded" and len(tiles) > 1:
        return "rows see different keys", ()
    if route == "tiled" and not by_name and not _worth_tiling(call, tiles):
        return "one call over everything costs no more", ()
    return None, tiles


def _plan(call: Signature, route: str, tiles: tuple[Tile, ...]) -> Plan:
    traced = torch.compiler.is_compiling()
    looks = call.on_cpu and not transformed()
    complete = len(tiles) == 1 and (
        traced or tiles[0].shape[1:] == (call.coordinates.queries, call.coordinates.keys)
    )
    hides = bool(call.mask.parts()) and not (complete and tiles[0].inside is Inside.FULL)
    direct = (
        route in ("fused", "tiled") and complete and tiles[0].inside is not Inside.MASKED
        and not call.packed and call.scores.sinks is None and call.scores.scale > 0
        and call.key_dim == call.value_dim and call.groups.size is not None
        and not traced and call.coordinates.device.type != "meta" and (looks or not hides)
    )  # fmt: skip
    causal = direct and tiles[0].inside is Inside.CAUSAL
    return Plan(route, tiles, hides, call.coordinates.device.type, direct, causal, looks)


def _ring_plan(route: str | None) -> Plan:
    if route is not None:
        raise SizeError(
            f"route={route!r} cannot be chosen inside context_parallel, where keys are passed around the ranks",
            hint="pass no route",
        )
    return Plan("ring", (), hides=False)


def _slower(call: Signature, route: str) -> str | None:
    """Why a route that can compute this loses to one that is tried after it."""
    size = call.coordinates
    scores = size.batch * size.heads * size.queries * size.keys
    if route == "tiled" and scores < 2 * TILE_OVERHEAD and not call.packed:
        return f"{scores} scores cost less than a second call"
    if route == "folded" and not torch.compiler.is_compiling():
        simple = call.scores.softcap is None and call.scores.sinks is None and not call.mask.parts()
        if simple and not worth_folding(call.groups, size.keys, call.key_dim, call.dtype):
            return f"{size.keys} keys are read faster by one call of the fused kernel"
    padded = call.key_dim != call.value_dim and route in ("tiled", "fused") and call.on_cpu
    if padded and call.structured and size.keys <= SHORT:
        return f"key heads of {call.key_dim} and value heads of {call.value_dim} would be padded; blocks are faster"
    return None


def worth_folding(groups: Groups, keys: int, key_dim: int, dtype: torch.dtype) -> bool:
    """Whether few queries gain from one read of the keys per group; always in half precision, slow when fused."""
    size = groups.size or 1
    return dtype.itemsize < 4 or keys * groups.kv_heads * key_dim * dtype.itemsize * size * size >= FOLDED_BYTES


def _worth_tiling(call: Signature, tiles: tuple[Tile, ...]) -> bool:
    """Whether tiles beat one call; always, if one call would write out a mask that is quadratic in tokens."""
    one, heads = single_tile(call.mask, call.coordinates), call.coordinates.heads
    written = one.cells * (heads if call.mask.per_head else 1) // call.coordinates.batch
    too_large = one.inside is Inside.MASKED and written > LARGEST_MASK
    cost = sum(t.work * heads + TILE_OVERHEAD for t in tiles)
    return call.packed or too_large or cost < one.work * heads + TILE_OVERHEAD


def _refusal(call: Signature, route: str) -> str | None:
    """Why a route cannot compute this; None if it can."""
    if call.packed and route not in ("tiled", "blocked"):
        return "the rows are packed"
    if route == "reference":
        return None
    if route == "blocked":
        if torch.compiler.is_compiling():
            return "a traced graph is one call"
        return "a loop over blocks cannot be transformed by torch.func" if transformed() else None
    if route == "folded":
        return _folding_refusal(call)
    if call.scores.softcap is not None:
        return "softcap is between the scores and the softmax"
    if call.scores.dropout:
        return "dropout on the weights makes the fused kernel fall back to slow math"
    if call.bias_needs_grad:
        return "the bias added to the scores needs a gradient"
    if route == "tiled":
        if torch.compiler.is_compiling():
            return "a traced graph is one call"
        if not call.coordinates.aligned:
            return "the rows of the cache differ in length"
        if not call.mask.structured:
            return "the mask's values are on the device; reading them would stall it"
        if not call.mask.parts():
            return "no mask hides any work"
    return None


def _folding_refusal(call: Signature) -> str | None:
    queries, keys, traced = call.coordinates.queries, call.coordinates.keys, torch.compiler.is_compiling()
    if traced and (call.coordinates.aligned or torch.compiler.is_exporting()):
        return "a traced graph is one call"  # unless a static cache says that its sizes never change
    if queries > FEW_QUERIES or queries * 4 > keys:
        # A size may be a symbol in a traced graph, and a message would make a number of it.
        return "too many queries" if traced else f"{queries} queries over {keys} keys are not few"
    if call.needs_grad or call.bias_needs_grad or call.scores.dropout:
        return "it is for inference: a gradient or dropout is needed"
    return "the groups are uneven" if call.groups.size is None else None


def _tiles_for(call: Signature, route: str) -> tuple[Tile, ...]:
    if route == "tiled" or (route == "folded" and call.structured):
        return tuple(tile(call.mask, call.coordinates))
    if route == "blocked":
        return bounded_tiles(call.mask, call.coordinates)
    return (single_tile(call.mask, call.coordinates),)


def bounded_tiles(mask: Mask, coordinates: Coordinates, *, rows: int = 1) -> tuple[Tile, ...]:
    """Tiles small enough that a kernel may write the scores of `rows` heads out; one tile without structure."""
    if not mask.structured or not coordinates.aligned or torch.compiler.is_compiling():
        return (single_tile(mask, coordinates),)
    return tuple(tile(mask, coordinates, largest=max(1, BLOCK // max(rows, 1)), every=True))
