"""Statements about what heads can express: any pattern (17), and many heads against one (18).

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(48, 2), torch.randn(2, 11, 48))
>>> representation(layer).verdict, one_head(layer).verdict
('holds', 'fails')
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.statements.claim import Claim, Finding, short
from multihead.statements.layer_sample import LayerSample, Passage

TOKENS = 48
"""Longer sequences are cut to this for statement 17."""
EPSILON = 1e-3
"""A pattern counts as represented when its rows are off by less, in total variation."""
SAME = 1e-5
NEAR = 1e-3
"""Heads computed anew are those of the run where they differ by no more: the run is of fp32, or less."""

Map = Float[Tensor, "query key"]


# ---- 17 -----------------------------------------------------------------------------------------


def construct(x: Float[Tensor, "token d_model"], pattern: Map) -> tuple[Tensor, Tensor]:
    """W_Q = X⁺, W_K = X⁺ log Aᵀ: then q kᵀ = log A and softmax gives A. One key dimension per token."""
    inverse = torch.linalg.pinv(x)  # X X⁺ = 1 where the tokens are independent
    return inverse, inverse @ pattern.clamp(min=1e-30).log().T


def off(pattern: Map, scores: Map) -> float:
    """The largest distance of a row, in total variation: 0 the same, 1 nothing in common."""
    return float((pattern - scores.softmax(-1)).abs().sum(-1).max() / 2)


def best_of_rank(pattern: Map, rank: int, steps: int = 60) -> float:
    """How near softmax(q kᵀ) comes to a pattern with so many dimensions: truncated SVD, then gradient descent.

    What is found is an upper bound of the best. Rows may be shifted freely, so centered logits are cut.
    """
    n = pattern.shape[0]
    logits = pattern.clamp(min=1e-30).log()
    u, s, v = torch.linalg.svd(logits - logits.mean(-1, keepdim=True))
    if rank >= n:
        return off(pattern, logits)
    q, k = u[:, :rank] * s[:rank].sqrt(), v[:rank].T * s[:rank].sqrt()
    best, found = off(pattern, q @ k.T), (q.clone().requires_grad_(), k.clone().requires_grad_())
    optimiser = torch.optim.Adam(found, lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = -(pattern * (found[0] @ found[1].T).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return min(best, off(pattern, found[0] @ found[1].T))


def representation(subject: LayerSample) -> Finding:
    x = max((s.x for s in subject.sequences), key=lambda t: t.shape[0])[:TOKENS]
    n = x.shape[0]
    if n < 2:
        return Finding(
            "not applicable", "1 token", "one pattern", "A row of one key is always 1.", "two tokens or more"
        )
    generator = torch.Generator().manual_seed(subject.seed)
    pattern = (2 * torch.randn(n, n, dtype=torch.float64, generator=generator)).softmax(-1)
    w_q, w_k = construct(x, pattern)
    built = off(pattern, (x @ w_q) @ (x @ w_k).T)
    dims = sorted({d for d in (1, 2, 4, 8, 16, 32) if d < n} | {n})
    curve = [best_of_rank(pattern, d) for d in dims]
    here = best_of_rank(pattern, min(subject.key_dim, n))
    width = subject.heads * subject.key_dim
    splits = [h for h in (1, 2, 4, 8, 16, 32) if width % h == 0]
    by_heads = [best_of_rank(pattern, min(width // h, n)) for h in splits]
    rank = int(torch.linalg.matrix_rank(x, rtol=1e-12))
    if built > EPSILON:
        verdict, why = "fails", f"The {n} tokens span {rank} dimensions, so scores have rank {rank} at most."
    elif here <= EPSILON:
        verdict, why = "holds", f"d_k = {subject.key_dim} is enough for any pattern over {n} tokens."
    else:
        verdict = "holds only if"
        why = f"Built with d_k = {n} it is exact; d_k = {subject.key_dim} leaves a pattern off by {here:.2g}."
    return Finding(
        verdict,
        f"ε {short(here, 2)} (d_k {subject.key_dim})",
        f"ε {short(built, 2)} (d_k {n})",
        why,
        "d_k ≥ n − 1, independent tokens; else rank(q kᵀ) ≤ d_k is too low (Bhojanapalli et al. 2020): more heads "
        "can hurt",
        {
            "tokens": n,
            "constructed": built,
            "here": here,
            "dims": dims,
            "errors": curve,
            "heads": splits,
            "errors_by_heads": by_heads,
            "rank_of_inputs": rank,
        },
    )


# ---- 18 -----------------------------------------------------------------------------------------


def both(subject: LayerSample, s: Passage, sharpen: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs of many heads and of one with the same projections, and the maps of either.

    One head of h · d_k dimensions has the scores Σ_i q_i k_iᵀ / √(h d_k): its map is the normalised product of the
    heads' maps, each to the power 1/√h.
    """
    kv = list(subject.kv_of_head)
    q, k, v = s.q, s.k[kv], s.v[kv]
    scores = sharpen * subject.scores.scale * q @ k.mT
    if subject.causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[1] - q.shape[1])
        scores = scores.masked_fill(hidden, -torch.inf)
    many, one = scores.softmax(-1), (scores.sum(0) / math.sqrt(subject.heads)).softmax(-1)
    w = subject.weights.o
    out = [torch.einsum("hqk,hkv,hov->qo", p, v, w) for p in (many, one.expand_as(many))]
    return out[0], out[1], many, one


