"""Words on the page can be read in both themes: contrast by WCAG 2.2 (AA: 4.5 to 1)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

STYLE = files("multihead.show").joinpath("app", "style.css").read_text(encoding="utf-8")
WORDS = ("ink", "dim", "faint", "accent", "good", "bad", "unsure")


def colours(block: str) -> dict[str, str]:
    found = re.search(rf"{re.escape(block)} {{(.*?)}}", STYLE, re.DOTALL)
    assert found is not None
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", found[1]))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def mixed(one: str, other: str, share: float) -> str:
    """color-mix(in srgb, one share, other)."""
    pairs = [[int(colour[i : i + 2], 16) for colour in (one, other)] for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_every_colour_of_words(theme: str) -> None:
    known = colours(theme)
    assert set(WORDS) <= set(known)
    for name in WORDS:
        assert contrast(known[name], known["paper"]) >= 4.5, name
    for name in ("ink", "dim", "accent", "good", "unsure"):
        assert contrast(known[name], known["soft"]) >= 4.5, f"{name} on soft"
    for share in (0.2, 0.5, 0.72):  # words that are shaded by their weight
        for behind in ("paper", "soft"):
            assert contrast(known["ink"], mixed(known["shade"], known[behind], share)) >= 4.5, (share, behind)
