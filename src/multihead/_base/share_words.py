"""The five shares of log n that decide where a head looks: their names, colours and words, for every face.

`measures.kinds.shares` measures them. The page receives this table as JSON; notebooks, figures, the terminal and
the findings read it here.

>>> from multihead._base.share_words import leading_shares
>>> [share.letter for share in leading_shares("position + word")], leading_shares("induction")
(['p', 'w'], [])
"""

from __future__ import annotations

from dataclasses import dataclass

from multihead._base.labels import without_value


@dataclass(frozen=True)
class Share:
    """One of the five shares, and how it is displayed."""

    name: str
    letter: str
    colour: str
    meaning: str
    """one line for a legend"""
    many: str
    """the behaviour of heads that it leads, in the plural"""
    one: str
    """the behaviour of one head or layer that it leads"""


SHARES = (
    Share(
        "spread", "s", "#8b93a0", "attention is spread over many tokens",
        "spread attention over many tokens", "spreads attention over many tokens",
    ),
    Share(
        "rest", "r", "#4666a6", "attention rests on the first token or on special tokens",
        "rest on the first token or on special tokens", "rests on the first token or on special tokens",
    ),
    Share(
        "position", "p", "#cf7f00", "the distance between query and key decides, not the words",
        "look at certain distances, whatever the words", "looks at certain distances, whatever the words",
    ),
    Share(
        "word", "w", "#4da56a", "the key decides: some words draw attention from every query",
        "pick words, whatever the query", "picks words, whatever the query",
    ),
    Share(
        "match", "m", "#9c2ce6", "query and key decide together: each query picks its own keys",
        "pick keys that fit the query", "picks keys that fit the query",
    ),
)  # fmt: skip
"""In the order in which they are drawn.

With normal, deutan, protan and tritan colour vision every two colours are at least 20 apart in CIELAB, and each has
a contrast of 3 to 1 with the light and the dark background of the page: `tests/unit/figure/test_palette.py`.
"""

SHARE_NAMES = tuple(share.name for share in SHARES)


def leading_shares(label: str) -> list[Share]:
    """The shares that a label such as "position + word" or "match, 0.18" names; none for a finer kind."""
    by_name = {share.name: share for share in SHARES}
    return [by_name[name] for name in without_value(label).split(" + ") if name in by_name]
