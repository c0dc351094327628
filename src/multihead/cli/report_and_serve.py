"""The work of `report` and `serve`: a model, its documents, the texts that are shown, and the parts to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from multihead.cli.options import (
    BatchOptions,
    LoadOptions,
    QuietOptions,
    TextOptions,
    names,
    option,
    positional,
)
from multihead.errors import MultiheadError
from multihead.show.report_estimate import IMPORTANCE, PARTS
from multihead.sources.pretrained import SOURCES, check_source

if TYPE_CHECKING:
    from multihead.sources.pretrained import Pretrained

SHOWN = (0, 7, 8)
"""Documents of the sample whose maps are shown when no text is given: a story, nested clauses, repeats."""


@dataclass(frozen=True, kw_only=True)
class PageOptions(LoadOptions, TextOptions, QuietOptions, title="what it measures"):
    """Of `multihead.report`, for a model that need not be named."""

    model: str | None = positional(
        f"{SOURCES} (default: minilm where it is installed, else embedded)", default=None, metavar="MODEL"
    )
    decoder: tuple[str, ...] = option(
        (),
        "of an encoder–decoder: the words that its decoder has read, one for each --text (default: what the model "
        "writes itself)",
        metavar="TEXT",
    )
    only: tuple[str, ...] = option((), f"some of {','.join(PARTS)} (default: see below)", metavar="PARTS")
    importance: str = option(
        "auto", "by gradients, or by ablating each head; auto: ablation, up to 256 heads", choices=IMPORTANCE
    )
    seed: int = option(0, "random seed", metavar="N")
    open: bool = option(False, "show the page in a browser")

    default_parts: ClassVar[Sequence[str]] = PARTS

    def check(self) -> None:
        """Raise unless the options that report and serve share fit together."""
        if self.model is not None:
            check_source(self.model)
        if self.decoder and len(self.decoder) != len(self.text):
            raise MultiheadError(
                f"--decoder must be given once for each --text: got {len(self.decoder)} for {len(self.text)}",
                hint="omit --decoder: the model writes its own answers",
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that --only names."""
        parts = names(self.only) if self.only else self.default_parts
        unknown = next((word for word in parts if word not in PARTS), None)
        if unknown is not None or not parts:
            raise MultiheadError(f"--only: unknown part {unknown or ''!r}", hint=f"some of {','.join(PARTS)}")
        return tuple(part for part in PARTS if part in parts)


def arguments_of(options: PageOptions, source: str) -> tuple[Pretrained, dict[str, Any]]:
    """The model, and the arguments that `mh.report` and `multihead.show.serve.serve` share.

    Texts are read before the model is loaded: the cheap checks come first.
    """
    from multihead.corpus.read_texts import read_text
    from multihead.corpus.two_texts import two_texts

    shown: list[Any] = [read_text(name) for name in options.text]
    loaded = options.load(source)
    if shown and loaded.tokenizer is None:
        raise MultiheadError(f"{loaded.name} has no tokenizer, so text cannot be read", hint="omit --text")
    documents = options.documents(loaded, corpus=options.corpus)
    if not shown and not options.corpus and options.ids is None:
        sample = [document for document in documents if isinstance(document, str)]
        shown = [sample[index] for index in SHOWN if index < len(sample)]
    if options.decoder:
        pairs = zip(shown, options.decoder, strict=True)
        shown = [two_texts(loaded.model, loaded.tokenizer, *pair) for pair in pairs]
    return loaded, {
        "data": documents,
        "tokenizer": loaded.tokenizer,
        "text": shown or None,
        "name": loaded.name,
        "corpus_name": documents.name,
        "parts": options.parts,
        "importance": options.importance,
        "seed": options.seed,
        "progress": not options.quiet,
        "say": options.say,
        **options.arguments(BatchOptions),
    }
