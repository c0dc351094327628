"""Drawn cases: a variant of the layer, sizes, inputs and a mask, each also in plain data for the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import multihead as mh
import oracle
from multihead import mask, position
from multihead.layer import QKNorm, Sinks, init

GAIN = 1.4  # of the init: logits then have a standard deviation of 2 to 3, so nothing hides in a flat softmax

# ---- masks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sight:
    """A mask, and the same said cell by cell."""

    mask: mask.Mask | Tensor | None
    allowed: oracle.Allowed | None = None
    added: tuple[oracle.Added, ...] = ()
    learned: tuple[Tensor, ...] = ()  # additive masks that want a gradient

    def __and__(self, other: Sight) -> Sight:
        mine, theirs = self.allowed, other.allowed
        return Sight(
            mask.of(self.mask) & mask.of(other.mask),
            lambda *cell: (mine is None or mine(*cell)) and (theirs is None or theirs(*cell)),
            self.added + other.added,
            self.learned + other.learned,
        )

    def __or__(self, other: Sight) -> Sight:
        mine, theirs = self.allowed, other.allowed
        return Sight(
            mask.of(self.mask) | mask.of(other.mask),
            lambda *cell: mine is None or theirs is None or mine(*cell) or theirs(*cell),
        )


class Look:
    """A mask yet to be made: it holds tensors of the dtype of the call."""

    def __init__(self, make: Callable[[torch.dtype], Sight]) -> None:
        self.make = make

    def __call__(self, dtype: torch.dtype) -> Sight:
        return self.make(dtype)

    def __repr__(self) -> str:
        return str(self.make(torch.float32).mask)


RULES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "even keys": lambda b, h, q, k: k % 2 == 0,
    "keys by head": lambda b, h, q, k: (k + h) % 3 != 0,
    "queries by head": lambda b, h, q, k: (q + h) % 3 != 0,
    "every other row": lambda b, h, q, k: b % 2 == 0,
    "strided": lambda b, h, q, k: (q - k) % 3 == h % 2,
    "all four": lambda b, h, q, k: (b + 2 * h + 3 * q + 5 * k) % 7 < 4,
}


def _below(limit: int) -> st.SearchStrategy[int]:
    return st.integers(0, limit)


@st.composite
def leaves(
    draw: st.DrawFn, batch: int, heads: int, queries: int, keys: int, *, adding: bool = True, ragged: bool = False
) -> Look:
    """One mask that is not composed of others."""
    return Look(draw(_leaves(batch, heads, queries, keys, adding=adding, ragged=ragged)))


@st.composite
def _leaves(
    draw: st.DrawFn, batch: int, heads: int, queries: int, keys: int, *, adding: bool, ragged: bool
) -> Callable[[torch.dtype], Sight]:
    kinds = ["window", "lengths", "padding", "prefix", "tensor", "where", "everything"]
    kinds += ["causal", "offsets", "documents"] * (queries <= keys)
    kinds += ["ragged", "ragged"] * (ragged and queries == keys)
    kinds += ["additive"] * adding
    kind = draw(st.sampled_from(kinds))
    if kind == "causal":
        return lambda dtype: Sight(mask.causal(), lambda b, h, q, k, i: k <= q)
    if kind == "window":
        left, right, first = draw(st.integers(1, 7)), draw(_below(3)), draw(_below(2))
        block = draw(st.sampled_from([None, 1, 2, 5]))

        def window(dtype: torch.dtype) -> Sight:
            band = mask.window(left, right, first=first)
            band.block = band.block if block is None else block  # small tiles at small sizes
            return Sight(band, lambda b, h, q, k, i: q - left < k <= q + right or k < first)

        return window
    if kind in ("lengths", "ragged", "prefix"):
        shared = kind == "prefix" and draw(st.booleans())
        each = draw(st.lists(_below(keys), min_size=1 if shared else batch, max_size=1 if shared else batch))
        n = each * batch if shared else each
        if kind == "lengths":
            return lambda dtype: Sight(mask.lengths(each), lambda b, h, q, k, i: k < n[b])
        if kind == "ragged":
            return lambda dtype: Sight(mask.ragged(each), lambda b, h, q, k, i: k < n[b] and i < n[b])
        return lambda dtype: Sight(mask.prefix(each), lambda b, h, q, k, i: k <= q or k < n[b])
    if kind == "where":
        rule = RULES[draw(st.sampled_from(sorted(RULES)))]
        return lambda dtype: Sight(mask.where(rule), lambda b, h, q, k, i: bool(rule(b, h, q, k)))
    if kind == "offsets":
        cuts = sorted(draw(st.lists(_below(keys), max_size=3)))
        offsets = [0, *cuts, keys]
        which = [sum(o <= k for o in offsets[1:]) for k in range(keys)]
        return lambda dtype: Sight(mask.documents(offsets=offsets), lambda b, h, q, k, i: which[q] == which[k])
    generator = torch.Generator().manual_seed(draw(_below(10**6)))
    if kind == "documents":
        rows = draw(st.sampled_from([1, batch]))
        steps = torch.rand(rows, keys, generator=generator) < 0.3
        ids = steps.cumsum(1) % 4 - draw(_below(1))  # ids come again, and -1 is padding
        flat = rows == 1 and draw(st.booleans())
        table = (ids if rows == batch else ids.expand(batch, -1)).tolist()
        return lambda dtype: Sight(
            mask.documents(ids[0] if flat else ids),
            lambda b, h, q, k, i: table[b][q] == table[b][k] and table[b][q] >= 0,
        )
    if kind == "padding":
        solid = draw(st.booleans())  # one run of real keys, or holes
        chance = torch.rand(batch, keys, generator=generator)
        real = (torch.arange(keys) < chance[:, :1] * (keys + 1)) if solid else chance < 0.6
        return lambda dtype: Sight(mask.padding(real), lambda b, h, q, k, i: bool(real[b, k]))
    if kind in ("tensor", "additive"):
        full = (batch, heads, queries, keys)
        ndim = draw(st.integers(2, 4))
        axes = {2: (2, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}[ndim]
        one = draw(st.sets(st.sampled_from(axes[:-1])))  # axes left at 1, to broadcast
        shape = tuple(1 if a in one else full[a] for a in axes)
        plain, learn = draw(st.booleans()), kind == "additive" and draw(st.booleans())
        numbers = torch.randn(shape, generator=generator)
        hidden = torch.rand(shape, generator=generator) < (0.3 if draw(st.booleans()) else 0.0)

        def at(b: int, h: int, i: int, k: int) -> tuple[int, ...]:
            return tuple(0 if a in one else (b, h, i, k)[a] for a in axes)

        if kind == "tensor":
            sees = numbers < 0.3
            return lambda dtype: Sight(
                sees if plain else mask.tensor(sees), lambda b, h, q, k, i: bool(sees[at(b, h, i, k)])
            )

        def additive(dtype: torch.dtype) -> Sight:
            scores = numbers.to(dtype).masked_fill(hidden, -torch.inf).requires_grad_(learn)
            return Sight(
                scores if plain else mask.additive(scores),
                lambda b, h, q, k, i: not bool(hidden[at(b, h, i, k)]),
                (lambda b, h, q, k, i: scores[at(b, h, i, k)],),
                (scores,) if learn else (),
            )

        return additive
    return lambda dtype: Sight(mask.everything())


@st.composite
def looks(
    draw: st.DrawFn, batch: int, heads: int, queries: int, keys: int, *, adding: bool = True, ragged: bool = False
) -> Look:
    """A mask joined from up to three, with & and |."""
    sizes = (batch, heads, queries, keys)
    count = draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3]))
    if count == 0:
        return Look(lambda dtype: Sight(None))
    either = count > 1 and draw(st.integers(0, 3)) == 0
    parts = [draw(leaves(*sizes, adding=adding and not either, ragged=ragged)) for _ in range(count)]
    if either and adding and draw(st.booleans()):
        last = draw(leaves(*sizes, adding=True, ragged=ragged))
        return Look(lambda dtype: (parts[0](dtype) | parts[1](dtype)) & last(dtype))

    def joined(dtype: torch.dtype) -> Sight:
        whole = parts[0](dtype)
        for part in parts[1:]:
            whole = whole | part(dtype) if either else whole & part(dtype)
        return whole

    return Look(joined)


# ---- layers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One call of one layer."""

    variant: oracle.Variant
    options: dict[str, Any]
    width: int
    batch: int
    queries: int
    keys: int
    cross: str  # "self", "key" (value left out) or "key value"
    look: Look
    gate_dims: int
    positions: list[list[int]] | None
    dtype: torch.dtype
    training: bool
    seed: int
    cells: int  # how small the blocks are cut

    def layer(self, dtype: torch.dtype | None = None) -> mh.MultiHeadAttention:
        """The same weights in every dtype, none of them zero or one."""
        torch.manual_seed(self.seed)
        where = _place(self.variant, self.options["learned"])
        options = {k: v for k, v in self.options.items() if k != "learned"}
        layer = mh.MultiHeadAttention(
            self.width, self.variant.heads, **options, position=where, init=init.XavierPerHead(GAIN)
        )
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn(parameter.shape), alpha=0.4)
                elif name.startswith("position"):
                    parameter.normal_()
        return layer.to(dtype or self.dtype).train(self.training)

    def inputs(self, dtype: torch.dtype | None = None, *, grad: bool = False) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(self.seed + 1)

        def tokens(count: int, width: int) -> Tensor:
            x = torch.randn(self.batch, count, width, generator=generator)
            return x.to(dtype or self.dtype).requires_grad_(grad)

        given = {"query": tokens(self.queries, self.width)}
        if self.cross != "self":
            given["key"] = tokens(self.keys, self.options.get("d_key") or self.width)
        if self.cross == "key value":
            given["value"] = tokens(self.keys, self.options.get("d_value") or self.width)
        return given

    def gate(self, dtype: torch.dtype | None = None, *, grad: bool = False) -> Tensor | None:
        if self.gate_dims == 0:
            return None
        shape = {1: (self.variant.heads,), 2: (self.batch, self.variant.heads)}.get(
            self.gate_dims, (self.batch, self.variant.heads, self.queries)
        )
        gate = torch.randn(shape, generator=torch.Generator().manual_seed(self.seed + 2))
        return gate.to(dtype or self.dtype).requires_grad_(grad)

    def call(self) -> dict[str, Any]:
        return {} if self.positions is None else {"positions": torch.tensor(self.positions)}

    def ask_oracle(
        self, layer: mh.MultiHeadAttention, inputs: dict[str, Tensor], sight: Sight, gate: Tensor | None
    ) -> oracle.Answer:
        parameters = dict(layer.named_parameters())
        return oracle.attention(
            self.variant, parameters, **inputs,
            allowed=sight.allowed, added=sight.added, gate=gate, positions=self.positions,
        )  # fmt: skip


