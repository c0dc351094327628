"""Every link of the pages leads somewhere, without the site being built (`make docs` builds it)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import docs_site
import links


def test_links_lead_somewhere() -> None:
    assert links.broken_links() == []


PAGE = """\
# A page
## What it costs: `a` & b
## Twice
## Twice
[right](#what-it-costs-a--b) [right](#twice-1) [right](docs/other.md#here) [right](https://example.org/not-looked-up)
{link}
"""


@pytest.mark.parametrize(
    "link, fault",
    [
        ("[a](docs/missing.md)", "no such file"),
        ("![a](images/missing.png)", "no such file"),
        ('<img src="missing.png">', "no such file"),
        ("[a](../outside.md)", "no such file"),
        ("[a](#nowhere)", "no heading #nowhere"),
        ("[a](#twice-2)", "no heading #twice-2"),
        ("[a](docs/other.md#there)", "no heading #there"),
        ("[a](docs)", "a folder"),
        ("```\n[a](missing.md)\n```", None),
        ("`[a](missing.md)`", None),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, link: str, fault: str | None) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/other.md").write_text("# Other\n### Here\n```\n# there\n```\n")
    (tmp_path / "page.md").write_text(PAGE.format(link=link))
    faults = links.broken_links(tmp_path)
    assert len(faults) == (fault is not None)
    assert all(line.startswith("page.md:6: ") and str(fault) in line for line in faults)


def test_the_navigation_has_every_page_once() -> None:
    shown = re.findall(r'= "([^"]+)"', docs_site.navigation())
    assert sorted(shown) == sorted(str(page.relative_to(links.ROOT)) for page in links.pages())
    assert shown[0] == "README.md"


def test_lists_are_as_the_site_reads_them() -> None:
    page = "Two:\n- one\n  - inside\n- two\n\n```\nx\n- y\n```\n"
    assert docs_site.separate_lists(page) == "Two:\n\n- one\n    - inside\n- two\n\n```\nx\n- y\n```\n"
