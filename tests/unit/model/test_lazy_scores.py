"""Every step of attention by hand that is understood, each with the map it stands for; and those that are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import multihead as mh
from multihead.model import adapter
from multihead.model.lazy_scores import lazily

BATCH, HEADS, TOKENS, DIM = 2, 3, 7, 5
LOWEST = torch.finfo(torch.float32).min


class ByHand(nn.Module):
    """Attention with any steps between q kᵀ and p v; `bias` and `hidden` are inputs of these steps."""

    def __init__(self, weights: Callable[[ByHand, Tensor, Tensor], Tensor], *, flat: bool = False) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(HEADS * DIM, 3 * HEADS * DIM), nn.Linear(HEADS * DIM, HEADS * DIM)
        self.num_heads = HEADS
        self.weights, self.flat = weights, flat
        generator = torch.Generator().manual_seed(2)
        self.bias = torch.randn(BATCH, HEADS, TOKENS, TOKENS, generator=generator)
        self.hidden = torch.rand(BATCH, 1, TOKENS, TOKENS, generator=generator) < 0.3
        self.hidden[..., 0] = False
        self.last: Tensor | None = None
        for p in self.parameters():
            nn.init.normal_(p, std=0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        if self.flat:
            q, k, v = (y.reshape(-1, TOKENS, DIM) for y in (q, k, v))
        weights = self.weights(self, q, k)
        self.last = weights
        z = torch.bmm(weights, v) if self.flat else weights @ v
        return self.out(z.reshape(BATCH, HEADS, TOKENS, DIM).transpose(1, 2).flatten(2))


@adapter(ByHand)
def forward(module: ByHand, attend: Callable[..., Tensor], x: Tensor) -> Tensor:
    return lazily(module, attend, "forward", x)


def in_place(m: ByHand, q: Tensor, k: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores /= math.sqrt(DIM)
    scores += m.bias
    scores.masked_fill_(m.hidden, LOWEST)
    return scores.softmax(-1)


def viewed(m: ByHand, q: Tensor, k: Tensor) -> Tensor:
    """Batch and heads in one axis, but for the mask: as in BART's descendants."""
    scores = torch.bmm(q, k.transpose(1, 2)).view(BATCH, HEADS, TOKENS, TOKENS) + m.bias
    scores = torch.max(scores, torch.tensor(LOWEST)).view(BATCH * HEADS, TOKENS, TOKENS)
    return F.softmax(scores, dim=-1)


def windows(m: ByHand, q: Tensor, k: Tensor) -> Tensor:
    """A mask for each window, the same for every image: as in Swin."""
    scores = (q @ k.mT).view(1, BATCH, HEADS, TOKENS, TOKENS) + m.bias[:, :1].unsqueeze(0)
    return scores.view(-1, HEADS, TOKENS, TOKENS).softmax(dim=-1)


STEPS: dict[str, ByHand] = {
    "scaled": ByHand(lambda m, q, k: F.softmax(q @ k.mT / math.sqrt(DIM), dim=-1)),
    "bias then scaled": ByHand(lambda m, q, k: ((q @ k.mT + m.bias) * 0.7).softmax(-1)),
    "a number for each head": ByHand(lambda m, q, k: (q @ k.mT * m.bias[:1, :, :1, :1] + m.bias).softmax(-1)),
    "minus": ByHand(lambda m, q, k: (q @ k.mT - m.bias).softmax(3)),
    "bias first": ByHand(lambda m, q, k: (m.bias + q @ k.mT + 0).softmax(-1)),
    "where": ByHand(lambda m, q, k: torch.where(~m.hidden, q @ k.mT, torch.tensor(LOWEST)).softmax(-1)),
    "where not": ByHand(lambda m, q, k: torch.where(m.hidden, -torch.inf, q @ k.mT).softmax(-1)),
    "float": ByHand(lambda m, q, k: F.softmax((q @ k.mT).float(), dim=-1, dtype=torch.float32).type_as(q)),
    "einsum": ByHand(lambda m, q, k: torch.einsum("bhid,bhjd->bhij", [q, k]).softmax(-1)),
    "filled twice": ByHand(
        lambda m, q, k: (q @ k.mT).masked_fill(m.hidden, -torch.inf).softmax(-1).masked_fill(m.hidden, 0.0)
    ),
    "clamped": ByHand(lambda m, q, k: (q @ k.mT + m.bias).clamp(min=LOWEST).softmax(-1)),
    "in place": ByHand(in_place),
    "viewed": ByHand(viewed, flat=True),
    "baddbmm": ByHand(
        lambda m, q, k: m.bias.flatten(0, 1).baddbmm(q, k.mT, beta=0.5, alpha=0.3).softmax(-1), flat=True
    ),
    "windows": ByHand(windows),
}

