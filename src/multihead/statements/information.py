"""Statement 6, in three parts: what heads know of their input, through a Gaussian channel, in nats.

The channel is stated, since without noise all information is infinite: every number of a head's output is seen with
Gaussian noise of 1 % of the mean variance of such a number (20 dB), independent between numbers and heads; the
outputs count as Gaussian with the covariance that was measured.

>>> import torch, multihead as mh
>>> from multihead.statements.sampling import layer_samples
>>> [layer] = layer_samples(mh.MultiHeadAttention(12, 3), torch.randn(8, 31, 12))
>>> chain(layer).verdict, at_least_the_best(layer).verdict
('fails', 'holds')
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.statements.claim import Claim, Finding, no_maps, not_enough, one_head, short
from multihead.statements.entropies import (
    covariance,
    information,
    part_information,
    projected_information,
    tokens_needed,
    total_correlation,
    with_noise,
)
from multihead.statements.layer_sample import LayerSample

NOISE = 0.01
"""Variance of the noise, as a share of the mean variance of one number."""
EQUAL = 0.01
"""Two sides are called equal where they differ by no more than this share of the larger."""
ROWS = 32
"""Tokens whose attention the capacity is averaged over."""


@dataclass(frozen=True)
class Channel:
    """The heads' outputs of a layer as one Gaussian vector, seen through noise."""

    signal: Float[Tensor, "width width"]
    sizes: tuple[int, ...]
    noise: float

    @staticmethod
    def of(subject: LayerSample) -> Channel | None:
        """None where the outputs never change."""
        signal = covariance(subject.deviations.flatten(1))
        power = float(signal.diagonal().mean())
        sizes = (subject.value_dim,) * subject.heads
        return Channel(signal, sizes, NOISE * power) if power > 0 else None


CONSTANT = "No head's output changes from token to token: there is nothing to know."


def _too_little(subject: LayerSample, condition: str) -> Finding | None:
    need = tokens_needed(subject.heads * subject.value_dim)
    if subject.tokens >= need:
        return None
    return not_enough(subject.tokens, need, "The covariance of all heads' outputs", condition)


def _channel(subject: LayerSample, condition: str) -> Channel | Finding:
    """The heads as a channel, or why there is none."""
    short_of = _too_little(subject, condition)
    if short_of is not None:
        return short_of
    return Channel.of(subject) or Finding("not applicable", "0 nats", "0 nats", CONSTANT, condition)


def at_least_the_best(subject: LayerSample) -> Finding:
    """I(MultiHead; X) ≥ max_i I(head_i; X), with the noise before W_O, and with it behind."""
    condition = (
        "W_O as a whole has independent columns and the noise is added before it; behind it, heads may cancel"
    )
    channel = _channel(subject, condition)
    if isinstance(channel, Finding):
        return channel
    w = subject.weights.o
    own = part_information(channel.signal, channel.sizes, channel.noise)
    before = projected_information(channel.signal, channel.noise, w.transpose(0, 1).flatten(1))
    behind, parts = _behind(subject, channel)
    holds_before, holds_behind = before >= max(own) * (1 - EQUAL), behind >= max(parts) * (1 - EQUAL)
    verdict = "holds" if holds_before and holds_behind else "holds only if" if holds_before else "fails"
    best = own.index(max(own))
    why = (
        f"The best head is H{best}. With noise behind W_O instead, the layer has {short(behind)} nats and its best "
        f"head {short(max(parts))}"
    )
    if not holds_before:
        why += "; W_O maps a part of that head to nothing."
    elif not holds_behind:
        why += ": there heads cancel each other."
    else:
        why += "."
    return Finding(
        verdict,
        f"I(MultiHead) {short(before)}",
        f"best head {short(max(own))} nats",
        why,
        condition,
        {
            "layer": before,
            "heads": own,
            "layer_noise_behind_W_O": behind,
            "heads_noise_behind_W_O": parts,
            "noise": channel.noise,
        },
    )


def _behind(subject: LayerSample, channel: Channel) -> tuple[float, list[float]]:
    """Information in the layer's output and in each head's part of it, with noise on these: 1 % of the output's."""
    w, size = subject.weights.o, subject.value_dim
    blocks = [channel.signal[i * size : (i + 1) * size, i * size : (i + 1) * size] for i in range(subject.heads)]
    whole = w.transpose(0, 1).flatten(1)
    output = whole @ channel.signal @ whole.T
    parts = [w[i] @ block @ w[i].T for i, block in enumerate(blocks)]
    power = max(float(output.diagonal().mean()), *(float(p.diagonal().mean()) for p in parts))
    if not power > 0:
        return 0.0, [0.0] * len(parts)
    return information(output, NOISE * power), [information(p, NOISE * power) for p in parts]


