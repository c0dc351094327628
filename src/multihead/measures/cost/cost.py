"""Parameters, FLOPs and bytes of attention, counted from sizes alone.

>>> from multihead.measures.cost.cost import cost
>>> gpt3 = cost("gpt3", tokens=2048)
>>> gpt3.parameters, gpt3.crossover
(57986777088, 24576.0)
>>> cost("llama-3-8b", tokens=8192).compare(cost("llama-2-7b", tokens=8192))["KV cache"].ratio
4.0

FLOPs are 2 per multiplication of a matrix product, as torch.utils.flop_counter counts: every (query, key) pair,
also those that a causal mask or a window hides. `useful_flops` counts the pairs that may be seen. Softmax, norms
and rotations are left out by both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

from multihead._base.arguments import check_count
from multihead.errors import SizeError, TypeMismatchError
from multihead.measures.cost.configurations import Configuration, configuration
from multihead.measures.cost.cost_text import comparison_text, cost_text
from multihead.measures.cost.spec import Spec

if TYPE_CHECKING:
    import torch
    from torch import nn

USUAL_TOKENS = 2048
"""When nothing is said; a model of shorter sequences gets its longest."""

BYTES = {
    "float64": 8, "fp64": 8, "float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2,
    "fp8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """What is counted, of one layer or of many: plain integers that add up."""

    parameters: int = 0
    projection_flops: int = 0
    attention_flops: int = 0
    useful_flops: int = 0
    score_bytes: int = 0
    """of all maps softmax(q kᵀ), if they were written out"""
    cache_bytes: int = 0
    moved_bytes: int = 0
    """weights, inputs, q, k, v and output, each once: no way of computing moves less through the projections"""
    decode_projection_flops: int = 0
    decode_attention_flops: int = 0
    decode_bytes: int = 0
    """the same for one new token behind the others: every weight, and the whole cache"""

    def __add__(self, other: Numbers) -> Numbers:
        return Numbers(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def times(self, layers: int, stored: int) -> Numbers:
        every = Numbers(**{f.name: getattr(self, f.name) * layers for f in fields(self)})
        return replace(every, parameters=self.parameters * stored)


@dataclass(frozen=True)
class Change:
    """One line of a comparison."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before"""
        return self.after / self.before if self.before else float("nan")


class Comparison(dict[str, Change]):
    """Two costs side by side, by name of the line; print it."""

    def __init__(self, before: Cost, after: Cost) -> None:
        super().__init__({name: Change(line(before), line(after)) for name, line in LINES.items()})
        self.costs = (before, after)

    def __str__(self) -> str:
        return comparison_text(*self.costs, self)

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        lines = {
            name: {"before": _plain(c.before), "after": _plain(c.after), "ratio": _plain(c.ratio)}
            for name, c in self.items()
        }
        before, after = self.costs
        return {"before": before.to_json(), "after": after.to_json(), "change": lines}


