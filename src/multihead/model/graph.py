"""Walk an autograd graph: from a tensor back to the linear map that produced it, or forward to the next one.

A `Product` is y = x Wᵀ + b, where W and b are parameters of the model. A parameter may be sliced, transposed or
viewed before the product. Integer codes are then propagated back through exactly those steps, to find which of its
rows became which channel of y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from multihead.errors import AnatomyError
from multihead.model.run_with_graph import Discovery

_PRODUCTS = {"MmBackward0": (0, 1), "AddmmBackward0": (1, 2)}  # positions of x and w among the inputs
_VIEWS = (
    "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Reshape", "Alias", "AsStrided", "Split",
    "SplitWithSizes", "Slice", "Narrow", "Select", "Unbind", "Squeeze", "Unsqueeze", "Clone", "ToCopy", "Expand",
    "Unflatten", "Flatten", "Movedim", "Chunk",
)  # fmt: skip
_LINEAR = (
    *_VIEWS, "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Addcmul", "Cat", "Stack", "Index", "IndexSelect",
    "IndexCopy", "IndexPut", "Roll", "Flip", "Repeat", "Copy", "CopySlices", "SliceScatter", "ViewAsComplex",
    "ViewAsReal",
)  # fmt: skip
"""Operations allowed between a projection and the kernel: rotation, scaling, frozen norms. Others may pass every
numerical check on one input although they are not linear (abs) or mix tokens (cumsum)."""
ELEMENTWISE = ("Sigmoid", "Silu", "Softplus", "Tanh", "Relu", "Gelu")
"""Activations allowed between the projection of a gate and the heads' outputs."""
_BASE = 128  # integers below this are exact in every float dtype, bfloat16 included

Edge = tuple[Node | None, int]


@dataclass(frozen=True)
class ProductWeight:
    """A parameter as a product uses it: channel c of y is index indices[c] along `axis`."""

    name: str
    parameter: nn.Parameter
    axis: int
    indices: Int[Tensor, " channel"]


@dataclass(frozen=True)
class Product:
    """y = x Wᵀ + b. The rows of x are the tokens of all sequences, concatenated."""

    node: Node
    x: Float[Tensor, "row width"]
    y: Float[Tensor, "row channel"]
    weight: ProductWeight
    bias: ProductWeight | None
    biased: bool  # whether y already holds the bias

    def source(self) -> GradientEdge:
        """The edge that x arrives by."""
        node, output_index = _inputs(self.node)[_PRODUCTS[self.node.name()][0]]
        return GradientEdge(cast(Node, node), output_index)

    def target(self) -> GradientEdge:
        return GradientEdge(self.node, 0)


@dataclass(frozen=True)
class BackwardSearch:
    """The first products behind a tensor, and the parameters and frozen norms' `one`s between it and them."""

    products: list[Product]
    between: list[str]
    ones: list[Tensor]


@dataclass(frozen=True)
class Multiplication:
    """x · factor, elementwise: its node, and the edges that x and the factor arrive by."""

    node: Node
    x: GradientEdge
    factor: GradientEdge


