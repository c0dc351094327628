"""Sentences of the documentation are short: at most ten have more than 40 words, and none in the guides."""

from __future__ import annotations

import re
from collections.abc import Iterator

from test_readme import PAGES, ROOT

LIMIT = 40
ALLOWED = 10
NO_PROSE = (
    (r"<!--.*?-->", re.DOTALL),
    (r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE),
    (r"^(?:\||#|!\[|    ).*$", re.MULTILINE),  # tables, headings, pictures and formulas
)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page; an item of a list ends a sentence, and links count as their text."""
    for pattern, flags in NO_PROSE:
        text = re.sub(pattern, "", text, flags=flags)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from (" ".join(sentence.split()) for sentence in re.split(r"(?<=[.!?])[*\")]*\s+", block))


def long_sentences(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(sentence.split()) > LIMIT]


def test_few_sentences_are_long() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md"]
    found = [f"{page.name}: {s}" for page in pages for s in long_sentences(page.read_text(encoding="utf-8"))]
    assert len(found) <= ALLOWED, "\n".join(found)


def test_no_sentence_for_learners_is_long() -> None:
    pages = [ROOT / "README.md", *(page for page in PAGES if page.parent.name in {"learn", "guides", "reference"})]
    assert len(pages) > 25
    assert [s for page in pages for s in long_sentences(page.read_text(encoding="utf-8"))] == []


def test_a_long_sentence_is_found() -> None:
    words = "word " * LIMIT
    assert not long_sentences(f"A {words[10:]}ends.\n")
    assert long_sentences(f"Short. A {words}ends. Short.")
    assert not long_sentences(f"List:\n- {words}\n- {words}\n\n| {words * 2} |\n\n```\n{words * 2}\n```\n")
    assert long_sentences(f"[a](b.md) {words}ends.")
