"""The heads of a layer on this rank, if tensor parallelism splits the layer.

Replicated tensors pass `copy_to_ranks` before the heads, and `all_reduce` sums the outputs of the heads (Shoeybi et
al. 2019, Megatron-LM): one sum over the ranks in the forward pass, one in the backward pass.

    copy_to_ranks: x → x,          dx = Σ_ranks dx_rank
    all_reduce:    x → Σ_ranks x,  dx_rank = dx
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from multihead._base.shapes import Keys, Queries, Values
from multihead.errors import SizeError
from multihead.layer._checks import check_projections
from multihead.layer._problem import Groups
from multihead.layer.outputs import Ask, AttentionOutput, Cells
from multihead.layer.position import Rotary

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from multihead.layer.attention import MultiHeadAttention


def copy_to_ranks(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """x for the head shards of all ranks; its gradient is the sum over the ranks."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    from torch.distributed.tensor import DTensor, Partial, Replicate

    replicated = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    return replicated.to_local(grad_placements=[Partial()])


def all_reduce(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum over the ranks, on every rank that holds a head shard."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    parts = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    return parts.redistribute(placements=[Replicate()]).to_local()


def local(x: Tensor) -> Tensor:
    """The part of a DTensor on this rank; a plain tensor as it is."""
    if type(x) in (Tensor, nn.Parameter):
        return x
    from torch.distributed.tensor import DTensor

    # isinstance, not getattr: torch.compile does not find to_local by name.
    return x.to_local() if isinstance(x, DTensor) else x


@dataclass(frozen=True)
class HeadShard:
    """Query heads `heads` of `all_heads` and kv heads `kv_heads` of `all_kv_heads`, by their index in the layer."""

    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    all_heads: int
    all_kv_heads: int
    groups: Groups
    """the groups of the local heads, counted from 0"""
    mesh: DeviceMesh

    def __deepcopy__(self, memo: object) -> HeadShard:
        return self  # a copy of a layer is split over the same ranks

    def indices(self, heads: Sequence[int]) -> list[int]:
        """The given heads that are on this rank, as indices of the local heads."""
        return [self.heads.index(h) for h in heads if h in self.heads]

    def copy_to_ranks(self, x: Tensor) -> Tensor:
        """The same x; its gradient is the sum over the ranks, each with the gradient of its heads."""
        return copy_to_ranks(x, self.mesh)

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over the ranks, on every rank."""
        return all_reduce(x, self.mesh)

    def parameters(self, part: nn.Module) -> dict[str, Tensor]:
        """The parameters of a module shared by the heads of all ranks; their gradients are summed."""
        return {name: self.copy_to_ranks(p) for name, p in part.named_parameters()}

    def module(self, part: nn.Module) -> Any:
        """A module shared by the heads of all ranks, such as a norm of q and k; its gradients are summed."""
        parameters = self.parameters(part)
        return lambda *args: functional_call(part, parameters, args)  # pyright: ignore[reportUnknownLambdaType]

    def local(self, x: Float[Tensor, "..."], dim: int = 0) -> Float[Tensor, "..."]:
        """The heads of this shard from a tensor with all heads along `dim`; an axis of size 1 is unchanged."""
        if x.shape[dim] == 1 != self.all_heads:
            return x
        return self.copy_to_ranks(x).index_select(dim, torch.tensor(self.heads, device=x.device))

    def local_request(self, ask: Ask) -> LocalAsk:
        """The part of a request that concerns this rank's heads."""
        cells = ask.weights
        if isinstance(cells, Cells) and cells.heads is not None:
            invalid = next((h for h in cells.heads if not -self.all_heads <= h < self.all_heads), None)
            if invalid is not None:
                raise SizeError(
                    f"head must be in 0..{self.all_heads - 1}, got {invalid}",
                    hint=f"the layer has {self.all_heads} heads",
                )
            cells = Cells(self.indices([h % self.all_heads for h in cells.heads]), cells.rows)
        return LocalAsk(cells, ask.lse, ask.heads, request=ask)

    def gather_outputs(self, ask: Ask, part: AttentionOutput) -> AttentionOutput:
        """The outputs of the heads of all ranks, on every rank."""
        cells, all_heads = ask.weights, range(self.all_heads)
        chosen = all_heads
        if isinstance(cells, Cells) and cells.heads is not None:
            chosen = [h % self.all_heads for h in cells.heads]
        axis = part.out.ndim - 2  # 0 without a batch axis
        weights = None if part.weights is None else self._gather(part.weights, chosen, axis)
        lse = None if part.lse is None else self._gather(part.lse, all_heads, axis)
        heads = None if part.heads is None else self._gather(part.heads, all_heads, axis)
        return AttentionOutput(part.out, weights, lse, heads)

    def _gather(self, x: Tensor, heads: Sequence[int], axis: int) -> Tensor:
        """Local heads along an axis → all heads: pad with zeros for the other ranks' heads, then sum over ranks."""
        index = [i for i, head in enumerate(heads) if head in self.heads]
        full = x.new_zeros(*x.shape[:axis], len(heads), *x.shape[axis + 1 :])
        return self.all_reduce(full.index_copy(axis, torch.tensor(index, dtype=torch.long, device=x.device), x))


@dataclass(frozen=True)
class LocalAsk(Ask):
    """The part of a request that concerns one rank, and the full request."""

    request: Ask = field(default_factory=Ask)


def local_groups(attn: MultiHeadAttention, q: Queries, k: Keys, v: Values) -> Groups:
    """The groups of the heads on this rank: under tensor parallelism a projection returns some of the heads."""
    heads, kv_heads, groups = q.shape[1], k.shape[1], attn.groups
    if heads == attn.num_heads and kv_heads == groups.kv_heads == v.shape[1]:
        return groups
    if attn.head_shard is not None:
        return attn.head_shard.groups
    same_part = kv_heads * attn.num_heads == heads * attn.num_kv_heads or kv_heads == attn.num_kv_heads == 1
    if heads >= attn.num_heads or v.shape[1] != kv_heads or not same_part:
        check_projections(attn)
        raise SizeError(
            f"q_proj, k_proj and v_proj returned {heads}, {kv_heads} and {v.shape[1]} heads, the layer has "
            f"{attn.num_heads}, {attn.num_kv_heads} and {attn.num_kv_heads}",
            hint="a projection that replaces another returns as many features",
        )
    if groups.size is None or attn.sink_logits is not None or not isinstance(attn.position, Rotary | None):
        raise SizeError(
            f"tensor parallelism of single projections needs even groups, no sinks and no position bias, got "
            f"{heads} of {attn.num_heads} heads from q_proj",
            hint="multihead.parallel.tensor_parallel_plan(module) splits such layers",
        )
    return Groups.even(heads, kv_heads)
