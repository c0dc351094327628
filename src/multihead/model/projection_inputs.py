"""The inputs of W_Q, W_K and W_V, read while a model runs: x in q = x W_Qᵀ + b_Q.

Products are recognised by where their weight lies in memory, so it does not matter which module computes them, nor
whether q, k and v are one matrix or three.

>>> import torch, multihead as mh
>>> from multihead.model.forward import Forward
>>> from multihead.model.head_weights import HeadWeights
>>> from multihead.model.projection_inputs import ProjectionInputs
>>> encoder = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> x, shapes = torch.randn(2, 7, 12), []
>>> layer = mh.anatomy(encoder)[0]
>>> inputs = ProjectionInputs({layer.site.key: (layer.W_Q[0], layer.W_K[0], layer.W_V[0])})
>>> def listen(call, compute):
...     shapes.append(inputs.take(call, HeadWeights.of(layer)).v.shape)
...     return compute()
>>> with inputs:
...     _ = Forward(encoder)({"src": x}, listen)
>>> shapes
[torch.Size([2, 7, 12])]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from multihead.errors import MultiheadError
from multihead.layer import Problem
from multihead.model.call import Call, ragged_rows
from multihead.model.head_weights import HeadWeights
from multihead.model.sites import Key

Rows = Float[Tensor, "row width"]


@dataclass(frozen=True)
class QKVInputs:
    """The inputs of the projections of one call, as views. Inputs that are one tensor in the model share memory."""

    q: Float[Tensor, "batch query d_query"]
    k: Float[Tensor, "batch key d_key"]
    v: Float[Tensor, "batch key d_value"]


class ProjectionInputs(TorchDispatchMode):
    """Inside the block, keeps the inputs of the projections of some attentions until their kernel runs."""

    def __init__(self, projections: Mapping[Key, tuple[Tensor, Tensor, Tensor]]) -> None:
        """`projections`: of each attention, some rows of W_Q, W_K and W_V, as views of the parameters."""
        super().__init__()
        self.projections = projections
        self._seen: dict[int, list[Rows]] = {}

    def __enter__(self) -> Any:
        self._seen = {view.data_ptr(): [] for views in self.projections.values() for view in views}
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._seen = {}
        super().__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            x, weight = cast(tuple[Tensor, Tensor], args[-2:])
            start = weight.data_ptr()
            stop = start + weight.numel() * weight.element_size()
            for address, inputs in self._seen.items():
                if start <= address < stop:
                    inputs.append(x)
        return func(*args, **(kwargs or {}))

    def take(self, call: Call, weights: HeadWeights) -> QKVInputs:
        """The inputs of the call that runs, once. The tensors are the model's: copy what is kept."""
        problem, addresses = call.problem, [view.data_ptr() for view in self.projections[call.key]]
        batch, queries, keys = problem.q.shape[0], problem.q.shape[2], problem.k.shape[2]
        tokens = (queries, keys, keys)
        packed = ragged_rows(problem)
        taken: dict[int, Rows | None] = {}  # two projections may lie at one address
        for address, count in zip(addresses, tokens, strict=True):
            if address not in taken:
                taken[address] = self._take(address, batch * count, packed)
        q, k, v = (taken[address] for address in addresses)
        if q is None or k is None or v is None or (keys != queries and not call.cross):
            raise MultiheadError(
                f"the inputs of the projections of {call.path or type(call.module).__name__} were not seen",
                hint="run whole documents, without a cache; quantised or adapted projections must be merged first",
            )
        token_first = _is_token_first(v, weights, problem)
        return QKVInputs(*(_shaped(x, batch, n, token_first) for x, n in zip((q, k, v), tokens, strict=True)))

    def _take(self, address: int, rows: int, packed: Bool[Tensor, "batch token"] | None) -> Rows | None:
        """The first input with so many rows: relative positions pass through the same weights later."""
        seen, self._seen[address] = self._seen[address], []
        if packed is not None:
            seen = [padded(x, packed) for x in seen]
        return next((x for x in seen if x.shape[0] == rows), None)


def padded(x: Rows, packed: Bool[Tensor, "batch token"]) -> Float[Tensor, "padded_row width"]:
    """The rows of all tokens, zero for padding, if `x` holds only those of the real tokens of mask.ragged."""
    if x.shape[0] == packed.numel() or x.shape[0] != int(packed.sum()):
        return x
    return x.new_zeros(packed.numel(), x.shape[1]).index_copy_(0, packed.flatten().nonzero().squeeze(1), x)


def _is_token_first(x: Rows, weights: HeadWeights, problem: Problem) -> bool:
    """Whether rows run over (token, batch), as in torch.nn, or over (batch, token), by the values of head 0."""
    batch, keys = problem.v.shape[0], problem.v.shape[2]
    if batch == 1 or keys == 1 or not weights.heads:
        return False
    kv = weights.groups.kv_of_head[0]
    computed = x.double() @ weights.v[kv].double().T + weights.bias("v")[kv].double()
    values = problem.v[:, problem.groups.kv_of_head[0]].double()
    batch_first, token_first = (_shaped(computed, batch, keys, order) for order in (False, True))
    return float((token_first - values).abs().sum()) < float((batch_first - values).abs().sum())


def _shaped(x: Rows, batch: int, tokens: int, token_first: bool) -> Float[Tensor, "batch token width"]:
    return x.view(tokens, batch, -1).transpose(0, 1) if token_first else x.view(batch, tokens, -1)
