"""The inputs of W_Q, W_K and W_V, read while a model runs: x in q = x W_Qᵀ + b_Q.

Hooks on the modules that hold the weights read them. So it does not matter whether q, k and v are one matrix or
three, nor in what precision the product is computed.

>>> import torch, multihead as mh
>>> from multihead.model.forward import Forward
>>> from multihead.model.head_weights import HeadWeights
>>> from multihead.model.projection_inputs import ProjectionInputs, projections_of
>>> encoder = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> x, shapes = torch.randn(2, 7, 12), []
>>> layer = mh.anatomy(encoder)[0]
>>> inputs = ProjectionInputs({layer.path: projections_of(layer, encoder)})
>>> def listen(call, compute):
...     shapes.append(inputs.take(call, HeadWeights.of(layer)).v.shape)
...     return compute()
>>> with inputs:
...     _ = Forward(encoder)({"src": x}, listen)
>>> shapes
[torch.Size([2, 7, 12])]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer import Problem
from multihead.model.call import Call, ragged_rows
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy

Rows = Float[Tensor, "row width"]
Projections = tuple[nn.Module, nn.Module, nn.Module]
"""The modules that hold W_Q, W_K and W_V; one module may hold two or all of them."""

ARGUMENTS = {"q": "query", "k": "key", "v": "value"}
"""of torch.nn.MultiheadAttention, in this order"""


def projections_of(layer: LayerAnatomy, model: nn.Module) -> Projections:
    """The modules of `model` that hold the weights of a layer."""
    q, k, v = (model.get_submodule(layer.weights[letter].module) for letter in ARGUMENTS)
    return q, k, v


@dataclass(frozen=True)
class QKVInputs:
    """The inputs of the projections of one call, as views of the model's tensors: copy those that you keep."""

    q: Float[Tensor, "batch query d_query"]
    k: Float[Tensor, "batch key d_key"]
    v: Float[Tensor, "batch key d_value"]

    @property
    def same_kv(self) -> bool:
        """Whether W_K and W_V read the same tensor."""
        k, v = self.k, self.v
        return k.shape == v.shape and k.data_ptr() == v.data_ptr() and k.stride() == v.stride()


class ProjectionInputs:
    """Inside the block, keeps the inputs of the projections of some attentions until their kernel runs."""

    def __init__(self, projections: Mapping[str, Projections]) -> None:
        """`projections`: by the path of the attention (`Call.path`)."""
        self.projections = projections
        self._hooks = ExitStack()
        self._seen: dict[nn.Module, list[tuple[Tensor, ...]]] = {}

    def __enter__(self) -> ProjectionInputs:
        self._seen = {module: [] for modules in self.projections.values() for module in modules}
        for module in self._seen:
            self._hooks.callback(module.register_forward_pre_hook(self._keep, with_kwargs=True).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()
        self._seen = {}

    def _keep(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the inputs of a projection's call."""
        if isinstance(module, nn.MultiheadAttention):
            named = dict(zip(ARGUMENTS.values(), args, strict=False)) | kwargs
            tensors = [named[name] for name in ARGUMENTS.values()]
        else:
            tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point()]
        self._seen[module].append(tuple(tensors))

    def take(self, call: Call, weights: HeadWeights) -> QKVInputs:
        """The projection inputs of the call that runs, once. `weights` are those of its layer, in any precision."""
        problem, modules = call.problem, self.projections[call.path]
        batch, queries, keys = problem.q.shape[0], problem.q.shape[2], problem.k.shape[2]
        as_rows = _AsRows(ragged_rows(problem))
        q, k, v = (
            [x for x in as_rows(self._candidates(module, letter), width) if x.shape[0] == batch * tokens]
            for module, letter, tokens, width in zip(
                modules,
                ARGUMENTS,
                (queries, keys, keys),
                (weights.q.shape[2], weights.k.shape[2], weights.v.shape[2]),
                strict=True,
            )
        )
        for module in modules:
            self._seen[module].clear()
        if not q or not k or not v or (keys != queries and not call.cross):
            raise MultiheadError(
                f"the inputs of the projections of {call.path or type(call.module).__name__} were not seen",
                hint="run whole documents, without a cache, and call the modules that hold W_Q, W_K and W_V",
            )
        of_v, token_first = _value_input(v, weights, problem)
        of_k = next((x for x in k if x is of_v), k[0])
        return QKVInputs(
            _shaped(q[0], batch, queries, token_first),
            _shaped(of_k, batch, keys, token_first),
            _shaped(of_v, batch, keys, token_first),
        )

    def _candidates(self, module: nn.Module, letter: str) -> list[Tensor]:
        """What may be a projection's input, first calls first: relative positions pass through it later."""
        calls = self._seen[module]
        if isinstance(module, nn.MultiheadAttention):
            return [call[list(ARGUMENTS).index(letter)] for call in calls]
        return [x for call in calls for x in call]


class _AsRows:
    """Tensors as rows of a width; the rows of one tensor are one object, whichever projections read it.

    Under mask.ragged, projections read the real tokens only: the rows of padding are then added as zeros.
    """

    def __init__(self, packed: Bool[Tensor, "batch token"] | None) -> None:
        self.packed = packed
        self._rows: dict[tuple[object, ...], Rows] = {}

    def __call__(self, tensors: Iterable[Tensor], width: int) -> list[Rows]:
        return [self._of(x) for x in tensors if x.numel() and x.shape[-1] == width]

    def _of(self, x: Tensor) -> Rows:
        """An input of a projection as rows."""
        key = (x.data_ptr(), x.shape, x.stride())
        if key not in self._rows:
            self._rows[key] = self._padded(x.reshape(-1, x.shape[-1]))
        return self._rows[key]

    def _padded(self, x: Rows) -> Float[Tensor, "padded_row width"]:
        """Rows of a projection's input with padding where the model packed them."""
        packed = self.packed
        if packed is None or x.shape[0] == packed.numel() or x.shape[0] != int(packed.sum()):
            return x
        return x.new_zeros(packed.numel(), x.shape[1]).index_copy_(0, packed.flatten().nonzero().squeeze(1), x)


def _value_input(candidates: list[Rows], weights: HeadWeights, problem: Problem) -> tuple[Rows, bool]:
    """Of candidate projection inputs, the one that gives the values of head 0.

    Also returns whether its rows run over (token, batch), as in torch.nn.
    """
    batch, keys = problem.v.shape[0], problem.v.shape[2]
    orders = [False] if batch == 1 or keys == 1 else [False, True]
    options = [(x, token_first) for x in candidates for token_first in orders]
    if len(options) == 1 or not weights.heads:
        return options[0]
    kv = weights.groups.kv_of_head[0]
    values = problem.v[:, problem.groups.kv_of_head[0]].float()

    def distance(option: tuple[Rows, bool]) -> float:
        x, token_first = option
        computed = x.float() @ weights.v[kv].float().T + weights.bias("v")[kv].float()
        return float((_shaped(computed, batch, keys, token_first) - values).abs().sum())

    return min(options, key=distance)


def _shaped(x: Rows, batch: int, tokens: int, token_first: bool) -> Float[Tensor, "batch token width"]:
    return x.view(tokens, batch, -1).transpose(0, 1) if token_first else x.view(batch, tokens, -1)
