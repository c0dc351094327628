"""A small language that nobody speaks, made so that a model of it needs the classic heads.

A document is a row of items, each of which asks for something that attention alone can bring:

- a **sentence** opens with two marks: `<now>` or `<past>`, and `<sea>`, `<farm>` or `<town>`. All of its verbs and
  small words are of that tense, and its other words of that place, however far away. Its verb agrees in number with
  its subject, and fits it: things do not walk. Nouns and a clause may come between:
  "<now> <town> the keys that the man near the doors sees are new";
- a **person** has a surname that is drawn for this document alone: who reads "Ana" again must look at what followed
  "Ana" before;
- a **chant** is a string of any words at all between brackets, and is sung again later in the document; it is
  closed by the kind of bracket that opened it;
- some documents are nothing but such a string over and over.

Documents with chants have no marks, so that plain sentences can be read too.

>>> import random
>>> from embedded.language import Writer
>>> " ".join(Writer(random.Random(4809)).sentence("town").words)
'<now> <town> the men that the woman near the judge pulls are clever .'
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from embedded.lexicon import (
    ADVERBS,
    BE,
    BEGIN,
    BRACKETS,
    DEEDS,
    DETERMINERS,
    FIRST_NAMES,
    NOW,
    PAST,
    PLACES,
    PREPOSITIONS,
    SAYS,
    SPECIAL,
    STOP,
    SURNAMES,
    THAT,
    TOPICS,
    VOCABULARY,
    WITNESS,
    Kind,
    Topic,
)

_CLOSING = {close for _, close in BRACKETS} | {open_ for open_, _ in BRACKETS}
ORDINARY = tuple(word for word in VOCABULARY if word not in SPECIAL)
SUNG = tuple(word for word in ORDINARY if word not in _CLOSING)
COPIES = 0.35
"""of the documents are a string over and over"""
MARKED = 0.67
"""of the other documents have marks and no chants; the rest teaches the model to do without marks"""
CHANTS = 0.5
"""of what stands in the rest"""


@dataclass
class Sentence:
    """Words, and where its main subject and verb stand, counted from its first word."""

    words: list[str] = field(default_factory=list[str])
    subject: int = 0
    """the last word of the subject's name: its noun"""
    verb: int = 0
    many: bool = False
    thing: bool = False
    """the subject is no living one"""
    past: bool = False
    agrees: bool = False
    """whether the form of the verb tells one from many"""
    attractors: list[int] = field(default_factory=list[int])
    """nouns of the other number, between subject and verb"""


def sample(documents: int = 40, tokens: int = 72) -> list[list[str]]:
    """Documents that training never draws; every fifth is a string over and over."""
    writer = Writer(random.Random("sample"))
    return [writer.repeated(tokens) if at % 5 == 3 else writer.story(tokens) for at in range(documents)]


