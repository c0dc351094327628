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

from multihead.layer import Problem, weights_of
from multihead.layer.outputs import Cells
from multihead.model.capture import Capture
from multihead.model.sites import Site
from multihead.page.encode import (
    LONG,
    NEAR,
    ROWS,
    Seen,
    counts_text,
    halves_text,
    map_text,
    scaled,
    singles_text,
    weights_from,
)


@dataclass
class Lines:
    """Texts of bytes that the page looks up by number; the same text is kept once."""

    texts: list[str] = field(default_factory=list[str])
    _known: dict[str, int] = field(default_factory=dict[str, int])
    size: int = 0
    """characters"""

    def add(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(text)
            self.size += len(text)
        return self._known[text]


def attended(
    heads: Capture,
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


def last_problem(heads: Capture, site: Site) -> Problem:
    """q, k and v of the latest call of an attention."""
    problem = heads.calls(site)[-1].problem
    assert problem is not None
    return problem


def _layer(
    heads: Capture, site: Site, lines: Lines, writes: Sequence[Tensor] | None, only: str | None, chosen: Any
) -> dict[str, Any]:
    problem = last_problem(heads, site)
    size, groups = problem.coordinates, problem.groups.kv_of_head
    wanted = [h for h in range(size.heads) if chosen is None or site.name(h) in chosen]
    found: list[dict[str, Any] | None] = [None] * size.heads
    if size.batch == 1:
        for kv in dict.fromkeys(groups[h] for h in wanted):
            mine = [h for h in wanted if groups[h] == kv]
            for h, way in zip(mine, _group(problem, mine, lines, only), strict=True):
                found[h] = way
    norms = None
    if problem.v.shape[3] and size.batch == 1:
        norms = lines.add(singles_text(norms_of(problem, writes).flatten()))
    return {"label": site.label, "queries": size.queries, "keys": size.keys, "heads": found, "norms": norms}


def _group(problem: Problem, mine: Sequence[int], lines: Lines, only: str | None) -> list[dict[str, Any]]:
    """The heads of one kv head: q and k, k being theirs together, or maps."""
    pair = None if only == "maps" else _pair(problem, mine)
    if pair is not None and (only == "qk" or problem.coordinates.queries > LONG):
        return _kept(pair, lines)
    maps = [map_text(_rows(problem, h, range(problem.coordinates.queries))) for h in mine]
    if pair is not None and pair.size < sum(map(len, maps)):
        return _kept(pair, lines)
    return [{"map": lines.add(text)} for text in maps]


@dataclass(frozen=True)
class _Pair:
    """q of some heads and the k that they share, as text; `wide`: single precision."""

    seen: list[Seen]
    queries: list[str]
    keys: str
    width: int
    wide: bool

    @property
    def size(self) -> int:
        return len(self.keys) + sum(map(len, self.queries))


def _kept(pair: _Pair, lines: Lines) -> list[dict[str, Any]]:
    k = lines.add(pair.keys)
    kept: list[dict[str, Any]] = []
    for text, seen in zip(pair.queries, pair.seen, strict=True):
        one: dict[str, Any] = {"q": lines.add(text), "k": k, "dim": pair.width, "wide": pair.wide}
        one |= {"first": lines.add(counts_text(seen.first)), "end": lines.add(counts_text(seen.end))}
        if seen.bias is not None:
            one["bias"] = lines.add(singles_text(seen.bias))
        one |= {} if seen.softcap is None else {"softcap": seen.softcap}
        one |= {} if seen.sink is None else {"sink": seen.sink}
        kept.append(one)
    return kept


def _pair(problem: Problem, mine: Sequence[int]) -> _Pair | None:
    """q and k as short as gives maps that are near enough; None where no way does."""
    seen = [_seen(problem, h) for h in mine]
    known = [s for s in seen if s is not None]
    if len(known) < len(seen):
        return None
    plain = problem.scores.softcap is None and problem.scores.sinks is None
    kv = problem.groups.kv_of_head[mine[0]]
    queries: list[Tensor] = []
    keys = k = problem.k[0, kv].float().cpu()
    most = float(problem.q[0, list(mine)].abs().max()) or 1.0
    for q in problem.q[0, list(mine)].float().cpu():
        own = float(q.abs().max()) or most  # as large as the largest, so that k comes out the same for all
        one, keys = scaled(q * (most / own), k, problem.scores.scale, shift=plain)
        queries.append(one * (own / most))
    for wide in (False, True):
        write = singles_text if wide else halves_text
        rounded = [x if wide else x.half() for x in (*queries, keys)]
        if all(_near(problem, h, x, rounded[-1], s) for h, x, s in zip(mine, rounded, known, strict=False)):
            return _Pair(known, [write(x) for x in rounded[:-1]], write(rounded[-1]), k.shape[1], wide)
    return None


def _near(problem: Problem, head: int, q: Tensor, k: Tensor, seen: Seen) -> bool:
    """Whether the map that follows from q and k is the head's own."""
    for start in range(0, problem.coordinates.queries, ROWS):
        rows = range(start, min(start + ROWS, problem.coordinates.queries))
        far = (weights_from(q, k, seen, rows) - _rows(problem, head, rows)).abs()
        if not bool((far <= 0.9 * NEAR).all()):  # also where it is NaN
            return False
    return True


def _rows(problem: Problem, head: int, rows: range) -> Float[Tensor, "row key"]:
    """The model's own weights of some rows."""
    return weights_of(problem, Cells([head], list(rows)))[0, 0].float().cpu()


def _seen(problem: Problem, head: int) -> Seen | None:
    """The mask of a head as one run of keys per row and a bias by distance; None where it is more than that."""
    size = problem.coordinates
    index = torch.tensor([head], device=size.device)
    first, end = torch.zeros(2, size.queries, dtype=torch.long)
    bias = torch.full((size.queries + size.keys - 1,), math.nan)
    places, plain, sinks = torch.arange(size.keys), True, problem.scores.sinks
    for start in range(0, size.queries, ROWS):
        at = torch.arange(start, min(start + ROWS, size.queries), device=size.device)
        grid = size.grid(rows=at, heads=index)
        allowed, added = problem.mask.allowed(grid), problem.mask.score_bias(grid)
        shape = (len(at), size.keys)
        may = torch.ones(shape, dtype=torch.bool) if allowed is None else allowed[0, 0].cpu().expand(shape)
        extra = torch.zeros(shape) if added is None else added[0, 0].detach().float().cpu().expand(shape)
        may = may & (extra > -1e9)  # what is lowered so far has no weight
        at = at.cpu()
        if sinks is None:  # what is added to a whole row no softmax sees: less what the row adds to its own place
            own = (at + size.keys - size.queries).clamp(0, size.keys - 1)
            extra = extra - extra.gather(1, own[:, None]).clamp(-1e9, 1e9)
        count = may.sum(1)
        begin = may.int().argmax(1)
        first[at], end[at] = begin, begin + count
        if not bool((may == ((places >= begin[:, None]) & (places < (begin + count)[:, None]))).all()):
            return None
        if bool((extra[may] != 0).any()):
            plain = False
        where = (places[None] - at[:, None] + size.queries - 1)[may]
        bias[where] = torch.where(bias[where].isnan(), extra[may], bias[where])
        if not torch.allclose(bias[where], extra[may], atol=1e-4):
            return None  # not a function of the distance alone
    return Seen(
        first,
        end,
        None if plain else bias.nan_to_num(0.0),
        problem.scores.softcap,
        None if sinks is None else float(sinks.detach()[head]),
    )


def norms_of(problem: Problem, writes: Sequence[Tensor] | None) -> Float[Tensor, "head key"]:
    """‖W_O v‖ of every key, or ‖v‖ where W_O is not known: what norm-weighted attention is weighted with."""
    values = problem.groups.expand(problem.v)[0].detach().float().cpu()
    if writes is None:
        return values.norm(dim=-1)
    return torch.stack([(v @ w.detach().float().cpu().T).norm(dim=-1) for v, w in zip(values, writes, strict=True)])
