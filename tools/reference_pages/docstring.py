"""Docstrings as Markdown: sections become lists, examples become code blocks."""

from __future__ import annotations

import inspect
import re
from textwrap import dedent
from typing import Any

SECTIONS = {"Args:": "Arguments", "Returns:": "Returns", "Raises:": "Raises"}


def item(code: str, text: str = "") -> str:
    """An entry of a list, which ends with a full stop: readers and counters see one sentence per entry."""
    return stopped(f"- {code}: {text}" if text else f"- {code}")


def stopped(text: str) -> str:
    """The text with a full stop at its end, if it has none."""
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def first_line(value: Any) -> str:
    """The first paragraph of a docstring as one line."""
    return " ".join(_doc(value).split("\n\n")[0].split())


def markdown(value: Any) -> str:
    """The docstring of a module, class or function as Markdown."""
    paragraphs = re.split(r"\n\n(?! )", _doc(value))
    return "\n\n".join(part for paragraph in paragraphs for part in _parts(paragraph))


def _doc(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    generated = inspect.isclass(value) and text.startswith(f"{value.__name__}(")  # by dataclass
    return "" if generated else text.strip()


def _parts(paragraph: str) -> list[str]:
    """A paragraph, a section or an example; examples may follow text without an empty line."""
    head, _, body = paragraph.partition("\n")
    if head in SECTIONS and body:
        return [f"**{SECTIONS[head]}**", _section(dedent(body), head)]
    text, example = re.fullmatch(r"((?:(?!>>> ).*\n?)*)((?:.|\n)*)", paragraph).groups()  # type: ignore[union-attr]
    code = re.sub(r"  # doctest:.*", "", example)
    return [part for part in (text.strip("\n"), f"```pycon\n{code}\n```" if code else "") if part]


def _section(body: str, head: str) -> str:
    """Entries `name: text`, with lines that continue them, as a list; of Returns, the text itself."""
    if head == "Returns:":
        return " ".join(body.split())
    entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=\S)", body)]
    return "\n".join(_entry(entry) for entry in entries)


def _entry(entry: str) -> str:
    names, _, text = entry.partition(": ")
    return item(", ".join(f"`{name}`" for name in names.split(", ")), text)
