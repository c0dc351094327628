"""The channels of a linear map that a vector depends on, by gradients.

Row r of W belongs to head h if the head's vector at the kernel depends on it: ∂(random · q[:, h]) / ∂(x Wᵀ)[r] is
not zero. That holds through rotation, scaling and (frozen) norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import GradientEdge

from multihead.model.graph import Product, gradients


@dataclass(frozen=True)
class Support:
    """A dependence on the channels of a product: random · vectors = Σ gradient · (x Wᵀ + b) + constant.

    A head's key may depend on two products: then this is the sum over both.
    """

    channels: tuple[int, ...]
    gradient: Float[Tensor, "row channel"]  # of these channels
    value: float
    constant: float


def support_of(
    of: Tensor | GradientEdge,
    values: Tensor,
    weights: Tensor,
    product: Product,
    ones: Sequence[Tensor],
    *,
    without: Sequence[Product] = (),
) -> Support | None:
    """The channels of a product that values depend on, directly and not through `without`; None if not finite."""
    gradient, *constants = gradients(of, weights, [product.target(), *ones], without=without)
    if gradient is None or not bool(gradient.isfinite().all()):
        return None
    size = gradient.abs().amax(0)
    channels = (size > 1e-6 * size.max()).nonzero().squeeze(-1).tolist()
    value = float((values.detach().double() * weights.double()).sum())
    constant = sum(float(c) for c in constants if c is not None)
    return Support(tuple(channels), gradient[:, channels], value, constant)
