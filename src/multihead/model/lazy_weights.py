"""The attention weights that a model's own function returns, computed only if the model reads them.

Most models drop the weights that their eager attention function returns, so computing them in an interception would
take memory quadratic in tokens for nothing. A few return them with their output, or compute with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from multihead.model.kernel_arguments import without_interception


class LazyWeights(Tensor):
    """Weights (batch, head, query, key) that the first operation on them computes."""

    _own: Callable[[], Tensor | None]
    _weights: Tensor | None

    @staticmethod
    def __new__(cls: type[LazyWeights], own: Callable[[], Tensor | None], q: Tensor, k: Tensor) -> LazyWeights:
        """`own`: the model's own function, which returns its weights for q and k."""
        x = Tensor._make_wrapper_subclass(  # pyright: ignore[reportPrivateUsage]  # no public equivalent
            cls, (*q.shape[:3], k.shape[2]), dtype=q.dtype, device=q.device
        )
        x._own, x._weights = own, None
        return x

    def compute(self) -> Tensor | None:
        """Lazy weights as a plain tensor; None if the function returns none."""
        if self._weights is None:
            with without_interception():
                self._weights = self._own()
        return self._weights

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*computed_weights(args), **computed_weights(kwargs or {}))

    __torch_dispatch__ = __torch_function__  # operations of C++

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self.compute())


def computed_weights(x: Any) -> Any:
    """The same structure with plain tensors in place of lazy weights."""
    if not any(isinstance(leaf, LazyWeights) for leaf in pytree.tree_leaves(x)):
        return x
    return pytree.tree_map_only(LazyWeights, LazyWeights.compute, x)
