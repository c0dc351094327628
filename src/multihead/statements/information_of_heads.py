"""What the heads know of the input, through a noisy channel.
- 6a: `I(MultiHead; X) ≥ max_i I(head_i; X)`.
- 6b: `C_total = Σ C_i`.
- 6c: `I(X; Y) = Σ I(X; head_i) − I(head_1; …; head_h | X)`.

**6a holds** if W_O has independent columns. **6b and 6c fail** as soon as heads are correlated: information that
two heads carry is counted twice.

## The channel

Outputs are a function of the input, so without noise all information is infinite. The noise is stated: every
coordinate of a head's output is seen with Gaussian noise of 1 % of the mean variance of a coordinate (20 dB),
independent between coordinates and heads. Outputs count as Gaussian with their measured covariance Σ. Then
everything is a log det, in nats.

`I(X; head_i) = ½ log det(1 + Σ_i / noise)`, `TC(heads) = ½ Σ log det(Σ_i + noise) − ½ log det(Σ + noise)`

TC is the total correlation (Watanabe 1960): 0 for independent heads. A singular Σ is not a problem, the noise makes
it regular. With fewer than 5 tokens for each dimension of all heads' outputs (1920 for MiniLM) the verdict of 6a
and 6c is "not enough data".

- **6a** has the noise before W_O: then W_O can only lose information, and loses none if its columns are
  independent. With noise behind W_O instead, on the sum, heads may cancel each other; if only that fails, the
  verdict is "holds only if" (in tables: conditional).
- **6b** takes white input of unit power through the layer's own attention and W_V: token t of heads i and j has the
  covariance (a_i · a_j) W_i^V W_j^Vᵀ, with a the rows of the maps. It depends on the layer, not on the covariance
  of the text. Mean of 32 tokens; equal means within 1 %.
- **6c** uses the measured outputs. The noises are independent, so I(head_1; …; head_h | X) is 0, and the statement
  says I(X; Y) = Σ I(X; head_i). It is off by TC(heads). The identity that always holds is
  `I(X; heads) = Σ I(X; head_i) − TC(heads) + TC(heads | X)`. Too few tokens make TC too large, so it is compared
  with its value after the tokens of each head are shuffled.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(40, 13, 12)

orthogonal = mh.MultiHeadAttention(12, 3)
torch.nn.init.orthogonal_(orthogonal.v_proj.weight)     # heads read orthogonal directions
theory = mh.theory(orthogonal, x, only=["6"])
assert (theory["6a"].verdict, theory["6b"].verdict) == ("holds", "holds")

twins = mh.MultiHeadAttention(12, 3)
with torch.no_grad():
    for projection in (twins.q_proj, twins.k_proj, twins.v_proj):
        projection.weight[4:8] = projection.weight[:4]
theory = mh.theory(twins, x, only=["6"])
assert (theory["6b"].verdict, theory["6c"].verdict) == ("fails", "fails")
numbers = theory["6c"].result.numbers
assert abs(numbers["corrected_right_side"] - numbers["joint"]) < 1e-6

with torch.no_grad():                                   # W_O ignores the head with the most information
    twins.v_proj.weight[8:] *= 30
    twins.o_proj.weight[:, 8:] = 0
assert mh.theory(twins, x, only=["6"])["6a"].verdict == "fails"

few = mh.theory(twins, x[:1], only=["6c"])["6c"].result
assert (few.verdict, few.lhs, few.rhs) == ("not enough data", "13 tokens", "60 needed")
```

Two variables with correlation ρ share −½ log(1 − ρ²):

```python
import math
from multihead.statements.gaussian import total_correlation

shared = total_correlation(torch.tensor([[1.0, 0.6], [0.6, 1.0]]), [1, 1])
assert math.isclose(shared, -0.5 * math.log(1 - 0.36), rel_tol=1e-6)
```
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.gaussian import (
    blocks,
    covariance,
    information,
    part_information,
    projected_information,
    total_correlation,
    with_noise,
)
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, not_applicable, statement

NOISE = 0.01
"""Variance of the noise, as a share of the mean variance of one coordinate."""
EQUAL = 0.01
"""Two sides are equal if they differ by no more than this share."""
ROWS = 32
"""Tokens whose attention the capacity is averaged over."""
TOKENS_PER_DIMENSION = 5
"""Below, a covariance is too rough for a log det."""


@dataclass(frozen=True)
class Channel:
    """The outputs of all heads as one Gaussian vector, seen through noise."""

    signal: Float[Tensor, "width width"]
    sizes: tuple[int, ...]
    noise: float

    @staticmethod
    def of(layer: LayerSample) -> Channel:
        """The channel whose information is computed: the outputs of a layer's heads, and noise."""
        signal = covariance(layer.deviations.flatten(1))
        power = float(signal.diagonal().mean())
        if not power > 0:
            because = "No head's output changes from token to token: there is nothing to know."
            raise not_applicable("0 nats", "0 nats", because)
        return Channel(signal, (layer.value_dim,) * layer.heads, NOISE * power)


