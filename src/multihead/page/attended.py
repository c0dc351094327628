"""The attention of every head on one text, each kept in the smaller of two ways.

>>> import torch, multihead as mh
>>> from multihead.page.attended import Lines, attended
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> with torch.no_grad(), mh.capture(model, statistics=None, keep="qk v") as heads:
...     _ = model(torch.randn(1, 7, 12))
>>> lines = Lines()
>>> [layer["heads"][0].keys() for layer in attended(heads, lines)][0]
dict_keys(['map'])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.layer.ask import Cells, weights_of
from multihead.layer.problem import Problem
from multihead.model.capture import Heads
from multihead.model.sites import Site
from multihead.page.encode import (
    LONG,
    NEAR,
    ROWS,
    Seen,
    counts_text,
    halved,
    halves_text,
    map_text,
    singles_text,
    weights_from,
)


@dataclass
class Lines:
    """Texts of bytes that the page looks up by number; the same text is kept once."""

    texts: list[str] = field(default_factory=list[str])
    _known: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(text)
        return self._known[text]


def attended(
    heads: Heads,
    lines: Lines,
    *,
    writes: Mapping[str, Sequence[Tensor]] | None = None,
    only: str | None = None,
    chosen: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Of each attention of a capture of one text (keep="qk v"): where the page finds every head's map.

    `writes`: by layer, W_O of every head, for the lengths of what is written. `only`: "maps" or "qk" where they do,
    instead of the smaller. `chosen`: only these heads.
    """
    return [_layer(heads, site, lines, (writes or {}).get(site.label), only, chosen) for site in heads.sites]


def _layer(
    heads: Heads, site: Site, lines: Lines, writes: Sequence[Tensor] | None, only: str | None, chosen: Any
) -> dict[str, Any]:
    problem = heads.calls(site)[-1].problem
    assert problem is not None
    frame, groups = problem.frame, problem.groups.kv_of_head
    wanted = [h for h in range(frame.heads) if chosen is None or site.name(h) in chosen]
    found: list[dict[str, Any] | None] = [None] * frame.heads
    if problem.packing is None and frame.batch == 1:
        for kv in dict.fromkeys(groups[h] for h in wanted):
            mine = [h for h in wanted if groups[h] == kv]
            for h, way in zip(mine, _group(problem, mine, lines, only), strict=True):
                found[h] = way
    norms = None
    if problem.v.shape[3] and frame.batch == 1:
        norms = lines.add(singles_text(_norms(problem, writes).flatten()))
    return {"label": site.label, "queries": frame.queries, "keys": frame.keys, "heads": found, "norms": norms}


def _group(problem: Problem, mine: Sequence[int], lines: Lines, only: str | None) -> list[dict[str, Any]]:
    """The heads of one kv head: q and k, k being theirs together, or maps."""
    halves = None if only == "maps" else _halves(problem, mine)
    if halves is not None and (only == "qk" or problem.frame.queries > LONG):
        return _kept(halves, lines)
    maps = [map_text(_rows(problem, h, range(problem.frame.queries))) for h in mine]
    if halves is not None and sum(map(len, halves.texts)) < sum(map(len, maps)):
        return _kept(halves, lines)
    return [{"map": lines.add(text)} for text in maps]


@dataclass(frozen=True)
class _Halves:
    seen: list[Seen]
    queries: list[str]
    keys: str
    width: int

    @property
    def texts(self) -> list[str]:
        return [*self.queries, self.keys]


def _kept(halves: _Halves, lines: Lines) -> list[dict[str, Any]]:
    k = lines.add(halves.keys)
    kept: list[dict[str, Any]] = []
    for text, seen in zip(halves.queries, halves.seen, strict=True):
        one: dict[str, Any] = {"q": lines.add(text), "k": k, "dim": halves.width}
        one |= {"first": lines.add(counts_text(seen.first)), "end": lines.add(counts_text(seen.end))}
        if seen.bias is not None:
            one["bias"] = lines.add(singles_text(seen.bias))
        one |= {} if seen.softcap is None else {"softcap": seen.softcap}
        one |= {} if seen.sink is None else {"sink": seen.sink}
        kept.append(one)
    return kept


