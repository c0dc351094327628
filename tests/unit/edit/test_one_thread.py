"""Threads that plan and cut the same model at once get what they would get alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh


def test_two_threads_cut_one_model() -> None:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=3, n_head=4, n_embd=24, vocab_size=50, initializer_range=0.3)
    model = GPT2LMHeadModel(config).eval()
    texts = [[(7 * i + j * j) % 50 for j in range(20)] for i in range(24)]

    def planned_and_cut(_: int) -> Any:
        return mh.cut(model, mh.plan(model, texts, keep=0.5, min_heads=1))

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(planned_and_cut, range(2)))
    alone = planned_and_cut(0)
    for small in both:
        torch.testing.assert_close(small.state_dict(), alone.state_dict())
    assert all(p.requires_grad for p in model.parameters())
    assert not any(hooks(m) for m in (model, *both))


def hooks(model: nn.Module) -> list[str]:
    """The modules with hooks."""
    return [name for name, m in model.named_modules() if m._forward_hooks or m._forward_pre_hooks]
