"""Verify the weights found for each head against the values of a real run, and raise where they differ.

For every head, with x the input of its projection in the run:

- q, k, v depend on exactly the named rows (the gradient is nonzero there and zero elsewhere);
- random · q = Σ ∂(random · q)/∂y · y with y = x W_Qⁱᵀ + b_Qⁱ from the views: rotation, scaling and frozen norms are
  linear, so this holds through them (Euler); the same for k and v;
- if nothing lies between projection and kernel, q, k, v equal y element by element, in order;
- Σ_h z_h W_Oʰᵀ + b_O from the views equals the result of the output projection, with z_h times its gate if there is
  one; the gate before its activation equals x W_Gⁱᵀ + b_Gⁱ from the views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import AnatomyError
from multihead.model.call_trace import LETTERS, Trace
from multihead.model.dependent_channels import Support
from multihead.model.find_latent import Down, down_of
from multihead.model.graph import Product, ProductWeight, edge_of, gradients, sent_back
from multihead.model.head_storage import Projection, Storage

_HINT = "this is a bug in families.py or in the finder: please report the model's class and config"


@dataclass(frozen=True)
class Proof:
    """The largest difference between values from the views and values of the run, relative to their size."""

    q: float
    k: float
    v: float
    o: float
    g: float = 0.0
    """of the gate, before its activation"""


def prove(storage: Storage, trace: Trace) -> Proof:
    """Verify the weights; returns the differences. Raises AnatomyError if one exceeds its tolerance."""
    errors = {letter: _prove_heads(letter, storage, trace) for letter in LETTERS}
    latent = _prove_latent(storage, trace)
    return Proof(
        max(errors["q"], latent),
        max(errors["k"], latent),
        max(errors["v"], latent),
        _prove_out(storage, trace),
        _prove_gate(storage, trace),
    )


def tolerance(*run: Tensor) -> float:
    """√ε of the coarsest dtype, that is, half of its digits. A wrong row or sign gets all digits wrong."""
    return max(torch.finfo(x.dtype).eps for x in run) ** 0.5


def _prove_heads(letter: str, storage: Storage, trace: Trace) -> float:
    """Verify the weights of every head of q, k or v."""
    part, product = storage[letter], trace.product(letter)
    _check_names(part, product.weight, product.bias, trace, letter)
    worst, copied = 0.0, True
    limit = tolerance(product.x, product.y, trace.vectors[letter])
    for kernel_head, support in enumerate(trace.supports[letter]):
        head = _storage_head(letter, kernel_head, storage, trace)
        if head is None:
            continue  # a kv head that no query head reads
        name = f"{trace.name}: {letter} of head {head}"
        from_views = _Contribution.of(name, part, head, support, product, trace)
        total, size = from_views.total + support.constant, from_views.size + abs(support.constant)
        if letter == "k" and trace.k_rope is not None and storage.latent is not None:
            shared = trace.k_rope_supports[kernel_head]
            rotated = _Contribution.of(
                f"{name}, rotary part", storage.latent.k_rope, 0, shared, trace.k_rope, trace
            )
            total, size = total + rotated.total, size + rotated.size
        worst = max(worst, _relative_error(name, abs(total - support.value), size, limit, _BETWEEN))
        vectors = trace.vectors[letter][:, kernel_head]
        if copied:
            error = _prove_copied(name, vectors, from_views.channels, from_views.y, trace, letter, limit)
            copied, worst = error is not None, max(worst, error or 0.0)
        if not copied and letter == "v":
            _prove_order(name, vectors, from_views.channels, trace)
    return worst


@dataclass(frozen=True)
class _Contribution:
    """Σ gradient · y with y = x Wᵀ + b from the views of one head."""

    total: float
    size: float
    y: Float[Tensor, "row dim"]
    channels: list[int]
    """the channels of the product, in the order of the views' rows"""

    @staticmethod
    def of(
        name: str, part: Projection, head: int, support: Support, product: Product, trace: Trace
    ) -> _Contribution:
        """What rows of the weights contribute. Raises if the head depends on other rows than those of the views."""
        rows = _check_rows(name, part, head, support.channels, product)
        y = _from_views(part, head, product, trace)
        in_order = sorted(range(len(rows)), key=rows.__getitem__)
        terms = support.gradient[:, in_order].to(y) * y
        channels = [support.channels[i] for i in in_order]
        return _Contribution(float(terms.sum()), float(terms.abs().sum()), y, channels)


def _check_rows(name: str, part: Projection, head: int, channels: Sequence[int], product: Product) -> list[int]:
    """The rows of the weight that these channels of the product are, verified."""
    rows = product.weight.indices[list(channels)].tolist()
    if sorted(rows) != part.heads[head].indices():
        raise AnatomyError(
            f"{name} must depend on rows {_short(part.heads[head].indices())} of {part.parameter}, got "
            f"{_short(sorted(rows))}",
            hint=_HINT,
        )
    if product.bias is not None:
        bias_indices = sorted(product.bias.indices[list(channels)].tolist())
        if bias_indices != part.bias_heads[head].indices():  # values cannot show this if the bias is zero
            raise AnatomyError(
                f"{name} must use {_short(part.bias_heads[head].indices())} of {part.bias}, got "
                f"{_short(bias_indices)}",
                hint=_HINT,
            )
    return rows


