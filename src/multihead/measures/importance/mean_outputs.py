"""E[z] of every head over the real tokens of a corpus: what it says on average, which can stand in its place.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.importance.mean_outputs import MeanOutputs
>>> model = nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> stage = MeanOutputs(model)
>>> stage.step({"src": torch.randn(2, 7, 12)})
>>> stage.mean(("self_attn", 0)).shape
torch.Size([3, 4])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward
from multihead.model.known import note
from multihead.model.sites import Key
from multihead.model.statistics.output_moments import Outputs


class MeanOutputs:
    """A stage: one plain run of the model per batch."""

    name = "means"

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._of: dict[Key, Outputs] = {}

    def step(self, batch: Batch) -> None:
        Forward(self.model)(batch, self._listen)

    def _listen(self, call: Call, run: Compute) -> HeadOutputs:
        heads = run()
        note(self.model, call)
        mine = self._of.setdefault(call.key, Outputs(heads.shape[1]))
        mine.add(heads, real_rows(call, heads)[:, None].expand(heads.shape[:3]))
        return heads

    def mean(self, key: Key) -> Float[Tensor, "head value_dim"]:
        return self._of[key].mean()

    def begin(self, batch: int) -> None:
        """Nothing is drawn at random."""

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        sites = {
            (path, call_index): [path, call_index, heads, kept] for path, call_index, heads, kept in first["sites"]
        }
        for path, call_index, heads, kept in second["sites"]:
            mine = sites.get((path, call_index))
            both = kept if mine is None else Outputs.merged(heads, mine[3], kept)
            sites[path, call_index] = [path, call_index, heads, both]
        return {"sites": list(sites.values())}

    def state(self) -> dict[str, Any]:
        return {"sites": [[*key, one.heads, one.state()] for key, one in self._of.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._of = {}
        for path, call_index, heads, kept in state["sites"]:
            self._of[path, call_index] = Outputs(heads)
            self._of[path, call_index].load(kept)


def real_rows(call: Call, heads: HeadOutputs) -> Bool[Tensor, "batch query"]:
    """The queries that are no padding."""
    valid, shape = call.queries.valid, (heads.shape[0], heads.shape[2])
    if valid is None or valid.shape != shape:  # packed rows hold no padding
        return torch.ones(shape, dtype=torch.bool, device=heads.device)
    return valid
