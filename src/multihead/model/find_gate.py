"""Find the gate of an attention: z · activation(x W_Gᵀ + b_G), a factor on the heads' outputs before W_O.

The gate has as many rows per head as a head has dimensions (Qwen3-Next, AFMoE), or one (Laguna). Its rows may be
stored in one parameter with W_Q.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import AnatomyError
from multihead.model.graph import (
    ELEMENTWISE,
    Graph,
    Multiplication,
    Product,
    edge_of,
    gradients,
    sent_back,
    shape_of,
)


@dataclass(frozen=True)
class GateTrace:
    """The multiplication, the projection that the factor comes from, and its channels for every head."""

    multiplication: Multiplication
    product: Product
    channels: tuple[tuple[int, ...], ...]

    def send_back(self, codes: Int[Tensor, "row column"], out: Product, heads: HeadOutputs) -> Int[Tensor, "..."]:
        """Codes of the inputs of W_O, as they arrive at the heads' outputs: around the factor."""
        arrived = sent_back(out.source(), _output(self.multiplication), codes)
        return sent_back(self.multiplication.x, edge_of(heads), arrived)


def find_gate(graph: Graph, heads: HeadOutputs, out: Product, name: str) -> GateTrace | None:
    """The gate between the heads' outputs and W_O; None if they are not multiplied by a projection of the input."""
    multiplication = graph.multiplication(heads, out)
    if multiplication is None or shape_of(multiplication.x) != shape_of(_output(multiplication)):
        return None
    search = graph.back(multiplication.factor, ELEMENTWISE)
    if len(search.products) != 1 or search.between:
        return None
    product = search.products[0]
    of_factor = _head_of_factor(multiplication, heads)
    drawn = torch.randn(of_factor.shape, generator=torch.Generator().manual_seed(0)).to(heads)
    channels: list[tuple[int, ...]] = []
    for head in range(heads.shape[1]):
        weights = drawn * (of_factor == head)
        (gradient,) = gradients(multiplication.factor, weights, [product.target()])
        size = torch.zeros(1) if gradient is None else gradient.abs().amax(0)
        channels.append(tuple((size > 1e-6 * size.max()).nonzero().squeeze(-1).tolist()))
    _check(channels, heads.shape[3], product, name)
    return GateTrace(multiplication, product, tuple(channels))


def _output(multiplication: Multiplication) -> torch.autograd.graph.GradientEdge:
    return torch.autograd.graph.GradientEdge(multiplication.node, 0)


def _head_of_factor(multiplication: Multiplication, heads: HeadOutputs) -> Int[Tensor, "..."]:
    """The head that every element of the gate's factor belongs to."""
    shape = shape_of(multiplication.x)
    codes = torch.arange(1, shape.numel() + 1, device=heads.device).view(shape)
    places = sent_back(multiplication.x, edge_of(heads), codes)  # batch, head, query, dim
    of_element = torch.full((shape.numel(),), -1, device=heads.device)
    for head in range(heads.shape[1]):
        of_element[places[:, head].flatten() - 1] = head
    of_element = of_element.view(shape)
    factor = shape_of(multiplication.factor)
    padded = (*[1] * (len(shape) - len(factor)), *factor)
    for axis, size in enumerate(padded):
        if size == 1:  # the factor is broadcast along this axis
            of_element = of_element.amax(axis, keepdim=True)
    return of_element.view(factor)


def _check(channels: list[tuple[int, ...]], value_dim: int, product: Product, name: str) -> None:
    """Raise unless every head has its own rows of the gate."""
    sizes = {len(rows) for rows in channels}
    unshared = len({row for rows in channels for row in rows}) == sum(map(len, channels))
    if sizes not in ({1}, {value_dim}) or not unshared:
        raise AnatomyError(
            f"{name}: the gate of a head must depend on 1 or {value_dim} unshared rows of {product.weight.name}, "
            f"got {sorted(sizes)} rows" + ("" if unshared else ", some of them shared by several heads"),
            hint="no rows of this gate belong to a single head, so its heads cannot be described one by one",
        )
