"""Which heads of an attention are on this rank, where tensor parallelism has spread its projections."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.layer.problem import Problem
from multihead.layer.share import Share


def share_of(module: nn.Module, problem: Problem) -> Share | None:
    """The heads that `module` has here, by their numbers in the whole layer; None: all of them.

    Our layers know. Of others it is read from the projection of the queries: a weight that is a DTensor, sharded by
    rows, of which this rank has as many rows as there are queries of all heads here.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    told: object = getattr(module, "share", None)
    if isinstance(told, Share):
        return None if len(told.heads) == told.of else told
    here, dim = problem.q.shape[1], problem.q.shape[3]
    for weight in module.parameters():
        found = _rows(weight)
        if found is None or weight.ndim != 2 or found[1] - found[0] != here * dim or weight.shape[0] == here * dim:
            continue
        first, mesh = found[0], weight.device_mesh  # pyright: ignore[reportAttributeAccessIssue]  # a DTensor has it
        if first % dim or weight.shape[0] % dim:
            raise MultiheadError(
                f"{type(module).__name__}: rows of a rank begin at {first}, inside a head of {dim}",
                hint="split projections by whole heads: use as many ranks as divide the number of heads",
            )
        heads, ranks = tuple(range(first // dim, first // dim + here)), mesh.size()
        kv_heads = problem.groups.kv_heads
        own = tuple(range(mesh.get_local_rank() * kv_heads, (mesh.get_local_rank() + 1) * kv_heads))
        return Share(heads, own, weight.shape[0] // dim, kv_heads * ranks, problem.groups, mesh)
    return None


def _rows(weight: Tensor) -> tuple[int, int] | None:
    """(first, one past the last) of the rows that are here, of a DTensor on a mesh of one dimension."""
    placements = getattr(weight, "placements", None)
    if placements is None or len(placements) != 1 or not placements[0].is_shard(0):
        return None
    size = -(-weight.shape[0] // weight.device_mesh.size())  # pyright: ignore[reportAttributeAccessIssue]  # a DTensor
    first = min(weight.device_mesh.get_local_rank() * size, weight.shape[0])  # pyright: ignore[reportAttributeAccessIssue]
    return first, min(first + size, weight.shape[0])
