"""A count and its noun.

>>> from multihead._base.plural import plural
>>> plural(1, "head"), plural(12, "head"), plural(1234, "token")
('1 head', '12 heads', '1234 tokens')
"""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """1 token, 2 tokens."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
