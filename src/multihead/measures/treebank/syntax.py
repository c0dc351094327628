"""Do heads point along dependencies? The accuracy of each head, against the best fixed offset.

As in Clark et al. 2019, attention to a word of several tokens is the sum over its tokens, and attention from it is
their mean. The head points from each word to the word with the largest weight, except the word itself and special
tokens. The baseline always points o words further, with the best o for the relation.

>>> from multihead.measures.treebank.syntax import RelationCounts
>>> tally = RelationCounts(2)
>>> import torch
>>> tally.add("det", "to head", torch.tensor([[True], [False]]), [[1]])     # the first head is right, at offset 1
>>> tally.correct["det", "to head"].tolist(), tally.baseline("det", "to head")
([1, 0], (1.0, 1))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead._base.arguments import check_count
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, Inputs, PerSite, State
from multihead.corpus.batches import BATCH_SIZE, padded
from multihead.corpus.documents import Corpus, document_number
from multihead.corpus.run import run, with_total
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem, weights_of
from multihead.layer._problem import autocast_disabled
from multihead.layer.outputs import Cells
from multihead.measures.treebank.conllu import Sentence, read_conllu
from multihead.measures.treebank.word_alignment import DIRECTIONS, Aligned, Direction, align, examples, pointing
from multihead.model.call import Call
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.sites import Site
from multihead.model.token_limit import learned_positions
from multihead.table.column_info import ColumnInfo
from multihead.table.rows_and_columns import Column
from multihead.table.table import HeadTable

ENOUGH = 30
"""Relations with fewer examples are too rare for a useful accuracy."""

MAP_BYTES = 32 << 20
"""Memory for the maps of one layer: its heads are processed in blocks of this size."""


def syntax(
    model: nn.Module,
    treebank: str | Path | Iterable[Sentence],
    *,
    tokenizer: Any,
    batch_size: int = BATCH_SIZE,
    progress: bool | Progress | None = None,
) -> Syntax:
    """How often the heads of `model` point along each dependency relation of a parsed text.

    Args:
        treebank: the path of a CoNLL-U file, its text, or sentences.
        tokenizer: a fast Hugging Face tokenizer, which returns the character offsets of every token.
        batch_size: sentences at a time.
        progress: True shows bars on a terminal; a function is called with ("syntax", done, total).

    Returns:
        A `Syntax`, whose `table` has the columns that `mh.measure(treebank=...)` adds.

    Raises:
        MultiheadError: if the treebank cannot be read, or the tokenizer returns no offsets.
    """
    check_count("batch_size", batch_size)
    check_progress(progress)
    sentences = read_conllu(treebank) if isinstance(treebank, str | Path) else list(treebank)
    if is_encoder_decoder(model):
        raise MultiheadError(
            f"the model must read one sequence, but {type(model).__name__} reads two",
            hint="pass its encoder: model.encoder",
        )
    limit = learned_positions(model)
    aligned = [align(sentence, tokenizer) for sentence in sentences]
    fitting = [a for a in aligned if 0 < len(a.ids) <= (limit or len(a.ids))]
    skipped = len(aligned) - len(fitting)
    if not fitting:
        raise MultiheadError(
            f"nothing to measure: {len(sentences)} sentences, {skipped} of them too long or without tokens",
            hint="use a treebank in CoNLL-U, with sentences that fit the model",
        )
    batches = [fitting[start : start + batch_size] for start in range(0, len(fitting), batch_size)]
    pad_id = getattr(tokenizer, "pad_token_id", None) or 0
    corpus = Corpus(model, [padded([a.ids for a in batch], pad_id) for batch in batches])
    relations = Relations(batches)
    with shown_progress(progress) as shown:
        passes = with_total(shown, corpus)
        run(model, corpus, [relations], progress=None if passes is None else partial(passes, relations.name))
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
        """Count where the heads of an attention point in the parsed sentences."""
        if call.cross:
            return
        counts = self.of_call(call)
        targets = _pointing_targets(call.problem, self._batch)
        for sentence_examples, pointed in zip(self._examples, targets, strict=True):
            counts.take(sentence_examples, pointed)


def _pointing_targets(problem: Problem, aligned: list[Aligned]) -> list[Int[Tensor, "head word"]]:
    """For each sentence, the word that every head points to from every word; maps are computed block by block."""
    size = problem.coordinates
    step = max(1, MAP_BYTES // (size.batch * size.queries * size.keys * 4))
    parts: list[list[Tensor]] = [[] for _ in aligned]
    for first in range(0, size.heads, step):
        with autocast_disabled(problem.q.device):
            maps = weights_of(problem, Cells(range(first, min(first + step, size.heads)))).float().cpu()
        for row, (a, part) in enumerate(zip(aligned, parts, strict=True)):
            n = len(a.ids)
            part.append(pointing(maps[row, :, :n, :n], torch.tensor(a.word_of_token), a.units))
    return [torch.cat(part) for part in parts]


# ---- counting ---------------------------------------------------------------------------------


class RelationCounts:
    """How often each head is right, by relation and direction, and how often each fixed offset would be."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.correct: dict[tuple[str, Direction], Int[Tensor, " head"]] = {}
        self.count: Counter[tuple[str, Direction]] = Counter()
        self.offsets: dict[tuple[str, Direction], Counter[int]] = {}

    def take(
        self, wanted: Sequence[tuple[str, Direction, int, list[int]]], pointed: Int[Tensor, "head word"]
    ) -> None:
        """Count all dependency examples of one sentence."""
        true = torch.zeros(len(wanted), pointed.shape[1] + 1, dtype=torch.bool)  # last column: -1, points nowhere
        groups: dict[tuple[str, Direction], list[int]] = {}
        for row, (relation, direction, _, right) in enumerate(wanted):
            true[row, right] = True
            groups.setdefault((relation, direction), []).append(row)
        hits = true[torch.arange(len(wanted)), pointed[:, [source for _, _, source, _ in wanted]]]  # head, example
        for (relation, direction), rows in groups.items():
            offsets = [[right - wanted[row][2] for right in wanted[row][3]] for row in rows]
            self.add(relation, direction, hits[:, rows], offsets)

    def add(
        self, relation: str, direction: Direction, hits: Bool[Tensor, "head example"], offsets: list[list[int]]
    ) -> None:
        """Count examples of one relation: which heads are right, and which offsets would be."""
        key = relation, direction
        if key not in self.correct:
            self.correct[key], self.offsets[key] = torch.zeros(self.heads, dtype=torch.long), Counter()
        self.correct[key] += hits.sum(-1)
        self.count[key] += hits.shape[1]
        self.offsets[key].update(offset for right in offsets for offset in right)

    def baseline(self, relation: str, direction: Direction) -> tuple[float, int]:
        """(accuracy, offset) of a relation's best fixed offset, in words; the shortest if several are equal."""
        key = relation, direction
        offset, right = max(self.offsets[key].items(), key=lambda item: (item[1], -abs(item[0])))
        return right / self.count[key], offset

    def merge(self, other: RelationCounts) -> None:
        """Add the relation counts of other sentences."""
        for key, correct in other.correct.items():
            if key not in self.correct:
                self.correct[key], self.offsets[key] = torch.zeros(self.heads, dtype=torch.long), Counter()
            self.correct[key] += correct
            self.count[key] += other.count[key]
            self.offsets[key].update(other.offsets[key])

    def state(self) -> dict[str, Any]:
        """The relation counts as plain data."""
        relations = [
            [*key, self.correct[key].clone(), self.count[key], [list(item) for item in self.offsets[key].items()]]
            for key in self.correct
        ]
        return {"heads": self.heads, "relations": relations}

    @staticmethod
    def from_state(state: State) -> RelationCounts:
        """The relation counts of `state`."""
        counts = RelationCounts(int(state["heads"]))
        for relation, direction, correct, count, offsets in state["relations"]:
            counts.correct[relation, direction], counts.count[relation, direction] = correct.clone(), int(count)
            counts.offsets[relation, direction] = Counter({int(offset): int(n) for offset, n in offsets})
        return counts

    @staticmethod
    def side_by_side(parts: Sequence[RelationCounts]) -> RelationCounts:
        """The relation counts of several attentions on the same sentences, as one."""
        joined = RelationCounts(sum(p.heads for p in parts))
        joined.count, joined.offsets = parts[0].count, parts[0].offsets
        joined.correct = {key: torch.cat([p.correct[key] for p in parts]) for key in parts[0].correct}
        return joined


