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

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from multihead._base.arguments import check_inputs, check_model
from multihead._base.shapes import HeadOutputs
from multihead.model.call import Call, Compute, Listener
from multihead.model.eval_mode import eval_mode, plain_inputs
from multihead.model.intercept import inner, intercept
from multihead.model.missing import nothing_found


class StopForward(Exception):
    """Raised by a listener that has seen enough: it ends the run."""


class Forward:
    """Calls of a model that leave it as it was, modes and parameters of every submodule included.

    Args:
        grad: record gradients, of tensors that a listener adds. The parameters are frozen then.
    """

    def __init__(self, model: nn.Module, *, grad: bool = False) -> None:
        check_model(model)
        self.model, self.grad = model, grad
        self.notes: list[str] = []
        """what had to be changed for the runs so far, each note once"""

    def __call__(self, inputs: Mapping[str, Any], listener: Listener | None = None, *, spread: bool = False) -> Any:
        """The output of the model; None where the listener stopped the run."""
        with self.listening(listener, spread=spread):
            return self.run(inputs)

    @contextmanager
    def listening(self, listener: Listener | None = None, *, spread: bool = False) -> Generator[None]:
        """Inside the block `run` calls the model, in the modes of a measurement.

        Raises if the listener met no attention. `spread`: it knows that a rank may have only some of the heads.
        """
        calls = 0

        def count(call: Call, compute: Compute) -> HeadOutputs:
            nonlocal calls
            calls += 1
            assert listener is not None
            return listener(call, compute)

        with ExitStack() as stack:
            if self.grad:
                stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad() if self.grad else torch.no_grad())
            notes = stack.enter_context(eval_mode(self.model, freeze=self.grad))
            self.notes += [note for note in notes if note not in self.notes]
            if listener is not None:
                stack.enter_context(intercept(self.model, count, spread=spread))
            yield
        if listener is not None and not calls:
            raise nothing_found(inner(self.model), 1)

    def run(self, inputs: Mapping[str, Any]) -> Any:
        """Call the model, inside `listening`."""
        root = inner(self.model)
        plain = plain_inputs(root, inputs)
        check_inputs(root, plain)
        try:
            return self.model(**plain)
        except StopForward:
            return None
