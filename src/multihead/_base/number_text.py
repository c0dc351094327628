"""Numbers as text, for all faces: the page's script has the same rules (show/app/format.js), and `PAGE_FORMATS`.

>>> from multihead._base.number_text import amount, fraction, number
>>> number(0.12345), number(1_234_567.0), number(1234.6), number(float("nan"))
('0.123', '1.2e6', '1235', '–')
>>> amount(139_392), amount(58e9, "B"), fraction(0.875)
('139 k', '58.0 GB', '0.88')
"""

from __future__ import annotations

import math

MISSING = "–"
DIGITS = 3
"""significant digits of a number"""
PLAIN = (1e-3, 1e6)
"""Numbers in this range are written without an exponent."""
FRACTION_DIGITS = 2
"""decimals of a fraction"""
PREFIXES = ("", "k", "M", "G", "T", "P", "E")
"""of an amount: each is a thousand times the one before"""

PAGE_FORMATS = {
    "missing": MISSING,
    "digits": DIGITS,
    "plain": PLAIN,
    "fraction_digits": FRACTION_DIGITS,
    "prefixes": PREFIXES,
}
"""As the page's script reads them."""


def number(x: float, digits: int = DIGITS) -> str:
    """A number with a few significant digits; below a million, its integer digits in full."""
    if math.isnan(x):
        return MISSING
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    if x == int(x) and abs(x) < PLAIN[1]:
        return str(int(x))
    if not PLAIN[0] <= abs(x) < PLAIN[1]:
        mantissa, _, exponent = f"{x:.1e}".partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    return f"{float(f'{x:.{digits}g}'):.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{x:.0f}"


def fraction(x: float) -> str:
    """A number from 0 to 1, with two decimals."""
    return MISSING if math.isnan(x) else f"{x:.{FRACTION_DIGITS}f}"


def amount(x: float, unit: str = "") -> str:
    """A count or a size with three significant digits and an SI prefix: 58.0 G, 4.83 GB."""
    if not math.isfinite(x):
        return number(x)
    step = 0
    while abs(x) >= 999.5 and step < len(PREFIXES) - 1:
        x, step = x / 1000, step + 1
    whole = step == 0 and x == int(x)
    digits = f"{x:.0f}" if whole else f"{x:#.3g}".rstrip(".")
    return f"{digits} {PREFIXES[step]}{unit}".rstrip()