def wilson(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's confidence interval of a proportion, such as the accuracy on a relation."""
    from scipy.stats import binomtest  # pyright: ignore[reportMissingTypeStubs]

    interval: Any = binomtest(right, count).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


# ---- reading ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """The best head for one relation in one direction, and the accuracy of the best fixed offset."""

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
    """the lower end of the interval, corrected for choosing the best of all heads (5 % / heads)"""

    @property
    def enough(self) -> bool:
        return self.count >= ENOUGH

    @property
    def above(self) -> bool:
        """Whether the head is significantly better than the offset, even as the best of many."""
        return self.enough and self.floor > self.baseline

    def __str__(self) -> str:
        head = f"{self.head} {self.accuracy:5.1%} [{self.low:.1%}, {self.high:.1%}]"
        note = "" if self.enough else f"  too few examples: needs {ENOUGH}"
        return f"{self.relation} {self.direction}: {head} vs {self.baseline:.1%} at {self.offset:+d}{note}"


class Syntax:
    """Accuracies of all heads: `syntax.best()`, `syntax["det"]`, `syntax.table`, `print(syntax)`."""

    def __init__(self, heads: tuple[str, ...], tally: RelationCounts, sentences: int, skipped: int) -> None:
        self.heads, self.tally, self.sentences, self.skipped = heads, tally, sentences, skipped

    @property
    def relations(self) -> list[str]:
        """All relations in the treebank, the most frequent first."""
        counts = {r: n for (r, d), n in self.tally.count.items() if d == "to head"}
        return sorted(counts, key=lambda r: (-counts[r], r))

    def accuracy(self, relation: str, direction: Direction = "to head") -> Float[Tensor, " head"]:
        """The accuracy of every head, in the order of `heads`."""
        key = self._key(relation, direction)
        return self.tally.correct[key].double() / self.tally.count[key]

    def __getitem__(self, relation: str) -> Relation:
        return self.of(relation)

    def of(self, relation: str, direction: Direction = "to head", head: str | None = None) -> Relation:
        """The best head for a dependency relation, or the named one."""
        key = self._key(relation, direction)
        index = int(self.tally.correct[key].argmax()) if head is None else self._index(head)
        right, count = int(self.tally.correct[key][index]), self.tally.count[key]
        baseline, offset = self.tally.baseline(relation, direction)
        low, high = wilson(right, count)
        floor, _ = wilson(right, count, 1 - 0.05 / len(self.heads))
        name = self.heads[index]
        return Relation(relation, direction, count, name, right / count, low, high, baseline, offset, floor)

    def best(self, direction: Direction = "to head") -> list[Relation]:
        """The best head for every relation, the most frequent first."""
        return [self.of(r, direction) for r in self.relations]

    def _key(self, relation: str, direction: Direction) -> tuple[str, Direction]:
        """The key of a dependency relation; raises if it is unknown."""
        if (relation, direction) not in self.tally.count:
            raise SizeError(
                f"unknown relation {relation!r} {direction}", hint=f"relations are {', '.join(self.relations)}"
            )
        return relation, direction

    def _index(self, head: str) -> int:
        if head not in self.heads:
            raise SizeError(f"unknown head {head!r}", hint=f"heads are {self.heads[0]} to {self.heads[-1]}")
        return self.heads.index(head)

    @property
    def table(self) -> HeadTable:
        """For every head, the relation in which it most exceeds the best fixed offset."""
        return _table(self)

    def text(self) -> str:
        """The syntax result as text, a line per relation: the best head each way, and the best fixed offset."""
        lines = ["relation        examples  to head                               to dependent"]
        for relation in self.relations:
            both = [_cell(self.of(relation, d)) for d in DIRECTIONS]
            count = self.tally.count[relation, "to head"]
            lines.append(f"{relation:15s} {count:8d}  {both[0]:38s}{both[1]}".rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


def _cell(r: Relation) -> str:
    """A relation in the text: its best head, accuracy and offset."""
    if not r.enough:
        return f"too few: needs {ENOUGH}"
    mark = "" if r.above else "  no better"
    return f"{r.head:6s} {100 * r.accuracy:4.1f} vs {100 * r.baseline:4.1f} at {r.offset:+d}{mark}"


_MEANING = {
    "syntax_relation": ("", "the relation in which the head most exceeds the best fixed offset"),
    "syntax_direction": ("", "from the dependent to its head, or the reverse"),
    "syntax_accuracy": ("share", "how often the head points to the right word"),
    "syntax_low": ("share", "lower end of Wilson's 95 % interval"),
    "syntax_high": ("share", "upper end of Wilson's 95 % interval"),
    "syntax_baseline": ("share", "the accuracy of the best fixed offset"),
    "syntax_offset": ("words", "the best fixed offset"),
    "syntax_examples": ("count", "examples of the relation"),
}


def _table(syntax: Syntax) -> HeadTable:
    """The syntax columns of a table: each head's best relation, with its interval."""
    rows: list[Relation | None] = [_best_relation(syntax, index) for index in range(len(syntax.heads))]
    reason = f"no relation of {ENOUGH} examples or more in which it is significantly above the best fixed offset"
    values: Mapping[str, list[Any]] = {
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
        name: tuple(x) if isinstance(x[0], str) else torch.tensor(x, dtype=torch.float64)
        for name, x in values.items()
    }
    without = {head: reason for head, r in zip(syntax.heads, rows, strict=True) if r is None}
    reasons = {name: without for name, x in columns.items() if isinstance(x, Tensor) and without}
    about = {"syntax": {"sentences": syntax.sentences, "skipped": syntax.skipped}}
    return HeadTable(syntax.heads, columns, {n: ColumnInfo(*m) for n, m in _MEANING.items()}, reasons, about)


def _best_relation(syntax: Syntax, index: int) -> Relation | None:
    """The relation in which a head most exceeds the offset; None if it is significantly better in none."""
    tally, head = syntax.tally, syntax.heads[index]
    better = [
        key
        for key, right in tally.correct.items()
        if tally.count[key] >= ENOUGH and float(right[index]) / tally.count[key] > tally.baseline(*key)[0]
    ]
    significant = [r for r in (syntax.of(*key, head=head) for key in better) if r.above]
    return max(significant, key=lambda r: r.floor - r.baseline, default=None)
