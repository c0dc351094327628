"""The kinds of heads as a table of rules, and the single procedure that judges all of them.

A kind stands if the lower end of the score's confidence interval is above both the threshold and the control.
The interval is Student's t over document means, 95 %: tokens of one document are not independent, so the unit is
the document. A kind that stands names a head if it refines the leading share of log n (`head_shares`); where none
does, the share is the name: "match, 0.18".

>>> from multihead.measures.kinds.evidence import RULES
>>> [rule.kind for rule in RULES if "shuffled" in rule.controls]
['duplicate', 'induction']
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from multihead._base.html_fragments import line, table
from multihead.measures.kinds.document_means import ENOUGH, DocumentMeans
from multihead.measures.kinds.head_shares import HeadShares

Source = Literal["text", "repeats"]


DEAD, REPEATED = 0, 1
"""Ranks of kinds that count whichever share leads on texts: a dead head, and heads that are judged where tokens
repeat, which in most texts they do rarely: there such a head rests, or looks elsewhere."""


@dataclass(frozen=True)
class Rule:
    """One kind: a statistic whose mean over documents must be above a threshold and its controls."""

    kind: str
    share: str
    """the share of log n that it refines"""
    statistic: str
    """of a document; a name that ends in * is a family: its strongest member counts and becomes the detail"""
    threshold: float
    controls: tuple[str, ...]
    """its values by chance, see `controls`; the largest counts"""
    meaning: str
    needs: str
    """the reason if the statistic is undefined"""
    rank: int = 2
    """among passed kinds the lowest rank wins, then the strongest"""
    source: Source = "text"
    """texts, or random repeated tokens; falls back to texts if the model cannot take these"""
    wide: float = 1.0
    """excludes members of a family whose control is above this: a window of nearly all keys is not local"""
    narrow: bool = False
    """take the first passing member of a family ordered by size"""

    def names(self, leading: Sequence[str]) -> bool:
        """Whether the kind names a head with these leading shares, if it stands."""
        return self.rank in (DEAD, REPEATED) or not leading or self.share in leading


ONE = "queries and keys are different sequences"
IDS = "the inputs have no token ids, or no repeated token"

RULES: tuple[Rule, ...] = (
    Rule("dead", "", "quiet", 0.95, (), "output norm below 1/20 of the layer's median", "no output", DEAD),
    Rule(
        "first",
        "rest",
        "first",
        0.5,
        ("even",),
        "attends to the first token (a sink)",
        "the first token is unknown",
    ),
    Rule(
        "delimiter",
        "rest",
        "delimiter",
        0.5,
        ("even",),
        "attends to special tokens other than the first",
        "special tokens are unknown: pass tokenizer= or special=",
    ),
    Rule("self", "position", "self", 0.5, ("even",), "attends to its own position", ONE),
    Rule("previous", "position", "previous", 0.5, ("even",), "attends one token back", ONE),
    Rule("next", "position", "next", 0.5, ("even",), "attends one token ahead", ONE),
    Rule("offset", "position", "offset*", 0.5, ("even",), "attends to one fixed offset of 2 or more", ONE),
    Rule(
        "duplicate",
        "match",
        "duplicate",
        0.3,
        ("shuffled", "fixed"),
        "attends to copies of its token",
        IDS,
        REPEATED,
        "repeats",
    ),
    Rule(
        "induction",
        "match",
        "induction",
        0.3,
        ("shuffled", "fixed"),
        "attends to the token after a copy",
        IDS,
        REPEATED,
        "repeats",
    ),
    Rule(
        "class",
        "word",
        "class:*",
        0.5,
        ("even",),
        "attends to one class of tokens",
        "no token classes: pass classes=",
    ),
    Rule(
        "alignment",
        "match",
        "alignment",
        0.5,
        ("random",),
        "moves along the other sequence",
        "queries and keys are the same sequence",
    ),
    Rule(
        "window",
        "position",
        "window*",
        0.7,
        ("even",),
        "attends to a neighbourhood, not to one offset",
        ONE,
        3,
        wide=0.5,
        narrow=True,
    ),
    Rule(
        "broad",
        "spread",
        "broad",
        0.85,
        ("random",),
        "spreads its weight over visible keys",
        "no row sees two keys",
        rank=3,
    ),
)
"""Every kind, with its threshold and control. A positional or class kind needs half of the attention mass.

