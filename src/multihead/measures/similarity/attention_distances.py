"""Mean √JS of the attention rows of two heads: 0 if they attend identically, 1 if to disjoint keys.

JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m) with m = (p + q) / 2, in bits; its root is a metric (Endres & Schindelin 2003).
Rows are computed from q and k in small blocks, all heads at once, and never as a whole map. At most `ROWS` query
positions of a batch are used, drawn from (seed, index of the batch), so the cost is linear in tokens.

>>> import torch
>>> from multihead.measures.similarity.attention_distances import distances
>>> p = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]]])          # head, row, key
>>> distances(p)[..., 0].tolist()
[[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead.corpus.batch_generator import batch_generator
from multihead.layer import Problem, weights_of
from multihead.layer._problem import autocast_disabled
from multihead.layer.outputs import Cells

ROWS = 64
"""Query positions used per batch."""

BYTES = 32 << 20
"""Memory for a block of rows."""


def distances(p: Float[Tensor, "head row key"]) -> Float[Tensor, "head other row"]:
    """Distances √JS of the attention rows of every two heads; exactly 0 for equal rows."""
    heads, rows, _ = p.shape
    p = p.double()
    entropy = torch.special.entr(p)  # −p log p
    result = torch.zeros(heads, heads, rows, dtype=torch.float64, device=p.device)
    for i in range(heads - 1):
        mixed = torch.special.entr((p[i] + p[i + 1 :]) / 2)
        bits = mixed.sub_((entropy[i] + entropy[i + 1 :]) / 2).sum(-1).clamp_(min=0) / math.log(2)
        result[i, i + 1 :] = result[i + 1 :, i] = bits.sqrt().clamp_(max=1.0)
    return result


class AttentionDistances:
    """Sums of the distances over rows, for all heads of attentions with the same keys."""

    def __init__(self, heads: int, *, rows: int = ROWS, seed: int = 0) -> None:
        self.rows, self.seed = rows, seed
        self.total: Float[Tensor, "head other"] = torch.zeros(heads, heads, dtype=torch.float64)
        self.count: Int[Tensor, ""] = torch.zeros((), dtype=torch.long)

    def add(self, problems: Sequence[Problem], real: Bool[Tensor, "batch query"], index: int) -> None:
        """Add attention distances of one batch: the problem of each attention; `real` queries are not padding."""
        for p, real_rows in self._blocks(problems, real, index):
            nonempty = p.sum(-1) > 0  # False for rows without a visible key, and for NaN
            used = real_rows & nonempty.all(0)
            if bool(used.any()):
                self.total += distances(p[:, used]).sum(-1).cpu()
                self.count += int(used.sum())

    def _blocks(
        self, problems: Sequence[Problem], real: Bool[Tensor, "batch query"], index: int
    ) -> Iterator[tuple[Float[Tensor, "head row key"], Bool[Tensor, " row"]]]:
        """Blocks of attention rows of all heads, drawn at random from a batch."""
        size = problems[0].coordinates
        order = torch.randperm(size.queries, generator=batch_generator(self.seed, index))
        positions = order[: self.rows].sort().values.tolist()
        bytes_per_row = size.batch * size.keys * len(self.total) * 8 * 4
        step = max(1, BYTES // max(bytes_per_row, 1))
        for start in range(0, len(positions), step):
            rows = positions[start : start + step]
            parts: list[Tensor] = []
            for problem in problems:
                with autocast_disabled(problem.q.device):
                    w = weights_of(problem, Cells(rows=rows)).double()  # batch, head, row, key
                sink = (1 - w.sum(-1, keepdim=True)).clamp_min(0.0)
                if problem.scores.sinks is None:
                    sink = torch.zeros_like(sink)
                parts.append(torch.cat([w, sink], dim=-1).transpose(0, 1).flatten(1, 2))
            yield torch.cat(parts), real[:, rows].flatten()

    def mean(self) -> Float[Tensor, "head other"]:
        """The mean distance; NaN if no row was added."""
        return self.total / self.count if int(self.count) else torch.full_like(self.total, torch.nan)

    def merge(self, later: AttentionDistances) -> None:
        """Add the sums over later rows."""
        self.total, self.count = self.total + later.total, self.count + later.count

    def state(self) -> dict[str, Any]:
        return {"total": self.total.clone(), "count": self.count.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.total, self.count = state["total"].clone(), state["count"].clone()
