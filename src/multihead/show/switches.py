"""What a model predicts on a text with some heads scaled, beside what it predicts intact.

What can be compared depends on the model (`OutputReading`):

- "next": a language model has a probability for every next token, an encoder–decoder for that of its decoder;
- "masked": a masked language model has a probability for every token that a mask hides, hidden one at a time;
- "classes": a classifier has a probability for every class, of the input or of each of its tokens;
- "vector": other models return vectors, which are compared with those of the intact model.

>>> import multihead as mh
>>> from multihead.show.map_store import MapStore
>>> from multihead.show.switch_request import SwitchRequest
>>> from multihead.show.switches import Switches
>>> switches = Switches(MapStore(*mh.embedded()))
>>> text = "<now> <town> the keys that the man near the door sees"
>>> intact, ablated = (switches.compare(SwitchRequest(text, s)) for s in ({}, {"L1H3": 0.0}))
>>> intact["top"][0]["word"], [max(ablated["top"], key=lambda row: row["after"])["word"], ablated["changed"] != []]
('are', ['is', True])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem
from multihead.measures.importance.losses import tensor_in
from multihead.model.call import Call, Compute
from multihead.model.find_sites import find_sites
from multihead.model.forward import Forward, StopForward
from multihead.model.interventions import gate
from multihead.model.pooling import pooling_of
from multihead.model.sites import Key, Sites
from multihead.show.encode import map_text
from multihead.show.map_store import MapStore
from multihead.show.map_tiles import HeadMap, Stopped
from multihead.show.output_reading import OutputReading, complete_inputs, relative_change
from multihead.show.switch_request import SwitchRequest, find_head
from multihead.show.text_maps import TextWindow, windows_of
from multihead.show.tokens import Words, show_control_chars

MOST_TOKENS = 1024
"""Tokens of a text with switches: the probability of every word at every token is held."""

MOST_MASKED = 128
"""The same for a masked language model, which reads the text once per token."""

MOST_CELLS = 2048 * 2048
"""Cells of a map that is returned."""

ROWS = 8
"""Copies of a text, each with another token masked, that are read at a time."""

TOP = 8
"""Tokens or classes whose probabilities are listed."""

Gates = Mapping[str, Tensor]


@dataclass
class _KeptCall:
    """A listener that keeps the first call of a layer."""

    key: Key
    ends: bool = False
    """whether the run ends there"""
    problem: Problem | None = None

    def __call__(self, call: Call, compute: Compute) -> HeadOutputs:
        if call.key == self.key and self.problem is None:
            self.problem = call.problem
            if self.ends:
                raise StopForward
        return compute()


class Switches:
    """Runs the model of a store with scaled heads; other requests wait meanwhile."""

    def __init__(self, store: MapStore) -> None:
        self.store = store
        self._found: OutputReading | None = None
        self._sites = Sites()
        self._intact: tuple[tuple[str | int, str | None], TextWindow, Tensor] | None = None  # of the latest input

    def compare(self, request: SwitchRequest, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """The predictions before and after, as plain data.

        `stopped` tells whether the answer is still waited for, once the model is free.
        """
        with self.store.alone() as forward:
            if stopped():
                raise Stopped
            sites = self._all_sites()
            gates = request.gates(sites)
            place = None if request.head is None else find_head(request.head, sites)
            window, inputs, before = self._before(forward, request)
            words = self._words(request, window, inputs)
            count = len(words.shown)
            token = count - 1 if request.token is None else request.token
            if token >= count:
                raise SizeError(
                    f"token must be below {count}, the tokens of the input, got {token}", hint="omit it"
                )
            wanted = None if place is None else _KeptCall(place[0].key)
            after = self._output(forward, inputs, gates, wanted) if gates else before
            if wanted is not None and wanted.problem is None:
                self._run_to(forward, inputs, gates, wanted)
            codes = None if wanted is None or place is None else _codes(wanted.problem, place[1])
        answer: dict[str, Any] = {
            "reading": self._reading.kind, "shown": words.shown, "special": words.special, "token": token,
            "map": codes,
        }  # fmt: skip
        if self._reading.kind == "vector":
            return answer | self._vectors(before, after, count)
        return answer | self._predictions(before, after, inputs, words, token)

    @property
    def _reading(self) -> OutputReading:
        assert self._found is not None, "only after `_before`"
        return self._found

    # ---- the input ------------------------------------------------------------------------------

    def _window(self, request: SwitchRequest) -> TextWindow:
        """The text of a request to switch heads, which must fit in one window."""
        store, text = self.store, request.text
        if isinstance(text, int) and request.decoder is None:
            return store.window(text)
        document = store.document(text, request.decoder)
        windows = windows_of(store.model, document, tokenizer=store.tokenizer, max_tokens=store.max_tokens)
        if len(windows) > 1:
            raise _too_long(f"{len(windows)} windows of {windows[0].longest} tokens", windows[0].longest)
        return windows[0]

    def _words(self, request: SwitchRequest, window: TextWindow, inputs: Inputs) -> Words:
        """The tokens with predictions that switches change; without tokens, the last layer's positions."""
        name = self._reading.tokens
        if name is None:
            shown = self.store.text(int(request.text))
            return shown.sequences[shown.layers[-1].rows]
        text = window.document if isinstance(window.document, str) else None
        ids = inputs[name][0].tolist()
        return Words.of(ids, self.store.tokenizer, text, longest=window.longest, window=window.at)

    # ---- runs of the model ----------------------------------------------------------------------

    def _all_sites(self) -> Sites:
        if not len(self._sites):
            self._sites = self.store.sites if len(self.store.sites) else find_sites(self.store.model)
        return self._sites

    def _before(self, forward: Forward, request: SwitchRequest) -> tuple[TextWindow, Inputs, Tensor]:
        """The input, and the output of the intact model; those of the latest input are held."""
        key = request.text, request.decoder
        if self._intact is None or self._intact[0] != key:
            self._intact = None  # the memory, before the next one is made
            window = self._window(request)
            inputs = complete_inputs(self.store.model, window.batch)
            if self._found is None:
                self._found = OutputReading.of(forward, inputs, self.store.tokenizer)
            _check_length(inputs, self._reading)
            self._intact = key, window, self._output(forward, inputs, {})
        _, window, before = self._intact
        return window, complete_inputs(self.store.model, window.batch), before

    def _output(
        self, forward: Forward, inputs: Inputs, gates: Gates, wanted: _KeptCall | None = None
    ) -> Float[Tensor, "row width"]:
        """The output that switches change: a row of logits per token, or the model's one vector.

        `wanted` does not listen to a masked language model, whose runs read the text with masks.
        """
        with self._scaled(gates):
            if self._reading.kind == "masked":
                output = self._masked_logits(forward, inputs)
            else:
                output = self._reading.rows(forward(inputs, wanted))
        if not bool(output.isfinite().all()):
            raise MultiheadError(
                "the model returns NaN or infinity on this text",
                hint="half precision may overflow: load it in float32",
            )
        return output

    def _scaled(self, gates: Gates) -> AbstractContextManager[Any]:
        return gate(self.store.model, gates, sites=self._sites) if gates else nullcontext()

    def _masked_logits(self, forward: Forward, batch: Inputs) -> Float[Tensor, "token vocabulary"]:
        """For switches of a masked model: the logits of every token while it is masked."""
        ids: Tensor = batch["input_ids"]
        count, mask_id = ids.shape[1], self.store.tokenizer.mask_token_id
        rows: list[Tensor] = []
        for start in range(0, count, ROWS):
            at = torch.arange(start, min(start + ROWS, count), device=ids.device)
            copies = {
                n: x.repeat_interleave(len(at), 0) if isinstance(x, Tensor) and x.ndim else x
                for n, x in batch.items()
            }
            copies["input_ids"][torch.arange(len(at)), at] = mask_id
            logits = tensor_in(forward(copies), "logits")
            rows.append(logits[torch.arange(len(at)), at].float().cpu())
        return torch.cat(rows)

    def _run_to(self, forward: Forward, inputs: Inputs, gates: Gates, wanted: _KeptCall) -> None:
        """Run the model with these gates as far as the layer of `wanted`."""
        wanted.ends = True
        with self._scaled(gates):
            forward(inputs, wanted)

    # ---- the answer -----------------------------------------------------------------------------

    def _predictions(
        self, before: Tensor, after: Tensor, inputs: Inputs, words: Words, token: int
    ) -> dict[str, Any]:
        """The likeliest tokens or classes at one token, and all tokens whose likeliest one has changed."""
        model, reading = self.store.model, self._reading
        row = token if len(before) > 1 else 0  # many classifiers have one row for the whole input
        old, new = (reading.probabilities(model, rows[row]) for rows in (before, after))
        order = torch.maximum(old, new).topk(min(TOP, len(old))).indices.tolist()
        actual = self._actual(inputs, token)
        if actual is not None and actual not in order:
            order[-1] = actual
        guesses = before.argmax(-1), after.argmax(-1)
        different = guesses[0] != guesses[1]
        if reading.kind == "masked":
            different &= ~torch.tensor(words.special)
        changed = different.nonzero().flatten().tolist()
        was, now = (self._spelled(guess[changed].tolist(), before.shape[1]) for guess in guesses)
        top = [
            {"id": i, "word": word, "before": float(old[i]), "after": float(new[i])}
            for i, word in zip(order, self._spelled(order, before.shape[1]), strict=True)
        ]
        return {
            "top": top,
            "actual": actual,
            "rows": len(before),
            "changed": [
                {"token": i, "before": a, "after": b} for i, a, b in zip(changed, was, now, strict=True)
            ],
        }  # fmt: skip

    def _actual(self, inputs: Inputs, token: int) -> int | None:
        """The token of the text that is predicted at `token`."""
        reading = self._reading
        if reading.kind not in ("next", "masked") or reading.tokens is None:
            return None
        ids: Tensor = inputs[reading.tokens][0]
        following = token if reading.kind == "masked" else token + 1
        return int(ids[following]) if following < len(ids) else None

    def _vectors(self, before: Tensor, after: Tensor, tokens: int) -> dict[str, Any]:
        """With switches, how far the input's vector turned and moved, and the cosines of its tokens, if any."""
        pooling = pooling_of(self.store.model)
        whole = [pooling(x[None]) if len(x) > 1 else x for x in (before, after)]
        cosines = F.cosine_similarity(before, after, dim=-1).clamp(-1, 1).tolist()
        return {
            "cosine": float(F.cosine_similarity(*whole, dim=-1).clamp(-1, 1)[0]),
            "change": relative_change(whole[0][0], whole[1][0]),
            "vector": self._reading.vector_name(self.store.model, len(before)),
            "cosines": cosines if len(before) == tokens > 1 else None,
        }

    def _spelled(self, ids: list[int], width: int) -> list[str]:
        """The names of predicted tokens or classes."""
        if self._reading.kind != "classes":
            return Words.of(ids, self.store.tokenizer).shown
        labels = self._reading.labels(self.store.model, width)
        return [show_control_chars(labels[i]) for i in ids]


def _codes(problem: Problem | None, head: int) -> str | None:
    """The map of a head, for the reading with switches, as text: see `map_text`. None if it is too large."""
    if problem is None:
        return None
    one = HeadMap(problem, head)
    if one.shape[0] * one.shape[1] > MOST_CELLS:
        return None
    return map_text(one.rows(list(range(one.shape[0]))))


def _check_length(inputs: Inputs, reading: OutputReading) -> None:
    """Raise if a text has too many tokens to compare with heads switched."""
    ids = [inputs[name] for name in ("input_ids", "decoder_input_ids") if name in inputs]
    count = max((x.shape[1] for x in ids), default=0)
    most = MOST_MASKED if reading.kind == "masked" else MOST_TOKENS
    if count > most:
        raise _too_long(f"{count:,}", most)


def _too_long(got: str, most: int | None) -> SizeError:
    return SizeError(
        f"the text is too long for switches: at most {most:,} tokens, got {got}", hint="send a part of it"
    )