UNKNOWN = {
    "talking heads": ByHand(
        lambda m, q, k: (q @ k.mT).permute(0, 2, 3, 1).cumsum(-1).permute(0, 3, 1, 2).softmax(-1)
    ),
    "a factor for each key": ByHand(lambda m, q, k: (q @ k.mT * m.bias).softmax(-1)),
    "softmax over queries": ByHand(lambda m, q, k: (q @ k.mT).softmax(-2)),
    "no softmax": ByHand(lambda m, q, k: (q @ k.mT).relu()),
    "one long row": ByHand(lambda m, q, k: (q @ k.mT).view(-1).softmax(-1).view(m.bias.shape)),
    "weights changed": ByHand(lambda m, q, k: (q @ k.mT).softmax(-1) * 0.5),
    "some weights filled": ByHand(lambda m, q, k: (q @ k.mT).softmax(-1).masked_fill(m.hidden, 0.0)),
}


def x() -> Tensor:
    return torch.randn(BATCH, TOKENS, HEADS * DIM, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", STEPS)
def test_steps(name: str) -> None:
    model = STEPS[name]
    with torch.no_grad():
        expected = model(x())
        assert model.last is not None
        own = model.last.view(BATCH, HEADS, TOKENS, TOKENS)
        with mh.capture(model, keep="qk") as heads:
            result = model(x())
    assert_close(result, expected)
    maps = torch.stack([heads[0, head].weights() for head in range(HEADS)], 1)
    assert_close(maps, own)
    hides = name in ("where", "where not", "filled twice", "in place")
    visible = (~model.hidden).sum(-1).float().mean() if hides else torch.tensor(float(TOKENS))
    assert_close(heads[0, 1].mean("visible"), float(visible))


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_steps_are_refused(name: str) -> None:
    model = UNKNOWN[name]
    with torch.no_grad(), pytest.raises(mh.MultiheadError, match=r"ByHand is not softmax\(q kᵀ \+ bias\) v"):
        with mh.capture(model):
            model(x())
    assert "forward" not in vars(model)


def test_gradients_are_those_of_the_module() -> None:
    model = deepcopy(STEPS["bias then scaled"]).double()
    gradients: list[Tensor] = []
    for inside in (False, True):
        model.zero_grad()
        if inside:
            with mh.capture(model):
                model(x().double()).square().sum().backward()
        else:
            model(x().double()).square().sum().backward()
        assert model.qkv.weight.grad is not None
        gradients.append(model.qkv.weight.grad.clone())
    assert_close(gradients[1], gradients[0])


def test_autocast() -> None:
    """Inside, rounding costs no more than twice what it costs the module itself."""
    model = STEPS["scaled"]
    with torch.no_grad():
        exact = model(x())
        with torch.autocast("cpu", torch.bfloat16):
            rounded = model(x())
            with mh.capture(model):
                result = model(x())
    assert result.dtype == rounded.dtype == torch.bfloat16
    assert float((result - exact).abs().max()) <= 2 * float((rounded - exact).abs().max())
