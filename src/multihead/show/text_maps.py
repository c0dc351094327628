"""The texts of a report: their tokens, and the attention of every head on them.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.show.encode import BlobTable
>>> from multihead.show.text_maps import TextMaps, read_text
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> maps = TextMaps(BlobTable())
>>> read_text(model, [3, 1, 4, 1, 5], maps).sequences[0].shown, len(maps.shapes)
(['3', '1', '4', '1', '5'], 2)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs
from multihead.corpus.batches import Document, batches
from multihead.corpus.language import CHARACTERS, unknown_words
from multihead.corpus.run import BatchRunner
from multihead.layer import Problem
from multihead.measures.similarity.ov_circuits import OVWeights, find_weights
from multihead.model.call import Call
from multihead.model.capture import Capture
from multihead.model.kept_tensors import Keep
from multihead.model.sites import Site
from multihead.model.token_limit import learned_positions, token_limit
from multihead.show.encode import BlobTable, singles_text
from multihead.show.map_or_qk import Storage, StoredMap, head_norms, last_problem, store_heads
from multihead.show.tokens import Words, show_control_chars

NOT_TOKENS = ("attention_mask", "token_type_ids", "position_ids", "labels")
"""Inputs of integers that are not token ids."""

TITLE = 60
"""Characters of a text that name it."""

MOST_UNKNOWN = 8
"""Unknown words that are named."""


# ---- texts as they are shown ------------------------------------------------------------------


@dataclass(frozen=True)
class TextLayer:
    """The maps of a layer on one text."""

    label: str
    queries: int
    keys: int
    heads: tuple[StoredMap | None, ...]
    norms: int | None = None
    """the blob with the lengths that weight norm-weighted maps"""
    rows: int = 0
    """the index of the sequence along the rows"""
    columns: int = 0

    def to_json(self) -> dict[str, Any]:
        heads = [None if head is None else head.to_json() for head in self.heads]
        return {**vars(self), "heads": heads}


@dataclass(frozen=True)
class ShownText:
    """A text whose maps are shown, or one window of it."""

    name: str
    note: str
    """which window it is, and which words the model does not have"""
    window: tuple[int, int]
    """index, of how many"""
    sequences: tuple[Words, ...]
    layers: tuple[TextLayer, ...]
    lengths: str
    """the vector whose length weights norm-weighted maps: "W_O v" or "v" """
    source: int = 0
    """windows of one text have the same"""
    number: int | None = None
    """of a served text"""

    @property
    def tokens(self) -> int:
        return len(self.sequences[0].shown) if self.sequences else 0

    def to_json(self) -> dict[str, Any]:
        """A shown text as the page has it."""
        data = {n: x for n, x in vars(self).items() if n not in ("number", "sequences", "layers")}
        data |= {"sequences": [asdict(s) for s in self.sequences], "layers": [x.to_json() for x in self.layers]}
        return data | ({} if self.number is None else {"at": self.number})


@dataclass(frozen=True)
class ShownLayer:
    """One attention that ran, and the sizes it ran with."""

    site: Site
    queries: int
    keys: int
    key_dim: int
    kv_of_head: tuple[int, ...]

    @staticmethod
    def of(site: Site, problem: Problem) -> ShownLayer:
        size = problem.coordinates
        return ShownLayer(site, size.queries, size.keys, problem.q.shape[3], tuple(problem.groups.kv_of_head))

    @property
    def kv_heads(self) -> int:
        return len(set(self.kv_of_head))

    def to_json(self) -> dict[str, Any]:
        """A layer of a shown text as the page has it."""
        site = self.site
        return {
            "label": site.label,
            "stack": site.stack,
            "layer": site.layer,
            "heads": site.heads,
            "cross": site.cross,
            "dim": self.key_dim,
            "kv": self.kv_heads,
            "kv_of_head": list(self.kv_of_head),
        }


# ---- windows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextWindow:
    """A document, or a piece of it that the model can read: number `at` of `count`, of at most `longest` tokens."""

    document: Document
    batch: Inputs
    at: int
    count: int
    longest: int | None

    @property
    def note(self) -> str:
        return "" if self.count == 1 else f"window {self.at + 1} of {self.count}, of {self.longest} tokens each"


def windows_of(
    model: nn.Module, document: Document, *, tokenizer: Any = None, max_tokens: int | None = None
) -> list[TextWindow]:
    """The text as one window of maps, or as several if it is longer than the model or `max_tokens` allow."""
    longest = token_limit(model) if max_tokens is None else max_tokens
    longest = min((n for n in (learned_positions(model), longest) if n is not None), default=None)
    pieces = list(batches(model, [document], tokenizer=tokenizer, batch_size=1, max_tokens=longest))
    first = [{n: x[:1] if isinstance(x, Tensor) and x.ndim else x for n, x in piece.items()} for piece in pieces]
    return [TextWindow(document, batch, at, len(first), longest) for at, batch in enumerate(first)]


def long_text(name: str, windows: Sequence[TextWindow], stored: int) -> str:
    """Which windows of a text are in the page, for a text that is longer than the model can read."""
    some = "all" if len(windows) == stored else "the first" if stored == 1 else f"the first {stored}"
    return (
        f"“{name}” is longer than the model can read at once: {len(windows)} windows, {some} "
        f"{'is' if stored == 1 else 'are'} in the page"
    )


# ---- maps -------------------------------------------------------------------------------------


def output_projections(model: nn.Module) -> tuple[dict[str, list[Tensor]], str]:
    """W_O of every head, by layer, for maps weighted by norm; or an empty dict, and why."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = find_weights(model)
    return written_by(weights), weights.reason


