"""Text that a cut is fitted to, tokenised once, with a part held out that judges what was fitted.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.edit.fitting.calibration import Calibration
>>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50))
>>> texts = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3], [5, 8]]
>>> text = Calibration(model, texts, held_out=0.25, batch_size=2, spliced=0)
>>> text
Calibration(4 documents: 3 to fit with 9 tokens, 1 held out with 3 tokens)
>>> [tuple(batch["input_ids"].shape) for batch in text.fit()]
[(2, 5), (1, 2)]
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import Batching, Document, batches, make_batches
from multihead.corpus.language import warn_of_unknown
from multihead.corpus.padding_check import PaddingCheck
from multihead.edit.head_covariance import head_covariance
from multihead.edit.sensitivity import head_sensitivity
from multihead.edit.weight_sets import weight_sets
from multihead.errors import ModelRunError, MultiheadError, SizeError, TypeMismatchError
from multihead.model.anatomy import Anatomy, LayerAnatomy, anatomy
from multihead.model.call_tokens import learned_positions
from multihead.model.eval_mode import documents_in
from multihead.model.forward import Forward
from multihead.model.statistics.cross_moments import Square

PIECE = 512
"""Longer documents are cut into pieces of so many tokens, or as many as the model has positions for."""
BATCH_TOKENS = 2048
"""A batch holds no more, padding included, unless one document does."""
PER_COLUMN = 25
"""So many tokens for every input column of W_O are enough; with fewer the ridge does more of the work."""
FEW = 50_000
"""With fewer tokens documents are spliced, so that there are more; the model itself says what is right for them."""


class Calibration:
    """Documents as token ids, in batches of like length; every `1 / held_out`-th document judges and is not fitted.

    Nothing is kept but ids (of ready batches: what they hold). Batches are the same every time, in an order drawn
    by `seed`, so that the first few of them are a fair sample.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Iterable[Document] | Mapping[str, Any],
        tokenizer: Any = None,
        *,
        batch_size: int = 64,
        max_tokens: int | None = None,
        held_out: float = 0.125,
        spliced: float | None = None,
        seed: int = 0,
    ) -> None:
        """`spliced`: so many times the documents to fit are there again, as first and second halves of two each.

        Left out, once where the documents have fewer than `FEW` tokens, else not at all.
        """
        self.model, self.seed = model, seed
        self.progress: Callable[[str, int, int], None] | None = None
        """called while `covariance` and `sensitivity` are computed"""
        if not 0 < held_out < 1:
            raise SizeError(
                f"held_out={held_out} is no share of the documents", hint="between 0 and 1; 0.125 is usual"
            )
        piece = min(PIECE, learned_positions(model) or PIECE) if max_tokens is None else max_tokens
        rows, ready = _read(model, data, tokenizer, piece)
        rows = _once(rows)
        self.prints = frozenset([document_print(row) for row in rows] + [p for b in ready for p in prints_in(b)])
        """of every document, to tell it by where it is met again"""
        draw = random.Random(seed)
        fit, held = _parts(rows, held_out, draw, len(ready))
        self._whole = _why_whole(model, ready)
        ready_fit, ready_held = _ready_parts(ready, held_out, draw, bool(held), self._whole)
        times = float(sum(map(len, fit)) < FEW) if spliced is None else spliced
        made = _spliced(fit, round(times * len(fit)), draw)
        self._fit = _batched(model, fit + made, tokenizer, batch_size, draw) + ready_fit
        self._held = _batched(model, held, tokenizer, batch_size, draw) + ready_held
        self.spliced = len(made)
        """documents to fit that were made of halves of others"""
        self.documents_to_fit = sum(map(documents_in, self._fit))
        """pieces of long ones counted apart, spliced ones included"""
        self.documents = self.documents_to_fit + sum(map(documents_in, self._held)) - self.spliced
        self.tokens = sum(map(len, fit)) + sum(map(tokens_in, ready_fit))
        """tokens that are fitted to; what is spliced of them says little new and is not counted again"""
        self.tokens_held_out = sum(map(tokens_in, self._held))
        self._said: set[str] = set()
        unknown = getattr(tokenizer, "unk_token_id", None)
        if unknown is not None and rows:
            warn_of_unknown(sum(row.count(unknown) for row in rows), sum(map(len, rows)), "the calibration text")

    def fit(self) -> Iterator[Inputs]:
        """The batches to fit to."""
        return iter(self._fit)

    def sample(self, tokens: int) -> Iterator[Inputs]:
        """The first batches to fit to, until they have so many tokens."""
        seen = 0
        for batch in self._fit:
            if seen >= tokens:
                return
            yield batch
            seen += tokens_in(batch)

    def held_out(self) -> Iterator[Inputs]:
        """The batches that judge."""
        return iter(self._held)

    def example(self) -> Inputs:
        """Two documents: what a model can be run on to find its heads."""
        batch = next(self.held_out(), None) or next(self.fit())
        return batch if self._whole else _rows(batch, slice(2), documents_in(batch))

    # ---- learned once -------------------------------------------------------------------------

    @cached_property
    def weight_sets(self) -> list[list[LayerAnatomy]]:
        """The model's attentions, those with the same weights together."""
        return weight_sets(anatomy_on(self.model, self))

    @cached_property
    def covariance(self) -> dict[str, Square]:
        """Cov(z) of the heads' outputs, by the names of the weight sets."""
        return head_covariance(self.model, self.weight_sets, self.fit(), progress=self.progress)

    @cached_property
    def sensitivity(self) -> dict[str, Float64[Tensor, " head"]]:
        """How far the model's output moves with every head, by the names of the weight sets."""
        return head_sensitivity(self.model, self.weight_sets, self.fit(), seed=self.seed, progress=self.progress)

    def __len__(self) -> int:
        """Batches to fit to."""
        return len(self._fit)

    def check(self, columns: int, where: str) -> None:
        """Warn, once, if there are few tokens for so many unknowns per output number."""
        enough = PER_COLUMN * columns
        if self.tokens < enough and "short" not in self._said:
            self._said.add("short")
            warnings.warn(
                f"the calibration text is short: {self.tokens} tokens for the {columns} input columns of "
                f"{where}, {self.tokens / columns:.1f} per column; {PER_COLUMN} ({enough} tokens) are enough. "
                "Where they are few the ridge keeps the weights near what they were",
                stacklevel=3,
            )

    def __repr__(self) -> str:
        held = sum(documents_in(b) for b in self._held)
        return (
            f"Calibration({self.documents} documents: {self.documents - held} to fit"
            f"{f' and {self.spliced} spliced of them' * bool(self.spliced)} with {self.tokens} tokens, "
            f"{held} held out with {self.tokens_held_out} tokens)"
        )


