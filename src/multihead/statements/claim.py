"""A statement, and what was found when it was computed: its two sides, a verdict, and why.

>>> from multihead.statements.claim import Finding, short
>>> Finding("fails", f"rank {short(383)}", "d_model 384", "A column is missing.", "columns are independent").left
'rank 383'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from multihead.statements.layer_sample import LayerSample

Verdict = Literal["holds", "fails", "holds only if", "not enough data", "not applicable"]
Numbers = Mapping[str, float | Sequence[float]]


@dataclass(frozen=True)
class Finding:
    """What a statement came to on one layer."""

    verdict: Verdict
    left: str
    """the left side as computed, short: "rank 384" """
    right: str
    why: str
    """one sentence"""
    condition: str
    """when the statement is true"""
    numbers: Numbers = field(default_factory=dict[str, float | Sequence[float]])


@dataclass(frozen=True)
class Claim:
    """One statement of the theory and the test that computes it; keys are "1" … "18" and "T1" … "T4"."""

    key: str
    title: str
    formula: str
    test: Callable[[LayerSample], Finding]


def short(x: float, digits: int = 3) -> str:
    """A number for a narrow column: 0.0132, 384, 1.2e+06, ∞."""
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    return str(int(x)) if float(x).is_integer() and abs(x) < 1e6 else f"{x:.{digits}g}"


def plural(count: int, word: str) -> str:
    """1 token, 2 tokens."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def not_enough(have: int, need: int, what: str, condition: str) -> Finding:
    """Too few tokens for an estimate: says how many there are and how many would do."""
    why = f"{what} needs about {need} tokens, and there {'is' if have == 1 else 'are'} {have}: give more text."
    numbers = {"tokens": float(have), "tokens_needed": float(need)}
    return Finding("not enough data", plural(have, "token"), f"{need} needed", why, condition, numbers)


def no_maps(tokens: int, condition: str) -> Finding:
    """Sequences whose maps were not kept, for their size or because they were packed."""
    why = f"Maps of {tokens} tokens were not kept (too large, or packed): give shorter sequences, of 256 tokens."
    return Finding("not applicable", f"{tokens} tokens", "no map", why, condition)


def one_head(condition: str) -> Finding:
    """A statement about pairs of heads, on a layer that has none."""
    return Finding("not applicable", "1 head", "no pairs", "The layer has fewer than two heads.", condition)
