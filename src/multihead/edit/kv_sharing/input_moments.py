"""Second moments of the inputs of a layer, and of the inputs that each head attends to: all that grouping needs.

With the attention weights P of a query head and x̃ = [x; 1] (biases are then columns of the maps):

- `context_moment` is E[(P X̃)ᵀ (P X̃)]: the second moment of the inputs that its value map is applied to in effect;
- `attended_key_moment` is E[X̃ᵀ diag(1ᵀP) X̃]. Minus the context moment it is the mean over queries of the
  covariance of the attended keys: an error of the scores counts by that, as a constant per query changes nothing.

All sums are in fp64, over real tokens. Per head they are full for the n leading components of the input and a
diagonal for the others (`coordinates`); only the moments of all tokens are width × width. Of sums, moments and
factorisation together,

    peak ≈ 8 bytes · (5 · heads · (n + 1)² + 12 · width²)    where    8 · heads · (n + 1)² ≤ HEAD_MOMENT_BYTES

plus activations and the workspace of LAPACK: 3.0 GB for 32 heads of width 4096. The factors were measured on small
layers (tests/unit/edit/test_kv_sharing_memory.py) and count all copies. By the count of sums it is half as much
again where keys and values read different tensors. Inputs wider than n take a second pass: the first finds their
principal components.

>>> import torch, multihead as mh
>>> from multihead.edit.kv_sharing.input_moments import moments_of
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> moments = moments_of(encoder, mh.anatomy(encoder)[0], [{"src": torch.randn(2, 7, 24)}])
>>> moments.tokens, moments.context_moment.block.shape, moments.key_path.kind
(14, torch.Size([3, 25, 25]), 'plain')
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from multihead._base.float64 import float64
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun
from multihead.corpus.data_parallel import shard
from multihead.corpus.run import BatchRunner, Runner
from multihead.edit.kv_sharing.coordinates import PrincipalCoordinates, leading_count
from multihead.edit.kv_sharing.key_path import KeyPath, find_key_path
from multihead.errors import MultiheadError
from multihead.layer import Problem, weights_of
from multihead.layer._problem import autocast_disabled
from multihead.layer.outputs import Cells
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.projection_inputs import ProjectionInputs, QKVInputs, projections_of
from multihead.model.statistics.second_moments import CrossMoments

BYTES = 64 << 20
"""Memory of a block of attention rows."""


@dataclass(frozen=True)
class HeadMoment:
    """E[x̃ x̃ᵀ] for every head: full for the leading coordinates and the 1, the diagonal for the others."""

    block: Float64[Tensor, "head leading_and_1 leading_and_1"]
    diagonal: Float64[Tensor, "head rest"]
    """E[x²] of the others"""
    rest_mean: Float64[Tensor, "head rest"]
    """E[x] of the others"""

    @property
    def mean(self) -> Float64[Tensor, "head width_and_1"]:
        """E[x̃]"""
        return torch.cat([self.block[:, :, -1], self.rest_mean], dim=1)


@dataclass(frozen=True)
class Moments:
    """Second moments of one layer on some text; those per head are of the heads of the uncut layer."""

    tokens: int
    query: Float64[Tensor, "query_width query_width"]
    """E[x̃ x̃ᵀ] of the input of W_Q; `key` and `value` of the inputs of W_K and W_V"""
    key: Float64[Tensor, "key_width key_width"]
    value: Float64[Tensor, "value_width value_width"]
    context_moment: HeadMoment
    attended_key_moment: HeadMoment
    key_context_moment: HeadMoment
    """the context moment of the input of W_K: the same unless keys and values read different tensors"""
    key_coordinates: PrincipalCoordinates
    value_coordinates: PrincipalCoordinates
    key_path: KeyPath
    shift_free: bool
    """a number added to all scores of a query changes nothing: no sinks, no softcap"""
    sums_to_one: bool
    """the attention weights of a query sum to 1: no sinks"""
    key_distances: Float64[Tensor, "kv_head kv_head"] | None = None
    """normed keys: E[(q · (k_i − k_j))²] summed over the query heads that read k_i"""

    @property
    def same_kv(self) -> bool:
        """Whether keys and values read the same tensor."""
        return self.key_context_moment is self.context_moment


class MomentSums:
    """Named second moments and totals of one attention, which add up over calls and ranks."""

    def __init__(self) -> None:
        self.moments: dict[str, CrossMoments] = {}
        self.totals: dict[str, Float64[Tensor, "..."]] = {}
        self.key_path: KeyPath | None = None
        """found on the first call"""

    def moment(self, name: str) -> CrossMoments:
        """The moment of this name, empty at first."""
        return self.moments.setdefault(name, CrossMoments())

    def add_total(self, name: str, x: Float64[Tensor, "..."]) -> None:
        self.totals[name] = x if name not in self.totals else self.totals[name] + x.to(self.totals[name].device)

    def all_reduce(self, reduce: Callable[..., None]) -> None:
        """Turn the input moments of this rank into those of all; `reduce` sums tensors over ranks, in place."""
        for moment in self.moments.values():
            moment.all_reduce(reduce)
        self.totals = {name: total.clone() for name, total in self.totals.items()}
        reduce(*self.totals.values())
        if self.key_path is not None:  # each rank has measured the scale on its first batch: the mean
            scale = self.totals["tokens"].new_tensor([self.key_path.scale, 1.0])
            reduce(scale)
            self.key_path = replace(self.key_path, scale=float(scale[0] / scale[1]))


def moments_of(
    model: nn.Module, layer: LayerAnatomy, batches: Iterable[Mapping[str, Any]], *, run: Runner = Forward.run
) -> Moments:
    """The moments of the inputs of `layer` on all batches; `model` still has all heads of the layer."""
    layer.require("sharing keys and values", direct=True, ungated=True)
    mine, all_reduce = shard(batches)
    widths = layer.W_K[0].shape[1], layer.W_V[0].shape[1]
    leading = tuple(leading_count(layer.num_heads, width) for width in widths)

    def summed(
        *, inputs: bool, coordinates: tuple[PrincipalCoordinates, PrincipalCoordinates] | None
    ) -> MomentSums:
        """The input moments of the layer, summed over all batches and ranks."""
        moments = LayerMoments(layer, inner(model), inputs=inputs, coordinates=coordinates)
        runner = BatchRunner(model, [moments], run)
        for batch in mine:
            runner.run(Batch(batch))
        if not any(bool(total.any()) for total in moments.sums.totals.values()):
            raise MultiheadError(
                f"{layer.where} did not attend to anything",
                hint="is the calibration text empty, or the layer of a different model?",
            )
        moments.sums.all_reduce(all_reduce)
        return moments.sums

    if leading == widths:
        coordinates = PrincipalCoordinates.identity(widths[0]), PrincipalCoordinates.identity(widths[1])
        sums = summed(inputs=True, coordinates=coordinates)
    else:
        sums = summed(inputs=True, coordinates=None)
        of_keys = of_values = PrincipalCoordinates.principal(sums.moments["key"].sums()[0], leading[0])
        if "value" in sums.moments:
            of_values = PrincipalCoordinates.principal(sums.moments["value"].sums()[0], leading[1])
        coordinates = of_keys, of_values
        attended = summed(inputs=False, coordinates=coordinates)
        sums.moments |= attended.moments
        sums.totals |= attended.totals
    return _moments(sums, *coordinates)


def _moments(sums: MomentSums, of_keys: PrincipalCoordinates, of_values: PrincipalCoordinates) -> Moments:
    """The moments: sums divided by the number of tokens, which are emptied."""
    assert sums.key_path is not None
    totals, tokens = sums.totals, int(sums.totals["tokens"])
    same_kv = "value" not in sums.moments
    square = {
        name: sums.moments.pop(name).sums(bias=True)[0].div_(tokens)
        for name in ("query", "key", "value")
        if name in sums.moments
    }
    context = _head_moment(sums, "context")
    return Moments(
        tokens,
        square["query"],
        square["key"],
        square["key" if same_kv else "value"],
        context,
        _head_moment(sums, "attended_key"),
        context if same_kv else _head_moment(sums, "key_context"),
        of_keys,
        of_keys if same_kv else of_values,
        sums.key_path,
        not totals["not_shift_free"],
        not totals["with_sinks"],
        totals["key_distances"] / tokens if "key_distances" in totals else None,
    )


def _head_moment(sums: MomentSums, name: str) -> HeadMoment:
    """A moment per head, from sums emptied head by head, so no more than one copy exists."""
    tokens = int(sums.totals["tokens"])
    rest_sum, rest_squares = sums.totals[f"{name}/rest"] / tokens
    heads = len(rest_sum)
    size = sums.moments[f"{name}/0"].columns
    block = rest_sum.new_empty(heads, size, size)
    for head in range(heads):
        block[head] = sums.moments.pop(f"{name}/{head}").sums()[0].div_(tokens)
    return HeadMoment(block, rest_squares, rest_sum)


class LayerMoments(Accumulator):
    """Sums of one layer. If its module serves as several layers, those of all its calls.

    Args:
        inputs: sum over the inputs of the layer.
        coordinates: of the inputs of W_K and W_V, to sum over the inputs that heads attend to. If None, do not.
    """

    name = "layer_moments"

    def __init__(
        self,
        layer: LayerAnatomy,
        model: nn.Module,
        *,
        inputs: bool = True,
        coordinates: tuple[PrincipalCoordinates, PrincipalCoordinates] | None = None,
    ) -> None:
        super().__init__()
        self.sums = MomentSums()
        self.layer, self.model, self.weights = layer, model, HeadWeights.of(layer)
        self.sum_inputs, self.coordinates = inputs, coordinates
        self._inputs = ProjectionInputs({layer.path: projections_of(layer, model)})
        self._calls = 0  # of the layer within one forward: the first batch runs to its end, and shows how many
        self._ran = False

    @contextmanager
    def watching(self) -> Generator[None]:
        with self._inputs:
            yield

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Add the inputs of an attention call to the moments."""
        if call.path != self.layer.path:
            return
        x, sums = self._inputs.take(call, self.weights), self.sums
        with autocast_disabled(call.problem.q.device):
            if self.sum_inputs:
                self._add_inputs(sums, call, x)
            if self.coordinates is not None:
                _add_attended(sums, call, x, *self.coordinates)
        self._calls = max(self._calls, call.site.call_index + 1)

    def _add_inputs(self, sums: MomentSums, call: Call, x: QKVInputs) -> None:
        """Add inputs of W_Q, W_K and W_V to the moments, and find the key path on the first call."""
        problem, queries, keys = call.problem, call.real_rows, _real_keys(call)
        if sums.key_path is None:
            sums.key_path = find_key_path(self.layer, self.model, self.weights, problem, x, queries, keys)
        sums.moment("query").add(x.q[queries])
        sums.moment("key").add(x.k[keys])
        if not x.same_kv:
            sums.moment("value").add(x.v[keys])
        with_sinks = problem.scores.sinks is not None
        counts = {
            "tokens": int(queries.sum()),
            "with_sinks": with_sinks,
            "not_shift_free": with_sinks or problem.scores.softcap is not None,
        }
        for name, count in counts.items():
            sums.add_total(name, sums.moment("key").mean.new_tensor(float(count)))
        if sums.key_path.kind == "normed" and problem.k.shape[1] == self.weights.kv_heads:
            sums.add_total("key_distances", _key_distances(problem, queries, keys))

    def satisfied(self, call: Call) -> bool:
        return self._ran and call.path == self.layer.path and call.site.call_index + 1 == self._calls

    def end(self, batch: Batch, run: BatchRun) -> None:
        self._ran = True


