"""What decides where a head looks, in shares of log n that add up: spread, rest, position, word, match.

- *spread*: the entropy of its rows; 1 means that it looks everywhere alike.
- *rest*: how much it gives to resting places, the first token and special tokens.
- *position*: what offsets between query and key decide.
- *word*: how popular a key is with every query of its piece.
- *match*: what remains, and so depends on query and key together.

Shares depend on the number of keys: texts become pieces of one length (`pieces`). How they are split is in
`piece_shares`, the models that split them are in `projections`.

>>> from multihead.measures.kinds.shares import shares
>>> from transformers import GPT2Config, GPT2Model
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=24, vocab_size=50)).eval()
>>> table = shares(model, [[3, 1, 4, 1, 5, 9, 2, 6] * 8, [2, 7, 1, 8, 2, 8] * 16])
>>> row = table.row("L0H1")
>>> round(sum(row[name] for name in ("spread", "rest", "position", "word", "match")), 6)
1.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, BatchRun, Inputs, PerSite, State
from multihead.corpus.batches import Document
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.errors import MultiheadError
from multihead.measures.kinds.evidence import DocumentMeans
from multihead.measures.kinds.piece_shares import (
    STREAMS,
    TERMS,
    VARIANTS,
    offset_bins,
    patch_bins,
    piece_shares,
    resting_places,
)
from multihead.measures.kinds.pieces import LENGTH, pieces
from multihead.measures.statistics_sum import with_special
from multihead.model.call import Call
from multihead.model.sites import Site
from multihead.model.statistics.options import Statistics
from multihead.table.data import Column
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

SHARES = ("spread", "rest", *TERMS)

SPREAD, REST = 0.9, 0.8
"""Above this share of log n a head is spread; above this mass on resting places it rests."""

MEANINGS = {
    "spread": "entropy / log(visible keys): how evenly the head looks",
    "rest": "decided by how much rests on the first token and on special tokens",
    "position": "decided by the offset between query and key",
    "word": "decided by how popular a key is, whatever the query",
    "match": "decided by query and key together",
}


def shares(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    special: Sequence[int] = (),
    length: int = LENGTH,
) -> HeadTable:
    """The five shares of log n of every head, their intervals over pieces, and the leading ones.

    Args:
        data: as for `mh.measure`; texts and lists of ids are packed or cut to pieces, ready batches are not.
        special: ids of special tokens, instead of the tokenizer's.
        length: tokens of a piece.
    """
    options = with_special(Statistics(special=special), tokenizer)
    measured = SharesSum(model, options.special)
    batches = pieces(model, data, tokenizer=tokenizer, special=options.special, length=length)
    run(model, Corpus(model, batches), [measured])
    return replace(measured.columns(), about={"shares": {"length": length, "notes": list(measured.notes)}})


class SharesSum(PerSite[DocumentMeans]):
    """The shares of every head over pieces. Expects batches of pieces of one length, see `pieces`."""

    name = "shares"
    forwards = 3.0

    def __init__(self, model: nn.Module, special: Sequence[int] = ()) -> None:
        super().__init__()
        self.config = getattr(model, "config", None)
        self.special = [int(i) for i in special]
        self.rests = False
        """whether any piece had a resting place"""
        self._new: list[int] | None = None
        """pieces of the batch that count; None: all"""

    def inputs(self, batch: Batch) -> Inputs:
        self._new = None if batch.repeated is None else (~batch.repeated).nonzero()[:, 0].tolist()
        return batch.inputs

    def make(self, site: Site) -> DocumentMeans:
        return DocumentMeans(STREAMS, site.heads)

    def restore(self, site: Site, state: State) -> DocumentMeans:
        return DocumentMeans.from_state(state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        means, size = self.of_call(call), call.problem.coordinates
        if self._new == []:
            return
        cross = call.cross or call.problem.cross
        grid = None if cross or call.keys.ids is not None else patch_grid(self.config, size.keys)
        bins = offset_bins(size.queries, size.keys, size.device)
        if grid is not None and size.queries == size.keys:
            bins = patch_bins(*grid, size.device)
        resting = resting_places(call, self.special, grid)
        self.rests |= bool(resting.any()) or call.problem.scores.sinks is not None
        numbers = piece_shares(call, resting, None if cross else bins)
        means.add(numbers if self._new is None else {name: x[self._new] for name, x in numbers.items()})

    def end(self, batch: Batch, run: BatchRun) -> None:
        super().end(batch, run)
        self._new = None

    def merge(self, later: SharesSum) -> None:
        super().merge(later)
        self.rests |= later.rests

    def state(self) -> dict[str, Any]:
        return super().state() | {"special": list(self.special), "rests": self.rests}

    def load(self, state: State) -> None:
        if list(state["special"]) != self.special:
            raise MultiheadError(
                "the state was made with other special tokens",
                hint="resume with the options that the run began with",
            )
        super().load(state)
        self.rests = bool(state["rests"])

    def columns(self) -> HeadTable:
        heads: list[HeadShares] = []
        reasons: dict[str, dict[str, str]] = {"rest": {}, "position": {}}
        for site in self.sites:
            means = self.of.get(site.key) or self.make(site)
            for head in range(site.heads):
                heads.append(HeadShares.of(site.name(head), means, head))
                if site.cross:
                    reasons["position"][site.name(head)] = "queries and keys are different sequences"
                if not self.rests:
                    reasons["rest"][site.name(head)] = "there is no first and no special token"
        columns: dict[str, Column] = {}
        meaning = {name: Meaning("share", text) for name, text in MEANINGS.items()}
        for name in SHARES:
            for suffix, values in (
                ("", [h.share[name] for h in heads]),
                ("_low", [h.share[name] - h.half[name] for h in heads]),
                ("_high", [h.share[name] + h.half[name] for h in heads]),
            ):
                columns[name + suffix] = torch.tensor(values, dtype=torch.float64)
                if suffix:
                    end = "lower" if suffix == "_low" else "upper"
                    meaning[name + suffix] = Meaning(
                        "share", f"{end} end of the 95 % interval of {name} over pieces"
                    )
        columns["leading"] = tuple(" + ".join(h.leading) for h in heads)
        meaning["leading"] = Meaning("", "the largest share, or two that lead within each other's interval")
        return HeadTable(tuple(h.head for h in heads), columns, meaning, {n: r for n, r in reasons.items() if r})


@dataclass(frozen=True)
class HeadShares:
    """The shares of one head, half the widths of their intervals, and the mass that rests."""

    head: str
    share: Mapping[str, float]
    half: Mapping[str, float]
    resting: tuple[float, float]

    @staticmethod
    def of(head: str, means: DocumentMeans, index: int) -> HeadShares:
        mean, half = means.mean[:, index], means.half[:, index]
        streams = {"spread": "spread", "rest": "rest"} | {term: f"{_best(means, mean)}: {term}" for term in TERMS}

        def values(of: Float[Tensor, " stream"]) -> dict[str, float]:
            return {name: float(of[means.index[stream]]) for name, stream in streams.items()}

        resting = means.index["resting"]
        return HeadShares(head, values(mean), values(half), (float(mean[resting]), float(half[resting])))

    @property
    def leading(self) -> tuple[str, ...]:
        """One of spread, rest, position, word and match, or two that the intervals do not tell apart."""
        first, second = sorted(TERMS, key=lambda name: -self.share[name])[:2]
        for name, value, half, bound in (
            ("spread", self.share["spread"], self.half["spread"], SPREAD),
            ("rest", *self.resting, REST),
        ):
            if abs(value - bound) <= half:
                return name, first
            if value > bound:
                return (name,)
        gap = self.share[first] - self.share[second]
        return (first, second) if gap <= max(self.half[first], self.half[second]) else (first,)


def _best(means: DocumentMeans, mean: Float[Tensor, " stream"]) -> str:
    """The variant that explains most without a negative share."""
    best, least = VARIANTS[0], float(mean[means.index[f"{VARIANTS[0]}: match"]])
    for variant in VARIANTS[1:]:
        position, word, match = (float(mean[means.index[f"{variant}: {term}"]]) for term in TERMS)
        if min(position, word) >= 0 and match < least:
            best, least = variant, match
    return best


def patch_grid(config: Any, keys: int) -> tuple[int, int, int] | None:
    """(tokens before the patches, rows, columns) of a vision model whose config names its patches; else None."""
    image, patch = (getattr(config, name, None) for name in ("image_size", "patch_size"))
    if image is None or patch is None:
        return None
    sides = [(x, x) if isinstance(x, int) else tuple(x) for x in (image, patch)]
    rows, columns = (i // p for i, p in zip(*sides, strict=True))
    prefix = keys - rows * columns
    return (prefix, rows, columns) if 0 <= prefix <= 16 else None
