"""Name the function of each head by evidence: score, threshold, chance, an interval over documents, runners-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.arguments import check_data, check_instance, check_seed, integers
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, BatchRun, Inputs, PerSite, State
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.checkpoint import Checkpoint
from multihead.corpus.documents import Corpus, rereadable
from multihead.corpus.language import check_language
from multihead.corpus.ranks import Ranks
from multihead.corpus.run import run, with_total
from multihead.errors import MultiheadError
from multihead.measures.kinds.controls import stream_names, streams
from multihead.measures.kinds.document_means import DocumentMeans
from multihead.measures.kinds.evidence import Evidence, judge
from multihead.measures.kinds.kinds_result import Kinds
from multihead.measures.kinds.per_document import read_documents
from multihead.measures.kinds.pieces import LENGTH, Pieces
from multihead.measures.kinds.repeats import TOKENS, repeats, special_tokens_around
from multihead.measures.kinds.shares import SharesSum, piece_corpus, piece_length
from multihead.measures.kinds.shuffled import ShuffledTokens
from multihead.measures.kinds.token_classes import class_ids, classes_of
from multihead.measures.kinds.token_ids import batch_generator
from multihead.measures.statistics_sum import with_special
from multihead.model.call import Call
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.sites import Site
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.statistics_options import Statistics
from multihead.model.token_limit import token_limit

REPEATS = 16
"""Rows of random tokens that repeat."""


def kinds(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    seed: int = 0,
    special: Sequence[int] = (),
    classes: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    offsets: int = 16,
    progress: bool | Progress | None = None,
) -> Kinds:
    """Name each head of `model` by its behaviour on `data`: shares of log n, and a kind that refines the leader.

    Args:
        data: as for `mh.measure`. A document, or a piece of one, counts once, however long it is; use 5 or more. A
            document that is equal to an earlier one does not count.
        tokenizer: supplies special tokens and classes of tokens: punctuation, digits, capitalised, function words,
            word pieces.
        batch_size: documents at a time.
        max_tokens: longer documents are cut into pieces of this length; default: the positions of the model.
        seed: of the shuffled texts and the random tokens that scores are compared with.
        special: ids of special tokens, instead of the tokenizer's.
        classes: further classes of tokens: name → ids or words.
        offsets: the largest distance that counts as one.
        progress: True shows bars on a terminal; a function is called with (pass, done, total).

    Returns:
        `Kinds`: `kinds["L0H1"].kind`, `.score` and `.why`; `kinds.of("previous")`; `kinds.table`.

    Raises:
        MultiheadError: if the data contains no text, or text without a tokenizer.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> kinds = mh.kinds(model, tokenizer.sample_texts()[:8], tokenizer=tokenizer)
    >>> kinds["L0H0"].kind, kinds["L1H0"].kind
    ('self', 'induction')
    """
    check_seed(seed)
    check_progress(progress)
    options = kinds_options(tokenizer, special=special, classes=classes, offsets=offsets)
    measured = KindsMeasure(model, options, seed=seed)
    check_data(data)
    data = rereadable(data) if is_encoder_decoder(model) else data
    corpus = Corpus(model, data, tokenizer=tokenizer, batch_size=batch_size, max_tokens=max_tokens)
    pieces = None
    if iter(corpus.documents) is corpus.documents:
        pieces = measured.pieces_for(corpus)
        corpus.documents = pieces.watch(corpus.documents)
    check_language(tokenizer, corpus.documents, "the text")
    with shown_progress(progress) as shown:
        passes = with_total(shown, corpus)
        run(model, corpus, measured.accumulators, progress=None if passes is None else partial(passes, "kinds"))
        measured.finish(corpus, pieces, progress=shown)
    return measured.result()


def kinds_options(
    tokenizer: Any = None,
    *,
    special: Sequence[int] = (),
    classes: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    offsets: int = 16,
) -> Statistics:
    """Options of the kinds: which tokens are special and which are of a class."""
    hint = 'classes={"colours": [17, 42]}'
    check_instance("classes", classes, Mapping | None, "a dict of name → ids or words, or None", hint=hint)
    special = integers("special", special)
    named = {} if tokenizer is None else classes_of(tokenizer)
    named |= {name: class_ids(name, members, tokenizer) for name, members in (classes or {}).items()}
    return with_special(Statistics(offsets=offsets, special=special, classes=named), tokenizer)


class KindsMeasure:
    """Four sources of evidence: text, the text with shuffled tokens, random tokens that repeat, the text in pieces.

    `accumulators` read the corpus; afterwards `finish` runs the model on the repeats and on the pieces.
    """

    def __init__(self, model: nn.Module, options: Statistics, *, seed: int = 0) -> None:
        self.model, self.seed = model, seed
        self.text = DocumentEvidence(options, seed=seed)
        self.shuffled = ShuffledTokens(model, options, seed=seed)
        self.repeats = DocumentEvidence(options, seed=seed, name="repeats")
        self.shares = SharesSum(model, options.special)
        self.length = LENGTH
        self.accumulators = [self.text, self.shuffled]

    def finish(
        self,
        corpus: Corpus,
        pieces: Pieces | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks | None = None,
        progress: Progress | None = None,
    ) -> None:
        """For the kinds, run the model on random tokens that repeat, and on the corpus as pieces of one length.

        Args:
            pieces: those of a corpus that can be read only once, see `Pieces.watch`.
        """
        rows = None if self.shuffled.reason else self._repeats()
        if rows is not None:
            repeated = Corpus(self.model, [rows], count=1, repeated=frozenset())
            run(self.model, repeated, [self.repeats], checkpoint=checkpoint, ranks=ranks)
        if pieces is None:
            pieces = self.pieces_for(corpus)
            two = is_encoder_decoder(self.model)  # a piece of text has no answer yet
            pieces.read(corpus.inputs() if two else corpus.documents)
        self.length = pieces.length
        if len(pieces):
            corpus = piece_corpus(self.model, pieces)
            passes = with_total(progress, corpus)
            report = None if passes is None else partial(passes, self.shares.name)
            run(self.model, corpus, [self.shares], checkpoint=checkpoint, ranks=ranks, progress=report)

    def pieces_for(self, corpus: Corpus) -> Pieces:
        """Empty `Pieces` for the kinds, with the options of a corpus."""
        batching, special = corpus.batching, self.text.options.special
        length = piece_length(self.model, min(LENGTH, batching.max_tokens or LENGTH))
        return Pieces(
            tokenizer=batching.tokenizer,
            special=special,
            length=length,
            column=batching.column,
            two_sequences=is_encoder_decoder(self.model),
        )

    def _repeats(self) -> dict[str, Tensor] | None:
        """Rows of random tokens that repeat, between the special tokens around the first document."""
        around = self.text.around
        if around is None:
            return None
        tokens = min(TOKENS, (token_limit(self.model) or 1 << 20) - len(around["begin"]) - len(around["end"]))
        if tokens < 8:
            return None
        ids = repeats(
            self._vocabulary(around["ids"]),
            rows=REPEATS,
            tokens=tokens,
            begin=around["begin"],
            end=around["end"],
            generator=batch_generator(self.seed, 0, 2),
        )
        return {around["name"]: ids}

    def _vocabulary(self, ids: Sequence[int]) -> list[int]:
        """Ordinary tokens for rows that repeat: of the model's embeddings, else of the first batch."""
        special = set(self.text.options.special)
        embeddings: Any = getattr(self.model, "get_input_embeddings", None)
        size = None if embeddings is None else getattr(embeddings(), "num_embeddings", None)
        known = range(size) if isinstance(size, int) else ids
        return [i for i in known if i not in special] or list(known)

    def result(self) -> Kinds:
        """The kinds of all heads, judged by the evidence."""
        evidence: list[Evidence] = []
        for site in self.text.sites:
            drivers = self.shuffled.drivers(site.key, site.heads, cross=site.cross)
            again = self.repeats.of.get(site.key) or self.repeats.make(site)
            evidence += judge(self.text.of[site.key], again, drivers, self.shares.of_site(site))
        counts = {"documents": self.text.documents, "copies": self.text.copies}
        repeated = 0 if self.shuffled.reason else REPEATS
        about = {**counts, "repeats": repeated, "seed": self.seed, **self.shares.about(self.length)}
        return Kinds(evidence, {"kinds": about}, self.shares.table(self.text.sites))


