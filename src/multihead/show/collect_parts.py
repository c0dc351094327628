"""Measure the parts of a report, one after the other; a part that the model does not support becomes a note."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from torch import nn

from multihead._base.progress import Progress
from multihead.corpus.accumulator import Accumulator
from multihead.corpus.batches import Document
from multihead.corpus.documents import CachedCorpus
from multihead.corpus.optional_accumulator import Tolerant
from multihead.corpus.run import run
from multihead.errors import MultiheadError
from multihead.measures.importance.ablation import Ablation
from multihead.measures.importance.choose_loss import choose_loss
from multihead.measures.importance.gradients import Gradients
from multihead.measures.importance.importance import ranked
from multihead.measures.importance.losses import Loss
from multihead.measures.kinds.kinds import KindsMeasure, kinds_options
from multihead.measures.similarity.ov_circuits import OVWeights, find_weights
from multihead.measures.similarity.similarity import SimilaritySum
from multihead.measures.statistics_sum import StatisticsSum, with_special
from multihead.model.find_sites import find_sites
from multihead.model.sites import find
from multihead.model.statistics.statistics_options import Statistics
from multihead.show.cut_curve import cut_curve
from multihead.show.map_or_qk import Storage
from multihead.show.quality_curve import quick_curve
from multihead.show.report import Report, WordPair
from multihead.show.report_estimate import ablates
from multihead.show.text_maps import (
    ShownLayer,
    ShownText,
    TextMaps,
    long_text,
    read_text,
    windows_of,
    written_by,
)
from multihead.show.token_pairs import HELD, TokenPairs
from multihead.show.tokens import Words
from multihead.statements.theory import theory
from multihead.table.head_names import HeadName
from multihead.table.table import HeadTable
from multihead.table.view import importance_column

WINDOWS = 8
"""By default, at most this many windows of a long text are shown ..."""

WINDOW_SIZE = 2_000_000
"""... and no further one once their maps have this many characters."""

PAIRS = 10
"""Pairs of tokens that are shown of each head."""

LAYERS = 3
"""Layers that the theory is tested on: the first, the last, and those evenly between."""

TOKENS = 2048
"""Tokens that it is tested on."""

ShowTexts = Callable[[Sequence[Document]], tuple[Sequence[ShownText], Sequence[ShownLayer]]]
"""Returns documents as a page shows them, and the attentions that ran: of a server, which computes maps itself."""


@dataclass
class Collection:
    """A report that grows, part by part."""

    model: nn.Module
    tokenizer: Any
    corpus: CachedCorpus
    report: Report
    parts: tuple[str, ...]
    seed: int
    progress: Progress | None

    def add(self, *, notes: Sequence[str] = (), table: HeadTable | None = None, **parts: Any) -> None:
        """Add parts to the report, columns to its table, and notes to its notes."""
        old = self.report
        if table is not None:
            parts["table"] = table if old.table is None else old.table.join(table)
        self.report = replace(old, notes=(*old.notes, *notes), **parts)

    def try_part(self, name: str, measure: Callable[[], None]) -> None:
        """Measure a part if it is requested; if the model does not support it, note why."""
        if name not in self.parts:
            return
        try:
            measure()
        except MultiheadError as refused:
            self.add(notes=[f"{name}: {refused.message.partition(chr(10))[0]}"])

    def tell(self, part: str, done: float, total: float) -> None:
        if self.progress is not None:
            self.progress(part, done, total)

    def run(self, parts: Iterable[str], accumulators: Sequence[Accumulator]) -> None:
        """One pass over the corpus; its progress is that of all parts that share it."""
        total = self.corpus.count_batches()

        def tell(done: float) -> None:
            for part in parts:
                self.tell(part, done, total)

        run(self.model, self.corpus, accumulators, progress=tell)

    @cached_property
    def weights(self) -> OVWeights:
        """The weights of every head, for the report's maps and similarity."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weights = find_weights(self.model)
            return find_weights(self.model, self.corpus.first().inputs) if weights.reason else weights

    @cached_property
    def loss(self) -> Loss:
        return choose_loss(None, self.model, self.corpus.first().inputs, self.tokenizer, seed=self.seed)

    # ---- maps ---------------------------------------------------------------------------------

    def store_maps(
        self, documents: Sequence[Document], heads: Any, only: Storage | None, windows: int | None
    ) -> None:
        """Add the maps of the shown texts to the report."""
        if self.weights.reason:
            self.add(notes=[f"norm-weighted maps are weighted by ‖v‖, without W_O: {self.weights.reason}"])
        blobs = self.report.blobs
        maps = TextMaps(
            blobs, writes=written_by(self.weights), only=only, chosen=None if heads is None else self._names(heads)
        )
        for source, document in enumerate(documents):
            self.tell("maps", source, len(documents))
            pieces = windows_of(
                self.model, document, tokenizer=self.tokenizer, max_tokens=self.corpus.batching.max_tokens
            )
            before, stored = blobs.size, 0
            for piece in pieces[: windows or WINDOWS]:
                if stored and windows is None and blobs.size - before > WINDOW_SIZE:
                    break
                text = replace(read_text(self.model, piece, maps, tokenizer=self.tokenizer), source=source)
                layers = self.report.layers or tuple(maps.shapes)
                self.add(texts=(*self.report.texts, text), layers=layers)
                stored += 1
            if len(pieces) > 1:
                self.add(notes=[long_text(self.report.texts[-1].name, pieces, stored)])
        self.tell("maps", len(documents), len(documents))

    def _names(self, heads: Sequence[HeadName]) -> list[str]:
        """The names of heads, which may be given as L3H7, 3.7 or (3, 7)."""
        sites = find_sites(self.model, self.corpus.first().inputs)
        return [site.name(index) for site, index in (find(head, sites) for head in heads)]

    # ---- measures -----------------------------------------------------------------------------

    def measure_heads(self) -> None:
        """Make the report's statistics, kinds, token pairs and similarity, with one forward per batch."""
        special = () if self.tokenizer is None else tuple(map(int, self.tokenizer.all_special_ids))
        count = max(1, len(self.report.heads))  # the more heads, the fewer pairs are held of each
        kinds = KindsMeasure(self.model, kinds_options(self.tokenizer), seed=self.seed)
        accumulators: dict[str, list[Accumulator]] = {
            "measure": [StatisticsSum(with_special(Statistics(), self.tokenizer))],
            "kinds": list(kinds.accumulators),
            "pairs": [TokenPairs(special, held=max(64, min(HELD, 2_000_000 // count)))],
            "similarity": [SimilaritySum(self.weights, seed=self.seed)] if "similarity" in self.parts else [],
        }
        tolerant = {part: [Tolerant(x) for x in some] for part, some in accumulators.items() if part in self.parts}
        if not tolerant:
            return
        self.run(tolerant, [one for of_part in tolerant.values() for one in of_part])
        for part, of_part in tolerant.items():
            self.try_part(part, partial(self._add_measure, part, of_part, kinds))

    def _add_measure(self, part: str, tolerant: Sequence[Tolerant], kinds: KindsMeasure) -> None:
        """Add a measured part to the report."""
        reason = next((one.reason for one in tolerant if one.reason), None)
        if reason is not None:
            raise MultiheadError(reason)
        measured: list[Any] = [one.inner for one in tolerant]
        if part == "measure":
            statistics: StatisticsSum = measured[0]
            corpus = replace(self.report.corpus, tokens=statistics.capture.tokens)
            self.add(corpus=corpus, table=statistics.columns(), notes=statistics.notes)
        elif part == "kinds":
            kinds.text, kinds.shuffled = measured
            kinds.finish(self.corpus)
            result = kinds.result()
            self.add(kinds=result, table=result.table, notes=result.about["kinds"]["notes"])
        elif part == "pairs":
            self.add(pairs=self._top_pairs(measured[0]))
        else:
            similarity = measured[0].result()
            self.add(similarity=similarity, table=similarity.table)

    def _top_pairs(self, pairs: TokenPairs) -> dict[str, list[WordPair]] | None:
        """The report's token pairs, as words."""
        heads = self.report.heads
        count = max(3, min(PAIRS, 20_000 // max(1, len(heads))))
        top = {head: pairs.top(head, count) for head in heads}
        ids = sorted({i for of_head in top.values() for pair in of_head for i in (pair.query, pair.key)})
        words = dict(zip(ids, Words.of(ids, self.tokenizer).shown, strict=True))
        if not ids:
            return None
        return {
            head: [WordPair(words[p.query], words[p.key], p.times, round(p.weight, 4)) for p in of_head]
            for head, of_head in top.items()
        }

    def measure_importance(self, method: str) -> None:
        """Add the importance of every head to the report."""
        exact = ablates(method, len(self.report.heads))
        measured = Ablation(self.loss) if exact else Gradients(self.loss, seed=self.seed)
        self.run(["importance"], [measured])
        corpus = replace(self.report.corpus, loss=self.loss.name)
        self.add(corpus=corpus, table=ranked(measured.columns()))

    def measure_curve(self, cut: Sequence[str]) -> None:
        """Add the curve to the report: of real cuts by the methods `cut`, else of ablated heads."""
        table = self.report.table
        by = None if table is None else importance_column(table)
        if cut:
            curve = cut_curve(
                self.model,
                list(self.corpus.documents),
                tokenizer=self.tokenizer,
                methods=cut,
                seed=self.seed,
                progress=lambda done, total: self.tell("curve", done, total),
            )
            self.add(curve=curve, notes=curve.notes)
        elif by is not None and table is not None:
            total = self.corpus.count_batches()
            self.add(
                curve=quick_curve(
                    self.model,
                    self.corpus,
                    table.sort(by).heads,
                    self.loss,
                    progress=lambda done: self.tell("curve", done, total),
                )
            )

    def test_theory(self) -> None:
        """Add the theory to the report, on some layers."""
        labels = [layer.site.label for layer in self.report.layers]
        chosen = sorted({round((len(labels) - 1) * i / (LAYERS - 1)) for i in range(LAYERS)})
        layers = [labels[i] for i in chosen]

        def tell(layer: str, done: float, total: float) -> None:
            self.tell("theory", layers.index(layer) * total + done, len(layers) * total)

        result = theory(
            self.model,
            self.corpus.documents,
            tokenizer=self.tokenizer,
            layers=layers,
            tokens=TOKENS,
            seed=self.seed,
            progress=tell,
        )
        self.add(theory=result)
