"""The variants of the layer that compilers and exporters must take: how to build one, and how to call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from multihead import mask, position
from multihead.layer import Ask, AttentionOutput, Cells, QKNorm, Sinks, init

BATCH, TOKENS, WIDTH, HEADS = 3, 11, 30, 6  # heads of 5


def _nothing() -> tuple[Tensor, ...]:
    return ()


@dataclass(frozen=True)
class Variant:
    """A layer, and a call of it with tensors beside x that a graph has to take as inputs."""

    call: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)
    beside: Callable[[], tuple[Tensor, ...]] = _nothing

    def layer(self, **options: Any) -> mh.MultiHeadAttention:
        """With scores that have a spread of a few units, so that a wrong mask or scale shows."""
        attn = mh.MultiHeadAttention(WIDTH, HEADS, init=init.XavierPerHead(2.0), **self.options, **options)
        for name, parameter in attn.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(parameter)
        return attn

    def inputs(self, batch: int = BATCH) -> tuple[Tensor, ...]:
        return torch.randn(batch, TOKENS, WIDTH), *self.beside()


class Called(nn.Module):
    """The call as a module, as exporters want it: masks are made inside, tensors come in."""

    def __init__(self, variant: Variant, attn: nn.Module) -> None:
        super().__init__()
        self.attn = attn
        self.call = variant.call

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(self.attn, *inputs)


def _causal(attn: nn.Module, x: Tensor) -> Tensor:
    return attn(x, mask=mask.causal())


def _ids() -> tuple[Tensor, ...]:
    return (torch.tensor([0] * 5 + [1] * 4 + [-1] * 2),)


VARIANTS: dict[str, Variant] = {
    "plain": Variant(lambda attn, x: attn(x)),
    "causal": Variant(_causal),
    "unbatched": Variant(lambda attn, x: attn(x[0], mask=mask.causal())),
    "cross": Variant(lambda attn, x, y: attn(x, y), beside=lambda: (torch.randn(BATCH, 7, WIDTH),)),
    "grouped rotary": Variant(_causal, {"num_kv_heads": 2, "head_dim": 8, "position": position.Rotary()}),
    "interleaved rotary": Variant(_causal, {"head_dim": 8, "position": position.Rotary(interleaved=True, dim=4)}),
    "positions": Variant(
        lambda attn, x, at: attn(x, mask=mask.causal(), positions=at),
        {"head_dim": 8, "position": position.Rotary()},
        lambda: (torch.arange(TOKENS) + 5,),
    ),
    "uneven groups": Variant(_causal, {"kv_of_head": [0, 0, 0, 1, 2, 1]}),
    "value size": Variant(_causal, {"head_dim": 4, "value_dim": 7}),
    "qk norm": Variant(_causal, {"qk_norm": QKNorm()}),
    "window": Variant(lambda attn, x: attn(x, mask=mask.window(4))),
    "window both ways": Variant(lambda attn, x: attn(x, mask=mask.window(3, 2, first=2))),
    "lengths": Variant(
        lambda attn, x, n: attn(x, mask=mask.causal() & mask.lengths(n)), beside=lambda: (torch.tensor([11, 5, 0]),)
    ),
    "lengths as a list": Variant(lambda attn, x: attn(x, mask=mask.lengths([11, 5, 0]))),
    "ragged": Variant(
        lambda attn, x, n: attn(x, mask=mask.causal() & mask.ragged(n)), beside=lambda: (torch.tensor([11, 5, 0]),)
    ),
    "padding": Variant(
        lambda attn, x, real: attn(x, mask=mask.padding(real)), beside=lambda: (torch.rand(BATCH, TOKENS) > 0.4,)
    ),
    "documents": Variant(lambda attn, x, ids: attn(x, mask=mask.causal() & mask.documents(ids)), beside=_ids),
    "document offsets": Variant(
        lambda attn, x, at: attn(x, mask=mask.documents(offsets=at)), beside=lambda: (torch.tensor([0, 3, 7, 11]),)
    ),
    "document offsets as a list": Variant(lambda attn, x: attn(x, mask=mask.documents(offsets=[0, 3, 7, 11]))),
    "or": Variant(lambda attn, x, ids: attn(x, mask=mask.causal() | mask.documents(ids)), beside=_ids),
    "prefix": Variant(lambda attn, x, n: attn(x, mask=mask.prefix(n)), beside=lambda: (torch.tensor([3, 0, 5]),)),
    "where": Variant(
        lambda attn, x: attn(x, mask=mask.where(lambda batch, head, query, key: (query - key) % 3 == head % 2))
    ),
    "bool mask": Variant(
        lambda attn, x, cells: attn(x, mask=cells),
        beside=lambda: (torch.rand(BATCH, HEADS, TOKENS, TOKENS) > 0.5,),
    ),
    "additive": Variant(
        lambda attn, x, scores: attn(x, mask=scores),
        {"num_kv_heads": 2},
        lambda: (torch.randn(TOKENS, TOKENS).masked_fill(torch.rand(TOKENS, TOKENS) > 0.8, -torch.inf),),
    ),
    "ALiBi": Variant(_causal, {"position": position.ALiBi(HEADS)}),
    "learned ALiBi": Variant(_causal, {"position": position.ALiBi(HEADS, learned=True)}),
    "relative bias": Variant(
        lambda attn, x: attn(x), {"position": position.RelativeBias(HEADS, buckets=8, max_distance=16)}
    ),
    "softcap": Variant(_causal, {"softcap": 2.0}),
    "sinks": Variant(_causal, {"sinks": Sinks(1.0)}),
    "sinks without a mask": Variant(lambda attn, x: attn(x), {"sinks": Sinks(1.0)}),
    "head gate": Variant(lambda attn, x, gate: attn(x, head_gate=gate), beside=lambda: (torch.rand(HEADS),)),
    "ask": Variant(lambda attn, x: attn(x, mask=mask.causal(), ask=("weights", "lse", "heads"))),
    "ask for cells": Variant(
        lambda attn, x: attn(x, mask=mask.causal(), ask=Ask(weights=Cells(heads=[1, 3], rows=[2, -1])))
    ),
}


def tensors_of(result: Tensor | AttentionOutput) -> list[Tensor]:
    """Everything that came back."""
    if isinstance(result, Tensor):
        return [result]
    return [t for t in (result.out, result.weights, result.lse, result.heads) if t is not None]
