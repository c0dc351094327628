"""Labels of heads: "previous", "position + word", and "match, 0.18", a share that names a head, with its value.

>>> from multihead._base.labels import agree, without_value
>>> without_value("match, 0.18"), without_value("previous")
('match', 'previous')
>>> agree("position + word, 0.31", "word, 0.17"), agree("match, 0.18", "induction")
(True, False)
"""

from __future__ import annotations


def without_value(label: str) -> str:
    """The label without the value of a share: heads with the same share form a group."""
    return label.partition(",")[0]


def agree(first: str, second: str) -> bool:
    """Whether two labels have a name in common."""
    return not {*without_value(first).split(" + ")}.isdisjoint(without_value(second).split(" + "))
