"""Gather the statistics of a layer whose heads are sharded over ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from multihead.layer._head_shard import HeadShard
from multihead.model.statistics.head_statistics import HeadStatistics
from multihead.model.statistics.stream_moments import KEPT


def gather_ranks(local: HeadStatistics, shard: HeadShard) -> HeadStatistics:
    """The gathered statistics of all heads of a layer, on every rank; `local` are those of this rank's heads."""
    layer = HeadStatistics(shard.all_heads, local.options)
    layer.rows, layer.padding, layer.all_padding = local.rows, local.padding, local.all_padding
    for name in KEPT:
        getattr(layer.moments, name).copy_(_of_all_heads(getattr(local.moments, name), 1, shard))
    layer.empty, layer.broken = _of_all_heads(local.empty, 0, shard), _of_all_heads(local.broken, 0, shard)
    layer.outputs.count = _of_all_heads(local.outputs.count, 0, shard)
    if local.outputs.total is not None:  # every rank has seen the same batches, so it is None on all or on none
        layer.outputs.total = _of_all_heads(local.outputs.total, 0, shard)
    return layer


def _of_all_heads(values: Tensor, axis: int, shard: HeadShard) -> Tensor:
    """Values of this rank's heads along `axis` → values of all heads, by a sum with zeros for the other heads.

    The sum is over the bits: every head is on one rank, so even -0.0 and NaN arrive unchanged.
    """
    size = [*values.shape]
    size[axis] = shard.all_heads
    bits = torch.zeros(size, dtype=torch.int64)
    bits.index_copy_(axis, torch.tensor(shard.heads), values.view(torch.int64))
    bits = bits.to(shard.mesh.device_type)  # the backend may have no collectives for CPU tensors
    dist.all_reduce(bits, group=shard.mesh.get_group())
    return bits.cpu().view(values.dtype)
