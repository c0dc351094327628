"""What `report` and `serve` share: a model, what it is measured over, the texts that are shown, and the parts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from multihead.cli.options import (
    BatchOptions,
    FileOptions,
    ModelOptions,
    Options,
    TextOptions,
    add_documents,
    add_model,
    option,
)
from multihead.cli.output import speaker
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead._base.estimate import Estimate
    from multihead.corpus.documents import CachedCorpus, Documents
    from multihead.show.report import Report
    from multihead.sources.pretrained import Pretrained

PARTS = ("measure", "kinds", "pairs", "importance", "similarity", "curve", "theory", "cost")
SHOWN = (0, 7, 8)
"""Documents of the sample whose maps are shown when no text is given: a story, nested clauses, repeats."""

CUTS = ("obs", "fisher", "random")
"""How heads are chosen for --curve."""

_RUNS = {"measure": 3.0, "kinds": 11.0, "pairs": 3.0, "similarity": 6.0, "curve": 14.0, "theory": 25.0}
"""About how many forward passes over the documents a part takes; importance depends on the heads."""

_OVERHEAD = {"measure": 0.2, "kinds": 2.0, "importance": 0.5, "similarity": 0.5, "curve": 0.5, "theory": 10.0}
"""About how many seconds a part takes however small the model is: imports, networks that a statement trains."""


@dataclass(frozen=True)
class ReportOptions(Options):
    """Of `multihead.report`: what is measured."""

    only: str | None = option(None, f"some of {','.join(PARTS)}", metavar="PARTS")
    importance: str = option(
        "auto",
        "by gradients, or by ablating each head; auto: ablation, up to 256 heads",
        choices=("auto", "gradient", "ablation"),
    )
    seed: int = option(0, "random seed", metavar="N")

    def parts(self, default: Sequence[str]) -> tuple[str, ...]:
        if self.only is None:
            return tuple(default)
        parts = [word.strip() for word in self.only.split(",") if word.strip()]
        unknown = next((word for word in parts if word not in PARTS), None)
        if unknown is not None or not parts:
            raise MultiheadError(f"--only: unknown part {unknown or ''!r}", hint=f"some of {','.join(PARTS)}")
        return tuple(part for part in PARTS if part in parts)


def add_reading(parser: argparse.ArgumentParser, default: Sequence[str]) -> Any:
    """MODEL, the documents and the parts. Returns the group of the parts."""
    add_model(parser, default="minilm where it is installed, else embedded")
    add_documents(parser)
    parts = "all parts" if tuple(default) == PARTS else ",".join(default)
    return ReportOptions.add(parser, f"what it measures (default: {parts})")


@dataclass(frozen=True)
class Reading:
    """A model, what it is measured over, the texts that are shown, and the parts."""

    loaded: Pretrained
    source: str
    documents: Documents
    corpus: CachedCorpus
    """the documents, tokenized once for the estimate and the report"""
    shown: list[str] | None
    parts: tuple[str, ...]
    options: ReportOptions

    @staticmethod
    def of(args: argparse.Namespace, default: Sequence[str]) -> Reading:
        """What can be is checked before the model loads."""
        from multihead.corpus.documents import CachedCorpus
        from multihead.corpus.language import LOOKED_AT, check_language
        from multihead.corpus.read import read_text

        options, texts, files, batches = (
            ReportOptions.of(args), TextOptions.of(args), FileOptions.of(args), BatchOptions.of(args)
        )  # fmt: skip
        parts, texts_shown = options.parts(default), [read_text(name) for name in texts.text]
        source = default_source(args.quiet) if args.model is None else args.model
        loaded = ModelOptions.of(args).load(source, "mh.report(model, {}, 'report.html')")
        if texts_shown and loaded.tokenizer is None:
            raise MultiheadError(f"{loaded.name} has no tokenizer, so text cannot be read", hint="omit --text")
        documents = files.documents(loaded, corpus=texts.corpus)
        check_language(loaded.tokenizer, [*texts_shown, *islice(documents, LOOKED_AT)], "the text")
        of_sample = not texts.corpus and files.ids is None
        shown = texts_shown or (_of_sample(documents) if of_sample else None)
        corpus = CachedCorpus(loaded.model, documents, tokenizer=loaded.tokenizer, **vars(batches))
        return Reading(loaded, source, documents, corpus, shown, parts, options)

    def estimate(self, *, cuts: Sequence[str] = ()) -> list[str]:
        """What will run, about how long, about how much memory."""
        from multihead._base.estimate import ForwardCost
        from multihead.model.find_sites import find_sites
        from multihead.model.forward import Forward

        model = self.loaded.model
        first = self.corpus.first().inputs
        heads, cost = (
            len(find_sites(model, first).heads),
            ForwardCost.of(model, first, Forward(model), warmed_up=True),
        )
        ablates = self.options.importance == "ablation" or (self.options.importance == "auto" and heads <= 256)
        runs = _RUNS | {"importance": heads / 3 if ablates else 4.0}
        if cuts:
            runs["curve"] = len(cuts) * 6 * (6 + 4.0 * cost.layers)
        estimate: Estimate = cost.estimate(
            sum(runs.get(part, 0.0) for part in self.parts),
            self.corpus.count_batches(),
            overhead=sum(_OVERHEAD.get(part, 0.0) for part in self.parts),
            copies=2,
            every_layer=True,
        )
        return [
            f"{self.loaded.name}: {heads} heads, {cost.parameters / 1e6:.3g} M parameters; {self.documents.name}: "
            f"{self.documents.count} documents; {', '.join(('maps', *self.parts))}",
            str(estimate),
        ]

    def report(self, quiet: bool, **options: Any) -> Report:
        """Run the parts, with a bar for each."""
        from multihead.show.collect import report

        return report(
            self.loaded.model,
            self.corpus,
            text=self.shown,
            name=self.loaded.name,
            corpus_name=self.documents.name,
            parts=self.parts,
            importance=self.options.importance,
            seed=self.options.seed,
            progress=not quiet,
            **options,
        )


def default_source(quiet: bool) -> str:
    """The model to use if none is named; a line says how to get MiniLM where it is not installed."""
    from multihead.sources.pretrained import EMBEDDED, default_model, how_to_get_minilm

    source = default_model()
    if source == EMBEDDED:
        speaker(quiet)(f"using embedded, a very small model. For MiniLM, a real one: {how_to_get_minilm()}")
    return source


def _of_sample(documents: Documents) -> list[str] | None:
    """Some paragraphs of the sample that show more than the first ones."""
    texts = [document for document in documents if isinstance(document, str)]
    return [texts[index] for index in SHOWN if index < len(texts)] or None
