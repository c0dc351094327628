"""Make batches of documents: texts, token ids or ready batches, one batch at a time.

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
from hashlib import blake2b
from itertools import islice
from typing import Any, cast

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from multihead._base.arguments import check_count, check_data, check_model, check_tokenizer, describe
from multihead._base.plural import plural
from multihead.corpus.accumulator import Inputs
from multihead.corpus.padding_check import PaddingCheck
from multihead.corpus.two_texts import Answers
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.model_inputs import documents_in, is_encoder_decoder, needed_inputs
from multihead.model.token_limit import learned_positions, token_limit

Document = str | Sequence[int] | Tensor | Mapping[str, Any]


class InputRow(dict[str, Any]):
    """A document of a model that reads no text: tensors with one row. Rows of equal shapes share a batch."""


BATCH_SIZE = 8
"""Documents of a batch, by default."""

WINDOW = 16
"""Batches whose documents are sorted by length among themselves, by default."""


@dataclass
class PaddingStats:
    """Tokens of some batches, their positions including padding, and the positions without sorting by length."""

    tokens: int = 0
    positions: int = 0
    unsorted: int = 0

    def about(self) -> dict[str, Any]:
        """As plain data: tokens, the share of padding, and the share without sorting."""
        padding, unsorted = (round(1 - self.tokens / n, 4) if n else 0.0 for n in (self.positions, self.unsorted))
        return {"tokens": self.tokens, "padding": padding, "padding_unsorted": unsorted}

    def merge(self, other: PaddingStats) -> None:
        self.tokens += other.tokens
        self.positions += other.positions
        self.unsorted += other.unsorted

    def __str__(self) -> str:
        about = self.about()
        return f"{about['padding']:.0%} padding; {about['padding_unsorted']:.0%} without sorting by length"


class SeenTexts:
    """Finds repeated texts; holds 8 bytes of each."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def add(self, data: bytes) -> bool:
        """Whether the same data came before."""
        digest = blake2b(data, digest_size=8).digest()
        repeated = digest in self._digests
        self._digests.add(digest)
        return repeated


@dataclass(frozen=True)
class Batching:
    """How documents become batches.

    Args:
        max_tokens: longer documents are cut into pieces of this length; default: the positions of the model.
        window: rows are sorted by length within this many batches, to pad less; 1 keeps the order of the documents.
        column: the column of a dataset's row that holds its text.
    """

    tokenizer: Any = None
    batch_size: int = BATCH_SIZE
    max_tokens: int | None = None
    window: int = WINDOW
    column: str = "text"

    def check(self, model: nn.Module) -> None:
        """Raise if a batching option is invalid, or does not fit the model."""
        check_model(model)
        check_tokenizer(self.tokenizer)
        check_count("batch_size", self.batch_size)
        check_count("window", self.window)
        limit = learned_positions(model)
        if self.max_tokens is None:
            return
        check_count("max_tokens", self.max_tokens)
        if limit and self.max_tokens > limit:
            raise SizeError(
                f"max_tokens must be at least 1 and at most {limit}, the positions of the model, got "
                f"{self.max_tokens}",
                hint=f"max_tokens={limit}",
            )


def batches(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    window: int = 1,
    column: str = "text",
) -> Iterator[Inputs]:
    """The inputs of `model(**inputs)`, on the model's device, from texts, lists of token ids or ready batches.

    A row is a document, or a piece of a longer one; rows are padded on the right. A model that takes no
    attention_mask, or ignores it, gets rows of one length: it would read padding as text. The same data gives the
    same batches in the same order. Documents without a token are skipped with a warning. An encoder–decoder reads
    one piece at a time, and its decoder what the model itself writes.
    """
    check_data(data)
    documents = [cast(Document, data)] if isinstance(data, Mapping) else data
    options = Batching(tokenizer, batch_size, max_tokens, window, column)
    options.check(model)
    return (inputs for inputs, _ in make_batches(model, ((d, False) for d in documents), options, required=True))


Made = tuple[Inputs, Bool[Tensor, " row"] | None]
"""The inputs of a batch, and its repeated rows."""


