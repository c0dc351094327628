"""Parameters, FLOPs and memory of attention, computed from sizes alone.

>>> from multihead.measures.cost.cost import cost
>>> gpt3 = cost("gpt3", tokens=2048)
>>> gpt3.parameters, gpt3.crossover
(57986777088, 24576.0)
>>> cost("llama-3-8b", tokens=8192).compare(cost("llama-2-7b", tokens=8192))["KV cache"].ratio
4.0

FLOPs are 2 per multiplication of a matrix product, as in torch.utils.flop_counter: every (query, key) pair counts,
including those hidden by a causal mask or a window. `useful_flops` counts visible pairs only. Both exclude softmax,
norms and rotations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multihead._base.arguments import check_count, check_instance, describe
from multihead._base.plural import plural
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.measures.cost.cost_text import LINES, comparison_text, cost_text
from multihead.measures.cost.known_models import find_known_model, similar_names
from multihead.measures.cost.spec import Spec

if TYPE_CHECKING:
    import torch
    from torch import nn

USUAL_TOKENS = 2048
"""Default sequence length; a model with a shorter context uses its context length."""

BYTES = {
    "float64": 8, "fp64": 8, "float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2,
    "fp8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Counts:
    """Counts for one or more layers: integers that can be added."""

    parameters: int = 0
    projection_flops: int = 0
    attention_flops: int = 0
    useful_flops: int = 0
    score_bytes: int = 0
    """size of all attention maps softmax(q kᵀ) if stored in memory"""
    cache_bytes: int = 0
    moved_bytes: int = 0
    """weights, inputs, q, k, v and output, each moved once: a lower bound on memory traffic"""
    decode_projection_flops: int = 0
    decode_attention_flops: int = 0
    decode_bytes: int = 0
    """memory traffic of decoding one token: every weight and the whole cache"""

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def times(self, layers: int, unique_layers: int) -> Counts:
        scaled = Counts(**{f.name: getattr(self, f.name) * layers for f in fields(self)})
        return replace(scaled, parameters=self.parameters * unique_layers)


@dataclass(frozen=True)
class Change:
    """One row of a comparison."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before"""
        return self.after / self.before if self.before else float("nan")


class CostComparison(dict[str, Change]):
    """Two costs side by side: row name → change. Prints as a table."""

    def __init__(self, before: Cost, after: Cost) -> None:
        super().__init__({name: Change(line(before), line(after)) for name, line in LINES.items()})
        self.costs = (before, after)

    def __str__(self) -> str:
        return comparison_text(*self.costs, self)

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """The cost before, after, and their ratio, as JSON-compatible data."""
        lines = {
            name: {
                "before": _finite_or_none(c.before),
                "after": _finite_or_none(c.after),
                "ratio": _finite_or_none(c.ratio),
            }
            for name, c in self.items()
        }
        before, after = self.costs
        return {"before": before.to_json(), "after": after.to_json(), "change": lines}


