"""Make batches of documents: texts, token ids or ready batches, a batch at a time.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.corpus.batches import batches
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> [batch["input_ids"].tolist() for batch in batches(model, [[3, 1, 4], [9, 2]], batch_size=2)]
[[[3, 1, 4], [9, 2, 0]]]
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead._base.arguments import check_data, check_model, check_tokenizer
from multihead.corpus.accumulator import Batch
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.call_tokens import learned_positions
from multihead.model.eval_mode import takes_argument

Document = str | Sequence[int] | Tensor | Mapping[str, Any]

WINDOW = 16
"""Batches of documents that are sorted by length among themselves: as many are held, and no more."""


@dataclass
class PaddingStats:
    """How full batches are: tokens, places with padding, and places had documents stayed in their order."""

    tokens: int = 0
    places: int = 0
    unsorted: int = 0

    def about(self) -> dict[str, Any]:
        """As plain data: tokens, the share of padding, and what it would have been."""
        padding, unsorted = (round(1 - self.tokens / max(n, 1), 4) for n in (self.places, self.unsorted))
        return {"tokens": self.tokens, "padding": padding, "padding_unsorted": unsorted}

    def __str__(self) -> str:
        said = self.about()
        return f"{said['padding']:.0%} padding; {said['padding_unsorted']:.0%} had batches not been made by length"


def batches(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = 8,
    max_tokens: int | None = None,
    window: int = 1,
    column: str = "text",
    tally: PaddingStats | None = None,
    may_be_empty: bool = False,
) -> Iterator[Batch]:
    """What `model(**batch)` takes, made of texts, lists of token ids, or ready batches, on the model's device.

    A row of a batch is a document, or a piece of one longer than `max_tokens`; rows are padded on the right.
    A model whose forward takes no attention_mask gets rows of one length: it would take padding for text.
    The same data gives the same batches in the same order. Documents without a token are left out, with a warning.
    With `window` above 1, rows of so many batches are sorted by length first; `tally` counts what that saves.
    """
    check_model(model)
    check_data(data)
    check_tokenizer(tokenizer)
    if batch_size < 1:
        raise SizeError(f"batch_size={batch_size} is less than 1", hint="one document at a time is batch_size=1")
    if window < 1:
        raise SizeError(f"window={window} is less than 1", hint="window=1 keeps the order of the documents")
    limit = learned_positions(model)
    if max_tokens is not None and not 1 <= max_tokens <= (limit or max_tokens):
        raise SizeError(
            f"max_tokens={max_tokens} is no length of a piece"
            + (f": the model has {limit} positions" if limit else ""),
            hint=f"max_tokens={limit or 512}",
        )
    documents = [cast(Document, data)] if isinstance(data, Mapping) else data
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        hint = "pass batches: {'input_ids': ..., 'decoder_input_ids': ...}"
        documents = _only_batches(documents, f"{type(model).__name__} reads two sequences; documents are one", hint)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    found = _found(_texts(documents, column), tokenizer, limit, max_tokens, _vocabulary(model))
    pad = getattr(tokenizer, "pad_token_id", None)
    padded = takes_argument(model, "attention_mask")
    made = _batches(found, 0 if pad is None else pad, batch_size, window, tally or PaddingStats(), padded)
    return _on(device, made, may_be_empty)


def _vocabulary(model: nn.Module) -> int | None:
    """How many token ids the model has a vector for, where it says so."""
    try:
        table: Any = cast(Any, model).get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    size = getattr(table, "num_embeddings", None)
    return size if isinstance(size, int) else None


def _on(
    device: torch.device, made: Iterable[Mapping[str, Any] | None], may_be_empty: bool = False
) -> Iterator[Batch]:
    """The batches on a device; a warning for documents that gave none, an error if none did."""
    empty = ran = 0
    for batch in made:
        if batch is None:
            empty += 1
            continue
        ran += 1
        yield {n: x.to(device) if isinstance(x, Tensor) else x for n, x in batch.items()}
    if not ran and not may_be_empty:
        raise MultiheadError(
            f"there was nothing to measure: {empty} documents, all without a token",
            hint="data is an iterable of texts, lists of token ids, or batches; a generator is read only once",
        )
    if empty:
        warnings.warn(f"{empty} documents without a token were left out", stacklevel=4)


def _only_batches(data: Iterable[Document], why: str, hint: str) -> Iterator[Document]:
    for document in data:
        if not isinstance(document, Mapping):
            raise TypeMismatchError(why, hint=hint)
        yield document


def _texts(data: Iterable[Document], column: str) -> Iterator[Document]:
    """Rows of a dataset give their text."""
    for document in data:
        text: Any = document.get(column) if isinstance(document, Mapping) else None
        yield text if isinstance(text, str) else document


def _found(
    data: Iterable[Document], tokenizer: Any, limit: int | None, cut: int | None, known: int | None
) -> Iterator[Mapping[str, Any] | list[list[int]]]:
    """Batches as they are; of other documents the pieces, checked."""
    for at, document in enumerate(data):
        if isinstance(document, Mapping):
            yield {n: torch.tensor([x]) if _is_list(x) else x for n, x in document.items()}  # one text, tokenised
            continue
        found = _pieces(document, tokenizer, at, cut)
        if limit is not None and cut is None and found and len(found[0]) > limit:
            raise SizeError(
                f"document {at} has {len(found[0])} tokens, the model has positions for {limit}",
                hint=f"max_tokens={limit} cuts long documents into pieces",
            )
        odd = [] if known is None else [i for piece in found for i in piece if not 0 <= i < known]
        if odd:
            raise SizeError(
                f"document {at} holds the token id {odd[0]}, the model has vectors for {known}, from 0",
                hint="the tokenizer must be the model's own",
            )
        yield found


def _batches(
    found: Iterable[Mapping[str, Any] | list[list[int]]],
    pad: int,
    size: int,
    window: int,
    tally: PaddingStats,
    padded: bool,
) -> Iterator[Mapping[str, Any] | None]:
    """Batches that a model takes; None for a document without a token."""
    pieces: list[list[int]] = []

    def full(some: list[list[int]]) -> Iterator[Mapping[str, Any]]:
        tally.unsorted += sum(_places(some[i : i + size]) for i in range(0, len(some), size))
        ordered = sorted(some, key=len) if window > 1 else some
        for start in range(0, len(ordered), size):
            rows = ordered[start : start + size]
            for batch in [rows] if padded else _of_one_length(rows):
                tally.places += _places(batch)
                tally.tokens += sum(map(len, batch))
                yield _padded(batch, pad)

    for one in found:
        if isinstance(one, Mapping):
            yield one
            continue
        if not one:
            yield None
        pieces += one
        while len(pieces) >= size * window:
            yield from full(pieces[: size * window])
            pieces = pieces[size * window :]
    yield from full(pieces)


def _of_one_length(rows: Sequence[list[int]]) -> list[list[list[int]]]:
    """The rows by their length, lengths in the order in which they come first."""
    by_length: dict[int, list[list[int]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append(row)
    return list(by_length.values())


def _places(pieces: Sequence[Sequence[int]]) -> int:
    return len(pieces) * max(map(len, pieces), default=0)


def _is_list(x: object) -> bool:
    return isinstance(x, list) and all(isinstance(i, int) for i in x)


def _pieces(document: Any, tokenizer: Any, at: int, cut: int | None) -> list[list[int]]:
    """The token ids of a document, in pieces of at most `cut`; none of an empty one.

    A fast tokenizer puts its special tokens around every piece, as the model is used to; others around the whole.
    """
    if isinstance(document, str) and cut is not None and getattr(tokenizer, "is_fast", False):
        special: int = tokenizer.num_special_tokens_to_add()
        if cut <= special:
            raise SizeError(
                f"max_tokens={cut} leaves no room beside the {special} special tokens of every piece",
                hint=f"max_tokens={special + 1} is the least",
            )
        made = tokenizer(document, truncation=True, max_length=cut, return_overflowing_tokens=True)["input_ids"]
        return [list(piece) for piece in made if piece]
    return list(_cut(_ids(document, tokenizer, at), cut))


def _ids(document: Any, tokenizer: Any, at: int) -> list[int]:
    if isinstance(document, str):
        if tokenizer is None:
            raise MultiheadError(f"document {at} is text, and there is no tokenizer", hint="pass tokenizer=...")
        return list(tokenizer(document, verbose=False)["input_ids"])
    whole = isinstance(document, Tensor) and not document.is_floating_point() and document.dtype != torch.bool
    if whole and document.ndim == 1:
        return document.tolist()
    if isinstance(document, Sequence) and all(isinstance(i, int) for i in document):
        return list(document)
    shape = f" of shape {tuple(document.shape)} and {document.dtype}" if isinstance(document, Tensor) else ""
    raise TypeMismatchError(
        f"document {at} is a {type(document).__name__}{shape}",
        hint="documents are texts, lists of token ids, or mappings that model(**batch) takes",
    )


def _cut(ids: list[int], size: int | None) -> Iterator[list[int]]:
    rest = iter(ids)
    while piece := list(islice(rest, size)):
        yield piece


def _padded(pieces: Sequence[Sequence[int]], pad: int) -> dict[str, Tensor]:
    """Right-padded to the longest, with a mask; without one where nothing is padded, so that kernels stay fused."""
    longest = max(map(len, pieces))
    ids = torch.tensor([[*p, *[pad] * (longest - len(p))] for p in pieces])
    if all(len(p) == longest for p in pieces):
        return {"input_ids": ids}
    mask = torch.tensor([[1] * len(p) + [0] * (longest - len(p)) for p in pieces])
    return {"input_ids": ids, "attention_mask": mask}
