"""E[x xᵀ] of what a layer reads, and of what each head makes of it: the sums that grouping needs, from one pass.

x̃ = [x; 1], so that biases are columns of the maps. For every query head, with its attention weights P:

- `averaged` is E[(P X̃)ᵀ (P X̃)], what its value map is applied to in effect;
- `looked` is E[X̃ᵀ diag(1ᵀP) X̃]; looked − averaged is the mean over queries of the covariance of the keys that a
  query sees, each with its attention weight: what an error of the scores counts by (a constant per query does not).

All sums are in fp64, over real tokens; memory is that of the sums, two squares of the width for every head, and of
one batch.

>>> import torch, multihead as mh
>>> from multihead.edit.sharing.moments import moments_of
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> found = moments_of(encoder, mh.anatomy(encoder)[0], [{"src": torch.randn(2, 7, 24)}])
>>> found.tokens, found.averaged.shape, found.kind
(14, torch.Size([3, 25, 25]), 'plain')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import PerSite, State
from multihead.corpus.data_parallel import shard
from multihead.corpus.documents import Corpus
from multihead.corpus.run import Runner
from multihead.corpus.run import run as run_corpus
from multihead.edit.sharing.between import Between, Kind, find_between
from multihead.edit.sharing.projection_inputs import Inputs, ProjectionInputs
from multihead.edit.sharing.rotary_factor import Pairs
from multihead.errors import MultiheadError
from multihead.layer import Problem, weights_of
from multihead.layer._problem import autocast_disabled
from multihead.layer.outputs import Cells
from multihead.model.anatomy import LayerAnatomy
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.sites import Site
from multihead.model.statistics.cross_moments import CrossMoments

BYTES = 64 << 20
"""Memory of a block of attention rows."""


@dataclass
class Moments:
    """Second moments of one layer on some text, head by head of the uncut layer."""

    tokens: int
    query: Float[Tensor, "query_width query_width"]
    """E[x̃ x̃ᵀ] of what W_Q reads; keys and values of what theirs do"""
    key: Float[Tensor, "key_width key_width"]
    value: Float[Tensor, "value_width value_width"]
    averaged: Float[Tensor, "head value_width value_width"]
    looked: Float[Tensor, "head key_width key_width"]
    centre: Float[Tensor, "head key_width key_width"]
    """averaged, of what W_K reads: the same unless keys and values read different streams"""
    kind: Kind
    """what stands between the projections of q and k and the kernel"""
    pairs: Pairs | None
    shift_free: bool
    """a number added to all scores of a query changes nothing: no sinks, no softcap"""
    sums_to_one: bool = True
    """the attention weights of a query sum to 1: no sinks"""
    scale: float = 1.0
    """scores are so much times the product of the projections"""
    keys_seen: Float[Tensor, "kv_head kv_head"] | None = None
    """normed keys: E[(q · (k_i − k_j))²] summed over the query heads that read k_i"""


def moments_of(
    model: nn.Module, layer: LayerAnatomy, batches: Iterable[Mapping[str, Any]], *, run: Runner = Forward.run
) -> Moments:
    """The sums over one pass of `model`, in which the layer still has the heads that `layer` says it has."""
    layer.require("sharing and merging of heads", direct=True, ungated=True)
    mine, all_reduce = shard(batches)
    sums = GroupingMoments(layer, inner(model))
    with sums.reads.recorded():
        run_corpus(model, Corpus(model, mine, part_batches=len(mine)), [sums], runner=run)
    return sums.moments(all_reduce)


class InputMoments:
    """The sums of one attention."""

    def __init__(self) -> None:
        self.tokens = 0
        self.between: Between | None = None
        """found on the first call"""
        self.shift_free = self.sums_to_one = True
        self.sums: dict[str, list[CrossMoments]] = {}
        """of query, key and value; of averaged, centre and looked one for every head"""
        self.keys_seen: Float[Tensor, "kv_head kv_head"] | None = None

    def add(
        self,
        problem: Problem,
        x: Inputs,
        queries: Bool[Tensor, "batch query"],
        keys: Bool[Tensor, "batch key"],
        kv_heads: int,
    ) -> None:
        """One call: `queries` and `keys` are the real tokens."""
        self.shift_free &= problem.scores.sinks is None and problem.scores.softcap is None
        self.sums_to_one &= problem.scores.sinks is None
        self.tokens += int(queries.sum())
        same = x["k"] is x["v"]
        self._of("query")[0].add(x["q"][queries])
        self._of("key")[0].add(x["k"][keys])
        if not same:
            self._of("value")[0].add(x["v"][keys])
        self._add_attention(problem, x["k"], None if same else x["v"], queries)
        if self.between is not None and self.between.kind == "normed" and problem.k.shape[1] == kv_heads:
            self._add_distances(problem, queries, keys)

    def _add_attention(
        self, problem: Problem, xk: Tensor, xv: Tensor | None, queries: Bool[Tensor, "batch query"]
    ) -> None:
        size = problem.coordinates
        step = max(1, BYTES // max(1, size.batch * size.heads * max(size.keys, xk.shape[-1] + 1) * 8))
        mass = torch.zeros(size.batch, size.heads, size.keys, dtype=torch.float64, device=xk.device)
        read = {"centre": _with_one(xk)} | ({} if xv is None else {"averaged": _with_one(xv)})
        for start in range(0, size.queries, step):
            rows = list(range(start, min(start + step, size.queries)))
            p = weights_of(problem, Cells(rows=rows)) * queries[:, None, rows, None]
            mass += p.sum(2, dtype=torch.float64)
            for name, x in read.items():
                means = (p @ x[:, None].to(p)).transpose(0, 1).flatten(1, 2)  # head, row, width
                for moments, mean in zip(self._of(name, size.heads), means, strict=True):
                    moments.add(mean)
        wide = xk.double().flatten(0, 1)
        for head, moments in enumerate(self._of("looked", size.heads)):
            moments.add(wide, weight=mass[:, head].flatten())

    def _add_distances(self, problem: Problem, queries: Tensor, keys: Tensor) -> None:
        """Σ over readers of k_i of E[(q · (k_i − k_j))²], for keys as the kernel saw them."""
        count = problem.k.shape[1]
        distances = torch.zeros(count, count, dtype=torch.float64)
        for head, i in enumerate(problem.groups.kv_of_head):
            of_queries = _square(problem.q[:, head][queries])
            for j in range(count):
                of_difference = _square((problem.k[:, i] - problem.k[:, j])[keys])
                distances[i, j] += float((of_queries * of_difference).sum()) / max(1, int(queries.sum()))
        self.keys_seen = distances if self.keys_seen is None else self.keys_seen + distances

    def _of(self, name: str, count: int = 1) -> list[CrossMoments]:
        return self.sums.setdefault(name, [CrossMoments() for _ in range(count)])

    # ---- all of them --------------------------------------------------------------------------

    def merge(self, other: InputMoments) -> None:
        """Add other calls of the same layer."""
        self.tokens += other.tokens
        self.between = self.between or other.between
        self.shift_free &= other.shift_free
        self.sums_to_one &= other.sums_to_one
        for name, moments in other.sums.items():
            for one, more in zip(self._of(name, len(moments)), moments, strict=True):
                one.merge(more)
        if other.keys_seen is not None:
            self.keys_seen = other.keys_seen if self.keys_seen is None else self.keys_seen + other.keys_seen

    def state(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "between": None if self.between is None else self.between.state(),
            "shift_free": self.shift_free,
            "sums_to_one": self.sums_to_one,
            "sums": {name: [one.state() for one in moments] for name, moments in self.sums.items()},
            "keys_seen": self.keys_seen,
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> InputMoments:
        sums = InputMoments()
        sums.tokens, sums.keys_seen = int(state["tokens"]), state["keys_seen"]
        sums.between = None if state["between"] is None else Between.from_state(state["between"])
        sums.shift_free, sums.sums_to_one = bool(state["shift_free"]), bool(state["sums_to_one"])
        sums.sums = {name: [CrossMoments.from_state(s) for s in states] for name, states in state["sums"].items()}
        return sums

    def all_reduce(self, reduce: Callable[..., None]) -> None:
        """The sums of all ranks; of the scale, which each has found on its first batch, the mean."""
        assert self.between is not None
        counts = torch.tensor([float(self.tokens), self.between.scale, 1.0], dtype=torch.float64)
        reduce(counts)
        self.tokens, self.between = int(counts[0]), replace(self.between, scale=float(counts[1] / counts[2]))
        for moments in self.sums.values():
            for one in moments:
                one.all_reduce(reduce)
        if self.keys_seen is not None:
            self.keys_seen = self.keys_seen.clone()
            reduce(self.keys_seen)

    def moments(self) -> Moments:
        assert self.between is not None
        query, key = (self._mean(name, bias=True)[0] for name in ("query", "key"))
        value = self._mean("value", bias=True)[0] if "value" in self.sums else key
        centre = self._mean("centre", bias=False)
        return Moments(
            self.tokens,
            query,
            key,
            value,
            self._mean("averaged", bias=False) if "averaged" in self.sums else centre,
            self._mean("looked", bias=True),
            centre,
            self.between.kind,
            self.between.pairs,
            self.shift_free,
            self.sums_to_one,
            self.between.scale,
            None if self.keys_seen is None else self.keys_seen / self.tokens,
        )

    def _mean(self, name: str, *, bias: bool) -> Float[Tensor, "head width width"]:
        """E[x̃ x̃ᵀ]; `bias`: the last column of x̃, 1, is not among the rows that were added."""
        return torch.stack([one.sums(bias=bias)[0] / self.tokens for one in self.sums[name]])


class GroupingMoments(PerSite[InputMoments]):
    """The sums of one layer. If its module serves as several layers, those of all its calls."""

    name = "grouping_moments"

    def __init__(self, layer: LayerAnatomy, model: nn.Module) -> None:
        super().__init__()
        self.layer, self.model, self.weights = layer, model, HeadWeights.of(layer)
        self.reads = ProjectionInputs(layer, model)
        self._calls = 0  # of the layer within one forward: the first batch runs to its end, and shows how many

    def make(self, site: Site) -> InputMoments:
        return InputMoments()

    def restore(self, site: Site, state: State) -> InputMoments:
        return InputMoments.from_state(state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        if call.path != self.layer.path:
            return
        problem, size = call.problem, call.problem.coordinates
        queries, keys = call.real_rows, call.keys.valid
        if keys is None or keys.shape != (size.batch, size.keys):
            keys = torch.ones(size.batch, size.keys, dtype=torch.bool, device=problem.q.device)
        x = self.reads.take(problem)
        sums = self.of_call(call)
        if sums.between is None:
            sums.between = find_between(self.layer, self.model, self.weights, problem, x, queries, keys)
        with autocast_disabled(problem.q.device):
            sums.add(problem, x, queries, keys, self.weights.kv_heads)
        self._calls = max(self._calls, call.site.call_index + 1)

    def satisfied(self, call: Call) -> bool:
        return self.batches > 0 and call.path == self.layer.path and call.site.call_index + 1 == self._calls

    def moments(self, all_reduce: Callable[..., None]) -> Moments:
        """The moments of all calls and all ranks."""
        if not sum(one.tokens for one in self.of.values()):
            raise MultiheadError(
                f"{self.layer.name} ({self.layer.path}) was not seen to attend to anything",
                hint="was the calibration text empty, or is this layer of another model?",
            )
        (key, total), *others = self.of.items()
        for _, one in others:
            total.merge(one)
        self.of = {key: total}
        total.all_reduce(all_reduce)
        return total.moments()


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)


def _square(x: Float[Tensor, "token width"]) -> Float[Tensor, "width width"]:
    x = x.double()
    return x.mT @ x
