"""Golden values of cut models: the plan, every tensor, and the logits."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from golden.models import batch, load
from golden.record import Recorder
from multihead.edit import Distill, Plan

PLANS: dict[str, dict[str, Any]] = {
    "fisher": {"keep": 0.5, "method": "fisher"},
    "random": {"keep": 0.5, "method": "random", "seed": 3},
    "0.95 of the flops": {"budget": "flops=0.95"},
    "0.85 of the flops": {"budget": "flops=0.85"},
    "0.75 of the flops": {"budget": "flops=0.75"},
    "0.6 of the cache": {"budget": "cache=0.6"},
    "uniform": {"keep": 0.5, "uniform": True},
    "multiple of 2": {"keep": 0.4, "multiple_of": 2},
    "half of the heads": {"keep": 0.5},
}


def plans(record: Recorder, name: str) -> None:
    """Which heads other methods, budgets and constraints remove; `prune` and `group` record their own plans."""
    for what, asked in PLANS.items():
        _record_plan(record, _plan(name, **asked), f"{what}/")


def prune(record: Recorder, name: str, *, refit: bool, steps: int = 0) -> None:
    """Remove half of the heads, then distil for `steps` steps.

    Every layer keeps a head: otherwise the last layer of a tiny random model loses all of its heads, and there is
    nothing left to refit.
    """
    plan = _plan(name, keep=0.5, min_heads=1)
    small = _cut(name, plan, refit, Distill(steps=steps) if steps else None)
    _record_plan(record, plan)
    record.tensors("tensors", small.state_dict())
    _record_heads(record, small)
    _record_outputs(record, small)


def group(record: Recorder, name: str, kv_heads: int, *, refit: bool) -> None:
    """Leave `kv_heads` kv heads in every layer.

    The shared keys and values are expressed in a basis of eigenvectors, whose signs depend on the machine. The
    attention matrices are therefore recorded as products, in which the basis cancels, not as stored.
    """
    plan = _plan(name, kv_heads=kv_heads)
    small = _cut(name, plan, refit)
    _record_plan(record, plan)
    parts = [part for layer in mh.anatomy(small, batch(padded=False)) for part in layer.weights.items()]
    free = {part.parameter for _, part in parts} | {part.bias for letter, part in parts if letter != "o"}
    record.tensors("tensors", {name: x for name, x in small.state_dict().items() if name not in free})
    _record_heads(record, small)
    _record_outputs(record, small)


def _cut(name: str, plan: Plan, refit: bool, distill: Distill | None = None) -> nn.Module:
    whole = load(name).module
    with warnings.catch_warnings(action="ignore"):  # the calibration text is short
        return mh.cut(whole, plan, distill=distill) if refit else mh.cut(whole, plan, refit=False, distill=distill)


@cache
def _plan(name: str, **asked: Any) -> Plan:
    model = load(name)
    with warnings.catch_warnings(action="ignore"):
        return mh.plan(model.module, model.calibration, tokenizer=model.tokenizer, **asked)


def _record_plan(record: Recorder, plan: Plan, path: str = "plan/") -> None:
    """Which heads stay, which share a kv head, and the cost of removing each."""
    for layer in plan.layers:
        for head in range(layer.heads):
            record.value(f"{path}{layer.head(head)}/stays", head in layer.keep)
        for members in layer.groups or ():
            for head in members:
                record.value(f"{path}{layer.head(head)}/first of its group", min(members))
    for head, cost in plan.scores.items():
        record.value(f"{path}{head}/cost", cost)


def _record_heads(record: Recorder, small: nn.Module) -> None:
    """The QK and OV circuits of every head, W_Qᵀ W_K and W_O W_V, with biases as a last column."""
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
    """Logits of a batch without padding, and of the real tokens of a padded batch."""
    whole, padded = batch(padded=False), batch(padded=True)
    record.tensor("logits/whole rows", small(**whole).logits)
    record.tensor("logits/padded", small(**padded).logits[padded["attention_mask"].bool()])
