"""The texts of a page: their tokens, and the attention of every head on them.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.page.attended import Lines
>>> from multihead.page.texts import TextMaps, read_text
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> text = read_text(model, [3, 1, 4, 1, 5], TextMaps(Lines()))
>>> text.data["sequences"][0]["shown"], len(text.sites)
(['3', '1', '4', '1', '5'], 2)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs
from multihead.corpus.batches import Document, batches, default_max_tokens
from multihead.corpus.run import BatchRunner
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.layer._coordinates import Coordinates
from multihead.model.anatomy import anatomy
from multihead.model.call import Call
from multihead.model.call_tokens import learned_positions
from multihead.model.capture import Capture
from multihead.model.keep import Keep
from multihead.model.sites import Site
from multihead.page.attended import Lines, attended, last_problem
from multihead.page.words import Words, clear

BESIDE = ("attention_mask", "token_type_ids", "position_ids", "labels")
TITLE = 60
"""Characters of a text that name it."""


@dataclass(frozen=True)
class Text:
    """One text as the page has it, and the attentions that ran on it."""

    data: dict[str, Any]
    sites: list[dict[str, Any]]


def written_with(model: nn.Module) -> tuple[dict[str, list[Tensor]], str]:
    """W_O of every head by layer; or none, and why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            layers = anatomy(model)
        for layer in layers:
            layer.require("the size of what a head writes", ungated=True)
        return {layer.name: list(layer.W_O) for layer in layers}, ""
    except MultiheadError as refused:
        return {}, refused.message.partition("\n")[0]


@dataclass(frozen=True)
class Window:
    """A document, or a piece of it that a model takes at once: number `at` of `count`, of `longest` tokens."""

    document: Document
    batch: Inputs
    at: int
    count: int
    longest: int | None

    @property
    def note(self) -> str:
        """Which piece it is."""
        return "" if self.count == 1 else f"window {self.at + 1} of {self.count}, of {self.longest} tokens each"


def windows_of(
    model: nn.Module, document: Document, *, tokenizer: Any = None, max_tokens: int | None = None
) -> list[Window]:
    """The whole document; of one longer than the model or `max_tokens` allow, its pieces one after another."""
    longest = default_max_tokens(model) if max_tokens is None else max_tokens
    longest = min((n for n in (learned_positions(model), longest) if n is not None), default=None)
    pieces = list(batches(model, [document], tokenizer=tokenizer, batch_size=1, max_tokens=longest))
    first = [{n: x[:1] if isinstance(x, Tensor) and x.ndim else x for n, x in piece.items()} for piece in pieces]
    return [Window(document, batch, at, len(first), longest) for at, batch in enumerate(first)]