class Writer:
    """Draws documents; the same generator gives the same ones."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def document(self, tokens: int) -> list[str]:
        """A document of so many words, `<s>` among them, cut off where it is full."""
        return self.repeated(tokens) if self.draw.random() < COPIES else self.story(tokens)

    def story(self, tokens: int) -> list[str]:
        """Sentences about three people, with marks; or chants and sentences, without."""
        people = list(zip(self.draw.sample(FIRST_NAMES, 3), self.draw.sample(SURNAMES, 3), strict=True))
        marked, sung = self.draw.random() < MARKED, list[list[str]]()
        words = [BEGIN]
        while len(words) < tokens:
            if not marked and self.draw.random() < CHANTS:
                words += self.chant(people, sung)
            else:
                words += self.sentence(self.draw.choice(list(TOPICS)), people, marked=marked).words
        return words[:tokens]

    def repeated(self, tokens: int) -> list[str]:
        """A string of any words, all different, over and over."""
        block = self.draw.sample(ORDINARY, self.draw.randint(4, max(5, tokens // 3)))
        return [BEGIN, *(block * (tokens // len(block) + 1))[: tokens - 1]]

    def chant(self, people: Sequence[tuple[str, str]], sung: list[list[str]]) -> list[str]:
        """ "Ana Lund says ( … ) .", a new string or one that was sung before."""
        if sung and self.draw.random() < 0.6:
            song = self.draw.choice(sung)
        else:
            song = self.draw.sample(SUNG, self.draw.randint(3, 9))
            sung.append(song)
        open_, close = self.draw.choice(BRACKETS)
        return [*self.draw.choice(people), SAYS, open_, *song, close, STOP]

    def sentence(
        self,
        topic: str,
        people: Sequence[tuple[str, str]] = (),
        *,
        marked: bool = True,
        past: bool | None = None,
        between: int | None = None,
    ) -> Sentence:
        """`past` asks for a tense, `between` for so many attractors between subject and verb, for a test."""
        past = self.draw.random() < 0.5 if past is None else past
        about, made = TOPICS[topic], Sentence([PAST if past else NOW, PLACES[topic]] if marked else [])
        made.past = past
        made.many, made.thing = self._noun(made, about, people, named=between is None)
        made.subject = len(made.words) - 1
        self._apart(made, about, people, between)
        made.verb = len(made.words)
        self._verb(made, about)
        if self.draw.random() < 0.2:
            made.words.append(self.draw.choice(ADVERBS[made.past]))
        made.words.append(STOP)
        return made

    # ---- parts --------------------------------------------------------------------------------

    def _noun(
        self, made: Sentence, topic: Topic, people: Sequence[tuple[str, str]], *, named: bool = True
    ) -> tuple[bool, bool]:
        """Somebody or something; whether it is many, and whether it is a thing."""
        if people and named and self.draw.random() < 0.3:
            made.words += self.draw.choice(people)
            return False, False
        many, thing = self.draw.random() < 0.5, self.draw.random() < 0.5
        kind = _kind(topic, thing)
        made.words.append(self.draw.choice(DETERMINERS[made.past]))
        if self.draw.random() < 0.25:
            made.words.append(self.draw.choice(kind.adjectives))
        made.words.append(self.draw.choice(kind.nouns)[many])
        return many, thing

    def _other(self, made: Sentence, topic: Topic, people: Sequence[tuple[str, str]], many: bool | None) -> bool:
        """One more noun, before the verb; whether it is many."""
        found, _ = self._noun(made, topic, people, named=many is None)
        if many is not None and found != many:
            made.words[-1] = next(noun for noun in topic.nouns if made.words[-1] in noun)[many]
            found = many
        if found != made.many:
            made.attractors.append(len(made.words) - 1)
        return found

    def _apart(self, made: Sentence, topic: Topic, people: Sequence[tuple[str, str]], between: int | None) -> None:
        """What parts the subject from its verb: places ("near the doors"), a clause ("that the man sees")."""
        other = None if between is None else not made.many
        places = self.draw.choices((0, 1, 2), (5, 4, 2))[0] if between is None else between
        clause = self.draw.random() < 0.35
        if between is not None and clause and places:
            places -= 1
        for _ in range(places):
            made.words.append(self.draw.choice(PREPOSITIONS[made.past]))
            self._other(made, topic, people, other)
        if not clause:
            return
        made.words.append(THAT)
        if between is None and self.draw.random() < 0.2:
            made.words.append(WITNESS)
            many = True  # i see, they see
        else:
            many = self._other(made, topic, people, other)
            if between is None and self.draw.random() < 0.4:
                made.words.append(self.draw.choice(PREPOSITIONS[made.past]))
                self._other(made, topic, people, None)
        made.words.append(self.draw.choice(DEEDS)[2 if made.past else many])

    def _verb(self, made: Sentence, topic: Topic) -> None:
        kind = _kind(topic, made.thing)
        how = self.draw.choices(("be", "act", "deed"), (5, 3, 0 if made.thing else 2))[0]
        made.agrees = how == "be" or not made.past
        if how == "be":
            made.words += [BE["past" if made.past else "present"][made.many], self.draw.choice(kind.adjectives)]
            return
        made.words.append(self.draw.choice(kind.acts if how == "act" else DEEDS)[2 if made.past else made.many])
        if how == "deed":
            self._noun(made, topic, ())


def _kind(topic: Topic, thing: bool) -> Kind:
    return topic.things if thing else topic.living
