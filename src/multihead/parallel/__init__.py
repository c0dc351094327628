"""Attention layers over several ranks: tensor parallelism splits heads, context parallelism splits tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.parallel.context import context_parallel
    from multihead.parallel.tensor import tensor_parallel_plan
else:
    from multihead._base.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        "multihead.parallel.tensor:tensor_parallel_plan",
        "multihead.parallel.context:context_parallel",
    )

__all__ = [
    "tensor_parallel_plan",
    "context_parallel",
]
