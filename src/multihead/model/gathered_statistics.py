"""What ranks know of their own heads, as one: statistics of a layer whose heads are spread over them."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from multihead.errors import MultiheadError
from multihead.layer.share import Share
from multihead.model.statistics.head_statistics import HeadStatistics
from multihead.model.statistics.moments import KEPT


def of_all_ranks(mine: HeadStatistics, share: Share) -> HeadStatistics:
    """The statistics of all heads of a layer, on every rank; each brings those of its own heads."""
    if mine.options.covariance:
        raise MultiheadError(
            f"covariance=True needs the outputs of all {share.of} heads side by side, this rank has "
            f"{len(share.heads)}",
            hint="mh.Statistics(covariance=False), or load the model whole",
        )
    sent: list[Any] = [None] * share.mesh.size()
    dist.all_gather_object(sent, (share.heads, mine.state()), group=share.mesh.get_group())
    whole = HeadStatistics(share.of, mine.options)
    whole.rows, whole.padding, whole.all_padding = mine.rows, mine.padding, mine.all_padding
    for heads, state in sent:
        part, at = HeadStatistics.from_state(state), list(heads)
        for name in KEPT:
            getattr(whole.moments, name)[:, at] = getattr(part.moments, name)
        whole.empty[at], whole.broken[at] = part.empty, part.broken
        whole.outputs.count[at] = part.outputs.count
        if part.outputs.total is not None:
            if whole.outputs.total is None:
                whole.outputs.total = part.outputs.total.new_zeros(share.of, part.outputs.total.shape[1])
            whole.outputs.total[at] = part.outputs.total
    return whole
