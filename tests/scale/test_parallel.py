"""Models over ranks: 1, 2, 3 and 4 processes of one machine compute what one does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import warm
from once import once
from scale.on_ranks import context, heads, tensor, training

WORKER = Path(__file__).with_name("ranks.py")
WORLDS = (1, 2, 3, 4)
CHECKS = [check.__name__ for part in (tensor, context, heads, training) for check in part.CHECKS]


def selected_worlds(items: Sequence[pytest.Item]) -> list[int]:
    """The numbers of ranks that the tests of this run ask for: the fast tier has one."""
    specs = [item.callspec for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    return sorted({spec.params["world"] for spec in specs if "world" in spec.params}) or [WORLDS[-1]]


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, str]]]:
    """What each rank says about each check; all worlds are forked from one process, since importing is the cost."""
    worlds = selected_worlds(request.session.items)

    def start(folder: Path) -> None:
        started = warm.start(warm.script(WORKER), folder, ",".join(map(str, worlds)), GLOO_SOCKET_IFNAME="lo")
        done = started.wait(400)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    folder = once(tmp_path_factory, "parallel", start)
    return {
        world: [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]
        for world in worlds
    }


@pytest.mark.fast("2")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("check", CHECKS)
def test_ranks_compute_what_one_process_does(said: dict[int, list[dict[str, str]]], world: int, check: str) -> None:
    for rank, result in enumerate(said[world]):
        assert result[check] == "", f"rank {rank} of {world}:\n{result[check]}"


def test_no_check_is_forgotten(said: dict[int, list[dict[str, str]]]) -> None:
    assert all(sorted(result) == sorted(CHECKS) for ranks in said.values() for result in ranks)
