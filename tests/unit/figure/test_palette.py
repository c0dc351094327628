"""The colours of the five shares can be told apart with every kind of colour vision, on light and dark pages."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from jaxtyping import Float

from multihead._base.charts import page_style
from multihead._base.share_words import SHARES
from multihead.measures.kinds.shares import SHARES as MEASURED
from page.test_contrast import colours, contrast

Colour = Float[np.ndarray, "3"]

VISION = {
    "normal": np.eye(3),
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear RGB as seen without one kind of cones: Machado, Oliveira and Fernandes (2009), severity 1."""

TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
"""Linear sRGB to CIE XYZ with white D65."""


def linear(colour: str) -> Colour:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: Colour) -> Colour:
    """CIELAB of linear sRGB."""
    xyz = TO_XYZ @ rgb / TO_XYZ.sum(1)
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, vision: str) -> float:
    """ΔE (CIE 1976) of two colours as they are seen."""
    seen = [lab(np.clip(np.array(VISION[vision]) @ linear(colour), 0, 1)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def test_the_distance_is_that_of_the_field() -> None:
    assert distance("#ffffff", "#000000", "normal") == pytest.approx(100, abs=0.01)
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    red_green = ("#b24e2b", "#6d7000")
    assert distance(*red_green, "deutan") < 0.35 * distance(*red_green, "normal"), "they are confused"


@pytest.mark.parametrize("vision, least", [("normal", 30), ("deutan", 25), ("protan", 30), ("tritan", 20)])
def test_every_two_shares_can_be_told_apart(vision: str, least: float) -> None:
    for one, other in combinations(SHARES, 2):
        assert distance(one.colour, other.colour, vision) >= least, (one.name, other.name)


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_every_share_is_seen_on_the_page(theme: str) -> None:
    """WCAG 2.2, 1.4.11: graphical objects have a contrast of 3 to 1."""
    for share in SHARES:
        assert contrast(share.colour, colours(theme)["paper"]) >= 3, share.name


def test_the_shares_that_are_shown_are_those_that_are_measured() -> None:
    assert tuple(share.name for share in SHARES) == tuple(MEASURED)
    assert len({share.letter for share in SHARES}) == len(SHARES)
    assert [share["colour"] for share in page_style()["shares"]] == [share.colour for share in SHARES]
