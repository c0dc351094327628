"""The findings as a table that a person can read in a minute.

>>> from multihead.statements.claim import Claim, Finding
>>> rank = Finding("fails", "rank 7", "d_model 8", "A direction is missing.", "")
>>> print(table_text([Line(Claim("2", "heads fill the space", "", lambda s: rank), "fails", "fails", "", rank)],
...     "a layer", width=40))
a layer
<BLANKLINE>
 2  heads fill the space   fails
    rank 7  ·  d_model 8
    A direction is missing.
<BLANKLINE>
1 statement: 1 fails.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from multihead.statements.claim import Claim, Finding, Verdict, plural

CONDITIONAL = "conditional"
"""How a table calls the verdict "holds only if": the condition is then the first thing said below it."""
LONGEST = 110
"""Lines longer than this are hard to read, however wide the terminal is."""


@dataclass(frozen=True)
class Line:
    """One statement over all layers: the verdict in words, and the finding of the layer in the middle."""

    claim: Claim
    verdict: Verdict
    said: str
    layer: str
    """the layer that the finding is of; "" where there is only one"""
    finding: Finding


def table_text(lines: Sequence[Line], about: str, width: int | None = None) -> str:
    """The statements with their verdicts and sides, and under each one why."""
    width = shutil.get_terminal_size((100, 24)).columns if width is None else width
    width = min(max(width, 40), LONGEST)
    verdicts = width - max([len(line.said) for line in lines], default=0)
    titles = max([len(_head(line)) for line in lines], default=0)
    column = min(titles + 3, verdicts)
    body = [text for line in lines for text in _lines(line, column, width)]
    return "\n".join([*textwrap.wrap(about, width), "", *body, "", *textwrap.wrap(_count(lines), width)])


def _head(line: Line) -> str:
    return f"{line.claim.key:>2}  {line.claim.title}"


def _lines(line: Line, column: int, width: int) -> list[str]:
    head, why = _head(line), line.finding.why
    if line.verdict == "holds only if":
        why = f"True if {line.finding.condition}. {why}"
    first = [f"{head:<{column}}{line.said}"] if len(head) < column else [head, " " * column + line.said]
    sides = f"{line.finding.left}  ·  {line.finding.right}" + (f"  ({line.layer})" if line.layer else "")
    return [*first, *_indented(sides, width), *_indented(why, width)]


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ")


def _count(lines: Sequence[Line]) -> str:
    counts = Counter(line.verdict.replace("holds only if", CONDITIONAL) for line in lines)
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    said = f"{plural(len(lines), 'statement')}: {parts}."
    return said + (
        " Numbers are those of the layer in the middle, which is named." if any(x.layer for x in lines) else ""
    )
