"""Small calls, where the work of Python counts: each against the same computation by hand."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness import Job, Work
from multihead import MultiHeadAttention, cache, mask, position
from peers import HAND, HandWritten, Rotation, rotation_of
from works import job_of, layer_of, no_grad, same, tokens_of

PROMPT, STEPS = 64, 64


class Decoder(HandWritten):
    """One token at a time over keys and values that are allocated once."""

    def __init__(
        self, ours: MultiHeadAttention, k: Tensor, v: Tensor, capacity: int, rotation: Rotation | None = None
    ) -> None:
        super().__init__(ours, rotation=rotation)
        self.prompt = self.length = k.shape[2]
        room = (0, 0, 0, capacity - self.prompt)
        self.k, self.v = F.pad(k, room), F.pad(v, room)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        start, self.length = self.length, self.length + 1
        self.k[:, :, start : self.length], self.v[:, :, start : self.length] = k, v
        out = F.scaled_dot_product_attention(q, self.k[:, :, : self.length], self.v[:, :, : self.length])
        return self.out(out.transpose(1, 2).flatten(2))

    def reset(self) -> None:
        self.length = self.prompt


def forward(batch: int, tokens: int, width: int, *, train: bool = False, least: float, causal: bool = True) -> Work:
    """Self-attention of a few tokens."""
    ours = layer_of(d_model=width, num_heads=4).train(train)
    x, grad = tokens_of(batch, tokens, train, width)
    seen = mask.causal() if causal else mask.everything()
    hand = HandWritten(ours, causal).train(train)
    our_job = job_of(partial(ours, mask=seen), grad, x, weights=ours)
    return Work(our_job, {HAND: job_of(hand, grad, x)}, {HAND: least}, same=same, small=True)


def rotary(batch: int, tokens: int, width: int, *, least: float) -> Work:
    """The same with rotation, whose cosines the layer by hand has computed before."""
    ours = layer_of(d_model=width, num_heads=4, position=position.Rotary()).eval()
    x, _ = tokens_of(batch, tokens, False, width)
    hand = HandWritten(ours, True, rotation_of(tokens, ours.head_dim))
    our_job = no_grad(partial(ours, mask=mask.causal()), x)
    return Work(our_job, {HAND: no_grad(hand, x)}, {HAND: least}, same=same, small=True)


def decode(kind: str, width: int, *, least: float) -> Work:
    """64 steps of one token behind 64."""
    ours = layer_of(d_model=width, num_heads=4).eval()
    k, v = (torch.randn(1, 4, PROMPT, ours.head_dim) for _ in range(2))
    capacity = PROMPT + STEPS
    kept = cache.Growing() if kind == "Growing" else cache.Static(1, 4, capacity, ours.head_dim)
    kept.append(k, v)
    x, hand = torch.randn(1, 1, width), Decoder(ours, k, v, capacity)

    def ours_job() -> tuple[Tensor, ...]:
        out = x
        for _ in range(STEPS):
            out = ours(x, mask=mask.causal(), cache=kept)
        kept.crop(PROMPT)
        return (out,)

    def hand_job() -> tuple[Tensor, ...]:
        out = x
        for _ in range(STEPS):
            out = hand(x)
        hand.reset()
        return (out,)

    return Work(_without_grad(ours_job), {HAND: _without_grad(hand_job)}, {HAND: least}, same=same, small=True)


def generate(steps: int, layers: int, width: int, *, least: float) -> Work:
    """A loop of one token after another through several layers: x → x + attention(norm(x))."""
    made = [layer_of(d_model=width, num_heads=4).eval() for _ in range(layers)]
    head_dim = made[0].head_dim
    first, norm = torch.randn(1, 1, width), nn.LayerNorm(width).eval()
    caches = [cache.Static(1, 4, steps, head_dim) for _ in made]
    empty = torch.zeros(1, 4, 0, head_dim)
    by_hand = [Decoder(layer, empty, empty, steps) for layer in made]

    def ours_job() -> tuple[Tensor, ...]:
        x = first
        for _ in range(steps):
            for layer, kept in zip(made, caches, strict=True):
                x = x + layer(norm(x), mask=mask.causal(), cache=kept)
        for kept in caches:
            kept.reset()
        return (x,)

    def hand_job() -> tuple[Tensor, ...]:
        x = first
        for _ in range(steps):
            for layer in by_hand:
                x = x + layer(norm(x))
        for layer in by_hand:
            layer.reset()
        return (x,)

    return Work(_without_grad(ours_job), {HAND: _without_grad(hand_job)}, {HAND: least}, same=same, small=True)


def _without_grad(job: Job) -> Job:
    def run() -> object:
        with torch.no_grad():
            return job()

    return run
