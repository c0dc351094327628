"""FSDP2 and tensor parallelism on two processes of one machine: the same numbers as in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(source)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(store)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        heard = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (out, err) in zip(ranks, heard, strict=True):
        assert rank.returncode == 0, f"{out}\n{err}"
    return [json.loads(out.splitlines()[-1]) for out, _ in heard]


@pytest.mark.parametrize("check", CHECKS)
def test_two_ranks_compute_what_one_process_does(said: list[dict[str, str]], check: str) -> None:
    for rank, result in enumerate(said):
        assert result[check] == "", f"rank {rank}:\n{result[check]}"


def test_no_check_is_forgotten(said: list[dict[str, str]]) -> None:
    assert all(sorted(result) == sorted(CHECKS) for result in said)
