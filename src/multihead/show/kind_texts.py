"""Sentences about heads of each kind: for the findings, and for the page, which receives them as data.

>>> from multihead.show.kind_texts import KINDS
>>> KINDS["previous"].does(1), KINDS["previous"].does(3)
('looks one token back', 'look one token back')
>>> KINDS["self"].sentence
'This head looks at its own position: every token at itself.'
"""

from __future__ import annotations

from dataclasses import dataclass

from multihead.measures.kinds.evidence import TOO_LITTLE

_PLURAL = {"looks ": "look ", "moves ": "move ", "spreads ": "spread ", "writes ": "write ", "its ": "their "}


@dataclass(frozen=True)
class KindText:
    """The words for a kind. Its name is the same on the page, in the terminal and in Python."""

    verb: str
    """what one head does"""
    rest: str
    """the end of the sentence that explains it"""

    def does(self, heads: int) -> str:
        """The verb for one head or for several."""
        text = self.verb
        if heads != 1:
            for one, many in _PLURAL.items():
                text = text.replace(one, many, 1)
        return text

    @property
    def sentence(self) -> str:
        return f"This head {self.verb}{self.rest}"


_SINK = "(an attention sink)"

KINDS = {
    "dead": KindText("writes almost nothing", ", whatever the text."),
    "first": KindText(f"looks mostly at the first token {_SINK}", ", where many heads of most models rest."),
    "delimiter": KindText(
        "looks mostly at delimiters",
        ", such as [SEP] or the marks that open a sentence.",
    ),
    "self": KindText("looks at its own position", ": every token at itself."),
    "previous": KindText("looks one token back", ": every token at the one right before it."),
    "next": KindText("looks one token ahead", ": every token at the one right after it."),
    "offset": KindText("looks at one fixed distance", ": every token at the one this many positions away."),
    "duplicate": KindText("looks for the same token elsewhere", ": every token at its other copies in the text."),
    "induction": KindText(
        "looks at what followed the same token before",
        ": in “A B … A”, at B. It continues repetition.",
    ),
    "class": KindText("looks at one class of tokens", ", such as punctuation or numbers."),
    "alignment": KindText(
        "moves along the other sequence",
        ": every token looks at the matching token of the other text.",
    ),
    "window": KindText("looks at a window of near tokens", ": every token at some tokens around it."),
    "broad": KindText("spreads its weight over everything", ": it averages over the text."),
}
"""The kinds of `multihead.measures.kinds`."""

UNCLEAR = {
    TOO_LITTLE: KindText("was measured on too few documents", " to say what it does."),
}
"""Instead of a kind."""
