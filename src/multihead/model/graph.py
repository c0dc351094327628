"""Walk an autograd graph: from a tensor back to the linear map that made it, and from a tensor on to the next one.

A `Product` is y = x Wᵀ + b with W and b out of the model's parameters. Where a parameter is cut, transposed or
viewed on its way into the product, numbers are sent back through exactly those steps to learn which of its rows
became which channel of y.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from multihead.errors import AnatomyError
from multihead.model.traced_run import Discovery

_PRODUCTS = {"MmBackward0": (0, 1), "AddmmBackward0": (1, 2)}  # which inputs are x and w
_VIEWS = (
    "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Reshape", "Alias", "AsStrided", "Split",
    "SplitWithSizes", "Slice", "Narrow", "Select", "Unbind", "Squeeze", "Unsqueeze", "Clone", "ToCopy", "Expand",
    "Unflatten", "Flatten", "Movedim", "Chunk",
)  # fmt: skip
_LINEAR = (
    *_VIEWS, "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Addcmul", "Cat", "Stack", "Index", "IndexSelect",
    "IndexPut", "Roll", "Flip", "Repeat", "Copy", "CopySlices", "SliceScatter", "ViewAsComplex", "ViewAsReal",
)  # fmt: skip
"""What may lie between a projection and the kernel: rotation, scaling, frozen norms. Others may pass every check by
numbers at one input and still not be linear (abs), or mix tokens (cumsum)."""
_BASE = 128  # whole numbers below are exact in every float dtype, bfloat16 included

Edge = tuple[Node | None, int]


@dataclass(frozen=True)
class Leaf:
    """A parameter as a product uses it: channel c of y is index places[c] along `axis`."""

    name: str
    parameter: nn.Parameter
    axis: int
    places: Int[Tensor, " channel"]


@dataclass(frozen=True)
class Product:
    """y = x Wᵀ + b, for the rows of x: tokens of all sequences, one after the other."""

    node: Node
    x: Float[Tensor, "row width"]
    y: Float[Tensor, "row channel"]
    weight: Leaf
    bias: Leaf | None
    biased: bool  # whether y already holds the bias

    def source(self) -> GradientEdge:
        """Where x comes from."""
        node, number = _inputs(self.node)[_PRODUCTS[self.node.name()][0]]
        return GradientEdge(cast(Node, node), number)

    def target(self) -> GradientEdge:
        return GradientEdge(self.node, 0)


@dataclass(frozen=True)
class Way:
    """From a tensor back to the first products: these, and parameters and the ones of frozen norms before them."""

    products: list[Product]
    between: list[str]
    ones: list[Tensor]


class Graph:
    """The graph that one run of a model left, with the ways up that autograd itself does not keep."""

    def __init__(self, found: Discovery) -> None:
        self.found = found
        self.names = {id(p): name for name, p in found.model.named_parameters()}
        self.ones = {id(one) for one in found.frozen.ones}
        self._products: dict[Node, Product | None] = {}

    @cached_property
    def users(self) -> Mapping[Node, list[Node]]:
        """Which nodes take what a node gives."""
        users: dict[Node, list[Node]] = {}
        waiting = [cast(Node, x.grad_fn) for x in self.found.outputs]
        met = set(waiting)
        while waiting:
            node = waiting.pop()
            for below, _ in _inputs(node):
                if below is not None:
                    users.setdefault(below, []).append(node)
                    if below not in met:
                        met.add(below)
                        waiting.append(below)
        return users

    def back(self, x: Tensor) -> Way:
        """The first products on all ways back from x, and what is met before them."""
        products: dict[Node, Product] = {}
        between: dict[str, None] = {}
        ones: list[Tensor] = []
        waiting = [] if x.grad_fn is None else [x.grad_fn]
        met = set(waiting)
        while waiting:
            node = waiting.pop()
            product = self.product(node)
            if product is not None:
                products[node] = product
                continue
            leaf = getattr(node, "variable", None)
            if leaf is None and _kind(node) not in _LINEAR:
                raise AnatomyError(
                    f"{_kind(node)} lies between the projections and the kernel: only rotation, scaling and "
                    "norms are followed",
                    hint="such weights do not give what the kernel sees; capture and ablate still work",
                )
            if leaf is not None and id(leaf) in self.names:
                between[self.names[id(leaf)]] = None
            elif leaf is not None and id(leaf) in self.ones:
                ones.append(leaf)
            for below, _ in _inputs(node):
                if below is not None and below not in met:
                    met.add(below)
                    waiting.append(below)
        biases = {p.bias.name for p in products.values() if p.bias is not None}
        return Way(list(products.values()), [name for name in between if name not in biases], ones)

    def on(self, x: Tensor) -> list[Product]:
        """The first products on all ways on from x."""
        products: dict[Node, Product] = {}
        waiting = [cast(Node, x.grad_fn)]
        met = set(waiting)
        while waiting:
            for above in self.users.get(waiting.pop(), ()):
                product = self.product(above)
                if product is not None:
                    products[above] = product
                elif above not in met:
                    met.add(above)
                    waiting.append(above)
        return list(products.values())

    def feeds(self, product: Product) -> str | None:
        """The name of a weight that takes what this product gives on a way around attention, if there is one."""
        kernels = {cast(Node, s.heads.grad_fn) for s in self.found.seen}
        waiting, met = [product.node], {product.node}
        while waiting:
            for above in self.users.get(waiting.pop(), ()):
                other = self.product(above)
                if other is not None:
                    return other.weight.name
                if above not in met and above not in kernels:
                    met.add(above)
                    waiting.append(above)
        return None

    def product(self, node: Node) -> Product | None:
        """The product with a parameter that this node is, if it is one."""
        if node not in self._products:
            self._products[node] = self._product(node)
        return self._products[node]

    def _product(self, node: Node) -> Product | None:
        if node.name() not in _PRODUCTS:
            return None
        inputs, (_, second) = _inputs(node), _PRODUCTS[node.name()]
        weight = self._leaf(inputs[second], dims=2)
        if weight is None:
            return None
        saved = cast(Any, node)
        x = cast(Tensor, saved._saved_mat1 if second == 2 else saved._saved_self).detach()
        w = cast(Tensor | None, saved._saved_mat2)
        y = None if w is None else self.found.products.result(x, w)
        if y is None:
            return None
        bias = self._leaf(inputs[0], dims=1) if second == 2 else None
        return Product(node, x, y.detach(), weight, bias or self._added(node), bias is not None)

    def _added(self, node: Node) -> Leaf | None:
        """A bias that is added after the product, as a step of its own."""
        above = self.users.get(node, [])
        while len(above) == 1 and _is_view(above[0]):
            above = self.users.get(above[0], [])
        if len(above) != 1 or above[0].name() != "AddBackward0" or cast(Any, above[0])._saved_alpha != 1:
            return None
        leaves = [self._leaf(edge, dims=1) for edge in _inputs(above[0])]
        return next((leaf for leaf in leaves if leaf is not None), None)

    def _leaf(self, edge: Edge, dims: int) -> Leaf | None:
        """The parameter behind an edge, if only views lie between, and how the edge's last axis runs through it."""
        node, views = edge[0], list[str]()
        while node is not None and _is_view(node):
            views.append(node.name())
            below = [n for n, _ in _inputs(node) if n is not None]
            node = below[0] if len(below) == 1 else None
        parameter = getattr(node, "variable", None)
        if parameter is None or id(parameter) not in self.names or parameter.dim() != dims:
            return None
        start = GradientEdge(cast(Node, edge[0]), edge[1])
        shape = _shape(start)
        if len(shape) != dims:
            return None
        channels = torch.arange(1, shape[-1] + 1, device=parameter.device)
        if not views or views == ["TBackward0"]:  # whole, as it is or turned round: the usual case, and a large one
            return Leaf(self.names[id(parameter)], parameter, dims - 1 - len(views), channels - 1)
        name = self.names[id(parameter)]
        try:
            got = sent_back(start, parameter, channels.expand(shape))
        except AnatomyError as changed:
            raise AnatomyError(f"{name} is not used as it is: {changed.message}", hint=_SPLIT_HINT) from None
        axis = next((a for a in range(dims) if bool((got == _along(got, a)).all())), None)
        if axis is None:
            raise AnatomyError(
                f"{name} {tuple(parameter.shape)} is cut in a way that is no range of rows", hint=_SPLIT_HINT
            )
        line = _line(got, axis)
        places = torch.full((shape[-1],), -1, dtype=torch.long, device=line.device)
        used = line.nonzero().squeeze(-1)
        places[line[used] - 1] = used
        if bool((places < 0).any()):
            raise AnatomyError(f"{name} feeds only a part of what is made with it", hint=_SPLIT_HINT)
        return Leaf(name, parameter, axis, places)


