"""Prune heads: plan the cut, shrink the model, refit the remaining weights, check quality and speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.edit.calibration import Calibration
    from multihead.edit.distill import Distill
    from multihead.edit.plan import Plan
else:
    from multihead._base.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        "multihead.edit.plan:Plan",
        "multihead.edit.distill:Distill",
        "multihead.edit.calibration:Calibration",
    )

__all__ = [
    "Plan",
    "Distill",
    "Calibration",
]