def one_head(subject: LayerSample) -> Finding:
    passages = sorted(subject.sequences, key=lambda s: -s.x.shape[0])[:4]
    passages = [
        Passage(s.x[:64], s.memory[:64], s.q[:, :64], s.k[:, :64], s.v[:, :64], s.z[:, :64]) for s in passages
    ]
    differ, sharp = (_difference(subject, passages, sharpen) for sharpen in (1.0, 1e6))
    found = [both(subject, s) for s in passages]
    top = torch.cat([p.max(-1).values.flatten() for _, _, p, _ in found])
    choices = [p.argmax(-1) for _, _, p, _ in found]
    agree = float(torch.cat([(c == c[0]).all(0).double() for c in choices]).mean())
    maps = max(float((p - one).abs().sum(-1).max() / 2) for _, _, p, one in found)
    if differ < SAME:
        verdict = "holds"
        why = (
            "There is one head." if subject.heads == 1 else "Every row of every head is the row that one head has."
        )
    else:
        verdict = "fails"
        why = f"Heads look at different keys (all agree in {agree:.0%} of rows), one head has one map for all."
        if agree == 1:
            why = "Heads agree on their first keys, but one head's map is another: of heads alike, P^√h normalised."
    why += f" Made one-hot by force they differ by {short(sharp, 2)}."
    left_out = _left_out(subject)
    if left_out > NEAR:
        why += " What is done to scores beside scaling (bias, window, cap, sink) is left out: "
        why += f"{left_out:.0%} of the heads' outputs."
    return Finding(
        verdict,
        f"outputs differ {short(differ, 2)}",
        "0",
        why,
        "in each row all heads are uniform over the same keys (one-hot on one): one head's map is Π P_i^(1/√h)",
        {
            "difference": differ,
            "difference_saturated": sharp,
            "largest_weight": float(top.mean()),
            "heads_agree": agree,
            "maps_differ": maps,
            "left_out": left_out,
        },
    )


def _left_out(subject: LayerSample) -> float:
    """How far the heads' outputs of `both` are from those of the run, relative to their size."""
    s = subject.sequences[0]
    made = both(subject, s)[2] @ s.v[list(subject.kv_of_head)]
    size = float(s.z.norm())
    return float((made - s.z).norm()) / size if size > 0 else float(made.norm())


def _difference(subject: LayerSample, passages: list[Passage], sharpen: float) -> float:
    pairs = [both(subject, s, sharpen)[:2] for s in passages]
    apart = sum(float((a - b).square().sum()) for a, b in pairs)
    size = sum(float(a.square().sum()) for a, _ in pairs)
    return math.sqrt(apart / size) if size > 0 else math.sqrt(apart)


CLAIMS = (
    Claim("17", "heads can make any pattern", "for every A there are W: ‖A − softmax(q kᵀ)‖ ≤ ε", representation),
    Claim("18", "one head would do the same", "MultiHead = SingleHead with the same projections", one_head),
)
