"""Find the rows of the weights that belong to each head, and check that they are unshared."""

from __future__ import annotations

from collections.abc import Sequence

from multihead.errors import AnatomyError
from multihead.layer import Groups
from multihead.model.call_trace import LETTERS, Trace
from multihead.model.find_latent import find_latent
from multihead.model.head_storage import Projection, Storage, as_slots, projection_of


class HiddenRowsError(AnatomyError):
    """Some rows of a projection do not reach the kernel, because a factor after it is zero."""


def find(trace: Trace) -> Storage:
    """Find the rows of each head in the weights of an attention."""
    problem = trace.seen.call.problem
    rows = {letter: [s.channels for s in trace.supports[letter]] for letter in LETTERS}
    _check_disjoint(trace, rows)
    # A model may copy its kv heads before the kernel. Copies have the same rows: merge them into one head.
    distinct = {letter: list(dict.fromkeys(rows[letter])) for letter in "kv"}
    of_head = {
        letter: tuple(distinct[letter].index(rows[letter][kv]) for kv in problem.groups.kv_of_head)
        for letter in "kv"
    }
    if of_head["k"] != of_head["v"]:
        raise AnatomyError(
            f"{trace.name}: query heads read key heads {of_head['k']} and value heads {of_head['v']}",
            hint="keys and values must have the same groups",
        )
    groups = Groups(of_head["k"], len(distinct["k"]))
    parts = {
        letter: _projection(trace, letter, rows["q"] if letter == "q" else distinct[letter]) for letter in LETTERS
    }
    gate = None if trace.gate is None else _projection(trace, "g", trace.gate.channels)
    return Storage(parts["q"], parts["k"], parts["v"], _out(trace), groups, gate, find_latent(trace))


def _check_disjoint(trace: Trace, rows: dict[str, list[tuple[int, ...]]]) -> None:
    """Raise unless no row belongs to two heads, and every head has as many rows as dimensions."""
    for letter, rows_of_heads in rows.items():
        size, name = trace.vectors[letter].shape[3], trace.product(letter).weight.name
        if letter == "k" and trace.k_rope is not None:
            size -= len(trace.k_rope_supports[0].channels)
        owner: dict[int, tuple[int, ...]] = {}
        for head, head_rows in enumerate(rows_of_heads):
            shared = [r for r in head_rows if owner.setdefault(r, head_rows) != head_rows]
            if shared or len(head_rows) > size:
                raise AnatomyError(
                    f"{trace.name}: {letter} of head {head} must depend on {size} unshared rows of {name}, got "
                    f"{len(head_rows)} rows, {len(shared)} shared with earlier heads",
                    hint="heads are mixed between the projection and the kernel: no rows belong to a single head",
                )
            if len(head_rows) < size:
                raise HiddenRowsError(
                    f"{trace.name}: {letter} of head {head} must depend on {size} rows of {name}, got "
                    f"{len(head_rows)}",
                    hint="a constant factor after the projection is zero, so the run cannot show which head the "
                    "other rows belong to: remove the factor, or make it a parameter",
                )


def _projection(trace: Trace, letter: str, heads: Sequence[Sequence[int]]) -> Projection:
    return projection_of(trace.product(letter), heads, trace.name)


def _out(trace: Trace) -> Projection:
    """The columns of W_O that read each head."""
    product = trace.product("o")
    weight, width = product.weight, product.x.shape[1]
    axis = 1 - weight.axis
    indices = [leaf.indices for leaf in (weight, product.bias) if leaf is not None]
    if weight.parameter.shape[axis] != width or any(bool((i.diff() != 1).any()) for i in indices):
        raise AnatomyError(
            f"{trace.name}: the output projection must be a whole parameter, but only a part of {weight.name} "
            f"{tuple(weight.parameter.shape)} reads the heads' outputs",
            hint="store W_O in a separate parameter",
        )
    heads = tuple(as_slots(columns, f"{trace.name}: {weight.name}") for columns in trace.columns)
    return Projection(weight.name, axis, heads, None if product.bias is None else product.bias.name)
