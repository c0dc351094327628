"""What attention costs depends on sizes alone: one `Spec` per kind of layer, written by hand or read off a model.

>>> from multihead.measures.cost.spec import Spec
>>> Spec(4096, 32, kv_heads=8, layers=32).weights
41943040
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from multihead.errors import SizeError

Side = Literal["tokens", "source"]
"""The sequence that is written or read, or the one that an encoder gives to a decoder."""


@dataclass(frozen=True)
class Latent:
    """c = W_D x is all that is kept of a token, with one rotated key for all heads (DeepSeek-V2, 2024)."""

    latent_dim: int
    rope_dim: int
    query_dim: int | None = None
    """size of a latent vector for the queries too; None: they are projected at once"""


@dataclass(frozen=True)
class Spec:
    """Sizes of one attention layer, and how often a model has it.

    Args:
        head_dim, value_dim: size of a head's query/key and value; by default d_model / heads.
        layers: how often it runs; `stored`: how many of those have weights of their own (ALBERT: 1).
        biases: the projections that have one, letters of "qkvo"; with `latent`, "q" and "k" are those down.
        window: keys that a query sees, itself included; None: all.
        causal: a query sees no key after itself, and a cache keeps the keys.
        queries, keys: of which sequence; ("tokens", "source") is cross-attention, ("source", "source") its encoder.
        beside, per_head, per_kv_head: other numbers it learns, in all, per query head (sinks), per kv head.
    """

    d_model: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    layers: int = 1
    stored: int = 0
    biases: str = ""
    window: int | None = None
    causal: bool = True
    queries: Side = "tokens"
    keys: Side = "tokens"
    d_key: int = 0
    d_value: int = 0
    d_out: int = 0
    latent: Latent | None = None
    beside: int = 0
    per_head: int = 0
    per_kv_head: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.head_dim and (self.heads < 1 or self.d_model % self.heads):
            raise SizeError(f"heads={self.heads} does not divide d_model={self.d_model}", hint="give head_dim")
        defaults = {
            "kv_heads": self.heads,
            "head_dim": self.d_model // max(self.heads, 1),
            "d_key": self.d_model,
            "d_out": self.d_model,
            "stored": self.layers,
        }
        for field, value in defaults.items():
            object.__setattr__(self, field, getattr(self, field) or value)
        object.__setattr__(self, "value_dim", self.value_dim or self.head_dim)
        object.__setattr__(self, "d_value", self.d_value or self.d_key)
        for field in ("d_model", "heads", "kv_heads", "head_dim", "value_dim", "layers", "window"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise SizeError(f"{field}={value} is not positive", hint=f"choose {field} >= 1")
        if self.kv_heads > self.heads:
            raise SizeError(
                f"kv_heads={self.kv_heads} are more than the heads={self.heads} that could read them",
                hint="kv_heads=heads is plain multi-head attention",
            )

    @property
    def shape(self) -> str:
        """`32 heads of 128 on 8 kv heads`"""
        size = f"{self.head_dim}" if self.head_dim == self.value_dim else f"{self.head_dim}/{self.value_dim}"
        heads = f"{self.heads} head{'s' if self.heads > 1 else ''} of {size}"
        if self.latent is not None:
            return f"{heads} out of {self.latent.latent_dim} + {self.latent.rope_dim} latent"
        return heads if self.kv_heads == self.heads else f"{heads} on {self.kv_heads} kv"

    # ---- numbers of one layer -------------------------------------------------------------------

    @property
    def query_weights(self) -> int:
        """W_Q and W_O: what every query goes through."""
        inner, out = self.heads * self.head_dim, self.heads * self.value_dim * self.d_out
        if self.latent is None or self.latent.query_dim is None:
            return self.d_model * inner + out
        return (self.d_model + inner) * self.latent.query_dim + out

    @property
    def key_weights(self) -> int:
        """W_K and W_V, or what the latent vector is made with and unfolded by: what every key goes through."""
        if self.latent is None:
            return self.kv_heads * (self.d_key * self.head_dim + self.d_value * self.value_dim)
        latent, rope = self.latent.latent_dim, self.latent.rope_dim
        return self.d_key * (latent + rope) + latent * self.heads * (self.head_dim - rope + self.value_dim)

    @property
    def weights(self) -> int:
        """Numbers in the matrices of the projections."""
        return self.query_weights + self.key_weights

    @property
    def parameters(self) -> int:
        """Matrices, biases, and what is learned beside them."""
        widths = {
            "q": self.heads * self.head_dim,
            "k": self.kv_heads * self.head_dim,
            "v": self.kv_heads * self.value_dim,
            "o": self.d_out,
        }
        if self.latent is not None:
            widths |= {"q": self.latent.query_dim or 0, "k": self.latent.latent_dim + self.latent.rope_dim, "v": 0}
        biases = sum(widths[letter] for letter in self.biases)
        own = self.beside + self.heads * self.per_head + self.kv_heads * self.per_kv_head
        return self.weights + biases + own

    @property
    def kept(self) -> int:
        """Numbers that a cache keeps of one token."""
        if self.latent is not None:
            return self.latent.latent_dim + self.latent.rope_dim
        return self.kv_heads * (self.head_dim + self.value_dim)

    def cells(self, queries: int, keys: int) -> int:
        """(query, key) pairs that a query may see; causal is aligned at the end, as with a cache."""
        seen = keys if self.window is None else min(self.window, keys)
        if not self.causal or self.keys == "source":
            return queries * seen
        before = keys - queries  # a query at place i sees before + i + 1 keys, at most `seen`
        rising = min(max(seen - before, 0), queries)
        return rising * before + rising * (rising + 1) // 2 + (queries - rising) * seen

    # ---- what becomes of it ---------------------------------------------------------------------

    def pruned(self, heads: int) -> Spec:
        """So many query heads left; of the kv heads as many as they need at the same size of group."""
        if not 1 <= heads <= self.heads:
            raise SizeError(f"heads={heads} cannot be left of {self.heads}", hint=f"choose 1 to {self.heads}")
        group = -(-self.heads // self.kv_heads)
        return replace(self, heads=heads, kv_heads=min(-(-heads // group), self.kv_heads))

    def grouped(self, kv_heads: int) -> Spec:
        """The same query heads on so many kv heads."""
        if self.latent is not None:
            raise SizeError(
                f"{self.shape}: latent attention has no kv heads to group", hint="its cache is small already"
            )
        if not 1 <= kv_heads <= self.heads or self.heads % kv_heads:
            divisors = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
            raise SizeError(
                f"kv_heads={kv_heads} does not divide heads={self.heads}",
                hint=f"choose one of {', '.join(map(str, divisors))}",
            )
        return replace(self, kv_heads=kv_heads)
