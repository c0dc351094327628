"""When does eight-head attention equal one-head attention with the same projections, and do both learn the same?

First part: many seeds. With `torch.rand` inputs and weights, as in some tutorials, every score is huge and ranks
the keys in the same way for all queries. Each row is one-hot, in most seeds on the same key for every head. Eight
heads that all copy the value of key j, concatenated, are one head that copies the value of key j. With inputs of
mean 0 and weights of the usual scale, the outputs differ.

Second part: W_Q = 0, so that all rows are uniform and the outputs are equal. The gradients of W_V and W_O are
identical. A slice of W_Q gets the score gradient of its own head with eight heads, and the sum over all heads with
one.

    python examples/one_vs_many_gradients.py [--seeds 100]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
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


def pair(weights: Sequence[Tensor]) -> tuple[mh.MultiHeadAttention, mh.MultiHeadAttention]:
    """One head of 512 and eight heads of 64 on the same four matrices."""
    # 1/√512 for both, so that the layers differ in nothing but the heads.
    layers = [mh.MultiHeadAttention(WIDTH, heads, bias=False, scale=WIDTH**-0.5) for heads in (1, HEADS)]
    for attn in layers:
        for linear, weight in zip((attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj), weights, strict=True):
            linear.weight.data.copy_(weight.T)
    return layers[0], layers[1]


def compare(seed: int, draw: Callable[..., Tensor]) -> Comparison:
    """The same four matrices as one head of 512 and as eight heads of 64, on the same ten tokens."""
    torch.manual_seed(seed)
    x = draw(1, TOKENS, WIDTH)
    weights = [draw(WIDTH, WIDTH) for _ in range(4)]
    outs, tops, keys, grads = [], [], [], []
    for attn in pair(weights):
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


@dataclass(frozen=True)
class Gradients:
    """W_Q = 0: equal outputs. How far the gradients are from each other, relative to the larger one."""

    output: float
    w_v: float
    w_o: float
    w_q: float
    own: float  # eight heads: the slices of W_Q from the slices' own score gradients
    summed: float  # one head: the slices of W_Q from the sum of the score gradients of all heads


def gradients(seed: int) -> Gradients:
    torch.manual_seed(seed)
    x = realistic(1, TOKENS, WIDTH)
    one, many = layers = pair([torch.zeros(WIDTH, WIDTH), *(realistic(WIDTH, WIDTH) for _ in range(3))])
    outputs = []
    for layer in layers:
        outputs.append(layer(x))
        outputs[-1].retain_grad()
        outputs[-1].square().mean().backward()

    def slices(rows: Tensor) -> Tensor:
        return rows.detach()[0].unflatten(-1, (HEADS, -1)).transpose(0, 1)  # (head, token, 64)

    k, v, dz = slices(many.k_proj(x)), slices(many.v_proj(x)), slices(outputs[1].grad @ many.o_proj.weight)
    p = many(x, ask="weights").weights[0].detach()
    dp = dz @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))  # the gradient of the scores, per head
    own, summed = (many.scale * (some @ k).mT @ x[0] for some in (ds, ds.sum(0)))

    def gradient(layer: mh.MultiHeadAttention, name: str) -> Tensor:
        return getattr(layer, name).weight.grad

    return Gradients(
        far(outputs[0].detach(), outputs[1].detach()),
        *(far(gradient(one, name), gradient(many, name)) for name in ("v_proj", "o_proj", "q_proj")),
        far(gradient(many, "q_proj"), own.flatten(0, 1)),
        far(gradient(one, "q_proj"), summed.flatten(0, 1)),
    )


def far(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / max(a.norm(), b.norm()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    print(f"{seeds} seeds, {TOKENS} tokens, width {WIDTH}, 1 head against {HEADS} on the same matrices; medians\n")
    header = ("inputs", "equal", "one key", "max weight", "difference", "|dW_Q|/|dW_V| 1 head", "8 heads")
    print("{:<11}{:>7}{:>9}{:>12}{:>12}{:>22}{:>11}".format(*header))
    for draw in (positive, realistic):
        results = [compare(seed, draw) for seed in range(seeds)]
        share = {name: sum(getattr(r, name) for r in results) / seeds for name in ("equal", "same_key")}
        middle = {
            name: median(getattr(r, name) for r in results)
            for name in ("top_weight", "difference", "grad_one", "grad_eight")
        }
        print(
            "{:<11}{equal:>7.0%}{same_key:>9.0%}{top_weight:>12.4f}{difference:>12.2g}"
            "{grad_one:>22.2g}{grad_eight:>11.2g}".format(draw.__name__, **share, **middle)
        )

    print("\nW_Q = 0: uniform rows. Relative differences:")
    same = gradients(0)
    print(f"  outputs                                                 {same.output:.2f}")
    print(f"  gradient of W_V                                         {same.w_v:.2f}")
    print(f"  gradient of W_O                                         {same.w_o:.2f}")
    print(f"  gradient of W_Q                                         {same.w_q:.2f}")
    print(f"  eight heads: W_Q, from each head's own score gradient   {same.own:.2f}")
    print(f"  one head: W_Q, from the sum of the score gradients      {same.summed:.2f}")


if __name__ == "__main__":
    main()
