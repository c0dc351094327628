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

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.data_parallel import shard
from multihead.edit.fitting.resume import Runner, from_start
from multihead.edit.sharing.rotary_factor import Pairs, pairs_of, tolerance
from multihead.edit.weights import HeadWeights
from multihead.errors import MultiheadError
from multihead.layer.ask import Cells, weights_of
from multihead.layer.problem import Problem, own_precision
from multihead.model.anatomy import LayerAnatomy
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward, StopForward
from multihead.model.intercept import inner

Kind = Literal["plain", "rotary", "normed", "normed over heads"]

BYTES = 64 << 20
"""Memory of a block of attention rows."""

Square = Float[Tensor, "width width"]


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
    model: nn.Module, layer: LayerAnatomy, batches: Iterable[Mapping[str, Any]], *, run: Runner = from_start
) -> Moments:
    """The sums over one pass of `model`, in which the layer still has the heads that `layer` says it has."""
    sums = _Sums(layer, inner(model))
    mine, summed = shard(batches)
    forward = Forward(model)
    with sums.watch(), forward.listening(sums.listen):
        for number, batch in enumerate(mine):
            sums.stops = number > 0
            run(forward, batch)
    sums.over_ranks(summed)
    return sums.moments()


@dataclass
class _Sums:
    layer: LayerAnatomy
    model: nn.Module
    tokens: int = 0
    calls: int = 0
    """how often the layer runs in one forward: the first batch runs to its end, and tells"""
    stops: bool = False
    given: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    totals: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    kind: Kind | None = None
    pairs: Pairs | None = None
    shift_free: bool = True
    sums_to_one: bool = True
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.own = HeadWeights.of(self.layer)

    # ---- what the projections read ---------------------------------------------------------------

    @contextmanager
    def watch(self) -> Generator[None]:
        """Within the block the inputs of W_Q, W_K and W_V are seen."""
        with ExitStack() as stack:
            for letter in "qkv":
                module = self.model.get_submodule(self.layer.weights[letter].module)
                hook = _Reader(self, letter, module)
                stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
            yield

    def read(self, letter: str, batch: int, tokens: int) -> Tensor:
        x = self.given.get(letter)
        if x is None or x.numel() != batch * tokens * x.shape[-1]:
            shape = "nothing" if x is None else f"a tensor of shape {tuple(x.shape)}"
            raise MultiheadError(
                f"{self.layer.name}: {self.layer.weights[letter].module} was given {shape}, "
                f"and {letter} has {batch} x {tokens} tokens",
                hint="calibration runs without a cache, and each projection must be called once per run",
            )
        return x.reshape(batch, tokens, x.shape[-1])

    # ---- one call of the kernel --------------------------------------------------------------------

    def listen(self, call: Call, run: Compute) -> HeadOutputs:
        if call.path == self.layer.path:
            self.add(call)
            self.given.clear()
            self.calls = max(self.calls, call.site.call_index + 1)
            if self.stops and call.site.call_index + 1 == self.calls:
                raise StopForward
        return run()

    def add(self, call: Call) -> None:
        problem, frame = call.problem, call.problem.frame
        if problem.packing is not None:
            raise MultiheadError(
                f"{self.layer.name} packs its rows without padding: its inputs cannot be told apart by document",
                hint="run it with padded batches",
            )
        asks = call.real_rows
        seen = call.keys.valid
        if seen is None or seen.shape != (frame.batch, frame.keys):
            seen = torch.ones(frame.batch, frame.keys, dtype=torch.bool, device=problem.q.device)
        x = {
            "q": self.read("q", frame.batch, frame.queries),
            "k": self.read("k", frame.batch, frame.keys),
            "v": self.read("v", frame.batch, frame.keys),
        }
        same = self.given["k"] is self.given["v"]
        if self.kind is None:
            self._look(problem, x, asks, seen)
        self.shift_free &= problem.scores.sinks is None and problem.scores.softcap is None
        self.sums_to_one &= problem.scores.sinks is None
        self.tokens += int(asks.sum())
        with own_precision(problem.q.device):
            self._plus("query", _square(_one(x["q"])[asks]))
            self._plus("key", _square(_one(x["k"])[seen]))
            if not same:
                self._plus("value", _square(_one(x["v"])[seen]))
            self._attention(problem, _one(x["k"]), None if same else _one(x["v"]), asks)
            if self.kind == "normed":
                self._distances(problem, asks, seen)

    def _attention(
        self, problem: Problem, xk: Tensor, xv: Tensor | None, asks: Bool[Tensor, "batch query"]
    ) -> None:
        frame = problem.frame
        step = max(1, BYTES // max(1, frame.batch * frame.heads * max(frame.keys, xk.shape[-1]) * 8))
        mass = torch.zeros(frame.batch, frame.heads, frame.keys, dtype=torch.float64, device=xk.device)
        for start in range(0, frame.queries, step):
            rows = list(range(start, min(start + step, frame.queries)))
            p = weights_of(problem, Cells(rows=rows)) * asks[:, None, rows, None]
            mass += p.sum(2, dtype=torch.float64)
            for name, x in (("centre", xk), ("averaged", xv)):
                if x is not None:
                    mean = (p @ x[:, None].to(p)).transpose(0, 1).flatten(1, 2).double()  # head, row, width
                    self._plus(name, mean.mT @ mean)
        for head in range(frame.heads):  # one at a time: the product with all heads would be as many copies of x
            weighed = (xk.double() * mass[:, head, :, None]).flatten(0, 1)
            self._plus(f"looked{head}", xk.double().flatten(0, 1).mT @ weighed)

    def _distances(self, problem: Problem, asks: Tensor, seen: Tensor) -> None:
        """Σ over readers of k_i of E[(q · (k_i − k_j))²], for keys as the kernel saw them."""
        kv = self.own.kv_heads
        if problem.k.shape[1] != kv:
            return
        found = torch.zeros(kv, kv, dtype=torch.float64)
        for head, i in enumerate(problem.groups.kv_of_head):
            n = _square(problem.q[:, head][asks])
            for j in range(kv):
                off = _square((problem.k[:, i] - problem.k[:, j])[seen])
                found[i, j] += float((n * off).sum()) / max(1, int(asks.sum()))
        self._plus("keys_seen", found)

    # ---- what stands between --------------------------------------------------------------------

    def _look(self, problem: Problem, x: Mapping[str, Tensor], asks: Tensor, seen: Tensor) -> None:
        """Whether q and k are their projections, turned, or something else."""
        spans = self._norm_spans()
        if spans:
            self.kind = "normed over heads"
            return
        own, groups = self.own, problem.groups
        k = problem.k if problem.k.shape[1] == own.kv_heads else None
        if k is None:  # the kernel was given copies
            first = [groups.kv_of_head[own.groups.kv_of_head.index(i)] for i in range(own.kv_heads)]
            k = problem.k[:, first]
        pairs = [
            (_projected(x["q"], own.q, own.b_q) * asks[:, None, :, None], problem.q * asks[:, None, :, None]),
            (_projected(x["k"], own.k, own.b_k) * seen[:, None, :, None], k * seen[:, None, :, None]),
        ]
        grown = [float(after.double().norm() / before.double().norm().clamp_min(1e-300)) for before, after in pairs]
        self.scale = problem.scores.scale * grown[0] * grown[1]
        if all(_scaled(before, after) for before, after in pairs):
            self.kind = "plain"
            return
        self.pairs = pairs_of([(_grown(before, after), after) for before, after in pairs])
        self.kind = "rotary" if self.pairs is not None else "normed"

    def _norm_spans(self) -> bool:
        dim = self.layer.key_dim
        names = [name for letter in "qk" for name in self.layer.between[letter]]
        return any(self.model.get_parameter(name).shape[-1] > dim for name in names)

    # ---- sums --------------------------------------------------------------------------------------

    def _plus(self, name: str, more: Tensor) -> None:
        if name in self.totals:
            self.totals[name] += more.to(self.totals[name].device)
        else:
            self.totals[name] = more

    def over_ranks(self, summed: Callable[..., None]) -> None:
        """What all ranks have seen together; of the scale, which each has found on its first batch, the mean."""
        counted = torch.tensor([float(self.tokens), self.scale, 1.0], dtype=torch.float64)
        summed(counted, *(self.totals[name] for name in sorted(self.totals)))
        self.tokens, self.scale = int(counted[0]), float(counted[1] / counted[2])

    def moments(self) -> Moments:
        if self.kind is None or self.tokens == 0:
            raise MultiheadError(
                f"{self.layer.name} ({self.layer.path}) was not seen to attend to anything",
                hint="was the calibration text empty, or is this layer of another model?",
            )
        mean = {name: total / self.tokens for name, total in self.totals.items()}
        heads = self.own.heads
        return Moments(
            self.tokens,
            mean["query"],
            mean["key"],
            mean.get("value", mean["key"]),
            mean.get("averaged", mean["centre"]),
            torch.stack([mean[f"looked{h}"] for h in range(heads)]),
            mean["centre"],
            self.kind,
            self.pairs,
            self.shift_free,
            self.sums_to_one,
            self.scale,
            mean.get("keys_seen"),
        )


@dataclass
class _Reader:
    """Keeps what a projection is given."""

    sums: _Sums
    letter: str
    module: nn.Module

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, nn.MultiheadAttention):
            at, name = {"q": (0, "query"), "k": (1, "key"), "v": (2, "value")}[self.letter]
            x = args[at] if len(args) > at else kwargs[name]
            x = x.transpose(0, 1) if x.ndim == 3 and not module.batch_first else x
        else:
            x = args[0] if args else next(iter(kwargs.values()))
        # The same tensor keeps one name, so that who reads the same stream is known.
        known = next((y for y in self.sums.given.values() if _same(x, y)), x)
        self.sums.given[self.letter] = known


def _same(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and x.data_ptr() == y.data_ptr() and x.stride() == y.stride()


def _one(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)


def _square(x: Float[Tensor, "token width"]) -> Square:
    x = x.double()
    return x.mT @ x


def _projected(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    out = torch.einsum("btd,hkd->bhtk", x.to(w.dtype), w)
    return out if b is None else out + b[:, None]


def _factor(before: Tensor, after: Tensor) -> float:
    return float((before.double() * after.double()).sum() / before.double().square().sum().clamp_min(1e-300))


def _scaled(before: Tensor, after: Tensor) -> bool:
    """after = c · before."""
    off = after.double() - _factor(before, after) * before.double()
    return float(off.norm()) <= tolerance(after) * float(after.double().norm())


def _grown(before: Tensor, after: Tensor) -> Tensor:
    """Scaled to the size of `after`: some models scale their queries."""
    ratio = float(after.double().norm() / before.double().norm().clamp_min(1e-300))
    return before * ratio if abs(ratio - 1) > tolerance(after) else before
