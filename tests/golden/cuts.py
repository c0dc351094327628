"""Golden values of cut models: the plan, every tensor of the cut model, and what comes out of it."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from golden.models import batch, load
from golden.record import Recorder

PLANS: dict[str, dict[str, Any]] = {
    "fisher": {"keep": 0.5, "method": "fisher"},
    "random": {"keep": 0.5, "method": "random", "seed": 3},
    "budget of flops": {"budget": "flops=0.7"},
    "budget of the cache": {"budget": "cache=0.6"},
    "uniform": {"keep": 0.5, "uniform": True},
    "multiple of 2": {"keep": 0.4, "multiple_of": 2},
    "half of the heads": {"keep": 0.5},
}


def plans(record: Recorder, name: str) -> None:
    """Which heads go by other methods, budgets and shapes; those of `prune` and `group` are recorded there."""
    for what, asked in PLANS.items():
        _record_plan(record, _plan(name, **asked), f"{what}/")


def prune(record: Recorder, name: str, *, refit: bool, steps: int = 0) -> None:
    """Half of the heads are taken out, and with `steps` the rest is trained to make up for them.

    A head stays in every layer, or the last layer of a small random model would have none that could be fitted.
    """
    plan = _plan(name, keep=0.5, least=1)
    small = _cut(name, plan, refit, mh.Heal(steps=steps) if steps else None)
    _record_plan(record, plan)
    record.tensors("tensors", small.state_dict())
    _record_heads(record, small)
    _record_outputs(record, small)


def group(record: Recorder, name: str, kv_heads: int, *, refit: bool) -> None:
    """So many kv heads stay in every layer.

    Heads that share keys and values read them in a basis of eigenvectors, whose signs the machine chooses. So the
    matrices of attention are recorded by their products, in which the basis cancels, and not as they are stored.
    """
    plan = _plan(name, kv_heads=kv_heads)
    small = _cut(name, plan, refit)
    _record_plan(record, plan)
    parts = [part for layer in mh.anatomy(small, batch(padded=False)) for part in layer.weights.items()]
    free = {part.parameter for _, part in parts} | {part.bias for letter, part in parts if letter != "o"}
    record.tensors("tensors", {name: x for name, x in small.state_dict().items() if name not in free})
    _record_heads(record, small)
    _record_outputs(record, small)


def _cut(name: str, plan: mh.Plan, refit: bool, heal: mh.Heal | None = None) -> nn.Module:
    whole = load(name).module
    with warnings.catch_warnings(action="ignore"):  # the calibration text is short
        return mh.cut(whole, plan, heal=heal) if refit else mh.cut(whole, plan, refit=None, heal=heal)


@cache
def _plan(name: str, **asked: Any) -> mh.Plan:
    model = load(name)
    with warnings.catch_warnings(action="ignore"):
        return mh.plan(model.module, model.calibration, tokenizer=model.tokenizer, **asked)


def _record_plan(record: Recorder, plan: mh.Plan, path: str = "plan/") -> None:
    """Which heads stay, which share keys and values, and what each would cost."""
    for layer in plan.layers:
        for head in range(layer.heads):
            record.value(f"{path}{layer.head(head)}/stays", head in layer.keep)
        for members in layer.groups or ():
            for head in members:
                record.value(f"{path}{layer.head(head)}/first of its group", min(members))
    for head, cost in plan.scores.items():
        record.value(f"{path}{head}/cost", cost)


def _record_heads(record: Recorder, small: nn.Module) -> None:
    """What every head compares, W_Qᵀ W_K, and what it moves, W_O W_V; with the biases as a last column."""
    for layer in mh.anatomy(small, batch(padded=False)):
        for head in map(layer.head, range(layer.num_heads)):
            compared = _with_bias(head.W_Q, head.b_Q).mT @ _with_bias(head.W_K, head.b_K)
            record.tensor(f"heads/{head.name}/query-key", compared)
            record.tensor(f"heads/{head.name}/output-value", head.W_O.double() @ _with_bias(head.W_V, head.b_V))


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    column = weight.new_zeros(len(weight)) if bias is None else bias
    return torch.cat([weight, column[:, None]], 1).double()


@torch.no_grad()
def _record_outputs(record: Recorder, small: nn.Module) -> None:
    """Logits of two rows, and of the same with padding, where the padding's own do not count."""
    whole, padded = batch(padded=False), batch(padded=True)
    record.tensor("logits/whole rows", small(**whole).logits)
    record.tensor("logits/padded", small(**padded).logits[padded["attention_mask"].bool()])
