"""Find which rows of which weights make each head, by what depends on what.

Row r of W belongs to head h if the head's vector, as the kernel sees it, changes with it:
∂(random · q[:, h]) / ∂(x Wᵀ)[r] is not zero. That holds through rotation, scaling and (frozen) norms.
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
    """Some rows of a projection do not reach the kernel: a factor behind it is zero."""


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
    """Where the heads of one projection live: `heads[i]` along `axis` of `parameter`, and the same for the bias.

    The axis is the one that head indices run along: output rows for q, k and v, input columns for o. The bias of o
    belongs to no head: `bias_heads` is then empty.
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
    """Where all projections of one attention live, and which kv head each query head reads."""

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
    """One attention with the graph around it: its products, and what each head depends on."""

    def __init__(self, seen: Seen, graph: Graph) -> None:
        self.seen, self.graph = seen, graph
        self.path = seen.call.path
        self.place = seen.call.path or type(seen.call.module).__name__
        problem = seen.call.problem
        self.vectors = {"q": problem.q, "k": problem.k, "v": problem.v}
        self._own: dict[str, Product] = {}
        self._back = {letter: graph.back(x) for letter, x in self.vectors.items()}

    def product(self, letter: str) -> Product:
        """The linear map that made q, k or v, or that takes the heads' outputs."""
        if letter not in self._own:
            self._own[letter] = self._product(letter)
        return self._own[letter]

    def _product(self, letter: str) -> Product:
        products = self.graph.on(self.seen.heads) if letter == "o" else self._back[letter].products
        if len(products) == 1:
            if letter != "o":
                self._check_own(letter, products[0])
            return products[0]
        names = ", ".join(p.weight.name for p in products)
        what = "the heads' outputs go into" if letter == "o" else f"{letter} is made by"
        raise AnatomyError(
            f"{self.place}: {what} {len(products)} linear maps{f' ({names})' if names else ''}, one was expected",
            hint="merge adapters (LoRA) into their weights first; of several maps none has the head's rows alone"
            if products
            else "only y = x Wᵀ + b with W a parameter is followed: no convolution, no quantised weight",
        )

    def _check_own(self, letter: str, product: Product) -> None:
        """A projection feeds attention only; what feeds other weights too is the stream that attention reads."""
        other = self.graph.feeds(product)
        if other is not None:
            raise AnatomyError(
                f"{self.place}: {letter} has no projection of its own: {product.weight.name}, the first weight "
                f"before it, feeds {other} too",
                hint="attention on vectors as they are has no W for this letter: nothing to show or cut",
            )

    def between(self, letter: str) -> list[str]:
        """The parameters of what stands between the projection and the kernel: norms, scales."""
        return self._back[letter].between

    @cached_property
    def supports(self) -> dict[str, list[Support]]:
        return {letter: self._supports(letter) for letter in LETTERS}

    def _supports(self, letter: str) -> list[Support]:
        vectors, product, ones = self.vectors[letter], self.product(letter), self._back[letter].ones
        drawn = torch.randn(vectors.shape[2:], generator=torch.Generator().manual_seed(0)).to(vectors)
        found: list[Support] = []
        for head in range(vectors.shape[1]):
            mine = vectors[:, head]
            weights = drawn.expand_as(mine).contiguous()
            gradient, *constants = gradients(mine, weights, [product.target(), *ones])
            if gradient is None or not bool(gradient.isfinite().all()):
                raise AnatomyError(
                    f"{self.place}: {letter} of head {head} has no finite gradient from {product.weight.name}",
                    hint="are there NaN or inf in the weights or in the input?",
                )
            size = gradient.abs().amax(0)
            channels = (size > 1e-6 * size.max()).nonzero().squeeze(-1).tolist()
            value = float((mine.detach().double() * weights.double()).sum())
            constant = sum(float(c) for c in constants if c is not None)
            found.append(Support(tuple(channels), gradient[:, channels], value, constant))
        return found

    @cached_property
    def columns(self) -> list[list[int]]:
        """Which inputs of the output projection hold the vector of each head."""
        product, heads = self.product("o"), self.seen.heads
        codes = torch.arange(1, product.x.shape[1] + 1, device=product.x.device).expand(product.x.shape)
        try:
            got = sent_back(product.source(), edge_of(heads), codes)  # batch, head, query, dim
        except AnatomyError as changed:
            raise AnatomyError(
                f"{self.place}: between the heads' outputs and {product.weight.name}, {changed.message}",
                hint="a gate or a norm there mixes or scales heads, so that no columns of W_O are theirs alone",
            ) from None
        place = got.amax((0, 2))
        if bool(((got != 0) & (got != place[None, :, None])).any()) or bool((place == 0).any()):
            raise AnatomyError(
                f"{self.place}: the heads' outputs meet {product.weight.name} in another order for every token",
                hint="heads must keep their place on the way to W_O",
            )
        return (place - 1).tolist()