# ---- 6a -----------------------------------------------------------------------------------------


@statement(
    "6a",
    "the layer knows at least what its best head knows",
    formula="I(MultiHead; X) ≥ max I(head_i; X)",
    holds_when="W_O as a whole has independent columns and the noise is added before it; behind it, heads may "
    "cancel",
    needs=Needs(tokens_per_dimension=TOKENS_PER_DIMENSION),
)
def at_least_the_best_head(layer: LayerSample) -> Result:
    channel = Channel.of(layer)
    w = layer.weights.o
    heads = part_information(channel.signal, channel.sizes, channel.noise)
    in_output = projected_information(channel.signal, channel.noise, w.transpose(0, 1).flatten(1))
    behind, parts = _with_noise_behind(layer, channel)
    comparison = Comparison(
        Side(f"I(MultiHead) {number(in_output)}", in_output),
        ">=",
        Side(f"best head {number(max(heads))} nats", max(heads)),
        rtol=EQUAL,
        always=Comparison(Side(number(behind), behind), ">=", Side(number(max(parts)), max(parts)), rtol=EQUAL),
    )
    ending = {
        "holds": ".",
        "holds only if": ": there heads cancel each other.",
        "fails": "; W_O maps a part of that head to nothing.",
    }
    because = (
        f"The best head is H{heads.index(max(heads))}. With noise behind W_O instead, the layer has "
        f"{number(behind)} nats and its best head {number(max(parts))}{ending[comparison.verdict]}"
    )
    numbers = {
        "layer": in_output,
        "heads": heads,
        "layer_noise_behind_W_O": behind,
        "heads_noise_behind_W_O": parts,
        "noise": channel.noise,
    }
    return Result(comparison, because, numbers)


def _with_noise_behind(layer: LayerSample, channel: Channel) -> tuple[float, list[float]]:
    """Information in the layer's output and in each head's part of it, with noise on these: 1 % of the output's."""
    w = layer.weights.o
    stacked = w.transpose(0, 1).flatten(1)
    output = stacked @ channel.signal @ stacked.T
    parts = [w_i @ block @ w_i.T for w_i, block in zip(w, blocks(channel.signal, channel.sizes), strict=True)]
    power = max(float(x.diagonal().mean()) for x in (output, *parts))
    if not power > 0:
        return 0.0, [0.0] * len(parts)
    return information(output, NOISE * power), [information(p, NOISE * power) for p in parts]


# ---- 6b -----------------------------------------------------------------------------------------


