"""The text that a cut is fitted to, and what is learned of the model on it: each of these once, and kept.

Fit and held-out text are split by document, before long documents are cut into pieces: a piece of a document that
is fitted to never judges the fit.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.edit.calibration import Calibration
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50))
>>> texts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3], [5, 8]]
>>> calibration = Calibration(model, texts, held_out=0.25, batch_size=2)
>>> calibration
Calibration(4 documents: 3 to fit with 9 tokens, 1 held out with 3 tokens)
>>> [tuple(batch["input_ids"].shape) for batch in calibration.fit()]
[(2, 5), (1, 2)]
>>> calibration.anatomy[0].num_heads, [writer.parameter for writer in calibration.blocks[0].writers]
(2, ['h.0.attn.c_proj.weight', 'h.0.mlp.c_proj.weight'])
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from jaxtyping import Float64
from torch import Tensor, nn

from multihead._base.arguments import check_count, check_data, check_model, check_number, check_seed
from multihead._base.plural import plural
from multihead._base.progress import Progress
from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import Document
from multihead.corpus.language import warn_of_unknown
from multihead.edit.calibration_text import (
    batched,
    distinct_documents,
    fit_and_held_out,
    joined,
    read_pieces,
    ready_fit_and_held_out,
    why_whole,
)
from multihead.edit.head_covariance import head_covariance
from multihead.edit.original_stream import Originals
from multihead.edit.residual_block import Block
from multihead.edit.residual_writers import find_blocks
from multihead.edit.sensitivity import head_sensitivity
from multihead.edit.splice_documents import halves_of_two
from multihead.edit.text_sketch import TextSketch, whole_documents
from multihead.edit.weight_sets import weight_sets
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.activation_cache import SPARE, activation_bytes
from multihead.model.anatomy import anatomy
from multihead.model.compiled import inner
from multihead.model.fingerprint import fingerprint
from multihead.model.layer_anatomy import Anatomy, LayerAnatomy
from multihead.model.model_inputs import documents_in, rows_of
from multihead.model.run_by_blocks import BlockRun, Fronts, fronts_of
from multihead.model.statistics.second_moments import Square
from multihead.model.token_count import TokenCount
from multihead.model.token_limit import learned_positions

PIECE = 512
"""Longer documents are cut into pieces of this many tokens, or as many as the model has positions."""
FEW = 50_000
"""With fewer tokens to fit, keys and values are shared on twice the text, half of it spliced (see `spliced`)."""
PER_COLUMN = 25
"""So many tokens for every input column of W_O are enough; with fewer the ridge does more of the work."""


class Calibration:
    """Documents as token ids, in batches of similar length, split into text to fit and held-out text.

    The split is by document: of n documents max(1, round(`held_out` · n)) are held out, but never all of them.
    Copies of a document count once. One document alone is cut in two, its end held out. Ready batches are held out
    whole, or, if there are few, some rows of each. Token ids are kept, the content of ready batches, and from the
    choice of heads to the cut some activations, up to a bound (`originals`).

    Batches are the same every time, in an order drawn by `seed`: the first few are a fair sample. A batch has as
    many documents as fit in 2,048 tokens: at most 64, or `batch_size`.

    >>> import multihead as mh
    >>> from multihead.edit import Calibration
    >>> model, tokenizer = mh.embedded()
    >>> text = Calibration(model, tokenizer.sample_texts(), tokenizer=tokenizer)
    >>> [mh.plan(model, text, keep=keep).kept for keep in (0.75, 0.5)]  # the second does not run the model
    [9, 6]
    """

    @staticmethod
    def of(model: nn.Module, data: Any, *, tokenizer: Any = None) -> Calibration:
        """The calibration text `data`; `data` itself if it is a Calibration already, also of another model."""
        return data if isinstance(data, Calibration) else Calibration(model, data, tokenizer=tokenizer)

    def __init__(
        self,
        model: nn.Module,
        data: Iterable[Document] | Mapping[str, Any],
        *,
        tokenizer: Any = None,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        held_out: float = 0.125,
        seed: int = 0,
    ) -> None:
        check_model(model)
        check_data(data)
        if batch_size is not None:
            check_count("batch_size", batch_size)
        check_number("held_out", held_out, above=0)
        check_seed(seed)
        self.model, self.seed = model, seed
        self.progress: Progress | None = None
        """called while `covariance` and `sensitivity` are computed"""
        if held_out >= 1:
            raise SizeError(f"held_out must be between 0 and 1, got {held_out}", hint="0.125 is usual")
        piece = min(PIECE, learned_positions(model) or PIECE) if max_tokens is None else max_tokens
        documents, ready = read_pieces(model, data, tokenizer, piece, batch_size)
        documents = distinct_documents(documents)
        rows = [row for document in documents for row in document]
        self.sketch = TextSketch.of([*map(joined, documents), *whole_documents(ready)])
        """of the text, to warn of an overlap with text that judges the cut"""
        draw = random.Random(seed)
        fit, held = fit_and_held_out(documents, held_out, draw, len(ready))
        self._whole = why_whole(model, ready)
        ready_fit, ready_held = ready_fit_and_held_out(ready, held_out, draw, bool(held), self._whole)
        self._rows, self._batched = fit, partial(batched, model, tokenizer=tokenizer, batch_size=batch_size)
        self._fit = self._batched(fit, draw=draw) + ready_fit
        self._held = self._batched(held, draw=draw) + ready_held
        self.tokens_in = TokenCount(model, whole=bool(self._whole))
        """counts the tokens of a batch"""
        self.documents_to_fit = sum(map(documents_in, self._fit))
        """pieces of long ones count"""
        self.documents = self.documents_to_fit + sum(map(documents_in, self._held))
        self.tokens = sum(map(len, fit)) + sum(map(self.tokens_in, ready_fit))
        """tokens to fit"""
        self.tokens_held_out = sum(map(self.tokens_in, self._held))
        self._warned = False
        self._learned_from = ""
        unknown = getattr(tokenizer, "unk_token_id", None)
        if unknown is not None and rows:
            warn_of_unknown(sum(row.count(unknown) for row in rows), sum(map(len, rows)), "the calibration text")

    # ---- what is learned of the model ---------------------------------------------------------

    @property
    def anatomy(self) -> Anatomy:
        """The heads of the model, for calibration: from a made-up input, else from some of the text."""
        parameters = dict(inner(self.model).named_parameters())
        if any(parameters.get(n) is not p for layer in self._anatomy for n, p in layer.parameters.items()):
            del self._anatomy  # the model was given other parameters since
        return self._anatomy

    @cached_property
    def _anatomy(self) -> Anatomy:
        return _find_anatomy(self.model, self.example)

    @property
    def fingerprint(self) -> str:
        """Of the weights; hashed again only if they have changed."""
        return fingerprint(self.model)

    def forget_other_weights(self) -> None:
        """Drop all calibration results if the weights have changed since."""
        weights = self.fingerprint
        if weights != self._learned_from:
            for name in ("blocks", "fronts", "weight_sets", "covariance", "originals", "sensitivity"):
                self.__dict__.pop(name, None)
            self._learned_from = weights

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in the order of the run, with the maps that write into the residual stream."""
        return find_blocks(self.model, list(self.anatomy), self.example())

    @cached_property
    def fronts(self) -> Fronts:
        """What runs of the calibrated model read that start at a block or a writer, see `run_by_blocks`."""
        blocks = [block.path for block in self.blocks if block.path]
        writers = [writer.module for block in self.blocks for writer in block.writers]
        return fronts_of(self.model, [*blocks, *writers], self.example()) or fronts_of(
            self.model, blocks, self.example()
        )

    def block_run(self, *models: nn.Module) -> BlockRun:
        """Runs of the calibrated model, or of copies of it, from block to block."""
        blocks = [block.path for block in self.blocks]
        room = activation_bytes(self.model) - self.originals.cache.size
        return BlockRun(
            models or (self.model,), blocks, self.example(), fronts=self.fronts, activation_cache_bytes=room
        )

    # ---- batches ------------------------------------------------------------------------------

    def fit(self, *, spliced: bool = False) -> Iterator[Inputs]:
        """The calibration batches to fit to; with `spliced`, of a short text, as many again of spliced documents.

        A document of halves of two is new text for the original, which says itself what is right for it. It helps
        shared keys and values (all-MiniLM-L6-v2, 12 → 4 kv heads: nearest neighbours kept .810, without it .801),
        not the choice and the refit of heads (.793 with and without).
        """
        return iter(self._fit + self._spliced if spliced else self._fit)

    @cached_property
    def _spliced(self) -> list[Inputs]:
        draw, few = random.Random(self.seed), sum(map(len, self._rows)) < FEW
        return self._batched(halves_of_two(self._rows, len(self._rows) if few else 0, draw), draw=draw)

    def held_out(self) -> Iterator[Inputs]:
        """The batches that judge."""
        return iter(self._held)

    def example(self) -> Inputs:
        """A small batch to find the structure of a model on; the same tensors every time."""
        return self._example

    @cached_property
    def _example(self) -> Inputs:
        """Two calibration documents, or one of two tokens, so that the axes of a batch differ in size."""
        batch = next(self.held_out(), None) or next(self.fit())
        if self._whole:
            return batch
        two = rows_of(batch, slice(2), documents_in(batch))
        square = any(x.shape[:2] == (2, 2) for x in two.values() if isinstance(x, Tensor))
        return rows_of(two, slice(1), documents_in(two)) if square else two

    @cached_property
    def weight_sets(self) -> list[list[LayerAnatomy]]:
        """The model's attentions, those with the same weights together."""
        return weight_sets(self.anatomy)

    @cached_property
    def covariance(self) -> dict[str, Square]:
        """Cov(z) of the heads' outputs on the calibration text, by the names of the weight sets."""
        return head_covariance(
            self.model, self.weight_sets, self.fit(), together=[self.originals], progress=self.progress
        )

    @cached_property
    def originals(self) -> Originals:
        """What the model computes on some of the text, kept from the pass for the covariance until the next cut."""
        return Originals(self.model, self.blocks, int(SPARE * activation_bytes(self.model)))

    @cached_property
    def sensitivity(self) -> dict[str, Float64[Tensor, " head"]]:
        """How far the model's output moves with every head, by the names of the weight sets."""
        return head_sensitivity(self.model, self.weight_sets, self.fit(), seed=self.seed, progress=self.progress)

    def __len__(self) -> int:
        """Batches to fit to."""
        return len(self._fit)

    def check(self, columns: int, where: str) -> None:
        """Warn, once, if the calibration text has few tokens for so many unknowns per output channel."""
        enough = PER_COLUMN * columns
        if self.tokens < enough and not self._warned:
            self._warned = True
            warnings.warn(
                f"the calibration text is short: {plural(self.tokens, 'token')} for the {columns} input columns of "
                f"{where}, {self.tokens / columns:.1f} per column; {PER_COLUMN} ({enough} tokens) are enough. "
                "Where they are few the ridge keeps the weights near what they were",
                stacklevel=3,
            )

    @property
    def summary(self) -> str:
        """The size of the text: documents and tokens, those held out included."""
        return f"{plural(self.documents, 'document')}, {plural(self.tokens + self.tokens_held_out, 'token')}"

    def __repr__(self) -> str:
        held = sum(documents_in(b) for b in self._held)
        return (
            f"Calibration({plural(self.documents, 'document')}: {self.documents - held} to fit"
            f" with {plural(self.tokens, 'token')}, "
            f"{held} held out with {plural(self.tokens_held_out, 'token')})"
        )


