"""kill -9 of a rank at a random moment, then on with another number of ranks: the same table, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import warm
from once import once

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def came_of_it(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process imports torch once, forks all ranks of all checks, and says what came of it."""

    def start(folder: Path) -> None:
        done = warm.start(warm.script(HERE / "killing.py"), folder).wait(900)
        assert done.returncode == 0, done.stderr
        (folder / "result.json").write_text(done.stdout.splitlines()[-1])

    return json.loads((once(tmp_path_factory, "killed", start) / "result.json").read_text())


def test_killed_at_random_moments_and_resumed_by_other_numbers_of_ranks(came_of_it: dict[str, Any]) -> None:
    found = came_of_it["killed_and_resumed"]
    assert found["same"], found
    assert found["kills"] >= 5, found


def test_a_rank_that_dies_ends_the_run_with_a_clear_message(came_of_it: dict[str, Any]) -> None:
    found = came_of_it["one_dies"]
    assert found["same"], found
    assert None not in found["codes"], "nobody hangs"
    assert found["codes"].count(-9) == 2, "the two that were killed"
    assert found["codes"].count(1) == 4, "the others end by themselves"
    for said in found["said"]:
        assert "ended: rank " in said, said
        assert "with resume=True" in said, said


def test_of_a_damaged_save_the_part_is_read_again(came_of_it: dict[str, Any]) -> None:
    found = came_of_it["damaged"]
    assert found["same"], found
    assert found["codes"] == [0, 0], found
    assert "is damaged: its checksum is" in found["said"], found
    assert "the part is read again" in found["said"], found