@statement(
    "6b",
    "capacities of heads add up",
    formula="C_total = Σ C_i",
    holds_when="heads read orthogonal directions (W_i^V W_j^Vᵀ = 0) or different tokens (a_i · a_j = 0)",
    needs=Needs(heads=2, map_size=1),
)
def capacities_add_up(layer: LayerSample) -> Result:
    """White input of unit power per coordinate through the layer's own attention and W_V."""
    rows, W_V = _attention_rows(layer), layer.weights.v[list(layer.kv_of_head)]
    gram = torch.einsum("hvd,gud->hvgu", W_V, W_V)
    overlap = torch.einsum("rhk,rgk->rhg", rows, rows)
    size = layer.value_dim
    power = float(torch.einsum("rhh,hvhv->r", overlap, gram).mean()) / (layer.heads * size)
    if not power > 0:
        raise not_applicable("0 nats", "0 nats", "W_V is 0: nothing passes.")
    noise = NOISE * power
    total, heads = 0.0, [0.0] * layer.heads
    for shared in overlap:
        signal = (shared[:, None, :, None] * gram).flatten(2).flatten(0, 1)
        total += information(signal, noise) / len(rows)
        parts = part_information(signal, [size] * layer.heads, noise)
        heads = [c + part / len(rows) for c, part in zip(heads, parts, strict=True)]
    summed = sum(heads)
    comparison = Comparison(
        Side(f"C_total {number(total)}", total), "=", Side(f"Σ C_i {number(summed)} nats", summed), rtol=EQUAL
    )
    because = (
        "No two heads carry the same information."
        if comparison.true
        else f"Σ C_i counts {number(summed - total)} nats more than once: heads read shared directions of shared "
        "tokens."
    )
    if layer.kv_heads < layer.heads:
        because += f" {layer.heads} heads share {layer.kv_heads} W_V."
    return Result(
        comparison, because, {"total": total, "heads": heads, "counted_twice": summed - total, "noise": noise}
    )


def _attention_rows(layer: LayerSample) -> Float[Tensor, "row head key"]:
    """The attention of some tokens, over all sequences with maps, padded with zeros to one width."""
    generator = torch.Generator().manual_seed(layer.seed)
    width = max(m.shape[2] for m in layer.maps)
    tokens = [(m, row) for m in layer.maps for row in range(m.shape[1])]
    chosen = torch.randperm(len(tokens), generator=generator)[:ROWS].tolist()
    rows = [torch.nn.functional.pad(m[:, row], (0, width - m.shape[2])) for m, row in (tokens[i] for i in chosen)]
    return torch.stack(rows)


# ---- 6c -----------------------------------------------------------------------------------------


@statement(
    "6c",
    "information splits over heads",
    formula="I(X; Y) = Σ I(X; head_i) − I(head_1; …; head_h | X)",
    holds_when="heads are independent; always I(X; heads) = Σ I(X; head_i) − TC(heads) + TC(heads | X), TC the "
    "total correlation, and TC(heads | X) = 0 where noises are independent",
    needs=Needs(heads=2, tokens_per_dimension=TOKENS_PER_DIMENSION),
)
def information_splits(layer: LayerSample) -> Result:
    channel = Channel.of(layer)
    joint = information(channel.signal, channel.noise)
    heads = part_information(channel.signal, channel.sizes, channel.noise)
    seen = with_noise(channel.signal, channel.noise)
    shared = total_correlation(seen, channel.sizes)
    given_input = total_correlation(seen - channel.signal, channel.sizes)  # once X is known, only noise is left
    chance, right = _total_correlation_by_chance(layer, channel), sum(heads) - given_input
    corrected = sum(heads) - shared + given_input
    comparison = Comparison(
        Side(f"I(X;Y) {number(joint)}", joint),
        "=",
        Side(f"Σ I − TC(·|X) {number(right)} nats", right),
        rtol=EQUAL,
        atol=chance,
    )
    because = (
        f"Heads share {number(shared)} nats, no more than after shuffling tokens ({number(chance)})."
        if comparison.true
        else f"TC(heads|X) is {number(abs(round(given_input, 6)))}: noise is independent. Heads share TC(heads) = "
        f"{number(shared)} nats (shuffled tokens: {number(chance)}); with it the right side is {number(corrected)}."
    )
    numbers = {
        "joint": joint,
        "heads": heads,
        "total_correlation": shared,
        "total_correlation_given_input": given_input,
        "total_correlation_by_chance": chance,
        "corrected_right_side": corrected,
        "noise": channel.noise,
    }
    return Result(comparison, because, numbers)


def _total_correlation_by_chance(layer: LayerSample, channel: Channel) -> float:
    """The total correlation after the tokens of each head are shuffled: the error of a sample of this size."""
    generator = torch.Generator().manual_seed(layer.seed)
    z = layer.outputs
    shuffled = [z[torch.randperm(len(z), generator=generator), i] for i in range(layer.heads)]
    return total_correlation(with_noise(covariance(torch.cat(shuffled, 1)), channel.noise), channel.sizes)
