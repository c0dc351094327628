"""The sums behind `moments`, mergeable: of a layer's inputs, and of the inputs that its heads attend to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from multihead._base.float64 import float64
from multihead.edit.kv_sharing.coordinates import Coordinates
from multihead.edit.kv_sharing.key_path import KeyPath
from multihead.layer import Problem, weights_of
from multihead.layer.outputs import Cells
from multihead.model.projection_inputs import QKVInputs
from multihead.model.statistics.cross_moments import CrossMoments

BYTES = 64 << 20
"""Memory of a block of attention rows."""

Reduce = Callable[..., None]
"""Sums tensors over ranks, in place."""


@runtime_checkable
class Sums(Protocol):
    """Sums over the calls of one attention."""

    tokens: int

    def merge(self, other: Any) -> object: ...

    def state(self) -> dict[str, Any]: ...

    def all_reduce(self, reduce: Reduce) -> None: ...


class InputSums:
    """Of the inputs of W_Q, W_K and W_V over all real tokens, and what is known about the scores."""

    def __init__(self) -> None:
        self.tokens = 0
        self.key_path: KeyPath | None = None
        """found on the first call"""
        self.shift_free = self.sums_to_one = True
        self.query, self.key, self.value = CrossMoments(), CrossMoments(), CrossMoments()
        """`value` stays empty where W_V reads the input of W_K"""
        self.key_distances: Float64[Tensor, "kv_head kv_head"] | None = None

    @property
    def same_kv(self) -> bool:
        return not self.value.columns

    def add(
        self, problem: Problem, x: QKVInputs, queries: Bool[Tensor, "batch query"], keys: Bool[Tensor, "batch key"]
    ) -> None:
        """One call; `queries` and `keys` are the real tokens."""
        self.tokens += int(queries.sum())
        self.shift_free &= problem.scores.sinks is None and problem.scores.softcap is None
        self.sums_to_one &= problem.scores.sinks is None
        self.query.add(x.q[queries])
        self.key.add(x.k[keys])
        if not x.same_kv:
            self.value.add(x.v[keys])

    def add_key_distances(self, problem: Problem, queries: Tensor, keys: Tensor) -> None:
        """Σ over readers of k_i of E[(q · (k_i − k_j))²], for keys as the kernel gets them."""
        count = problem.k.shape[1]
        distances = torch.zeros(count, count, dtype=torch.float64, device="cpu")
        for head, i in enumerate(problem.groups.kv_of_head):
            of_queries = _square(problem.q[:, head][queries])
            for j in range(count):
                of_difference = _square((problem.k[:, i] - problem.k[:, j])[keys])
                distances[i, j] += float((of_queries * of_difference).sum()) / max(1, int(queries.sum()))
        self.key_distances = distances if self.key_distances is None else self.key_distances + distances

    def merge(self, other: InputSums) -> None:
        self.tokens += other.tokens
        self.key_path = self.key_path or other.key_path
        self.shift_free &= other.shift_free
        self.sums_to_one &= other.sums_to_one
        for one, more in zip(self._moments(), other._moments(), strict=True):
            one.merge(more)
        if other.key_distances is not None:
            known = self.key_distances
            self.key_distances = other.key_distances if known is None else known + other.key_distances

    def all_reduce(self, reduce: Reduce) -> None:
        """Turn the sums of this rank into those of all; each has found the scale on its first batch: the mean."""
        assert self.key_path is not None
        counts = self.key.mean.new_tensor([float(self.tokens), self.key_path.scale, 1.0])
        reduce(counts)
        self.tokens, self.key_path = int(counts[0]), replace(self.key_path, scale=float(counts[1] / counts[2]))
        for one in self._moments():
            if one.columns:
                one.all_reduce(reduce)
        if self.key_distances is not None:
            distances = self.key_distances.to(counts.device, copy=True)
            reduce(distances)
            self.key_distances = distances.cpu()

    def state(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "key_path": None if self.key_path is None else self.key_path.state(),
            "shift_free": self.shift_free,
            "sums_to_one": self.sums_to_one,
            "moments": [one.state() for one in self._moments()],
            "key_distances": self.key_distances,
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> InputSums:
        sums = InputSums()
        sums.tokens, sums.key_distances = int(state["tokens"]), state["key_distances"]
        sums.key_path = None if state["key_path"] is None else KeyPath.from_state(state["key_path"])
        sums.shift_free, sums.sums_to_one = bool(state["shift_free"]), bool(state["sums_to_one"])
        sums.query, sums.key, sums.value = map(CrossMoments.from_state, state["moments"])
        return sums

    def _moments(self) -> tuple[CrossMoments, CrossMoments, CrossMoments]:
        return self.query, self.key, self.value


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


class HeadSums:
    """Σ w x̃ x̃ᵀ for every head, in some coordinates."""

    def __init__(self, heads: int, coordinates: Coordinates) -> None:
        self.coordinates = coordinates
        self.blocks = [CrossMoments() for _ in range(heads)]
        rest = coordinates.width - coordinates.leading
        self.rest: Float64[Tensor, "2 head rest"] = torch.zeros(2, heads, rest, dtype=torch.float64, device="cpu")
        """Σ w x and Σ w x² of the coordinates that are not leading"""

    def add(self, head: int, x: Float[Tensor, "row width_and_1"], weight: Tensor | None = None) -> None:
        """Rows x̃ of one head; a row of weight w counts w times."""
        full = self.coordinates.leading + 1
        self.blocks[head].add(x[:, :full], weight=weight)
        if x.shape[1] > full:
            rest = float64(x[:, full:])
            weighted = rest if weight is None else rest * float64(weight)[:, None]
            self.rest[:, head] += torch.stack([weighted.sum(0), (weighted * rest).sum(0)]).cpu()

    def merge(self, other: HeadSums) -> None:
        for one, more in zip(self.blocks, other.blocks, strict=True):
            one.merge(more)
        self.rest = self.rest + other.rest

    def all_reduce(self, reduce: Reduce) -> None:
        summed = [one for one in self.blocks if one.columns]
        for one in summed:
            one.all_reduce(reduce)
            self.rest = self.rest.to(one.mean.device, copy=True)
        if summed:
            reduce(self.rest)

    def take_mean(self, tokens: int) -> HeadMoment:
        """The moments. Empties the sums head by head, so that no more than one copy exists."""
        size, like = self.blocks[0].columns, self.blocks[0].mean
        block = like.new_empty(len(self.blocks), size, size)
        for head, one in enumerate(self.blocks):
            block[head] = one.sums()[0].div_(tokens)
            self.blocks[head] = CrossMoments()
        total, squares = (self.rest / tokens).to(like.device)
        return HeadMoment(block, squares, total)

    def state(self) -> dict[str, Any]:
        return {"blocks": [one.state() for one in self.blocks], "rest": self.rest.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.blocks = [CrossMoments.from_state(one) for one in state["blocks"]]
        self.rest = state["rest"].clone()


class AttendedSums:
    """Of the inputs that the heads attend to: contexts P X̃, and keys weighted by their attention."""

    def __init__(self, heads: int, of_keys: Coordinates, of_values: Coordinates) -> None:
        self.tokens = 0
        self.context, self.key_context = HeadSums(heads, of_values), HeadSums(heads, of_keys)
        """`key_context` stays empty where W_V reads the input of W_K"""
        self.attended_key = HeadSums(heads, of_keys)

    def add(self, problem: Problem, x: QKVInputs, queries: Bool[Tensor, "batch query"]) -> None:
        """One call; `queries` are the real tokens."""
        self.tokens += int(queries.sum())
        keys = self.attended_key.coordinates.of(x.k)
        inputs = [(self.context, keys)]
        if not x.same_kv:
            inputs = [(self.key_context, keys), (self.context, self.context.coordinates.of(x.v))]
        size, width = problem.coordinates, max(one.shape[-1] for _, one in inputs)
        mass = float64(keys).new_zeros(size.batch, size.heads, size.keys)
        step = max(1, BYTES // max(1, size.batch * size.heads * max(size.keys, width) * 8))
        for start in range(0, size.queries, step):
            rows = list(range(start, min(start + step, size.queries)))
            p = weights_of(problem, Cells(rows=rows)) * queries[:, None, rows, None]
            mass += float64(p).sum(2)
            for sums, one in inputs:
                contexts = (p @ one[:, None].to(p)).transpose(0, 1).flatten(1, 2)  # head, row, width
                for head, context in enumerate(contexts):
                    sums.add(head, context)
        flat = float64(keys).flatten(0, 1)
        for head in range(size.heads):
            self.attended_key.add(head, flat, mass[:, head].flatten())

    def merge(self, other: AttendedSums) -> None:
        self.tokens += other.tokens
        for one, more in zip(self._sums(), other._sums(), strict=True):
            one.merge(more)

    def all_reduce(self, reduce: Reduce) -> None:
        """Turn the sums of this rank into those of all."""
        for one in self._sums():
            one.all_reduce(reduce)

    def state(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "sums": [one.state() for one in self._sums()]}

    def load(self, state: Mapping[str, Any]) -> None:
        self.tokens = int(state["tokens"])
        for one, saved in zip(self._sums(), state["sums"], strict=True):
            one.load(saved)

    def _sums(self) -> tuple[HeadSums, HeadSums, HeadSums]:
        return self.context, self.key_context, self.attended_key


def _square(x: Float[Tensor, "token width"]) -> Float64[Tensor, "width width"]:
    x = float64(x)
    return x.mT @ x
