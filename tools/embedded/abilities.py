"""What a model of the language can do, as shares from 0 to 1: the causal test of what each head is for.

- `agreement`: at the place before the verb, forms of the subject's number are likelier than those of the other,
  with two nouns of the other number in between (chance 0.5);
- `copying`: the likeliest next word is the right one where a random string comes again (chance 1 / words);
- `tense`: of the probability of all verbs, how much goes to those of the mark's tense (chance a half);
- `place`: of the probability of all nouns and adjectives, how much goes to those of the mark's place, where the
  sentence has none yet (chance a third);
- `closing`: of the three closing brackets the likeliest is the one that fits (chance a third).

>>> import torch
>>> from embedded.abilities import abilities
>>> from embedded.lexicon import VOCABULARY
>>> from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
>>> untrained = EmbeddedModel(EmbeddedConfig(len(VOCABULARY))).eval()
>>> sorted(abilities(untrained, count=8))
['agreement', 'closing', 'copying', 'place', 'tense']
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from embedded.language import SUNG, Sentence, Writer
from embedded.lexicon import BE, BEGIN, BRACKETS, DEEDS, MARKS, SAYS, TOPICS
from multihead.model.capture import capture
from multihead.model.interventions import ablate
from multihead.sources.embedded.tokenizer import WordTokenizer

COUNT = 200
"""Cases that an ability is measured on."""

VERBS = [*DEEDS, *(verb for t in TOPICS.values() for kind in (t.living, t.things) for verb in kind.acts)]

_TOKENIZER = WordTokenizer()


CHANCE = {"agreement": 1 / 2, "copying": 0.0, "tense": 1 / 2, "place": 1 / 3, "closing": 1 / 3}
"""Ability → its value for a model that guesses."""


def ability(model: nn.Module, name: str, *, without: Sequence[str] = (), count: int = COUNT) -> float:
    """One ability by its name, with some heads ablated (their output is 0)."""
    measure = {"agreement": agreement, "copying": copying, "tense": tense, "place": place, "closing": closing}[name]
    if not without:
        return measure(model, count=count)
    with ablate(model, list(without)):
        return measure(model, count=count)


def abilities(model: nn.Module, *, without: Sequence[str] = (), count: int = COUNT) -> dict[str, float]:
    """Each ability, with some heads ablated (their output is 0)."""
    return {name: ability(model, name, without=without, count=count) for name in CHANCE}


def needed(model: nn.Module, name: str, heads: Sequence[str], *, most: int = 3) -> tuple[list[str], float]:
    """The smallest set of at most `most` heads without which an ability is lost, and the value without them.

    An ability is lost when at most a quarter of the way from chance to the intact model is left. Of sets of one
    size the one that leaves least is returned, also if no set of `most` heads is enough.
    """
    chance, intact = CHANCE[name], ability(model, name)
    left, removed = intact, list[str]()
    for size in range(1, most + 1):
        left, removed = min((ability(model, name, without=s), list(s)) for s in combinations(heads, size))
        if left <= chance + (intact - chance) / 4:
            break
    return removed, left


def by_head(model: nn.Module, heads: Sequence[str], *, count: int = COUNT) -> dict[str, dict[str, float]]:
    """Head → what is left of each ability without it; the key "" is the intact model."""
    return {"": abilities(model, count=count)} | {
        head: abilities(model, without=[head], count=count) for head in heads
    }


# ---- cases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cases:
    """Right-padded documents, and the place in each whose next word is asked for."""

    ids: Int[Tensor, "case token"]
    mask: Int[Tensor, "case token"]
    at: Int[Tensor, " case"]

    @staticmethod
    def of(documents: Sequence[Sequence[str]], at: Sequence[int]) -> Cases:
        longest = max(map(len, documents))
        rows = [_TOKENIZER.convert_tokens_to_ids(d) for d in documents]
        ids = torch.tensor([[*row, *[_TOKENIZER.pad_token_id] * (longest - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return Cases(ids, mask, torch.tensor(at))

    @torch.no_grad()
    def chances(self, model: nn.Module) -> Float[Tensor, "case word"]:
        """The probability of every word at the place."""
        device = next(model.parameters()).device
        logits = model(input_ids=self.ids.to(device), attention_mask=self.mask.to(device)).logits.cpu().float()
        return logits[torch.arange(len(self.at)), self.at].softmax(-1)


def far_sentences(count: int, attractors: int = 2) -> list[Sentence]:
    """Sentences with so many nouns of the other number between subject and verb, each after `<s>`."""
    writer, made = Writer(random.Random("agreement")), list[Sentence]()
    while len(made) < count:
        sentence = writer.sentence(writer.draw.choice(list(TOPICS)), between=attractors)
        if sentence.agrees and len(sentence.attractors) == attractors:
            made.append(sentence)
    return made


@lru_cache
def _agreement_cases(count: int, attractors: int) -> tuple[Cases, Tensor]:
    sentences = far_sentences(count, attractors)
    cases = Cases.of([[BEGIN, *s.words[: s.verb]] for s in sentences], [s.verb for s in sentences])
    return cases, torch.tensor([s.many for s in sentences])


def agreement(model: nn.Module, *, attractors: int = 2, count: int = COUNT) -> float:
    """How often forms of the subject's number are likelier than those of the other."""
    cases, many = _agreement_cases(count, attractors)
    forms = [[*(be[n] for be in BE.values()), *(verb[n] for verb in VERBS)] for n in (0, 1)]
    found = cases.chances(model)
    one, plural = (found[:, _TOKENIZER.convert_tokens_to_ids(words)].sum(-1) for words in forms)
    return float(((plural > one) == many).float().mean())


