"""The results as a table for the terminal.

>>> from multihead.statements.direct_sum import direct_sum
>>> from multihead.statements.statement import Comparison, Result, Side
>>> from multihead.statements.theory_text import TheoryLine, table_text
>>> rank = Comparison(Side("rank 7", 7), "=", Side("d_model 8", 8))
>>> print(table_text([TheoryLine(direct_sum, "fails", "fails", "", Result(rank, "A direction is missing."))],
...     "a layer", width=40))
a layer
<BLANKLINE>
 2  the model's space is the direct sum of its heads'
                                   fails
    rank 7  ·  d_model 8
    A direction is missing.
<BLANKLINE>
1 statement: fails 1.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from multihead._base.plural import plural
from multihead.statements.statement import Result, Statement, Verdict

CONDITIONAL = "conditional"
"""The verdict "holds only if" in tables, which then begin with the condition."""
LONGEST = 110
"""Lines longer than this are hard to read, however wide the terminal is."""


@dataclass(frozen=True)
class TheoryLine:
    """One statement over all layers: the verdict in words, and the result of the layer in the middle."""

    statement: Statement
    verdict: Verdict
    tally: str
    layer: str
    """the layer of the result; "" if there is only one"""
    result: Result


def table_text(lines: Sequence[TheoryLine], about: str, width: int | None = None) -> str:
    """The statements with their verdicts and sides, and below each one the reason."""
    width = shutil.get_terminal_size((100, 24)).columns if width is None else width
    width = min(max(width, 40), LONGEST)
    verdicts = width - max([len(line.tally) for line in lines], default=0)
    titles = max([len(_head(line)) for line in lines], default=0)
    column = min(titles + 3, verdicts)
    body = [text for line in lines for text in _lines(line, column, width)]
    return "\n".join([*textwrap.wrap(about, width), "", *body, "", *textwrap.wrap(_count(lines), width)])


def _head(line: TheoryLine) -> str:
    return f"{line.statement.id:>2}  {line.statement.title}"


def _lines(line: TheoryLine, column: int, width: int) -> list[str]:
    """The rows of the table of statements."""
    head, because = _head(line), line.result.because
    if line.verdict == "holds only if":
        because = f"True if {line.statement.holds_when}. {because}"
    first = [f"{head:<{column}}{line.tally}"] if len(head) < column else [head, " " * column + line.tally]
    sides = f"{line.result.lhs}  ·  {line.result.rhs}" + (f"  ({line.layer})" if line.layer else "")
    return [*first, *_indented(sides, width), *_indented(because, width)]


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ")


def _count(lines: Sequence[TheoryLine]) -> str:
    """The last line of the table of statements: how many have each verdict."""
    counts = Counter(line.verdict.replace("holds only if", CONDITIONAL) for line in lines)
    parts = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    text = f"{plural(len(lines), 'statement')}: {parts}."
    named = any(line.layer for line in lines)
    return text + (" Numbers are those of the layer in the middle, which is named." if named else "")
