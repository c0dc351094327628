"""English prose that every machine has: paragraphs of the manual inside Python.

>>> from multihead.corpus.python_manual import python_manual
>>> sum(len(paragraph) for paragraph in python_manual()) > 20_000
True
"""

from __future__ import annotations

from collections.abc import Iterator


def python_manual() -> Iterator[str]:
    """Paragraphs of prose, without grammar and code; none if Python is installed without its documentation."""
    try:
        from pydoc_data.topics import topics  # half a megabyte
    except ImportError:
        return
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            text = " ".join(paragraph.split())
            letters = sum(c.isalpha() or c == " " for c in text)
            if len(text) > 200 and letters > 0.9 * len(text):
                yield text
