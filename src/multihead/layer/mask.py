"""Masks: which query may attend to which key. True always means *may attend*.

Positions are bottom-right aligned: with fewer queries than keys the last query is at the last key, so a mask has
the same meaning with and without a cache. Masks are symbolic; combine them with & and |:

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

import math
from collections.abc import Sequence

from jaxtyping import Bool, Int, Integer
from torch import Tensor

from multihead._base.arguments import describe
from multihead._base.lazy_names import listed_names
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._mask_algebra import EVERYTHING, Mask
from multihead.layer._mask_cells import Additive, Rule, TensorMask, Where
from multihead.layer._mask_documents import DocumentIds, DocumentOffsets
from multihead.layer._mask_structured import (
    CAUSAL,
    Lengths,
    Padding,
    Prefix,
    Ragged,
    Window,
)
from multihead.layer._tracing import readable

__all__ = [
    "everything",
    "causal",
    "window",
    "lengths",
    "padding",
    "ragged",
    "documents",
    "prefix",
    "tensor",
    "additive",
    "where",
    "of",
]
__dir__ = listed_names(__name__)


def everything() -> Mask:
    """Every query may attend to every key."""
    return EVERYTHING


def causal() -> Mask:
    """key <= query, bottom-right aligned.

    >>> from multihead import mask
    >>> print(mask.causal().draw(4))
    █···
    ██··
    ███·
    ████
    """
    return CAUSAL


def window(left: int, right: int = 0, *, first: int = 0) -> Mask:
    """query - left < key <= query + right; `left` counts the query itself, so window(256) sees 256 keys.

    `window(128, 128)` looks both ways. The `first` keys of the sequence are visible to all queries (StreamingLLM,
    Xiao et al. 2024).

    >>> from multihead import mask
    >>> print((mask.causal() & mask.window(2, first=1)).draw(5))
    █····
    ██···
    ███··
    █·██·
    █··██
    """
    return Window(left, right, first)


def lengths(lengths: Sequence[int] | Int[Tensor, " batch"]) -> Mask:
    """key < lengths[batch]: key padding on the right. Queries in the padding still get an output.

    If you do not need these outputs, use `ragged`, which skips their computation too.

    >>> from multihead import mask
    >>> print(mask.lengths([3]).draw(4))
    ███·
    ███·
    ███·
    ███·
    """
    return Lengths(lengths)


def padding(real: Bool[Tensor, "batch key"]) -> Mask:
    """real[batch, key]: key padding anywhere; True marks a real key."""
    return Padding(real)


def ragged(lengths: Sequence[int] | Int[Tensor, " batch"]) -> Mask:
    """The mask of a right-padded batch: the first lengths[b] tokens of row b are real, the others are padding.

    Padding is neither query nor key: it attends to nothing (head outputs are zero, so the layer returns its output
    bias there), it is not projected, and a cache does not store it. Without a cache, the projections see the real
    tokens of all rows as one row of shape (1, real tokens, width); o_proj sees one more token, of zeros, for all
    padding.

    >>> from multihead import mask
    >>> print((mask.causal() & mask.ragged([3])).draw(4))
    █···
    ██··
    ███·
    ····
    """
    return Ragged(lengths)


def documents(
    ids: Integer[Tensor, "batch key"] | Integer[Tensor, " key"] | Sequence[int] | None = None,
    *,
    offsets: Sequence[int] | Int[Tensor, " bounds"] | None = None,
) -> Mask:
    """id[query] == id[key]: several documents packed into one row.

    Pass the id of every token (a negative id marks padding, which attends to nothing), or the `offsets`
    0 = o_0 < o_1 < ... < o_n = tokens of the documents, as in `cu_seqlens`.

    >>> from multihead import mask
    >>> print((mask.causal() & mask.documents([0, 0, 0, 1, 1])).draw(5))
    █····
    ██···
    ███··
    ···█·
    ···██
    """
    if (ids is None) == (offsets is None):
        raise TypeMismatchError(
            f"documents() takes ids or offsets, got {'neither' if ids is None else 'both'}",
            hint="mask.documents(torch.tensor([0, 0, 1, 1])) or mask.documents(offsets=[0, 2, 4])",
        )
    return DocumentIds(ids) if offsets is None else DocumentOffsets(offsets)  # pyright: ignore[reportArgumentType]


def prefix(lengths: int | Sequence[int] | Int[Tensor, " batch"]) -> Mask:
    """key <= query or key < lengths[batch]: prefix-LM, bidirectional over the prefix and causal after it.

    >>> from multihead import mask
    >>> print(mask.prefix(2).draw(4))
    ██··
    ██··
    ███·
    ████
    """
    return Prefix([lengths] if isinstance(lengths, int) else lengths)


def tensor(allowed: Tensor) -> Mask:
    """allowed[batch, head, query, key], True = may attend; also (batch, query, key) and (query, key)."""
    return TensorMask(allowed)


def additive(scores: Tensor) -> Mask:
    """scores[batch, head, query, key], added before softmax; -inf hides. Trainable. Also 3-D and 2-D.

    >>> import torch
    >>> from multihead import mask
    >>> mask.additive(torch.tensor([[0.0, -torch.inf], [0.5, 0.0]])).tensor(2).tolist()
    [[[[True, False], [True, True]]]]
    """
    mask = Additive(scores)
    _largest("scores", scores)
    return mask


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
    """The argument `mask=` as a Mask: None is everything, a bool tensor is allowed, a float tensor is added."""
    if isinstance(mask, Mask):
        return mask
    if mask is None:
        return EVERYTHING
    if not isinstance(mask, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # users do pass lists
        raise TypeMismatchError(
            f"mask must be a Mask or a tensor, got {describe(mask)}",
            hint="for example mask.causal() & mask.lengths([7, 3])",
        )
    if not mask.is_floating_point():
        return TensorMask(mask)
    if _largest("mask", mask) == 1 and bool(((mask == 0) | (mask == 1)).all()):
        raise SizeError(
            f"a float mask is added to the scores and must not be only 0 and 1, got shape {tuple(mask.shape)}",
            hint="for a 0/1 mask write mask.tensor(t.bool()); to add these values write mask.additive(t)",
        )
    return Additive(mask)


def _largest(name: str, scores: Tensor) -> float | None:
    """The largest score bias of a mask; None if the host cannot read it. Raises for a constant NaN or +inf.

    NaN in a trained mask shows in the output, like NaN in any other parameter.
    """
    if not readable(scores) or scores.requires_grad or scores.numel() == 0:
        return None
    largest = scores.amax().item()  # NaN if any score is
    if not largest < math.inf:
        raise SizeError(
            f"{name} must hold finite scores or -inf, got {largest}",
            hint="-inf hides a key; NaN and +inf would make the output NaN",
        )
    return largest
