"""What a caller may ask for beside the output, and what comes back. Asking never changes the output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Weights
from multihead.errors import SizeError
from multihead.layer.assemble import on_block, run_tiles
from multihead.layer.frame import ALL
from multihead.layer.kernels import Block, explicit, masked
from multihead.layer.problem import Groups, Problem
from multihead.layer.routes import bounded_tiles

NAMES = ("weights", "lse", "heads")


@dataclass(frozen=True)
class Cells:
    """Some heads and some query rows of the attention weights; None: all of them."""

    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None


@dataclass(frozen=True)
class Ask:
    """What to return beside the output.

    - `weights`: attention weights before dropout, True for all or `Cells` for some heads and rows;
    - `lse`: log-sum-exp of the scores of every row (sinks included; -inf where nothing may be seen);
    - `heads`: the outputs of the heads before W_O (after the gate).
    """

    weights: bool | Cells = False
    lse: bool = False
    heads: bool = False

    @staticmethod
    def of(ask: Ask | Cells | str | Iterable[str] | None) -> Ask:
        if ask is None:
            return Ask()
        if isinstance(ask, Ask):
            return ask
        if isinstance(ask, Cells):
            return Ask(weights=ask)
        if not isinstance(ask, str | Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass True
            raise SizeError(f"ask={ask!r} is not known", hint=f"ask for some of {', '.join(NAMES)}")
        names = {ask} if isinstance(ask, str) else set(ask)
        unknown = sorted(names - set(NAMES))
        if unknown:
            raise SizeError(f"ask={unknown[0]!r} is not known", hint=f"ask for some of {', '.join(NAMES)}")
        return Ask(**dict.fromkeys(names, True))


@dataclass(frozen=True)
class Attended:
    """The output, and what was asked for."""

    out: Float[Tensor, "*batch query d_out"]
    weights: Float[Tensor, "*batch chosen_head chosen_query key"] | None = None
    lse: Float[Tensor, "*batch head query"] | None = None
    heads: Float[Tensor, "*batch head query value_dim"] | None = None


# torch.export, vmap and FSDP look for tensors inside a result only where they know its type.
torch.export.register_dataclass(Attended, serialized_type_name="multihead.Attended")


def check_cells(asked: Ask, heads: int, rows: int) -> None:
    """Raise where heads or rows are asked for that this call does not have."""
    if isinstance(asked.weights, Cells):
        _index(asked.weights.heads, heads, "head", torch.device("cpu"))
        _index(asked.weights.rows, rows, "row", torch.device("cpu"))


def weights_of(problem: Problem, cells: Cells) -> Weights:
    """softmax(scores) of chosen heads and rows; nothing else is built."""
    frame = problem.frame
    heads = _index(cells.heads, frame.heads, "head", frame.device)
    rows = _index(cells.rows, frame.queries, "row", frame.device)
    kv_of_head = torch.tensor(problem.groups.kv_of_head, dtype=torch.long, device=frame.device)[heads]
    q, k, v = problem.q[:, heads][:, :, rows], problem.k[:, kv_of_head], problem.v[:, kv_of_head]
    sinks = problem.scores.sinks
    scores = replace(problem.scores, dropout=0.0, sinks=None if sinks is None else sinks[heads])
    count = q.shape[1]
    if q.numel() == 0 or frame.keys == 0:
        return q.new_zeros(*q.shape[:3], frame.keys)
    block = Block(q, k, v, Groups(tuple(range(count)), count), scores)
    return explicit(masked(block, problem, frame.grid(rows=rows, heads=heads))).weights.to(q.dtype)


def lse_of(problem: Problem) -> Float[Tensor, "batch head query"]:
    """log Σ_j exp(score_ij) of every row, block by block; memory stays linear in tokens."""
    frame, sinks = problem.frame, problem.scores.sinks
    scores = replace(problem.scores, sinks=None, dropout=0.0)
    bare = replace(problem, v=problem.v[..., :1], scores=scores)  # values do not matter: one column will do
    if frame.batch * frame.heads * frame.queries * frame.keys == 0:
        lse = problem.q.new_full((frame.batch, frame.heads, frame.queries), -torch.inf)
    else:
        lse = run_tiles(
            bare, bounded_tiles(bare, rows=frame.batch * frame.heads), on_block(_lse), nothing=-torch.inf
        )[..., 0]
    return lse if sinks is None else torch.logaddexp(lse, sinks[:, None].to(lse.dtype))


def _lse(block: Block) -> HeadOutputs:
    return explicit(block).lse.unsqueeze(-1)


def _index(chosen: Sequence[int] | None, count: int, what: str, device: torch.device) -> Tensor | slice:
    if chosen is None:
        return ALL
    wrong = next((c for c in chosen if not -count <= c < count), None)
    if wrong is not None:
        raise SizeError(f"there is no {what} {wrong}: this call has {count}", hint=f"{what}s are 0..{count - 1}")
    return torch.tensor([c % count for c in chosen], dtype=torch.long, device=device)
