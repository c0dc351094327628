"""When does eight-head attention equal one-head attention with the same projections?

With `torch.rand` inputs and weights, as in many tutorials, every score is huge and nearly the same for all
queries: each softmax row is one-hot, in most seeds on the same key for every head and query. Concatenating eight
heads that all copy the value of key j is the same as one head that copies the value of key j, so the two layers
agree to the last digit. With inputs of mean 0 and weights of the usual scale they do not.

    python examples/one_head_or_eight.py [--seeds 200]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

import multihead as mh

WIDTH, TOKENS, HEADS = 512, 10, 8


@dataclass(frozen=True)
class Comparison:
    """One seed: how far apart the two layers are, and how saturated their softmax is."""

    equal: bool  # outputs agree within torch's default tolerances
    difference: float  # largest |difference| / largest |output|
    top_weight: float  # mean over rows of the largest weight, eight heads
    same_key: bool  # every head and every query looks at one and the same key
    grad_one: float  # ‖∂L/∂W_Q‖ / ‖∂L/∂W_V‖, one head
    grad_eight: float  # the same, eight heads


def positive(*shape: int) -> Tensor:
    """The tutorial's numbers: uniform on [0, 1)."""
    return torch.rand(*shape)


def realistic(*shape: int) -> Tensor:
    """Mean 0; a matrix is scaled so that it keeps the size of what it multiplies."""
    return torch.randn(*shape) / (shape[0] ** 0.5 if len(shape) == 2 else 1.0)


def compare(seed: int, draw: Callable[..., Tensor]) -> Comparison:
    """The same four matrices as one head of 512 and as eight heads of 64, on the same ten tokens."""
    torch.manual_seed(seed)
    x = draw(1, TOKENS, WIDTH)
    weights = [draw(WIDTH, WIDTH) for _ in range(4)]
    # 1/√512 for both, so that the layers differ in nothing but the heads.
    outs, tops, keys, grads = [], [], [], []
    for heads in (1, HEADS):
        attn = mh.MultiHeadAttention(WIDTH, heads, bias=False, scale=WIDTH**-0.5)
        for linear, weight in zip((attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj), weights, strict=True):
            linear.weight.data.copy_(weight.T)
        seen = attn(x, ask="weights")
        seen.out.square().mean().backward()
        grads.append(float(attn.q_proj.weight.grad.norm() / attn.v_proj.weight.grad.norm()))
        outs.append(seen.out.detach())
        tops.append(seen.weights.detach().amax(-1))
        keys.append(seen.weights.detach().argmax(-1).unique())
    difference = float((outs[0] - outs[1]).abs().max() / outs[0].abs().max())
    same = len(keys[1]) == 1 and torch.equal(keys[0], keys[1])
    return Comparison(
        torch.allclose(*outs, rtol=1.3e-6, atol=1e-5), difference, float(tops[1].mean()), same, grads[0], grads[1]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    print(f"{seeds} seeds, {TOKENS} tokens, width {WIDTH}, 1 head against {HEADS} on the same matrices; medians\n")
    header = ("inputs", "equal", "one key", "max weight", "difference", "|dW_Q|/|dW_V| 1 head", "8 heads")
    print("{:<11}{:>7}{:>9}{:>12}{:>12}{:>22}{:>11}".format(*header))
    for draw in (positive, realistic):
        found = [compare(seed, draw) for seed in range(seeds)]
        share = {name: sum(getattr(f, name) for f in found) / seeds for name in ("equal", "same_key")}
        middle = {
            name: median(getattr(f, name) for f in found)
            for name in ("top_weight", "difference", "grad_one", "grad_eight")
        }
        print(
            "{:<11}{equal:>7.0%}{same_key:>9.0%}{top_weight:>12.4f}{difference:>12.2g}"
            "{grad_one:>22.2g}{grad_eight:>11.2g}".format(draw.__name__, **share, **middle)
        )


if __name__ == "__main__":
    main()
