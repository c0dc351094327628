"""Align words with tokens, list dependency examples, and find the word that each head attends to most.

As in Clark et al. 2019, attention to a word is summed over its tokens, and attention from a word is averaged over
them. Attention from a word to itself and to special tokens is ignored.

>>> import torch
>>> from multihead.measures.treebank.word_alignment import pointing
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
from multihead.measures.treebank.conllu import Sentence

LEFT_OUT = ("root", "punct")
"""Excluded relations: the root has no head, and punctuation is attached by convention."""

Direction = Literal["to head", "to dependent"]
DIRECTIONS: tuple[Direction, ...] = ("to head", "to dependent")


@dataclass(frozen=True)
class Aligned:
    """A tokenized sentence, with the word of each token."""

    sentence: Sentence
    ids: list[int]
    word_of_token: list[int]
    """unit index, -1 for special tokens"""
    unit: list[int]
    """unit index of each word, -1 if no token belongs to it; words with the same span form one unit"""

    @property
    def units(self) -> int:
        return max(self.unit, default=-1) + 1


def align(sentence: Sentence, tokenizer: Any) -> Aligned:
    """Tokenize the text of a sentence; a token belongs to the word it overlaps most."""
    if not getattr(tokenizer, "is_fast", False):
        raise MultiheadError(
            f"{type(tokenizer).__name__} does not return the character offsets of tokens",
            hint="use a fast tokenizer: AutoTokenizer.from_pretrained(..., use_fast=True)",
        )
    encoded = tokenizer(sentence.text, return_offsets_mapping=True, verbose=False)
    spans = sorted({w.span for w in sentence.words})
    span_of_token = [_best_span(token, spans) for token in encoded["offset_mapping"]]
    present = sorted({i for i in span_of_token if i >= 0})
    unit_of_span = {spans[i]: n for n, i in enumerate(present)}
    unit_of_token = [unit_of_span[spans[i]] if i >= 0 else -1 for i in span_of_token]
    return Aligned(
        sentence, list(encoded["input_ids"]), unit_of_token, [unit_of_span.get(w.span, -1) for w in sentence.words]
    )


def _best_span(token: tuple[int, int], spans: Sequence[tuple[int, int]]) -> int:
    """Index of the word whose span overlaps the token most; -1 if none does."""
    overlap = [min(token[1], stop) - max(token[0], start) for start, stop in spans]
    best = max(range(len(spans)), key=overlap.__getitem__, default=-1)
    return best if best >= 0 and overlap[best] > 0 else -1


def examples(aligned: Aligned) -> Iterator[tuple[str, Direction, int, list[int]]]:
    """Yield (relation, direction, source word, correct target words), in word order.

    Each dependent is one example, with its head as the target. A head with several dependents of one relation is
    one example, and each of these dependents is a correct target.
    """
    dependents: dict[tuple[int, str], list[int]] = {}
    for word, unit in zip(aligned.sentence.words, aligned.unit, strict=True):
        if word.head == 0 or word.relation in LEFT_OUT:
            continue
        head = aligned.unit[word.head - 1]
        if -1 in (unit, head) or unit == head:
            continue
        yield word.relation, "to head", unit, [head]
        dependents.setdefault((head, word.relation), []).append(unit)
    for (head, relation), units in dependents.items():
        yield relation, "to dependent", head, units


def pointing(
    weights: Float[Tensor, "head query key"], word_of_token: Int[Tensor, " token"], words: int
) -> Int[Tensor, "head word"]:
    """The word that each word points to: argmax_j ≠ i of Σ_(t in j) mean_(s in i) p_st; -1 if it sees none."""
    tokens = torch.nn.functional.one_hot(word_of_token + 1, words + 1)[:, 1:].to(weights)  # token, word
    between = (tokens / tokens.sum(0)).T @ (weights @ tokens)
    between.diagonal(dim1=-2, dim2=-1).fill_(0.0)
    best = between.max(dim=-1)
    return best.indices.masked_fill(best.values <= 0, -1)
