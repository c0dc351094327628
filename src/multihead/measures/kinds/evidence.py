"""The kinds of heads as a table of rules, and the one way in which all of them are judged.

A kind is given to a head only where the lower end of the score's confidence interval is above both the threshold
and the control. The interval is Student's t over the means of documents, 95 %: documents differ by more than the
tokens inside one do, so it is they that are counted.

>>> from multihead.measures.kinds.evidence import RULES
>>> [rule.kind for rule in RULES if "shuffled" in rule.controls]
['duplicate', 'induction']
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead._base.html import line, table
from multihead.model.statistics.moments import Moments

ENOUGH = 5
"""Documents below which there is no interval, and so no kind."""

LEVEL = 0.95

Source = Literal["text", "repeats"]


@dataclass(frozen=True)
class Rule:
    """One kind: whose mean over documents has to be above what."""

    kind: str
    statistic: str
    """of a document; a name that ends in * is a family: its strongest member counts, and is the kind's detail"""
    threshold: float
    controls: tuple[str, ...]
    """what it would be by chance, see `controls`; the largest of them counts"""
    meaning: str
    needs: str
    """what is missing where the statistic has no number"""
    rank: int = 2
    """of the kinds that a head passes, those of the lowest rank are taken, and of them the strongest"""
    source: Source = "text"
    """texts, or random tokens that repeat; texts again where the model takes no such tokens"""
    wide: float = 1.0
    """members of a family that chance gives more than this are no members: nearly everything is no neighbourhood"""
    narrow: bool = False
    """of a family that grows, the first member that passes counts"""


ONE = "its queries and keys are of two sequences"
IDS = "the model was given no token ids, or no token of them twice"

RULES: tuple[Rule, ...] = (
    Rule("dead", "quiet", 0.95, (), "its output is 20 times shorter than the layer's median", "no output", rank=0),
    Rule("first", "first", 0.5, ("even",), "looks at the first token (a sink)", "no first token is known"),
    Rule(
        "delimiter",
        "delimiter",
        0.5,
        ("even",),
        "looks at special tokens other than the first",
        "no special tokens are known: pass tokenizer=, or special=",
    ),
    Rule("self", "self", 0.5, ("even",), "looks at its own place", ONE),
    Rule("previous", "previous", 0.5, ("even",), "looks one token back", ONE),
    Rule("next", "next", 0.5, ("even",), "looks one token ahead", ONE),
    Rule("offset", "offset*", 0.5, ("even",), "looks at one fixed distance of 2 or more", ONE),
    Rule(
        "duplicate", "duplicate", 0.3, ("shuffled", "fixed"), "looks at the same token elsewhere", IDS, 1, "repeats"
    ),
    Rule(
        "induction", "induction", 0.3, ("shuffled", "fixed"), "looks at what followed its token", IDS, 1, "repeats"
    ),
    Rule("class", "class:*", 0.5, ("even",), "looks at one class of tokens", "no classes of tokens: pass classes="),
    Rule("alignment", "alignment", 0.5, ("random",), "moves along the other sequence", "it has no other sequence"),
    Rule(
        "window",
        "window*",
        0.7,
        ("even",),
        "looks around itself, no one place of it",
        ONE,
        3,
        wide=0.5,
        narrow=True,
    ),
    Rule(
        "broad", "broad", 0.85, ("random",), "spreads its weight over all it sees", "no row sees two keys", rank=3
    ),
)
"""Every kind, with its threshold and control. Half of a head's weight makes a kind of place or class.

Equal tokens come first, and need less: a head that looks for them rests elsewhere, on the first token mostly, where
there is none, and where there are several it has to share. A window or a broad head is what fits no one place."""

MIXED, TOO_LITTLE = "mixed", "too little data"


@dataclass(frozen=True)
class Score:
    """How much a head is of one kind."""

    kind: str
    detail: str
    """which offset, width or class: "-3", "±2", "punctuation" """
    score: float
    threshold: float
    control: float
    """what the score would be by chance"""
    control_name: str
    low: float
    high: float
    """the confidence interval; NaN where there are too few documents"""
    documents: int
    reason: str = ""
    """why there is no number, or no interval"""

    @property
    def bar(self) -> float:
        """What the lower end of the interval has to pass."""
        return max(self.threshold, self.control)

    @property
    def strength(self) -> float:
        """(score − control) / (1 − control): 0 is chance, 1 is all there is; kinds are compared by it."""
        if math.isnan(self.score):
            return -math.inf
        return (self.score - self.control) / (1 - self.control) if self.control < 1 else -math.inf

    @property
    def passes(self) -> bool:
        return self.low > self.bar

    @property
    def name(self) -> str:
        """`previous`, `offset -3`, `window ±2`."""
        return f"{self.kind} {self.detail}".strip()

    def __str__(self) -> str:
        ends = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.name} {self.score:.2f}{ends}"


