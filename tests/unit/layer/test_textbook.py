"""Textbook modules: read by their names, stood in for, and their masks of 0 and 1."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from multihead import interop, mask
from multihead.errors import MultiheadError, SizeError, TypeMismatchError

BATCH, HEADS, TOKENS, KEYS = 3, 6, 7, 11


@pytest.fixture(autouse=True)
def _double(fp64: None) -> None:
    """Every test of this file is in float64."""


class Written(nn.Module):
    """softmax(q kᵀ / √d) v as a tutorial writes it, under that tutorial's names."""

    def __init__(self, names: str, heads_name: str, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        setattr(self, heads_name, HEADS)
        self.names, self.heads = names.split(), HEADS
        if names == "linears":
            self.linears = nn.ModuleList(nn.Linear(30, 30, bias=bias) for _ in range(4))
        else:
            for name in self.names:
                setattr(self, name, nn.Linear(30, 30, bias=bias))
        for p in self.parameters():
            nn.init.normal_(p, std=1.3 * 30**-0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        linear = [*self.linears] if self.names == ["linears"] else [getattr(self, n) for n in self.names]
        q, k, v = (
            f(x).view(len(x), -1, self.heads, 30 // self.heads).transpose(1, 2)
            for f, x in zip(linear, (q, k, v), strict=False)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(30 // self.heads)
        if mask is not None:
            mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = self.dropout(F.softmax(scores, dim=-1))
        return linear[3]((weights @ v).transpose(1, 2).flatten(2))


TEXTBOOKS = [
    ("W_q W_k W_v W_o", "num_heads"),
    ("w_q w_k w_v w_o", "n_heads"),
    ("w_q w_k w_v w_concat", "n_head"),
    ("q_linear k_linear v_linear out", "h"),
    ("linears", "h"),
    ("fc_q fc_k fc_v fc_o", "n_heads"),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("names, heads_name", TEXTBOOKS)
def test_textbook_modules(names: str, heads_name: str, bias: bool) -> None:
    theirs = Written(names, heads_name, bias=bias, dropout=0.25).eval()
    ours = interop.from_module(theirs)
    assert (ours.dropout, ours.training, ours.num_heads) == (0.25, False, HEADS)
    layer = interop.Textbook.holding(ours)
    x, y = torch.randn(BATCH, TOKENS, 30), torch.randn(BATCH, KEYS, 30)
    seen = (torch.rand(BATCH, 1, 1, KEYS) < 0.6).int()
    seen[..., 0] = 1
    assert_close(layer(x, y, y, seen), theirs(x, y, y, seen))
    causal = torch.ones(1, TOKENS, TOKENS).tril()
    assert_close(layer(x, x, x, causal), theirs(x, x, x, causal))
    assert_close(ours(x, mask=mask.causal()), theirs(x, x, x, causal))


@pytest.mark.parametrize("names, heads_name", TEXTBOOKS)
def test_textbook_checkpoints_load_unchanged(names: str, heads_name: str) -> None:
    theirs = nn.Sequential(Written(names, heads_name))
    ours = nn.Sequential(interop.Textbook(30, HEADS))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(BATCH, TOKENS, 30)
    assert_close(ours[0](x, x, x), theirs[0](x, x, x))
    again = nn.Sequential(interop.Textbook(30, HEADS))
    again.load_state_dict(ours.state_dict())
    assert_close(again[0](x, x, x), theirs[0](x, x, x))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32])
@pytest.mark.parametrize(
    "shape",
    [(BATCH, 1, 1, KEYS), (BATCH, 1, TOKENS, KEYS), (BATCH, HEADS, TOKENS, KEYS), (1, TOKENS, KEYS),
     (BATCH, TOKENS, KEYS), (BATCH, 1, KEYS), (TOKENS, KEYS)],
)  # fmt: skip
def test_textbook_mask(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    seen = torch.rand(shape) < 0.5
    written = interop.textbook_mask(seen.to(dtype)).tensor(TOKENS, KEYS, batch=BATCH, heads=HEADS)
    cells = seen.unsqueeze(1) if seen.ndim == 3 else seen
    assert torch.equal(written, cells.expand(BATCH, HEADS, TOKENS, KEYS))


def test_textbook_padding_keeps_its_structure() -> None:
    assert str(interop.textbook_mask(torch.ones(BATCH, 1, 1, KEYS))) == str(
        mask.padding(torch.ones(BATCH, KEYS) > 0)
    )


def test_a_textbook_row_of_zeros_gives_zeros() -> None:
    layer = interop.Textbook(30, HEADS)
    x = torch.randn(BATCH, TOKENS, 30)
    out = layer(x, x, x, torch.zeros(TOKENS, TOKENS))
    assert_close(out, layer.attn.o_proj.bias.expand_as(out))


def _said(error: type[MultiheadError], words: list[str], call: Any) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.hint


def test_modules_that_are_no_textbook() -> None:
    module: Any = Written("W_q W_k W_v W_o", "h")
    module.h = 5
    _said(SizeError, ["'heads': 6", "'h': 5", "num_heads="], lambda: interop.from_module(module))
    assert interop.from_module(module, num_heads=HEADS).num_heads == HEADS
    module.norm = nn.LayerNorm(30)
    _said(SizeError, ["norm.weight", "strict=False"], lambda: interop.from_module(module, num_heads=HEADS))
    module.config = object()
    _said(TypeMismatchError, ["Written has a config", "position="], lambda: interop.from_module(module))


def test_masks_that_are_no_textbook() -> None:
    _said(SizeError, ["holds 0 (hidden) and 1", "-1000000000.0", "additive"],
          lambda: interop.textbook_mask(torch.tensor([[0.0, -1e9], [0.0, 0.0]])))  # fmt: skip
    _said(SizeError, ["2 to 4 dimensions", "(5,)"], lambda: interop.textbook_mask(torch.ones(5)))
