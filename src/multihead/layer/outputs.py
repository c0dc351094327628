"""Requests for more than the output of a layer, and the results. A request never changes the output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import check_flag, check_instance, describe, integers
from multihead._base.shapes import HeadOutputs, Weights
from multihead.errors import SizeError
from multihead.layer._coordinates import ALL, Coordinates
from multihead.layer._kernels import ScoreBlock, explicit, written_mask
from multihead.layer._plan import RoutePlan, bounded_tiles
from multihead.layer._problem import Groups, Problem
from multihead.layer._run_tiles import on_block, run_tiles

NAMES = ("weights", "lse", "heads")


@dataclass(frozen=True)
class Cells:
    """Some heads and some query rows of the attention weights; by default all of them."""

    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, chosen in (("heads", self.heads), ("rows", self.rows)):
            if chosen is not None:
                object.__setattr__(self, name, integers(name, chosen))


@dataclass(frozen=True)
class Ask:
    """A request for more than the output.

    - `weights`: attention weights before dropout, True for all or `Cells` for some heads and rows.
    - `lse`: log-sum-exp of the scores of every row, with the sink (-inf if the row sees no key).
    - `heads`: the outputs of the heads before W_O, after the gate.

    >>> import torch, multihead as mh
    >>> from multihead.layer import Ask, Cells
    >>> attn = mh.MultiHeadAttention(96, 6)
    >>> result = attn(torch.randn(2, 7, 96), ask=Ask(weights=Cells(heads=[0, 3], rows=[-1]), heads=True))
    >>> result.weights.shape, result.heads.shape  # two heads, the last row; all heads before W_O
    (torch.Size([2, 2, 1, 7]), torch.Size([2, 6, 7, 16]))
    """

    weights: bool | Cells = False
    lse: bool = False
    heads: bool = False

    def __post_init__(self) -> None:
        check_instance(
            "weights", self.weights, bool | Cells, "True, False or Cells", hint="multihead.layer.Cells(rows=[3])"
        )
        check_flag("lse", self.lse)
        check_flag("heads", self.heads)

    @staticmethod
    def of(ask: Ask | Cells | str | Iterable[str] | None) -> Ask:
        """The requested outputs, from an `Ask`, cells, or names."""
        if ask is None:
            return Ask()
        if isinstance(ask, Ask):
            return ask
        if isinstance(ask, Cells):
            return Ask(weights=ask)
        names = [ask] if isinstance(ask, str) or not isinstance(ask, Iterable) else list(ask)  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass True
        unknown = [name for name in names if name not in NAMES]
        if unknown:
            raise SizeError(
                f"ask must be some of {', '.join(NAMES)}, an Ask or Cells, got {describe(unknown[0])}",
                hint="ask='weights', or ask=['weights', 'lse']",
            )
        return Ask(**dict.fromkeys(names, True))

    def check(self, coordinates: Coordinates) -> Ask:
        """Raise if the requested outputs are of heads or rows that the call does not have."""
        if isinstance(self.weights, Cells):
            _index(self.weights.heads, coordinates.heads, "head", torch.device("cpu"))
            _index(self.weights.rows, coordinates.queries, "row", torch.device("cpu"))
        return self


PLAN_ONLY = Ask()
"""The request of `explain`: plan the call, compute nothing after the projections, change no cache."""


@dataclass(frozen=True)
class AttentionOutput:
    """The output, and the results requested by `ask`."""

    out: Float[Tensor, "*batch query d_out"]
    weights: Float[Tensor, "*batch chosen_head chosen_query key"] | None = None
    lse: Float[Tensor, "*batch head query"] | None = None
    heads: Float[Tensor, "*batch head query value_dim"] | None = None


@dataclass(frozen=True)
class PlannedCall:
    """A call that was planned and not computed: the result of `ask=PLAN_ONLY`."""

    problem: Problem
    plan: RoutePlan
    known_keys: bool
    """whether a cache holds the keys and values, so they are not projected"""


# torch.export, vmap and FSDP find tensors inside a result only if its type is registered.
torch.export.register_dataclass(AttentionOutput, serialized_type_name="multihead.AttentionOutput")


def weights_of(problem: Problem, cells: Cells) -> Weights:
    """The requested weights, softmax(scores) of the given heads and rows; the others are not computed."""
    size = problem.coordinates
    heads = _index(cells.heads, size.heads, "head", size.device)
    rows = _index(cells.rows, size.queries, "row", size.device)
    kv_of_head = torch.tensor(problem.groups.kv_of_head, dtype=torch.long, device=size.device)[heads]
    q, k, v = problem.q[:, heads][:, :, rows], problem.k[:, kv_of_head], problem.v[:, kv_of_head]
    sinks = problem.scores.sinks
    scores = replace(problem.scores, dropout=0.0, sinks=None if sinks is None else sinks[heads])
    count = q.shape[1]
    if q.numel() == 0 or size.keys == 0:
        return q.new_zeros(*q.shape[:3], size.keys)
    mask = written_mask(problem.mask, size, size.grid(rows=rows, heads=heads))
    groups = Groups(tuple(range(count)), count)
    block = ScoreBlock(q, k, v, groups, scores, False, mask.allowed, mask.bias, mask.row_has_key)
    return explicit(block).weights.to(q.dtype)


def lse_of(problem: Problem) -> Float[Tensor, "batch head query"]:
    """The requested log Σ_j exp(score_ij) of every row, block by block; memory is linear in tokens."""
    size, sinks = problem.coordinates, problem.scores.sinks
    scores = replace(problem.scores, sinks=None, dropout=0.0)
    keys_only = replace(problem, v=problem.v[..., :1], scores=scores)  # values play no part; one column suffices
    if size.empty:
        lse = problem.q.new_full((size.batch, size.heads, size.queries), -torch.inf)
    else:
        tiles = bounded_tiles(problem.mask, size, rows=size.batch * size.heads)
        lse = run_tiles(keys_only, tiles, on_block(_lse), empty=-torch.inf)[..., 0]
    return lse if sinks is None else torch.logaddexp(lse, sinks[:, None].to(lse.dtype))


def _lse(block: ScoreBlock) -> HeadOutputs:
    return explicit(block).lse.unsqueeze(-1)


def _index(chosen: Sequence[int] | None, count: int, noun: str, device: torch.device) -> Tensor | slice:
    """Requested heads or rows as an index; raises for those that do not exist."""
    if chosen is None:
        return ALL
    invalid = next((c for c in chosen if not -count <= c < count), None)
    if invalid is not None:
        raise SizeError(f"{noun} must be in 0..{count - 1}, got {invalid!r}", hint=f"this call has {count} {noun}s")
    return torch.tensor([c % count for c in chosen], dtype=torch.long, device=device)
