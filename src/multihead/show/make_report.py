"""`mh.report`: run every measure on a model, and return one `Report`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from torch import nn

from multihead._base.arguments import (
    check_count,
    check_data,
    check_flag,
    check_function,
    check_instance,
    check_list,
    check_model,
    check_path,
    check_seed,
)
from multihead._base.atomic_files import check_new, check_writable
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.documents import CachedCorpus, rereadable
from multihead.corpus.language import LOOKED_AT, check_language
from multihead.edit.check.curve import Curve
from multihead.edit.saliency import check_method
from multihead.errors import MultiheadError, SizeError
from multihead.show.collect_parts import Collection, ShowTexts
from multihead.show.cut_curve import attention_cost, curve_of_cuts
from multihead.show.map_or_qk import Storage
from multihead.show.quality_curve import QualityCurve
from multihead.show.report import CorpusInfo, ModelInfo, Report
from multihead.show.report_estimate import IMPORTANCE, PARTS, announcement
from multihead.table.head_names import HeadName

TEXTS = 3
"""Documents whose maps are shown if no text is given."""


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
    force: bool = False,
    progress: bool | Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Report:
    """Measure `model` over `data`. With a `path`, also write the page there: one HTML file.

    Ctrl-C ends the measuring: the report, and the page, have the parts that were finished, and `report.stopped` is
    true. A part that the model does not support is missing, and `report.notes` say why.

    Args:
        data: the texts (with a `tokenizer`), lists of token ids, or batches to measure over; tokenized once.
        path: the HTML file to write; if None, none is written.
        text: the text or batch, or a list of them, whose maps are shown; default: the first documents of `data`.
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
        force: overwrite an existing file at `path`.
        progress: True shows bars on a terminal; a function is called with (part, done, total).
        say: called with lines about what is measured and how long it may take.

    Returns:
        A `Report`: `report.table`, `report.kinds`, `report.findings`, ...; `report.save(path)` writes the page.

    Raises:
        SizeError: if a part or a head does not exist.
        MultiheadError: if there is no text, no attention was found, or the file exists or cannot be written.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> report = mh.report(model, tokenizer.sample_texts()[:8], tokenizer=tokenizer, parts=("measure", "kinds"))
    >>> report.card
    '139 k parameters · 3 layers × 4 heads · 12 kv heads · 576 tokens in 8 documents'
    >>> report.findings[0].text
    '5 of 12 heads pick keys that fit the query (3 more in part); layer 0 looks at certain distances...'
    """
    check_model(model)
    parts = _check_choices("part", parts, PARTS)
    _check_choices("importance", [importance], IMPORTANCE)
    _check_curve(curve, cut)
    _check_maps(maps, heads, windows)
    _check_names(name, corpus_name)
    check_seed(seed)
    check_flag("force", force)
    check_progress(progress)
    check_function("say", say)
    if path is not None:
        check_path("path", path, hint="path='report.html'")
        check_new(Path(path), force)
        check_writable(Path(path))
    if isinstance(data, CachedCorpus):
        corpus, tokenizer = data, data.batching.tokenizer
    else:
        check_data(data)
        documents = [cast(Document, data)] if isinstance(data, Mapping) else rereadable(data)
        options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
        corpus = CachedCorpus(model, documents, **options)
    texts = _texts(text, corpus.documents)
    if not isinstance(data, CachedCorpus):
        given = [] if text is None else texts  # else the first documents
        check_language(tokenizer, [*given, *islice(corpus.documents, LOOKED_AT)], "the text")
    if say is not None:
        model_name = name or type(model).__name__
        for line in announcement(model, corpus, model_name, corpus_name, parts, importance=importance, cut=cut):
            say(line)
    empty = Report(ModelInfo.of(model, name), CorpusInfo(corpus_name, corpus.document_count))
    with shown_progress(progress, [part for part in ("maps", *parts) if part != "cost"]) as shown:
        collection = Collection(model, tokenizer, corpus, empty, parts, seed, shown)
        try:
            if callable(maps):
                shown_texts, layers = maps(texts)
                collection.add(texts=tuple(shown_texts), layers=tuple(layers))
            else:
                collection.store_maps(texts, heads, maps, windows)
            collection.measure_heads()
            collection.try_part("importance", partial(collection.measure_importance, importance))
            if curve is None:
                collection.try_part("curve", partial(collection.measure_curve, cut))
            else:
                collection.add(curve=curve_of_cuts(curve) if isinstance(curve, Curve) else curve)
            collection.try_part("theory", collection.test_theory)
            collection.try_part("cost", lambda: collection.add(cost=attention_cost(model, corpus.first().inputs)))
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
    several = (
        isinstance(text, Sequence) and not isinstance(text, str) and all(isinstance(t, str | Mapping) for t in text)
    )
    texts: list[Document] = list(text) if several else [text]
    if not texts or any(isinstance(t, str) and not t.strip() for t in texts):
        raise MultiheadError("text must not be empty", hint="text is a text, or a list of texts")
    return texts