@dataclass(frozen=True)
class Cost:
    """The cost of a model's attention at these sizes. Prints as a table."""

    name: str
    specs: tuple[Spec, ...]
    batch: int
    tokens: int
    source: int
    """keys of cross-attention, tokens of the encoder"""
    dtype: str
    itemsize: int
    origin: str = ""

    def layer(self, spec: Spec) -> Counts:
        """Counts for one layer of this kind."""
        length = {"tokens": self.tokens, "source": self.source}
        return _counts(spec, self.batch, length[spec.queries], length[spec.keys], self.itemsize)

    @property
    def total(self) -> Counts:
        """Counts for all layers."""
        return sum((self.layer(s).times(s.layers, s.unique_layers) for s in self.specs), Counts())

    @property
    def parameters(self) -> int:
        return self.total.parameters

    @property
    def flops(self) -> int:
        """FLOPs of one forward pass, as torch counts them."""
        return self.total.projection_flops + self.total.attention_flops

    @property
    def prefill_intensity(self) -> float:
        """FLOPs per byte moved in a forward pass over all tokens, with no n × n matrix stored."""
        return self.flops / self.total.moved_bytes

    @property
    def decode_intensity(self) -> float:
        """The cost of decoding one token, FLOPs per byte moved; NaN if the model does not decode."""
        total = self.total
        flops = total.decode_projection_flops + total.decode_attention_flops
        return flops / total.decode_bytes if total.decode_bytes else float("nan")

    @property
    def crossover(self) -> float:
        """n* = Σ weights / Σ heads (d_k + d_v): above n* tokens, attention takes more FLOPs than the projections.

        All sequences have this length. From 2 n W = 2 h n² (d_k + d_v); for multi-head attention, n* = 2 d_model.
        """
        weights = sum(s.layers * s.weights for s in self.specs)
        return weights / sum(s.layers * s.heads * (s.head_dim + s.value_dim) for s in self.specs)

    @property
    def useful_crossover(self) -> float:
        """The crossover counting visible pairs only, by bisection; infinite if windows keep attention below."""
        if not self._attention_dominates(_MOST_TOKENS):
            return float("inf")
        low, high = 0, _MOST_TOKENS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._attention_dominates(middle) else (middle, high)
        return float(high)

    def _attention_dominates(self, n: int) -> bool:
        pairs = sum(s.layers * s.heads * (s.head_dim + s.value_dim) * s.cells(n, n) for s in self.specs)
        return pairs >= n * sum(s.layers * s.weights for s in self.specs)

    def pruned(self, heads: int) -> Cost:
        """The cost of attention with `heads` query heads left in every layer."""
        return replace(
            self, specs=tuple(s.pruned(heads) for s in self.specs), name=f"{self.name}, {plural(heads, 'head')}"
        )

    def grouped(self, kv_heads: int) -> Cost:
        """The cost with `kv_heads` kv heads in every layer."""
        specs = tuple(s.grouped(kv_heads) for s in self.specs)
        return replace(self, specs=specs, name=f"{self.name}, {plural(kv_heads, 'kv head')}")

    def compare(self, other: Cost) -> CostComparison:
        """Compare this cost (before) with another (after)."""
        return CostComparison(self, other)

    def to_json(self) -> dict[str, Any]:
        """The cost as JSON-compatible data: sizes, counts for one layer of each kind, and totals."""
        parts = [{"sizes": asdict(s), "layer": asdict(self.layer(s))} for s in self.specs]
        inputs = {name: getattr(self, name) for name in ("name", "origin", "batch", "tokens", "source", "dtype")}
        derived = ("prefill_intensity", "decode_intensity", "crossover", "useful_crossover")
        return {
            **inputs,
            "parts": parts,
            "total": asdict(self.total),
            **{name: _finite_or_none(getattr(self, name)) for name in derived},
        }

    def __str__(self) -> str:
        return cost_text(self)

    def _repr_html_(self) -> str:
        from multihead._base.html_fragments import plain  # imports numpy, and counting does not need it

        return plain(str(self))


_MOST_TOKENS = 2**40
_NAMES = "`multihead cost --list` shows all names"


def cost(
    model: str | Path | Spec | Sequence[Spec] | nn.Module,
    *,
    batch: int = 1,
    tokens: int | None = None,
    source: int | None = None,
    dtype: str | torch.dtype = "bf16",
    causal: bool | None = None,
) -> Cost:
    """Count parameters, FLOPs and bytes for a name, a config, a module or sizes; arguments as of `mh.cost`."""
    subject = _counted(model)
    name, specs = subject.name, subject.specs
    check_instance("causal", causal, bool | None, "True, False or None", hint="causal=True")
    if causal is not None:
        specs = tuple(replace(s, causal=causal) if s.queries == s.keys == "tokens" else s for s in specs)
    if source is not None and all(s.queries == s.keys == "tokens" for s in specs):
        raise SizeError(f"{name} has no encoder, got source={source}", hint=f"tokens={source}")
    tokens = min(USUAL_TOKENS, subject.context or USUAL_TOKENS) if tokens is None else tokens
    source = (subject.source or tokens) if source is None else source
    for argument, size in (("batch", batch), ("tokens", tokens), ("source", source)):
        check_count(argument, size)
    dtype_name = str(dtype).removeprefix("torch.")
    if dtype_name not in BYTES:
        raise SizeError(f"unknown dtype {dtype_name!r} for {name}", hint=f"choose one of {', '.join(BYTES)}")
    return Cost(name, specs, batch, tokens, source, dtype_name, BYTES[dtype_name], subject.origin)


@dataclass(frozen=True)
class _Subject:
    """The sizes that are counted, and their source."""

    name: str
    specs: tuple[Spec, ...]
    context: int | None = None
    source: int | None = None
    origin: str = ""