def written_by(weights: OVWeights) -> dict[str, list[Tensor]]:
    """W_O of every head, by layer; empty if the weights were not found."""
    return {layer.name: list(layer.W_O) for layer in weights.layers.values()}


def encode_maps(
    heads: Capture,
    blobs: BlobTable,
    *,
    writes: Mapping[str, Sequence[Tensor]] | None = None,
    only: Storage | None = None,
    chosen: Sequence[str] | None = None,
) -> list[TextLayer]:
    """Store the maps of every head in a capture of one text (keep="qk v").

    Args:
        writes: W_O of every head by layer, for norm-weighted maps.
        only: "maps" or "qk", instead of the smaller.
        chosen: the heads whose maps are stored; default: all.
    """
    layers: list[TextLayer] = []
    for site in heads.sites:
        problem = last_problem(heads, site)
        size = problem.coordinates
        wanted = [h for h in range(size.heads) if chosen is None or site.name(h) in chosen]
        norms = None
        if problem.v.shape[3] and size.batch == 1:
            written = (writes or {}).get(site.label, [None] * size.heads)
            lengths = [head_norms(problem, h, w_o) for h, w_o in enumerate(written)]
            norms = blobs.add(singles_text(torch.cat(lengths)))
        stored = store_heads(problem, wanted, blobs, only)
        layers.append(TextLayer(site.label, size.queries, size.keys, tuple(stored), norms))
    return layers