def _halves(problem: Problem, mine: Sequence[int]) -> _Halves | None:
    """q and k at half precision, where the maps that follow from them are near enough; None where not."""
    seen = [_seen(problem, h) for h in mine]
    if any(s is None for s in seen):
        return None
    known = [s for s in seen if s is not None]
    plain = problem.scores.softcap is None and problem.scores.sinks is None
    kv = problem.groups.kv_of_head[mine[0]]
    q, k, scale = problem.q[0, list(mine)].float().cpu(), problem.k[0, kv].float().cpu(), problem.scores.scale
    largest = q.abs().amax((1, 2), keepdim=True).clamp_min(1e-30)  # one k for all heads: q of each as large
    width, most = k.shape[1], float(largest.max())
    coded = [halved(x * (most / float(top)), k, scale, shift=plain) for x, top in zip(q, largest, strict=True)]
    keys = coded[0][1]
    queries = [(c.float() * (float(top) / most)).half() for (c, _), top in zip(coded, largest, strict=True)]
    for h, half, s in zip(mine, queries, known, strict=True):
        for start in range(0, problem.frame.queries, ROWS):
            rows = range(start, min(start + ROWS, problem.frame.queries))
            far = (weights_from(half, keys, s, rows) - _rows(problem, h, rows)).abs()
            if not bool((far <= NEAR / 2).all()):  # also where it is NaN
                return None
    return _Halves(known, [halves_text(x) for x in queries], halves_text(keys), width)


def _rows(problem: Problem, head: int, rows: range) -> Float[Tensor, "row key"]:
    """The model's own weights of some rows."""
    return weights_of(problem, Cells([head], list(rows)))[0, 0].float().cpu()


def _seen(problem: Problem, head: int) -> Seen | None:
    """The mask of a head as one run of keys per row and a bias by distance; None where it is more than that."""
    frame = problem.frame
    index = torch.tensor([head], device=frame.device)
    first, end = torch.zeros(2, frame.queries, dtype=torch.long)
    bias = torch.full((frame.queries + frame.keys - 1,), math.nan)
    places, plain = torch.arange(frame.keys), True
    for start in range(0, frame.queries, ROWS):
        at = torch.arange(start, min(start + ROWS, frame.queries), device=frame.device)
        grid = frame.grid(rows=at, heads=index)
        allowed, added = problem.mask.allowed(grid), problem.mask.added(grid)
        shape = (len(at), frame.keys)
        may = torch.ones(shape, dtype=torch.bool) if allowed is None else allowed[0, 0].cpu().expand(shape)
        extra = torch.zeros(shape) if added is None else added[0, 0].detach().float().cpu().expand(shape)
        may = may & (extra > -1e9)  # what is lowered so far has no weight
        at = at.cpu()
        count = may.sum(1)
        begin = may.int().argmax(1)
        first[at], end[at] = begin, begin + count
        if not bool((may == ((places >= begin[:, None]) & (places < (begin + count)[:, None]))).all()):
            return None
        if bool((extra[may] != 0).any()):
            plain = False
        where = (places[None] - at[:, None] + frame.queries - 1)[may]
        bias[where] = torch.where(bias[where].isnan(), extra[may], bias[where])
        if not torch.allclose(bias[where], extra[may], atol=1e-4):
            return None  # not a function of the distance alone
    sinks = problem.scores.sinks
    return Seen(
        first,
        end,
        None if plain else bias.nan_to_num(0.0),
        problem.scores.softcap,
        None if sinks is None else float(sinks[head]),
    )


def _norms(problem: Problem, writes: Sequence[Tensor] | None) -> Float[Tensor, "head key"]:
    """‖W_O v‖ of every key, or ‖v‖ where W_O is not known: what norm-weighted attention is weighted with."""
    values = problem.groups.expand(problem.v)[0].detach().float().cpu()
    if writes is None:
        return values.norm(dim=-1)
    return torch.stack([(v @ w.detach().float().cpu().T).norm(dim=-1) for v, w in zip(values, writes, strict=True)])