def _counted(model: object) -> _Subject:
    """What `cost` counts: the `Spec`s of a known name, a folder, a module, or themselves."""
    if isinstance(model, str | Path):
        return _named(model)
    if isinstance(model, Spec):
        return _Subject(model.name or "layer", (model,))
    if isinstance(model, Sequence) and not model:
        raise SizeError("model must not be an empty list", hint="pass a name, a Spec, several Specs or a module")
    if isinstance(model, Sequence) and all(isinstance(s, Spec) for s in cast(Sequence[object], model)):
        return _Subject("model", tuple(cast(Sequence[Spec], model)))
    from torch import nn  # slow to import, and names and sizes do not need it

    if isinstance(model, nn.Module):
        from multihead.measures.cost.config_sizes import sizes_without_weights
        from multihead.measures.cost.sizes import context_of, sizes_of  # imports torch

        without_weights = any(p.is_meta for p in model.parameters())
        sizes = sizes_without_weights(model) if without_weights else sizes_of(model)
        return _Subject(type(model).__name__, sizes, context_of(model))
    raise TypeMismatchError(
        f"model must be a name, a folder, a module, a Spec or a list of Specs, got {describe(model)}",
        hint='mh.cost("gpt3"), mh.cost(model)',
    )


def _named(source: str | Path) -> _Subject:
    """The sizes to cost by name: a folder, a known model or a model on the hub, in this order."""
    name, folder = str(source), Path(source)
    if not name.strip():
        raise MultiheadError("model must not be an empty name", hint=_NAMES)
    known = None if folder.is_dir() else find_known_model(name)
    if known is not None:
        return _Subject(known.name, known.specs, known.context, known.source, known.origin)
    if not folder.is_dir() and "/" not in name:
        similar = similar_names(name)
        raise MultiheadError(
            f"unknown model {name!r}",
            hint=f"did you mean {' or '.join(similar)}?" if similar else _NAMES,
        )
    from multihead.measures.cost.config_sizes import meta_model, read_config, sizes_without_weights  # imports torch
    from multihead.measures.cost.sizes import context_of

    model = meta_model(read_config(source))
    shown = folder.resolve().name if folder.is_dir() else name
    return _Subject(shown, sizes_without_weights(model), context_of(model), origin=f"config.json of {name}")


def _finite_or_none(x: float) -> float | None:
    """None in place of NaN and infinity, which JSON does not have."""
    return x if math.isfinite(x) else None


def _counts(spec: Spec, batch: int, queries: int, keys: int, itemsize: int) -> Counts:
    """Parameters, FLOPs and bytes of one layer: its cost."""
    dims, heads = spec.head_dim + spec.value_dim, spec.heads
    pairs = batch * heads * queries * keys
    expanded = (
        heads * dims if spec.latent is not None else 0
    )  # k and v of every head, expanded from the latent vector
    moved = queries * (spec.d_model + spec.d_out + heads * spec.head_dim) + keys * (spec.cache_dim + expanded)
    if spec.keys != spec.queries:
        moved += keys * spec.d_key
    cached_tokens = keys if spec.window is None else min(keys, spec.window)
    decodes = spec.causal or spec.queries != spec.keys
    decode: dict[str, int] = {}
    if decodes:
        # Cross-attention keys are cached. Latent attention absorbs W_UK and W_UV: it attends to the latent vectors.
        weights = spec.query_weights + (spec.key_weights if spec.queries == spec.keys else 0)
        read = spec.parameters - spec.weights + weights
        latent = spec.latent
        width = dims if latent is None else 2 * latent.latent_dim + latent.rope_dim
        cache = batch * cached_tokens * spec.cache_dim
        decode = {
            "cache_bytes": itemsize * cache,
            "decode_projection_flops": 2 * batch * weights,
            "decode_attention_flops": 2 * batch * heads * cached_tokens * width,
            "decode_bytes": itemsize * (read + batch * (spec.d_model + spec.d_out + heads * spec.head_dim) + cache),
        }
    return Counts(
        parameters=spec.parameters,
        projection_flops=2 * batch * (queries * spec.query_weights + keys * spec.key_weights),
        attention_flops=2 * pairs * dims,
        useful_flops=2 * batch * heads * spec.cells(queries, keys) * dims,
        score_bytes=itemsize * pairs,
        moved_bytes=itemsize * (spec.parameters + batch * moved),
        **decode,
    )