class TextMaps(Accumulator):
    """The attention of every head on windows of texts, each encoded when its forward ends: one is held at a time.

    Args:
        blobs: where the encoded maps are added.
        writes, only, chosen: as for `encode_maps`.
    """

    name = "maps"
    sharded = True

    def __init__(
        self,
        blobs: BlobTable,
        *,
        writes: Mapping[str, Sequence[Tensor]] | None = None,
        only: Storage | None = None,
        chosen: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.writes = writes
        self._encode = partial(encode_maps, blobs=blobs, writes=writes, only=only, chosen=chosen)
        self.layers: list[TextLayer] = []
        """of the last window"""
        self.shapes: list[ShownLayer] = []
        """of the last window"""
        self._capture = _empty_capture()

    def add(self, call: Call, out: HeadOutputs) -> None:
        self._capture.add(call, out)

    def end(self, batch: Batch, run: BatchRun) -> None:
        heads, self._capture = self._capture, _empty_capture()
        self.layers = self._encode(heads)
        self.shapes = [ShownLayer.of(site, last_problem(heads, site)) for site in heads.sites]

    def text(self, window: TextWindow, tokenizer: Any = None) -> ShownText:
        """The last window."""
        return shown_text(window, self.shapes, self.layers, tokenizer, "W_O v" if self.writes else "v")


def _empty_capture() -> Capture:
    return Capture(None, Keep.of("qk v"))


def read_text(
    model: nn.Module, document: Document | TextWindow, maps: TextMaps, *, tokenizer: Any = None
) -> ShownText:
    """Run the model on a text for its maps: on a window, or on the first window of a document."""
    window = document if isinstance(document, TextWindow) else windows_of(model, document, tokenizer=tokenizer)[0]
    BatchRunner(model, [maps]).run(Batch(window.batch))
    return maps.text(window, tokenizer)


# ---- tokens -----------------------------------------------------------------------------------


def shown_text(
    window: TextWindow, shapes: Sequence[ShownLayer], layers: Sequence[TextLayer], tokenizer: Any, lengths: str
) -> ShownText:
    """A text with maps: a window's tokens, and the sequences along rows and columns of each layer's maps."""
    text = window.document if isinstance(window.document, str) else None
    sequences, sides = _sequences(window, shapes, tokenizer, text)
    placed = [replace(x, rows=rows, columns=columns) for x, (rows, columns) in zip(layers, sides, strict=True)]
    name = (text if text is not None else " ".join(sequences[0].shown)) if sequences else "a text"
    notes = (
        window.note,
        _longer_than_trained(window, tokenizer),
        "" if text is None else _unknown(tokenizer, text),
    )
    note = "; ".join(filter(None, notes))
    return ShownText(title(name), note, (window.at, window.count), tuple(sequences), tuple(placed), lengths)


def _longer_than_trained(window: TextWindow, tokenizer: Any) -> str:
    """The length that the tokenizer names for its model, if the text of the maps is longer."""
    limit, ids = getattr(tokenizer, "model_max_length", None), window.batch.get("input_ids")
    if not isinstance(limit, int) or not isinstance(ids, Tensor) or ids.shape[1] <= limit:
        return ""
    return f"the model was trained on texts of at most {limit:,} tokens, this one has {ids.shape[1]:,}"


def _unknown(tokenizer: Any, text: str) -> str:
    """The first words of a text with maps that the tokenizer does not have."""
    words = unknown_words(tokenizer, text[:CHARACTERS])
    if not words:
        return ""
    token = tokenizer.convert_ids_to_tokens([tokenizer.unk_token_id])[0]
    more = ", …" if len(words) > MOST_UNKNOWN else ""
    shown = ", ".join(f"“{show_control_chars(word)}”" for word in words[:MOST_UNKNOWN])
    return f"the model reads {token} for words that it does not have: {shown}{more}"


def title(text: str) -> str:
    """The beginning of a text, which names it."""
    line = show_control_chars(" ".join(text.split()))
    return line if len(line) <= TITLE else f"{line[: TITLE - 1].rstrip()}…"


def _sequences(
    window: TextWindow, shapes: Sequence[ShownLayer], tokenizer: Any, text: str | None
) -> tuple[list[Words], list[tuple[int, int]]]:
    """The sequences of a text, and the indices of those along the rows and columns of each layer's maps."""
    ids = {
        n: x[0].tolist()
        for n, x in window.batch.items()
        if isinstance(x, Tensor) and x.ndim == 2 and not x.is_floating_point() and n not in NOT_TOKENS
    }
    words: dict[tuple[str, int], Words] = {}

    def side(count: int, decoding: bool) -> tuple[str, int]:
        """The sequence along one side of a layer's maps."""
        order = sorted(ids, key=lambda n: ("decoder" in n) != decoding)
        name = next((n for n in order if len(ids[n]) == count), "")
        if (name, count) not in words:
            if name:
                source = text if len(ids) == 1 else None
                words[name, count] = Words.of(
                    ids[name], tokenizer, source, longest=window.longest, window=window.at
                )
            else:
                words[name, count] = Words.positions(count)
        return name, count

    sides: list[tuple[tuple[str, int], tuple[str, int]]] = []
    for shape in shapes:
        site = shape.site
        late = "decoder" in site.stack.split("_") or site.cross
        sides.append((side(shape.queries, late), side(shape.keys, late and not site.cross)))
    index = {key: i for i, key in enumerate(words)}
    return list(words.values()), [(index[rows], index[columns]) for rows, columns in sides]
