"""The text of a calibration: documents as token ids, split into text to fit to and held-out text, in batches."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from multihead._base.plural import plural
from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import BATCH_SIZE, Batching, Document, batches, make_batches
from multihead.corpus.padding_check import PaddingCheck
from multihead.errors import ModelRunError, SizeError
from multihead.model.forward import Forward
from multihead.model.model_inputs import documents_in, is_encoder_decoder, rows_of

BATCH_TOKENS = 2048
"""A batch holds no more, padding included, unless one document does."""
BATCH_DOCUMENTS = 64
"""A batch of short documents holds no more, if no batch size is given."""


def read_pieces(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    tokenizer: Any,
    piece: int,
    batch_size: int | None,
) -> tuple[list[list[list[int]]], list[Inputs]]:
    """Calibration documents as token ids, in pieces of at most `piece` tokens, and ready batches."""
    texts: list[Any] = []
    ready: list[Any] = []
    for document in [data] if isinstance(data, Mapping) else data:
        is_batch = isinstance(document, Mapping) and not isinstance(document.get("text"), str)
        (ready if is_batch or is_encoder_decoder(model) else texts).append(document)
    if ready:
        size = batch_size or BATCH_SIZE  # an image may have hundreds of tokens
        ready = list(batches(model, ready, tokenizer=tokenizer, batch_size=size, max_tokens=piece))
    pieces: dict[int, list[list[int]]] = {}
    index = -1

    def read() -> Iterator[Any]:
        nonlocal index
        for index, text in enumerate(texts):  # noqa: B007  # batches of one row: all pieces come before the next text
            yield text

    if texts or not ready:
        for batch in batches(model, read(), tokenizer=tokenizer, batch_size=1, max_tokens=piece):
            pieces.setdefault(index, []).append(batch["input_ids"][0].tolist())
    return list(pieces.values()), ready


Pieces = list[list[int]]
"""The token ids of one document, in pieces."""


def joined(pieces: Pieces) -> list[int]:
    return [token for piece in pieces for token in piece]


def distinct_documents(documents: Sequence[Pieces]) -> list[Pieces]:
    """Every calibration document once: a held-out copy of a fitted document would judge nothing."""
    distinct = list({tuple(map(tuple, document)): document for document in reversed(documents)}.values())[::-1]
    if len(distinct) < len(documents):
        copies = len(documents) - len(distinct)
        warnings.warn(f"{copies} of {len(documents)} calibration documents are copies", stacklevel=3)
    return distinct


def fit_and_held_out(
    documents: Sequence[Pieces], share: float, draw: random.Random, ready: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Calibration rows to fit and held-out rows, of different documents; one document alone is cut in two."""
    if len(documents) == 1 and not ready:
        return _two_parts(documents[0], share)
    mixed = list(documents)
    draw.shuffle(mixed)
    held = min(max(1, round(share * len(mixed))), len(mixed) - 1) if len(mixed) > 1 else 0
    return [row for d in mixed[held:] for row in d], [row for d in mixed[:held] for row in d]


def _two_parts(pieces: Pieces, share: float) -> tuple[list[list[int]], list[list[int]]]:
    """The beginning of a calibration document, to fit to, and its end, held out."""
    tokens = sum(map(len, pieces))
    if tokens < 4:
        raise SizeError(
            f"the calibration text is one document of {plural(tokens, 'token')}",
            hint="pass at least 4 tokens; thousands are better",
        )
    left = tokens - max(1, round(share * tokens))
    fit: list[list[int]] = []
    held: list[list[int]] = []
    for piece in pieces:
        fit += [piece[:left]] if left > 0 else []
        held += [piece[max(left, 0) :]] if left < len(piece) else []
        left -= len(piece)
    return fit, held


def ready_fit_and_held_out(
    ready: Sequence[Inputs], share: float, draw: random.Random, judged: bool, whole: str
) -> tuple[list[Inputs], list[Inputs]]:
    """Of many ready batches some are held out; of few, some rows of each, unless they must stay `whole`."""
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
        fit.append(rows_of(batch, slice(held, None), count))
        out += [rows_of(batch, slice(held), count)] if held else []
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


def why_whole(model: nn.Module, ready: Sequence[Inputs]) -> str:
    """Why rows of ready calibration batches are not documents: patches of images, or frames of a video."""
    for batch in ready:
        count = documents_in(batch)
        if any(x.shape[0] not in (1, count) for x in batch.values() if isinstance(x, Tensor) and x.ndim):
            return "its tensors have no row for every document"
    forward = Forward(model)
    for batch in ready[:1]:
        try:
            forward(rows_of(batch, slice(1), documents_in(batch)))
        except ModelRunError as error:
            forward(batch)  # raises if the row is not at fault
            return f"a row alone does not run: {error.message}"
    return ""


def batched(
    model: nn.Module, rows: Sequence[list[int]], tokenizer: Any, batch_size: int | None, draw: random.Random
) -> list[Inputs]:
    """Calibration batches of rows of similar length, equal if the model ignores padding masks, in a drawn order."""
    if not rows:
        return []
    left, drawn, check = sorted(rows, key=len, reverse=True), list[Inputs](), PaddingCheck(model)
    one_length = len(left[0]) == len(left[-1])
    while left:
        count = max(1, min(batch_size or BATCH_DOCUMENTS, BATCH_TOKENS // len(left[0])))
        if not one_length and not check.may_pad(left):
            count = min(count, sum(len(row) == len(left[0]) for row in left))
        options = Batching(tokenizer, count, window=1)
        some = make_batches(model, ((row, False) for row in left[:count]), options, check=check)
        drawn += [inputs for inputs, _ in some]
        left = left[count:]
    draw.shuffle(drawn)
    return drawn
