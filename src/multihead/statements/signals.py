"""Statements 4, 5, 7, 14, 15 and 16: what the heads of a layer do with real input, and what it is worth.

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(2, 11, 12))
>>> variance(layer).left, variance(layer).right
('Var ...', 'Σ Var ...')
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from multihead.layer.attention import MultiHeadAttention
from multihead.statements.claim import Claim, Finding, Numbers, no_maps, not_enough, one_head, plural, short
from multihead.statements.geometry import pairs
from multihead.statements.layer_sample import LayerSample, Rebuilt

FINE, COARSE = 1e-10, 1e-2
"""Ranks of maps: every direction that fp64 can tell, and those with more than 1 % of the largest singular value."""
SHORTEST = 8
"""Maps of fewer tokens say nothing of ranks."""
UNCORRELATED = 0.05
NEAR = 0.1
"""Two sides are called equal where they differ by no more than this share."""
RANKED = 0.9
"""One measure is said to rank heads like another from this rank correlation on."""


def coverage(subject: LayerSample) -> Finding:
    """𝒜 = ∪ span(A_i): rank of the stacked maps of a sequence against the best single head's."""
    condition = "heads look at different places: no head's rows span the rows of all others"
    if subject.heads < 2:
        return one_head(condition)
    maps = [m for m in subject.maps if min(m.shape[1:]) >= SHORTEST]
    if not maps:
        longest = max((min(s.x.shape[0], s.memory.shape[0]) for s in subject.sequences), default=0)
        if longest >= SHORTEST:
            return no_maps(longest, condition)
        return not_enough(longest, SHORTEST, "The rank of a map (of one sequence)", condition)
    best, best_fine, whole, whole_fine = torch.tensor([_ranks(m) for m in maps], dtype=torch.float64).T
    keys = torch.tensor([float(m.shape[2]) for m in maps])
    more = float((whole > best).double().mean())
    holds = more > 0.5
    middle = int((whole - best).argsort()[len(maps) // 2])
    why = (
        f"Of directions above 1 % of the largest, all heads together have more than the best one in "
        f"{short(100 * more)} % of {len(maps)} sequences; to rounding {short(float(whole_fine[middle]))} against "
        f"{short(float(best_fine[middle]))}. The union is no space; its span is meant."
    )
    return Finding(
        "holds" if holds else "fails",
        f"rank {short(float(whole[middle]))} of {short(float(keys[middle]))} tokens",
        f"best head {short(float(best[middle]))}",
        why,
        condition,
        {
            "rank": float(whole[middle]),
            "rank_stacked": whole.tolist(),
            "rank_best_head": best.tolist(),
            "rank_stacked_fine": whole_fine.tolist(),
            "rank_best_head_fine": best_fine.tolist(),
            "tokens": keys.tolist(),
        },
    )


def _ranks(maps: Float[Tensor, "head query key"]) -> list[float]:
    """Coarse and fine rank of the best head's map, then of all maps on top of each other."""
    single, stacked = torch.linalg.svdvals(maps), torch.linalg.svdvals(maps.flatten(0, 1))
    best = [float((single > cut * single[:, :1]).sum(1).max()) for cut in (COARSE, FINE)]
    return best + [float((stacked > cut * stacked[0]).sum()) for cut in (COARSE, FINE)]


# ---- covariances of what heads add to the output --------------------------------------------------


def _cross(subject: LayerSample) -> Float[Tensor, "head head"]:
    """tr Cov(p_i, p_j) of p_i = z_i W_O[i]ᵀ, what each head adds to the output."""
    z = subject.deviations
    count, heads, dim = z.shape
    moments = (z.flatten(1).T @ z.flatten(1) / count).view(heads, dim, heads, dim)
    gram = torch.einsum("ioa,job->iajb", subject.weights.o, subject.weights.o)
    return (moments * gram).sum((1, 3))


def correlation(subject: LayerSample) -> Finding:
    """ρ_ij = Cov(p_i, p_j) / (σ_i σ_j) of what heads add to the output, against 0."""
    condition = "E[p_i · p_j] = E[p_i] · E[p_j] for all pairs of heads' parts p of the output"
    if subject.heads < 2:
        return one_head(condition)
    cross = _cross(subject)
    alive = _alive(cross.diagonal())
    if len(alive) < 2:
        why = f"{subject.heads - len(alive)} of {subject.heads} heads give the same for every token: σ is 0."
        return Finding("not applicable", "σ 0", "no correlation", why, condition)
    cross = cross[alive][:, alive]
    sigma = cross.diagonal().sqrt()
    rho = pairs(cross / (sigma[:, None] * sigma[None]))
    chance = _chance(subject, alive)
    limit = max(UNCORRELATED, chance)
    worst = float(rho.abs().max())
    if worst <= chance and chance > UNCORRELATED:  # chance falls as 1/√tokens
        need = math.ceil(subject.tokens * (chance / UNCORRELATED) ** 2)
        return not_enough(
            subject.tokens, need, f"A correlation of {short(worst, 2)} to tell from chance", condition
        )
    holds = worst <= limit
    at = torch.triu_indices(len(alive), len(alive), offset=1)[:, int(rho.abs().argmax())].tolist()
    pair = " and ".join(f"H{alive[i]}" for i in at)
    still = subject.heads - len(alive)
    why = f"The furthest pair is {pair} with ρ {short(float(rho[int(rho.abs().argmax())]), 2)}; with tokens of one "
    why += f"head shuffled the largest is {short(chance, 2)}."
    why += f" Left out as they never change: {plural(still, 'head')}." if still else ""
    numbers: Numbers = {"rho": rho.tolist(), "largest": worst, "chance": chance, "mean": float(rho.abs().mean())}
    return Finding(
        "holds" if holds else "fails",
        f"mean |ρ| {short(float(rho.abs().mean()), 2)}, largest {short(worst, 2)}",
        f"0 (within {short(limit, 2)})",
        why,
        condition,
        numbers,
    )


def _alive(variances: Float[Tensor, " head"]) -> list[int]:
    """Heads whose part of the output changes at all, beyond rounding."""
    return (variances > 1e-18 * variances.max().clamp_min(1e-300)).nonzero().squeeze(-1).tolist()


def _chance(subject: LayerSample, alive: Sequence[int]) -> float:
    """The largest |ρ| of neighbours where the second head's tokens are shuffled."""
    drawn = torch.Generator().manual_seed(subject.seed)
    worst = 0.0
    for i, j in pairwise(alive):
        a, b = subject.part(i), subject.part(j)[torch.randperm(subject.tokens, generator=drawn)]
        a, b = a - a.mean(0), b - b.mean(0)
        worst = max(worst, abs(float((a * b).sum()) / float(a.norm() * b.norm())))
    return worst


def variance(subject: LayerSample) -> Finding:
    """Var(Σ p_i) ≤ Σ Var(p_i), Var being the trace of the covariance of a head's part of the output."""
    condition = "Σ_{i≠j} Cov(p_i, p_j) ≤ 0; always Var(Σ p_i) ≤ (Σ σ_i)² ≤ h Σ Var(p_i)"
    cross = _cross(subject)
    own = cross.diagonal()
    total, each = float(cross.sum()), float(own.sum())
    bound, loose = float(own.clamp_min(0).sqrt().sum() ** 2), subject.heads * each
    if each <= 0 or subject.tokens < 2:
        why = (
            "No head's output changes from token to token." if subject.tokens > 1 else "One token has no variance."
        )
        return Finding("not applicable", "Var 0", "Σ Var 0", why, condition)
    holds = total <= each * (1 + 1e-6)  # weights are mostly of fp32
    if subject.heads == 1:
        said = "There is one head, and nothing to add up."
    elif abs(total - each) <= 1e-6 * each:
        said = "Heads are uncorrelated on the whole: both sides are the same but for rounding."
    else:
        sign = "negatively" if total < each else "positively"
        said = f"Heads are {sign} correlated on the whole: Σ Cov(p_i, p_j) over i≠j is {short(total - each)}."
    why = f"{said} The bound that always holds is (Σσ)² = {short(bound)} ≤ h Σ Var = {short(loose)}."
    inner = subject.outputs.var(0, correction=0).sum(-1)
    return Finding(
        "holds" if holds else "fails",
        f"Var {short(total)}",
        f"Σ Var {short(each)}",
        why,
        condition,
        {
            "variance": total,
            "sum_of_variances": each,
            "bound": bound,
            "loose_bound": loose,
            "variances": own.tolist(),
            "variances_before_W_O": inner.tolist(),
        },
    )


def redundancy(subject: LayerSample) -> Finding:
    """R_ij = ‖head_iᵀ head_j‖_F / (‖head_i‖_F ‖head_j‖_F): is a head fully redundant with itself?"""
    condition = "every head's output has rank 1: R_ii = 1/√(participation ratio of its singular values²)"
    z = subject.outputs
    norms = z.transpose(0, 1).flatten(1).norm(dim=1)
    alive = (norms > 0).nonzero().squeeze(-1).tolist()
    if not alive:
        return Finding("not applicable", "‖head‖ 0", "0/0", "No head gives anything but zeros.", condition)
    moments = torch.einsum("tia,tjb->ijab", z[:, alive], z[:, alive])
    sizes = moments.flatten(2).norm(dim=2)
    scale = norms[alive]
    R = sizes / (scale[:, None] * scale[None])
    fair = sizes.square() / (sizes.diagonal()[:, None] * sizes.diagonal()[None])
    itself = R.diagonal()
    holds = float(itself.min()) >= 1 - NEAR
    others = pairs(R)
    most = float(others.max()) if len(others) else math.nan
    why = f"A head with itself gives {short(float(itself.min()), 2)} to {short(float(itself.max()), 2)}"
    if len(others):
        why += f", two heads up to {short(most, 2)}"
        why += f"; R_ij² / (R_ii R_jj), which is 1 for twins, up to {short(float(pairs(fair).max()), 2)}"
    flat = torch.einsum("tia,tib->iab", z[:, alive], z[:, alive])
    square = torch.einsum("iab,jab->ij", flat, flat).sqrt() / (scale[:, None] * scale[None])
    why += ". The n×n form, head_i head_jᵀ, compares coordinates that heads do not share."
    return Finding(
        "holds" if holds else "fails",
        f"R_ii {short(float(itself.median()), 2)} (median)",
        "1 for a copy",
        why,
        condition,
        {
            "R_ii": itself.tolist(),
            "R_ij": others.tolist(),
            "R_ij_n_by_n": pairs(square).tolist(),
            "normalised": pairs(fair).tolist(),
        },
    )


# ---- size of the output -----------------------------------------------------------------------


def size(subject: LayerSample) -> Finding:
    """E‖MultiHead‖² against d_model for inputs of mean 0 and variance 1: a fresh layer, and this one."""
    condition = (
        "every head looks at one token, and W_O W_V keeps lengths; attention that averages n tokens loses 1/n"
    )
    copied = subject.rebuild(sequences=8, tokens=64)
    x, memory = _normalised(copied.x), None if copied.memory is None else _normalised(copied.memory)
    fresh = _mean_square(_fresh(copied, subject), copied, x, memory)
    trained = _mean_square(copied.layer, copied, x, memory)
    goal = float(subject.d_out)
    near = [abs(value / goal - 1) <= NEAR for value in (fresh, trained)]
    verdict = "holds" if all(near) else "holds only if" if any(near) else "fails"
    predicted = _independent(subject, copied, x, memory)
    seen = float(subject.output.square().sum(1).mean())
    why = (
        f"As run, inputs of ‖x‖² {short(float(subject.inputs.square().sum(1).mean()))} give {short(seen)}. "
        f"For white, independent tokens it is Σ_ij E[a_i·a_j] tr(M_i M_jᵀ), M = W_O W_V: here {short(predicted)}. "
        "Nothing ties that to d_model."
    )
    if copied.left_out:
        why += f" The copy lacks {copied.left_out}."
    return Finding(
        verdict,
        f"fresh {short(fresh)}, this {short(trained)}",
        f"d_model {short(goal)}",
        why,
        condition,
        {"fresh": fresh, "trained": trained, "independent_tokens": predicted, "as_run": seen, "d_model": goal},
    )


def _normalised(x: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
    return F.layer_norm(x, x.shape[-1:], eps=1e-12)


def _fresh(copied: Rebuilt, subject: LayerSample) -> MultiHeadAttention:
    """A layer of the same shape, drawn anew."""
    fresh = copy.deepcopy(copied.layer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(subject.seed)
        fresh.reset_parameters()
    return fresh


@torch.no_grad()
def _mean_square(layer: MultiHeadAttention, copied: Rebuilt, x: Tensor, memory: Tensor | None) -> float:
    """E‖out‖² over tokens."""
    out = layer(x, memory, mask=copied.mask, route="reference")
    return float(out.square().sum(-1).mean())


@torch.no_grad()
def _independent(subject: LayerSample, copied: Rebuilt, x: Tensor, memory: Tensor | None) -> float:
    """Σ_ij E[a_i · a_j] tr(M_i M_jᵀ): the size if tokens were independent, with the layer's own attention a."""
    asked = copied.layer(x, memory, mask=copied.mask, ask="weights", route="reference").weights
    assert asked is not None
    together = torch.einsum("bhqk,bgqk->hg", asked, asked) / (asked.shape[0] * asked.shape[2])
    W_V, b_V = (w[list(subject.kv_of_head)] for w in (subject.weights.v, subject.weights.bias("v")))
    maps = torch.einsum("hov,hvd->hod", subject.weights.o, W_V).flatten(1)
    always = subject.weights.bias("o") + torch.einsum("hov,hv->o", subject.weights.o, b_V)  # rows of a add up to 1
    return float((together * (maps @ maps.T)).sum() + always.square().sum())


# ---- worth --------------------------------------------------------------------------------------


def importance(subject: LayerSample) -> Finding:
    """I_i = ‖E[head_i]‖_F against what the model's output loses without the head: do they rank heads alike?"""
    condition = "what a head adds is nearly the same for every token, and W_O and later layers treat heads alike"
    if subject.heads < 3:
        why = "Ranks need three heads or more."
        return Finding("not applicable", f"{subject.heads} heads", "no ranking", why, condition)
    mean = subject.outputs.mean(0).norm(dim=1)
    parts = torch.stack([subject.part(i).square().sum(1).mean() for i in range(subject.heads)])
    lost = parts if subject.ablation is None else subject.ablation()
    if float(mean.std()) == 0 or float(lost.std()) == 0:
        return Finding("not applicable", "all alike", "no ranking", "Every head has the same number.", condition)
    rho, other = _rank_correlation(mean, lost), _rank_correlation(parts, lost)
    best, named = int(lost.argmax()), int(mean.argmax())
    why = f"Without H{best} the output changes most ({short(100 * float(lost[best]), 2)} %); ‖E head‖ puts "
    why += f"H{named} first" if named != best else "it first too"
    why += f". E‖W_O head‖² ranks with {short(other, 2)}."
    return Finding(
        "holds" if rho >= RANKED else "fails",
        f"rank correlation {short(rho, 2)}",
        f"1 (from {RANKED})",
        why,
        condition,
        {
            "rank_correlation": rho,
            "rank_correlation_of_size": other,
            "importance": mean.tolist(),
            "ablation": lost.tolist(),
        },
    )


def _rank_correlation(a: Tensor, b: Tensor) -> float:
    from scipy.stats import spearmanr  # pyright: ignore[reportMissingTypeStubs]

    return float(spearmanr(a.numpy(), b.numpy()).statistic)  # pyright: ignore[reportAttributeAccessIssue]


CLAIMS = (
    Claim("4", "heads together cover more than one does", "𝒜 = ∪ span(A_i)", coverage),
    Claim("5", "heads are uncorrelated", "ρ_ij = Cov(head_i, head_j) / (σ_i σ_j) ≈ 0", correlation),
    Claim("7", "normalised inputs give outputs of size √d_model", "E‖MultiHead‖² = d_model", size),
    Claim("14", "the mean output tells a head's importance", "I_i = ‖E[head_i]‖_F ranks like ablation", importance),
    Claim(
        "15",
        "R says how redundant two heads are",
        "R_ij = ‖head_iᵀ head_j‖_F / (‖head_i‖_F ‖head_j‖_F)",
        redundancy,
    ),
    Claim("16", "heads' variances bound that of the layer", "Var(MultiHead) ≤ Σ Var(head_i)", variance),
)