def calibrate(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any] | Calibration,
    tokenizer: Any = None,
    progress: Progress | None = None,
) -> Calibration:
    """The calibration text to make a plan on: `Calibration.of` this model, without results of other weights."""
    text = Calibration.of(model, data, tokenizer=tokenizer)
    if inner(text.model) is not inner(model):
        raise MultiheadError(
            f"the Calibration is of a different {type(inner(text.model)).__name__}",
            hint="Calibration(model, texts) of the model that is planned",
        )
    text.forget_other_weights()
    text.progress = progress
    return text


def anatomy_on(model: nn.Module, calibration: Calibration | None) -> Anatomy:
    """The heads of a model that can be cut: those of the calibration if it is of this model."""
    if calibration is not None and calibration.model is model:
        return calibration.anatomy
    return _find_anatomy(model, None if calibration is None else calibration.example)


def _find_anatomy(model: nn.Module, example: Callable[[], Inputs] | None) -> Anatomy:
    """The heads of a model, from a made-up input, else from an example of the calibration text."""
    check_not_quantised(model)
    try:
        return anatomy(model)
    except MultiheadError:
        if example is None:
            raise
        return anatomy(model, example())


def check_not_quantised(model: nn.Module) -> None:
    """Raise for quantised weights: their rows cannot be removed or traced by gradients."""
    homes = {name: type(module) for name, module in model.named_modules()}
    homes |= {name: type(p) for name, p in model.named_parameters() if p.ndim > 1}
    for name, kind in homes.items():
        if any(word in kind.__module__ for word in ("torchao", "bitsandbytes", ".quantized")):
            raise TypeMismatchError(
                f"{name} is a {kind.__name__} of {kind.__module__}: quantised weights cannot be cut",
                hint="cut the model first, then quantise the cut model",
            )