@dataclass(frozen=True)
class Driven:
    """Does the head follow places or tokens? Overlap of its maps when the tokens of a text are shuffled."""

    by: str
    """"position", "content", "mixed"; "" where it was not measured"""
    score: float
    """overlap at the same places − overlap at the same tokens"""
    low: float
    high: float
    position: float
    content: float
    reason: str = ""


@dataclass(frozen=True)
class Evidence:
    """What one head is, and why."""

    head: str
    kind: str
    """of `RULES`, "mixed", or "too little data" """
    best: Score | None
    """what the kind rests on; None where it is no kind"""
    runners_up: tuple[Score, ...]
    """the two strongest others"""
    driven: Driven
    why: str
    """one sentence"""
    scores: Mapping[str, Score] = field(repr=False, default_factory=dict[str, Score])
    """of every kind"""

    @property
    def detail(self) -> str:
        return "" if self.best is None else self.best.detail

    @property
    def name(self) -> str:
        """The kind with its detail: `window ±2`."""
        return f"{self.kind} {self.detail}".strip()

    @property
    def score(self) -> float:
        return math.nan if self.best is None else self.best.score

    @property
    def threshold(self) -> float:
        return math.nan if self.best is None else self.best.threshold

    @property
    def control(self) -> float:
        return math.nan if self.best is None else self.best.control

    @property
    def interval(self) -> tuple[float, float]:
        return (math.nan, math.nan) if self.best is None else (self.best.low, self.best.high)

    def _repr_html_(self) -> str:
        """One sentence, then what the head scores as, and as what else."""
        rows = [
            [s.name, _share(s.score), _share(s.low, s.high), _share(s.control), _share(s.threshold)]
            for s in (self.best, *self.runners_up)
            if s is not None
        ]
        titles = ["kind", "score", "95 % interval", "by chance", "threshold"]
        return line(f"{self.head}: {self.why}", small=False) + table(titles, rows, words=(0,))


def _share(*ends: float) -> str:
    return " to ".join("–" if math.isnan(x) else f"{x:.2f}" for x in ends)


class DocumentMeans:
    """Mean and confidence interval over documents of named streams of numbers, (stream, head)."""

    def __init__(self, names: Sequence[str], heads: int) -> None:
        self.names = list(names)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.moments = Moments([None] * len(self.names), heads)
        self.heads = heads

    def add(self, numbers: Mapping[str, Float[Tensor, "document #head"]]) -> None:
        """Take in some documents; NaN means: no number here."""
        which = [name for name in self.names if name in numbers]
        if which:
            table = torch.stack([numbers[n].double().expand(-1, self.heads).T for n in which])
            self.moments.add(table, slice(0, self.heads), [self.index[n] for n in which])

    @property
    def count(self) -> Int[Tensor, "stream head"]:
        return self.moments.count

    @property
    def mean(self) -> Float[Tensor, "stream head"]:
        return self.moments.mean.masked_fill(self.moments.count == 0, torch.nan)

    @property
    def half(self) -> Float[Tensor, "stream head"]:
        """t · s / √n, half the width of the interval; NaN with fewer than ENOUGH documents."""
        from scipy.stats import t  # pyright: ignore[reportMissingTypeStubs]

        n = self.moments.count.double()
        free = (n - 1).clamp(min=1)
        reach = torch.from_numpy(t.ppf(0.5 + LEVEL / 2, free.numpy()))
        return (reach * (self.moments.squares / free / n.clamp(min=1)).sqrt()).masked_fill(n < ENOUGH, torch.nan)

    def merge(self, other: DocumentMeans) -> DocumentMeans:
        """Take in all that another has taken in."""
        self.moments.merge(other.moments)
        return self

    def state(self) -> dict[str, Any]:
        return {"names": list(self.names), "heads": self.heads, "moments": self.moments.state()}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> DocumentMeans:
        made = DocumentMeans(state["names"], int(state["heads"]))
        made.moments.load(state["moments"])
        return made


# ---- judging ----------------------------------------------------------------------------------


