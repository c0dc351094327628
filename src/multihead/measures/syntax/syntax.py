"""Does a head point along a dependency? Accuracy of its strongest pointing, against the best fixed offset.

As Clark et al. 2019 do: attention to a word made of several tokens is summed over them, attention from it is their
mean; a word does not point at itself, nor at special tokens; of what is left, the largest weight is where the head
points. Beside it stands what a head would reach that always points o words further, with the relation's best o.

>>> from multihead.measures.syntax.syntax import RelationCounts
>>> tally = RelationCounts(2)
>>> import torch
>>> tally.add("det", "to head", torch.tensor([[True], [False]]), [[1]])     # the first head was right: one word on
>>> tally.correct["det", "to head"].tolist(), tally.baseline("det", "to head")
([1, 0], (1.0, 1))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, Inputs, PerSite, State
from multihead.corpus.batches import BATCH_SIZE, padded
from multihead.corpus.documents import Corpus, document_number
from multihead.corpus.run import run
from multihead.errors import MultiheadError, SizeError
from multihead.layer.ask import Cells, weights_of
from multihead.layer.problem import Problem, own_precision
from multihead.measures.syntax.conllu import Sentence, read_conllu
from multihead.measures.syntax.word_alignment import DIRECTIONS, Aligned, Direction, align, examples, pointing
from multihead.model.call import Call
from multihead.model.call_tokens import learned_positions
from multihead.model.sites import Site
from multihead.table.meaning import Meaning
from multihead.table.table import Column, HeadTable

ENOUGH = 30
"""Examples of a relation below which no accuracy is worth a word."""

MAP_BYTES = 32 << 20
"""Of maps that are held at once: of some heads of one layer over a few sentences."""


def syntax(
    model: nn.Module,
    treebank: str | Path | Iterable[Sentence],
    *,
    tokenizer: Any,
    batch_size: int = BATCH_SIZE,
) -> Syntax:
    """Where the heads of `model` point in parsed text, relation by relation.

    Args:
        treebank: a path of CoNLL-U, its text, or sentences.
        tokenizer: a fast one of Hugging Face, which knows the characters of every token.
    """
    if batch_size < 1:
        raise SizeError(f"batch_size must be at least 1, got {batch_size}", hint="batch_size=1 is one sentence")
    sentences = read_conllu(treebank) if isinstance(treebank, str | Path) else list(treebank)
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise MultiheadError(
            f"{type(model).__name__} reads two sequences, a treebank is one", hint="pass its encoder: model.encoder"
        )
    limit = learned_positions(model)
    aligned = [align(sentence, tokenizer) for sentence in sentences]
    fitting = [a for a in aligned if 0 < len(a.ids) <= (limit or len(a.ids))]
    skipped = len(aligned) - len(fitting)
    if not fitting:
        raise MultiheadError(
            f"nothing to measure: {len(sentences)} sentences, {skipped} too long or without tokens",
            hint="use a treebank in CoNLL-U, with sentences that fit the model",
        )
    batches = [fitting[start : start + batch_size] for start in range(0, len(fitting), batch_size)]
    pad_id = getattr(tokenizer, "pad_token_id", None) or 0
    corpus = Corpus(model, [padded([a.ids for a in batch], pad_id) for batch in batches])
    relations = Relations(batches)
    run(model, corpus, [relations])
    counts = RelationCounts.side_by_side([relations.of[site.key] for site in relations.sites])
    return Syntax(tuple(relations.sites.heads), counts, len(sentences), skipped)


# ---- pointing ---------------------------------------------------------------------------------


class Relations(PerSite["RelationCounts"]):
    """How often each head points along each relation; batch n of the corpus has the sentences `aligned[n]`."""

    name = "syntax"

    def __init__(self, aligned: Sequence[list[Aligned]]) -> None:
        super().__init__()
        self.aligned = aligned
        self._batch: list[Aligned] = []
        self._examples: list[list[tuple[str, Direction, int, list[int]]]] = []

    def make(self, site: Site) -> RelationCounts:
        return RelationCounts(site.heads)

    def restore(self, site: Site, state: State) -> RelationCounts:
        return RelationCounts.from_state(state)

    def inputs(self, batch: Batch) -> Inputs:
        self._batch = self.aligned[document_number(batch.index)]
        self._examples = [list(examples(a)) for a in self._batch]
        return batch.inputs

    def add(self, call: Call, out: HeadOutputs) -> None:
        if call.cross:
            return
        counts = self.of_call(call)
        for wanted, pointed in zip(self._examples, _pointed(call.problem, self._batch), strict=True):
            counts.take(wanted, pointed)


def _pointed(problem: Problem, aligned: list[Aligned]) -> list[Int[Tensor, "head word"]]:
    """Of each sentence, where every head points; never more than some heads' maps are held."""
    frame = problem.frame
    step = max(1, MAP_BYTES // (frame.batch * frame.queries * frame.keys * 4))
    parts: list[list[Tensor]] = [[] for _ in aligned]
    for first in range(0, frame.heads, step):
        with own_precision(problem.q.device):
            maps = weights_of(problem, Cells(range(first, min(first + step, frame.heads)))).float().cpu()
        for row, (a, part) in enumerate(zip(aligned, parts, strict=True)):
            n = len(a.ids)
            part.append(pointing(maps[row, :, :n, :n], torch.tensor(a.word_of_token), a.units))
    return [torch.cat(part) for part in parts]


# ---- counting ---------------------------------------------------------------------------------


class RelationCounts:
    """How often each head was right, by relation and direction, and how often each fixed offset would be."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.correct: dict[tuple[str, Direction], Int[Tensor, " head"]] = {}
        self.count: Counter[tuple[str, Direction]] = Counter()
        self.offsets: dict[tuple[str, Direction], Counter[int]] = {}

    def take(
        self, wanted: Sequence[tuple[str, Direction, int, list[int]]], pointed: Int[Tensor, "head word"]
    ) -> None:
        """All examples of one sentence."""
        true = torch.zeros(len(wanted), pointed.shape[1] + 1, dtype=torch.bool)  # the last is for -1, nowhere
        groups: dict[tuple[str, Direction], list[int]] = {}
        for row, (relation, direction, _, right) in enumerate(wanted):
            true[row, right] = True
            groups.setdefault((relation, direction), []).append(row)
        hits = true[torch.arange(len(wanted)), pointed[:, [source for _, _, source, _ in wanted]]]  # head, example
        for (relation, direction), rows in groups.items():
            away = [[right - wanted[row][2] for right in wanted[row][3]] for row in rows]
            self.add(relation, direction, hits[:, rows], away)

    def add(
        self, relation: str, direction: Direction, hits: Bool[Tensor, "head example"], offsets: list[list[int]]
    ) -> None:
        """Some examples of one relation: which heads were right, and which offsets are."""
        key = relation, direction
        if key not in self.correct:
            self.correct[key], self.offsets[key] = torch.zeros(self.heads, dtype=torch.long), Counter()
        self.correct[key] += hits.sum(-1)
        self.count[key] += hits.shape[1]
        self.offsets[key].update(offset for right in offsets for offset in right)

    def baseline(self, relation: str, direction: Direction) -> tuple[float, int]:
        """(accuracy, offset) of the best fixed offset, in words; of equals the nearest."""
        key = relation, direction
        offset, right = max(self.offsets[key].items(), key=lambda item: (item[1], -abs(item[0])))
        return right / self.count[key], offset

    def merge(self, other: RelationCounts) -> None:
        """Add the counts over other sentences."""
        for key, correct in other.correct.items():
            if key not in self.correct:
                self.correct[key], self.offsets[key] = torch.zeros(self.heads, dtype=torch.long), Counter()
            self.correct[key] += correct
            self.count[key] += other.count[key]
            self.offsets[key].update(other.offsets[key])

    def state(self) -> dict[str, Any]:
        relations = [
            [*key, self.correct[key].clone(), self.count[key], [list(item) for item in self.offsets[key].items()]]
            for key in self.correct
        ]
        return {"heads": self.heads, "relations": relations}

    @staticmethod
    def from_state(state: State) -> RelationCounts:
        counts = RelationCounts(int(state["heads"]))
        for relation, direction, correct, count, offsets in state["relations"]:
            counts.correct[relation, direction], counts.count[relation, direction] = correct.clone(), int(count)
            counts.offsets[relation, direction] = Counter({int(offset): int(n) for offset, n in offsets})
        return counts

    @staticmethod
    def side_by_side(parts: Sequence[RelationCounts]) -> RelationCounts:
        """The heads of several attentions that have seen the same sentences, as one."""
        made = RelationCounts(sum(p.heads for p in parts))
        made.count, made.offsets = parts[0].count, parts[0].offsets
        made.correct = {key: torch.cat([p.correct[key] for p in parts]) for key in parts[0].correct}
        return made


def wilson(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a proportion."""
    from scipy.stats import binomtest  # pyright: ignore[reportMissingTypeStubs]

    ends: Any = binomtest(right, count).proportion_ci(level, method="wilson")
    return float(ends.low), float(ends.high)


# ---- reading ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """The best head for one relation in one direction, and what the best fixed offset reaches."""

    relation: str
    direction: Direction
    count: int
    head: str
    accuracy: float
    low: float
    high: float
    baseline: float
    offset: int
    floor: float
    """the lower end for the best of all heads: at 5 % / heads, because many were tried"""

    @property
    def enough(self) -> bool:
        return self.count >= ENOUGH

    @property
    def above(self) -> bool:
        """Whether the head is surely better than the offset, also as the best of many."""
        return self.enough and self.floor > self.baseline

    def __str__(self) -> str:
        head = f"{self.head} {self.accuracy:5.1%} [{self.low:.1%}, {self.high:.1%}]"
        note = "" if self.enough else f"  too few: {ENOUGH} examples would do"
        return f"{self.relation} {self.direction}: {head} vs {self.baseline:.1%} at {self.offset:+d}{note}"


class Syntax:
    """Accuracies of all heads: `syntax.best()`, `syntax["det"]`, `syntax.table`, `print(syntax)`."""

    def __init__(self, heads: tuple[str, ...], tally: RelationCounts, sentences: int, skipped: int) -> None:
        self.heads, self.tally, self.sentences, self.skipped = heads, tally, sentences, skipped

    @property
    def relations(self) -> list[str]:
        """All that were seen, the most frequent first."""
        seen = {r: n for (r, d), n in self.tally.count.items() if d == "to head"}
        return sorted(seen, key=lambda r: (-seen[r], r))

    def accuracy(self, relation: str, direction: Direction = "to head") -> Float[Tensor, " head"]:
        """Of every head, in the order of `heads`."""
        key = self._key(relation, direction)
        return self.tally.correct[key].double() / self.tally.count[key]

    def __getitem__(self, relation: str) -> Relation:
        return self.of(relation)

    def of(self, relation: str, direction: Direction = "to head", head: str | None = None) -> Relation:
        """The best head for a relation, or the named one."""
        key = self._key(relation, direction)
        at = int(self.tally.correct[key].argmax()) if head is None else self._at(head)
        right, count = int(self.tally.correct[key][at]), self.tally.count[key]
        baseline, offset = self.tally.baseline(relation, direction)
        low, high = wilson(right, count)
        floor, _ = wilson(right, count, 1 - 0.05 / len(self.heads))
        name = self.heads[at]
        return Relation(relation, direction, count, name, right / count, low, high, baseline, offset, floor)

    def best(self, direction: Direction = "to head") -> list[Relation]:
        """The best head for every relation, the most frequent first."""
        return [self.of(r, direction) for r in self.relations]

    def _key(self, relation: str, direction: Direction) -> tuple[str, Direction]:
        if (relation, direction) not in self.tally.count:
            raise SizeError(
                f"there is no relation {relation!r} {direction}", hint=f"there are {', '.join(self.relations)}"
            )
        return relation, direction

    def _at(self, head: str) -> int:
        if head not in self.heads:
            raise SizeError(f"there is no head {head!r}", hint=f"heads are {self.heads[0]} to {self.heads[-1]}")
        return self.heads.index(head)

    @property
    def table(self) -> HeadTable:
        """For every head the relation in which it is furthest above the best fixed offset."""
        return _table(self)

    def text(self) -> str:
        """A line per relation: the best head in both directions, and the best fixed offset."""
        lines = ["relation        examples  to head                               to dependent"]
        for relation in self.relations:
            both = [_cell(self.of(relation, d)) for d in DIRECTIONS]
            count = self.tally.count[relation, "to head"]
            lines.append(f"{relation:15s} {count:8d}  {both[0]:38s}{both[1]}".rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


def _cell(r: Relation) -> str:
    if not r.enough:
        return f"too few: {ENOUGH} would do"
    mark = "" if r.above else "  no better"
    return f"{r.head:6s} {100 * r.accuracy:4.1f} vs {100 * r.baseline:4.1f} at {r.offset:+d}{mark}"


_MEANING = {
    "syntax_relation": ("", "the relation in which the head is furthest above the best fixed offset"),
    "syntax_direction": ("", "from the dependent to its head, or the other way round"),
    "syntax_accuracy": ("share", "how often its strongest pointing is right there"),
    "syntax_low": ("share", "lower end of Wilson's 95 % interval"),
    "syntax_high": ("share", "upper end"),
    "syntax_baseline": ("share", "what the best fixed offset reaches"),
    "syntax_offset": ("words", "that offset"),
    "syntax_examples": ("count", "examples of the relation"),
}


def _table(syntax: Syntax) -> HeadTable:
    rows: list[Relation | None] = []
    for at in range(len(syntax.heads)):
        rows.append(_strongest(syntax, at))
    why = f"no relation of {ENOUGH} examples or more in which it is surely above the best fixed offset"
    get: Mapping[str, list[Any]] = {
        "syntax_relation": ["" if r is None else r.relation for r in rows],
        "syntax_direction": ["" if r is None else r.direction for r in rows],
        "syntax_accuracy": [math.nan if r is None else r.accuracy for r in rows],
        "syntax_low": [math.nan if r is None else r.low for r in rows],
        "syntax_high": [math.nan if r is None else r.high for r in rows],
        "syntax_baseline": [math.nan if r is None else r.baseline for r in rows],
        "syntax_offset": [math.nan if r is None else float(r.offset) for r in rows],
        "syntax_examples": [math.nan if r is None else float(r.count) for r in rows],
    }
    columns: dict[str, Column] = {
        name: tuple(x) if isinstance(x[0], str) else torch.tensor(x, dtype=torch.float64) for name, x in get.items()
    }
    nothing = {head: why for head, r in zip(syntax.heads, rows, strict=True) if r is None}
    reasons = {name: nothing for name, x in columns.items() if isinstance(x, Tensor) and nothing}
    about = {"syntax": {"sentences": syntax.sentences, "skipped": syntax.skipped}}
    return HeadTable(syntax.heads, columns, {n: Meaning(*m) for n, m in _MEANING.items()}, reasons, about)


def _strongest(syntax: Syntax, at: int) -> Relation | None:
    """The relation in which a head is furthest above the offset, where that is sure."""
    tally, head = syntax.tally, syntax.heads[at]
    better = [
        key
        for key, right in tally.correct.items()
        if tally.count[key] >= ENOUGH and float(right[at]) / tally.count[key] > tally.baseline(*key)[0]
    ]
    found = [r for r in (syntax.of(*key, head=head) for key in better) if r.above]
    return max(found, key=lambda r: r.floor - r.baseline, default=None)
