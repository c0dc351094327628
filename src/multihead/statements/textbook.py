"""What textbooks say: quadratic (T1), not stacked layers (T2), d_model/h dimensions (T3), the same work (T4).

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(3, 7, 12))
>>> [claim.test(layer).verdict for claim in CLAIMS]
['holds only if', 'holds', 'holds', 'holds']
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.layer.attention import MultiHeadAttention
from multihead.statements.claim import Claim, Finding, short
from multihead.statements.costs import (
    CELLS,
    counted_flops,
    exponent,
    head_counts,
    measured_bytes,
    real,
    sized,
)
from multihead.statements.layer_sample import LayerSample

SAME = 1e-6
SIMILAR = 0.1
"""Work counts as similar when it differs by less than this share."""


# ---- T1 -----------------------------------------------------------------------------------------


def quadratic(subject: LayerSample) -> Finding:
    widths = head_counts(subject)
    tokens = 2 ** int(math.log2(math.sqrt(CELLS / max(*widths, subject.heads))))
    lengths = [tokens // 4, tokens // 2, tokens]
    counts = [counted_flops(sized(subject), n)["attention"] for n in lengths]
    by_heads = [counted_flops(sized(subject, h), tokens)["attention"] for h in widths]
    space = {route: [measured_bytes(real(subject), n, route) for n in lengths] for route in ("reference", "fused")}
    several = [h for h in widths if h in (widths[0], widths[-1])]
    maps = [measured_bytes(real(subject, h), tokens, "reference") for h in several]
    slim = [measured_bytes(real(subject, h), tokens, "fused") for h in several]
    time_n, time_h = exponent(lengths, counts), exponent(widths, by_heads) if len(widths) > 1 else 0.0
    space_n, fused_n = exponent(lengths, space["reference"]), exponent(lengths, space["fused"])
    grown = maps[-1] / maps[0]
    timed = abs(time_n - 2) < 0.05 and abs(time_h) < 0.05
    if not timed:
        verdict, why = "fails", "The FLOPs of q kᵀ and P v do not grow as n² or change with h."
    elif fused_n > 1.5 and grown < 1.1:
        verdict, why = "holds", "Time and space grow as n², whatever the number of heads."
    else:
        verdict = "holds only if"
        why = (
            f"Time: yes. Space: written-out maps take h n² numbers ({grown:.1f}× from {several[0]} to "
            f"{several[-1]} heads), and computed in blocks none is kept: n^{fused_n:.1f}."
        )
    return Finding(
        verdict,
        f"n^{time_n:.2f} h^{abs(time_h):.2f} time",
        f"n^{space_n:.2f}, n^{fused_n:.2f} space",
        why,
        "time of q kᵀ and P v; space only if maps are written out, and then it grows with h as well",
        {
            "tokens": lengths,
            "attention_flops": counts,
            "explicit_bytes": space["reference"],
            "fused_bytes": space["fused"],
            "heads": several,
            "explicit_bytes_by_heads": maps,
            "fused_bytes_by_heads": slim,
            "time_exponent": time_n,
            "time_exponent_in_h": time_h,
            "space_exponent": space_n,
            "fused_space_exponent": fused_n,
        },
    )


# ---- T2 -----------------------------------------------------------------------------------------


def stacked(subject: LayerSample) -> Finding:
    """x + Σ head_i(x) at once, against x ← x + head_i(x) one after the other, with the same weights."""
    if subject.cross or subject.d_out != subject.d_model:
        return Finding(
            "not applicable",
            "other widths",
            "one stream",
            "The heads do not write where they read.",
            "self-attention",
        )
    w, chosen = subject.weights, sorted(subject.sequences, key=lambda s: -s.x.shape[0])[:2]
    x = torch.stack([s.x[: min(12, *(c.x.shape[0] for c in chosen))] for s in chosen])

    def attended(q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT * subject.scores.scale
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) & subject.causal
        return scores.masked_fill(hidden, -torch.inf).softmax(-1)

    def part(stream: Tensor, head: int) -> Tensor:
        kv = w.groups.kv_of_head[head]
        q, k, v = (
            stream @ a.T + b
            for a, b in ((w.q[head], w.bias("q")[head]), (w.k[kv], w.bias("k")[kv]), (w.v[kv], w.bias("v")[kv]))
        )
        return attended(q, k) @ v @ w.o[head].T

    def in_turn(order: range) -> Tensor:
        stream = x
        for head in order:
            stream = stream + part(stream, head)
        return stream - x

    at_once = sum((part(x, head) for head in range(subject.heads)), torch.zeros_like(x))
    forward, backward = in_turn(range(subject.heads)), in_turn(range(subject.heads - 1, -1, -1))
    size = float(at_once.norm())
    differ = float((forward - at_once).norm()) / size if size else 0.0
    order = float((forward - backward).norm()) / size if size else 0.0
    same = differ < SAME
    turned = "and their order matters" if order >= SAME else "in whatever order"
    why = f"One after the other, each head reads what those before it wrote, {turned}."
    if same:
        why = "There is one head." if subject.heads == 1 else "No head reads what another writes."
    return Finding(
        "fails" if same else "holds",
        f"differ by {short(differ, 2)}",
        "0 if the same",
        why,
        "there are two heads or more, and some head reads what another writes",
        {"difference": differ, "order": order, "heads": float(subject.heads)},
    )


# ---- T3 -----------------------------------------------------------------------------------------


def dimensions(subject: LayerSample) -> Finding:
    h, d_model, w = subject.heads, subject.d_model, subject.weights
    expected = d_model / h
    ranks = {name: _ranks(x) for name, x in (("q", w.q), ("k", w.k), ("v", w.v))}
    read = float((w.q.abs().amax(1) > 0).double().mean())
    sizes = (
        f"{subject.key_dim}"
        if subject.key_dim == subject.value_dim
        else f"d_k {subject.key_dim}, d_v {subject.value_dim}"
    )
    sizes_fit = subject.key_dim == expected and subject.value_dim == expected
    full = all(r == size for name, size in (("q", subject.key_dim), ("v", subject.value_dim)) for r in ranks[name])
    if sizes_fit and full:
        verdict, why = (
            "holds",
            f"Every W_Qⁱ and W_Vⁱ has rank d_model/h; each reads {read:.0%} of the input coordinates.",
        )
    elif sizes_fit:
        verdict = "holds only if"
        why = f"Rows are d_model/h, but some heads use fewer: rank {min(ranks['q'] + ranks['v'])}."
    else:
        verdict, why = (
            "fails",
            f"Heads are of {sizes}, not of {short(expected)}: h times that is not d_model.",
        )
    lowest = min(ranks["q"])
    return Finding(
        verdict,
        f"d_k {subject.key_dim}, rank {lowest}",
        f"d_model/h {short(expected)}",
        why,
        "the layer is made so, and W_Qⁱ, W_Vⁱ have full rank; each dimension is a mix of all d_model coordinates",
        {
            "key_dim": subject.key_dim,
            "expected": expected,
            "rank_q": ranks["q"],
            "rank_v": ranks["v"],
            "read": read,
        },
    )


def _ranks(w: Float[Tensor, "head dim d_model"]) -> list[int]:
    """Singular values above 1e-6 of the largest, by W Wᵀ, which is small."""
    squares = torch.linalg.eigvalsh(w @ w.mT)
    return [int(n) for n in (squares > 1e-12 * squares[:, -1:]).sum(-1)]


# ---- T4 -----------------------------------------------------------------------------------------


def same_work(subject: LayerSample) -> Finding:
    tokens = max(s.x.shape[0] for s in subject.sequences)
    single = MultiHeadAttention(subject.d_model, 1, bias=False, device="meta")
    many, one = counted_flops(sized(subject), tokens)["all"], counted_flops(single, tokens)["all"]
    ratio = many / one
    fits = abs(ratio - 1) <= SIMILAR
    if fits:
        why = "The same matrices in smaller pieces; only the softmax is taken h times."
    else:
        width = subject.heads * subject.key_dim
        why = f"h · d_k is {width} and d_model {subject.d_model}, on {subject.kv_heads} kv heads."
    return Finding(
        "holds" if fits else "fails",
        f"{short(many / 1e6)} MFLOP",
        f"{short(one / 1e6)} MFLOP",
        why,
        "h · d_k = d_model and every head has keys and values of its own",
        {"ratio": ratio, "flops": many, "flops_single": one, "softmax_ratio": subject.heads, "tokens": tokens},
    )


CLAIMS = (
    Claim("T1", "quadratic in n, not in h", "time and space ∝ n², whatever h", quadratic),
    Claim("T2", "heads are not stacked layers", "Σ head_i(x) ≠ head_h(… head_1(x))", stacked),
    Claim("T3", "a head works in d_model/h dimensions", "d_k = d_v = d_model/h", dimensions),
    Claim("T4", "h heads cost what one costs", "FLOPs(h heads) ≈ FLOPs(1 head)", same_work),
)
