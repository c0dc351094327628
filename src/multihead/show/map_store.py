"""The texts of a served page and the maps of their heads; q, k and v of recent layers are cached.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.show.map_store import MapStore
>>> store = MapStore(GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval())
>>> texts, layers = store.add([[3, 1, 4, 1, 5], [9, 2, 6]])
>>> [text.name for text in texts], store.head_map(1, "L1", 2).row(2).shape
(['3 1 4 1 5', '9 2 6'], torch.Size([3]))
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.batches import Document
from multihead.corpus.two_texts import decoder_ids, two_texts
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward, StopForward
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.sites import Key, Sites
from multihead.model.token_limit import learned_positions, token_limit
from multihead.show.map_or_qk import StoredMap, head_norms
from multihead.show.map_tiles import HeadMap
from multihead.show.text_maps import (
    ShownLayer,
    ShownText,
    TextLayer,
    TextWindow,
    output_projections,
    shown_text,
    title,
    windows_of,
)
from multihead.show.tokens import Words

CACHE_BYTES = 512_000_000
"""Bytes of q, k and v that are cached; at least those of one layer."""

LONGEST_WINDOW = 16_384
"""Tokens of a text that are shown at once by default, if the model has as many positions."""

MAX_WINDOWS = 256
"""Windows of texts that are kept, as token ids; beyond these the oldest are evicted."""


def window_length(model: nn.Module, context: int | None = None) -> int:
    """Tokens of a served text that are shown at once: `context`, or by default the positions of the model."""
    learned = learned_positions(model)
    if context is not None and learned is not None and context > learned:
        raise SizeError(
            f"context must be at most {learned}, the positions of this {type(model).__name__}, got {context}",
            hint="longer texts are shown in windows; omit it",
        )
    return context or min(LONGEST_WINDOW, token_limit(model) or LONGEST_WINDOW)


@dataclass(frozen=True)
class _Entry:
    window: TextWindow
    data: ShownText


class MapStore:
    """Texts and maps that a served page asks for. The model runs once at a time; maps are computed in parallel.

    A text is a window of a document. It has a number, `at` in its data, that is never used again.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        max_tokens: int | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.model, self.tokenizer, self.max_tokens, self.cache_bytes = model, tokenizer, max_tokens, cache_bytes
        self.output_projections, self.why = output_projections(model)
        self.layers: tuple[ShownLayer, ...] = ()
        self._texts: OrderedDict[int, _Entry] = OrderedDict()
        self._next = self._sources = 0
        self._cache: OrderedDict[tuple[int, Key], Problem] = OrderedDict()
        self._forward = Forward(model)
        self._running, self._adding = Lock(), Lock()
        self.runs = 0
        """of the model, so far"""

    # ---- texts ----------------------------------------------------------------------------------

    @property
    def texts(self) -> tuple[ShownText, ...]:
        """Every window of every text."""
        return tuple(entry.data for entry in list(self._texts.values()))

    def text(self, number: int) -> ShownText:
        return self._entry(number).data

    def window(self, number: int) -> TextWindow:
        return self._entry(number).window

    @property
    def reads(self) -> tuple[str, ...]:
        """What can be typed into the served page: "text", and for the decoder of an encoder–decoder "decoder"."""
        if self.tokenizer is None:
            return ()
        text = getattr(self.model, "main_input_name", "input_ids") == "input_ids"
        return (*(["text"] if text else []), *(["decoder"] if is_encoder_decoder(self.model) else []))

    def document(self, text: str | int, decoder: str | None = None) -> Document:
        """A request to the served page (typed text, or the number of a stored text) as a document.

        The caller runs the model `alone`.
        """
        if isinstance(text, str) and "text" not in self.reads:
            reads = getattr(self.model, "main_input_name", "batches")
            reason = "it has no tokenizer" if self.tokenizer is None else f"it reads {reads}"
            raise MultiheadError(
                f"{type(self.model).__name__} cannot read a text: {reason}",
                hint="send the number of an input of the page",
            )
        if decoder is not None and "decoder" not in self.reads:
            raise MultiheadError(
                f"decoder must be omitted: {type(self.model).__name__} has no decoder that reads a second text",
                hint="send the text alone",
            )
        if isinstance(text, str):
            two = "decoder" in self.reads
            return two_texts(self.model, self.tokenizer, text, decoder) if two else text
        window = self.window(text)
        if decoder is None:
            return window.batch
        batch = {n: x for n, x in window.batch.items() if n not in ("labels", "decoder_attention_mask")}
        return batch | {"decoder_input_ids": decoder_ids(self.model, self.tokenizer, decoder)}

    def add_typed(self, text: str | int, decoder: str | None = None) -> list[ShownText]:
        """Add what was typed on the page. Returns its windows."""
        if isinstance(text, int) and decoder is None:
            raise MultiheadError("decoder is missing: the text is on the page already", hint="send its words")
        with self.alone():
            document = self.document(text, decoder)
        name = text if isinstance(text, str) else self.text(text).name
        with self._adding:
            return self._add_document(document, name)

    def add(self, documents: Sequence[Document]) -> tuple[list[ShownText], tuple[ShownLayer, ...]]:
        """Add documents. Returns their windows, and the attentions that ran."""
        with self._adding:
            return [text for document in documents for text in self._add_document(document)], self.layers

    def _add_document(self, document: Document, name: str | None = None) -> list[ShownText]:
        """Store a document as texts of the page, one per window."""
        windows = windows_of(self.model, document, tokenizer=self.tokenizer, max_tokens=self.max_tokens)
        if len(windows) > MAX_WINDOWS:
            raise SizeError(
                f"a text must fit into {MAX_WINDOWS} windows of {windows[0].longest} tokens, got {len(windows)}",
                hint="show a part of it",
            )
        shapes = self._shapes_of(windows[0])
        texts = [self._add_window(window, shapes, name) for window in windows]
        self._sources += 1
        while len(self._texts) > MAX_WINDOWS:
            self._texts.popitem(last=False)
        return texts

    def _add_window(self, window: TextWindow, shapes: Sequence[ShownLayer], name: str | None) -> ShownText:
        """Store a window of a text with its maps."""
        count = len(next((x[0] for n, x in window.batch.items() if n == "input_ids"), ()))
        if count and window.at:  # the last window may be shorter than the first, whose sizes are known
            first = shapes[0].queries
            shapes = [replace(s, queries=count, keys=count) if s.queries == s.keys == first else s for s in shapes]
        layers = [
            TextLayer(s.site.label, s.queries, s.keys, (StoredMap(served=True),) * s.site.heads) for s in shapes
        ]
        lengths = "W_O v" if self.output_projections else "v"
        data = shown_text(window, shapes, layers, self.tokenizer, lengths)
        if name is not None:
            data = replace(data, name=title(name))
        elif data.sequences and data.sequences[0] == Words.positions(data.tokens):
            data = replace(data, name=f"input {self._next + 1}")  # an image or a sound has no words
        data = replace(data, source=self._sources, number=self._next)
        self._texts[self._next] = _Entry(window, data)
        self._next += 1
        return data

    def _entry(self, number: int) -> _Entry:
        """A stored text; raises if it was dropped."""
        entry = self._texts.get(number)
        if entry is None:
            raise SizeError(
                f"there is no text {number}: texts are {next(iter(self._texts), 0)} to {self._next - 1}",
                hint="old texts are dropped for new ones: reload the page, and send the text again",
            )
        return entry

    # ---- maps -----------------------------------------------------------------------------------

    def head_map(
        self,
        text: int,
        label: str,
        head: int,
        *,
        norm: bool = False,
        hide: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> HeadMap:
        """The map of a head on a text. `norm`: weighted by the norm of each key's contribution. `hide`: without
        special tokens."""
        entry, problem = self._entry(text), self.problem(text, label)
        _check_head(problem, head)
        factor = self.norms(text, label, head) if norm else None
        if hide:
            layer = next(layer for layer in entry.data.layers if layer.label == label)
            special = torch.tensor(entry.data.sequences[layer.columns].special)
            factor = torch.ones(problem.coordinates.keys) if factor is None else factor
            factor = factor.masked_fill(special, 0.0)
        return HeadMap(problem, head, factor, stopped)

    def norms(self, text: int, label: str, head: int) -> Float[Tensor, " key"]:
        """‖W_O v‖ of every key of a stored text, or ‖v‖ where W_O is not known."""
        problem = self.problem(text, label)
        _check_head(problem, head)
        projections = self.output_projections.get(label)
        return head_norms(problem, head, None if projections is None else projections[head])

    def problem(self, text: int, label: str) -> Problem:
        """q, k and v of a layer on a stored text: cached, or from a run of the model up to that layer."""
        entry, site = self._entry(text), self._forward.sites.layer(label)
        with self._running:
            if (text, site.key) not in self._cache:
                self._run_to(text, entry.window, site.key)
            self._cache.move_to_end((text, site.key))
            return self._cache[text, site.key]

    # ---- runs of the model ----------------------------------------------------------------------

    @property
    def sites(self) -> Sites:
        """The attentions that have run so far."""
        return self._forward.sites

    @contextmanager
    def alone(self) -> Generator[Forward]:
        """Inside the block no other request runs the model, so its heads may be changed for it."""
        with self._running:
            yield self._forward

    def _shapes_of(self, window: TextWindow) -> list[ShownLayer]:
        """The attentions that run on a stored text. Their q, k and v are cached."""
        shapes: list[ShownLayer] = []
        number = self._next

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            shapes.append(ShownLayer.of(call.site, call.problem))
            self._put(number, call.key, call.problem)
            return compute()

        with self._running:
            self._forward(window.batch, listen)
            self.runs += 1
        self.layers = self.layers or tuple(shapes)
        return shapes

    def _run_to(self, text: int, window: TextWindow, last: Key) -> None:
        """Run the model on a stored text up to an attention; q, k and v of every one on the way are cached."""

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            """Cache q, k and v of an attention; stop the run after the last one needed."""
            self._put(text, call.key, call.problem)
            if call.key == last:
                raise StopForward
            return compute()

        self._forward(window.batch, listen)
        self.runs += 1

    def _put(self, text: int, key: Key, problem: Problem) -> None:
        """Cache q, k and v of a stored text as the latest; the least recently used make room."""
        q, k, v = (x.detach().clone() for x in (problem.q, problem.k, problem.v))
        self._cache[text, key] = replace(problem, q=q, k=k, v=v)
        self._cache.move_to_end((text, key))
        while len(self._cache) > 1 and self.cached > self.cache_bytes:
            self._cache.popitem(last=False)

    @property
    def cached(self) -> int:
        """Bytes of q, k and v."""
        return sum(x.numel() * x.element_size() for p in self._cache.values() for x in (p.q, p.k, p.v))


def _check_head(problem: Problem, head: int) -> None:
    heads = problem.coordinates.heads
    if not 0 <= head < heads:
        raise SizeError(f"head must be below {heads}, got {head}", hint="heads are counted from 0")
