"""docs/families.md, written by the test run: what was proven for which architecture.

A test that proves something calls record_property("works", "capture bert"). When every such test of the zoo has
run, the page is written; if it was not true before, the run fails and says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

COLUMNS = ("capture", "anatomy", "ablate", "prune", "group")
PAGE = Path(__file__).parent.parent / "docs" / "families.md"
_proven: set[tuple[str, str]] = set()
_ran: set[tuple[str, str]] = set()

HEAD = """# What works for which architecture

Written by the test run (`tests/families_table.py`): a tick is a test that passed, on a tiny random model of the
installed transformers, with a plain and a padded batch.

- **capture**: every attention is seen, with the q, k, v, mask, scale, bias, softcap and sinks that explain what
  the kernel gave; the model's own output stays the same, and nothing is left behind.
- **anatomy**: W_Q, W_K, W_V and W_O of every head are found as views of the parameters, and proven by numbers.
- **ablate**: a ablated head gives nothing, the others what they gave.
- **prune**: with heads cut out, another number in every layer, the model gives what it gives with them ablated; a
  layer may lose all its heads; groups may be of different sizes.
- **group**: with keys and values shared, the model gives what the whole one gives with the same numbers copied to
  every head. Decoders cache each kv head once.

What is cut, and how:

- Most modules are shrunk where they stand: smaller matrices, and a few attributes that say the number of heads.
- Heads that share keys and values in a way the module's code cannot say (BERT, GPT-2, T5, ...; groups of different
  sizes everywhere) go through a kernel of ours on Hugging Face's attention interface, in front of eager, sdpa or
  whichever the model uses. Only that module's view of the config changes.
- Modules that compute attention by hand or want as many keys as queries (GPT-J, GPT-Neo, GPT-NeoX, OPT, BLOOM,
  Falcon, MPNet, DeBERTa, ModernBERT) have a projection that computes each kv head once and hands out copies, and a
  cache that keeps one: weights and cache are smaller, the arithmetic of the scores is the same.
- OLMo 2 normalises all heads together, so that the norm of the heads that stay needs the others: W_Q and W_K stay
  whole there; W_V, W_O, the scores and the cache get smaller.
- T5, MPNet, BLOOM and Falcon hand numbers of all heads from layer to layer (position bias, ALiBi): each layer picks
  those of its heads.
- ALBERT has one layer for all depths: what it loses, all of them lose.
- A module whose class is in no table is tried in several ways, and held against a run with the heads ablated; if
  none gives the same numbers, it is refused and left as it was.

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
