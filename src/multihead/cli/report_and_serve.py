"""What `report` and `serve` share: a model, what it is measured over, the texts that are shown, and the parts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from multihead._base.plural import plural
from multihead.cli.options import (
    BatchOptions,
    FileOptions,
    ModelOptions,
    Options,
    TextOptions,
    add_documents,
    add_model,
    names,
    option,
    reads_two_texts,
)
from multihead.errors import MultiheadError
from multihead.show.report_estimate import IMPORTANCE, PARTS

if TYPE_CHECKING:
    from torch import Tensor

    from multihead.corpus.documents import CachedCorpus, Documents
    from multihead.show.report import Report
    from multihead.show.server import Server
    from multihead.sources.pretrained import Pretrained

SHOWN = (0, 7, 8)
"""Documents of the sample whose maps are shown when no text is given: a story, nested clauses, repeats."""


@dataclass(frozen=True)
class ReportOptions(Options):
    """Of `multihead.report`: what is measured."""

    only: tuple[str, ...] = option((), f"some of {','.join(PARTS)}", metavar="PARTS")
    importance: str = option(
        "auto",
        "by gradients, or by ablating each head; auto: ablation, up to 256 heads",
        choices=IMPORTANCE,
    )
    seed: int = option(0, "random seed", metavar="N")

    def parts(self, default: Sequence[str]) -> tuple[str, ...]:
        """The parts that --only names for `report` or `serve`."""
        parts = names(self.only) if self.only else list(default)
        unknown = next((word for word in parts if word not in PARTS), None)
        if unknown is not None or not parts:
            raise MultiheadError(f"--only: unknown part {unknown or ''!r}", hint=f"some of {','.join(PARTS)}")
        return tuple(part for part in PARTS if part in parts)


@dataclass(frozen=True)
class DecoderOptions(Options):
    """Of `multihead.corpus.two_texts.two_texts`: the second text of an encoder–decoder."""

    decoder: tuple[str, ...] = option(
        (),
        "of an encoder–decoder: the words that its decoder has read, one for each --text (default: what the model "
        "writes itself)",
        metavar="TEXT",
    )

    def for_texts(self, texts: Sequence[str], loaded: Pretrained) -> Sequence[str | None]:
        """One for each text."""
        if self.decoder and not reads_two_texts(loaded):
            raise MultiheadError(f"{loaded.name} has no decoder that reads a second text", hint="omit --decoder")
        if self.decoder and len(self.decoder) != len(texts):
            raise MultiheadError(
                f"--decoder must be given once for each --text: got {len(self.decoder)} for {len(texts)}",
                hint="omit --decoder: the model writes its own answers",
            )
        return self.decoder or [None] * len(texts)


def add_reading(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add MODEL, the documents and the parts of `report` and `serve`."""
    add_model(parser, default="minilm where it is installed, else embedded")
    add_documents(parser)
    DecoderOptions.add(parser)
    parts = "all parts" if tuple(default) == PARTS else ",".join(default)
    ReportOptions.add(parser, f"what it measures (default: {parts})")


@dataclass(frozen=True)
class Reading:
    """A model, what it is measured over, the texts that are shown, and the parts."""

    loaded: Pretrained
    source: str
    documents: Documents
    corpus: CachedCorpus
    """the documents, tokenized once for the estimate and the report"""
    shown: list[Any] | None
    parts: tuple[str, ...]
    options: ReportOptions

    @staticmethod
    def of(args: argparse.Namespace, source: str, default: Sequence[str], call: str) -> Reading:
        """Read the options of `report` or `serve`; what can be is checked before the model loads.

        `call` is the same in Python, for models that do not read text.
        """
        from multihead.corpus.documents import CachedCorpus
        from multihead.corpus.language import LOOKED_AT, check_language
        from multihead.corpus.read import read_text

        options, texts, files = ReportOptions.of(args), TextOptions.of(args), FileOptions.of(args)
        batches = BatchOptions.of(args).arguments()
        parts, texts_shown = options.parts(default), [read_text(name) for name in texts.text]
        loaded = ModelOptions.of(args).load(source, call, two=True)
        decoders = DecoderOptions.of(args).for_texts(texts_shown, loaded)
        if texts_shown and loaded.tokenizer is None:
            raise MultiheadError(f"{loaded.name} has no tokenizer, so text cannot be read", hint="omit --text")
        documents = files.documents(loaded, corpus=texts.corpus)
        check_language(loaded.tokenizer, [*texts_shown, *islice(documents, LOOKED_AT)], "the text")
        of_sample = not texts.corpus and files.ids is None
        shown: list[Any] | None = texts_shown or (_of_sample(documents) if of_sample else None)
        data: Any = documents
        if reads_two_texts(loaded):
            pairs = _two_texts(loaded, [*documents], dict(zip(texts_shown, decoders, strict=True)))
            data, shown = list(pairs.values()), None if shown is None else [pairs[text] for text in shown]
        corpus = CachedCorpus(loaded.model, data, tokenizer=loaded.tokenizer, **batches)
        return Reading(loaded, source, documents, corpus, shown, parts, options)

    def estimate(self, *, cut: Sequence[str] = ()) -> list[str]:
        """Announce what `report` or `serve` runs, about how long, with about how much memory."""
        from multihead.model.find_sites import find_sites
        from multihead.show.report_estimate import report_estimate

        sites = find_sites(self.loaded.model, self.corpus.first().inputs)
        documents = f"{self.documents.name}: {plural(self.documents.count, 'document')}"
        estimate = report_estimate(
            self.loaded.model,
            self.corpus,
            parts=self.parts,
            importance=self.options.importance,
            cut=cut,
            sites=sites,
        )
        summary = self.loaded.summary(sites)
        return [f"{summary}; {documents}; {', '.join(('maps', *self.parts))}", str(estimate)]

    def report(self, **options: Any) -> Report:
        """Measure the parts for `report`."""
        from multihead.show.make_report import report

        return report(self.loaded.model, self.corpus, **self._arguments(), **options)

    def serve(self, **options: Any) -> Server:
        """Measure the parts for `serve`."""
        from multihead.show.serve import serve

        return serve(self.loaded.model, self.corpus, **self._arguments(), **options)

    def _arguments(self) -> dict[str, Any]:
        return {
            "text": self.shown,
            "name": self.loaded.name,
            "corpus_name": self.documents.name,
            "parts": self.parts,
            "importance": self.options.importance,
            "seed": self.options.seed,
        }


def _two_texts(
    loaded: Pretrained, documents: Sequence[Any], decoders: Mapping[str, str | None]
) -> dict[str, dict[str, Tensor]]:
    """The batch of each document of an encoder–decoder; where no decoder text is given, the model writes it."""
    from multihead.corpus.two_texts import two_texts

    ids = next((document for document in documents if not isinstance(document, str)), None)
    if ids is not None:
        raise MultiheadError(f"{loaded.name} reads two texts, --ids have one", hint="--text or --corpus")
    texts = dict.fromkeys([*documents, *decoders])
    return {text: two_texts(loaded.model, loaded.tokenizer, text, decoders.get(text)) for text in texts}


def _of_sample(documents: Documents) -> list[str] | None:
    """Some paragraphs of the sample that show more than the first ones."""
    texts = [document for document in documents if isinstance(document, str)]
    return [texts[index] for index in SHOWN if index < len(texts)] or None
