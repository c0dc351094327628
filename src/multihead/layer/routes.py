"""The ways to compute attention, which one is taken, and why.

| route     | what it does                                                      | memory beside q, k, v |
|-----------|-------------------------------------------------------------------|-----------------------|
| reference | the explicit formula at once; the meaning of all others           | heads x n x n         |
| fused     | one call of the fused kernel                                      | n, or a written mask  |
| tiled     | the fused kernel on the rectangles that the mask leaves           | n                     |
| folded    | few queries over many keys: the group folded into the length      | n                     |
| blocked   | the explicit formula on bounded blocks, recomputed in the backward | n                     |

The result never depends on the route. `choose` is a function of sizes, kinds and flags, never of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.overrides import handle_torch_function, has_torch_function

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError
from multihead.layer.assemble import no_weight, on_block, run_tiles
from multihead.layer.blocked import BLOCK, blocked
from multihead.layer.decode import folded
from multihead.layer.kernels import Block, explicit, fused, reaches
from multihead.layer.problem import Problem, own_precision
from multihead.layer.tiles import LARGEST_MASK, Inside, Tile, tile, whole

FEW_QUERIES = 16
"""Up to so many queries attention is bound by reading keys and values, not by arithmetic."""

TILE_OVERHEAD = 25_000
"""What one more kernel call costs, in scores: about 60 µs at 2.4 ns a score of 64 dimensions."""

SHORT = 1024
"""Up to so many keys written-out blocks beat a fused kernel that has to be padded (d_v ≠ d_k, CPU)."""


@dataclass(frozen=True)
class Choice:
    """The route taken, the tiles it works on, and why the faster ones were not."""

    route: str
    why: str
    tiles: list[Tile]
    refused: dict[str, str]


def attend(problem: Problem, route: str | None = None) -> HeadOutputs:
    """softmax(scores) v by the cheapest route (or the named one), the same numbers by any.

    Like torch's own functions it can be seen and changed by a TorchFunctionMode: `multihead.capture` is one.
    """
    if not torch.compiler.is_compiling() and has_torch_function((problem.q,)):
        return handle_torch_function(attend, (problem.q,), problem, route)
    if problem.frame.apart is not None:
        if route is not None:
            raise SizeError(
                f"route={route!r} was named in a block of context_parallel, where keys go around the ranks",
                hint="leave route out",
            )
        with own_precision(problem.q.device):
            return problem.frame.apart.attend(problem)
    if problem.frame.batch * problem.frame.heads * problem.frame.queries * problem.frame.keys == 0:
        return no_weight(problem.q, problem.v.shape[3])
    with own_precision(problem.q.device):
        return _attend(problem, choose(problem, route))


def _attend(problem: Problem, choice: Choice) -> HeadOutputs:
    run = ROUTES[choice.route]
    if not problem.mask.parts():
        return run(problem, choice.tiles)
    if torch.compiler.is_compiling():
        return _traced(problem, choice, run)
    # Looking at numbers stalls an accelerator that is being trained on.
    if problem.frame.device.type != "cpu" and problem.needs_grad:
        return _guarded(problem, choice, run)
    out = run(problem, choice.tiles)
    # NaN or inf in a hidden key or value shows as NaN in the output (0 · NaN), never as a wrong number; so looking
    # at the output is enough, and costs one read of it. With gradients it may show in the backward only.
    looked_at = (out, problem.k, problem.v) if problem.needs_grad else (out,)
    return out if all(_finite(x) for x in looked_at) else _guarded(problem, choice, run)


def _finite(x: torch.Tensor) -> bool:
    """Whether there is neither NaN nor inf; False also where nobody may look, as under vmap."""
    wide = torch.float32 if x.dtype == torch.float16 else None  # a sum of fp16 overflows soon
    total = x.detach().sum(dtype=wide)
    try:
        return math.isfinite(total.item())
    except RuntimeError:
        return False


def choose(problem: Problem, route: str | None = None) -> Choice:
    """The cheapest route that can do this problem; a named one, or an error that says why not."""
    if route is not None:
        return _named(problem, route)
    refused: dict[str, str] = {}
    for name in ROUTES:
        why = _refusal(name, problem) or _slower(name, problem)
        if why is None:
            tiles = _tiles_for(name, problem)
            why = _refused_tiles(name, tiles)
            if name == "tiled" and not _worth_tiling(problem, tiles):
                why = "one call over everything costs no more"
            if why is None:
                return Choice(name, _WHY[name], tiles, refused)
        refused[name] = why
    raise AssertionError("the reference route refuses nothing")


def check_route(route: str | None) -> None:
    """Raise where a route is named that does not exist."""
    if route is not None and route not in ROUTES:
        raise SizeError(
            f"there is no route {route!r}", hint=f"choose one of {', '.join(ROUTES)}, or leave route out"
        )


def _named(problem: Problem, route: str) -> Choice:
    check_route(route)
    refused = {name: why for name in ROUTES if (why := _refusal(name, problem)) is not None}
    why = refused.get(route)
    tiles = _tiles_for(route, problem) if why is None else []
    why = why or _refused_tiles(route, tiles)
    if why is not None:
        raise SizeError(
            f"route={route!r} cannot compute this: {why}",
            hint=f"choose one of {', '.join(n for n in ROUTES if n not in refused)}, or leave route out",
        )
    return Choice(route, "asked for", tiles, refused)


def _refused_tiles(route: str, tiles: list[Tile]) -> str | None:
    return "rows see different keys" if route == "folded" and len(tiles) > 1 else None


def _slower(route: str, problem: Problem) -> str | None:
    """Why a route that could compute this would lose to one that is tried after it."""
    frame = problem.frame
    scores = frame.batch * frame.heads * frame.queries * frame.keys
    if route == "tiled" and scores < 2 * TILE_OVERHEAD and problem.packing is None:
        return f"{scores} scores are less than a second call costs"
    key_dim, value_dim = problem.q.shape[3], problem.v.shape[3]
    padded = key_dim != value_dim and route in ("tiled", "fused") and frame.device.type == "cpu"
    if padded and _structured(problem) and frame.keys <= SHORT:
        return f"key heads of {key_dim} and value heads of {value_dim} would be padded; blocks win here"
    return None


def _worth_tiling(problem: Problem, tiles: list[Tile]) -> bool:
    """Whether tiles beat one call; always, where one call would write out a mask that is quadratic in tokens."""
    one, heads = whole(problem.mask, problem.frame), problem.frame.heads
    written = one.cells * (heads if problem.mask.per_head else 1) // problem.frame.batch
    too_large = one.inside is Inside.MASKED and written > LARGEST_MASK
    cost = sum(t.work * heads + TILE_OVERHEAD for t in tiles)
    return problem.packing is not None or too_large or cost < one.work * heads + TILE_OVERHEAD


_WHY = {
    "folded": "few queries over a cache: keys and values are read once per group",
    "tiled": "the mask leaves out part of the scores",
    "fused": "one call of the fused kernel",
    "blocked": "the fused kernel cannot do this, or not well; blocks keep memory linear in tokens",
    "reference": "the fused kernel cannot do this, and a traced graph has no blocks",
}


def _refusal(route: str, problem: Problem) -> str | None:
    """Why a route cannot compute this problem; None if it can."""
    scores, mask, frame = problem.scores, problem.mask, problem.frame
    if problem.packing is not None and route not in ("tiled", "blocked"):
        return "the rows are packed"
    if route == "reference":
        return None
    if route == "blocked":
        if torch.compiler.is_compiling():
            return "a traced graph is one call"
        # vmap and its kin cannot look into a loop over blocks.
        transformed = torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]  # no public name
        return "it cannot be transformed" if transformed else None
    if route == "folded":
        return _folding_refusal(problem)
    if scores.softcap is not None:
        return "softcap lies between the scores and the softmax"
    if scores.dropout:
        return "dropout on the weights makes the fused kernel fall back to slow math"
    if problem.added_needs_grad:
        return "what is added to the scores needs a gradient"
    if route == "tiled":
        if torch.compiler.is_compiling():
            return "a traced graph is one call"
        if not frame.aligned:
            return "the rows of the cache stand at different places"
        if not mask.structured:
            return "the mask's numbers are on the device; reading them would stall it"
        if not mask.parts():
            return "there is no mask to leave work out"
    return None


def _tiles_for(route: str, problem: Problem) -> list[Tile]:
    if route == "tiled" or (route == "folded" and _structured(problem)):
        return tile(problem.mask, problem.frame)
    if route == "blocked":
        return bounded_tiles(problem)
    return [whole(problem.mask, problem.frame)]


def bounded_tiles(problem: Problem, *, rows: int = 1) -> list[Tile]:
    """Tiles small enough that a kernel may write the scores of `rows` heads out; one, without structure."""
    if not _structured(problem):
        return [whole(problem.mask, problem.frame)]
    return tile(problem.mask, problem.frame, largest=max(1, BLOCK // max(rows, 1)), every=True)


def _structured(problem: Problem) -> bool:
    return problem.mask.structured and problem.frame.aligned and not torch.compiler.is_compiling()


def _folding_refusal(problem: Problem) -> str | None:
    queries, keys, traced = problem.frame.queries, problem.frame.keys, torch.compiler.is_compiling()
    if traced and (problem.frame.aligned or torch.compiler.is_exporting()):
        return "a traced graph is one call"  # unless a static cache says that its sizes never change
    if queries > FEW_QUERIES or queries * 4 > keys:
        # A size may be a symbol in a traced graph, and a message would make a number of it.
        return "too many queries" if traced else f"{queries} queries over {keys} keys are not few"
    if problem.needs_grad or problem.added_needs_grad or problem.scores.dropout:
        return "it is for inference: a gradient or dropout is needed"
    if problem.groups.size is None:
        return "the groups are uneven"
    return None


def _explicit_out(block: Block) -> HeadOutputs:
    return explicit(block).out


Route = Callable[[Problem, Sequence[Tile]], HeadOutputs]

# In the order in which they are tried.
ROUTES: dict[str, Route] = {
    "folded": lambda problem, tiles: run_tiles(problem, tiles, on_block(folded)),
    "tiled": lambda problem, tiles: run_tiles(problem, tiles, on_block(fused)),
    "fused": lambda problem, tiles: run_tiles(problem, tiles, on_block(fused)),
    "blocked": lambda problem, tiles: run_tiles(problem, tiles, blocked),
    "reference": lambda problem, tiles: run_tiles(problem, tiles, on_block(_explicit_out)),
}


def _traced(problem: Problem, choice: Choice, run: Route) -> HeadOutputs:
    """As eager mode, in a graph, which is kept free of branches: keys and values are cleaned beforehand.

    In decoding that copy would be half of the time, so there, on CPU, the graph does look at the output.
    """
    if choice.route != "folded" or problem.frame.device.type != "cpu":
        return _guarded(problem, choice, run)
    out = run(problem, choice.tiles)
    fine = torch.isfinite(out.sum())
    # Neither branch may return its input, and both must return the same strides.
    again: Callable[[HeadOutputs], HeadOutputs] = lambda _: _copied(_guarded(problem, choice, run))
    return torch.cond(fine, _copied, again, (out,))


def _copied(x: HeadOutputs) -> HeadOutputs:
    return x.clone(memory_format=torch.contiguous_format)


def _guarded(problem: Problem, choice: Choice, run: Route) -> HeadOutputs:
    """The output where non-finite keys and values reach only the rows that may see them.

    Bad keys are computed as zeros; then the rows that may attend to one become NaN, as they should.
    """
    bad = ~(torch.isfinite(problem.k).all(-1) & torch.isfinite(problem.v).all(-1))  # batch, kv_head, key
    hide = bad.unsqueeze(-1)
    clean = replace(problem, k=problem.k.masked_fill(hide, 0.0), v=problem.v.masked_fill(hide, 0.0))
    out = run(clean, choice.tiles)
    marked = replace(clean, q=problem.q.detach()[..., :1], k=problem.k.detach()[..., :1], v=hide.to(out.dtype))
    return out.masked_fill(run_tiles(marked, choice.tiles, on_block(reaches)) > 0, torch.nan)
