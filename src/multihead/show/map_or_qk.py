"""Where the attention of each head is stored: as a map, or as q and k, whichever is smaller.

The heads that read one kv head share its k. q and k are stored only if every row that follows from them is as exact
as a stored map.

>>> import torch, multihead as mh
>>> from multihead.show.encode import BlobTable
>>> from multihead.show.map_or_qk import last_problem, store_heads
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as heads:
...     _ = model(torch.randn(1, 7, 12))
>>> store_heads(last_problem(heads, heads.sites[0]), [0, 2], BlobTable())
[StoredMap(map=0), None, StoredMap(map=1)]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.layer import Problem, weights_of
from multihead.layer.outputs import Cells
from multihead.model.capture import Capture
from multihead.model.sites import Site
from multihead.show.encode import (
    LONG,
    NEAR,
    ROWS,
    BlobTable,
    RowMask,
    counts_text,
    halves_text,
    map_text,
    scaled,
    singles_text,
    weights_from,
)

Storage = Literal["maps", "qk"]


@dataclass(frozen=True, repr=False)
class StoredMap:
    """Where the page finds the map of a head: numbers are indices of blobs."""

    map: int | None = None
    q: int | None = None
    k: int | None = None
    dim: int | None = None
    wide: bool = False
    """q and k are in single precision, otherwise half"""
    first: int | None = None
    end: int | None = None
    bias: int | None = None
    softcap: float | None = None
    sink: float | None = None
    served: bool = False
    """the page requests the map from its server"""

    def to_json(self) -> dict[str, Any]:
        """The fields that say something."""
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) is not None and x is not False}

    def __repr__(self) -> str:
        return f"StoredMap({', '.join(f'{name}={x!r}' for name, x in self.to_json().items())})"


def last_problem(heads: Capture, site: Site) -> Problem:
    """q, k and v of an attention's latest call, to store as maps or as q and k."""
    problem = heads.calls(site)[-1].problem
    assert problem is not None
    return problem


def store_heads(
    problem: Problem, heads: Sequence[int], blobs: BlobTable, only: Storage | None = None
) -> list[StoredMap | None]:
    """Store the maps of some heads of one sequence; None for the others. `only`: in this way, if possible."""
    size, groups = problem.coordinates, problem.groups.kv_of_head
    stored: list[StoredMap | None] = [None] * size.heads
    if size.batch == 1:
        for kv in dict.fromkeys(groups[h] for h in heads):
            members = [h for h in heads if groups[h] == kv]
            for h, head_map in zip(members, _store_group(problem, members, blobs, only), strict=True):
                stored[h] = head_map
    return stored


def _store_group(problem: Problem, heads: list[int], blobs: BlobTable, only: Storage | None) -> list[StoredMap]:
    """Store the heads of one kv head, as maps or as q and k."""
    encoded = None if only == "maps" else _encode_qk(problem, heads)
    if encoded is not None and (only == "qk" or problem.coordinates.queries > LONG):
        return encoded.store(blobs)
    maps = [map_text(_rows(problem, h, range(problem.coordinates.queries))) for h in heads]
    if encoded is not None and encoded.size < sum(map(len, maps)):
        return encoded.store(blobs)
    return [StoredMap(map=blobs.add(text)) for text in maps]


@dataclass(frozen=True)
class _EncodedQK:
    """q of some heads and the k that they share, as text; `wide`: single precision."""

    masks: list[RowMask]
    queries: list[str]
    keys: str
    dim: int
    wide: bool

    @property
    def size(self) -> int:
        return len(self.keys) + sum(map(len, self.queries))

    def store(self, blobs: BlobTable) -> list[StoredMap]:
        """Store q and k of a group of heads."""
        k = blobs.add(self.keys)
        return [
            StoredMap(
                q=blobs.add(text),
                k=k,
                dim=self.dim,
                wide=self.wide,
                first=blobs.add(counts_text(mask.first)),
                end=blobs.add(counts_text(mask.end)),
                bias=None if mask.bias is None else blobs.add(singles_text(mask.bias)),
                softcap=mask.softcap,
                sink=mask.sink,
            )
            for text, mask in zip(self.queries, self.masks, strict=True)
        ]


