"""Every statistic from the whole attention map in fp64: one plain formula each, nothing shared with the package.

Takes the problem apart into tensors (batch, head, query, key) and returns (batch, head, query) by name, NaN where a
row has no such number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from multihead.layer import Problem
from multihead.model.call import Tokens
from multihead.model.statistics.statistics_options import Statistics

NAN = float("nan")


@dataclass(frozen=True)
class Maps:
    """The weights and what they came from, written out in fp64."""

    weights: Tensor  # without the column of the sink
    scores: Tensor  # before what is added
    seen: Tensor
    lse: Tensor
    sink: Tensor | None
    v: Tensor
    out: Tensor


def maps(problem: Problem) -> Maps:
    size, scores = problem.coordinates, problem.scores
    kv = list(problem.groups.kv_of_head)
    q, k, v = problem.q.detach().double(), problem.k.detach().double()[:, kv], problem.v.detach().double()[:, kv]
    raw = torch.einsum("bhid,bhjd->bhij", q, k) * scores.scale
    if scores.softcap is not None:
        raw = scores.softcap * torch.tanh(raw / scores.softcap)
    grid = size.grid()
    allowed, added = problem.mask.allowed(grid), problem.mask.score_bias(grid)
    seen = torch.ones_like(raw, dtype=torch.bool) if allowed is None else allowed.expand_as(raw)
    logits = raw if added is None else raw + added.detach().double()
    logits = logits.masked_fill(~seen, -torch.inf)
    if scores.sinks is not None:
        column = scores.sinks.detach().double()[None, :, None, None].expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, column], dim=-1)
    lse = torch.logsumexp(logits, -1)
    weights = torch.softmax(logits, -1)
    sink = weights[..., -1] if scores.sinks is not None else None
    weights = weights[..., : size.keys].masked_fill(~seen, 0.0)
    return Maps(weights, raw, seen, lse, sink, v, torch.einsum("bhij,bhjd->bhid", weights, v))


def rows(
    problem: Problem, out: Tensor, queries: Tokens, keys: Tokens, options: Statistics, *, cross: bool = False
) -> dict[str, Tensor]:
    """Each statistic of each row; rows that are padding, see nothing or are not finite are NaN."""
    m, size = maps(problem), problem.coordinates
    w, seen = m.weights, m.seen
    p = w / w.sum(-1, keepdim=True)  # the shape of the row
    n = seen.sum(-1).double()
    away = (size.all_queries()[:, None, :, None] - size.all_keys()[:, None, None, :]).double()
    mean = (m.scores.masked_fill(~seen, 0).sum(-1) / n).unsqueeze(-1)
    centre = (p * away).sum(-1, keepdim=True)
    mass = lambda where: (w * where).sum(-1)
    found = {
        "entropy": -torch.xlogy(p, p).sum(-1),
        "relative_entropy": -torch.xlogy(p, p).sum(-1) / n.log().masked_fill(n < 2, NAN),
        "perplexity": torch.exp(-torch.xlogy(p, p).sum(-1)),
        "effective_keys": 1 / (p**2).sum(-1),
        "max_weight": w.amax(-1),
        "saturated": (w.amax(-1) > 0.99).double(),
        "position_std": (p * (away - centre) ** 2).sum(-1).sqrt(),
        "lse": m.lse,
        "logit_scale": ((m.scores - mean).masked_fill(~seen, 0).square().sum(-1) / n).sqrt(),
        "output_norm": out.double().norm(dim=-1),
        "value_norm": (w * m.v.norm(dim=-1)[:, :, None, :]).sum(-1),
        "visible": n,
    }
    if m.sink is not None:
        found["sink"] = m.sink
    real = torch.ones(size.batch, size.keys, dtype=torch.bool) if keys.valid is None else keys.valid
    found["first"] = mass((real & (real.cumsum(-1) == 1))[:, None, None])
    if keys.ids is not None:
        for name, ids in {
            "special": options.special,
            **{f"class:{c}": i for c, i in options.classes.items()},
        }.items():
            found[name] = mass(torch.isin(keys.ids, torch.tensor(list(ids)))[:, None, None, :])
    if not cross:
        found |= {
            "distance": (p * away.abs()).sum(-1),
            "signed_distance": (p * away).sum(-1),
            "before": mass(away > 0),
            "after": mass(away < 0),
            "self": mass(away == 0),
            "previous": mass(away == 1),
            "next": mass(away == -1),
        }
        found |= {f"offset{o:+d}": mass(away == -o) for o in range(-options.offsets, options.offsets + 1)}
    if not cross and queries.ids is not None and keys.ids is not None:
        mine = queries.ids[:, None, :, None]
        found["same_token"] = mass((mine == keys.ids[:, None, None, :]) & (away != 0))
        # follows[b, j, l]: key l is real and stands one place before key j
        place = size.all_keys()
        follows = (place[:, :, None] - place[:, None, :] == 1) & real[:, None, :]
        named = mine[:, 0] == keys.ids[:, None, :]  # (batch, query, l)
        after = torch.einsum("bjl,bil->bij", follows.expand(size.batch, -1, -1).double(), named.double()) > 0
        found["induction"] = mass(after[:, None] & (away >= 0))
    counts = counted(problem, queries)
    return {name: number.masked_fill(~counts, NAN) for name, number in found.items()}


def counted(problem: Problem, queries: Tokens) -> Tensor:
    """Rows that are real, see something, and see nothing that is not finite."""
    m = maps(problem)
    kv = list(problem.groups.kv_of_head)
    finite = torch.isfinite(problem.q).all(-1)
    bad = ~(torch.isfinite(problem.k).all(-1) & torch.isfinite(problem.v).all(-1))[:, kv]
    counts = finite & m.seen.any(-1) & ~(m.seen & bad[:, :, None, :]).any(-1)
    return counts if queries.valid is None else counts & queries.valid[:, None]


def summary(number: Tensor) -> dict[str, Tensor]:
    """count, mean, std, min and max of (batch, head, query) over the rows that have a number."""
    x = number.transpose(0, 1).flatten(1)
    has = ~x.isnan()
    n = has.sum(-1)
    mean = x.nansum(-1) / n
    return {
        "count": n,
        "mean": mean,
        "std": ((x - mean[:, None]).square().nansum(-1) / n).sqrt(),
        "min": torch.where(n > 0, x.nan_to_num(nan=torch.inf).amin(-1), NAN),
        "max": torch.where(n > 0, x.nan_to_num(nan=-torch.inf).amax(-1), NAN),
    }