def capacity(subject: LayerSample) -> Finding:
    """C_total = Σ C_i: white input of unit power per number through the layer's own attention and W_V."""
    condition = "heads read orthogonal directions (W_i^V W_j^Vᵀ = 0) or different tokens (a_i · a_j = 0)"
    if subject.heads < 2:
        return one_head(condition)
    rows = _attention(subject)
    if rows is None:
        return no_maps(max(s.x.shape[0] for s in subject.sequences), condition)
    W_V = subject.weights.v[list(subject.kv_of_head)]
    gram = torch.einsum("hvd,gud->hvgu", W_V, W_V)
    overlap = torch.einsum("rhk,rgk->rhg", rows, rows)
    size = subject.value_dim
    power = float(torch.einsum("rhh,hvhv->r", overlap, gram).mean()) / (subject.heads * size)
    if not power > 0:
        return Finding("not applicable", "0 nats", "0 nats", "W_V is 0: nothing passes.", condition)
    noise = NOISE * power
    total, each = 0.0, [0.0] * subject.heads
    for shared in overlap:
        signal = (shared[:, None, :, None] * gram).flatten(2).flatten(0, 1)
        total += information(signal, noise) / len(rows)
        parts = part_information(signal, [size] * subject.heads, noise)
        each = [c + part / len(rows) for c, part in zip(each, parts, strict=True)]
    summed = sum(each)
    holds = abs(total - summed) <= EQUAL * summed
    why = (
        f"Σ C_i counts {short(summed - total)} nats more than once: heads read shared directions of shared tokens."
    )
    if holds:
        why = "No two heads carry the same: nothing is counted twice."
    shared_heads = subject.kv_heads < subject.heads
    why += f" {subject.heads} heads share {subject.kv_heads} W_V." if shared_heads else ""
    return Finding(
        "holds" if holds else "fails",
        f"C_total {short(total)}",
        f"Σ C_i {short(summed)} nats",
        why,
        condition,
        {"total": total, "heads": each, "counted_twice": summed - total, "noise": noise},
    )


def _attention(subject: LayerSample) -> Float[Tensor, "row head key"] | None:
    """Attention of some tokens, spread over the sequences whose maps were kept, padded with zeros to one width."""
    maps = subject.maps
    if not maps:
        return None
    drawn = torch.Generator().manual_seed(subject.seed)
    width = max(m.shape[2] for m in maps)
    places = [(m, row) for m in maps for row in range(m.shape[1])]
    chosen = torch.randperm(len(places), generator=drawn)[:ROWS].tolist()
    rows = [torch.nn.functional.pad(m[:, row], (0, width - m.shape[2])) for m, row in (places[i] for i in chosen)]
    return torch.stack(rows)


def chain(subject: LayerSample) -> Finding:
    """I(X; Y) = Σ I(X; head_i) − I(head_1; …; head_h | X), against the identity that holds."""
    condition = (
        "heads are independent; always I(X; heads) = Σ I(X; head_i) − TC(heads) + TC(heads | X), TC the total "
        "correlation, and TC(heads | X) = 0 where noises are independent"
    )
    if subject.heads < 2:
        return one_head(condition)
    channel = _channel(subject, condition)
    if isinstance(channel, Finding):
        return channel
    joint = information(channel.signal, channel.noise)
    each = part_information(channel.signal, channel.sizes, channel.noise)
    seen = with_noise(channel.signal, channel.noise)
    shared = total_correlation(seen, channel.sizes)
    given = total_correlation(seen - channel.signal, channel.sizes)  # once X is known, noise is all there is
    chance = _chance(subject, channel)
    right = sum(each) - given
    holds = abs(joint - right) <= chance + EQUAL * right
    why = (
        f"TC(heads|X) is {short(abs(round(given, 6)))}: noise is independent. What heads share is TC(heads) = "
        f"{short(shared)} nats (shuffled tokens: {short(chance)}); with it the right side is "
        f"{short(sum(each) - shared + given)}."
    )
    if holds:
        why = f"Heads share {short(shared)} nats, no more than shuffled tokens would ({short(chance)})."
    return Finding(
        "holds" if holds else "fails",
        f"I(X;Y) {short(joint)}",
        f"Σ I − TC(·|X) {short(right)} nats",
        why,
        condition,
        {
            "joint": joint,
            "heads": each,
            "total_correlation": shared,
            "total_correlation_given_input": given,
            "total_correlation_by_chance": chance,
            "corrected_right_side": sum(each) - shared + given,
            "noise": channel.noise,
        },
    )


def _chance(subject: LayerSample, channel: Channel) -> float:
    """The total correlation of heads whose tokens are shuffled apart: what so few tokens give by chance."""
    drawn = torch.Generator().manual_seed(subject.seed)
    z = subject.outputs
    apart = [z[torch.randperm(len(z), generator=drawn), i] for i in range(subject.heads)]
    return total_correlation(with_noise(covariance(torch.cat(apart, 1)), channel.noise), channel.sizes)


CLAIMS = (
    Claim(
        "6a",
        "the layer knows at least what its best head knows",
        "I(MultiHead; X) ≥ max I(head_i; X)",
        at_least_the_best,
    ),
    Claim("6b", "capacities of heads add up", "C_total = Σ C_i", capacity),
    Claim("6c", "information splits over heads", "I(X; Y) = Σ I(X; head_i) − I(head_1; …; head_h | X)", chain),
)
