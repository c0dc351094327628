"""What decides where a head looks, in shares of log n that add up: spread, rest, position, word, match.

- *spread*: the entropy of its rows; 1 means equal attention to all keys.
- *rest*: how much it gives to resting places, the first token and special tokens.
- *position*: the part decided by offsets between query and key.
- *word*: the part decided by how popular a key is with all queries of its piece.
- *match*: the rest, which depends on query and key together.

Shares depend on the number of keys: texts become pieces of one length (`Pieces`). How they are split is in
`piece_shares`, the models that split them are in `log_linear_fit`.

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
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from multihead._base.plural import plural
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, BatchRun, Inputs, PerSite, State
from multihead.corpus.batches import Document, batches
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.errors import MultiheadError
from multihead.measures.kinds.document_means import ENOUGH, DocumentMeans
from multihead.measures.kinds.head_shares import SHARES, HeadShares
from multihead.measures.kinds.piece_shares import (
    STREAMS,
    offset_bins,
    patch_bins,
    piece_shares,
    resting_places,
)
from multihead.measures.kinds.pieces import LENGTH, Pieces
from multihead.measures.statistics_sum import with_special
from multihead.model.call import Call
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.sites import Site
from multihead.model.statistics.statistics_options import Statistics
from multihead.model.token_limit import token_limit
from multihead.table.column_info import ColumnInfo
from multihead.table.rows_and_columns import Column
from multihead.table.table import HeadTable

FEW = 96
"""With fewer pieces, many heads may have two leading shares."""

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
        data: as for `mh.measure`; texts, lists of ids and batches of ids are packed or cut to pieces, batches that
            hold more are not.
        special: ids of special tokens, instead of the tokenizer's.
        length: tokens of a piece.
    """
    options = with_special(Statistics(special=special), tokenizer)
    measured = SharesSum(model, options.special)
    length = piece_length(model, length)
    documents = [cast(Document, data)] if isinstance(data, Mapping) else data
    pieces = Pieces.of(
        batches(model, documents, tokenizer=tokenizer) if is_encoder_decoder(model) else documents,
        tokenizer=tokenizer,
        special=options.special,
        length=length,
        two_sequences=is_encoder_decoder(model),
    )
    run(model, piece_corpus(model, pieces), [measured])
    return replace(measured.columns(), about={"shares": measured.about(length)})


def piece_length(model: nn.Module, length: int) -> int:
    """The length of pieces that the model can read."""
    return min(length, token_limit(model) or length)


def piece_corpus(model: nn.Module, pieces: Pieces) -> Corpus:
    """The pieces as a corpus. Every batch of them is a part: processes share them."""
    return Corpus(model, pieces, batch_size=1, count=len(pieces), part_batches=1)


class SharesSum(PerSite[DocumentMeans]):
    """The shares of every head over pieces. Expects batches of pieces of one length, see `Pieces`."""

    name = "shares"
    forwards = 3.0

    def __init__(self, model: nn.Module, special: Sequence[int] = ()) -> None:
        super().__init__()
        self.config = getattr(model, "config", None)
        self.special = [int(i) for i in special]
        self.rests = False
        """whether any piece had a resting place"""
        self._new: list[int] | None = None
        """pieces of the batch that count; if None, all"""

    def inputs(self, batch: Batch) -> Inputs:
        self._new = None if batch.repeated is None else (~batch.repeated).nonzero()[:, 0].tolist()
        return batch.inputs

    def make(self, site: Site) -> DocumentMeans:
        return DocumentMeans(STREAMS, site.heads)

    def restore(self, site: Site, state: State) -> DocumentMeans:
        return DocumentMeans.from_state(state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Add the shares of log n of an attention call."""
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
        """Restore the shares, with the same special tokens."""
        if list(state["special"]) != self.special:
            raise MultiheadError(
                "the state was made with other special tokens",
                hint="resume with the options that the run began with",
            )
        super().load(state)
        self.rests = bool(state["rests"])

    @property
    def pieces(self) -> int:
        """Pieces that counted."""
        return max((int(means.count.max()) for means in self.of.values()), default=0)

    def about(self, length: int) -> dict[str, Any]:
        """What the shares were measured on, as plain data; with a note if more text would name heads otherwise."""
        uncertain = sum(head.is_uncertain for site in self.sites for head in self.of_site(site))
        read = f"{plural(self.pieces, 'piece')} of up to {length} tokens"
        notes: list[str] = []
        if self.pieces < ENOUGH:
            notes = [f"shares are of {read}; use {FEW} or more for names that hold"]
        elif self.pieces < FEW and uncertain:
            heads = plural(uncertain, "head")
            notes = [f"{read} are too few to decide which share leads in {heads}; use {FEW} pieces or more"]
        return {"pieces": self.pieces, "length": length, "notes": notes}

    def of_site(self, site: Site) -> list[HeadShares]:
        """The shares of the heads of one attention; NaN if no piece counted."""
        means = self.of.get(site.key) or self.make(site)
        return [HeadShares.of(site.name(head), means, head) for head in range(site.heads)]

    def columns(self) -> HeadTable:
        return self.table(self.sites)

    def table(self, sites: Iterable[Site]) -> HeadTable:
        """The shares as a table: a row for each head of some attentions."""
        heads: list[HeadShares] = []
        reasons: dict[str, dict[str, str]] = {name: {} for name in SHARES}
        for site in sites:
            for head in self.of_site(site):
                heads.append(head)
                if not head.leading:
                    for name in SHARES:
                        reasons[name][head.head] = "no piece has a row that sees two keys"
                    continue
                if site.cross:
                    reasons["position"][head.head] = "queries and keys are different sequences"
                if not self.rests:
                    reasons["rest"][head.head] = "the pieces have no first or special token"
        columns: dict[str, Column] = {}
        meaning = {name: ColumnInfo("share", text) for name, text in MEANINGS.items()}
        for name in SHARES:
            for suffix, values in (
                ("", [h.share[name] for h in heads]),
                ("_low", [h.share[name] - h.half[name] for h in heads]),
                ("_high", [h.share[name] + h.half[name] for h in heads]),
            ):
                columns[name + suffix] = torch.tensor(values, dtype=torch.float64)
                if suffix:
                    end = "lower" if suffix == "_low" else "upper"
                    meaning[name + suffix] = ColumnInfo(
                        "share", f"{end} end of the 95 % interval of {name} over pieces"
                    )
        columns["leading"] = tuple(" + ".join(h.leading) for h in heads)
        meaning["leading"] = ColumnInfo("", "the leading share of log n, or two that are too close to separate")
        return HeadTable(tuple(h.head for h in heads), columns, meaning, {n: r for n, r in reasons.items() if r})


def patch_grid(config: Any, keys: int) -> tuple[int, int, int] | None:
    """The grid of a vision model for its shares, (tokens before, rows, columns) of patches; else None."""
    image, patch = (getattr(config, name, None) for name in ("image_size", "patch_size"))
    if image is None or patch is None:
        return None
    sides = [(x, x) if isinstance(x, int) else tuple(x) for x in (image, patch)]
    rows, columns = (i // p for i, p in zip(*sides, strict=True))
    prefix = keys - rows * columns
    return (prefix, rows, columns) if 0 <= prefix <= 16 else None
