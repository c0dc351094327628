"""What the checks share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import multihead as mh
from multihead.layer import init


def layer(width: int, heads: int, **kwargs: object) -> mh.MultiHeadAttention:
    """The same weights on all ranks, scores with a spread of a few units, no bias of zero."""
    torch.manual_seed(7)
    attn = mh.MultiHeadAttention(width, heads, init=init.XavierPerHead(2.0), **kwargs)  # type: ignore[arg-type]
    draw(attn)
    return attn.to(torch.get_default_dtype())  # a position may be older than the default


@torch.no_grad()
def draw(module: nn.Module) -> None:
    """Numbers for what begins as zeros or ones."""
    for name, p in module.named_parameters():
        if p.ndim == 1 or name.startswith("position"):
            p.add_(torch.randn_like(p))


def tokens(width: int, seed: int, rows: int = 2, length: int = 11) -> Tensor:
    return torch.randn(rows, length, width, generator=torch.Generator().manual_seed(seed))


def whole(x: Tensor | None) -> Tensor:
    assert x is not None
    return x.full_tensor() if isinstance(x, DTensor) else x


@contextlib.contextmanager
def refused(*words: str) -> Iterator[None]:
    """The block raises an error of ours that says all the words."""
    try:
        yield
    except mh.MultiheadError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"nothing was refused, expected: {words}")
