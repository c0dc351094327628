"""The sizes of a layer, and FLOPs and bytes counted while a layer of these sizes runs.

>>> from multihead.statements.layer_shape import LayerShape
>>> shape = LayerShape(d_model=30, key_dim=5, value_dim=5, kv_of_head=(0, 0, 0, 1, 1, 1), kv_heads=2, tokens=11)
>>> shape.flops(11)["attention"]
14520
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from multihead.layer.attention import MultiHeadAttention
from multihead.measures.cost.spec import Spec

CELLS = 1 << 21
"""(head, query, key) cells of the largest attention map that is written out to count its bytes."""


@dataclass(frozen=True)
class LayerShape:
    """All that statements about cost depend on: two layers of one shape have one result."""

    d_model: int
    key_dim: int
    value_dim: int
    kv_of_head: tuple[int, ...]
    kv_heads: int
    tokens: int
    """of the longest sequence in the sample"""

    @property
    def heads(self) -> int:
        return len(self.kv_of_head)

    @property
    def spec(self) -> Spec:
        return Spec(self.d_model, self.heads, self.kv_heads, self.key_dim, self.value_dim)

    @property
    def head_counts(self) -> list[int]:
        """Numbers of heads that divide the total width of keys and of values."""
        widths = self.heads * self.key_dim, self.heads * self.value_dim
        return [h for h in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if all(w % h == 0 for w in widths)]

    def layer(self, heads: int | None = None, d_model: int | None = None) -> MultiHeadAttention:
        """A layer of this shape without memory; with a different number of `heads`, of the same total width."""
        h = self.heads if heads is None else heads
        return MultiHeadAttention(
            self.d_model if d_model is None else d_model,
            h,
            head_dim=max(self.key_dim * self.heads // h, 1),
            value_dim=max(self.value_dim * self.heads // h, 1),
            num_kv_heads=self.kv_heads if heads is None else None,
            kv_of_head=self.kv_of_head if heads is None else None,
            bias=False,
            device="meta",
        )

    def flops(self, tokens: int, heads: int | None = None) -> dict[str, int]:
        """FLOPs of one sequence, by torch's counter: of the whole layer, and of q kᵀ and P v alone."""
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            self.layer(heads)(torch.empty(1, tokens, self.d_model, device="meta"), route="reference")
        counts = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
        return {"all": sum(counts.values()), "attention": counts.get("aten.bmm", 0)}

    def bytes(self, tokens: int, route: str, heads: int | None = None) -> int:
        """The most bytes alive while a layer of this shape runs on one sequence, without weights and input.

        d_model is at most 256: the memory between the projections does not depend on it.
        """
        layer = self.layer(heads, d_model=min(self.d_model, 256)).to_empty(device="cpu")
        for weight in layer.parameters():
            torch.nn.init.zeros_(weight)
        x = torch.zeros(1, tokens, layer.d_model)
        with torch.no_grad(), LiveBytes(iter((*layer.parameters(), x))) as live:
            layer(x, route=route)
        return live.peak

    def map_size(self, heads: int) -> int:
        """The largest power of two whose maps have at most `CELLS` cells."""
        return 2 ** int(math.log2(math.sqrt(CELLS / heads)))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """How a count grows with the shape: the slope of log value over log size; 0 for one size."""
    if len(sizes) < 2:
        return 0.0
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-300)), 1)[0])


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive at once, apart from those that exist `before`.

    Memory that a kernel allocates internally is not seen; the fused one on a CPU keeps a few blocks per thread.
    """

    def __init__(self, before: Iterator[Tensor]) -> None:
        super().__init__()
        self.before = {_storage(t) for t in before}
        self.alive: dict[int, tuple[Any, int]] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.alive = {key: (ref, size) for key, (ref, size) in self.alive.items() if not ref.expired()}
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and _storage(tensor) not in self.before:
                storage = tensor.untyped_storage()
                self.alive[_storage(tensor)] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return out


def _storage(tensor: Tensor) -> int:
    """The memory of a tensor: its views have the same."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
