"""Find the rows of the weights that belong to each head, by gradients.

Row r of W belongs to head h if the head's vector at the kernel depends on it: ∂(random · q[:, h]) / ∂(x Wᵀ)[r] is
not zero. That holds through rotation, scaling and (frozen) norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import AnatomyError
from multihead.layer.problem import Groups
from multihead.model.graph import Graph, Product, edge_of, gradients, sent_back
from multihead.model.traced_run import Seen

LETTERS = "qkv"


class HiddenRowsError(AnatomyError):
    """Some rows of a projection do not reach the kernel, because a factor after it is zero."""


@dataclass(frozen=True)
class Slots:
    """start, start + step, …: `count` indices along one axis of a parameter."""

    start: int
    count: int
    step: int = 1

    def of(self, x: Tensor, axis: int) -> Tensor:
        """The view of x at these indices."""
        index = [slice(None)] * x.dim()
        index[axis] = slice(self.start, self.start + (self.count - 1) * self.step + 1, self.step)
        return x[tuple(index)]

    def indices(self) -> list[int]:
        return [self.start + i * self.step for i in range(self.count)]


@dataclass(frozen=True)
class Projection:
    """Where the heads of one projection are stored: `heads[i]` along `axis` of `parameter`, likewise for the bias.

    `axis` is the one that heads are laid out along: output rows for q, k and v, input columns for o. The bias of o
    belongs to no head, so its `bias_heads` is empty.
    """

    parameter: str
    axis: int
    heads: tuple[Slots, ...]
    bias: str | None = None
    bias_heads: tuple[Slots, ...] = ()

    @property
    def module(self) -> str:
        """The path of the module that holds the parameter."""
        return self.parameter.rpartition(".")[0]


@dataclass(frozen=True)
class Storage:
    """Where all projections of one attention are stored, and which kv head each query head reads."""

    q: Projection
    k: Projection
    v: Projection
    o: Projection
    groups: Groups

    def __getitem__(self, letter: str) -> Projection:
        return cast(Projection, getattr(self, letter))


@dataclass(frozen=True)
class Support:
    """One head's dependence on the channels of its product: random · head = Σ gradient · (x Wᵀ + b) + constant."""

    channels: tuple[int, ...]
    gradient: Float[Tensor, "row channel"]  # of these channels
    value: float
    constant: float


class Trace:
    """One attention call with the graph around it: its products, and the channels that each head depends on."""

    def __init__(self, seen: Seen, graph: Graph) -> None:
        self.seen, self.graph = seen, graph
        self.path = seen.call.path
        self.name = seen.call.path or type(seen.call.module).__name__
        problem = seen.call.problem
        self.vectors = {"q": problem.q, "k": problem.k, "v": problem.v}
        self._products: dict[str, Product] = {}
        self._back = {letter: graph.back(x) for letter, x in self.vectors.items()}

    def product(self, letter: str) -> Product:
        """The linear map that produces q, k or v, or (o) the one that reads the heads' outputs."""
        if letter not in self._products:
            self._products[letter] = self._product(letter)
        return self._products[letter]

    def _product(self, letter: str) -> Product:
        products = self.graph.on(self.seen.heads) if letter == "o" else self._back[letter].products
        if len(products) == 1:
            if letter != "o":
                self._check_feeds_only_attention(letter, products[0])
            return products[0]
        names = ", ".join(p.weight.name for p in products)
        role = "the heads' outputs must feed" if letter == "o" else f"{letter} must come from"
        raise AnatomyError(
            f"{self.name}: {role} exactly one linear map, got {len(products)}{f' ({names})' if names else ''}",
            hint="merge adapters (LoRA) into their weights first; with several maps, none holds all rows of a head"
            if products
            else "only y = x Wᵀ + b with a parameter W is supported: no convolutions, no quantised weights",
        )

    def _check_feeds_only_attention(self, letter: str, product: Product) -> None:
        """Raise if the product feeds other weights too: then it is the residual stream, and not a projection."""
        other = self.graph.feeds(product)
        if other is not None:
            raise AnatomyError(
                f"{self.name}: {letter} must have its own projection, but {product.weight.name}, the first weight "
                f"before it, also feeds {other}",
                hint=f"this attention has no weight for {letter}: there is nothing to show or prune",
            )

    def between(self, letter: str) -> list[str]:
        """The parameters between the projection and the kernel: norms, scales."""
        return self._back[letter].between

    @cached_property
    def supports(self) -> dict[str, list[Support]]:
        return {letter: self._supports(letter) for letter in LETTERS}

    def _supports(self, letter: str) -> list[Support]:
        vectors, product, ones = self.vectors[letter], self.product(letter), self._back[letter].ones
        drawn = torch.randn(vectors.shape[2:], generator=torch.Generator().manual_seed(0)).to(vectors)
        supports: list[Support] = []
        for head in range(vectors.shape[1]):
            of_head = vectors[:, head]
            weights = drawn.expand_as(of_head).contiguous()
            gradient, *constants = gradients(of_head, weights, [product.target(), *ones])
            if gradient is None or not bool(gradient.isfinite().all()):
                raise AnatomyError(
                    f"{self.name}: {letter} of head {head} has no finite gradient from {product.weight.name}",
                    hint="are there NaN or inf in the weights or in the input?",
                )
            size = gradient.abs().amax(0)
            channels = (size > 1e-6 * size.max()).nonzero().squeeze(-1).tolist()
            value = float((of_head.detach().double() * weights.double()).sum())
            constant = sum(float(c) for c in constants if c is not None)
            supports.append(Support(tuple(channels), gradient[:, channels], value, constant))
        return supports

    @cached_property
    def columns(self) -> list[list[int]]:
        """The input columns of the output projection that read each head's vector."""
        product, heads = self.product("o"), self.seen.heads
        codes = torch.arange(1, product.x.shape[1] + 1, device=product.x.device).expand(product.x.shape)
        try:
            arrived = sent_back(product.source(), edge_of(heads), codes)  # batch, head, query, dim
        except AnatomyError as error:
            raise AnatomyError(
                f"{self.name}: between the heads' outputs and {product.weight.name}, {error.message}",
                hint="a gate or norm there mixes or scales heads, so no columns of W_O belong to a single head",
            ) from None
        code = arrived.amax((0, 2))
        if bool(((arrived != 0) & (arrived != code[None, :, None])).any()) or bool((code == 0).any()):
            raise AnatomyError(
                f"{self.name}: every token's head outputs must reach {product.weight.name} in the same order",
                hint="keep the order of heads fixed between the kernel and W_O",
            )
        return (code - 1).tolist()


