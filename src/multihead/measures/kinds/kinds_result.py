"""The kinds of all heads: by name, as text, and as table columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from multihead._base.arguments import check_instance
from multihead._base.charts import KIND_COLOURS
from multihead._base.html_fragments import dots
from multihead._base.labels import without_value
from multihead.errors import SizeError
from multihead.measures.kinds.evidence import RULES, TOO_LITTLE, Evidence, Score
from multihead.measures.kinds.head_shares import SHARES
from multihead.table.column_info import ColumnInfo
from multihead.table.rows_and_columns import Column
from multihead.table.table import HeadTable

_DOTTED = re.compile(r"^((?:[A-Za-z_]+\.)?)(\d+)\.(\d+)$")


class Kinds:
    """The evidence of every head: `kinds["L3H7"]`, `for evidence in kinds`, `kinds.table`, `print(kinds)`."""

    def __init__(self, evidence: Sequence[Evidence], about: Mapping[str, Any], shares: HeadTable) -> None:
        self.evidence = tuple(evidence)
        self.about = dict(about)
        self.shares = shares
        """the columns of the shares of log n"""

    def __len__(self) -> int:
        return len(self.evidence)

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self.evidence)

    def __getitem__(self, head: str | tuple[int, int]) -> Evidence:
        """The evidence of `L3H7`, `3.7` or `(3, 7)`."""
        name = "{}.{}".format(*head) if isinstance(head, tuple) else head
        name = _DOTTED.sub(r"\1L\2H\3", str(name))
        match = next((e for e in self.evidence if e.head == name), None)
        if match is None:
            ends = f"{self.evidence[0].head} to {self.evidence[-1].head}" if self.evidence else "none"
            raise SizeError(f"unknown head {head!r}", hint=f"heads are {ends}")
        return match

    def of(self, kind: str) -> list[Evidence]:
        """The heads of one kind, or those that a share names, such as "match"; the highest score first."""
        heads = [e for e in self if kind in (e.kind, without_value(e.kind))]
        if not heads:
            check_instance("kind", kind, str, "a name", hint='kinds.of("previous")')
            names = [*(rule.kind for rule in RULES), *SHARES, TOO_LITTLE]
            if not {*without_value(kind).split(" + ")} <= {*names}:
                raise SizeError(f"unknown kind {kind!r}", hint=f"choose one of {', '.join(names)}")
        return sorted(heads, key=_strength)

    @property
    def table(self) -> HeadTable:
        """A row per head: the kind and its evidence, then the shares of log n."""
        return _table(self).join(self.shares)

    def text(self) -> str:
        """Text: a line per kind with its heads, then a line per head."""
        counts: dict[str, list[str]] = {}
        for e in self:
            counts.setdefault(without_value(e.kind), []).append(e.head)
        width = max(map(len, counts), default=0)
        lines = [
            f"{kind.ljust(width)}  {len(heads):3d}  {' '.join(heads[:8])}{' ...' if len(heads) > 8 else ''}"
            for kind, heads in sorted(counts.items(), key=lambda item: -len(item[1]))
        ]
        rows = [_line(e) for e in self]
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))] if rows else []
        lines += ["", *("  ".join(x.ljust(w) for x, w in zip(r, widths, strict=True)).rstrip() for r in rows)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The number of heads of each kind, then a table of the evidence."""
        counts = dict(Counter(without_value(e.kind) for e in self).most_common())
        columns = ("kind", "kind_detail", "kind_score", "kind_low", "kind_high", "kind_control", *SHARES, "driven")
        return dots(counts, KIND_COLOURS) + self.table.select(columns)._repr_html_()  # pyright: ignore[reportPrivateUsage]


def _strength(e: Evidence) -> float:
    """Sorts heads of one kind."""
    return -(sum(e.shares.share[name] for name in e.shares.leading) if e.best is None else e.score)


def _line(e: Evidence) -> tuple[str, ...]:
    """The kind of a head as a line of text."""
    score = "" if e.best is None else str(e.best).removeprefix(e.best.name).strip()
    chance = "" if e.best is None else f"chance {e.control:.2f}"
    driven = f"{e.driven.by} {e.driven.score:+.2f}" if e.driven.by else ""
    return e.head, e.name, score, chance, driven, "; ".join(f"{s.name} {s.score:.2f}" for s in e.runners_up)


# ---- the table --------------------------------------------------------------------------------

_WORDS = {
    "kind": "kind of the head, or its leading share of log n",
    "kind_detail": "offset, width or class",
    "second": "the strongest other kind",
    "third": "the second strongest other kind",
    "driven": "whether the head follows position or content, or both, when tokens are shuffled",
}
_NUMBERS = {
    "kind_score": "mean over documents of the kind's statistic",
    "kind_threshold": "the interval must be above this",
    "kind_control": "the score by chance; the interval must be above it too",
    "kind_low": "lower end of the 95 % interval over documents",
    "kind_high": "upper end of the 95 % interval over documents",
    "second_score": "score of the second kind",
    "third_score": "score of the third kind",
    "driven_score": "overlap of maps at the same positions − at the same tokens, after shuffling",
}


def _table(kinds: Kinds) -> HeadTable:
    """The kinds as columns of a table."""
    evidence = kinds.evidence
    second, third = ([e.runners_up[i] if len(e.runners_up) > i else None for e in evidence] for i in range(2))
    words: dict[str, tuple[str, ...]] = {
        "kind": tuple(e.kind for e in evidence),
        "kind_detail": tuple(e.detail for e in evidence),
        "second": tuple(map(_name, second)),
        "third": tuple(map(_name, third)),
        "driven": tuple(e.driven.by for e in evidence),
    }
    numbers: dict[str, list[float]] = {
        "kind_score": [e.score for e in evidence],
        "kind_threshold": [e.threshold for e in evidence],
        "kind_control": [e.control for e in evidence],
        "kind_low": [e.interval[0] for e in evidence],
        "kind_high": [e.interval[1] for e in evidence],
        "second_score": list(map(_number, second)),
        "third_score": list(map(_number, third)),
        "driven_score": [e.driven.score for e in evidence],
    }
    meaning = {n: ColumnInfo("", t) for n, t in _WORDS.items()} | {
        n: ColumnInfo("share", t) for n, t in _NUMBERS.items()
    }
    reasons: dict[str, dict[str, str]] = {}
    for name, column in numbers.items():
        reasons[name] = {
            e.head: e.driven.reason if name == "driven_score" else e.why
            for e, x in zip(evidence, column, strict=True)
            if math.isnan(x)
        }
    for rule in RULES:
        column = f"kind:{rule.kind}"
        numbers[column] = [e.scores[rule.kind].score for e in evidence]
        meaning[column] = ColumnInfo("share", f"{rule.meaning}; a kind above {rule.threshold:g}")
        reasons[column] = {
            e.head: e.scores[rule.kind].reason for e in evidence if math.isnan(e.scores[rule.kind].score)
        }
    columns: dict[str, Column] = {**words, **{n: torch.tensor(x, dtype=torch.float64) for n, x in numbers.items()}}
    return HeadTable(
        tuple(e.head for e in evidence), columns, meaning, {n: r for n, r in reasons.items() if r}, kinds.about
    )


def _name(score: Score | None) -> str:
    return "" if score is None else score.name


def _number(score: Score | None) -> float:
    return math.nan if score is None else score.score
