"""Compare golden values with today's: which are wrong, gone or new.

>>> print(compare({"entropy": 1.0, "rank": 3, "kind": "first"}, {"entropy": 1.1, "rank": 3}, TOLERANCES["float32"]))
1 of 3 values wrong: relative tolerance 0.0001, absolute 1e-06
  entropy: 1.0 → 1.1, relative difference 0.1
1 of 3 values gone
  kind: if it has another name today, add that to names.json; if it was removed on purpose, run make golden
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from golden.record import Value, Values

WORST = 10
"""How many wrong values, and how many gone ones, are shown."""

GONE = "if it has another name today, add that to names.json; if it was removed on purpose, run make golden"


@dataclass(frozen=True)
class Tolerance:
    """Floats may differ by `relative` · |golden| + `absolute`; whole numbers and words must be equal."""

    relative: float
    absolute: float


TOLERANCES = {
    # float64 throughout: differences of up to 1e-11 were observed, and values are rounded to ten digits.
    "float64": Tolerance(1e-9, 1e-11),
    # float64 behind an eigendecomposition, a least-squares fit or training, which amplify rounding errors by a
    # condition number, or with some float32 draws: up to 1e-8.
    "solved": Tolerance(1e-6, 1e-8),
    # float32: up to 2e-5, where a small number is the difference of large ones.
    "float32": Tolerance(1e-4, 1e-6),
}
"""By the precision that values are computed in. Differences were observed between AVX-512, AVX2 and SSE, and with
one and two threads."""


@dataclass(frozen=True)
class Wrong:
    """A value that differs from the golden one."""

    path: str
    golden: Value
    today: Value
    excess: float
    """difference / tolerance; infinite for words and whole numbers"""

    @property
    def relative(self) -> float:
        """|today − golden| / |golden|; infinite where one of them is not a number."""
        if not (_is_number(self.golden) and _is_number(self.today)):
            return math.inf
        return abs(self.today - self.golden) / abs(self.golden) if self.golden else math.inf

    def __str__(self) -> str:
        change = f"{self.path}: {self.golden!r} → {self.today!r}"
        return change if math.isinf(self.relative) else f"{change}, relative difference {self.relative:.2g}"


@dataclass(frozen=True)
class Comparison:
    """Golden values that are wrong (worst first) or gone, and values that are new."""

    wrong: list[Wrong]
    gone: list[str]
    added: list[str]
    total: int
    tolerance: Tolerance

    @property
    def fine(self) -> bool:
        """New values are fine. No golden values at all are a failure: nothing was compared."""
        return self.total > 0 and not self.wrong and not self.gone

    def __str__(self) -> str:
        if not self.total:
            return "there are no golden values: run make golden"
        lines: list[str] = []
        if self.wrong:
            limits = f"relative tolerance {self.tolerance.relative:g}, absolute {self.tolerance.absolute:g}"
            lines.append(f"{len(self.wrong)} of {self.total} values wrong: {limits}")
            lines += [f"  {wrong}" for wrong in self.wrong[:WORST]]
        if self.gone:
            lines.append(f"{len(self.gone)} of {self.total} values gone")
            lines += [f"  {path}: {GONE}" for path in self.gone[:WORST]]
        if self.added:
            lines.append(f"{len(self.added)} values are new: make golden adds them")
        return "\n".join(lines) or f"all {self.total} values are unchanged"


def compare(golden: Values, today: Values, tolerance: Tolerance) -> Comparison:
    """Compare two sets of values under canonical names."""
    wrong = [
        Wrong(path, was, today[path], excess)
        for path, was in golden.items()
        if path in today and (excess := _excess(was, today[path], tolerance)) > 1
    ]
    return Comparison(
        sorted(wrong, key=lambda w: (-w.excess, w.path)),
        [path for path in golden if path not in today],
        [path for path in today if path not in golden],
        len(golden),
        tolerance,
    )


def _excess(golden: Value, today: Value, tolerance: Tolerance) -> float:
    """Difference / tolerance: at most 1 for values that agree."""
    if isinstance(golden, float) and _is_number(today):
        return abs(today - golden) / (tolerance.relative * abs(golden) + tolerance.absolute)
    return 0.0 if golden == today else math.inf


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float)
