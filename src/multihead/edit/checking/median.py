"""How sure a median is.

>>> from multihead.edit.checking.median import interval
>>> interval([float(x) for x in range(1, 12)])
(2.0, 10.0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the true median with at least 95 %, whatever the noise; all of it for few values."""
    n, ordered, tail, k = len(values), sorted(values), 0.0, 0
    while k < n // 2:
        tail += math.comb(n, k) / 2**n
        if tail > 0.025:
            break
        k += 1
    return ordered[max(k, 1) - 1], ordered[n - max(k, 1)]
