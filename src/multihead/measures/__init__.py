"""Measure heads: exact statistics of attention, streamed, in memory linear in tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.measures.cost.spec import Spec
    from multihead.measures.treebank.syntax import syntax
    from multihead.model.statistics.statistics_options import Statistics
else:
    from multihead._base.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        "multihead.model.statistics.statistics_options:Statistics",
        "multihead.measures.treebank.syntax:syntax",
        "multihead.measures.cost.spec:Spec",
    )

__all__ = [
    "Statistics",
    "syntax",
    "Spec",
]