def _from_views(part: Projection, head: int, product: Product, trace: Trace) -> Float[Tensor, "row dim"]:
    """x Wᵀ + b with the weights of one head, to verify against the run."""
    model = trace.graph.traced.model
    exact = torch.promote_types(product.x.dtype, torch.float64)
    w = part.heads[head].of(model.get_parameter(part.parameter).detach(), part.axis)
    w = w.mT if part.axis == 1 else w
    y = product.x.to(exact) @ w.to(exact).mT
    if part.bias is None:
        return y
    return y + part.bias_heads[head].of(model.get_parameter(part.bias).detach(), 0).to(exact)


def _prove_latent(storage: Storage, trace: Trace) -> float:
    """Verify the weights of latent vectors: random · norm(x W_DKVᵀ), and the same for queries."""
    latent, worst = storage.latent, 0.0
    if latent is None:
        return worst
    for letter, part in (("v", latent.kv_down), ("q", latent.q_down)):
        if part is None:
            continue
        down = down_of(trace, letter)
        name = f"{trace.name}: the latent vector of {letter}"
        if down is None:
            raise AnatomyError(f"{name} must come from {part.parameter}, but has no down-projection", hint=_HINT)
        worst = max(worst, _prove_down(name, part, down, trace))
    return worst


def _prove_down(name: str, part: Projection, down: Down, trace: Trace) -> float:
    """Verify the weights of the map to the latent vector."""
    from_views = _Contribution.of(name, part, 0, down.support, down.product, trace)
    difference = abs(from_views.total + down.support.constant - down.support.value)
    size = from_views.size + abs(down.support.constant)
    return _relative_error(name, difference, size, tolerance(down.product.x, down.product.y), _BETWEEN)


def _prove_gate(storage: Storage, trace: Trace) -> float:
    """Verify the weights of the gate: x W_Gᵀ + b_G is that of the run, and every head has its rows."""
    part, gate, worst = storage.g, trace.gate, 0.0
    if part is None or gate is None:
        if part is not gate:
            raise AnatomyError(f"{trace.name}: only some of its calls have a gate", hint=_HINT)
        return worst
    product = gate.product
    _check_names(part, product.weight, product.bias, trace, "the gate")
    for head, channels in enumerate(gate.channels):
        name = f"{trace.name}: the gate of head {head}"
        rows = _check_rows(name, part, head, channels, product)
        in_order = [channels[i] for i in sorted(range(len(rows)), key=rows.__getitem__)]
        y, expected = _from_views(part, head, product, trace), product.y[:, in_order]
        if part.bias is not None and not product.biased:
            y = y - part.bias_heads[head].of(trace.graph.traced.model.get_parameter(part.bias).detach(), 0).to(y)
        difference, size = _max_difference(y, expected.to(y)), float(expected.abs().max())
        worst = max(worst, _relative_error(name, difference, size, tolerance(product.x, product.y), _HINT))
    return worst


_BETWEEN = (
    "something between the projection and the kernel is not linear or adds constants: only rotation, scaling and "
    "norms are supported"
)


def _prove_copied(
    name: str, vectors: Tensor, channels: list[int], y: Tensor, trace: Trace, letter: str, limit: float
) -> float | None:
    """Verify that the kernel's vectors equal y, in order; None if they are rotated, scaled or normed instead."""
    vectors = vectors.view_as(vectors)
    codes = torch.arange(1, vectors.numel() + 1, device=vectors.device).view(vectors.shape)
    try:
        arrived = sent_back(edge_of(vectors), trace.product(letter).target(), codes)[:, channels]  # row, dim
    except AnatomyError:
        return None
    if bool((arrived == 0).any()):
        arrived, y = arrived[(arrived != 0).all(1)], y[(arrived != 0).all(1)]
    dims = (arrived - 1) % vectors.shape[-1]
    copied = torch.arange(vectors.shape[-1], device=arrived.device)
    if letter == "k" and trace.k_rope is not None:  # the other dimensions are shared by all heads
        copied = dims[0].sort().values
    if bool((dims != copied).any()):
        raise AnatomyError(
            f"{name} must be copied in order, but is permuted",
            hint="views in this order would not pair W_Q with W_K, nor W_V with W_O",
        )
    expected = vectors.detach().flatten()[(arrived - 1).flatten()].view(arrived.shape).to(y)
    return _relative_error(name, _max_difference(expected, y), float(expected.abs().max()), limit, _HINT)