class Graph:
    """The autograd graph of one run of a model, with forward links as well, which autograd does not keep."""

    def __init__(self, traced: Discovery) -> None:
        self.traced = traced
        self.names = {id(p): name for name, p in traced.model.named_parameters()}
        self.ones = {id(one) for one in traced.frozen.ones}
        self._products: dict[Node, Product | None] = {}

    @cached_property
    def users(self) -> Mapping[Node, list[Node]]:
        """The nodes that use the output of each node, on the way to the model's output."""
        return self._users(cast(Node, x.grad_fn) for x in self.traced.outputs)

    @cached_property
    def all_users(self) -> Mapping[Node, list[Node]]:
        """The nodes that use the output of each node, on the way to the result of any module."""
        return self._users(self.traced.results)

    @staticmethod
    def _users(ends: Iterable[Node]) -> dict[Node, list[Node]]:
        """{node: the nodes that use it} in the graph behind some tensors."""
        users: dict[Node, list[Node]] = {}
        waiting = list(dict.fromkeys(ends))
        visited = set(waiting)
        while waiting:
            node = waiting.pop()
            for below, _ in _inputs(node):
                if below is not None:
                    users.setdefault(below, []).append(node)
                    if below not in visited:
                        visited.add(below)
                        waiting.append(below)
        return users

    def back(self, x: Tensor | GradientEdge, activations: Sequence[str] = ()) -> BackwardSearch:
        """The first products on all graph paths back from x, and the parameters before them."""
        products: dict[Node, Product] = {}
        between: dict[str, None] = {}
        ones: list[Tensor] = []
        start = x.grad_fn if isinstance(x, Tensor) else x.node
        waiting = [] if start is None else [start]
        visited = set(waiting)
        while waiting:
            node = waiting.pop()
            product = self.product(node)
            if product is not None:
                products[node] = product
                continue
            leaf = getattr(node, "variable", None)
            if leaf is None and _kind(node) not in _LINEAR and _kind(node) not in activations:
                raise AnatomyError(
                    "only rotation, scaling and norms are supported between the projections and the kernel, got "
                    f"{_kind(node)}",
                    hint="the weights alone do not determine such a q, k or v; capture and ablate still work",
                )
            if leaf is not None and id(leaf) in self.names:
                between[self.names[id(leaf)]] = None
            elif leaf is not None and id(leaf) in self.ones:
                ones.append(leaf)
            for below, _ in _inputs(node):
                if below is not None and below not in visited:
                    visited.add(below)
                    waiting.append(below)
        biases = {p.bias.name for p in products.values() if p.bias is not None}
        return BackwardSearch(list(products.values()), [name for name in between if name not in biases], ones)

    def on(self, x: Tensor) -> list[Product]:
        """The first products on all paths forward from x; if it does not reach the output, in its own module."""
        return self._on(x, self.users) or self._on(x, self.all_users)

    def _on(self, x: Tensor, users: Mapping[Node, list[Node]]) -> list[Product]:
        """The first products in the graph on paths from x forward."""
        products: dict[Node, Product] = {}
        waiting = [cast(Node, x.grad_fn)]
        visited = set(waiting)
        while waiting:
            for above in users.get(waiting.pop(), ()):
                product = self.product(above)
                if product is not None:
                    products[above] = product
                elif above not in visited:
                    visited.add(above)
                    waiting.append(above)
        return list(products.values())

    def feeds(self, product: Product, gate: Node | None = None) -> list[str]:
        """The weights that this product feeds in the graph without passing through attention or its gate."""
        ends = {cast(Node, s.heads.grad_fn) for s in self.traced.seen} | ({gate} if gate is not None else set())
        names: dict[str, None] = {}
        waiting, visited = [product.node], {product.node}
        while waiting:
            for above in self.users.get(waiting.pop(), ()):
                other = self.product(above)
                if other is not None:
                    names[other.weight.name] = None
                elif above not in visited and above not in ends:
                    visited.add(above)
                    waiting.append(above)
        return list(names)

    def multiplication(self, x: Tensor, product: Product) -> Multiplication | None:
        """The one graph node where x is multiplied by another tensor before the product; None if not one."""
        start = cast(Node, x.grad_fn)
        above = self._reach(start, lambda node: self.users.get(node, ()), product.node)
        below = self._reach(
            product.source().node, lambda node: [n for n, _ in _inputs(node) if n is not None], start
        )
        nodes = [node for node in above & below if _kind(node) == "Mul"]
        if len(nodes) != 1:
            return None
        edges = [GradientEdge(node, index) for node, index in _inputs(nodes[0]) if node is not None]
        of_x = [edge for edge in edges if edge.node in above]
        others = [edge for edge in edges if edge.node not in above]
        return Multiplication(nodes[0], of_x[0], others[0]) if len(of_x) == len(others) == 1 else None

    @staticmethod
    def _reach(start: Node, following: Callable[[Node], Iterable[Node]], end: Node) -> set[Node]:
        """The graph nodes that can be reached from `start` without passing `end`, both included."""
        waiting, visited = [start], {start}
        while waiting:
            node = waiting.pop()
            if node is end:
                continue
            for other in following(node):
                if other not in visited:
                    visited.add(other)
                    waiting.append(other)
        return visited

    def product(self, node: Node) -> Product | None:
        """This graph node as a product with a parameter; None if it is not one."""
        if node not in self._products:
            self._products[node] = self._product(node)
        return self._products[node]

    def _product(self, node: Node) -> Product | None:
        """A graph node as a product with a parameter; None if it is not one."""
        if node.name() not in _PRODUCTS:
            return None
        inputs, (_, second) = _inputs(node), _PRODUCTS[node.name()]
        weight = self._leaf(inputs[second], dims=2)
        if weight is None:
            return None
        saved = cast(Any, node)
        x = cast(Tensor, saved._saved_mat1 if second == 2 else saved._saved_self).detach()
        w = cast(Tensor | None, saved._saved_mat2)
        y = None if w is None else self.traced.products.result(x, w)
        if y is None:
            return None
        bias = self._leaf(inputs[0], dims=1) if second == 2 else None
        return Product(node, x, y.detach(), weight, bias or self._bias_added_after(node), bias is not None)

    def _bias_added_after(self, node: Node) -> ProductWeight | None:
        """The bias that a separate addition in the graph adds after the product."""
        above = self.users.get(node, [])
        while len(above) == 1 and _is_view(above[0]):
            above = self.users.get(above[0], [])
        if len(above) != 1 or above[0].name() != "AddBackward0" or cast(Any, above[0])._saved_alpha != 1:
            return None
        leaves = [self._leaf(edge, dims=1) for edge in _inputs(above[0])]
        return next((leaf for leaf in leaves if leaf is not None), None)

    def _leaf(self, edge: Edge, dims: int) -> ProductWeight | None:
        """The parameter behind a graph edge, with each channel's index; None if more than views lie between."""
        node, views = edge[0], list[str]()
        while node is not None and _is_view(node):
            views.append(node.name())
            below = [n for n, _ in _inputs(node) if n is not None]
            node = below[0] if len(below) == 1 else None
        parameter = getattr(node, "variable", None)
        if parameter is None or id(parameter) not in self.names or parameter.dim() != dims:
            return None
        start = GradientEdge(cast(Node, edge[0]), edge[1])
        shape = shape_of(start)
        if len(shape) != dims:
            return None
        channels = torch.arange(1, shape[-1] + 1, device=parameter.device)
        if not views or views == ["TBackward0"]:  # the whole parameter, as it is or transposed: the common case
            return ProductWeight(self.names[id(parameter)], parameter, dims - 1 - len(views), channels - 1)
        name = self.names[id(parameter)]
        try:
            codes = sent_back(start, parameter, channels.expand(shape))
        except AnatomyError as error:
            raise AnatomyError(f"{name} must be used unchanged, but {error.message}", hint=_SPLIT_HINT) from None
        axis = next((a for a in range(dims) if bool((codes == _along(codes, a)).all())), None)
        if axis is None:
            raise AnatomyError(
                f"{name} {tuple(parameter.shape)} must be split into ranges of rows, but is split otherwise",
                hint=_SPLIT_HINT,
            )
        line = _line(codes, axis)
        indices = torch.full((shape[-1],), -1, dtype=torch.long, device=line.device)
        used = line.nonzero().squeeze(-1)
        indices[line[used] - 1] = used
        if bool((indices < 0).any()):
            raise AnatomyError(f"{name} produces only some channels of its product", hint=_SPLIT_HINT)
        return ProductWeight(name, parameter, axis, indices)


