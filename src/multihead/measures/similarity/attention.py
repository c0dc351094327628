"""√JS of the attention of two heads, the mean over rows: 0 where they look at the same, 1 where at nothing both.

JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m) with m = (p + q) / 2, in bits; its root is a metric (Endres & Schindelin 2003).
Rows are computed from q and k in small blocks of all heads at once: never a whole map. At most `ROWS` query places
of a batch are looked at, drawn from (seed, index of the batch), so that the cost is linear in tokens.

>>> import torch
>>> from multihead.measures.similarity.attention import distances
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
from multihead.layer.ask import Cells, weights_of
from multihead.layer.problem import Problem, own_precision

ROWS = 64
"""Query places of a batch that are looked at."""

BYTES = 32 << 20
"""Memory of a block of rows."""


def distances(p: Float[Tensor, "head row key"]) -> Float[Tensor, "head other row"]:
    """√JS of every pair of heads in every row; 0 exactly where two rows are the same numbers."""
    heads, rows, _ = p.shape
    p = p.double()
    own = torch.special.entr(p)  # −p log p
    found = torch.zeros(heads, heads, rows, dtype=torch.float64, device=p.device)
    for i in range(heads - 1):
        between = torch.special.entr((p[i] + p[i + 1 :]) / 2)
        bits = between.sub_((own[i] + own[i + 1 :]) / 2).sum(-1).clamp_(min=0) / math.log(2)
        found[i, i + 1 :] = found[i + 1 :, i] = bits.sqrt().clamp_(max=1.0)
    return found


class AttentionDistances:
    """Sums over rows of the distances of all heads of some attentions that look at the same keys."""

    def __init__(self, heads: int, *, rows: int = ROWS, seed: int = 0) -> None:
        self.rows, self.seed = rows, seed
        self.total: Float[Tensor, "head other"] = torch.zeros(heads, heads, dtype=torch.float64)
        self.count: Int[Tensor, ""] = torch.zeros((), dtype=torch.long)

    def add(self, problems: Sequence[Problem], real: Bool[Tensor, "batch query"], index: int) -> None:
        """Take in one batch: what the kernel saw in each attention, and which queries are no padding."""
        for p, some in self._blocks(problems, real, index):
            seen = p.sum(-1) > 0  # a row that may see nothing, or of NaN, looks at nothing alike
            keep = some & seen.all(0)
            if bool(keep.any()):
                found = distances(p[:, keep])
                self.total += found.sum(-1).cpu()
                self.count += int(keep.sum())

    def _blocks(
        self, problems: Sequence[Problem], real: Bool[Tensor, "batch query"], index: int
    ) -> Iterator[tuple[Float[Tensor, "head row key"], Bool[Tensor, " row"]]]:
        frame = problems[0].frame
        order = torch.randperm(frame.queries, generator=batch_generator(self.seed, index))
        places = order[: self.rows].sort().values.tolist()
        each = frame.batch * frame.keys * len(self.total) * 8 * 4
        step = max(1, BYTES // max(each, 1))
        for start in range(0, len(places), step):
            at = places[start : start + step]
            parts: list[Tensor] = []
            for problem in problems:
                with own_precision(problem.q.device):
                    w = weights_of(problem, Cells(rows=at)).double()  # batch, head, row, key
                rest = (1 - w.sum(-1, keepdim=True)).clamp_min(0.0)
                if problem.scores.sinks is None:
                    rest = torch.zeros_like(rest)
                parts.append(torch.cat([w, rest], dim=-1).transpose(0, 1).flatten(1, 2))
            yield torch.cat(parts), real[:, at].flatten()

    def mean(self) -> Float[Tensor, "head other"]:
        """The mean distance; NaN where no row was seen."""
        return self.total / self.count if int(self.count) else torch.full_like(self.total, torch.nan)

    def merge(self, later: AttentionDistances) -> None:
        """Add the sums over later rows."""
        self.total, self.count = self.total + later.total, self.count + later.count

    def state(self) -> dict[str, Any]:
        return {"total": self.total.clone(), "count": self.count.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.total, self.count = state["total"].clone(), state["count"].clone()
