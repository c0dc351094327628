"""Statements 1 to 3: which spaces the heads read and write, and how far apart they are.

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(2, 7, 12))
>>> orthogonal(layer).verdict, direct(layer).verdict
('fails', 'holds')
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from multihead.statements import geometry
from multihead.statements.claim import Claim, Finding, Numbers, one_head, short
from multihead.statements.layer_sample import LayerSample

COSINE = 0.01
"""Spans are called orthogonal where no cosine between them is above this: every angle above 89.4°."""
SAME_DIVERSITY = 0.05
"""Two diversities say the same where they differ by no more."""


def _spans(subject: LayerSample) -> dict[str, list[Tensor]]:
    """By letter the rows whose span a head reads (q, k, v) or writes (o); k and v once per kv head."""
    w = subject.weights
    return {"Q": list(w.q), "K": list(w.k), "V": list(w.v), "O": [x.T for x in w.o]}


def _groups(subject: LayerSample) -> str:
    shared = subject.kv_heads < subject.heads
    return f" K and V are compared per kv head ({subject.kv_heads} of them)." if shared else ""


def orthogonal(subject: LayerSample) -> Finding:
    """Span(W_i) ⟂ span(W_j) for all pairs of heads, by principal angles, for Q, K, V and O."""
    condition = "W_i W_jᵀ = 0 for all pairs, which needs Σ ranks ≤ d_model"
    if subject.heads < 2:
        return one_head(condition)
    smallest: dict[str, float] = {}
    by_chance: dict[str, float] = {}
    overlap: dict[str, float] = {}
    random_overlap: dict[str, float] = {}
    numbers: dict[str, float | Sequence[float]] = {}
    crowded: list[str] = []
    for letter, spans in _spans(subject).items():
        if len(spans) < 2:
            continue  # one kv head for all
        bases = [geometry.basis(span) for span in spans]
        if sum(len(b) > 0 for b in bases) < 2:
            continue  # weights of zeros span nothing
        width, ranks = spans[0].shape[1], [len(b) for b in bases]
        cosines = geometry.pairs(geometry.largest_cosines(bases))
        smallest[letter] = _degrees(float(cosines.max()))
        random = geometry.random_spans(ranks, width, subject.seed)
        by_chance[letter] = _degrees(float(geometry.pairs(geometry.largest_cosines(random)).max()))
        overlap[letter] = float(geometry.pairs(geometry.overlaps(bases)).mean())
        random_overlap[letter] = geometry.random_overlap(max(ranks), max(ranks), width)
        numbers |= {
            f"smallest_angle_{letter}": smallest[letter],
            f"smallest_angle_random_{letter}": by_chance[letter],
            f"mean_overlap_{letter}": overlap[letter],
            f"mean_overlap_random_{letter}": random_overlap[letter],
            f"largest_cosines_{letter}": cosines.tolist(),
        }
        if sum(ranks) > width:
            crowded.append(letter)
    if not smallest:
        return Finding("not applicable", "no spans", "90°", "The weights are 0: there are no spans.", condition)
    holds = min(smallest.values()) >= _degrees(COSINE)
    left = f"{'/'.join(smallest)} {'/'.join(short(x, 2) for x in smallest.values())}°"
    chance = "/".join(short(x, 2) for x in by_chance.values())
    if holds:
        why = f"No two spans have an angle below {short(_degrees(COSINE))}°."
    elif crowded:
        why = f"It cannot: the ranks of {', '.join(crowded)} add up to more than d_model."
    else:
        said = "/".join(short(x, 2) for x in overlap.values())
        even = "/".join(dict.fromkeys(short(x, 2) for x in random_overlap.values()))
        why = f"Spans of {'/'.join(overlap)} overlap by {said} (mean cos²); random ones of these sizes by {even}."
    return Finding(
        "holds" if holds else "fails",
        f"least angle {left}",
        f"90° (random {chance}°)",
        why + _groups(subject),
        condition,
        numbers,
    )


def _degrees(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def direct(subject: LayerSample) -> Finding:
    """ℝ^d_model = ⊕ span(W_i^O), and its dimensions = Σ d_k."""
    w = subject.weights
    found = geometry.direct_sum([x.T for x in w.o])
    total, dims = sum(found.ranks), subject.heads * subject.key_dim
    holds = found.direct and found.whole
    if not found.direct:
        why = f"The spans share directions: their ranks add up to {total}, together they have rank {found.rank}."
    elif not found.whole:
        why = f"{found.width - found.rank} of {found.width} directions are written by no head."
    else:
        why = "Every direction is written by exactly one combination of heads"
        why += f"; condition number {short(found.condition)}: {_bent(found.condition)}."
    if dims != subject.d_model:
        holds = False
        why += f" ⊕ ℝ^d_k has {dims} dimensions, not {subject.d_model}."
    return Finding(
        "holds" if holds else "fails",
        f"rank {found.rank}, Σ ranks {total}, Σ d_k {dims}",
        f"d_model {subject.d_model}",
        why,
        "the columns of all W_O together are independent and h · d_k = d_model",
        {
            "rank": float(found.rank),
            "ranks": [float(r) for r in found.ranks],
            "condition": found.condition,
            "sum_key_dim": float(dims),
            "d_model": float(subject.d_model),
        },
    )


def _bent(condition: float) -> str:
    if condition < 1.01:
        return "the spans are orthogonal too"
    return "direct, not orthogonal" if condition < 1e4 else "direct, with directions that are nearly shared"


def diversity(subject: LayerSample) -> Finding:
    """D = 1/(h(h−1)) Σ (1 − |cos θ_ij|) against the same D where each head's coordinates may be turned."""
    condition = "W_i W_jᵀ is symmetric and ⪰ 0 (up to sign) for all pairs, as for twins or orthogonal spans"
    if subject.heads < 2:
        return one_head(condition)
    w = subject.weights.q
    w = w[w.flatten(1).norm(dim=1) > 0]  # a matrix of zeros has no direction
    if len(w) < 2:
        return Finding(
            "not applicable", "0/0", "no cosine", "Fewer than two heads have a W_Q that is not 0.", condition
        )
    plain, turned = geometry.flat_cosines(w), geometry.turned_cosines(w)
    D, best = geometry.diversity(plain), geometry.diversity(turned)
    random = geometry.random_diversity(w[0].numel())
    holds = abs(D - best) <= SAME_DIVERSITY
    blind = geometry.diversity(geometry.flat_cosines(_disguised(w, subject.seed)))
    if holds:
        why = f"Turning heads within their spans lowers D by no more than {SAME_DIVERSITY}."
    else:
        why = (
            f"One cosine sees coordinates, not spans: the same heads turned in their spans, to fit or at random, "
            f"give {short(best)} or {short(blind)}; random matrices {short(random)}."
        )
    numbers: Numbers = {
        "D": D,
        "D_turned": best,
        "D_random": random,
        "D_disguised": blind,
        "cosines": geometry.pairs(plain).tolist(),
        "turned_cosines": geometry.pairs(turned).tolist(),
    }
    return Finding(
        "holds" if holds else "fails", f"D {short(D)}", f"{short(best)} turned to fit", why, condition, numbers
    )


def _disguised(w: Tensor, seed: int) -> Tensor:
    """The same spans in other coordinates: head i turned by an orthogonal matrix of its own."""
    drawn = torch.Generator().manual_seed(seed)
    size = (w.shape[0], w.shape[1], w.shape[1])
    turns, _ = torch.linalg.qr(torch.randn(size, generator=drawn, dtype=torch.float64))
    return turns @ w


CLAIMS = (
    Claim("1", "heads read and write orthogonal spaces", "span(W_i^Q) ⟂ span(W_j^Q), also K, V, O", orthogonal),
    Claim("2", "the model's space is the direct sum of its heads'", "ℝ^d_model = ⊕ span(W_i^O) = ⊕ ℝ^d_k", direct),
    Claim("3", "one cosine tells how different heads are", "D = mean of 1 − |cos(W_i^Q, W_j^Q)|", diversity),
)