_SPLIT_HINT = "keep the weights of one projection in one nn.Linear, or give the module a row in families.py"


def sent_back(start: GradientEdge, to: Tensor | GradientEdge, codes: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Propagate integer codes from one edge of the graph back to another; 0 where none arrives.

    The path between them must only move values, not scale or add them: ones are sent first and must arrive as ones.
    """
    dtype = cast(Any, start.node)._input_metadata[start.output_nr].dtype

    def arriving(values: Tensor) -> Tensor:
        """Codes sent back through the graph to the edge `to`."""
        (gradient,) = _grad([start], [to], [values.to(dtype)])
        if gradient is None:
            raise AnatomyError("no gradient reaches it")
        return gradient

    once = arriving(torch.ones_like(codes))
    if not bool(((once == 0) | (once == 1)).all()):
        raise AnatomyError("values are scaled or added on the way")
    total, power = torch.zeros_like(once, dtype=torch.long), 1
    while power <= int(codes.max()):
        total += arriving(codes // power % _BASE).long() * power
        power *= _BASE
    return total


def gradients(
    of: Tensor | GradientEdge,
    weights: Tensor,
    to: Iterable[Tensor | GradientEdge],
    *,
    without: Iterable[Product] = (),
) -> tuple[Tensor | None, ...]:
    """∂(of · weights)/∂to through the graph, with the results of the products `without` held constant."""

    def hold_constant(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(torch.zeros_like(gradient) for gradient in gradients)

    with ExitStack() as stack:
        for product in without:
            stack.callback(product.node.register_prehook(hold_constant).remove)
        return _grad([of], list(to), [weights])


def _grad(
    outputs: list[Tensor | GradientEdge], inputs: list[Tensor | GradientEdge], weights: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """Gradients between tensors or edges of the graph."""
    grad = cast(Any, torch.autograd.grad)  # torch accepts edges, but its type stub allows only tensors
    return grad(outputs, inputs, weights, retain_graph=True, allow_unused=True)


def edge_of(x: Tensor) -> GradientEdge:
    return get_gradient_edge(x)


def _inputs(node: Node) -> tuple[Edge, ...]:
    return node.next_functions


def _is_view(node: Node) -> bool:
    return _kind(node) in _VIEWS


def _kind(node: Node) -> str:
    return node.name().rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


def shape_of(edge: GradientEdge) -> torch.Size:
    return torch.Size(cast(Any, edge.node)._input_metadata[edge.output_nr].shape)


def _line(x: Tensor, axis: int) -> Tensor:
    """x at index 0 of all axes but this one, to compare graph codes along it."""
    for a in reversed(range(x.dim())):
        x = x if a == axis else x.select(a, 0)
    return x


def _along(x: Tensor, axis: int) -> Tensor:
    """x at index 0 of all other axes, shaped to broadcast against x, for codes in the graph."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return _line(x, axis).view(shape)
