"""Sizes of attention layers: one `Spec` per kind of layer, written by hand or read from a model.

>>> from multihead.measures.cost.spec import Spec
>>> Spec(4096, 32, kv_heads=8, layers=32).weights
41943040
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from multihead._base.arguments import check_count
from multihead._base.plural import plural
from multihead.errors import AnatomyError, SizeError

Side = Literal["tokens", "source"]
"""The model's sequence, or the encoder's sequence in an encoder-decoder model."""

_SIZES = (
    "kv_heads", "head_dim", "value_dim", "unique_layers", "d_key", "d_value", "d_out",
    "extra_params", "per_head", "per_kv_head",
)  # fmt: skip
"""Fields whose default is 0: none, or a value derived from the others."""


@dataclass(frozen=True)
class Latent:
    """Latent attention caches c = W_D x per token, and one rotated key for all heads (DeepSeek-V2, 2024)."""

    latent_dim: int
    rope_dim: int
    query_dim: int | None = None
    """size of the latent vector of the queries; if None, queries are projected directly"""


@dataclass(frozen=True)
class Spec:
    """Sizes of one kind of attention layer, and the number of such layers in a model.

    Args:
        head_dim, value_dim: size of a head's query/key and value; by default d_model / heads.
        layers, unique_layers: number of layers, and of those with weights of their own (ALBERT: 1).
        biases: projections with a bias, letters of "qkvo"; with `latent`, "q" and "k" are the down-projections.
        window: number of keys that a query sees, itself included; if None, all.
        causal: queries see no later keys, and keys are cached.
        queries, keys: their sequences; ("tokens", "source") is cross-attention, ("source", "source") its encoder.
        extra_params, per_head, per_kv_head: other parameters: in total, per query head (sinks), per kv head.

    Raises:
        SizeError: if sizes do not fit together.

    >>> import multihead as mh
    >>> from multihead.measures import Spec
    >>> grouped = Spec(4096, 32, kv_heads=8, layers=32)
    >>> grouped.shape, mh.cost(grouped, tokens=8192).total.cache_bytes
    ('32 heads of 128 on 8 kv', 1073741824)
    """

    d_model: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    layers: int = 1
    unique_layers: int = 0
    biases: str = ""
    window: int | None = None
    causal: bool = True
    queries: Side = "tokens"
    keys: Side = "tokens"
    d_key: int = 0
    d_value: int = 0
    d_out: int = 0
    latent: Latent | None = None
    extra_params: int = 0
    per_head: int = 0
    per_kv_head: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        for field in ("d_model", "heads", "layers"):
            check_count(field, getattr(self, field))
        for field in _SIZES:
            check_count(field, getattr(self, field), least=0)
        if self.window is not None:
            check_count("window", self.window)
        if not set(self.biases) <= set("qkvo"):
            raise SizeError(f"biases must be letters of 'qkvo', got {self.biases!r}", hint="biases='qkv'")
        for field in ("queries", "keys"):
            if getattr(self, field) not in ("tokens", "source"):
                raise SizeError(f"{field} must be 'tokens' or 'source', got {getattr(self, field)!r}")
        if not self.head_dim and self.d_model % self.heads:
            raise SizeError(f"heads={self.heads} does not divide d_model={self.d_model}", hint="pass head_dim")
        defaults = {
            "kv_heads": self.heads,
            "head_dim": self.d_model // self.heads,
            "d_key": self.d_model,
            "d_out": self.d_model,
            "unique_layers": self.layers,
        }
        for field, value in defaults.items():
            object.__setattr__(self, field, getattr(self, field) or value)
        object.__setattr__(self, "value_dim", self.value_dim or self.head_dim)
        object.__setattr__(self, "d_value", self.d_value or self.d_key)
        if self.kv_heads > self.heads:
            raise SizeError(
                f"kv_heads must be at most heads={self.heads}, got {self.kv_heads}",
                hint="kv_heads=heads is plain multi-head attention",
            )

    @property
    def shape(self) -> str:
        """The spec in words: `32 heads of 128 on 8 kv`"""
        size = f"{self.head_dim}" if self.head_dim == self.value_dim else f"{self.head_dim}/{self.value_dim}"
        heads = f"{plural(self.heads, 'head')} of {size}"
        if self.latent is not None:
            return f"{heads} out of {self.latent.latent_dim} + {self.latent.rope_dim} latent"
        return heads if self.kv_heads == self.heads else f"{heads} on {self.kv_heads} kv"

    # ---- counts of one layer ------------------------------------------------------------------

    @property
    def query_weights(self) -> int:
        """Weights in the spec applied to every query: W_Q and W_O."""
        inner, out = self.heads * self.head_dim, self.heads * self.value_dim * self.d_out
        if self.latent is None or self.latent.query_dim is None:
            return self.d_model * inner + out
        return (self.d_model + inner) * self.latent.query_dim + out

    @property
    def key_weights(self) -> int:
        """Weights in the spec applied to every key: W_K and W_V, or the latent down- and up-projections."""
        if self.latent is None:
            return self.kv_heads * (self.d_key * self.head_dim + self.d_value * self.value_dim)
        latent, rope = self.latent.latent_dim, self.latent.rope_dim
        return self.d_key * (latent + rope) + latent * self.heads * (self.head_dim - rope + self.value_dim)

    @property
    def weights(self) -> int:
        """Weights in the projection matrices."""
        return self.query_weights + self.key_weights

    @property
    def parameters(self) -> int:
        """Parameters of a layer of this spec: matrices, biases, and others."""
        widths = {
            "q": self.heads * self.head_dim,
            "k": self.kv_heads * self.head_dim,
            "v": self.kv_heads * self.value_dim,
            "o": self.d_out,
        }
        if self.latent is not None:
            widths |= {"q": self.latent.query_dim or 0, "k": self.latent.latent_dim + self.latent.rope_dim, "v": 0}
        biases = sum(widths[letter] for letter in self.biases)
        other = self.extra_params + self.heads * self.per_head + self.kv_heads * self.per_kv_head
        return self.weights + biases + other

    @property
    def cache_dim(self) -> int:
        """Values per token in the KV cache of a layer of this spec."""
        if self.latent is not None:
            return self.latent.latent_dim + self.latent.rope_dim
        return self.kv_heads * (self.head_dim + self.value_dim)

    def cells(self, queries: int, keys: int) -> int:
        """Visible (query, key) pairs of the spec; a causal mask is aligned at the end, as with a cache."""
        visible = keys if self.window is None else min(self.window, keys)
        if not self.causal or self.keys == "source":
            return queries * visible
        before = keys - queries  # query i sees before + i + 1 keys, at most `visible`
        partial = min(max(visible - before, 0), queries)
        return partial * before + partial * (partial + 1) // 2 + (queries - partial) * visible

    # ---- pruned and grouped -------------------------------------------------------------------

    def pruned(self, heads: int) -> Spec:
        """The spec with `heads` query heads, and as many kv heads as they need at the same group size."""
        check_count("heads", heads, most=self.heads)
        group = -(-self.heads // self.kv_heads)
        return replace(self, heads=heads, kv_heads=min(-(-heads // group), self.kv_heads))

    def grouped(self, kv_heads: int) -> Spec:
        """The spec with the same query heads and `kv_heads` kv heads."""
        if self.latent is not None:
            raise SizeError(
                f"{self.shape}: latent attention has no kv heads to group", hint="its cache is already small"
            )
        check_count("kv_heads", kv_heads, most=self.heads)
        if self.heads % kv_heads:
            divisors = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise SizeError(
                f"kv_heads={kv_heads} does not divide heads={self.heads}",
                hint=f"choose one of {', '.join(map(str, divisors))}",
            )
        return replace(self, kv_heads=kv_heads)


def merge_equal(layers: Sequence[Spec], unique: Iterable[bool]) -> tuple[Spec, ...]:
    """Merge specs of equal layers into one with a count. `unique`: whether the weights of a layer are new."""
    counts: dict[Spec, tuple[int, int]] = {}
    for layer, own_weights in zip(layers, unique, strict=True):
        total, different = counts.get(layer, (0, 0))
        counts[layer] = total + 1, different + own_weights
    if not counts:
        raise AnatomyError("the model has no attention layer", hint="pass the sizes: mh.cost(Spec(...))")
    return tuple(replace(layer, layers=n, unique_layers=max(m, 1)) for layer, (n, m) in counts.items())