class DocumentEvidence(PerSite[DocumentMeans]):
    """What each head does in every document, with the scores of artificial heads for comparison."""

    forwards = 3.0

    def __init__(self, options: Statistics, *, seed: int = 0, name: str = "kinds") -> None:
        super().__init__()
        self.options, self.seed, self.name = options, seed, name
        self.documents = self.copies = 0
        self.around: dict[str, Any] | None = None
        """of the first batch: the name of its token ids, the special tokens around its first row, and its ids"""
        self._memory = Memory()
        self._generator = torch.Generator()
        self._new: list[int] | None = None
        """rows of the batch that count; if None, all"""

    def inputs(self, batch: Batch) -> Inputs:
        """The inputs of a batch for evidence of kinds; repeated documents do not count."""
        self._generator = batch_generator(self.seed, batch.index, 0)
        self._new = None if batch.repeated is None else (~batch.repeated).nonzero()[:, 0].tolist()
        if batch.index == 0:
            self.around = special_tokens_around(batch.inputs, self.options.special)
        return batch.inputs

    def make(self, site: Site) -> DocumentMeans:
        return DocumentMeans(stream_names(self.options), site.heads)

    def restore(self, site: Site, state: State) -> DocumentMeans:
        return DocumentMeans.from_state(state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Add the statistics of an attention call to the evidence of kinds."""
        documents = read_documents(call, out, self.options, self._memory, self._generator)
        numbers = streams(documents, self.options)
        means = self.of_call(call)
        if self._new != []:
            means.add(numbers if self._new is None else {name: x[self._new] for name, x in numbers.items()})

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Count the documents of a batch for the kinds."""
        super().end(batch, run)
        self._memory.rest()
        rows = max((x.shape[0] for x in batch.inputs.values() if isinstance(x, Tensor) and x.ndim), default=0)
        new = rows if self._new is None else len(self._new)
        self.documents, self.copies = self.documents + new, self.copies + rows - new

    def merge(self, later: DocumentEvidence) -> None:
        super().merge(later)
        self.documents, self.copies = self.documents + later.documents, self.copies + later.copies
        self.around = self.around or later.around

    def state(self) -> dict[str, Any]:
        made_with = {"options": self.options.state(), "seed": self.seed}
        counts = {"documents": self.documents, "copies": self.copies, "around": self.around}
        return super().state() | made_with | counts

    def load(self, state: State) -> None:
        """Restore the evidence of kinds, with the same options."""
        if (self.options.state(), self.seed) != (state["options"], state["seed"]):
            raise MultiheadError(
                "the state was made with other special tokens, classes, offsets or another seed",
                hint="resume with the options that the run began with",
            )
        super().load(state)
        self.documents, self.copies, self.around = state["documents"], state["copies"], state["around"]