@dataclass(frozen=True)
class Cost:
    """What the attention of a model costs at these sizes; print it, or read its numbers."""

    name: str
    specs: tuple[Spec, ...]
    batch: int
    tokens: int
    source: int
    """keys of cross-attention, tokens of the encoder"""
    dtype: str
    itemsize: int
    origin: str = ""

    def layer(self, spec: Spec) -> Numbers:
        """One layer of this kind."""
        length = {"tokens": self.tokens, "source": self.source}
        return _numbers(spec, self.batch, length[spec.queries], length[spec.keys], self.itemsize)

    @property
    def total(self) -> Numbers:
        """All layers."""
        return sum((self.layer(s).times(s.layers, s.stored) for s in self.specs), Numbers())

    @property
    def parameters(self) -> int:
        return self.total.parameters

    @property
    def flops(self) -> int:
        """Of one forward pass, as torch counts."""
        return self.total.projection_flops + self.total.attention_flops

    @property
    def prefill_intensity(self) -> float:
        """FLOPs per byte moved of a forward pass over all tokens, nothing n × n written."""
        return self.flops / self.total.moved_bytes

    @property
    def decode_intensity(self) -> float:
        """FLOPs per byte moved of one new token; NaN where nothing is decoded."""
        total = self.total
        flops = total.decode_projection_flops + total.decode_attention_flops
        return flops / total.decode_bytes if total.decode_bytes else float("nan")

    @property
    def crossover(self) -> float:
        """n* = Σ weights / Σ heads (d_k + d_v): with more tokens, attention takes more FLOPs than the projections.

        All sequences are of that length. From 2 n W = 2 h n² (d_k + d_v); plain multi-head attention: 2 d_model.
        """
        weights = sum(s.layers * s.weights for s in self.specs)
        return weights / sum(s.layers * s.heads * (s.head_dim + s.value_dim) for s in self.specs)

    @property
    def useful_crossover(self) -> float:
        """The same for the pairs that may be seen, by halving; infinite where windows keep attention below."""
        if not self._useful_passes(_FAR):
            return float("inf")
        low, high = 0, _FAR
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._useful_passes(middle) else (middle, high)
        return float(high)

    def _useful_passes(self, n: int) -> bool:
        pairs = sum(s.layers * s.heads * (s.head_dim + s.value_dim) * s.cells(n, n) for s in self.specs)
        return pairs >= n * sum(s.layers * s.weights for s in self.specs)

    def pruned(self, heads: int) -> Cost:
        """With so many query heads left in every layer."""
        return replace(self, specs=tuple(s.pruned(heads) for s in self.specs), name=f"{self.name}, {heads} heads")

    def grouped(self, kv_heads: int) -> Cost:
        """With the query heads of every layer on so many kv heads."""
        specs = tuple(s.grouped(kv_heads) for s in self.specs)
        return replace(self, specs=specs, name=f"{self.name}, {kv_heads} kv heads")

    def compare(self, other: Cost) -> Comparison:
        """This before, the other after."""
        return Comparison(self, other)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers: sizes, one layer of each kind, and all of them."""
        parts = [{"sizes": asdict(s), "layer": asdict(self.layer(s))} for s in self.specs]
        whole = {name: getattr(self, name) for name in ("name", "origin", "batch", "tokens", "source", "dtype")}
        derived = ("prefill_intensity", "decode_intensity", "crossover", "useful_crossover")
        return {
            **whole,
            "parts": parts,
            "total": asdict(self.total),
            **{name: _plain(getattr(self, name)) for name in derived},
        }

    def __str__(self) -> str:
        return cost_text(self)

    def _repr_html_(self) -> str:
        from multihead._base.html import plain

        return plain(str(self))


LINES: Mapping[str, Callable[[Cost], float]] = {
    "parameters": lambda c: c.total.parameters,
    "FLOPs, projections": lambda c: c.total.projection_flops,
    "FLOPs, attention": lambda c: c.total.attention_flops,
    "FLOPs, visible pairs only": lambda c: c.total.useful_flops,
    "scores, if written out": lambda c: c.total.score_bytes,
    "KV cache": lambda c: c.total.cache_bytes,
    "decoding, FLOPs per token": lambda c: c.total.decode_projection_flops + c.total.decode_attention_flops,
    "decoding, bytes per token": lambda c: c.total.decode_bytes,
    "FLOPs per byte, all tokens": lambda c: c.prefill_intensity,
    "FLOPs per byte, decoding": lambda c: c.decode_intensity,
    "crossover, tokens": lambda c: c.crossover,
    "crossover, visible pairs only": lambda c: c.useful_crossover,
}
"""What is compared, in the order in which it is shown."""

_FAR = 2**40


def cost(
    spec: str | Spec | Sequence[Spec] | Configuration | nn.Module,
    *,
    batch: int = 1,
    tokens: int | None = None,
    source: int | None = None,
    dtype: str | torch.dtype = "bf16",
    causal: bool | None = None,
) -> Cost:
    """Count parameters, FLOPs and bytes of the attention of a known model, of sizes, of a layer, or of any model.

    Args:
        spec: a name (`multihead cost --list`), a `Spec` or several, or a module.
        tokens: length of the sequence; by default 2048, or the model's longest if that is shorter.
        source: length of the encoder's sequence, where there is one; by default the model's own, or `tokens`.
        causal: what a module does not always say; it changes the useful pairs and the cache, nothing else.
    """
    found = configuration(spec) if isinstance(spec, str) else spec
    if isinstance(found, Configuration):
        name, specs, context, origin = found.name, found.specs, found.context, found.origin
        source = found.source if source is None else source
    else:
        name, specs, context, origin = *_named(found), USUAL_TOKENS, ""
    if causal is not None:
        specs = tuple(replace(s, causal=causal) if s.queries == s.keys == "tokens" else s for s in specs)
    tokens = min(USUAL_TOKENS, context) if tokens is None else tokens
    source = tokens if source is None else source
    for what, size in (("batch", batch), ("tokens", tokens), ("source", source)):
        check_count(what, size)
    word = str(dtype).removeprefix("torch.")
    if word not in BYTES:
        raise SizeError(f"dtype={word!r} is not known ({name})", hint=f"choose one of {', '.join(BYTES)}")
    return Cost(name, specs, batch, tokens, source, word, BYTES[word], origin)


def _plain(x: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return x if math.isfinite(x) else None


def _named(spec: object) -> tuple[str, tuple[Spec, ...]]:
    if isinstance(spec, Spec):
        return spec.name or "layer", (spec,)
    if isinstance(spec, Sequence) and not spec:
        raise SizeError(
            "there is no layer to count: spec is empty", hint="a name, a Spec, several Specs, or a module"
        )
    if isinstance(spec, Sequence) and all(isinstance(s, Spec) for s in cast(Sequence[object], spec)):
        return "model", tuple(cast(Sequence[Spec], spec))
    from torch import nn  # only here: a name or sizes are counted without it

    if isinstance(spec, nn.Module):
        from multihead.measures.cost.sizes import sizes_of

        return type(spec).__name__, sizes_of(spec)
    raise TypeMismatchError(
        f"cost of a {type(spec).__name__} is not known", hint="give a name, a Spec, a list of them, or a module"
    )


def _numbers(spec: Spec, batch: int, queries: int, keys: int, itemsize: int) -> Numbers:
    dims, heads = spec.head_dim + spec.value_dim, spec.heads
    pairs = batch * heads * queries * keys
    unfolded = heads * dims if spec.latent is not None else 0  # k and v of every head out of the latent vector
    moved = queries * (spec.d_model + spec.d_out + heads * spec.head_dim) + keys * (spec.kept + unfolded)
    if spec.keys != spec.queries:
        moved += keys * spec.d_key
    kept_tokens = keys if spec.window is None else min(keys, spec.window)
    decodes = spec.causal or spec.queries != spec.keys
    one: dict[str, int] = {}
    if decodes:
        # Keys of cross-attention are there already. Latent attention is absorbed: it attends to the latent vectors.
        weights = spec.query_weights + (spec.key_weights if spec.queries == spec.keys else 0)
        read = spec.parameters - spec.weights + weights
        latent = spec.latent
        width = dims if latent is None else 2 * latent.latent_dim + latent.rope_dim
        cache = batch * kept_tokens * spec.kept
        one = {
            "cache_bytes": itemsize * cache,
            "decode_projection_flops": 2 * batch * weights,
            "decode_attention_flops": 2 * batch * heads * kept_tokens * width,
            "decode_bytes": itemsize * (read + batch * (spec.d_model + spec.d_out + heads * spec.head_dim) + cache),
        }
    return Numbers(
        parameters=spec.parameters,
        projection_flops=2 * batch * (queries * spec.query_weights + keys * spec.key_weights),
        attention_flops=2 * pairs * dims,
        useful_flops=2 * batch * heads * spec.cells(queries, keys) * dims,
        score_bytes=itemsize * pairs,
        moved_bytes=itemsize * (spec.parameters + batch * moved),
        **one,
    )
