"""The texts of a served page, and maps of their heads: q and k of some layers are held, others are computed anew.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.serve.desk import Desk
>>> desk = Desk(GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval())
>>> texts, sites = desk.show([[3, 1, 4, 1, 5], [9, 2, 6]])
>>> [text["name"] for text in texts], desk.head_map(1, "L1", 2).row(2).shape
(['3 1 4 1 5', '9 2 6'], torch.Size([3]))
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.batches import Document
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Groups, Problem
from multihead.layer._coordinates import Coordinates
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward, StopForward
from multihead.model.sites import Key
from multihead.page.attended import norms_of
from multihead.page.texts import Shape, Window, text_data, windows_of, written_with
from multihead.serve.tiles import HeadMap

ROOM = 512_000_000
"""Bytes of q, k and v that are held; at least those of one layer."""

TEXTS = 256
"""Windows of texts that are held, as token ids."""


@dataclass(frozen=True)
class _Shown:
    window: Window
    data: dict[str, Any]


class Desk:
    """What a served page asks for. One run of the model at a time; maps are computed side by side."""

    def __init__(
        self, model: nn.Module, tokenizer: Any = None, *, max_tokens: int | None = None, room: int = ROOM
    ) -> None:
        self.model, self.tokenizer, self.max_tokens, self.room = model, tokenizer, max_tokens, room
        self.writes, self.why = written_with(model)
        self.sites: list[dict[str, Any]] = []
        self._shown: list[_Shown] = []
        self._held: OrderedDict[tuple[int, Key], Problem] = OrderedDict()
        self._forward = Forward(model)
        self._sources = 0
        self._running, self._adding = Lock(), Lock()
        self.runs = 0
        """of the model, so far"""

    @property
    def texts(self) -> list[dict[str, Any]]:
        """Every window of every text, as the page has it."""
        return [shown.data for shown in self._shown]

    def show(self, documents: Sequence[Document]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Add documents; gives their texts as the page has them, a text per window, and the attentions that ran."""
        with self._adding:
            return [text for document in documents for text in self._document(document)], self.sites

    def _document(self, document: Document) -> list[dict[str, Any]]:
        windows = windows_of(self.model, document, tokenizer=self.tokenizer, max_tokens=self.max_tokens)
        if len(self._shown) + len(windows) > TEXTS:
            raise MultiheadError(
                f"{len(self._shown)} windows of texts are held, {len(windows)} more would be above {TEXTS}",
                hint="end the server and start it again",
            )
        shapes = self._shapes(windows[0])
        made = [self._add(window, shapes) for window in windows]
        self._sources += 1
        return made

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
        """The map of a head on a text; `norm`: keys weigh what they add, `hide`: delimiters do not count."""
        shown, problem = self._at(text), self.problem(text, label)
        if not 0 <= head < problem.coordinates.heads:
            raise SizeError(
                f"there is no head {head} in {label}", hint=f"heads are 0 to {problem.coordinates.heads - 1}"
            )
        factor = torch.ones(problem.coordinates.keys) if norm or hide else None
        if factor is not None and norm:
            factor = self.norms(text, label)[head]
        if factor is not None and hide:
            layer = next(layer for layer in shown.data["layers"] if layer["label"] == label)
            special = torch.tensor(shown.data["sequences"][layer["columns"]]["special"])
            factor = factor.masked_fill(special, 0.0)
        return HeadMap(problem, head, factor, stopped)

    def norms(self, text: int, label: str) -> Float[Tensor, "head key"]:
        """‖W_O v‖ of every key of every head of a layer; ‖v‖ where W_O is not known."""
        return norms_of(self.problem(text, label), self.writes.get(label))

    def problem(self, text: int, label: str) -> Problem:
        """q, k and v of a layer on a text: held, or from a run of the model up to that layer."""
        shown, site = self._at(text), self._forward.sites.layer(label)
        with self._running:
            if (text, site.key) not in self._held:
                self._run(text, shown.window, site.key)
            self._held.move_to_end((text, site.key))
            return self._held[text, site.key]

    def _at(self, text: int) -> _Shown:
        if not 0 <= text < len(self._shown):
            raise SizeError(f"there is no text {text}", hint=f"texts are 0 to {len(self._shown) - 1}")
        return self._shown[text]

    def _add(self, window: Window, shapes: Sequence[Shape]) -> dict[str, Any]:
        count = len(next((x[0] for n, x in window.batch.items() if n == "input_ids"), ()))
        if count and window.at:  # the last window may be shorter than the first, whose sizes are known
            first = shapes[0].queries
            shapes = [replace(s, queries=count, keys=count) if s.queries == s.keys == first else s for s in shapes]
        layers = [
            {
                "label": s.place.label,
                "queries": s.queries,
                "keys": s.keys,
                "heads": [{"served": True}] * s.place.heads,
                "norms": None,
            }
            for s in shapes
        ]
        data = text_data(window, shapes, layers, self.tokenizer, "W_O v" if self.writes else "v")
        data |= {"source": self._sources, "at": len(self._shown)}
        self._shown.append(_Shown(window, data))
        return data

    def _shapes(self, window: Window) -> list[Shape]:
        """The attentions of a text, from a run; what it passes is held as far as there is room."""
        sizes: list[tuple[Key, Coordinates, Groups, int]] = []
        text = len(self._shown)

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            problem = call.problem
            sizes.append((call.key, problem.coordinates, problem.groups, problem.q.shape[3]))
            self._hold(text, call.key, problem)
            return compute()

        with self._running:
            self._forward(window.batch, listen)
            self.runs += 1
        sites = self._forward.sites
        shapes = [Shape.of(sites[key], size, groups, dim) for key, size, groups, dim in sizes]
        self.sites = self.sites or [s.site() for s in shapes]
        return shapes

    def _run(self, text: int, window: Window, wanted: Key) -> None:
        """Run the model up to an attention, and hold every one on the way."""

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            self._hold(text, call.key, call.problem)
            if call.key == wanted:
                raise StopForward
            return compute()

        self._forward(window.batch, listen)
        self.runs += 1

    def _hold(self, text: int, key: Key, problem: Problem) -> None:
        """Keep q, k and v, the latest last; drop the oldest where there is no more room."""
        self._held[text, key] = replace(
            problem, q=problem.q.detach().clone(), k=problem.k.detach().clone(), v=problem.v.detach().clone()
        )
        self._held.move_to_end((text, key))
        while len(self._held) > 1 and sum(map(_bytes, self._held.values())) > self.room:
            self._held.popitem(last=False)

    @property
    def held(self) -> int:
        """Bytes of q, k and v."""
        return sum(map(_bytes, self._held.values()))


def _bytes(problem: Problem) -> int:
    return sum(x.numel() * x.element_size() for x in (problem.q, problem.k, problem.v))
