"""The number of tokens in a batch: of token ids, else the positions that attend, as the patches of an image.

>>> import torch
>>> from multihead.model.token_count import TokenCount
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2)
>>> TokenCount(model)({"src": torch.ones(2, 5, 12)})
10
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward
from multihead.model.model_inputs import documents_in, rows_of


class TokenCount:
    """Counts the tokens of batches without padding. The model runs on one document of every new shape without ids.

    Args:
        whole: a document alone does not run, so the whole batch does.
    """

    def __init__(self, model: nn.Module, *, whole: bool = False) -> None:
        self._model, self._whole = model, whole
        self._counts: dict[object, int] = {}

    def __call__(self, batch: Mapping[str, Any]) -> int:
        ids, mask, documents = batch.get("input_ids"), batch.get("attention_mask"), documents_in(batch)
        if isinstance(ids, Tensor):
            shape = tuple(ids.shape)
        else:
            total = self._positions(batch, 1) if self._whole else documents * self._positions(batch, documents)
            shape = (documents, total // documents)
            if math.prod(shape) != total:
                return total
        fits = isinstance(mask, Tensor) and tuple(mask.shape) == shape
        return int((mask != 0).sum()) if fits else math.prod(shape)

    def _positions(self, batch: Mapping[str, Any], documents: int) -> int:
        """The most queries of an attention, on the first of so many documents."""
        one = rows_of(batch, slice(1), documents) if documents > 1 else batch
        shapes = tuple((name, tuple(x.shape)) for name, x in one.items() if isinstance(x, Tensor))
        if shapes not in self._counts:
            counts: list[int] = []

            def listen(call: Call, compute: Compute) -> HeadOutputs:
                counts.append(call.problem.q.shape[0] * call.problem.q.shape[2])
                return compute()

            Forward(self._model)(one, listen, sharded=True, required=False)
            self._counts[shapes] = max(counts, default=1)
        return self._counts[shapes]
