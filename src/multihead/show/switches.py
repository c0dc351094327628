"""What a model predicts on a text with some heads scaled, beside what it predicts intact.

What can be compared depends on the model (`Reading`):

- "next": a language model has a probability for every next token;
- "masked": a masked language model has a probability for every token that a mask hides, hidden one at a time;
- "vector": other models return vectors, whose cosine with those of the intact model is given.

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

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.losses import LanguageModel, MaskedLanguageModel, tensor_in
from multihead.model.call import Call, Compute
from multihead.model.find_sites import find_sites
from multihead.model.forward import Forward, StopForward
from multihead.model.interventions import gate
from multihead.model.pooling import pooling_of
from multihead.model.sites import Site, Sites
from multihead.show.encode import map_text
from multihead.show.map_store import MapStore
from multihead.show.switch_request import SwitchRequest, find_head
from multihead.show.text_maps import Window, windows_of
from multihead.show.tiles import HeadMap, Stopped
from multihead.show.tokens import Words

Reading = Literal["next", "masked", "vector"]

MOST_TOKENS = 1024
"""Tokens of a text with switches: the probability of every word at every token is held."""

MOST_MASKED = 128
"""The same for a masked language model, which reads the text once per token."""

ROWS = 8
"""Copies of a text, each with another token masked, that are read at a time."""

TOP = 8
"""Tokens whose probabilities are listed."""

Gates = Mapping[str, Tensor]


class Switches:
    """Runs the model of a store with scaled heads; other requests wait meanwhile."""

    def __init__(self, store: MapStore) -> None:
        self.store = store
        self._reading: Reading | None = None
        self._vector = "logits"
        self._sites = Sites()
        self._intact: tuple[str | int, Tensor] | None = None  # the output of the latest text

    def compare(self, request: SwitchRequest, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """The predictions before and after, as plain data.

        `stopped` tells whether the answer is still waited for, once the model is free.
        """
        window = self._window(request.text)
        with self.store.alone() as forward:
            if stopped():
                raise Stopped
            sites = self._all_sites()
            gates = request.gates(sites)
            place = None if request.head is None else find_head(request.head, sites)
            ids = _ids(window, self._kind(forward, window))
            token = len(ids) - 1 if request.token is None else request.token
            if token >= len(ids):
                raise SizeError(
                    f"token must be below {len(ids)}, the tokens of the text, got {token}", hint="omit it"
                )
            before = self._before(forward, request.text, window)
            after = self._output(forward, window, gates) if gates else before
            codes = None if place is None else self._map(forward, window, gates, *place)
        words = self._words(ids, window)
        answer: dict[str, Any] = {
            "reading": self._reading, "shown": words.shown, "special": words.special, "token": token, "map": codes,
        }  # fmt: skip
        if self._reading == "vector":
            return answer | self._vectors(before, after, len(ids))
        return answer | self._predictions(before, after, ids, token)

    # ---- the text -------------------------------------------------------------------------------

    def _window(self, text: str | int) -> Window:
        store = self.store
        if isinstance(text, int):
            return store.window(text)
        if store.tokenizer is None:
            raise MultiheadError(
                "this model has no tokenizer, so it cannot read a text",
                hint="send the number of a text of the page",
            )
        windows = windows_of(store.model, text, tokenizer=store.tokenizer, max_tokens=store.max_tokens)
        if len(windows) > 1:
            raise _too_long(f"{len(windows)} windows of {windows[0].longest} tokens", windows[0].longest)
        return windows[0]

    def _words(self, ids: Int[Tensor, " token"], window: Window) -> Words:
        text = window.document if isinstance(window.document, str) else None
        return Words.of(
            ids.tolist(), self.store.tokenizer, text, longest=window.longest, window=window.at
        )  # fmt: skip

    # ---- runs of the model ----------------------------------------------------------------------

    def _all_sites(self) -> Sites:
        if not len(self._sites):
            self._sites = self.store.sites if len(self.store.sites) else find_sites(self.store.model)
        return self._sites

    def _kind(self, forward: Forward, window: Window) -> Reading:
        """What the model can be compared by; found out once."""
        if self._reading is None:
            ids = window.batch.get("input_ids")
            if getattr(getattr(self.store.model, "config", None), "is_encoder_decoder", False):
                raise MultiheadError(
                    f"{type(self.store.model).__name__} reads two texts, one in its encoder and one in its decoder",
                    hint="switches work with models that read one text",
                )
            if not isinstance(ids, Tensor):
                raise MultiheadError(
                    f"switches need a model that reads token ids, this one reads {', '.join(window.batch)}",
                    hint="mh.gate scales its heads from Python",
                )
            probe = window.batch if ids.shape[1] > 1 else {"input_ids": ids.repeat(1, 2)}
            loss = loss_for(self.store.model, probe, self.store.tokenizer)
            causal, masked = isinstance(loss, LanguageModel), isinstance(loss, MaskedLanguageModel)
            self._reading = "next" if causal else "masked" if masked else "vector"
            self._vector = "logits" if getattr(loss, "of", "hidden") == "logits" else "last_hidden_state"
        return self._reading

    def _before(self, forward: Forward, text: str | int, window: Window) -> Tensor:
        """The output of the intact model; that of the latest text is held."""
        if self._intact is None or self._intact[0] != text:
            self._intact = None  # the memory, before the next one is made
            self._intact = (text, self._output(forward, window, {}))
        return self._intact[1]

    def _output(self, forward: Forward, window: Window, gates: Gates) -> Float[Tensor, "token width"]:
        """A row of logits per token, or its vector; of models that return one vector, one row."""
        scaled = gate(self.store.model, gates, sites=self._sites) if gates else nullcontext()
        with scaled:
            if self._reading == "masked":
                output = self._masked_logits(forward, window.batch)
            else:
                name = "logits" if self._reading == "next" else self._vector
                output = tensor_in(forward(window.batch), name)[0].float().cpu()
        if not bool(output.isfinite().all()):
            raise MultiheadError(
                "the model returns NaN or infinity on this text",
                hint="half precision may overflow: load it in float32",
            )
        return output[None] if output.ndim == 1 else output

    def _masked_logits(self, forward: Forward, batch: Inputs) -> Float[Tensor, "token vocabulary"]:
        """The logits of every token while it is masked."""
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

    def _map(self, forward: Forward, window: Window, gates: Gates, site: Site, head: int) -> str:
        """The map of a head in a run with these gates, as text: see `map_text`."""
        problems: list[Problem] = []

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            if call.key == site.key:
                problems.append(call.problem)
                raise StopForward
            return compute()

        with gate(self.store.model, gates, sites=self._sites) if gates else nullcontext():
            forward(window.batch, listen)
        one = HeadMap(problems[0], head)
        return map_text(one.rows(list(range(one.shape[0]))))

    # ---- the answer -----------------------------------------------------------------------------

    def _predictions(self, before: Tensor, after: Tensor, ids: Int[Tensor, " token"], token: int) -> dict[str, Any]:
        """The likeliest tokens at one place, and all places whose likeliest token has changed."""
        old, new = before[token].softmax(-1), after[token].softmax(-1)
        order = torch.maximum(old, new).topk(min(TOP, len(old))).indices.tolist()
        following = token if self._reading == "masked" else token + 1
        actual = int(ids[following]) if following < len(ids) else None
        if actual is not None and actual not in order:
            order[-1] = actual
        guesses = before.argmax(-1), after.argmax(-1)
        special = torch.tensor(self._special(ids.tolist())) & (self._reading == "masked")
        changed = ((guesses[0] != guesses[1]) & ~special).nonzero().flatten().tolist()
        was, now = (self._spelled(guess[changed].tolist()) for guess in guesses)
        top = [
            {"id": i, "word": word, "before": float(old[i]), "after": float(new[i])}
            for i, word in zip(order, self._spelled(order), strict=True)
        ]
        return {
            "top": top,
            "actual": actual,
            "changed": [
                {"token": i, "before": a, "after": b} for i, a, b in zip(changed, was, now, strict=True)
            ],
        }  # fmt: skip

    def _vectors(self, before: Tensor, after: Tensor, tokens: int) -> dict[str, Any]:
        """The cosine of the text's vector with the intact model's, and those of its tokens, where they have any."""
        pooling = pooling_of(self.store.model)
        whole = [pooling(x[None]) if len(x) > 1 else x for x in (before, after)]
        cosines = F.cosine_similarity(before, after, dim=-1).clamp(-1, 1).tolist()
        return {
            "cosine": float(F.cosine_similarity(*whole, dim=-1).clamp(-1, 1)[0]),
            "vector": "logits" if self._vector == "logits" else f"last hidden states, {pooling}-pooled",
            "cosines": cosines if len(before) == tokens else None,
        }

    def _special(self, ids: Sequence[int]) -> list[bool]:
        return Words.of(ids, self.store.tokenizer).special

    def _spelled(self, ids: Sequence[int]) -> list[str]:
        return Words.of(ids, self.store.tokenizer).shown


def _ids(window: Window, reading: Reading) -> Int[Tensor, " token"]:
    ids: Tensor = window.batch["input_ids"][0].cpu()
    most = MOST_MASKED if reading == "masked" else MOST_TOKENS
    if len(ids) > most:
        raise _too_long(f"{len(ids):,}", most)
    return ids


def _too_long(got: str, most: int | None) -> SizeError:
    return SizeError(
        f"the text is too long for switches: at most {most:,} tokens, got {got}", hint="send a part of it"
    )