def _place(variant: oracle.Variant, learned: bool) -> Any:
    rule = variant.position
    if isinstance(rule, oracle.Turn):
        scaling = None if rule.factor == 1.0 else position.Linear(rule.factor)
        return position.Rotary(rule.base, interleaved=rule.interleaved, dim=rule.dim, scaling=scaling)
    if isinstance(rule, oracle.Slopes):
        return position.ALiBi(variant.heads, slopes=rule.slopes, learned=learned)
    if isinstance(rule, oracle.Buckets):
        return position.RelativeBias(
            variant.heads, buckets=rule.buckets, max_distance=rule.max_distance, bidirectional=rule.bidirectional
        )
    return None


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, dict[str, Any], tuple[int, ...]]:
    """(query heads, what to tell the constructor, kv head of each)"""
    if draw(st.booleans()):
        kv, size = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 2, 3]))
        said = {} if size == 1 and draw(st.booleans()) else {"num_kv_heads": kv}
        return kv * size, said, tuple(h // size for h in range(kv * size))
    heads, kv = draw(st.sampled_from([2, 3, 5, 7])), draw(st.sampled_from([2, 3]))
    uneven = tuple(draw(st.lists(_below(kv - 1), min_size=heads, max_size=heads)))
    return heads, {"kv_of_head": list(uneven), "num_kv_heads": kv}, uneven


@st.composite
def positions(draw: st.DrawFn, heads: int, head_dim: int) -> Any:
    kind = draw(st.sampled_from(["none", "rotary", "alibi", "relative"]))
    if kind == "rotary" and head_dim >= 2:
        dim = head_dim if head_dim % 2 == 0 else head_dim - 1
        partial = dim != head_dim or draw(st.booleans())
        return oracle.Turn(
            draw(st.sampled_from([10_000.0, 50.0])),
            draw(st.booleans()),
            draw(st.sampled_from(range(2, dim + 1, 2))) if partial else None,
            draw(st.sampled_from([1.0, 2.5])),
        )
    if kind == "alibi":
        power = heads & (heads - 1) == 0
        slopes = None if power and draw(st.booleans()) else tuple(0.1 + 0.3 * h for h in range(heads))
        return oracle.Slopes(slopes)
    if kind == "relative":
        both = draw(st.booleans())
        return oracle.Buckets(8 if both else 5, draw(st.sampled_from([9, 16])), both)
    return None


SIZES = [1, 2, 3, 5, 7, 11, 13, 17]


@st.composite
def cases(draw: st.DrawFn, *, largest: int = 17, adding: bool = True, alone: bool = False) -> Case:
    """Any variant × mask × sizes. `alone`: self-attention, and the mask is the test's own affair."""
    heads, said, kv_of_head = draw(groups())
    head_dim = draw(st.sampled_from([2, 3, 4, 5, 7, 8]))
    value_dim = draw(st.sampled_from([head_dim, head_dim, 1, 3, 6, 11]))
    width = draw(st.sampled_from([11, 13, 17]))
    batch = draw(st.sampled_from([1, 2, 3]))
    few = not alone and draw(st.integers(0, 3)) == 0  # queries, as in decoding
    kinds = ["self", "self", "key", "key value"]
    cross = "key" if few else draw(st.sampled_from(kinds[: 1 if alone else 4]))
    sizes = [n for n in SIZES if n <= largest]
    keys = draw(st.sampled_from([n for n in sizes if n >= 5] if few else sizes))
    queries = keys if cross == "self" else draw(st.sampled_from(sizes))
    if few:
        queries = draw(st.sampled_from([n for n in SIZES if 4 * n <= keys]))
    options: dict[str, Any] = {**said, "head_dim": head_dim, "value_dim": value_dim}
    if cross == "key value":
        options |= {"d_key": draw(st.sampled_from([None, 7])), "d_value": draw(st.sampled_from([None, 5]))}
        options["d_value"] = options["d_value"] or options["d_key"]
    options["bias"] = draw(st.sampled_from([True, False, "qkv", "o", "qv"]))
    if draw(st.booleans()):
        options["d_out"] = 19
    # Of fewer than four numbers a norm leaves little but their signs, and gradients are rounding errors.
    norms = [None, None, ("rms", "before"), ("rms", "after"), ("layer", "before")]
    norm = draw(st.sampled_from(norms if head_dim >= 4 else [None]))
    if norm is not None:
        options["qk_norm"] = QKNorm(*norm)
    scale = draw(st.sampled_from([None, None, 0.7]))
    softcap = draw(st.sampled_from([None, None, None, 3.0]))
    where = draw(positions(heads, head_dim))
    options |= {"scale": scale, "softcap": softcap, "dropout": 0.0, "learned": draw(st.booleans())}
    if draw(st.integers(0, 3)) == 0:
        options["sinks"] = Sinks(0.5)
    training = draw(st.booleans())
    if not training:
        options["dropout"] = draw(st.sampled_from([0.0, 0.3]))  # which must then do nothing
    variant = oracle.Variant(heads, head_dim, value_dim, kv_of_head, where, norm, scale, softcap)
    given = None
    if cross == "self" and not alone and draw(st.integers(0, 3)) == 0:
        starts = draw(st.lists(_below(30), min_size=batch, max_size=batch))
        given = [[s + i + i // 2 for i in range(queries)] for s in starts]  # with gaps
    look = Look(lambda dtype: Sight(None))
    if not alone:
        look = draw(looks(batch, heads, queries, keys, adding=adding, ragged=cross == "self"))
    return Case(
        variant=variant,
        options=options,
        width=width,
        batch=batch,
        queries=queries,
        keys=keys,
        cross=cross,
        look=look,
        gate_dims=draw(st.sampled_from([0, 0, 1, 2, 3])),
        positions=given,
        dtype=draw(st.sampled_from([torch.float32, torch.float64])),
        training=training,
        seed=draw(_below(10**6)),
        cells=draw(st.sampled_from([29, 101, 1 << 20])),
    )
