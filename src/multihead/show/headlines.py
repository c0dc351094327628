"""Up to three sentences about a model, each with a link to its evidence on the page.

>>> from multihead.show.headlines import count_of
>>> count_of(31, 72, "head"), count_of(1, 72, "head")
('31 of 72 heads', 'One of 72 heads')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from multihead._base.labels import without_value
from multihead._base.plural import plural
from multihead._base.share_words import SHARES, Share, leading_shares
from multihead.measures.kinds.evidence import TOO_LITTLE
from multihead.measures.similarity.similarity_result import Similarity
from multihead.show.kind_texts import KINDS
from multihead.show.quality_curve import QualityCurve
from multihead.statements.theory import Theory
from multihead.table.head_names import parse
from multihead.table.table import HeadTable
from multihead.table.view import has_shares, importance_column

MOST = 3

OFTEN = 0.25
"""The share of the heads from which on a common kind is the first finding."""

MOSTLY = 0.75
"""At least this share of a layer's heads must agree for a finding to name the layer."""

TWINS = 0.8
"""CKA from which on two heads are near-twins."""


@dataclass(frozen=True)
class Finding:
    """A sentence, and the fragment of the page's URL that shows its evidence."""

    text: str
    link: str


def findings(
    table: HeadTable | None,
    similarity: Similarity | None,
    curve: QualityCurve | None,
    theory: Theory | None = None,
) -> list[Finding]:
    """The headlines: the most informative findings; fewer if less was measured."""
    kinds = _kinds(table) if table is None or not has_shares(table) else _shares(table)
    special = _special(table)
    if kinds is not None and special is not None and special.text.partition(" ")[0] in kinds.text:
        special = None  # the first sentence names this head
    sentences = (kinds, _curve(curve) or _importance(table), _twins(similarity), special, _theory(theory))
    return [sentence for sentence in sentences if sentence is not None][:MOST]


def count_of(some: int, every: int, word: str) -> str:
    return f"{'One' if some == 1 else some} of {plural(every, word)}"


def _kinds(table: HeadTable | None) -> Finding | None:
    """A headline on kinds: the most common one; if it is rare, how many heads have one, and the clearest."""
    if table is None or "kind" not in table.columns:
        return None
    counts = Counter(k for k in table["kind"] if k in KINDS)
    if not counts:
        few = TOO_LITTLE in table["kind"]
        text = "There is too little text to say what heads do" if few else "No head is of a single kind"
        return Finding(f"{text}.", "#view=heads")
    kind, some = counts.most_common(1)[0]
    if some >= OFTEN * len(table):
        return Finding(
            f"{count_of(some, len(table), 'head')} {KINDS[kind].does(some)}.", f"#view=heads&kind={kind}"
        )
    clear = count_of(sum(counts.values()), len(table), "head")
    does = "does" if sum(counts.values()) == 1 else "do"
    example = _special(table)
    name, _, rest = ("", "", "") if example is None else example.text.partition(" ")
    such = f"; {name}, for one, {rest}" if rest else "."
    return Finding(f"{clear} {does} one clear thing{such}", "#view=heads&sort=score")


def _shares(table: HeadTable) -> Finding:
    """A headline on shares: the one that leads most often, and the layers in which one leads in most heads."""
    leading = [leading_shares(word) for word in table["leading"]]
    alone = Counter(shares[0] for shares in leading if len(shares) == 1)
    counts = Counter(share for shares in leading for share in shares)
    share = max(counts, key=lambda share: (alone[share], counts[share]))
    some, in_part = alone[share], counts[share] - alone[share]
    text = f"{count_of(some, len(table), 'head')} {share.one if some == 1 else share.many}"
    text += f" ({in_part} more in part)" if in_part else ""
    runs = _layers_of_one_share(table.heads, leading)
    if runs:
        layers, of_layers = max(runs, key=lambda run: (run[1] is not share, len(run[0])))
        does, where = of_layers.one if len(layers) == 1 else of_layers.many, _layer_words(layers)
        text += f", above all in {where}" if of_layers is share else f"; {where} {does}"
    return Finding(f"{text}.", f"#view=heads&share={share.name}")


def _layers_of_one_share(heads: Sequence[str], leading: Sequence[Sequence[Share]]) -> list[tuple[list[str], Share]]:
    """For a headline: runs of neighbouring layers in which the same share leads in most heads."""
    of_layer: dict[str, list[Sequence[Share]]] = {}
    for name, shares in zip(heads, leading, strict=True):
        of_layer.setdefault(_layer(name), []).append(shares)
    runs: list[tuple[list[str], Share]] = []
    ended = True
    for layer, all_shares in of_layer.items():
        count = Counter(share for shares in all_shares for share in shares)
        share, some = count.most_common(1)[0] if count else (SHARES[0], 0)
        if some < MOSTLY * len(all_shares) or len(all_shares) == 1:
            ended = True
            continue
        same_stack = not ended and runs[-1][0][-1].rpartition(".")[0] == layer.rpartition(".")[0]
        if same_stack and runs[-1][1] is share:
            runs[-1][0].append(layer)
        else:
            runs.append(([layer], share))
        ended = False
    return runs