def make_batches(
    model: nn.Module,
    documents: Iterable[tuple[Document, bool]],
    options: Batching,
    *,
    padding: PaddingStats | None = None,
    seen: SeenTexts | None = None,
    check: PaddingCheck | None = None,
    answers: Answers | None = None,
    required: bool = False,
) -> Iterator[Made]:
    """Batches of (document, whether it is a repeat).

    `check` knows whether the model hides padding. `seen` finds repeated rows in ready batches. `answers` remembers
    what an encoder–decoder writes. `required`: an error if no document has a token.
    """
    options.check(model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    rows = _joined(_rows(model, documents, options, seen, answers or Answers(model)), options.batch_size)
    batches = _batched(rows, check or PaddingCheck(model), options, padding or PaddingStats())
    empty = batches_made = 0
    for batch in batches:
        if batch is None:
            empty += 1
            continue
        batches_made += 1
        yield {n: x.to(device) if isinstance(x, Tensor) else x for n, x in batch[0].items()}, batch[1]
    if required and not batches_made:
        raise no_tokens(empty)
    if empty:
        warnings.warn(f"skipped {plural(empty, 'document')} without a token", stacklevel=4)


def no_tokens(documents: int) -> MultiheadError:
    """The error for documents that make no batch."""
    return MultiheadError(
        "nothing to measure: "
        + (f"{plural(documents, 'document')} without a token" if documents else "no documents"),
        hint="data is an iterable of texts, lists of token ids, or batches; a generator can be read only once",
    )


@dataclass(frozen=True)
class _Row:
    ids: list[int]
    repeated: bool


def _rows(
    model: nn.Module,
    documents: Iterable[tuple[Document, bool]],
    options: Batching,
    seen: SeenTexts | None,
    answers: Answers,
) -> Iterator[Made | list[_Row]]:
    """Rows to batch: ready batches as they are; the pieces of other documents, checked."""
    vocabulary, two, needed = vocabulary_size(model), is_encoder_decoder(model), needed_inputs(model)
    longest = options.max_tokens or token_limit(model)
    for index, (document, repeated) in enumerate(documents):
        text = document.get(options.column) if isinstance(document, Mapping) else None
        content: Any = text if isinstance(text, str) else document
        if isinstance(content, Mapping):
            inputs = {n: torch.tensor([x]) if _is_list(x) else x for n, x in cast(Inputs, content).items()}
            inputs = InputRow(inputs) if isinstance(content, InputRow) else inputs
            rows = torch.ones(documents_in(inputs)).bool() if repeated else None
            yield inputs, rows if repeated or seen is None else _repeated_rows(inputs, seen)
            continue
        if needed[0] != "input_ids":
            raise TypeMismatchError(
                f"{type(model).__name__} reads {' and '.join(needed)}, document {index} is {describe(content)}",
                hint=f"pass batches: {{{', '.join(f'{name!r}: ...' for name in needed)}}}",
            )
        pieces = _pieces(content, options.tokenizer, index, longest)
        for i in (i for piece in pieces for i in piece):
            if vocabulary is not None and not 0 <= i < vocabulary:
                raise SizeError(
                    f"document {index} has the token id {i}, the model has embeddings for 0 to {vocabulary - 1}",
                    hint="use the model's own tokenizer",
                )
        if two and pieces:
            yield from ((answers.batch(piece), torch.tensor([True]) if repeated else None) for piece in pieces)
        else:
            yield [_Row(piece, repeated) for piece in pieces]


def _joined(rows: Iterable[Made | list[_Row]], size: int) -> Iterator[Made | list[_Row]]:
    """Rows to batch, with input rows of equal shapes joined to ready batches."""
    waiting: list[Made] = []

    def join() -> Iterator[Made]:
        if waiting:
            inputs = {name: torch.cat([one[name] for one, _ in waiting]) for name in waiting[0][0]}
            repeated = torch.tensor([flags is not None for _, flags in waiting])
            yield inputs, repeated if bool(repeated.any()) else None
            waiting.clear()

    for item in rows:
        if not isinstance(item, tuple) or not isinstance(item[0], InputRow):
            yield from join()
            yield item
            continue
        if len(waiting) == size or (waiting and _shapes(waiting[0][0]) != _shapes(item[0])):
            yield from join()
        waiting.append(item)
    yield from join()


def _shapes(inputs: Inputs) -> dict[str, Any]:
    return {name: x.shape for name, x in inputs.items()}


def _repeated_rows(inputs: Inputs, seen: SeenTexts) -> Bool[Tensor, " row"] | None:
    """Which rows of a ready batch are repeats, by their token ids without padding."""
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    others = [x for n, x in inputs.items() if isinstance(x, Tensor) and n not in ("input_ids", "attention_mask")]
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or others:
        return None
    real = mask.bool() if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids).bool()
    rows = [row[some] for row, some in zip(ids, real, strict=True)]
    repeated = torch.tensor([seen.add(row.long().cpu().numpy().tobytes()) for row in rows], dtype=torch.bool)
    return repeated if bool(repeated.any()) else None


