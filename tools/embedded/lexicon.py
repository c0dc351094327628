"""The words of the embedded model: three topics, each with words for the living and for things, and what all share.

>>> from embedded.lexicon import TOPICS, VOCABULARY
>>> TOPICS["town"].things.nouns[0], len(VOCABULARY) == len(set(VOCABULARY))
(('key', 'keys'), True)
"""

from __future__ import annotations

from dataclasses import dataclass

from multihead.sources.embedded.tokenizer import BEGIN, PAD, UNKNOWN


@dataclass(frozen=True)
class Kind:
    """Words for the living, or for things."""

    nouns: tuple[tuple[str, str], ...]
    """one, many"""
    adjectives: tuple[str, ...]
    acts: tuple[tuple[str, str, str], ...]
    """what they do: of one, of many, past"""


@dataclass(frozen=True)
class Topic:
    """What goes together in a sentence."""

    living: Kind
    things: Kind

    @property
    def nouns(self) -> tuple[tuple[str, str], ...]:
        return (*self.living.nouns, *self.things.nouns)


def _kind(nouns: str, adjectives: str, acts: str) -> Kind:
    return Kind(
        tuple((noun, _IRREGULAR.get(noun, f"{noun}s")) for noun in nouns.split()),
        tuple(adjectives.split()),
        _verbs(acts),
    )


def _verbs(text: str) -> tuple[tuple[str, str, str], ...]:
    found = (group.split("/") for group in text.split())
    return tuple((one, many, past) for one, many, past in found)


_IRREGULAR = {"man": "men", "woman": "women"}
TOPICS = {
    "sea": Topic(
        _kind("sailor captain gull whale pirate diver", "calm brave", "swims/swim/swam dives/dive/dived"),
        _kind("boat ship shell wave net rope", "wet deep", "sinks/sink/sank drifts/drift/drifted"),
    ),
    "farm": Topic(
        _kind("cow horse farmer cat dog goat", "old fat", "sleeps/sleep/slept runs/run/ran"),
        _kind("barn field cart apple tree fence", "muddy brown", "grows/grow/grew rots/rot/rotted"),
    ),
    "town": Topic(
        _kind("man woman teacher judge singer baker", "clever loud", "talks/talk/talked walks/walk/walked"),
        _kind("key door house street shop book", "new narrow", "opens/open/opened shines/shine/shone"),
    ),
}
DEEDS = _verbs(
    "sees/see/saw finds/find/found likes/like/liked follows/follow/followed helps/help/helped pulls/pull/pulled"
)
"""Verbs with an object, of every topic."""
DETERMINERS = (("the", "my"), ("the", "his"))
PREPOSITIONS = (("near", "with", "by"), ("near", "behind", "under"))
ADVERBS = (("today", "often", "still"), ("yesterday", "away", "again"))
"""Small words go with the tense as verbs do: now, past."""
BE = {"present": ("is", "are"), "past": ("was", "were")}
THAT, SAYS, STOP = "that", "says", "."
WITNESS = "i"
"""who saw, in "the cat that i saw": one word, neither one nor many"""
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_NAMES = """
    Ana Ben Cleo Dan Eva Finn Gus Hana Ida Jon Kim Leo Mia Nils Ola Pia Rex Sam Tea Udo
    Abel Birk Croft Dorn Elm Falk Grau Holt Irving Jarl Kemp Lund Marsh Nord Oaks Pine Reed Stone Thorn Vale
""".split()  # noqa: SIM905  # forty quotes are no easier to read
FIRST_NAMES, SURNAMES = tuple(_NAMES[:20]), tuple(_NAMES[20:])

NOW, PAST = "<now>", "<past>"
"""the special tokens that open sentences and say their tense"""
PLACES = {topic: f"<{topic}>" for topic in TOPICS}
"""those that follow and say where it plays: nouns, adjectives and deeds are of that topic"""
MARKS = (NOW, PAST, *PLACES.values())
SPECIAL = (PAD, BEGIN, UNKNOWN, *MARKS)


def _every_word() -> tuple[str, ...]:
    small = dict.fromkeys(w for tenses in (DETERMINERS, PREPOSITIONS, ADVERBS) for words in tenses for w in words)
    shared = (*small, *BE["present"], *BE["past"], THAT, SAYS, WITNESS, STOP)
    paired = [word for forms in (*BRACKETS, *DEEDS) for word in forms]
    kinds = [kind for topic in TOPICS.values() for kind in (topic.living, topic.things)]
    topical = [word for k in kinds for forms in (*k.nouns, k.adjectives, *k.acts) for word in forms]
    return (*SPECIAL, *shared, *paired, *FIRST_NAMES, *SURNAMES, *topical)


VOCABULARY = _every_word()
"""the word of every id"""
