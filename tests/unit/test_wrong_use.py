"""Wrong use gives a `MultiheadError` that names the argument and its value, not a raw error and not a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import multihead as mh
from multihead.measures import Statistics
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel

IDS = [[5, 9, 2, 6, 5, 3], [8, 7, 9, 3, 2], [6, 2, 6, 4]]


def model() -> nn.Module:
    torch.manual_seed(0)
    return EmbeddedModel(EmbeddedConfig(31, width=24, layers=2, heads=3, hidden=19)).eval()


def entered(block: Any) -> None:
    with block:
        pass


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no model": (lambda: mh.measure(None, IDS), r"model must be a torch\.nn\.Module, got None"),  # type: ignore[arg-type]
    "no model to capture": (lambda: entered(mh.capture(None)), "model must be"),  # type: ignore[arg-type]
    "no model to ablate": (lambda: entered(mh.ablate(None, ["L0H0"])), "model must be"),  # type: ignore[arg-type]
    "no anatomy": (lambda: mh.anatomy(None), "model must be"),  # type: ignore[arg-type]
    "a name for a model": (lambda: mh.kinds("gpt2", IDS), "model must be .* got the str 'gpt2'"),  # type: ignore[arg-type]
    "no weights": (
        lambda: mh.measure(nn.TransformerEncoderLayer(12, 3, device="meta"), [{"src": torch.ones(2, 3, 12)}]),
        "self_attn.in_proj_weight is on the meta device",
    ),
    "no data": (lambda: mh.measure(model(), None), "data must be documents or batches, got None"),  # type: ignore[arg-type]
    "a number for data": (lambda: mh.kinds(model(), 5), "data must be .* got the int 5"),  # type: ignore[arg-type]
    "a name for a tokenizer": (
        lambda: mh.measure(model(), ["a b"], tokenizer="gpt2"),
        "tokenizer must be .* got the str 'gpt2'",
    ),
    "bool ids": (
        lambda: mh.measure(model(), [torch.tensor([True, False])]),
        r"document 0 .*torch\.bool",
    ),
    "numbers for documents": (lambda: mh.measure(model(), [7, 8]), "document 0 must be a text, .* got the int 7"),  # type: ignore[list-item]
    "a batch without ids": (
        lambda: mh.measure(model(), [{"attention_mask": torch.ones(1, 3)}]),
        "EmbeddedModel cannot be called with attention_mask: missing a required argument: 'input_ids'",
    ),
    "keep": (lambda: entered(mh.capture(model(), keep=5)), "keep must be words or a Keep, got 5"),  # type: ignore[arg-type]
    "statistics": (
        lambda: mh.measure(model(), IDS, statistics="all"),  # type: ignore[arg-type]
        "statistics must be a Statistics or None, got 'all'",
    ),
    "classes": (lambda: Statistics(classes=5), "classes must map names to token ids, got 5"),  # type: ignore[arg-type]
    "a list of gates": (
        lambda: entered(mh.gate(model(), {"L0": [1, 1, 1]})),  # type: ignore[dict-item]
        r"gate of 'L0' must be a tensor, got \[1, 1, 1\]",
    ),
    "a loss that is a number": (
        lambda: mh.importance(model(), IDS, loss=lambda output, batch: 1.0),
        r"must return shape \(3,\) for 3 documents, got 1\.0",
    ),
    "a detached loss": (
        lambda: mh.importance(model(), IDS, loss=lambda output, batch: output.logits.detach().sum((1, 2))),
        "the loss must have a gradient",
    ),
    "within": (lambda: mh.similarity(model(), IDS, within=-1), r"within must be in \[0, 1\], got -1"),
    "nothing to count": (lambda: mh.cost([]), "model must not be an empty list"),
    "part of a token": (lambda: mh.cost("gpt3", tokens=1.5), r"tokens must be an integer, got 1\.5"),  # type: ignore[arg-type]
    "no token": (lambda: mh.cost("gpt3", tokens=0), "tokens must be at least 1, got 0"),
    "a number for a folder": (
        lambda: mh.measure(model(), IDS, out=3),  # type: ignore[arg-type]
        "out must be the path of a folder or None, got the int 3",
    ),
    "resume without a folder": (lambda: mh.measure(model(), IDS, resume=True), "resume .* out=None"),
    "an unknown column": (lambda: mh.measure(model(), IDS).why("nope", "L0H0"), "there is no column 'nope'"),
}


SEEDED: dict[str, Callable[[Any], Any]] = {
    "measure": lambda seed: mh.measure(model(), IDS, parts=["kinds"], seed=seed),
    "kinds": lambda seed: mh.kinds(model(), IDS, seed=seed),
    "importance": lambda seed: mh.importance(model(), IDS, seed=seed),
    "similarity": lambda seed: mh.similarity(model(), IDS, seed=seed),
    "theory": lambda seed: mh.theory(model(), IDS, seed=seed),
    "plan": lambda seed: mh.plan(model(), IDS, keep=0.5, seed=seed),
    "report": lambda seed: mh.report(model(), IDS, seed=seed),
}


@pytest.mark.parametrize("function", SEEDED)
@pytest.mark.parametrize("seed", [10**30, -1, "x"])
def test_a_wrong_seed_is_named(function: str, seed: object) -> None:
    with pytest.raises(mh.MultiheadError, match=f"seed must be .*got .?{seed}"):
        SEEDED[function](seed)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(mh.MultiheadError, match=message):
        call()