def _batched(
    rows: Iterable[Made | list[_Row]], check: PaddingCheck, options: Batching, padding: PaddingStats
) -> Iterator[Made | None]:
    """Batches of rows that the model takes; None for a document without a token."""
    pad_id = getattr(options.tokenizer, "pad_token_id", None)
    size, waiting = options.batch_size, list[_Row]()

    def flush(some: list[_Row]) -> Iterator[Made]:
        """Make batches of the pending rows, sorted by length."""
        padding.unsorted += sum(_positions(some[i : i + size]) for i in range(0, len(some), size))
        ordered = sorted(some, key=lambda row: len(row.ids)) if options.window > 1 else some
        chunks = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        mixed = any(len(_of_one_length(chunk)) > 1 for chunk in chunks)
        pads = mixed and check.may_pad([row.ids for row in some])
        for chunk in chunks:
            for batch in [chunk] if pads else _of_one_length(chunk):
                padding.positions += _positions(batch)
                padding.tokens += sum(len(row.ids) for row in batch)
                repeated = torch.tensor([row.repeated for row in batch])
                inputs = padded([row.ids for row in batch], 0 if pad_id is None else pad_id)
                yield inputs, repeated if bool(repeated.any()) else None

    for item in rows:
        if isinstance(item, tuple):
            yield item
            continue
        if not item:
            yield None
        waiting += item
        while len(waiting) >= size * options.window:
            yield from flush(waiting[: size * options.window])
            waiting = waiting[size * options.window :]
    yield from flush(waiting)


def _of_one_length(rows: Sequence[_Row]) -> list[list[_Row]]:
    """The rows of a batch by length, lengths in the order of their first row."""
    by_length: dict[int, list[_Row]] = {}
    for row in rows:
        by_length.setdefault(len(row.ids), []).append(row)
    return list(by_length.values())


def _positions(rows: Sequence[_Row]) -> int:
    return len(rows) * max((len(row.ids) for row in rows), default=0)


def vocabulary_size(model: nn.Module) -> int | None:
    """The number of token ids that the model has embeddings for, if known."""
    try:
        table: Any = cast(Any, model).get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    size = getattr(table, "num_embeddings", None)
    return size if isinstance(size, int) else None


def _is_list(x: object) -> bool:
    return isinstance(x, list) and all(isinstance(i, int) for i in x)


def _pieces(document: Any, tokenizer: Any, index: int, longest: int | None) -> list[list[int]]:
    """The token ids of a document in pieces of at most `longest`; none of an empty one.

    A fast tokenizer puts its special tokens around every piece; others put them around the whole document.
    """
    if isinstance(document, str) and longest is not None and getattr(tokenizer, "is_fast", False):
        special: int = tokenizer.num_special_tokens_to_add()
        if longest <= special:
            raise SizeError(
                f"max_tokens must be more than the {special} special tokens of every piece, got {longest}",
                hint=f"max_tokens={special + 1} is the smallest",
            )
        encoded = tokenizer(document, truncation=True, max_length=longest, return_overflowing_tokens=True)
        return [list(piece) for piece in encoded["input_ids"] if piece]
    ids = iter(token_ids(document, tokenizer, index))
    pieces: list[list[int]] = []
    while piece := list(islice(ids, longest)):
        pieces.append(piece)
    return pieces


def token_ids(document: Any, tokenizer: Any, index: int) -> list[int]:
    """The token ids of a whole document; messages name it by `index`."""
    if isinstance(document, str):
        if tokenizer is None:
            raise MultiheadError(f"document {index} is text, and no tokenizer is given", hint="pass tokenizer=...")
        return list(tokenizer(document, verbose=False)["input_ids"])
    is_tensor_of_ids = (
        isinstance(document, Tensor) and not document.is_floating_point() and document.dtype != torch.bool
    )
    if is_tensor_of_ids and document.ndim == 1:
        return document.tolist()
    if isinstance(document, Sequence) and not isinstance(document, bytes | bytearray):
        ids: list[int] = [i for i in document if isinstance(i, int) and not isinstance(i, bool)]
        if len(ids) == len(document):
            return ids
    raise TypeMismatchError(
        f"document {index} must be a text, a list of token ids or a batch, got {describe(document)}",
        hint="a batch is a mapping with the arguments of the model's forward",
    )


def padded(rows: Sequence[Sequence[int]], pad_id: int) -> dict[str, Tensor]:
    """A batch of rows, right-padded. No mask where nothing is padded, so that kernels stay fused."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows])
    if all(len(row) == longest for row in rows):
        return {"input_ids": ids}
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}
