"""Second moments of the inputs of a layer, and of the inputs that each head attends to: all that grouping needs.

With the attention weights P of a query head and x̃ = [x; 1] (biases are then columns of the maps):

- `context_moment` is E[(P X̃)ᵀ (P X̃)]: the second moment of the inputs that its value map is applied to in effect;
- `attended_key_moment` is E[X̃ᵀ diag(1ᵀP) X̃]. Minus the context moment it is the mean over queries of the
  covariance of the attended keys: an error of the scores counts by that, as a constant per query changes nothing.

All sums are in fp64, over real tokens. Per head they are full for the n leading components of the input and a
diagonal for the others (`coordinates`); only the moments of all tokens are width × width. Of sums, moments and
factorisation together,

    peak ≤ 8 bytes · (6 · heads · (n + 1)² + 16 · width²)    where    8 · heads · (n + 1)² ≤ HEAD_MOMENT_BYTES

plus activations: 3.8 GB for 32 heads of width 4096. The factors count the copies that a pass over the corpus makes.
It is half as much again where keys and values read different tensors. Inputs wider than n take a second pass: the
first finds their principal components.

>>> import torch, multihead as mh
>>> from multihead.edit.kv_sharing.moments import moments_of
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> moments = moments_of(encoder, mh.anatomy(encoder)[0], [{"src": torch.randn(2, 7, 24)}])
>>> moments.tokens, moments.context_moment.block.shape, moments.key_path.kind
(14, torch.Size([3, 25, 25]), 'plain')
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float64
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import PerSite, State
from multihead.corpus.data_parallel import shard
from multihead.corpus.documents import Corpus
from multihead.corpus.run import Runner
from multihead.corpus.run import run as run_corpus
from multihead.edit.kv_sharing.coordinates import Coordinates, leading_count
from multihead.edit.kv_sharing.key_path import KeyPath, find_key_path
from multihead.edit.kv_sharing.sums import AttendedSums, HeadMoment, InputSums, Sums
from multihead.errors import MultiheadError
from multihead.layer._problem import autocast_disabled
from multihead.model.anatomy import LayerAnatomy
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.head_weights import HeadWeights
from multihead.model.projection_inputs import ProjectionInputs, QKVInputs, projections_of
from multihead.model.sites import Site


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
    key_coordinates: Coordinates
    value_coordinates: Coordinates
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


def moments_of(
    model: nn.Module, layer: LayerAnatomy, batches: Iterable[Mapping[str, Any]], *, run: Runner = Forward.run
) -> Moments:
    """The moments over one pass of `model`, in which `layer` still has all of its heads."""
    layer.require("sharing keys and values", direct=True, ungated=True)
    mine, all_reduce = shard(batches)

    def add_to(*accumulators: _OfLayer[Any]) -> None:
        run_corpus(model, Corpus(model, mine, part_batches=len(mine)), accumulators, runner=run)

    root, weights = inner(model), HeadWeights.of(layer)
    inputs, widths = InputMoments(layer, root), (weights.k.shape[2], weights.v.shape[2])
    leading = tuple(leading_count(weights.heads, width) for width in widths)
    if leading == widths:
        heads = AttendedMoments(layer, root, *map(Coordinates.identity, widths))
        add_to(inputs, heads)
        sums = inputs.total(all_reduce)
    else:
        add_to(inputs)
        sums = inputs.total(all_reduce)
        heads = AttendedMoments(layer, root, *_principal(sums, *leading))
        add_to(heads)
    return _moments(sums, heads.total(all_reduce))


def _principal(sums: InputSums, keys: int, values: int) -> tuple[Coordinates, Coordinates]:
    """The principal components of the inputs of W_K and W_V, so many of them leading."""
    of_keys = Coordinates.principal(sums.key.sums()[0], keys)
    return of_keys, of_keys if sums.same_kv else Coordinates.principal(sums.value.sums()[0], values)


def _moments(inputs: InputSums, heads: AttendedSums) -> Moments:
    assert inputs.key_path is not None
    tokens = inputs.tokens
    query, key = (one.sums(bias=True)[0].div_(tokens) for one in (inputs.query, inputs.key))
    context = heads.context.take_mean(tokens)
    return Moments(
        tokens,
        query,
        key,
        key if inputs.same_kv else inputs.value.sums(bias=True)[0].div_(tokens),
        context,
        heads.attended_key.take_mean(tokens),
        context if inputs.same_kv else heads.key_context.take_mean(tokens),
        heads.attended_key.coordinates,
        heads.context.coordinates,
        inputs.key_path,
        inputs.shift_free,
        inputs.sums_to_one,
        None if inputs.key_distances is None else inputs.key_distances / tokens,
    )


T = TypeVar("T", bound=Sums)


class _OfLayer(PerSite[T]):
    """Sums of one layer. If its module serves as several layers, those of all its calls."""

    def __init__(self, layer: LayerAnatomy, model: nn.Module) -> None:
        super().__init__()
        self.layer, self.model, self.weights = layer, model, HeadWeights.of(layer)
        self._inputs = ProjectionInputs({layer.path: projections_of(layer, model)})
        self._calls = 0  # of the layer within one forward: the first batch runs to its end, and shows how many

    @contextmanager
    def watching(self) -> Generator[None]:
        with self._inputs:
            yield

    def add(self, call: Call, out: HeadOutputs) -> None:
        if call.path != self.layer.path:
            return
        x = self._inputs.take(call, self.weights)
        with autocast_disabled(call.problem.q.device):
            self.add_call(self.of_call(call), call, x)
        self._calls = max(self._calls, call.site.call_index + 1)

    def add_call(self, sums: T, call: Call, x: QKVInputs) -> None:
        raise NotImplementedError

    def satisfied(self, call: Call) -> bool:
        return self.batches > 0 and call.path == self.layer.path and call.site.call_index + 1 == self._calls

    def total(self, all_reduce: Callable[..., None]) -> T:
        """The sums of all calls and all ranks."""
        if not sum(one.tokens for one in self.of.values()):
            raise MultiheadError(
                f"{self.layer.name} ({self.layer.path}) did not attend to anything",
                hint="is the calibration text empty, or the layer of a different model?",
            )
        total, *others = self.of.values()
        self.of = {}
        for one in others:
            total.merge(one)
        total.all_reduce(all_reduce)
        return total


class InputMoments(_OfLayer[InputSums]):
    """Sums over the inputs of a layer."""

    name = "input_moments"

    def make(self, site: Site) -> InputSums:
        return InputSums()

    def restore(self, site: Site, state: State) -> InputSums:
        return InputSums.from_state(state)

    def add_call(self, sums: InputSums, call: Call, x: QKVInputs) -> None:
        problem, queries, keys = call.problem, call.real_rows, _real_keys(call)
        if sums.key_path is None:
            sums.key_path = find_key_path(self.layer, self.model, self.weights, problem, x, queries, keys)
        sums.add(problem, x, queries, keys)
        if sums.key_path.kind == "normed" and problem.k.shape[1] == self.weights.kv_heads:
            sums.add_key_distances(problem, queries, keys)


class AttendedMoments(_OfLayer[AttendedSums]):
    """Sums over the inputs that the heads of a layer attend to."""

    name = "attended_moments"

    def __init__(
        self, layer: LayerAnatomy, model: nn.Module, key_coordinates: Coordinates, value_coordinates: Coordinates
    ) -> None:
        super().__init__(layer, model)
        self.key_coordinates, self.value_coordinates = key_coordinates, value_coordinates

    def make(self, site: Site) -> AttendedSums:
        return AttendedSums(self.weights.heads, self.key_coordinates, self.value_coordinates)

    def restore(self, site: Site, state: State) -> AttendedSums:
        sums = self.make(site)
        sums.load(state)
        return sums

    def add_call(self, sums: AttendedSums, call: Call, x: QKVInputs) -> None:
        sums.add(call.problem, x, call.real_rows)


def _real_keys(call: Call) -> Bool[Tensor, "batch key"]:
    size, keys = call.problem.coordinates, call.keys.valid
    if keys is None or keys.shape != (size.batch, size.keys):
        return torch.ones(size.batch, size.keys, dtype=torch.bool, device=size.device)
    return keys