def find(trace: Trace) -> Storage:
    """Where the heads of this attention live."""
    problem = trace.seen.call.problem
    rows = {letter: [s.channels for s in trace.supports[letter]] for letter in LETTERS}
    _check_apart(trace, rows)
    # Copies that a model makes of its kv heads have one set of rows: they are one head again.
    distinct = {letter: list(dict.fromkeys(rows[letter])) for letter in "kv"}
    of_head = {
        letter: tuple(distinct[letter].index(rows[letter][kv]) for kv in problem.groups.kv_of_head)
        for letter in "kv"
    }
    if of_head["k"] != of_head["v"]:
        raise AnatomyError(
            f"{trace.place}: query heads read key heads {of_head['k']} and value heads {of_head['v']}",
            hint="keys and values must be grouped alike",
        )
    groups = Groups(of_head["k"], len(distinct["k"]))
    parts = {
        letter: _projection(trace, letter, rows["q"] if letter == "q" else distinct[letter]) for letter in LETTERS
    }
    return Storage(parts["q"], parts["k"], parts["v"], _out(trace), groups)


def _check_apart(trace: Trace, rows: dict[str, list[tuple[int, ...]]]) -> None:
    """No row of W belongs to two heads, and every head has as many as its vectors have numbers."""
    for letter, of_heads in rows.items():
        size, name = trace.vectors[letter].shape[3], trace.product(letter).weight.name
        owner: dict[int, tuple[int, ...]] = {}
        for head, mine in enumerate(of_heads):
            shared = [r for r in mine if owner.setdefault(r, mine) != mine]
            if shared or len(mine) > size:
                raise AnatomyError(
                    f"{trace.place}: {letter} of head {head} has {size} numbers and depends on {len(mine)} rows of "
                    f"{name}, of which {len(shared)} make an earlier head too",
                    hint="heads are mixed between the projection and the kernel: no rows are one head's alone",
                )
            if len(mine) < size:
                raise HiddenRowsError(
                    f"{trace.place}: {letter} of head {head} has {size} numbers and depends on {len(mine)} rows of "
                    f"{name} only",
                    hint="a constant factor behind the projection is zero, so the run does not show whose the "
                    "other rows are: remove the factor, or make it a parameter",
                )


def _projection(trace: Trace, letter: str, heads: Sequence[Sequence[int]]) -> Projection:
    product = trace.product(letter)
    weight, bias = product.weight, product.bias

    def slots(places: Tensor, name: str) -> tuple[Slots, ...]:
        return tuple(as_slots(places[list(rows)].tolist(), f"{trace.place}: {name}") for rows in heads)

    return Projection(
        weight.name,
        weight.axis,
        slots(weight.places, weight.name),
        None if bias is None else bias.name,
        () if bias is None else slots(bias.places, bias.name),
    )


def _out(trace: Trace) -> Projection:
    product = trace.product("o")
    weight, width = product.weight, product.x.shape[1]
    axis = 1 - weight.axis
    whole = [leaf.places for leaf in (weight, product.bias) if leaf is not None]
    if weight.parameter.shape[axis] != width or any(bool((p.diff() != 1).any()) for p in whole):
        raise AnatomyError(
            f"{trace.place}: only a part of {weight.name} {tuple(weight.parameter.shape)} takes the heads' outputs",
            hint="the output projection must be one whole parameter",
        )
    heads = tuple(as_slots(columns, f"{trace.place}: {weight.name}") for columns in trace.columns)
    return Projection(weight.name, axis, heads, None if product.bias is None else product.bias.name)


def as_slots(indices: Sequence[int], place: str) -> Slots:
    """Evenly spaced indices as a range: only those have a view."""
    steps = {b - a for a, b in pairwise(indices)}
    if len(steps) > 1 or any(step < 1 for step in steps):
        raise AnatomyError(
            f"{place}: a head lies at {list(indices)[:8]}, which is no evenly spaced range",
            hint="without one there is no view of the head: sort the weight's rows by head",
        )
    return Slots(indices[0], len(indices), steps.pop() if steps else 1)
