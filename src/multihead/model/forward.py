"""Run a user's model: eval mode, no gradient, no cache, no labels, and a listener on every attention.

>>> import torch
>>> from multihead.model.forward import Forward
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2)
>>> paths = []
>>> def listen(call, compute):
...     paths.append(call.path)
...     return compute()
>>> forward = Forward(model)
>>> forward({"src": torch.ones(1, 5, 12)}, listen).shape, paths
(torch.Size([1, 5, 12]), ['layers.0.self_attn', 'layers.1.self_attn'])
>>> forward.notes, model.training
(['the model was in training mode; it was measured in eval mode, without dropout'], True)
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from multihead._base.arguments import check_inputs, check_model
from multihead._base.eval_mode import eval_mode
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call, Compute, Listener
from multihead.model.compiled import inner
from multihead.model.intercept import Unseen, intercept
from multihead.model.model_inputs import plain_inputs
from multihead.model.rerun_from_attention import Change, Recording
from multihead.model.run_errors import EXPLAINED, explained
from multihead.model.sites import Key, Sites
from multihead.model.unseen_attention import nothing_found

ModelInputs = Mapping[str, Any] | tuple[Any, ...]
"""The arguments of a model, by name or in order."""


class StopForward(Exception):
    """Raised by a listener to end the run."""


class Forward:
    """Runs of a model that leave it unchanged, including the mode and parameters of every submodule.

    Args:
        grad: record gradients of tensors that a listener adds. The parameters are frozen then.
        learning: with `grad`, the parameters are not frozen: their gradients are recorded too.
    """

    def __init__(self, model: nn.Module, *, grad: bool = False, learning: bool = False) -> None:
        check_model(model)
        self.model, self.grad, self.learning = model, grad, learning
        self.sites = Sites()
        """the attentions that a listener has seen so far"""
        self.notes: list[str] = []
        """notes on changes to the model and on attentions that were not seen, each once"""
        self._recording: Recording | None = None
        self._calls: int | None = None  # attentions of this block; None while they are not counted
        self._raised: list[Exception] = []  # by a listener
        self._unseen: Unseen = lambda: None  # a note on attentions of this block that were not seen

    def __call__(
        self, inputs: ModelInputs, listener: Listener | None = None, *, sharded: bool = False, required: bool = True
    ) -> Any:
        """The output of the model; None where the listener stopped the run."""
        with self.listening(listener, sharded=sharded, required=required):
            return self.run(inputs)

    @contextmanager
    def listening(
        self, listener: Listener | None = None, *, sharded: bool = False, required: bool = True
    ) -> Generator[None]:
        """Inside the block every forward passes its attention calls to the listener.

        `sharded`: the listener supports calls with only some of the heads, those of this rank. `required`: `run`
        raises if it meets no attention, as in a model without heads.
        """

        def listen(call: Call, compute: Compute) -> HeadOutputs:
            """Pass an attention call of the forward to the listener, or to the recording."""
            if self._calls is not None:
                self._calls += 1
            self.sites.register(call.site)
            recording = self._recording
            if recording is not None and recording.replaying:
                return recording.listen(call, compute)
            heard = compute if listener is None else partial(self._heard, listener, call, compute)
            return heard() if recording is None else recording.listen(call, heard)

        with ExitStack() as stack:
            if self.grad:
                stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad() if self.grad else torch.no_grad())
            notes = stack.enter_context(eval_mode(self.model, freeze=self.grad and not self.learning))
            self.notes += [note for note in notes if note not in self.notes]
            heard = listener is not None or self._recording is not None
            if heard:
                self._unseen = stack.enter_context(intercept(self.model, listen, sharded=sharded))
                stack.callback(self._forget_block)
            self._calls = 0 if heard and required else None
            yield

    def _forget_block(self) -> None:
        self._unseen = lambda: None  # the other function holds the inputs of the block

    def _heard(self, listener: Listener, call: Call, compute: Compute) -> HeadOutputs:
        """The result of the listener in a forward; its errors are not reported as the model's."""
        try:
            return listener(call, compute)
        except Exception as error:
            self._raised.append(error)
            raise

    @contextmanager
    def recording(self, listener: Listener | None = None, *, sharded: bool = False) -> Generator[Recording]:
        """Inside the block `Forward.run` records what `Forward.rerun` starts from; `listener` as in `listening`."""
        self._recording = Recording(self.model, self.sites)
        try:
            with self.listening(listener, sharded=sharded), self._recording.installed():
                yield self._recording
        finally:
            self._recording = None

    def run(self, inputs: ModelInputs) -> Any:
        """Run a forward of the model, inside `listening`; None where the listener stopped the run."""
        call = self.prepared(inputs)
        if self._recording is not None:
            self._recording.start(call.keywords)
        self._raised.clear()
        try:
            output = call()
        except StopForward:
            return None
        except MultiheadError:
            raise
        except EXPLAINED as error:
            if error in self._raised:  # by the listener, not by the model
                raise
            raise explained(error, inner(self.model), _arguments(inner(self.model), call)) from error
        if self._calls == 0:
            raise nothing_found(inner(self.model), 1)
        unseen = None if self._calls is None else self._unseen()
        if unseen is not None and unseen not in self.notes:
            self.notes.append(unseen)
        return output

    def prepared(self, inputs: ModelInputs) -> partial[Any]:
        """The forward that `run` makes, without the work on its inputs: to time the model."""
        root = inner(self.model)
        args, named = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
        plain = plain_inputs(root, named)
        check_inputs(root, plain, *args)
        return partial(self.model, *args, **plain)

    @property
    def recorded(self) -> Recording:
        assert self._recording is not None, "only inside `recording`"
        return self._recording

    def rerun(self, changes: Mapping[Key, Change], copies: int = 1, *, whole: bool = False) -> Any:
        """The forward's output with changed heads, from the first changed attention on; inside `recording`.

        With `copies` the batch has all documents so many times, one copy after the other. `whole`: everything is
        computed again.
        """
        return self.model(**self.recorded.rerun(changes, copies, whole=whole))


def _arguments(model: nn.Module, call: partial[Any]) -> dict[str, Any]:
    return dict(inspect.signature(model.forward).bind_partial(*call.args, **call.keywords).arguments)