@lru_cache
def _copying_cases(count: int, length: int) -> Tensor:
    draw = random.Random("copying")
    rows = [[BEGIN, *(draw.sample(SUNG, length) * 2)] for _ in range(max(1, count // 8))]
    return torch.tensor([_TOKENIZER.convert_tokens_to_ids(row) for row in rows])


@torch.no_grad()
def copying(model: nn.Module, *, length: int = 24, count: int = COUNT) -> float:
    """How often the next word is right in the second half of a random string and itself; its first word is free."""
    ids = _copying_cases(count, length)
    guesses = model(input_ids=ids.to(next(model.parameters()).device)).logits.argmax(-1).cpu()
    return float((guesses[:, length + 1 : -1] == ids[:, length + 2 :]).float().mean())


@lru_cache
def _tense_cases(count: int) -> tuple[Cases, Tensor]:
    writer, names = Writer(random.Random("tense")), list(TOPICS)
    documents, past = list[list[str]](), [bool(i % 2) for i in range(count)]
    for later in past:
        before = writer.sentence(writer.draw.choice(names), past=not later)
        asked = writer.sentence(writer.draw.choice(names), past=later, between=1)
        documents.append([BEGIN, *before.words, *asked.words[: asked.verb]])
    return Cases.of(documents, [len(d) - 1 for d in documents]), torch.tensor(past)


def tense(model: nn.Module, *, count: int = COUNT) -> float:
    """The share of the mark's tense in the probability of all verbs, after a sentence of the other tense."""
    cases, past = _tense_cases(count)
    found = cases.chances(model)
    forms = (
        [*BE["present"], *(w for verb in VERBS for w in verb[:2])],
        [*BE["past"], *(verb[2] for verb in VERBS)],
    )
    mass = torch.stack([found[:, _TOKENIZER.convert_tokens_to_ids(words)].sum(-1) for words in forms], 1)
    return float((mass.gather(1, past.long()[:, None])[:, 0] / mass.sum(1)).mean())


@lru_cache
def _place_cases(count: int) -> tuple[Cases, Tensor]:
    writer, names = Writer(random.Random("place")), list(TOPICS)
    documents, which = list[list[str]](), list[int]()
    for _ in range(count):
        other, own = writer.draw.sample(range(len(names)), 2)
        before, asked = (writer.sentence(names[i], between=0) for i in (other, own))
        documents.append([BEGIN, *before.words, *asked.words[:3]])  # two marks, and "the"
        which.append(own)
    return Cases.of(documents, [len(d) - 1 for d in documents]), torch.tensor(which)


def place(model: nn.Module, *, count: int = COUNT) -> float:
    """The share of the mark's place in the probability of nouns and adjectives, after a sentence of another."""
    cases, which = _place_cases(count)
    found = cases.chances(model)
    words = [
        [w for k in (t.living, t.things) for forms in (*k.nouns, k.adjectives) for w in forms]
        for t in TOPICS.values()
    ]
    mass = torch.stack([found[:, _TOKENIZER.convert_tokens_to_ids(some)].sum(-1) for some in words], 1)
    return float((mass.gather(1, which[:, None])[:, 0] / mass.sum(1)).mean())


@lru_cache
def _closing_cases(count: int) -> tuple[Cases, Tensor]:
    writer = Writer(random.Random("closing"))
    documents, which = list[list[str]](), list[int]()
    for _ in range(count):
        first, second = writer.draw.sample(range(len(BRACKETS)), 2)
        earlier, song = (writer.draw.sample(SUNG, writer.draw.randint(4, 8)) for _ in range(2))
        other, own = BRACKETS[first], BRACKETS[second]
        documents.append(
            [BEGIN, "Ana", "Lund", SAYS, other[0], *earlier, other[1], ".", "Ana", "Lund", SAYS, own[0], *song]
        )
        which.append(second)
    return Cases.of(documents, [len(d) - 1 for d in documents]), torch.tensor(which)


def closing(model: nn.Module, *, count: int = COUNT) -> float:
    """How often the bracket that was opened last is the likeliest to be closed."""
    cases, which = _closing_cases(count)
    found = cases.chances(model)[:, _TOKENIZER.convert_tokens_to_ids([close for _, close in BRACKETS])]
    return float((found.argmax(-1) == which).float().mean())


# ---- where a head looks -----------------------------------------------------------------------


@dataclass(frozen=True)
class Pointing:
    """Mean weight that a head gives, from the place before the verb."""

    subject: float
    attractors: float
    """all nouns of the other number in between, together"""
    first: float
    """how often the subject gets more than any other word"""


def _rows(model: nn.Module, cases: Cases) -> dict[str, Float[Tensor, "case token"]]:
    """Head → its attention weights from the place of every case."""
    with torch.no_grad(), capture(model, statistics=None, keep="qk") as heads:
        model(input_ids=cases.ids, attention_mask=cases.mask)
    index = torch.arange(len(cases.at))
    return {head.name: head.weights()[index, cases.at].float() for head in heads}


def pointing(
    model: nn.Module, *, attractors: int = 2, count: int = COUNT, many: bool | None = None
) -> dict[str, Pointing]:
    """Head → how it looks from the verb's place to the subject, past other nouns. `many` selects one number."""
    sentences = far_sentences(count, attractors)
    cases, _ = _agreement_cases(count, attractors)
    subject = torch.tensor([s.subject + 1 for s in sentences])  # behind <s>
    others = torch.tensor([[a + 1 for a in s.attractors] for s in sentences])
    selected = torch.tensor([many is None or s.many == many for s in sentences])
    subject, others = subject[selected], others[selected]

    def of_head(rows: Float[Tensor, "case token"]) -> Pointing:
        return Pointing(
            float(rows.gather(1, subject[:, None]).mean()),
            float(rows.gather(1, others).sum(1).mean()),
            float((rows.argmax(1) == subject).float().mean()),
        )

    return {head: of_head(rows[selected]) for head, rows in _rows(model, cases).items()}


def marking(model: nn.Module, *, count: int = COUNT) -> dict[str, float]:
    """Head → its mean weight on the marks of the sentence, from the place before the verb."""
    cases, _ = _tense_cases(count)
    marks = torch.isin(cases.ids, torch.tensor(_TOKENIZER.convert_tokens_to_ids(MARKS)))
    last = (marks * torch.arange(marks.shape[1])).argmax(1, keepdim=True)
    both = torch.cat([last - 1, last], 1)
    return {head: float(rows.gather(1, both).sum(1).mean()) for head, rows in _rows(model, cases).items()}
