"""What every test runs under: a tier, checked annotations, one thread, fixed seeds."""

from __future__ import annotations

import os
import signal

# A shell starts background processes with Ctrl-C ignored, and children inherit that: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before torch is imported: the workers of pytest-xdist share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import annotation_checks
import tiers


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("annotations") != "plain":
        annotation_checks.install()  # no test has imported the package yet
    tiers.draw(config.getoption("tier"))
    torch.set_num_threads(1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.left_to_the_other_run(config, collection_path) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.select(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Annotations are checked, or not, from the first fixture of a test on."""
    tier = tiers.TIERS[item.config.getoption("tier")]
    annotation_checks.active = tier.checks(item.path)
    return (yield)


@pytest.fixture(autouse=True)
def _same_start() -> Any:
    """Seed, and put back what a test may leave changed."""
    random.seed(0)
    torch.manual_seed(0)
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_default_dtype(dtype)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def fp64() -> Any:
    """Everything made inside the test is float64."""
    torch.set_default_dtype(torch.float64)
