"""What attention layers share: inputs without a batch axis, and the steps after the scores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import torch.nn.modules.module as torch_module
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_tensor
from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.errors import MultiheadError, SizeError
from multihead.layer._coordinates import Coordinates, localized
from multihead.layer._host_values import HostInts
from multihead.layer._kv_store import At, KVStore
from multihead.layer._packing import Packing
from multihead.layer._problem import Problem, ScoreConfig, autocast_disabled
from multihead.layer._rotary import sequence_length
from multihead.layer._tracing import is_eager
from multihead.layer.outputs import Ask, AttentionOutput, Cells, lse_of, weights_of

if TYPE_CHECKING:
    from multihead.layer._head_shard import HeadShard


class AttentionLayer(nn.Module):
    """An attention layer with heads, an output projection and a scale."""

    input_name = "query"
    """of the first argument of `forward`, for errors"""

    head_shard: HeadShard | None = None
    """the heads of this rank, if `tensor_parallel_plan` has split the layer over several"""
    num_heads: int
    scale: float
    dropout: float
    o_proj: nn.Linear

    def _unbatched(self, query: Tensor, *others: Tensor | None, **options: Any) -> Any:
        """The call on (tokens, width) inputs, as a batch of one."""
        check_tensor(self.input_name, query)
        if query.ndim != 2:
            raise SizeError(
                f"{self.input_name} must have shape (batch, tokens, width) or (tokens, width), "
                f"got {tuple(query.shape)}",
                hint="x.flatten or x.unflatten gives it three axes",
            )
        batched = query.unsqueeze(0)
        lifted = [batched if x is query else x.unsqueeze(0) if isinstance(x, Tensor) else x for x in others]
        result = self.forward(batched, *lifted, **options)  # hooks have seen the call already
        if isinstance(result, Tensor):
            return result.squeeze(0)
        if not isinstance(result, AttentionOutput):
            return result  # a plan has a batch of one
        parts = (result.out, result.weights, result.lse, result.heads)
        return AttentionOutput(*(None if part is None else part.squeeze(0) for part in parts))  # pyright: ignore[reportArgumentType]

    def _scores(self, softcap: float | None = None, sinks: Tensor | None = None) -> ScoreConfig:
        offset, shard = 0, self.head_shard
        if shard is not None:
            offset = shard.heads[0]
            sinks = None if sinks is None else shard.local(sinks)
        return ScoreConfig(self.scale, softcap, sinks, self.dropout if self.training else 0.0, offset)

    def _sequence_length(
        self,
        queries: tuple[Tensor, At],
        keys: tuple[Tensor, At],
        lengths: HostInts | None,
        store: KVStore,
        positions: Tensor | None,
    ) -> int | Tensor:
        """The length of the sequence, for frequencies that depend on it; queries and keys are (x, positions)."""
        if store.tokens is not None and positions is not None:
            raise MultiheadError(
                f"positions of shape {tuple(positions.shape)} were given inside context_parallel; this rotation "
                "depends on the largest position, which may be on another rank",
                hint="pass no positions, or use a scaling other than DynamicNTK",
            )
        return sequence_length(queries, keys, lengths, store.tokens)

    def _localized(self, coordinates: Coordinates) -> Coordinates:
        """The coordinates of the heads on this rank."""
        shard = self.head_shard
        if shard is None:
            return coordinates
        return localized(coordinates, shard.heads, shard.all_heads)

    def _mix(
        self, heads: Float[Tensor, "row head token value_dim"], packing: Packing | None = None
    ) -> Float[Tensor, "batch query d_out"]:
        """Concat(heads) W_O. The heads of a packed batch are one row; the output has the padding again."""
        rows = join_heads(heads)
        if packing is None:
            return project(self.o_proj, rows)
        return packing.unpack(project(self.o_proj, packing.with_empty_row(rows)))


_GLOBAL_HOOKS = (
    torch_module._global_forward_hooks,  # pyright: ignore[reportPrivateUsage]  # no public names
    torch_module._global_forward_pre_hooks,  # pyright: ignore[reportPrivateUsage]
    torch_module._global_backward_hooks,  # pyright: ignore[reportPrivateUsage]
    torch_module._global_backward_pre_hooks,  # pyright: ignore[reportPrivateUsage]
)


def is_plain(projection: nn.Module) -> bool:
    """Whether calling a module is F.linear of its parameters and nothing else."""
    state = projection.__dict__
    return type(projection) is nn.Linear and not (
        state["_forward_hooks"] or state["_forward_pre_hooks"]
        or state["_backward_hooks"] or state["_backward_pre_hooks"]
        or "forward" in state or "weight" not in state["_parameters"] or any(_GLOBAL_HOOKS)
        or state.get("_compiled_call_impl") is not None
    )  # fmt: skip


def project(projection: nn.Module, x: Float[Tensor, "... width"]) -> Float[Tensor, "... out"]:
    """projection(x), without the call of nn.Module where it does nothing: a tenth of the time of a small layer."""
    if not is_plain(projection) or torch.compiler.is_compiling():
        return projection(x)
    parameters = projection.__dict__["_parameters"]
    return F.linear(x, parameters["weight"], parameters["bias"])


FEW_TOKENS, FEW_WEIGHTS = 64, 3 << 13
"""Up to these sizes copying three weights into one costs less than two more calls."""


def project_together(
    x: Float[Tensor, "batch token width"], q_proj: nn.Module, k_proj: nn.Module, v_proj: nn.Module,
    key_dim: int, value_dim: int,
) -> tuple[Queries, Keys, Values]:  # fmt: skip
    """Queries, keys and values of one input, split into heads; in one call where they are small."""
    batch, tokens, width = x.shape
    if is_eager(x) and batch * tokens <= FEW_TOKENS and is_plain(q_proj) and is_plain(k_proj) and is_plain(v_proj):
        of_q, of_k, of_v = (p.__dict__["_parameters"] for p in (q_proj, k_proj, v_proj))
        weights, biases = (
            (of_q["weight"], of_k["weight"], of_v["weight"]),
            (of_q["bias"], of_k["bias"], of_v["bias"]),
        )
        queries, keys, values = weights[0].shape[0], weights[1].shape[0], weights[2].shape[0]  # pyright: ignore[reportOptionalMemberAccess]
        rows = queries + keys + values
        if rows * width <= FEW_WEIGHTS and _can_join(weights) and (biases == NO_BIASES or _can_join(biases)):
            bias = None if biases[0] is None else torch.cat(biases)  # pyright: ignore[reportArgumentType]
            joint, steps = F.linear(x, torch.cat(weights), bias), tokens * rows  # pyright: ignore[reportArgumentType]
            if torch.is_grad_enabled():
                q, k, v = joint.split((queries, keys, values), -1)
                return split_heads(q, key_dim), split_heads(k, key_dim), split_heads(v, value_dim)
            key_strides, value_strides = (steps, key_dim, rows, 1), (steps, value_dim, rows, 1)
            return (
                joint.as_strided((batch, queries // key_dim, tokens, key_dim), key_strides),
                joint.as_strided((batch, keys // key_dim, tokens, key_dim), key_strides, queries),
                joint.as_strided((batch, values // value_dim, tokens, value_dim), value_strides, queries + keys),
            )
    return (
        split_heads(project(q_proj, x), key_dim),
        split_heads(project(k_proj, x), key_dim),
        split_heads(project(v_proj, x), value_dim),
    )


NO_BIASES = (None, None, None)


def _can_join(parts: tuple[Tensor | None, ...]) -> bool:
    """Whether torch.cat is the same for each part: no quantized or distributed tensors."""
    return all(type(part) in (nn.Parameter, Tensor) for part in parts)


def split_heads(x: Float[Tensor, "batch token width"], dim: int) -> Float[Tensor, "batch head token dim"]:
    batch, tokens, width = x.shape
    if not torch.is_grad_enabled() and is_eager(x) and x.is_contiguous():  # one view instead of two
        return x.as_strided((batch, width // dim, tokens, dim), (tokens * width, dim, width, 1))
    return x.view(batch, tokens, width // dim, dim).transpose(1, 2)


def join_heads(heads: Float[Tensor, "batch head token dim"]) -> Float[Tensor, "batch token width"]:
    """Concat(heads)."""
    batch, count, tokens, dim = heads.shape
    width = count * dim
    if tokens == 1:
        return heads.reshape(batch, 1, width)
    strides = (tokens * width, dim, width, 1)  # as the kernels leave it
    if not torch.is_grad_enabled() and is_eager(heads) and heads.stride() == strides:
        return heads.as_strided((batch, tokens, width), (tokens * width, width, 1))
    return heads.transpose(1, 2).flatten(2)


def needs_grad(q: Tensor, k: Tensor, v: Tensor, scores: ScoreConfig, store: KVStore) -> bool:
    """Whether attention is part of a graph."""
    if not torch.is_grad_enabled():
        return False
    if q.requires_grad or k.requires_grad or v.requires_grad or store.requires_grad:
        return True
    return scores.sinks is not None and scores.sinks.requires_grad


def answer(ask: Ask, problem: Problem, out: Tensor, heads: HeadOutputs) -> AttentionOutput:
    """The output with everything that `ask` names."""
    if problem.coordinates.shard is not None and (ask.weights or ask.lse):
        raise MultiheadError(
            f"{'weights' if ask.weights else 'lse'} of {problem.coordinates.keys} keys were requested, which are "
            "split over ranks",
            hint="call the layer outside context_parallel, or ask for 'heads'",
        )
    packing = problem.packing
    if packing is not None:
        q, k, v, heads = (packing.pad_heads(x) for x in (problem.q, problem.k, problem.v, heads))
        problem = replace(problem, q=q, k=k, v=v, packing=None)
    cells = Cells() if ask.weights is True else ask.weights
    with autocast_disabled(problem.q.device):
        weights = weights_of(problem, cells) if cells else None
        lse = lse_of(problem) if ask.lse else None
    return AttentionOutput(out, weights, lse, heads if ask.heads else None)