def anatomy_on(model: nn.Module, text: Calibration | None) -> Anatomy:
    """The heads of a model, found on an input that is made up, or where none can be, on some of the text."""
    _check_numbers(model)
    try:
        return anatomy(model)
    except MultiheadError:
        if text is None:
            raise
        return anatomy(model, text.example())


def _check_numbers(model: nn.Module) -> None:
    """Quantised weights have no rows to take out, and no gradient to follow back to them."""
    homes = {name: type(module) for name, module in model.named_modules()}
    homes |= {name: type(p) for name, p in model.named_parameters() if p.ndim > 1}
    for name, kind in homes.items():
        if any(word in kind.__module__ for word in ("torchao", "bitsandbytes", ".quantized")):
            raise TypeMismatchError(
                f"{name} is a {kind.__name__} of {kind.__module__}: quantised weights cannot be cut",
                hint="cut the model first, and quantise what is left",
            )


def tokens_in(batch: Inputs) -> int:
    """Real tokens of a batch, by its mask; all of them where there is none."""
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return int((mask != 0).sum())
    first = next((x for x in batch.values() if isinstance(x, Tensor)), torch.empty(0))
    return math.prod(first.shape[:2])


def document_print(ids: Sequence[int]) -> str:
    """A short name of a document: the same for the same token ids."""
    return sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]


def prints_in(batch: Inputs) -> list[str]:
    """The `document_print` of every row of a batch, padding left out; of batches without token ids none."""
    ids = batch.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return []
    mask = batch.get("attention_mask")
    real = mask.bool() if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids).bool()
    return [document_print(row[kept].tolist()) for row, kept in zip(ids, real, strict=True)]


def _read(
    model: nn.Module, data: Iterable[Document] | Mapping[str, Any], tokenizer: Any, piece: int
) -> tuple[list[list[int]], list[Inputs]]:
    """Token ids of documents, one list each, and batches that were given ready."""
    rows: list[list[int]] = []
    ready: list[Inputs] = []
    for document in _listed(data):
        if isinstance(document, Mapping):
            ready += batches(model, document)
        else:
            rows.append(document)
    read: list[list[int]] = []
    if rows or not ready:
        for batch in batches(model, rows, tokenizer=tokenizer, batch_size=1, max_tokens=piece):
            read.append(batch["input_ids"][0].tolist())
    return read, ready


def _listed(data: Iterable[Document] | Mapping[str, Any]) -> Iterator[Any]:
    """The documents; of one text its error."""
    if isinstance(data, str):
        raise MultiheadError("data is one text", hint="a corpus is a list of texts: [text]")
    if isinstance(data, Mapping):
        yield data
    else:
        yield from data


