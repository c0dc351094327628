"""One type under test: its models under each implementation, their runs and captures."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from sweep import own_maps
from sweep.build import Built, tensors
from sweep.compare import distance
from sweep.inputs import Batch
from sweep.judge import NotApplicable, first_line


@contextmanager
def quiet() -> Iterator[list[str]]:
    """The warnings of the block, as text."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught]


class Subject:
    """The models of one type, and their runs."""

    def __init__(self, built: Built) -> None:
        self.built, self.inputs = built, built.inputs
        self._models: dict[str, nn.Module | str] = {}

    def model(self, implementation: str | None = None) -> nn.Module:
        """The model under one implementation. NotApplicable where it does not take it."""
        key = implementation or "default"
        if key not in self._models:
            try:
                model = self.built.model(implementation)
                self.run(model)
            except Exception as error:
                self._models[key] = f"the model itself does not run under {key}: {first_line(error)}"
            else:
                self._models[key] = model
        model = self._models[key]
        if isinstance(model, str):
            raise NotApplicable(model)
        return model

    def run(self, model: nn.Module, inputs: Batch | None = None, **options: Any) -> list[Tensor]:
        torch.manual_seed(0)
        with torch.no_grad():
            return tensors(model(**(self.inputs if inputs is None else inputs), **options))

    def captured(
        self, model: nn.Module, inputs: Batch | None = None, **options: Any
    ) -> tuple[Any, list[Tensor], list[str]]:
        """A capture, the output inside it, and its warnings."""
        with quiet() as texts, mh.capture(model, **options) as heads:
            output = self.run(model, inputs)
        return heads, output, texts

    @cached_property
    def random(self) -> bool:
        """Whether the model gives other numbers every time."""
        model = self.model()
        return distance(self.run(model), self.run(model)) > 1e-6

    @cached_property
    def own(self) -> own_maps.Run:
        """The run of an eager copy, maps and all; without maps where there is no eager."""
        for implementation in ("eager", None):
            try:
                model = self.model(implementation)
            except NotApplicable:
                continue
            for options in ({"output_attentions": True}, {}):
                try:
                    with own_maps.watched(model) as run:
                        self.run(model, **options)
                    return run
                except Exception:
                    continue
        raise NotApplicable("the model does not run with hooks")

    @property
    def takes_ids(self) -> bool:
        return (
            set(self.inputs) <= {"input_ids", "attention_mask", "decoder_input_ids"} and "input_ids" in self.inputs
        )

    def agrees(self, implementation: str) -> bool:
        """Whether the model computes the same under eager and this implementation: some are causal by it."""
        try:
            eager = self.model("eager")
        except NotApplicable:
            return True
        return distance(self.run(eager), self.run(self.model(implementation))) < 1e-3
