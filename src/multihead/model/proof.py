"""Hold what was found against the numbers of a real run: what does not agree is an error.

For every head, with x the input of its projection as the model had it:

- q, k, v depend on the rows that were named and on no others (the gradient is exactly there);
- random · q = Σ ∂(random · q)/∂y · y with y = x W_Qⁱᵀ + b_Qⁱ from the views: rotation, scaling and frozen norms are
  linear, so this holds through them (Euler); the same for k and v;
- where nothing lies between, q, k, v are y itself, number for number and in order;
- Σ_h z_h W_Oʰᵀ + b_O from the views is what the output projection gave.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from multihead.errors import AnatomyError
from multihead.model.finder import LETTERS, Projection, Storage, Trace
from multihead.model.graph import Leaf, edge_of, gradients, sent_back

_HINT = "this is a bug in families.py or in the finder: please report the model's class and config"


@dataclass(frozen=True)
class Proof:
    """The largest difference between what views give and what the run gave, relative to its size."""

    q: float
    k: float
    v: float
    o: float


def prove(storage: Storage, trace: Trace) -> Proof:
    """The differences, all within tolerance; else AnatomyError."""
    off = {letter: _prove_heads(letter, storage, trace) for letter in LETTERS}
    return Proof(off["q"], off["k"], off["v"], _prove_out(storage, trace))


def tolerance(*run: Tensor) -> float:
    """√ε of the coarsest dtype in play: half of the digits. A wrong row or a wrong sign is off by all of them."""
    return max(torch.finfo(x.dtype).eps for x in run) ** 0.5


def _prove_heads(letter: str, storage: Storage, trace: Trace) -> float:
    part, product = storage[letter], trace.product(letter)
    parameters = {name: p.detach() for name, p in trace.graph.found.model.named_parameters()}
    _check_names(part, product.weight, product.bias, trace, letter)
    worst, copied = 0.0, True
    exact = torch.promote_types(product.x.dtype, torch.float64)
    x = product.x.to(exact)
    limit = tolerance(product.x, product.y, trace.vectors[letter])
    for kernel_head, support in enumerate(trace.supports[letter]):
        head = _storage_head(letter, kernel_head, storage, trace)
        if head is None:
            continue  # a kv head that nobody reads
        slots = part.heads[head]
        place = f"{trace.place}: {letter} of head {head}"
        rows = product.weight.places[list(support.channels)].tolist()
        if sorted(rows) != slots.indices():
            raise AnatomyError(
                f"{place} was said to be rows {_short(slots.indices())} of {part.parameter}, but depends on "
                f"{_short(sorted(rows))}",
                hint=_HINT,
            )
        if product.bias is not None:
            own = sorted(product.bias.places[list(support.channels)].tolist())
            if own != part.bias_heads[head].indices():  # numbers alone would not tell while a bias is zero
                raise AnatomyError(
                    f"{place} was said to have {_short(part.bias_heads[head].indices())} of {part.bias}, but has "
                    f"{_short(own)}",
                    hint=_HINT,
                )
        w = slots.of(parameters[part.parameter], part.axis)
        w = w.mT if part.axis == 1 else w
        y = x @ w.to(exact).mT
        if part.bias is not None:
            y = y + part.bias_heads[head].of(parameters[part.bias], 0).to(exact)
        in_order = sorted(range(len(rows)), key=rows.__getitem__)
        terms = support.gradient[:, in_order].to(exact) * y
        difference = abs(float(terms.sum()) + support.constant - support.value)
        size = float(terms.abs().sum()) + abs(support.constant)
        worst = max(worst, _within(place, difference, size, limit, _BETWEEN))
        if copied:
            order = [support.channels[i] for i in in_order]
            off = _prove_copied(place, trace.vectors[letter][:, kernel_head], order, y, trace, letter, limit)
            copied, worst = off is not None, max(worst, off or 0.0)
        if not copied and letter == "v":
            _prove_order(place, trace.vectors["v"][:, kernel_head], [support.channels[i] for i in in_order], trace)
    return worst


_BETWEEN = (
    "something between the projection and the kernel is not linear, or adds numbers of its own: only rotation, "
    "scaling and norms are followed"
)


def _prove_copied(
    place: str, vectors: Tensor, channels: list[int], y: Tensor, trace: Trace, letter: str, limit: float
) -> float | None:
    """The kernel's vectors are y, in order; None where they are not copies of it (rotated, scaled, normed)."""
    mine = vectors.view_as(vectors)
    codes = torch.arange(1, mine.numel() + 1, device=mine.device).view(mine.shape)
    try:
        got = sent_back(edge_of(mine), trace.product(letter).target(), codes)[:, channels]  # row, dim
    except AnatomyError:
        return None
    if bool((got == 0).any()):
        got, y = got[(got != 0).all(1)], y[(got != 0).all(1)]
    if bool(((got - 1) % mine.shape[-1] != torch.arange(mine.shape[-1], device=got.device)).any()):
        raise AnatomyError(
            f"{place} is copied out of order", hint="the views could not pair W_Q with W_K, W_V with W_O"
        )
    was = mine.detach().flatten()[(got - 1).flatten()].view(got.shape).to(y)
    return _within(place, _far(was, y), float(was.abs().max()), limit, _HINT)


