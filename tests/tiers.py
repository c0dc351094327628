"""The tiers of the suite: how many cases run, how many are drawn, where annotations are checked.

| tier | command | cases of a test | drawn cases | annotations checked in |
|---|---|---|---|---|
| fast | make test | those its `fast` marker names; all without one | 25 | unit/layer, unit/model |
| all | make test-all | all | 300 | every test |
| nightly | make test-nightly | all | 10,000 | every test |

`@pytest.mark.fast("bert", "llama")` keeps the cases whose id contains one of these as a whole part (ids join the
parts with dashes); `@pytest.mark.fast(2)` keeps two cases, the first and the last; `fast(0)` leaves the test to the
other tiers. A case that is named in full on the command line always runs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Tier:
    """How thorough a run is."""

    draws: int
    every_case: bool
    checked: tuple[str, ...]
    """Folders and files of tests/ in which annotations are checked."""

    def checks(self, path: Path) -> bool:
        """Whether annotations are checked in the tests of this file."""
        return any(path.is_relative_to(HERE / place) for place in self.checked)


TIERS = {
    "fast": Tier(draws=25, every_case=False, checked=("unit/layer", "unit/model", "test_checks.py")),
    "all": Tier(draws=300, every_case=True, checked=("",)),
    "nightly": Tier(draws=10_000, every_case=True, checked=("",)),
}


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="fast", help="how much of the suite runs (default: fast)")
    parser.addoption(
        "--annotations",
        choices=("checked", "plain"),
        help="only tests under annotation checks, or only the others, without wrapped calls (default: both)",
    )


def left_to_the_other_run(config: pytest.Config, path: Path) -> bool:
    """Whether --annotations leaves out a test file: wrapped calls cost a tenth of the time even unchecked."""
    annotations = config.getoption("annotations")
    if annotations is None or path.suffix != ".py":
        return False
    return TIERS[config.getoption("tier")].checks(path) != (annotations == "checked")


def draw(name: str) -> None:
    """Set the number of drawn cases; for a share of it, @settings(max_examples=settings().max_examples // 10)."""
    hypothesis.settings.register_profile(
        name,
        max_examples=TIERS[name].draws,
        derandomize=name
        != "nightly",  # the night looks for new cases; by day the same commit gives the same result
        print_blob=True,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    )
    hypothesis.settings.load_profile(name)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that the fast tier leaves to the others."""
    if TIERS[config.getoption("tier")].every_case:
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    kept = {item for function in cases.values() for item in _fast(function)}
    kept |= {item for item in items if any(item.nodeid.endswith(arg) for arg in config.args if "[" in arg)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _fast(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of one test function that its marker keeps."""
    marker = cases[0].get_closest_marker("fast")
    if marker is None:
        return cases
    if isinstance(marker.args[0], int):
        count, last = min(marker.args[0], len(cases)), len(cases) - 1
        return [cases[i * last // max(1, count - 1)] for i in range(count)]
    parts = [f"-{part}-" for part in marker.args]
    kept = [case for case in cases if not (name := _id(case)) or any(part in f"-{name}-" for part in parts)]
    if not kept:
        raise pytest.UsageError(f"{cases[0].nodeid}: no case is named {', '.join(marker.args)}; see tests/tiers.py")
    return kept


def _id(case: pytest.Item) -> str:
    """The id of a parametrized case; "" for a test without parameters."""
    callspec = getattr(case, "callspec", None)
    return "" if callspec is None else callspec.id
