"""What may be spent: a share of the heads, of the FLOPs, or of the KV cache's bytes.

A budget looks at a model once and makes a `Ledger`, which says what any choice of heads costs.

>>> from multihead.edit.choosing.budget import Heads, parse
>>> parse("cache=0.5"), parse("flops=0.8")
(CacheBytes(share=0.5), Flops(share=0.8))
>>> import torch, multihead as mh
>>> layers = mh.anatomy(torch.nn.TransformerEncoderLayer(24, 3, batch_first=True))
>>> ledger = Heads(0.5).ledger(None, layers, None)
>>> ledger.whole, ledger.of({"L0": (0, 2)}), ledger.limit
(3.0, 2.0, 1.5)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import nn

from multihead.edit.calibration import Calibration
from multihead.edit.writers import linear_maps
from multihead.errors import SizeError
from multihead.model.anatomy import LayerAnatomy

Kept = Mapping[str, Sequence[int]]
"""The query heads that stay, by the name of their layer."""
Spent = Callable[[Kept], float]
"""What a choice of heads costs."""


@dataclass(frozen=True)
class Ledger:
    """`of(kept)`: what a choice of heads costs; `whole` all of them, `limit` what may be spent."""

    of: Spent
    whole: float
    limit: float
    unit: str


@runtime_checkable
class Budget(Protocol):
    """A share of something that heads cost."""

    @property
    def share(self) -> float: ...

    def ledger(self, model: Any, layers: Sequence[LayerAnatomy], calibration: Any) -> Ledger: ...


def _ledger(layers: Sequence[LayerAnatomy], of: Spent, share: float, unit: str) -> Ledger:
    whole = of({layer.name: range(layer.num_heads) for layer in layers})
    return Ledger(of, whole, share * whole, unit)


@dataclass(frozen=True)
class _Share:
    share: float
    word: ClassVar[str] = "share"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SizeError(
                f"{self.word}={self.share:g} is no share of the original",
                hint="above 0 and at most 1: 0.5 is half of it",
            )


class Heads(_Share):
    """A share of the query heads: what `keep` spends."""

    word = "keep"

    def ledger(self, model: Any, layers: Sequence[LayerAnatomy], calibration: Any) -> Ledger:
        """Heads are counted."""

        def of(kept: Kept) -> float:
            return float(sum(len(kept[layer.name]) for layer in layers))

        return _ledger(layers, of, self.share, "heads")


class Flops(_Share):
    """A share of the FLOPs of the whole model, at the mean length of the calibration documents.

    A head costs its rows of W_Q and its columns of W_O, a kv head its rows of W_K and W_V, a pair of tokens
    2 (key_dim + value_dim). What the heads do not touch (feed-forwards, output layer) stays: there is a floor.
    """

    word = "flops"

    def ledger(self, model: nn.Module, layers: Sequence[LayerAnatomy], calibration: Calibration) -> Ledger:
        """FLOPs per token."""
        length = calibration.tokens / max(calibration.documents_to_fit - calibration.spliced, 1)
        maps = linear_maps(model, next(calibration.fit()))
        sizes = {name: p.numel() for name, p in model.named_parameters()}
        every = float(sum(2 * sizes[name] for name in maps if name is not None))
        rest = every - sum(_flops(x, range(x.num_heads), 0.0) for x in layers)

        def of(kept: Kept) -> float:
            return max(rest, 0.0) + sum(_flops(x, kept[x.name], length) for x in layers)

        made = _ledger(layers, of, self.share, "FLOPs per token")
        floor = of({layer.name: () for layer in layers})
        if floor > made.limit:
            raise SizeError(
                f"flops={self.share:g} cannot be reached by heads: without any the model still has "
                f"{floor / made.whole:.2f} of its FLOPs",
                hint=f"choose at least {floor / made.whole + 0.005:.2f}",
            )
        return made


class CacheBytes(_Share):
    """A share of the bytes of the KV cache: kv heads × (key_dim + value_dim) numbers per token and layer."""

    word = "cache"

    def ledger(self, model: Any, layers: Sequence[LayerAnatomy], calibration: Any) -> Ledger:
        """Bytes per token; a kv head goes with the last query head that reads it."""
        for layer in layers:
            layer.require("a budget of cache bytes", direct=True)  # it caches the latent vector, which heads share

        def of(kept: Kept) -> float:
            return float(
                sum(_kv(x, kept[x.name]) * (x.key_dim + x.value_dim) * x.W_K[0].element_size() for x in layers)
            )

        return _ledger(layers, of, self.share, "bytes per token")


BUDGETS: dict[str, type[_Share]] = {kind.word: kind for kind in (Flops, CacheBytes)}


def parse(text: str) -> Any:
    """The budget of "flops=0.8"."""
    name, sign, number = text.partition("=")
    kind = BUDGETS.get(name.strip().lower())
    try:
        share = float(number)
    except ValueError:
        share = None
    if kind is None or not sign or share is None:
        raise SizeError(
            f"{text!r} is no budget",
            hint=f"one of {', '.join(f'{n}=0.8' for n in BUDGETS)}: a share of the original",
        )
    return kind(share)


def _kv(layer: LayerAnatomy, heads: Sequence[int]) -> int:
    """kv heads that somebody still reads."""
    return len({layer.groups.kv_of_head[h] for h in heads})


def _flops(layer: LayerAnatomy, heads: Sequence[int], length: float) -> float:
    """FLOPs per token of a layer with these heads, at a length."""
    width = {letter: parts[0].shape[1] for letter, parts in (("q", layer.W_Q), ("k", layer.W_K), ("v", layer.W_V))}
    rows = layer.W_O[0].shape[0]
    gate = 0 if layer.W_G is None else layer.W_G[0].numel()
    each = 2 * layer.key_dim * width["q"] + 2 * rows * layer.value_dim + 2 * gate
    each += 2 * length * (layer.key_dim + layer.value_dim)
    shared = 2 * layer.W_K[0].shape[0] * width["k"] + 2 * layer.value_dim * width["v"]
    return len(heads) * each + _kv(layer, heads) * shared
