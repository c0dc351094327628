"""The masks: which query may attend to which key. True means *may attend*, everywhere.

A query's place is bottom-right aligned: with fewer queries than keys the last query stands at the last key,
so that a mask means the same with a cache and without. Masks are symbolic; join them with & and |:

>>> from multihead import mask
>>> m = mask.causal() & mask.window(3) & mask.lengths([4])
>>> m
causal() & window(3) & lengths([4])
>>> print(m.draw(5))
█····
██···
███··
·███·
··██·
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from multihead.errors import SizeError, TypeMismatchError
from multihead.layer.mask_algebra import Mask
from multihead.layer.mask_cells import Additive, Rule, TensorMask, Where
from multihead.layer.mask_kinds import (
    Bounds,
    Causal,
    Documents,
    HostTensor,
    Lengths,
    Padding,
    Prefix,
    Ragged,
    Window,
)


def everything() -> Mask:
    """Every query may attend to every key."""
    return Mask()


def causal() -> Mask:
    """key <= query, bottom-right aligned."""
    return Causal()


def window(left: int, right: int = 0, *, first: int = 0) -> Mask:
    """query - left < key <= query + right; `left` counts the query itself, so window(256) sees 256 keys.

    `window(128, 128)` looks both ways. The `first` keys of the sequence stay visible to all (StreamingLLM,
    Xiao et al. 2024).
    """
    return Window(left, right, first)


def lengths(lengths: Sequence[int] | Int[Tensor, " batch"]) -> Mask:
    """key < lengths[batch]: key padding on the right. Queries in the padding still get an output.

    If nobody reads those outputs, `ragged` says so and skips their work as well.
    """
    return Lengths(lengths)


def padding(real: Bool[Tensor, "batch key"]) -> Mask:
    """real[batch, key]: key padding anywhere; True marks a real key."""
    return Padding(real)


def ragged(lengths: Sequence[int] | Int[Tensor, " batch"]) -> Mask:
    """Right-padded batch: of the tokens of this call row b has lengths[b] real ones.

    The rest are neither queries nor keys: their rows attend to nothing (zeros, so that the layer returns its
    output bias there), their projections are not computed, and a cache does not store them.
    """
    return Ragged(lengths)


def documents(
    ids: Int[Tensor, "batch key"] | Int[Tensor, " key"] | Sequence[int] | None = None,
    *,
    offsets: Sequence[int] | Int[Tensor, " bounds"] | None = None,
) -> Mask:
    """id[query] == id[key]: several documents packed into one row.

    Give the id of every token (a negative id marks padding, which attends to nothing), or the `offsets`
    0 = o_0 < o_1 < ... < o_n = tokens at which documents begin and end, as in `cu_seqlens`.
    """
    if ids is not None and offsets is None:
        return Documents(ids, by_offsets=False)
    if ids is not None or offsets is None:
        raise TypeMismatchError(
            f"documents() takes ids or offsets, got {'neither' if ids is None else 'both'}",
            hint="mask.documents(torch.tensor([0, 0, 1, 1])) or mask.documents(offsets=[0, 2, 4])",
        )
    bounds = HostTensor(offsets)
    return Documents(_ids_of(bounds), by_offsets=True) if bounds.known else Bounds(bounds.tensor)


def prefix(lengths: int | Sequence[int] | Int[Tensor, " batch"]) -> Mask:
    """key <= query or key < lengths[batch]: prefix-LM, bidirectional over the prefix and causal after it."""
    return Prefix([lengths] if isinstance(lengths, int) else lengths)


def tensor(allowed: Tensor) -> Mask:
    """allowed[batch, head, query, key], True = may attend; also (batch, query, key) and (query, key)."""
    return TensorMask(allowed)


def additive(scores: Tensor) -> Mask:
    """scores[batch, head, query, key] is added before softmax; -inf hides. Trainable. Also 3-D and 2-D."""
    return Additive(scores)


def where(rule: Rule) -> Mask:
    """rule(batch, head, query, key) on index tensors that broadcast; True = may attend.

    >>> from multihead import mask
    >>> print(mask.where(lambda batch, head, query, key: (query - key) % 2 == 0).draw(4))
    █·█·
    ·█·█
    █·█·
    ·█·█
    """
    return Where(rule)


def of(mask: Mask | Tensor | None) -> Mask:
    """Whatever people pass as a mask, as a Mask: None is everything, bool is allowed, float is added."""
    if mask is None:
        return Mask()
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # users do pass lists
        raise TypeMismatchError(
            f"mask is a {type(mask).__name__}, not a Mask or a tensor",
            hint="for example mask.causal() & mask.lengths([7, 3])",
        )
    return Additive(mask) if mask.is_floating_point() else TensorMask(mask)


def _ids_of(bounds: HostTensor) -> Tensor:
    steps = [b - a for a, b in zip(bounds.values, bounds.values[1:], strict=False)]
    if not bounds.values or bounds.values[0] != 0 or any(s < 0 for s in steps):
        raise SizeError(
            f"document offsets {bounds} must begin with 0 and never fall",
            hint="offsets are cumulative lengths: documents of 3 and 4 tokens have offsets [0, 3, 7]",
        )
    return torch.arange(len(steps)).repeat_interleave(bounds.tensor.diff(), output_size=bounds.values[-1])