def _encode_qk(problem: Problem, heads: list[int]) -> _EncodedQK | None:
    """q and k in the lowest precision that reproduces the maps; None if no precision does."""
    masks = [mask for h in heads if (mask := _row_mask(problem, h)) is not None]
    if len(masks) < len(heads):
        return None
    plain = problem.scores.softcap is None and problem.scores.sinks is None
    kv = problem.groups.kv_of_head[heads[0]]
    queries: list[Tensor] = []
    keys = k = problem.k[0, kv].float().cpu()
    most = float(problem.q[0, heads].abs().max()) or 1.0
    for q in problem.q[0, heads].float().cpu():
        largest = float(q.abs().max()) or most  # scaled to the largest: k is the same for all heads
        one, keys = scaled(q * (most / largest), k, problem.scores.scale, shift=plain)
        queries.append(one * (largest / most))
    for wide in (False, True):
        write = singles_text if wide else halves_text
        rounded = [x if wide else x.half() for x in (*queries, keys)]
        if all(_is_near(problem, h, x, rounded[-1], m) for h, x, m in zip(heads, rounded, masks, strict=False)):
            return _EncodedQK(masks, [write(x) for x in rounded[:-1]], write(rounded[-1]), k.shape[1], wide)
    return None


def _is_near(problem: Problem, head: int, q: Tensor, k: Tensor, mask: RowMask) -> bool:
    """Whether the map that follows from q and k is near the model's."""
    for start in range(0, problem.coordinates.queries, ROWS):
        rows = range(start, min(start + ROWS, problem.coordinates.queries))
        difference = (weights_from(q, k, mask, rows) - _rows(problem, head, rows)).abs()
        if not bool((difference <= 0.9 * NEAR).all()):  # also where it is NaN
            return False
    return True


def _rows(problem: Problem, head: int, rows: range) -> Float[Tensor, "row key"]:
    """The model's own weights of some rows."""
    return weights_of(problem, Cells([head], list(rows)))[0, 0].float().cpu()


def _row_mask(problem: Problem, head: int) -> RowMask | None:
    """The mask of a head, as one run of keys per row and a bias by distance; None if it has another form."""
    size = problem.coordinates
    index = torch.tensor([head], device=size.device)
    first, end = torch.zeros(2, size.queries, dtype=torch.long)
    bias = torch.full((size.queries + size.keys - 1,), math.nan)
    keys, plain, sinks = torch.arange(size.keys), True, problem.scores.sinks
    for start in range(0, size.queries, ROWS):
        row = torch.arange(start, min(start + ROWS, size.queries), device=size.device)
        grid = size.grid(rows=row, heads=index)
        allowed, added = problem.mask.allowed(grid), problem.mask.score_bias(grid)
        shape = (len(row), size.keys)
        may = torch.ones(shape, dtype=torch.bool) if allowed is None else allowed[0, 0].cpu().expand(shape)
        extra = torch.zeros(shape) if added is None else added[0, 0].detach().float().cpu().expand(shape)
        may = may & (extra > -1e9)  # a score lowered so far has no weight
        row = row.cpu()
        if sinks is None:  # a constant added to a whole row does not change its softmax: subtract the diagonal's
            diagonal = (row + size.keys - size.queries).clamp(0, size.keys - 1)
            extra = extra - extra.gather(1, diagonal[:, None]).clamp(-1e9, 1e9)
        count = may.sum(1)
        begin = may.int().argmax(1)
        first[row], end[row] = begin, begin + count
        if not bool((may == ((keys >= begin[:, None]) & (keys < (begin + count)[:, None]))).all()):
            return None
        if bool((extra[may] != 0).any()):
            plain = False
        offset = (keys[None] - row[:, None] + size.queries - 1)[may]
        bias[offset] = torch.where(bias[offset].isnan(), extra[may], bias[offset])
        if not torch.allclose(bias[offset], extra[may], atol=1e-4):
            return None  # not a function of the distance alone
    return RowMask(
        first,
        end,
        None if plain else bias.nan_to_num(0.0),
        problem.scores.softcap,
        None if sinks is None else float(sinks.detach()[head]),
    )


def head_norms(problem: Problem, head: int, write: Tensor | None) -> Float[Tensor, " key"]:
    """‖W_O v‖ of every key, or ‖v‖ where W_O is not known: the factor of norm-weighted attention."""
    values = problem.v[0, problem.groups.kv_of_head[head]].detach().float().cpu()
    return (values if write is None else values @ write.detach().float().cpu().T).norm(dim=-1)
