"""Padding that the mask of an attention call hides, where the inputs of the model do not name it."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Bool
from torch import Tensor

from multihead.layer import Problem
from multihead.layer._coordinates import ALL
from multihead.layer._mask_algebra import Mask
from multihead.layer._mask_cells import TensorMask
from multihead.layer._mask_structured import Lengths, Padding, Prefix, Ragged
from multihead.model.call import Tokens, ragged_rows

KEY_PADDING = (Lengths, Padding)
"""Masks that state padding: mask.lengths and mask.padding of our layer, key_padding_mask of torch.nn."""


def padding_from_mask(
    problem: Problem, queries: Tokens, keys: Tokens, cross: bool, kinds: tuple[type[Mask], ...]
) -> tuple[Tokens, Tokens]:
    """Padding from the mask of an intercepted call where inputs do not give it: keys hidden from every query.

    `kinds`: the parts of the mask made from the user's arguments. Other parts hide keys that no query selects.
    """
    size, visible = problem.coordinates, unpadded_keys(problem, kinds)
    if visible is None or bool(visible.all()):
        return queries, keys
    valid_queries = None
    if not cross and size.queries <= size.keys and size.key_positions is None:
        slots = size.all_queries().clamp(max=size.keys - 1)  # padding of a ragged chunk is past the last key
        valid_queries = visible.gather(1, slots.expand(size.batch, -1))
    return (
        replace(queries, valid=valid_queries) if queries.valid is None else queries,
        replace(keys, valid=visible) if keys.valid is None else keys,
    )


def unpadded_keys(problem: Problem, kinds: tuple[type[Mask], ...]) -> Bool[Tensor, "batch key"] | None:
    """Keys that are not padding by these parts of the mask: some query sees them; None without such a part."""
    size = problem.coordinates
    visible: Tensor | None = None
    for part in problem.mask.parts():
        if not isinstance(part, kinds) or isinstance(part, Prefix | Ragged):
            continue
        rows = ALL if isinstance(part, TensorMask) else slice(0, 1)
        allowed = part.allowed(size.grid(rows=rows))
        if allowed is not None:
            allows_key = allowed.any(2).any(1).expand(size.batch, size.keys)  # batch, key
            visible = allows_key if visible is None else visible & allows_key
    return visible


def without_ragged_padding(problem: Problem, queries: Tokens, keys: Tokens) -> tuple[Tokens, Tokens]:
    """Tokens past the lengths of mask.ragged are padding; a cache holds no such keys."""
    real = ragged_rows(problem)
    if real is None:
        return queries, keys
    cached = any(part.cached for part in problem.mask.parts() if isinstance(part, Ragged))
    return _valid_within(queries, real), keys if cached else _valid_within(keys, real)


def _valid_within(tokens: Tokens, real: Bool[Tensor, "batch token"]) -> Tokens:
    return replace(tokens, valid=real if tokens.valid is None else tokens.valid & real)
