"""A statement of the theory: a function that computes both sides on a layer, and the requirements on the layer.

The verdict follows from comparing the two sides, by the stated relation and tolerance; nothing else decides it.

>>> from multihead.statements.statement import Comparison, Result, Side
>>> rank = Comparison(Side("rank 383", 383), "=", Side("d_model 384", 384))
>>> Result(rank, "A column of W_O depends on the others.").verdict
'fails'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from multihead._base.plural import plural
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.statements.layer_sample import LayerSample

Unanswered = Literal["not enough data", "not applicable"]
Verdict = Literal["holds", "fails", "holds only if"] | Unanswered
Relation = Literal["=", "!=", "<=", ">=", ">"]
Numbers = Mapping[str, float | Sequence[float]]


@dataclass(frozen=True)
class Side:
    """One side of a statement: the text that tables show, and the values that are compared."""

    text: str
    value: float | Sequence[float]


@dataclass(frozen=True)
class Comparison:
    """lhs relation rhs, up to atol + rtol · |rhs|; of several values, all must be so.

    `always` is the same statement without its condition. Where it is false and this comparison is true, the
    statement holds only if the condition does.
    """

    lhs: Side
    relation: Relation
    rhs: Side
    rtol: float = 0.0
    atol: float | Sequence[float] = 0.0
    always: Comparison | None = None

    @property
    def true(self) -> bool:
        """Whether the comparison of a statement is true."""
        lhs, rhs, atol = (np.asarray(x, np.float64) for x in (self.lhs.value, self.rhs.value, self.atol))
        difference, room = lhs - rhs, atol + self.rtol * abs(rhs)
        within = {
            "=": abs(difference) <= room,
            "!=": abs(difference) > room,
            "<=": difference <= room,
            ">=": -difference <= room,
            ">": difference > room,
        }
        return bool(within[self.relation].all())

    @property
    def verdict(self) -> Verdict:
        if not self.true:
            return "fails"
        return "holds" if self.always is None or self.always.true else "holds only if"


@dataclass(frozen=True)
class NoComparison:
    """A layer, or a sample of it, on which the two sides cannot be compared."""

    verdict: Unanswered
    lhs: Side
    rhs: Side


@dataclass(frozen=True)
class Result:
    """The result of a statement on one layer."""

    comparison: Comparison | NoComparison
    because: str
    """one or two sentences"""
    numbers: Numbers = field(default_factory=dict[str, float | Sequence[float]])

    @property
    def verdict(self) -> Verdict:
        return self.comparison.verdict

    @property
    def lhs(self) -> str:
        """The left side as computed, short: "rank 384"."""
        return self.comparison.lhs.text

    @property
    def rhs(self) -> str:
        return self.comparison.rhs.text

    def to_json(self) -> dict[str, Any]:
        """The result of a statement on a layer, as plain data."""
        numbers = {name: _plain(x) for name, x in self.numbers.items()}
        return {
            "verdict": self.verdict,
            "lhs": self.lhs,
            "rhs": self.rhs,
            "because": self.because,
            "numbers": numbers,
        }


def _plain(x: float | Sequence[float]) -> Any:
    """A number of a statement for JSON, which has no NaN and no infinity."""
    if isinstance(x, int | float):
        return x if math.isfinite(x) else None
    return [_plain(y) for y in x]


class NoVerdict(Exception):
    """Raised where a statement cannot be compared; the statement returns `result`."""

    def __init__(
        self, verdict: Unanswered, lhs: str, rhs: str, because: str, numbers: Numbers | None = None
    ) -> None:
        super().__init__(because)
        comparison = NoComparison(verdict, Side(lhs, math.nan), Side(rhs, math.nan))
        self.result = Result(comparison, because, numbers or {})


def not_applicable(lhs: str, rhs: str, because: str) -> NoVerdict:
    """No verdict on a statement: the layer has nothing that it is about."""
    return NoVerdict("not applicable", lhs, rhs, because)


def not_enough_data(tokens: int, needed: int, estimate: str) -> NoVerdict:
    """No verdict on a statement: the sample has too few tokens for the estimate."""
    because = f"{estimate} needs about {needed} tokens, got {tokens}."
    numbers = {"tokens": float(tokens), "tokens_needed": float(needed)}
    return NoVerdict("not enough data", plural(tokens, "token"), f"{needed} needed", because, numbers)


@dataclass(frozen=True)
class Needs:
    """The requirements of a statement on the layer and its sample."""

    heads: int = 1
    tokens: int = 1
    """in all sequences together"""
    length: int = 1
    """tokens of the longest sequence"""
    map_size: int = 0
    """attention maps of at least so many queries and keys"""
    tokens_per_dimension: int = 0
    """tokens for every dimension of the heads' outputs together, for estimates of their covariance"""
    one_stream: bool = False
    """queries, keys and the output are of one sequence and of one width"""

    def check(self, layer: LayerSample) -> None:
        """Raise `NoVerdict` where the sample lacks something that the statement needs."""
        for size, needed, noun in (
            (layer.heads, self.heads, "head"),
            (layer.tokens, self.tokens, "token"),
            (layer.shape.tokens, self.length, "token"),
        ):
            if size < needed:
                because = f"The statement is about {plural(needed, noun)} or more."
                raise not_applicable(plural(size, noun), f"{needed} needed", because)
        if self.one_stream and (layer.cross or layer.d_out != layer.d_model):
            raise not_applicable("other widths", "one stream", "The heads do not write where they read.")
        if self.map_size and not any(min(m.shape[1:]) >= self.map_size for m in layer.maps):
            longest = layer.longest(1)[0].length
            if longest < self.map_size:
                raise not_enough_data(longest, self.map_size, "The rank of one attention map")
            because = "The attention maps were too large to keep, or packed: use sequences of up to 256 tokens."
            raise not_applicable(plural(longest, "token"), "no map", because)
        needed = self.tokens_per_dimension * layer.heads * layer.value_dim
        if layer.tokens < needed:
            raise not_enough_data(layer.tokens, needed, "The covariance of all heads' outputs")


@dataclass(frozen=True)
class Statement:
    """One statement of the theory; ids are "1" … "18" and "T1" … "T4". Call it with a layer."""

    id: str
    title: str
    """a sentence that can be true or false"""
    formula: str
    holds_when: str
    test: Callable[[Any], Result]
    """computes it on a `LayerSample`; with `shape_only` on a `LayerShape`"""
    needs: Needs = Needs()
    shape_only: bool = False

    def __call__(self, layer: LayerSample) -> Result:
        """The result on a layer. If the layer cannot be taken apart, that is the result, not an error."""
        try:
            self.needs.check(layer)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(layer.seed)
                return self.test(layer.shape if self.shape_only else layer)
        except NoVerdict as unanswered:
            return unanswered.result
        except MultiheadError as error:
            return not_applicable("–", "–", error.message.partition("\n")[0]).result


def statement(
    id: str, title: str, *, formula: str, holds_when: str, needs: Needs | None = None, shape_only: bool = False
) -> Callable[[Callable[[Any], Result]], Statement]:
    """Make a function a statement: it computes both sides on a `LayerSample`, or on a `LayerShape`."""
    return lambda test: Statement(id, title, formula, holds_when, test, needs or Needs(), shape_only)
