"""The heads of an attention module on this rank, under tensor parallelism."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer import Problem
from multihead.layer._head_shard import HeadShard


def head_shard_of(module: nn.Module, problem: Problem) -> HeadShard | None:
    """The heads of `module` on this rank, as indices in the full layer; None if it has all heads.

    Multihead layers store it. For other modules it is inferred from the query projection: a row-sharded DTensor
    whose number of local rows equals heads × dim of the local queries.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    shard: object = getattr(module, "head_shard", None)
    if isinstance(shard, HeadShard):
        return None if len(shard.heads) == shard.all_heads else shard
    heads_here, dim = problem.q.shape[1], problem.q.shape[3]
    for weight in module.parameters():
        rows = _local_rows(weight)
        if (
            rows is None
            or weight.ndim != 2
            or rows[1] - rows[0] != heads_here * dim
            or weight.shape[0] == heads_here * dim
        ):
            continue
        first, mesh = rows[0], weight.device_mesh  # pyright: ignore[reportAttributeAccessIssue]  # a DTensor has it
        if first % dim or weight.shape[0] % dim:
            raise MultiheadError(
                f"{type(module).__name__}: a rank's rows must start at a head of {dim} rows, got row {first}",
                hint="split by whole heads: the number of ranks must divide the number of heads",
            )
        heads, ranks = tuple(range(first // dim, first // dim + heads_here)), mesh.size()
        kv_heads = problem.groups.kv_heads
        kv_indices = tuple(range(mesh.get_local_rank() * kv_heads, (mesh.get_local_rank() + 1) * kv_heads))
        return HeadShard(heads, kv_indices, weight.shape[0] // dim, kv_heads * ranks, problem.groups, mesh)
    return None


def _local_rows(weight: Tensor) -> tuple[int, int] | None:
    """(start, stop) of the local rows of a sharded weight, a DTensor on a 1-D mesh; None for other tensors."""
    placements = getattr(weight, "placements", None)
    if placements is None or len(placements) != 1 or not placements[0].is_shard(0):
        return None
    size = -(-weight.shape[0] // weight.device_mesh.size())  # pyright: ignore[reportAttributeAccessIssue]  # a DTensor
    first = min(weight.device_mesh.get_local_rank() * size, weight.shape[0])  # pyright: ignore[reportAttributeAccessIssue]
    return first, min(first + size, weight.shape[0])
