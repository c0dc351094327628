"""Find out whether padding changes what a model computes for real tokens.

If it does not, a batch may hold documents of different lengths. A document is run alone and with padding behind it,
and the statistics of all heads must agree. They differ if the model ignores the mask, counts positions from the
padded end, or adds a bias that depends on the padded length. Attention that selects keys by top-k may differ for
some documents only, those with equal scores; it counts as different as soon as it drops any key.

>>> import torch
>>> from transformers import BertConfig, BertModel
>>> from multihead.corpus.padding_check import PaddingCheck
>>> config = BertConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=19)
>>> PaddingCheck(BertModel(config).eval()).may_pad([[3, 1, 4], [1, 5, 9, 2, 6]])
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.active_interceptions import isolated
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.model_inputs import takes_argument
from multihead.model.sites import Key
from multihead.model.statistics.head_statistics import HeadStatistics

FURTHER = 2
"""Batches that are longer than those compared so far by more than this factor are compared again."""


class PaddingCheck:
    """Decides whether documents of different lengths may share a batch; `notes` hold the reasons against it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.notes: list[str] = []
        self._checked_to = 0  # tokens of a padded batch that needs no further comparison

    def may_pad(self, documents: Sequence[Sequence[int]]) -> bool:
        """Whether padding changes nothing for the real tokens of these documents."""
        longest = max(map(len, documents))
        if not self.notes and longest > self._checked_to:
            reason = self._reason(_probe(documents), longest)
            self.notes += [f"{reason}: every batch has documents of one length"] if reason else []
        return not self.notes

    def _reason(self, document: Sequence[int], padded_to: int) -> str:
        """Why documents must not be padded to this length; empty if they may."""
        name = type(inner(self.model)).__name__
        if not takes_argument(self.model, "attention_mask"):
            return f"{name} takes no attention_mask"
        with torch.random.fork_rng(devices=[]), isolated():
            try:
                alone, padded = _run(self.model, document), _run(self.model, document, padded_to)
            except MultiheadError:  # a batch without padding may raise it again
                return f"{name} does not run on {len(document)} tokens both with and without padding"
        selects = Counter(padded.selections) - Counter(alone.selections)  # among tokens; those of experts are equal
        if any(k < n for n, k in selects):
            return f"the attention of {name} selects keys by top-k, and the selection may depend on padding"
        if alone.sites.keys() != padded.sites.keys() or any(
            _differ(alone.sites[key], padded.sites[key], alone.precision) for key in alone.sites
        ):
            return f"{name} takes an attention_mask, but its attention depends on padding"
        self._checked_to = padded_to if selects else FURTHER * padded_to
        return ""


def _probe(documents: Sequence[Sequence[int]]) -> Sequence[int]:
    """The document to check padding with: the longest that padding makes twice as long, else the shortest."""
    longest = max(map(len, documents))
    half = [document for document in documents if 2 * len(document) <= longest]
    return max(half, key=len) if half else min(documents, key=len)


@dataclass
class _DocumentRun:
    """The results of a run on one document."""

    sites: dict[Key, HeadStatistics] = field(default_factory=dict[Key, HeadStatistics])
    selections: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """(n, k) of every top-k: the k largest of n values"""
    precision: float = 0.0
    """the rounding error of the heads' outputs"""


def _run(model: nn.Module, document: Sequence[int], padded_to: int | None = None) -> _DocumentRun:
    """Run a model on a document, alone or padded, and sum its statistics."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    padding = 0 if padded_to is None else padded_to - len(document)
    inputs = {"input_ids": torch.tensor([[*document, *[0] * padding]], device=device)}
    if padding:
        inputs["attention_mask"] = torch.tensor([[1] * len(document) + [0] * padding], device=device)
    run = _DocumentRun()

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        """Add an attention call to the statistics."""
        out = compute()
        run.precision = max(run.precision, torch.finfo(out.dtype).eps)
        statistics = run.sites.setdefault(call.key, HeadStatistics(call.problem.coordinates.heads))
        statistics.update(call.problem, out, call.queries, call.keys, cross=call.cross)
        return out

    with _Selections(run.selections):
        Forward(model)(inputs, listen, sharded=True, required=False)
    return run


class _Selections(TorchFunctionMode):
    """Notes how many values every top-k chooses from, and how many it chooses."""

    def __init__(self, selections: list[tuple[int, int]]) -> None:
        super().__init__()
        self.selections = selections

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.topk, Tensor.topk):
            self._note(*args, **kwargs or {})
        return func(*args, **kwargs or {})

    def _note(self, input: Tensor, k: int, dim: int = -1, *_: object, **__: object) -> None:
        self.selections.append((input.shape[dim], k))


def _differ(expected: HeadStatistics, statistics: HeadStatistics, precision: float) -> bool:
    """Whether statistics with and without padding differ by more than their dtype explains."""
    if expected.rows != statistics.rows:
        return True
    tolerance = max(1e-3, 16 * precision)
    return any(
        _far_apart(expected.mean(name), statistics.mean(name), tolerance)
        for name in expected.names
        if name != "saturated"  # a count of rows above a threshold: rounding may move a row across it
    )


def _far_apart(expected: Float[Tensor, " head"], means: Float[Tensor, " head"], tolerance: float) -> bool:
    size = float(expected.nan_to_num().abs().max().clamp_min(1e-2))
    return not torch.allclose(expected, means, rtol=0.0, atol=tolerance * size, equal_nan=True)