def find(trace: Trace) -> Storage:
    """Find where the heads of this attention are stored."""
    problem = trace.seen.call.problem
    rows = {letter: [s.channels for s in trace.supports[letter]] for letter in LETTERS}
    _check_disjoint(trace, rows)
    # A model may copy its kv heads before the kernel. Copies have the same rows: merge them into one head.
    distinct = {letter: list(dict.fromkeys(rows[letter])) for letter in "kv"}
    of_head = {
        letter: tuple(distinct[letter].index(rows[letter][kv]) for kv in problem.groups.kv_of_head)
        for letter in "kv"
    }
    if of_head["k"] != of_head["v"]:
        raise AnatomyError(
            f"{trace.name}: query heads read key heads {of_head['k']} and value heads {of_head['v']}",
            hint="keys and values must have the same groups",
        )
    groups = Groups(of_head["k"], len(distinct["k"]))
    parts = {
        letter: _projection(trace, letter, rows["q"] if letter == "q" else distinct[letter]) for letter in LETTERS
    }
    return Storage(parts["q"], parts["k"], parts["v"], _out(trace), groups)


def _check_disjoint(trace: Trace, rows: dict[str, list[tuple[int, ...]]]) -> None:
    """No row of W belongs to two heads, and every head has as many rows as its vectors have dimensions."""
    for letter, rows_of_heads in rows.items():
        size, name = trace.vectors[letter].shape[3], trace.product(letter).weight.name
        owner: dict[int, tuple[int, ...]] = {}
        for head, head_rows in enumerate(rows_of_heads):
            shared = [r for r in head_rows if owner.setdefault(r, head_rows) != head_rows]
            if shared or len(head_rows) > size:
                raise AnatomyError(
                    f"{trace.name}: {letter} of head {head} must depend on {size} unshared rows of {name}, got "
                    f"{len(head_rows)} rows, {len(shared)} shared with earlier heads",
                    hint="heads are mixed between the projection and the kernel: no rows belong to a single head",
                )
            if len(head_rows) < size:
                raise HiddenRowsError(
                    f"{trace.name}: {letter} of head {head} must depend on {size} rows of {name}, got "
                    f"{len(head_rows)}",
                    hint="a constant factor after the projection is zero, so the run cannot show which head the "
                    "other rows belong to: remove the factor, or make it a parameter",
                )


def _projection(trace: Trace, letter: str, heads: Sequence[Sequence[int]]) -> Projection:
    product = trace.product(letter)
    weight, bias = product.weight, product.bias

    def slots(indices: Tensor, name: str) -> tuple[Slots, ...]:
        return tuple(as_slots(indices[list(rows)].tolist(), f"{trace.name}: {name}") for rows in heads)

    return Projection(
        weight.name,
        weight.axis,
        slots(weight.indices, weight.name),
        None if bias is None else bias.name,
        () if bias is None else slots(bias.indices, bias.name),
    )


def _out(trace: Trace) -> Projection:
    product = trace.product("o")
    weight, width = product.weight, product.x.shape[1]
    axis = 1 - weight.axis
    indices = [leaf.indices for leaf in (weight, product.bias) if leaf is not None]
    if weight.parameter.shape[axis] != width or any(bool((i.diff() != 1).any()) for i in indices):
        raise AnatomyError(
            f"{trace.name}: the output projection must be a whole parameter, but only a part of {weight.name} "
            f"{tuple(weight.parameter.shape)} reads the heads' outputs",
            hint="store W_O in a parameter of its own",
        )
    heads = tuple(as_slots(columns, f"{trace.name}: {weight.name}") for columns in trace.columns)
    return Projection(weight.name, axis, heads, None if product.bias is None else product.bias.name)


def as_slots(indices: Sequence[int], name: str) -> Slots:
    """Evenly spaced indices as a range. Raises for others: they have no view."""
    steps = {b - a for a, b in pairwise(indices)}
    if len(steps) > 1 or any(step < 1 for step in steps):
        raise AnatomyError(
            f"{name}: the indices of a head must be evenly spaced, got {list(indices)[:8]}",
            hint="other indices have no view: sort the weight's rows by head",
        )
    return Slots(indices[0], len(indices), steps.pop() if steps else 1)