def _prove_order(place: str, vectors: Tensor, channels: list[int], trace: Trace) -> None:
    """Number d of the kernel's vector depends on row d of the head and on no other: what W_O pairs it with."""
    for d, channel in enumerate(channels):
        one = torch.zeros_like(vectors)
        one[..., d] = 1.0
        (gradient,) = gradients(vectors, one, [trace.product("v").target()])
        if gradient is None or gradient.abs().amax(0).nonzero().squeeze(-1).tolist() != [channel]:
            raise AnatomyError(
                f"{place}: number {d} of the kernel's vector is not made by row {d} alone",
                hint="values are mixed before the kernel, so W_V and W_O of a head do not pair up",
            )


def _prove_out(storage: Storage, trace: Trace) -> float:
    product, part, heads = trace.product("o"), storage.o, trace.seen.heads
    z = heads.detach()
    parameters = {name: p.detach() for name, p in trace.graph.found.model.named_parameters()}
    axis = 1 - product.weight.axis
    bias = None if product.bias is None else product.bias.name
    if (part.parameter, part.axis, part.bias) != (product.weight.name, axis, bias):
        raise AnatomyError(
            f"{trace.place}: W_O was said to be {part.parameter} (axis {part.axis}, bias {part.bias}), but the "
            f"heads' outputs go into {product.weight.name} (axis {axis}, bias {bias})",
            hint=_HINT,
        )
    for head, (slots, columns) in enumerate(zip(part.heads, trace.columns, strict=True)):
        if slots.indices() != columns:
            raise AnatomyError(
                f"{trace.place}: W_O of head {head} was said to be columns {_short(slots.indices())} of "
                f"{part.parameter}, but its output goes into {_short(columns)}",
                hint=_HINT,
            )
    exact = torch.promote_types(heads.dtype, torch.float64)
    rows = torch.arange(1, product.x.shape[0] + 1, device=heads.device)[:, None].expand(product.x.shape)
    row = sent_back(product.source(), edge_of(heads), rows)[:, :, :, 0].amax(1)  # batch, query
    whole = parameters[part.parameter]
    out = torch.zeros(1, dtype=exact, device=heads.device)
    for head, slots in enumerate(part.heads):
        w = slots.of(whole, part.axis)
        w = w.mT if part.axis == 0 else w
        out = out + z[:, head].to(exact) @ w.to(exact).mT
    if part.bias is not None and product.biased:
        out = out + parameters[part.bias].to(exact)
    was = product.y[(row - 1).clamp_min(0)].to(exact)
    used = row > 0
    hint = "something other than the heads' outputs goes into W_O, or they are changed on the way"
    difference, size = _far(out[used], was[used]), float(was.abs().max())
    return _within(f"{trace.place}: Σ z W_Oᵀ", difference, size, tolerance(product.x, product.y, heads), hint)


def _storage_head(letter: str, kernel_head: int, storage: Storage, trace: Trace) -> int | None:
    """The head of the weights that a head of the kernel is: models copy kv heads on the way."""
    if letter == "q":
        return kernel_head
    kv_of_head = trace.seen.call.problem.groups.kv_of_head
    readers = {storage.groups.kv_of_head[h] for h, kv in enumerate(kv_of_head) if kv == kernel_head}
    if len(readers) > 1:
        raise AnatomyError(
            f"{trace.place}: key head {kernel_head} of the kernel would be heads {sorted(readers)} of the weights",
            hint=_HINT,
        )
    return readers.pop() if readers else None


def _check_names(part: Projection, weight: Leaf, bias: Leaf | None, trace: Trace, letter: str) -> None:
    said = (part.parameter, part.axis, part.bias)
    seen = (weight.name, weight.axis, None if bias is None else bias.name)
    if said != seen:
        raise AnatomyError(
            f"{trace.place}: {letter} was said to come from {said[0]} (axis {said[1]}, bias {said[2]}), but comes "
            f"from {seen[0]} (axis {seen[1]}, bias {seen[2]})",
            hint=_HINT,
        )


def _far(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max()) if a.numel() else 0.0


def _within(place: str, difference: float, size: float, limit: float, hint: str) -> float:
    relative = difference / size if size else difference
    if not relative <= limit:  # NaN is not
        raise AnatomyError(
            f"{place}: the views give numbers that differ by {difference:.3g} from the run's, at a size of "
            f"{size:.3g}: {relative:.2g} where {limit:.2g} is allowed",
            hint=hint,
        )
    return relative


def _short(indices: list[int]) -> str:
    return f"{indices[0]}…{indices[-1]} ({len(indices)})" if len(indices) > 6 else str(indices)