_SPLIT_HINT = "keep the weights of one projection in one nn.Linear, or give the module a row in families.py"


def sent_back(start: GradientEdge, to: Tensor | GradientEdge, codes: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Whole numbers at one place of the graph, as they arrive at another; 0 where nothing arrives.

    Only for ways that move numbers and neither scale nor add them: ones are sent first, and must arrive as ones.
    """
    dtype = cast(Any, start.node)._input_metadata[start.output_nr].dtype

    def arrives(numbers: Tensor) -> Tensor:
        (got,) = _grad([start], [to], [numbers.to(dtype)])
        if got is None:
            raise AnatomyError("nothing arrives")
        return got

    once = arrives(torch.ones_like(codes))
    if not bool(((once == 0) | (once == 1)).all()):
        raise AnatomyError("numbers are changed on their way")
    total, power = torch.zeros_like(once, dtype=torch.long), 1
    while power <= int(codes.max()):
        total += arrives(codes // power % _BASE).long() * power
        power *= _BASE
    return total


def gradients(of: Tensor, weights: Tensor, to: Iterable[Tensor | GradientEdge]) -> tuple[Tensor | None, ...]:
    """∂(of · weights)/∂to."""
    return _grad([of], list(to), [weights])


def _grad(
    outputs: list[Tensor | GradientEdge], inputs: list[Tensor | GradientEdge], weights: list[Tensor]
) -> tuple[Tensor | None, ...]:
    grad = cast(Any, torch.autograd.grad)  # torch's stub knows tensors only, torch itself takes edges
    return grad(outputs, inputs, weights, retain_graph=True, allow_unused=True)


def edge_of(x: Tensor) -> GradientEdge:
    return get_gradient_edge(x)


def _inputs(node: Node) -> tuple[Edge, ...]:
    return node.next_functions


def _is_view(node: Node) -> bool:
    return _kind(node) in _VIEWS


def _kind(node: Node) -> str:
    return node.name().rstrip("0123456789").removesuffix("Backward")


def _shape(edge: GradientEdge) -> torch.Size:
    return torch.Size(cast(Any, edge.node)._input_metadata[edge.output_nr].shape)


def _line(x: Tensor, axis: int) -> Tensor:
    """x at index 0 of all axes but this one."""
    for a in reversed(range(x.dim())):
        x = x if a == axis else x.select(a, 0)
    return x


def _along(x: Tensor, axis: int) -> Tensor:
    """x as it would be if it changed along this axis only."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return _line(x, axis).view(shape)
