"""`mh.report`: run every measure on a model, and return one `Report`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from torch import nn

from multihead._base.arguments import (
    check_count,
    check_data,
    check_instance,
    check_list,
    check_model,
    check_path,
    check_seed,
)
from multihead._base.atomic_files import check_writable
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.accumulator import Accumulator
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.documents import CachedCorpus, rereadable
from multihead.corpus.optional_accumulator import Tolerant
from multihead.corpus.run import run
from multihead.edit.check.curve import Curve
from multihead.edit.saliency import check_method
from multihead.errors import MultiheadError, SizeError
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
from multihead.model.statistics.options import Statistics
from multihead.show.cut_curve import attention_cost, cut_curve, quality_curve
from multihead.show.map_or_qk import Storage
from multihead.show.quality_curve import QualityCurve, quick_curve
from multihead.show.report import CorpusInfo, ModelInfo, Report, WordPair
from multihead.show.report_estimate import IMPORTANCE, PARTS, ablates
from multihead.show.text_maps import LayerShape, ShownText, TextMaps, long_text, read_text, windows_of
from multihead.show.token_pairs import HELD, TokenPairs
from multihead.show.tokens import Words
from multihead.statements.theory import theory
from multihead.table.head_names import HeadName
from multihead.table.table import HeadTable
from multihead.table.view import importance_column

TEXTS = 3
"""Documents whose maps are shown if no text is given."""

WINDOWS = 8
"""By default, at most so many windows of a long text are shown ..."""

WINDOW_SIZE = 2_000_000
"""... and no further one once their maps have so many characters."""

PAIRS = 10
"""Pairs of tokens that are shown of each head."""

LAYERS = 3
"""Layers that the theory is tested on: the first, the last, and those evenly between."""

TOKENS = 2048
"""Tokens that it is tested on."""

ShowTexts = Callable[[Sequence[Document]], tuple[Sequence[ShownText], Sequence[LayerShape]]]
"""Returns documents as a page shows them, and the attentions that ran: of a server, which computes maps itself."""


def report(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any] | CachedCorpus,
    path: str | Path | None = None,
    *,
    tokenizer: Any = None,
    text: Document | Sequence[str] | None = None,
    name: str | None = None,
    corpus_name: str = "",
    parts: Sequence[str] = PARTS,
    importance: str = "auto",
    curve: QualityCurve | Curve | None = None,
    cut: Sequence[str] = (),
    heads: Sequence[HeadName] | None = None,
    windows: int | None = None,
    maps: Storage | ShowTexts | None = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    seed: int = 0,
    progress: bool | Progress = False,
) -> Report:
    """Measure `model` over `data`. With a `path`, also write the page there: one HTML file.

    Ctrl-C ends the measuring: the report, and the page, have the parts that were finished, and `report.stopped` is
    true. A part that the model does not support is missing, and `report.notes` say why.

    Args:
        data: the texts (with a `tokenizer`), lists of token ids, or batches to measure over; tokenized once.
        path: the HTML file to write; if None, none is written.
        text: the text, or list of texts, whose maps are shown; default: the first documents of `data`.
        name: of the model; default: its class.
        corpus_name: of the data, for the page.
        parts: what to measure, some of `multihead.show.report_estimate.PARTS`.
        importance: "gradient" or "ablation"; "auto" ablates every head unless the model has many.
        curve: a curve measured before, instead of the quick one: of `multihead.edit.check.curve.curve`, or a
            `QualityCurve`.
        cut: methods ("obs", "fisher", "random"). For the curve, the model is cut by each and fitted again.
        heads: the heads whose maps are in the page, as ["L3H7"]; default: all.
        windows: the most windows of a text that is longer than the model can read; default: as many as stay small.
        maps: store all maps as "maps" or as "qk"; default: the smaller. Or a function that shows texts on a server.
        batch_size, max_tokens: as for `mh.measure`.
        progress: True shows bars on a terminal; a function is called with (part, done, total).

    Returns:
        A `Report`: `report.table`, `report.kinds`, `report.findings`, ...; `report.save(path)` writes the page.

    Raises:
        SizeError: if a part or a head does not exist.
        MultiheadError: if there is no text, no attention was found, or the file cannot be written.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> report = mh.report(model, tokenizer.sample_texts()[:8], tokenizer=tokenizer, parts=("measure", "kinds"))
    >>> report.card
    '139 k parameters · 3 layers × 4 heads · 12 kv heads · 576 tokens in 8 documents'
    >>> report.findings[0].text
    '8 of 12 heads pick keys that fit the query; layer 0 looks at certain distances, whatever the words.'
    """
    check_model(model)
    parts = _check_choices("part", parts, PARTS)
    _check_choices("importance", [importance], IMPORTANCE)
    _check_curve(curve, cut)
    _check_maps(maps, heads, windows)
    _check_names(name, corpus_name)
    check_seed(seed)
    check_progress(progress)
    if path is not None:
        check_path("path", path, hint="path='report.html'")
        check_writable(Path(path))
    if isinstance(data, CachedCorpus):
        corpus, tokenizer = data, data.batching.tokenizer
    else:
        check_data(data)
        documents = [cast(Document, data)] if isinstance(data, Mapping) else rereadable(data)
        options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
        corpus = CachedCorpus(model, documents, **options)
    texts = _texts(text, corpus.documents)
    empty = Report(ModelInfo.of(model, name), CorpusInfo(corpus_name, 0))
    with shown_progress(progress, [part for part in ("maps", *parts) if part != "cost"]) as shown:
        collection = _Collection(model, tokenizer, corpus, empty, parts, seed, shown)
        try:
            collection.count_documents()
            if callable(maps):
                collection.show(texts, maps)
            else:
                collection.store_maps(texts, heads, maps, windows)
            collection.measure_heads()
            collection.measure_importance(importance)
            collection.measure_curve(curve, cut)
            collection.test_theory()
            collection.count_cost()
        except KeyboardInterrupt:
            if not collection.report.texts:
                raise
            collection.add(stopped=True)
    if path is not None:
        collection.report.save(path)
    return collection.report


def _check_choices(noun: str, values: Sequence[str], choices: Sequence[str]) -> tuple[str, ...]:
    """The values of an argument of `mh.report`, in the order of the choices; raises for others."""
    values = [values] if isinstance(values, str) else values
    check_list(f"{noun}s", values, f"{noun}s", hint=f"choose from {', '.join(choices)}")
    values = list(values)
    wrong = [value for value in values if value not in choices]
    if wrong:
        raise SizeError(f"unknown {noun} {wrong[0]!r}", hint=f"choose from {', '.join(choices)}")
    return tuple(choice for choice in choices if choice in values)


def _check_curve(curve: object, cut: Sequence[str]) -> None:
    """Raise unless the arguments of `mh.report` for its curve are valid."""
    if curve is not None:
        check_instance(
            "curve", curve, QualityCurve | Curve, "a Curve or None", hint="multihead.edit.check.curve.curve(...)"
        )
    check_list("cut", cut, "methods", hint='cut=["obs", "random"]')
    for method in cut:
        check_method(method)


def _check_maps(maps: object, heads: object, windows: object) -> None:
    """Raise unless the arguments of `mh.report` for its maps are valid."""
    if maps is not None and not callable(maps):
        _check_choices("maps", [maps], get_args(Storage))  # type: ignore[list-item]
    if heads is not None:
        check_list("heads", heads, "names", hint='heads=["L3H7"]')
    if windows is not None:
        check_count("windows", windows)


def _check_names(name: object, corpus_name: object) -> None:
    check_instance("name", name, str | None, "a text or None", hint="name='my model'")
    check_instance("corpus_name", corpus_name, str, "a text", hint="corpus_name='letters'")


def _texts(text: Any, documents: Iterable[Document]) -> list[Document]:
    """The documents whose maps the report shows."""
    if text is None:
        return list(islice(documents, TEXTS))
    several = isinstance(text, Sequence) and not isinstance(text, str) and all(isinstance(t, str) for t in text)
    texts: list[Document] = list(text) if several else [text]
    if not texts or any(isinstance(t, str) and not t.strip() for t in texts):
        raise MultiheadError("text must not be empty", hint="text is a text, or a list of texts")
    return texts


@dataclass
class _Collection:
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

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Make a part of the report; if the model does not support it, note why, and go on with the others."""
        try:
            yield
        except MultiheadError as refused:
            self.add(notes=[f"{name}: {refused.message.partition(chr(10))[0]}"])

    def tell(self, part: str, done: float, total: float) -> None:
        if self.progress is not None:
            self.progress(part, done, total)

    def telling(self, *parts: str) -> Callable[[float], None]:
        """Progress of the report in a pass over the corpus, for all parts that share it."""
        total = self.corpus.count_batches()

        def tell(done: float) -> None:
            for part in parts:
                self.tell(part, done, total)

        return tell

    def count_documents(self) -> None:
        self.add(corpus=replace(self.report.corpus, documents=self.corpus.document_count))

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

    def show(self, documents: Sequence[Document], show_texts: ShowTexts) -> None:
        texts, layers = show_texts(documents)
        self.add(texts=tuple(texts), layers=tuple(layers))

    def store_maps(
        self, documents: Sequence[Document], heads: Any, only: Storage | None, windows: int | None
    ) -> None:
        """Add the maps of the shown texts to the report."""
        writes = {layer.name: list(layer.W_O) for layer in self.weights.layers.values()}
        if self.weights.reason:
            self.add(notes=[f"norm-weighted maps are weighted by ‖v‖, without W_O: {self.weights.reason}"])
        blobs = self.report.blobs
        maps = TextMaps(blobs, writes=writes, only=only, chosen=None if heads is None else self._names(heads))
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
        every = [one for of_part in tolerant.values() for one in of_part]
        run(self.model, self.corpus, every, progress=self.telling(*tolerant))
        for part, of_part in tolerant.items():
            with self.part(part):
                for one in of_part:
                    if one.reason:
                        raise MultiheadError(one.reason)
                self._add_measure(part, [one.inner for one in of_part], kinds)

    def _add_measure(self, part: str, measured: Sequence[Any], kinds: KindsMeasure) -> None:
        """Add a measured part to the report."""
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
        if "importance" not in self.parts:
            return
        with self.part("importance"):
            exact = ablates(method, len(self.report.heads))
            measured = Ablation(self.loss) if exact else Gradients(self.loss, seed=self.seed)
            run(self.model, self.corpus, [measured], progress=self.telling("importance"))
            corpus = replace(self.report.corpus, loss=self.loss.name)
            self.add(corpus=corpus, table=ranked(measured.columns()))

    def measure_curve(self, measured: QualityCurve | Curve | None, cut: Sequence[str]) -> None:
        """Add the curve to the report."""
        if measured is not None:
            self.add(curve=quality_curve(measured) if isinstance(measured, Curve) else measured)
            return
        if "curve" not in self.parts:
            return
        with self.part("curve"):
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
                return
            table = self.report.table
            by = None if table is None else importance_column(table)
            if by is None or table is None:
                return
            order = table.sort(by).heads
            self.add(curve=quick_curve(self.model, self.corpus, order, self.loss, progress=self.telling("curve")))

    def test_theory(self) -> None:
        """Add the theory to the report, on some layers."""
        if "theory" not in self.parts:
            return
        labels = [layer.site.label for layer in self.report.layers]
        chosen = sorted({round((len(labels) - 1) * i / (LAYERS - 1)) for i in range(LAYERS)})
        layers = [labels[i] for i in chosen]

        def tell(layer: str, done: float, total: float) -> None:
            self.tell("theory", layers.index(layer) * total + done, len(layers) * total)

        with self.part("theory"):
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

    def count_cost(self) -> None:
        if "cost" in self.parts:
            with self.part("cost"):
                self.add(cost=attention_cost(self.model))
