"""Three sentences that say what was found, each with the place on the page that shows it.

>>> from multihead.page.findings import count_of
>>> count_of(31, 72, "head"), count_of(1, 72, "head")
('31 of 72 heads', 'One of 72 heads')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from multihead.measures.kinds.evidence import TOO_LITTLE
from multihead.measures.similarity.result import Similarity
from multihead.table.table import HeadTable

MOST = 3

OFTEN = 0.25
"""Share of the heads from which on what they have in common is what there is to say."""

TWINS = 0.8
"""CKA from which on two heads are near-twins."""

SENTENCE = {
    "first": "look mostly at the first token, where a head rests that has nothing to say",
    "delimiter": "look mostly at delimiters, where a head rests that has nothing to say",
    "self": "look at their own place",
    "previous": "look one token back",
    "next": "look one token ahead",
    "offset": "look at one fixed distance",
    "duplicate": "look for the same token elsewhere",
    "induction": "look at what followed the same token before",
    "class": "look at one class of tokens",
    "alignment": "move along the other sequence",
    "window": "look at their near neighbours",
    "broad": "spread their weight over everything",
    "dead": "say nothing",
}
_ALONE = {"look ": "looks ", "move ": "moves ", "spread their ": "spreads its ", "say ": "says ", "their": "its"}


@dataclass(frozen=True)
class Found:
    """A sentence, and the fragment of the page's address that shows its evidence."""

    text: str
    link: str


def findings(
    table: HeadTable | None,
    similarity: Similarity | None,
    curve: Mapping[str, Any] | None,
    claims: Sequence[Mapping[str, Any]] | None = None,
) -> list[Found]:
    """The three that say most; fewer where less was measured."""
    said = [
        _kinds(table),
        _curve(curve, table) or _importance(table),
        _twins(similarity),
        _special(table),
        _claims(claims),
    ]
    special = said[3]
    if special is not None and said[0] is not None and special.text.partition(" ")[0] in said[0].text:
        said[3] = None  # said already
    return [found for found in said if found is not None][:MOST]


def count_of(some: int, every: int, word: str) -> str:
    return f"{'One' if some == 1 else some} of {every} {word}s"


def _kinds(table: HeadTable | None) -> Found | None:
    """What most heads do, where there is such a thing; else how many do one thing, and the clearest of them."""
    if table is None or "kind" not in table.columns:
        return None
    counts = Counter(k for k in table["kind"] if k in SENTENCE)
    if not counts:
        few = TOO_LITTLE in table["kind"]
        text = "There is too little text to say what heads do" if few else "No head does only one thing"
        return Found(f"{text}.", "#view=heads")
    kind, some = counts.most_common(1)[0]
    if some >= OFTEN * len(table):
        return Found(f"{count_of(some, len(table), 'head')} {_verb(kind, some)}.", f"#view=heads&kind={kind}")
    clear = count_of(sum(counts.values()), len(table), "head")
    does = "does" if sum(counts.values()) == 1 else "do"
    example = _special(table)
    name, _, rest = ("", "", "") if example is None else example.text.partition(" ")
    such = f"; {name}, for one, {rest}" if rest else "."
    return Found(f"{clear} {does} one clear thing{such}", "#view=heads&sort=score")


def _special(table: HeadTable | None) -> Found | None:
    """The clearest of the heads that do one thing which few others do."""
    if table is None or "kind" not in table.columns:
        return None
    counts = Counter(table["kind"])
    scores: list[float] = table["kind_score"].tolist()
    few = max(3, len(table) // 20)
    rare = [
        (score, name, kind)
        for score, name, kind in zip(scores, table.heads, table["kind"], strict=True)
        if kind in SENTENCE and counts[kind] <= few and kind not in ("dead", "broad")
    ]
    if not rare:
        return None
    score, name, kind = max(rare)
    return Found(f"{name} {_verb(kind, 1)} with {score * 100:.0f} % of its weight.", head_link(name))


def _verb(kind: str, some: int) -> str:
    text = SENTENCE[kind]
    if some == 1:
        for many, one in _ALONE.items():
            text = text.replace(many, one, 1)
    return text


def _curve(curve: Mapping[str, Any] | None, table: HeadTable | None) -> Found | None:
    if curve is None or not curve.get("curves"):
        return None
    every = int(curve.get("heads") or len(curve["curves"][0]["order"]))
    goes, limit = int(curve["prunable"]), float(curve["limit"])
    cost = f"{limit * 100:g} % of quality"
    if not goes:
        return Found(f"No head can go for less than {cost}.", "#view=cut")
    together = "" if goes == 1 else " together"
    return Found(f"{count_of(goes, every, 'head')} can go{together} for less than {cost}.", "#view=cut")


def _importance(table: HeadTable | None) -> Found | None:
    by = importance_column(table)
    if table is None or by is None:
        return None
    best = table.sort(by, descending=True)
    top = max(1, len(best) // 10)
    importance: Tensor = best[by].nan_to_num(0.0).clamp_min(0)
    share = float(importance[:top].sum() / importance.sum()) if float(importance.sum()) else 0.0
    have = f"{count_of(top, len(best), 'head')} {'has' if top == 1 else 'have'}"
    text = f"{have} {share * 100:.0f} % of the importance; {best.heads[0]} matters most."
    return Found(text, "#view=heads&sort=importance")


def _twins(found: Similarity | None) -> Found | None:
    """The largest group of near-copies inside a layer; else the two heads that are nearest to it."""
    twins = [] if found is None else found.most_similar(1)
    if found is None or not twins:
        return None
    groups = [(len(group), group) for group in found.groups() if _nearest(found, group) >= TWINS]
    inside = [(size, group) for size, group in groups if len({_layer(name) for name in group}) == 1]
    if inside:
        size, group = max(inside)
        who = " and ".join(group) if size == 2 else f"{size} heads of {_layer(group[0])}"
        return Found(f"{who} are near-twins: they write nearly the same.", f"#view=alike&pick={group[0]}")
    first, second, like = twins[0]
    if like >= TWINS:
        return Found(
            f"{first} and {second} are near-twins: they write nearly the same.", f"#view=alike&pick={first}"
        )
    text = f"No two heads are copies: the nearest, {first} and {second}, are {like * 100:.0f} % alike."
    return Found(text, f"#view=alike&pick={first}")


def _nearest(found: Similarity, group: Sequence[str]) -> float:
    """How alike the least alike two of a group are."""
    at = [found.heads.index(name) for name in group]
    return min(float(found.closeness[i, j]) for i in at for j in at if i != j)


def _layer(name: str) -> str:
    return name.rpartition("H")[0]


def _claims(claims: Sequence[Mapping[str, Any]] | None) -> Found | None:
    if not claims:
        return None
    fails = sum(line["verdict"] == "fails" for line in claims)
    return Found(f"{fails} of {len(claims)} statements of the theory fail on this model.", "#view=theory")


def importance_column(table: HeadTable | None) -> str | None:
    """What importance is read from: the first of these that was measured."""
    names = ("ablation_zero", "ablation_mean", "importance")
    return None if table is None else next((n for n in names if n in table.columns), None)


def head_link(name: str) -> str:
    """The fragment that opens a head: `#layer=3&head=7`."""
    from multihead.table.head_names import parse

    stack, layer, head = parse(name)
    return f"#{f'stack={stack}&' if stack else ''}layer={layer}&head={head}"