def _once(rows: Sequence[list[int]]) -> list[list[int]]:
    """Every document once: held out, a copy of one that is fitted to would judge nothing."""
    found = [list(row) for row in dict.fromkeys(map(tuple, rows))]
    if len(found) < len(rows):
        warnings.warn(f"{len(rows) - len(found)} of {len(rows)} calibration documents are copies", stacklevel=3)
    return found


def _parts(
    rows: Sequence[list[int]], share: float, draw: random.Random, others: int
) -> tuple[list[list[int]], list[list[int]]]:
    """To fit and held out. One document alone is cut in two, since something must judge."""
    if len(rows) == 1 and not others:
        (row,) = rows
        held = max(1, round(share * len(row)))
        if len(row) < 4:
            raise SizeError(
                f"the calibration text is one document of {len(row)} tokens", hint="4 are the least, thousands good"
            )
        return [row[:-held]], [row[-held:]]
    mixed = list(rows)
    draw.shuffle(mixed)
    held = min(max(1, round(share * len(rows))), len(rows) - 1) if len(rows) > 1 else 0
    return mixed[held:], mixed[:held]


def _spliced(rows: Sequence[list[int]], count: int, draw: random.Random) -> list[list[int]]:
    """The first half of one document and the second of another, special tokens at both ends as they were."""
    if len(rows) < 2:
        return []
    made: list[list[int]] = []
    while len(made) < count:
        others = list(rows)
        draw.shuffle(others)
        made += [a[: (len(a) + 1) // 2] + b[(len(b) + 1) // 2 :] for a, b in zip(rows, others, strict=True)]
    return made[:count]


def _ready_parts(
    ready: Sequence[Inputs], share: float, draw: random.Random, judged: bool, whole: str
) -> tuple[list[Inputs], list[Inputs]]:
    """Of many batches some are held out; of few, some rows of each, unless they must stay `whole`."""
    if not ready:
        return [], []
    if len(ready) * share >= 1:
        mixed = list(ready)
        draw.shuffle(mixed)
        held = round(len(ready) * share)
        return mixed[held:], mixed[:held]
    fit: list[Inputs] = []
    out: list[Inputs] = []
    for batch in ready:
        count = 1 if whole else documents_in(batch)
        held = min(max(1, round(share * count)), count - 1)
        fit.append(_rows(batch, slice(held, None), count))
        out += [_rows(batch, slice(held), count)] if held else []
    if not out and not judged:
        if len(ready) < 2:
            shapes = {name: tuple(x.shape) for name, x in ready[0].items() if isinstance(x, Tensor)}
            raise SizeError(
                f"the calibration data is one batch, {shapes}, and nothing of it can be held out: "
                f"{whole or 'it is one document'}",
                hint="two documents are the least, hundreds are good; or pass several batches",
            )
        return fit[1:], fit[:1]
    return fit, out


def _why_whole(model: nn.Module, ready: Sequence[Inputs]) -> str:
    """Why the rows of ready batches are not documents: they are patches of several images, or frames of a video."""
    for batch in ready:
        count = documents_in(batch)
        if any(x.shape[0] not in (1, count) for x in batch.values() if isinstance(x, Tensor) and x.ndim):
            return "its tensors have no row for every document"
    try:
        for batch in ready[:1]:
            Forward(model)(_rows(batch, slice(1), documents_in(batch)))
    except ModelRunError as error:
        return f"a row alone does not run: {error.message}"
    return ""


def _rows(batch: Inputs, rows: slice, count: int) -> Inputs:
    return {n: x[rows] if isinstance(x, Tensor) and x.ndim and x.shape[0] == count else x for n, x in batch.items()}


def _batched(
    model: nn.Module, rows: Sequence[list[int]], tokenizer: Any, batch_size: int, draw: random.Random
) -> list[Inputs]:
    """Padded batches of like length, of the same length for a model that knows no padding, in a drawn order."""
    if not rows:
        return []
    left, made, check = sorted(rows, key=len, reverse=True), list[Inputs](), PaddingCheck(model)
    one_length = len(left[0]) == len(left[-1])
    while left:
        count = max(1, min(batch_size, BATCH_TOKENS // len(left[0])))
        if not one_length and not check.may_pad(left):
            count = min(count, sum(len(row) == len(left[0]) for row in left))
        options = Batching(tokenizer, count, window=1)
        some = make_batches(model, ((row, False) for row in left[:count]), options, check=check)
        made += [inputs for inputs, _ in some]
        left = left[count:]
    draw.shuffle(made)
    return made
