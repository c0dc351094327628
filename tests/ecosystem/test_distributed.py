"""FSDP2 and tensor parallelism on two processes of one machine: the same numbers as in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import warm

WORKER = Path(__file__).with_name("two_ranks.py")
CHECKS = [
    "fully_sharded",
    "projections_sharded_alone",
    "tensor_parallel",
    "tensor_parallel_decode",
    "tensor_parallel_refuses",
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each rank says about each check; both run all checks in one go, since starting them is the cost."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    ranks = [warm.start(warm.script(WORKER), rank, store) for rank in range(2)]
    heard = [rank.wait() for rank in ranks]
    for rank in heard:
        assert rank.returncode == 0, f"{rank.stdout}\n{rank.stderr}"
    return [json.loads(rank.stdout.splitlines()[-1]) for rank in heard]


@pytest.mark.parametrize("check", CHECKS)
def test_two_ranks_compute_what_one_process_does(said: list[dict[str, str]], check: str) -> None:
    for rank, result in enumerate(said):
        assert result[check] == "", f"rank {rank}:\n{result[check]}"


def test_no_check_is_forgotten(said: list[dict[str, str]]) -> None:
    assert all(sorted(result) == sorted(CHECKS) for result in said)
