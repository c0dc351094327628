"""Words and tokens: which tokens make a word, which words depend on each other, and where a head points.

As Clark et al. 2019 do: attention to a word of several tokens is summed over them, attention from it is their mean;
a word does not point at itself, nor at special tokens.

>>> import torch
>>> from multihead.measures.syntax.word_alignment import pointing
>>> one_head = torch.tensor([[[0.1, 0.5, 0.4], [0.9, 0.0, 0.1], [0.2, 0.3, 0.5]]])
>>> pointing(one_head, torch.tensor([-1, 0, 1]), words=2).tolist()       # a special token, then two words
[[1, 0]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead.errors import MultiheadError
from multihead.measures.syntax.conllu import Sentence

LEFT_OUT = ("root", "punct")
"""Relations that are not asked for: the root has no head, and punctuation is attached by convention."""

Direction = Literal["to head", "to dependent"]
DIRECTIONS: tuple[Direction, ...] = ("to head", "to dependent")


@dataclass(frozen=True)
class Aligned:
    """A sentence as a model reads it: which tokens make which word."""

    sentence: Sentence
    ids: list[int]
    word_of_token: list[int]
    """index of the word, -1 for special tokens"""
    unit: list[int]
    """words that share their letters are one: its number; -1 where no token is left of it"""

    @property
    def units(self) -> int:
        return max(self.unit, default=-1) + 1


def align(sentence: Sentence, tokenizer: Any) -> Aligned:
    """Tokenise the text of a sentence; a token belongs to the word that has most of its letters."""
    if not getattr(tokenizer, "is_fast", False):
        raise MultiheadError(
            f"{type(tokenizer).__name__} does not say which letters a token stands for",
            hint="a fast tokenizer does: AutoTokenizer.from_pretrained(..., use_fast=True)",
        )
    coded = tokenizer(sentence.text, return_offsets_mapping=True, verbose=False)
    spans = sorted({w.span for w in sentence.words})
    found = [_owner(token, spans) for token in coded["offset_mapping"]]
    there = sorted({i for i in found if i >= 0})
    number = {spans[i]: n for n, i in enumerate(there)}
    of_token = [number[spans[i]] if i >= 0 else -1 for i in found]
    return Aligned(sentence, list(coded["input_ids"]), of_token, [number.get(w.span, -1) for w in sentence.words])


def _owner(token: tuple[int, int], spans: Sequence[tuple[int, int]]) -> int:
    """The span that shares most letters with the token; -1: none does."""
    shared = [min(token[1], stop) - max(token[0], start) for start, stop in spans]
    best = max(range(len(spans)), key=shared.__getitem__, default=-1)
    return best if best >= 0 and shared[best] > 0 else -1


def examples(aligned: Aligned) -> Iterator[tuple[str, Direction, int, list[int]]]:
    """(relation, direction, the unit that points, the units that are right), in the order of the words.

    A dependent has one head, and is an example for it. A head may have several dependents of one relation: it is
    one example, and any of them is right.
    """
    below: dict[tuple[int, str], list[int]] = {}
    for word, unit in zip(aligned.sentence.words, aligned.unit, strict=True):
        if word.head == 0 or word.relation in LEFT_OUT:
            continue
        head = aligned.unit[word.head - 1]
        if -1 in (unit, head) or unit == head:
            continue
        yield word.relation, "to head", unit, [head]
        below.setdefault((head, word.relation), []).append(unit)
    for (head, relation), units in below.items():
        yield relation, "to dependent", head, units


def pointing(
    weights: Float[Tensor, "head query key"], word_of_token: Int[Tensor, " token"], words: int
) -> Int[Tensor, "head word"]:
    """argmax_j ≠ i of Σ_(t in word j) mean_(s in word i) p_st; -1 where word i sees no other word."""
    tokens = torch.nn.functional.one_hot(word_of_token + 1, words + 1)[:, 1:].to(weights)  # token, word
    between = (tokens / tokens.sum(0)).T @ (weights @ tokens)
    between.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    best = between.max(dim=-1)
    return best.indices.masked_fill(best.values <= 0, -1)
