"""Conditions in short form: `entropy<1` on one table, `entropy:drop>0.1` on the change between two.

>>> from multihead.table.condition import Condition
>>> Condition.of("entropy<1").holds(0.5)
True
>>> Condition.of("importance:drop>10%")
importance:drop>0.1
>>> Condition.of("kind:changed").how
'changed'
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from torch import Tensor

from multihead._base.labels import without_value
from multihead.errors import MultiheadError, SizeError
from multihead.table.rows_and_columns import Column

How = Literal["", "drop", "rise", "relative", "changed"]
"""What a condition compares: "" |after − before|, "drop" before − after, "rise" after − before, "relative"
|after − before| / |before|, "changed" the number of heads whose word changed."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_FORM = re.compile(
    r"^\s*(?P<column>.+?)\s*(?::(?P<how>drop|rise|relative|changed))?\s*"
    r"(?:(?P<op><=|>=|!=|==|=|<|>)\s*(?P<value>.*?))?\s*$"
)
_HINT = "write COLUMN, then < <= > >= = or !=, then a number or a word: 'entropy<1', 'kind=previous'"


@dataclass(frozen=True, repr=False)
class Condition:
    """column[:how] operator value; the value is a number, or a word for a column of words."""

    column: str
    how: How
    op: str
    value: float | str

    @staticmethod
    def of(text: str) -> Condition:
        """Parse a condition: `entropy>0.1`, `importance:drop>10%`, `kind=previous`, `kind:changed`."""
        match = _FORM.match(text)
        if match is None or (match["op"] is None and match["how"] != "changed"):
            raise MultiheadError(f"{text!r} is not a condition", hint=_HINT)
        op = (match["op"] or ">").replace("==", "=")
        value = _parse_value(match["value"] if match["op"] else "0")
        how = cast(How, match["how"] or "")
        if isinstance(value, str) and (op not in ("=", "!=") or how):
            raise MultiheadError(
                f"{text!r}: {value!r} is not a number", hint="a share may be written 0.1 or 10%; " + _HINT
            )
        return Condition(match["column"], how, op, value)

    def holds(self, x: float | str) -> bool:
        """Whether a number or word meets the condition; NaN never does. "match, 0.18" is equal to "match"."""
        if isinstance(x, str) or isinstance(self.value, str):
            same = x == self.value or (isinstance(x, str) and without_value(x) == self.value)
            return same == (self.op == "=")
        return not math.isnan(x) and _COMPARE[self.op](x, self.value)

    def check(self, column: Column) -> None:
        """Raise unless the condition applies to this column of a single table."""
        if self.how:
            raise MultiheadError(
                f"{self!r} needs two tables, got one", hint="compare them: first.compare(second).findings([...])"
            )
        column_is_words, value_is_word = not isinstance(column, Tensor), isinstance(self.value, str)
        if column_is_words != value_is_word:
            names = ("numbers", "words")
            raise SizeError(
                f"{self!r} compares {names[value_is_word]}, column {self.column!r} holds {names[column_is_words]}",
                hint=_HINT,
            )

    def __repr__(self) -> str:
        value = self.value if isinstance(self.value, str) else f"{self.value:g}"
        return f"{self.column}{':' if self.how else ''}{self.how}{self.op}{value}"


def _parse_value(text: str) -> float | str:
    """The value of a condition: a number, a share such as 10%, or a word."""
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return text
    return text if math.isnan(number) else number