class _Read:
    """A spread as plain lists: [stream][head]."""

    def __init__(self, spread: DocumentMeans) -> None:
        self.index = spread.index
        self.mean, self.half, self.count = (x.tolist() for x in (spread.mean, spread.half, spread.count))
        self.controls: dict[str, list[tuple[int, str]]] = {}

    def members(self, statistic: str) -> list[str]:
        if not statistic.endswith("*"):
            return [statistic] if statistic in self.index else []
        return [n for n in self.index if n.startswith(statistic[:-1])]

    def control(self, rule: Rule, statistic: str, head: int) -> tuple[float, str]:
        """The largest of what chance gives, and its name."""
        if statistic not in self.controls:
            ends = f":{statistic}"
            self.controls[statistic] = [
                (i, name.removesuffix(ends))
                for name, i in self.index.items()
                if name.endswith(ends) and name.startswith(rule.controls)
            ]
        found = [(self.mean[i][head], name) for i, name in self.controls[statistic]]
        return max([(0.0, "none"), *(f for f in found if not math.isnan(f[0]))])


def judge(
    names: Sequence[str], text: DocumentMeans, repeats: DocumentMeans, driven: Sequence[Driven]
) -> list[Evidence]:
    """The kind of every head of one attention."""
    read: dict[Source, _Read] = {"text": _Read(text), "repeats": _Read(repeats)}
    found: list[Evidence] = []
    for head, name in enumerate(names):
        scores = {rule.kind: _score(rule, read, head) for rule in RULES}
        documents = max((count[head] for count in read["text"].count), default=0)
        found.append(_evidence(name, scores, driven[head], documents))
    return found


def _score(rule: Rule, read: Mapping[Source, _Read], head: int) -> Score:
    """The score of one kind: of a family, its strongest member."""
    for source in (rule.source, "text"):
        table = read[source]
        members = [m for m in table.members(rule.statistic) if table.count[table.index[m]][head]]
        if members:
            found = [_member(rule, table, m, head) for m in members]
            found = [s for s in found if s.control <= rule.wide] or found[:1]
            passing = [s for s in found if s.passes] if rule.narrow else []
            return passing[0] if passing else max(found, key=lambda s: s.strength)
    return Score(rule.kind, "", math.nan, rule.threshold, math.nan, "", math.nan, math.nan, 0, rule.needs)


def _member(rule: Rule, table: _Read, statistic: str, head: int) -> Score:
    at = table.index[statistic]
    mean, half, count = table.mean[at][head], table.half[at][head], table.count[at][head]
    control, by = table.control(rule, statistic, head)
    detail = statistic[len(rule.statistic) - 1 :] if rule.statistic.endswith("*") else ""
    detail = f"±{detail}" if rule.kind == "window" else detail
    few = f"{count} documents have it, an interval takes {ENOUGH}" if count < ENOUGH else ""
    return Score(
        rule.kind, detail, mean, rule.threshold, control, by, mean - half, min(mean + half, 1.0), count, few
    )


def _evidence(head: str, scores: dict[str, Score], driven: Driven, documents: int) -> Evidence:
    ranks = {rule.kind: rule.rank for rule in RULES}
    order = sorted((s for s in scores.values() if not math.isnan(s.score)), key=lambda s: -s.strength)
    passed = sorted((s for s in order if s.passes), key=lambda s: ranks[s.kind])  # stable: the strongest first
    best = passed[0] if passed else None
    rest = tuple(s for s in order if s is not best and (ranks[s.kind] or s.passes))[:2]  # half dead is not a kind
    if best is not None:
        why = f"{best} is above {best.threshold:g} and above chance, {best.control:.2f} ({best.control_name})"
        return Evidence(head, best.kind, best, rest, driven, why, scores)
    if documents < ENOUGH:
        why = f"{documents} documents, an interval over documents takes {ENOUGH}"
        return Evidence(head, TOO_LITTLE, None, rest, driven, why, scores)
    return Evidence(head, MIXED, None, rest, driven, _why_mixed(rest), scores)


def _why_mixed(rest: tuple[Score, ...]) -> str:
    if not rest:
        return "no statistic has a number"
    nearest = rest[0]
    if nearest.score <= nearest.bar:
        return f"nothing passes; nearest is {nearest}, under {nearest.bar:.2f}"
    if math.isnan(nearest.low):
        return f"{nearest} would pass, but {nearest.reason}"
    need = math.ceil(nearest.documents * ((nearest.score - nearest.low) / (nearest.score - nearest.bar)) ** 2)
    return f"{nearest} is not surely above {nearest.bar:.2f}: about {max(need, ENOUGH)} documents would tell"
