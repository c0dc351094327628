"""Explain a call: its route, the reasons against faster routes, and its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multihead._base.html_fragments import plain
from multihead.layer._mask_algebra import EVERYTHING
from multihead.layer._plan import WHY, RoutePlan, Signature, refusals
from multihead.layer._tiles import ANY_SIZE, TileMask, single_tile
from multihead.layer.outputs import PlannedCall

if TYPE_CHECKING:
    from multihead.layer.attention import MultiHeadAttention


@dataclass(frozen=True)
class Explanation:
    """Route, reasons and cost of one call; print it."""

    route: str
    why: str
    refused: dict[str, str]
    mask: str
    sizes: str
    tiles: int
    projection_flops: int
    attention_flops: int
    saved: float  # fraction of the scores not computed
    bytes: int  # weights, q, k, v, output and written-out masks
    guard: str  # the guard against NaN in hidden keys and values

    @property
    def flops(self) -> int:
        return self.projection_flops + self.attention_flops

    def __str__(self) -> str:
        calls = f"{self.tiles} tile{'s' if self.tiles != 1 else ''}"
        lines = [
            f"route      {self.route}: {self.why}",
            f"sizes      {self.sizes}",
            f"mask       {self.mask}; {calls}, {self.saved:.0%} of the scores skipped",
            f"FLOPs      {_si(self.flops)} (projections {_si(self.projection_flops)}, "
            f"attention {_si(self.attention_flops)})",
            f"memory     {_si(self.bytes)}B moved at least",
            f"NaN guard  {self.guard}",
        ]
        lines += [f"not {name:<11}{why}" for name, why in self.refused.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return plain(str(self))


def _guard(plan: RoutePlan) -> str:
    """Explain how the call keeps NaN in hidden keys out of the output."""
    if not plan.hides_keys:
        return "none needed: no key is hidden"
    if plan.reads_output:
        return "the output is read, and recomputed if it is not finite"
    return "NaN and inf are cleaned on the device; skipped while a CUDA graph is captured"


def explain_call(attn: MultiHeadAttention, planned: PlannedCall) -> Explanation:
    """Route and cost of a planned call."""
    problem, plan = planned.problem, planned.plan
    size, heads, itemsize = problem.coordinates, attn.num_heads, problem.q.element_size()
    key_dim, value_dim = problem.q.shape[3], problem.v.shape[3]
    new_queries = problem.q.shape[0] * problem.q.shape[2]
    new_keys = 0 if planned.known_keys else problem.k.shape[0] * problem.k.shape[2]
    tiles = plan.tiles
    if tiles == (ANY_SIZE,):
        tiles = (single_tile(EVERYTHING, size),)
    cells = sum(t.cells for t in tiles)
    written = sum(t.cells for t in tiles if t.mask is TileMask.MASKED)
    written *= heads * itemsize if problem.mask.per_head else 1
    if plan.route == "reference":
        written += cells * heads * max(itemsize, 4)
    width_in = attn.d_model * heads * attn.head_dim
    width_kv = attn.num_kv_heads * (attn.d_key * attn.head_dim + attn.d_value * attn.value_dim)
    projections = 2 * (new_queries * (width_in + heads * attn.value_dim * attn.d_out) + new_keys * width_kv)
    stored_keys = new_keys if problem.packed is not None else size.batch * size.keys
    moved = new_queries * (heads * key_dim + attn.d_model + attn.d_out)
    moved += stored_keys * attn.num_kv_heads * (key_dim + value_dim)
    weights = sum(p.numel() * p.element_size() for p in attn.parameters())
    packed = "" if problem.packed is None else f", packed to {problem.packed.bounds[-1]} tokens"
    signature = Signature(
        key_dim, value_dim, problem.q.dtype, problem.groups, problem.mask, size, problem.scores,
        problem.needs_grad, problem.packed is not None,
    )  # fmt: skip
    return Explanation(
        route=plan.route,
        why=WHY[plan.route],
        refused={} if size.shard is not None else refusals(signature),
        mask=str(problem.mask),
        sizes=f"batch {size.batch}, {size.queries} queries, {size.keys} keys, {heads} heads on "
        f"{attn.num_kv_heads} kv heads, {attn.head_dim} + {attn.value_dim} dims{packed}",
        tiles=len(tiles),
        projection_flops=projections,
        attention_flops=2 * cells * heads * (attn.head_dim + attn.value_dim),
        saved=1 - cells / max(1, size.batch * size.queries * size.keys),
        bytes=weights + moved * itemsize + written,
        guard=_guard(plan),
    )


def _si(number: float) -> str:
    """A number of the explanation with an SI prefix."""
    for unit in ("", "k", "M", "G", "T"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} P"
