"""docs/families.md, written by the test run: what was proven for which architecture.

A test that proves something calls record_property("works", "capture bert"). When every such test of the zoo has
run, the page is written; if it was not true before, the run fails and says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

COLUMNS = ("capture", "anatomy", "silence")
PAGE = Path(__file__).parent.parent / "docs" / "families.md"
_proven: set[tuple[str, str]] = set()
_ran: set[tuple[str, str]] = set()

HEAD = """# What works for which architecture

Written by the test run (`tests/families_table.py`): a tick is a test that passed, on a tiny random model of the
installed transformers, with a plain and a padded batch.

- **capture**: every attention is seen, with the q, k, v, mask, scale, bias, softcap and sinks that explain what
  the kernel gave; the model's own output stays the same, and nothing is left behind.
- **anatomy**: W_Q, W_K, W_V and W_O of every head are found as views of the parameters, and proven by numbers.
- **silence**: a silenced head gives nothing, the others what they gave.

"""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called where all reports arrive, also those of parallel workers."""
    if report.when != "call":
        return
    for name, value in report.user_properties:
        if name == "works":
            column, family = str(value).split(" ", 1)
            _ran.add((column, family))
            if report.passed:
                _proven.add((column, family))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workerinput") or exitstatus != pytest.ExitCode.OK:
        return
    from zoo import ZOO

    if _ran != {(column, family) for column in COLUMNS for family in ZOO}:
        return  # only a part of the suite was asked for
    page = _page(list(ZOO))
    if not PAGE.exists() or PAGE.read_text() != page:
        PAGE.write_text(page)
        print(f"\n{PAGE.name} was not what the tests show; it is rewritten: look at it and commit it")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _page(families: list[str]) -> str:
    lines = [f"| architecture | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for family in families:
        ticks = ["yes" if (column, family) in _proven else "no" for column in COLUMNS]
        lines.append(f"| {family} | {' | '.join(ticks)} |")
    return HEAD + "\n".join(lines) + "\n"
