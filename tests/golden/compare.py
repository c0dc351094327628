"""Compare golden values with those of today: what is wrong, what is gone, what is new.

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
"""So many wrong values are shown, and as many that are gone."""

GONE = "if it has another name today, add that to names.json; if it was removed on purpose, run make golden"


@dataclass(frozen=True)
class Tolerance:
    """A float may differ by `relative` of the golden one plus `absolute`; whole numbers and words may not."""

    relative: float
    absolute: float


TOLERANCES = {
    # Sums in float64: another order of summation, another instruction set or another number of threads was seen to
    # change them by less than 1e-11. Values are kept to ten digits.
    "float64": Tolerance(1e-9, 1e-11),
    # float64 behind an eigendecomposition, a least-squares fit or steps of training, which multiply rounding errors
    # by a condition number, or with a few numbers drawn in float32: up to 1e-8 was seen.
    "solved": Tolerance(1e-6, 1e-8),
    # float32, as models are used: up to 2e-5 was seen, where a small number is the difference of large ones.
    "float32": Tolerance(1e-4, 1e-6),
}
"""How far numbers may be from the golden ones, by what they are computed in. The changes "seen" are those between
AVX-512, AVX2 and SSE, and between one thread and two."""


@dataclass(frozen=True)
class Wrong:
    """A value that is another one today."""

    path: str
    golden: Value
    today: Value
    excess: float
    """how many times the tolerance it is off; infinite for words and whole numbers"""

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
    """What has become of the golden values; `wrong` has the worst first."""

    wrong: list[Wrong]
    gone: list[str]
    added: list[str]
    total: int
    tolerance: Tolerance

    @property
    def fine(self) -> bool:
        """New values are no failure; no values are one, since nothing would have been compared."""
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
        return "\n".join(lines) or f"all {self.total} values are as they were"


def compare(golden: Values, today: Values, tolerance: Tolerance) -> Comparison:
    """Both under canonical names."""
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
    """How many times the tolerance two values are apart: up to 1 they are the same."""
    if isinstance(golden, float) and _is_number(today):
        return abs(today - golden) / (tolerance.relative * abs(golden) + tolerance.absolute)
    return 0.0 if golden == today else math.inf


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float)