def _layer_words(layers: Sequence[str]) -> str:
    """Layers in a headline, such as "layer 5", "layers 1 to 4", "encoder layers 0 and 1"."""
    stack, _, _ = layers[0].rpartition(".")
    numbers = [layer.rpartition("L")[2] for layer in layers]
    joined = " and ".join(numbers) if len(numbers) <= 2 else f"{numbers[0]} to {numbers[-1]}"
    return f"{stack} layer{'s' if len(layers) > 1 else ''} {joined}".strip()


def _special(table: HeadTable | None) -> Finding | None:
    """A headline on the head with the highest score among the rare kinds."""
    if table is None or "kind" not in table.columns:
        return None
    counts = Counter(map(without_value, table["kind"]))
    scores: list[float] = table["kind_score"].tolist()
    few = max(3, len(table) // 20)
    rare = [
        (score, name, kind)
        for score, name, kind in zip(scores, table.heads, table["kind"], strict=True)
        if kind in KINDS and counts[kind] <= few and kind not in ("dead", "broad")
    ]
    if not rare:
        return None
    score, name, kind = max(rare)
    return Finding(f"{name} {KINDS[kind].does(1)} with {score * 100:.0f} % of its weight.", head_link(name))


def _curve(curve: QualityCurve | None) -> Finding | None:
    """A headline on how many heads can be pruned."""
    if curve is None:
        return None
    cost, prunable = f"{curve.limit * 100:g} % of quality", curve.prunable
    if not prunable:
        return Finding(f"No head can be pruned for less than {cost}.", "#view=pruning")
    together = "" if prunable == 1 else " together"
    heads = count_of(prunable, curve.heads, "head")
    return Finding(f"{heads} can be pruned{together} for less than {cost}.", "#view=pruning")


def _importance(table: HeadTable | None) -> Finding | None:
    """A headline on how few heads hold most of the importance."""
    by = None if table is None else importance_column(table)
    if table is None or by is None:
        return None
    best = table.sort(by, descending=True)
    top = max(1, len(best) // 10)
    importance: Tensor = best[by].nan_to_num(0.0).clamp_min(0)
    share = float(importance[:top].sum() / importance.sum()) if float(importance.sum()) else 0.0
    have = f"{count_of(top, len(best), 'head')} {'has' if top == 1 else 'have'}"
    text = f"{have} {share * 100:.0f} % of the importance; {best.heads[0]} matters most."
    return Finding(text, "#view=heads&sort=importance")


def _twins(similarity: Similarity | None) -> Finding | None:
    """A headline on near-copies inside a layer; else on the two most similar heads."""
    pairs = [] if similarity is None else similarity.most_similar(1)
    if similarity is None or not pairs:
        return None
    groups = [(len(group), group) for group in similarity.groups() if _least_similar(similarity, group) >= TWINS]
    inside = [(size, group) for size, group in groups if len({_layer(name) for name in group}) == 1]
    if inside:
        size, group = max(inside)
        names = " and ".join(group) if size == 2 else f"{size} heads of {_layer(group[0])}"
        return Finding(f"{names} are near-twins: they write nearly the same.", f"#view=similarity&pick={group[0]}")
    first, second, cka = pairs[0]
    if cka >= TWINS:
        return Finding(
            f"{first} and {second} are near-twins: they write nearly the same.", f"#view=similarity&pick={first}"
        )
    text = (
        f"No two heads are copies: the outputs of the most similar, {first} and {second}, are {cka:.2f} similar, "
        "where 0 is unrelated and 1 a copy (CKA)."
    )
    return Finding(text, f"#view=similarity&pick={first}")


def _least_similar(similarity: Similarity, group: Sequence[str]) -> float:
    """The similarity of the least similar two of a group."""
    indices = [similarity.heads.index(name) for name in group]
    return min(float(similarity.closeness[i, j]) for i in indices for j in indices if i != j)


def _layer(name: str) -> str:
    return name.rpartition("H")[0]


def _theory(theory: Theory | None) -> Finding | None:
    """A headline on how many statements of the theory fail."""
    if theory is None or not theory.summary:
        return None
    fails = sum(line.verdict == "fails" for line in theory.summary)
    return Finding(f"{fails} of {len(theory.summary)} statements of the theory fail on this model.", "#view=theory")


def head_link(name: str) -> str:
    """The fragment that opens a head: `#layer=3&head=7`."""
    stack, layer, head = parse(name)
    return f"#{f'stack={stack}&' if stack else ''}layer={layer}&head={head}"