class TextMaps(Accumulator):
    """The attention of every head on windows of texts, each encoded when its forward ends: one is held at a time.

    Args:
        lines: where the encoded maps are added.
        writes: W_O of every head by layer, for norm-weighted attention.
        only: "maps" or "qk", instead of the smaller.
        chosen: the heads whose maps are kept; default: all.
    """

    name = "maps"
    sharded = True

    def __init__(
        self,
        lines: Lines,
        *,
        writes: Mapping[str, Sequence[Tensor]] | None = None,
        only: str | None = None,
        chosen: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.lines, self.writes, self.only, self.chosen = lines, writes, only, chosen
        self.layers: list[dict[str, Any]] = []
        """every layer of the last window as the page has it"""
        self.shapes: list[Shape] = []
        self._capture = _empty_capture()

    def add(self, call: Call, out: HeadOutputs) -> None:
        self._capture.add(call, out)

    def end(self, batch: Batch, run: BatchRun) -> None:
        heads, self._capture = self._capture, _empty_capture()
        self.layers = attended(heads, self.lines, writes=self.writes, only=self.only, chosen=self.chosen)
        problems = [(site, last_problem(heads, site)) for site in heads.sites]
        self.shapes = [Shape.of(site, x.coordinates, x.groups, x.q.shape[3]) for site, x in problems]

    def text(self, window: Window, tokenizer: Any = None) -> Text:
        """The last window."""
        data = text_data(window, self.shapes, self.layers, tokenizer, "W_O v" if self.writes else "v")
        return Text(data, [shape.site() for shape in self.shapes])


def _empty_capture() -> Capture:
    return Capture(None, Keep.of("qk v"))


def read_text(model: nn.Module, document: Document | Window, maps: TextMaps, *, tokenizer: Any = None) -> Text:
    """Run the model on a document, or on the first window of a long one."""
    window = document if isinstance(document, Window) else windows_of(model, document, tokenizer=tokenizer)[0]
    BatchRunner(model, [maps]).run(Batch(window.batch))
    return maps.text(window, tokenizer)


@dataclass(frozen=True)
class Shape:
    """One attention that ran: its place, and how large it was."""

    place: Site
    queries: int
    keys: int
    dim: int
    kv: int
    groups: tuple[int, ...]
    """the kv head of each head"""

    @staticmethod
    def of(place: Site, coordinates: Coordinates, groups: Groups, dim: int) -> Shape:
        return Shape(place, coordinates.queries, coordinates.keys, dim, groups.kv_heads, tuple(groups.kv_of_head))

    def site(self) -> dict[str, Any]:
        """As the page has it."""
        site = self.place
        place = {"label": site.label, "stack": site.stack, "layer": site.layer, "heads": site.heads}
        shape = {"dim": self.dim, "kv": self.kv, "kv_of_head": list(self.groups)}
        return {**place, "cross": site.cross, **shape}


def text_data(
    window: Window, seen: Sequence[Shape], layers: list[dict[str, Any]], tokenizer: Any, lengths: str
) -> dict[str, Any]:
    """One text as the page has it: its tokens, and of every layer where maps are and which tokens they are of."""
    spoken = window.document if isinstance(window.document, str) else None
    sequences, seats = _sequences(window, seen, tokenizer, spoken)
    for layer, (rows, columns) in zip(layers, seats, strict=True):
        layer |= {"rows": rows, "columns": columns}
    name = (spoken if spoken is not None else " ".join(sequences[0].shown)) if sequences else "a text"
    return {
        "name": _title(name),
        "note": window.note,
        "window": [window.at, window.count],
        "source": 0,
        "sequences": [asdict(words) for words in sequences],
        "layers": layers,
        "lengths": lengths,
    }


def _title(text: str) -> str:
    line = clear(" ".join(text.split()))
    return line if len(line) <= TITLE else f"{line[: TITLE - 1].rstrip()}…"


def _sequences(
    window: Window, seen: Sequence[Shape], tokenizer: Any, spoken: str | None
) -> tuple[list[Words], list[tuple[int, int]]]:
    """The sequences that were read, and which of them stands along the rows and columns of each layer's maps."""
    ids = {
        n: x[0].tolist()
        for n, x in window.batch.items()
        if isinstance(x, Tensor) and x.ndim == 2 and not x.is_floating_point() and n not in BESIDE
    }
    made: dict[tuple[str, int], Words] = {}

    def seat(count: int, decoding: bool) -> tuple[str, int]:
        order = sorted(ids, key=lambda n: ("decoder" in n) != decoding)
        name = next((n for n in order if len(ids[n]) == count), "")
        if (name, count) not in made:
            if name:
                own = spoken if len(ids) == 1 else None
                made[name, count] = Words.of(ids[name], tokenizer, own, longest=window.longest, window=window.at)
            else:
                made[name, count] = Words.places(count)
        return name, count

    seats: list[tuple[tuple[str, int], tuple[str, int]]] = []
    for shape in seen:
        site = shape.place
        late = "decoder" in site.stack.split("_") or site.cross
        seats.append((seat(shape.queries, late), seat(shape.keys, late and not site.cross)))
    index = {key: at for at, key in enumerate(made)}
    return list(made.values()), [(index[rows], index[columns]) for rows, columns in seats]