Kinds of equal tokens come first and have a lower threshold: without an equal token the head attends
elsewhere, mostly to the first token, and where there are several, it splits its mass. `window` and `broad` come
last: they are for heads that fit no single position. `dead` and the kinds of equal tokens name a head whichever
share leads on texts."""

TOO_LITTLE = "too little data"


@dataclass(frozen=True)
class Score:
    """The score of a head for one kind."""

    kind: str
    detail: str
    """which offset, width or class: "-3", "±2", "punctuation" """
    score: float
    threshold: float
    control: float
    """the score by chance"""
    control_name: str
    low: float
    high: float
    """confidence interval; NaN if there are too few documents"""
    documents: int
    reason: str = ""
    """why the score or the interval is undefined"""

    @property
    def bar(self) -> float:
        """The value that the lower end of the interval must exceed."""
        return max(self.threshold, self.control)

    @property
    def strength(self) -> float:
        """(score − control) / (1 − control): 0 is chance, 1 is the maximum; used to compare kinds."""
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
    """Whether a head follows positions or content: overlap of its maps after shuffling the tokens of a text."""

    by: str
    """"position", "content", "both"; "" if not measured"""
    score: float
    """overlap at the same positions − overlap at the same tokens"""
    low: float
    high: float
    position: float
    content: float
    reason: str = ""


@dataclass(frozen=True)
class Evidence:
    """The kind of one head, with the scores that support it."""

    head: str
    kind: str
    """of `RULES`; else the leading share with its value, "match, 0.18"; or "too little data" """
    best: Score | None
    """the score of the kind; None if a share is the name"""
    runners_up: tuple[Score, ...]
    """the two strongest other kinds"""
    driven: Driven
    why: str
    """one sentence"""
    shares: HeadShares
    scores: Mapping[str, Score] = field(repr=False, default_factory=dict[str, Score])
    """scores of every kind"""

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
        """The evidence in a notebook: one sentence, then a table of the best scores."""
        rows = [
            [s.name, _share(s.score), _share(s.low, s.high), _share(s.control), _share(s.threshold)]
            for s in (self.best, *self.runners_up)
            if s is not None
        ]
        titles = ["kind", "score", "95 % interval", "by chance", "threshold"]
        return line(f"{self.head}: {self.why}", small=False) + table(titles, rows, words=(0,))


def _share(*ends: float) -> str:
    return " to ".join("–" if math.isnan(x) else f"{x:.2f}" for x in ends)


# ---- judging ----------------------------------------------------------------------------------


class _Lists:
    """Document means as plain lists: [stream][head]."""

    def __init__(self, means: DocumentMeans) -> None:
        self.index = means.index
        self.mean, self.half, self.count = (x.tolist() for x in (means.mean, means.half, means.count))
        self.controls: dict[str, list[tuple[int, str]]] = {}

    def members(self, statistic: str) -> list[str]:
        if not statistic.endswith("*"):
            return [statistic] if statistic in self.index else []
        return [n for n in self.index if n.startswith(statistic[:-1])]

    def control(self, rule: Rule, statistic: str, head: int) -> tuple[float, str]:
        """The largest control of the evidence, and its name."""
        if statistic not in self.controls:
            suffix = f":{statistic}"
            self.controls[statistic] = [
                (i, name.removesuffix(suffix))
                for name, i in self.index.items()
                if name.endswith(suffix) and name.startswith(rule.controls)
            ]
        values = [(self.mean[i][head], name) for i, name in self.controls[statistic]]
        return max([(0.0, "none"), *(f for f in values if not math.isnan(f[0]))])


def judge(
    text: DocumentMeans, repeats: DocumentMeans, driven: Sequence[Driven], shares: Sequence[HeadShares]
) -> list[Evidence]:
    """Weigh the evidence: the kind of every head of one attention layer."""
    means: dict[Source, _Lists] = {"text": _Lists(text), "repeats": _Lists(repeats)}
    evidence: list[Evidence] = []
    for head, share in enumerate(shares):
        scores = {rule.kind: _score(rule, means, head) for rule in RULES}
        documents = max((count[head] for count in means["text"].count), default=0)
        evidence.append(_evidence(share.head, scores, driven[head], share, documents))
    return evidence


def _score(rule: Rule, means: Mapping[Source, _Lists], head: int) -> Score:
    """The score that is evidence of one kind; for a family, of its strongest member."""
    for source in (rule.source, "text"):
        lists = means[source]
        members = [m for m in lists.members(rule.statistic) if lists.count[lists.index[m]][head]]
        if members:
            candidates = [_score_of(rule, lists, m, head) for m in members]
            candidates = [s for s in candidates if s.control <= rule.wide] or candidates[:1]
            passing = [s for s in candidates if s.passes] if rule.narrow else []
            return passing[0] if passing else max(candidates, key=lambda s: s.strength)
    return Score(rule.kind, "", math.nan, rule.threshold, math.nan, "", math.nan, math.nan, 0, rule.needs)


def _score_of(rule: Rule, lists: _Lists, statistic: str, head: int) -> Score:
    """The score of a rule by one statistic: its mean, interval and largest control."""
    index = lists.index[statistic]
    mean, half, count = lists.mean[index][head], lists.half[index][head], lists.count[index][head]
    control, name = lists.control(rule, statistic, head)
    detail = statistic[len(rule.statistic) - 1 :] if rule.statistic.endswith("*") else ""
    detail = f"±{detail}" if rule.kind == "window" else detail
    reason = f"an interval needs {ENOUGH} documents, got {count}" if count < ENOUGH else ""
    return Score(
        rule.kind, detail, mean, rule.threshold, control, name, mean - half, min(mean + half, 1.0), count, reason
    )


def _evidence(head: str, scores: dict[str, Score], driven: Driven, shares: HeadShares, documents: int) -> Evidence:
    """The evidence for one head: the kind whose rule stands, and the runners-up."""
    rules = {rule.kind: rule for rule in RULES}
    order = sorted((s for s in scores.values() if not math.isnan(s.score)), key=lambda s: -s.strength)
    stand = sorted((s for s in order if s.passes), key=lambda s: rules[s.kind].rank)  # stable: the strongest first
    best = next((s for s in stand if rules[s.kind].names(shares.leading)), None)
    others = [s for s in order if s is not best and (rules[s.kind].rank != DEAD or s.passes)]
    runners_up = tuple(others[:2])
    if best is not None:
        why = f"{best} is above {best.threshold:g} and above chance, {best.control:.2f} ({best.control_name})"
        return Evidence(head, best.kind, best, runners_up, driven, why, shares, scores)
    few = f"an interval over documents needs {ENOUGH}, got {documents}" if documents < ENOUGH else ""
    if not documents or not shares.leading:  # pieces join documents: their shares are of no text
        why = "no row of the text sees two keys" if not documents else few or "no row sees two keys"
        return Evidence(head, TOO_LITTLE, None, runners_up, driven, why, shares, scores)
    why = f"{shares}; {few or _why_no_kind(others, rules, shares.leading)}"
    return Evidence(head, shares.label, None, runners_up, driven, why, shares, scores)


def _why_no_kind(others: Sequence[Score], rules: Mapping[str, Rule], leading: Sequence[str]) -> str:
    """Why the strongest kind does not name the head, whose leading share does."""
    if not others:
        return "no kind is defined"
    closest, share = others[0], rules[others[0].kind].share
    if closest.score <= closest.bar:
        return f"the closest kind, {closest}, is below {closest.bar:.2f}"
    if not rules[closest.kind].names(leading):
        return f"the closest kind, {closest}, refines {share}, which does not lead"
    if math.isnan(closest.low):
        return f"the closest kind, {closest}, cannot be judged: {closest.reason}"
    need = math.ceil(closest.documents * ((closest.score - closest.low) / (closest.score - closest.bar)) ** 2)
    need = max(need, ENOUGH)
    return f"{closest} is not significantly above {closest.bar:.2f}: about {need} documents would decide"
