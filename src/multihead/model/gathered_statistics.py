"""Gather the statistics of a layer whose heads are sharded over ranks."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from multihead.layer.share import Share
from multihead.model.statistics.head_statistics import HeadStatistics
from multihead.model.statistics.moments import KEPT


def of_all_ranks(local: HeadStatistics, share: Share) -> HeadStatistics:
    """The statistics of all heads of a layer, on every rank; `local` are those of this rank's heads."""
    gathered: list[Any] = [None] * share.mesh.size()
    dist.all_gather_object(gathered, (share.heads, local.state()), group=share.mesh.get_group())
    layer = HeadStatistics(share.of, local.options)
    layer.rows, layer.padding, layer.all_padding = local.rows, local.padding, local.all_padding
    for head_ids, state in gathered:
        part, heads = HeadStatistics.from_state(state), list(head_ids)
        for name in KEPT:
            getattr(layer.moments, name)[:, heads] = getattr(part.moments, name)
        layer.empty[heads], layer.broken[heads] = part.empty, part.broken
        layer.outputs.count[heads] = part.outputs.count
        if part.outputs.total is not None:
            if layer.outputs.total is None:
                layer.outputs.total = part.outputs.total.new_zeros(share.of, part.outputs.total.shape[1])
            layer.outputs.total[heads] = part.outputs.total
    return layer
