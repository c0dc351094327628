"""SEE: find the heads of any PyTorch model, capture and change them as they pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.model.adapters import adapter
    from multihead.model.kept_tensors import Keep
else:
    from multihead._base.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        "multihead.model.kept_tensors:Keep",
        "multihead.model.adapters:adapter",
    )

__all__ = [
    "Keep",
    "adapter",
]