def _add_attended(
    sums: MomentSums, call: Call, x: QKVInputs, of_keys: PrincipalCoordinates, of_values: PrincipalCoordinates
) -> None:
    """Add moments of contexts P X̃ of every head, and of keys weighted by their attention."""
    problem, queries, keys = call.problem, call.real_rows, of_keys.of(x.k)
    inputs = {"context": (keys, of_keys.leading)}
    if not x.same_kv:
        inputs = {"key_context": (keys, of_keys.leading), "context": (of_values.of(x.v), of_values.leading)}
    size, width = problem.coordinates, max(one.shape[-1] for one, _ in inputs.values())
    mass = float64(keys).new_zeros(size.batch, size.heads, size.keys)
    step = max(1, BYTES // max(1, size.batch * size.heads * max(size.keys, width) * 8))
    for start in range(0, size.queries, step):
        rows = list(range(start, min(start + step, size.queries)))
        p = weights_of(problem, Cells(rows=rows)) * queries[:, None, rows, None]
        mass += float64(p).sum(2)
        for name, (one, leading) in inputs.items():
            contexts = (p @ one[:, None].to(p)).transpose(0, 1).flatten(1, 2)  # head, row, width
            _add_rows(sums, name, list(contexts), leading)
    flat = float64(keys).flatten(0, 1)
    _add_rows(sums, "attended_key", [flat] * size.heads, of_keys.leading, mass.transpose(0, 1).flatten(1))


def _add_rows(
    sums: MomentSums,
    name: str,
    rows: list[Float[Tensor, "row width_and_1"]],
    leading: int,
    weights: Float64[Tensor, "head row"] | None = None,
) -> None:
    """Add rows x̃ of every head: full moments of the leading coordinates, Σ w x and Σ w x² of the others."""
    rest: list[Tensor] = []
    for head, x in enumerate(rows):
        weight = None if weights is None else weights[head]
        sums.moment(f"{name}/{head}").add(x[:, : leading + 1], weight=weight)
        others = float64(x[:, leading + 1 :])
        weighted = others if weight is None else others * weight[:, None]
        rest.append(torch.stack([weighted.sum(0), (weighted * others).sum(0)]))
    sums.add_total(f"{name}/rest", torch.stack(rest, dim=1))


def _key_distances(
    problem: Problem, queries: Bool[Tensor, "batch query"], keys: Bool[Tensor, "batch key"]
) -> Float64[Tensor, "kv_head kv_head"]:
    """Distances of keys Σ over readers of k_i of E[(q · (k_i − k_j))²], for keys as the kernel gets them."""

    def square(x: Float[Tensor, "token dim"]) -> Float64[Tensor, "dim dim"]:
        return float64(x).mT @ float64(x)

    count = problem.k.shape[1]
    distances = square(problem.q[:, 0][queries]).new_zeros(count, count)
    for head, i in enumerate(problem.groups.kv_of_head):
        of_queries = square(problem.q[:, head][queries])
        for j in range(count):
            of_difference = square((problem.k[:, i] - problem.k[:, j])[keys])
            distances[i, j] += (of_queries * of_difference).sum() / max(1, int(queries.sum()))
    return distances


def _real_keys(call: Call) -> Bool[Tensor, "batch key"]:
    """Keys that count in the moments, those that are not padding."""
    size, keys = call.problem.coordinates, call.keys.valid
    if keys is None or keys.shape != (size.batch, size.keys):
        return torch.ones(size.batch, size.keys, dtype=torch.bool, device=size.device)
    return keys