def _prove_order(name: str, vectors: Tensor, channels: list[int], trace: Trace) -> None:
    """Verify that dimension d of the kernel's vector depends on row d of the head alone, as W_O assumes."""
    for d, channel in enumerate(channels):
        one = torch.zeros_like(vectors)
        one[..., d] = 1.0
        (gradient,) = gradients(vectors, one, [trace.product("v").target()])
        if gradient is None or gradient.abs().amax(0).nonzero().squeeze(-1).tolist() != [channel]:
            raise AnatomyError(
                f"{name}: dimension {d} of the kernel's vector must depend on row {d} alone",
                hint="values are mixed before the kernel, so W_V and W_O of a head do not match",
            )


def _prove_out(storage: Storage, trace: Trace) -> float:
    """Verify the weights of W_O."""
    product, part, heads = trace.product("o"), storage.o, trace.seen.heads
    z = heads.detach() * trace.factor
    parameters = {name: p.detach() for name, p in trace.graph.traced.model.named_parameters()}
    axis = 1 - product.weight.axis
    bias = None if product.bias is None else product.bias.name
    if (part.parameter, part.axis, part.bias) != (product.weight.name, axis, bias):
        raise AnatomyError(
            f"{trace.name}: W_O must be {part.parameter} (axis {part.axis}, bias {part.bias}), but the heads' "
            f"outputs feed {product.weight.name} (axis {axis}, bias {bias})",
            hint=_HINT,
        )
    for head, (slots, columns) in enumerate(zip(part.heads, trace.columns, strict=True)):
        if slots.indices() != columns:
            raise AnatomyError(
                f"{trace.name}: W_O of head {head} must be columns {_short(slots.indices())} of {part.parameter}, "
                f"but its output feeds {_short(columns)}",
                hint=_HINT,
            )
    exact = torch.promote_types(heads.dtype, torch.float64)
    rows = torch.arange(1, product.x.shape[0] + 1, device=heads.device)[:, None].expand(product.x.shape)
    row = trace.at_heads(rows)[:, :, :, 0].amax(1)  # batch, query
    W_O = parameters[part.parameter]
    out = torch.zeros(1, dtype=exact, device=heads.device)
    for head, slots in enumerate(part.heads):
        w = slots.of(W_O, part.axis)
        w = w.mT if part.axis == 0 else w
        out = out + z[:, head].to(exact) @ w.to(exact).mT
    if part.bias is not None and product.biased:
        out = out + parameters[part.bias].to(exact)
    expected = product.y[(row - 1).clamp_min(0)].to(exact)
    used = row > 0
    hint = "W_O reads something besides the heads' outputs, or they change on the way"
    difference, size = _max_difference(out[used], expected[used]), float(expected.abs().max())
    limit = tolerance(product.x, product.y, heads)
    return _relative_error(f"{trace.name}: Σ z W_Oᵀ", difference, size, limit, hint)


def _storage_head(letter: str, kernel_head: int, storage: Storage, trace: Trace) -> int | None:
    """The head in the weights to verify of a kernel's head: models may copy kv heads between the two."""
    if letter == "q":
        return kernel_head
    kv_of_head = trace.seen.call.problem.groups.kv_of_head
    readers = {storage.groups.kv_of_head[h] for h, kv in enumerate(kv_of_head) if kv == kernel_head}
    if len(readers) > 1:
        raise AnatomyError(
            f"{trace.name}: key head {kernel_head} of the kernel must be one head of the weights, got "
            f"{sorted(readers)}",
            hint=_HINT,
        )
    return readers.pop() if readers else None


def _check_names(
    part: Projection, weight: ProductWeight, bias: ProductWeight | None, trace: Trace, letter: str
) -> None:
    """Raise unless the weights to verify are those that the graph leads to."""
    expected = (part.parameter, part.axis, part.bias)
    actual = (weight.name, weight.axis, None if bias is None else bias.name)
    if expected != actual:
        raise AnatomyError(
            f"{trace.name}: {letter} must come from {expected[0]} (axis {expected[1]}, bias {expected[2]}), "
            f"but comes from {actual[0]} (axis {actual[1]}, bias {actual[2]})",
            hint=_HINT,
        )


def _max_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max()) if a.numel() else 0.0


def _relative_error(name: str, difference: float, size: float, limit: float, hint: str) -> float:
    """difference / size of verified weights. Raises if it exceeds `limit`."""
    relative = difference / size if size else difference
    if math.isnan(relative):
        raise AnatomyError(
            f"{name}: the run has values that are NaN or infinite, so weights cannot be compared with it",
            hint="are the weights of the model finite? half precision may overflow: model.float()",
        )
    if relative > limit:
        raise AnatomyError(
            f"{name}: values computed from the views must match the run within {limit:.2g}, but differ by "
            f"{difference:.3g} at a size of {size:.3g}: {relative:.2g}",
            hint=hint,
        )
    return relative


def _short(indices: list[int]) -> str:
    return f"{indices[0]}…{indices[-1]} ({len(indices)})" if len(indices) > 6 else str(indices)
