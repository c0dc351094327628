"""Each named mistake, put into a copy of the package, is noticed by the checks of `kill_suite.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import multihead
from mutants.mutants import MUTANTS, Mutant

HERE = Path(__file__).parent
PACKAGE = Path(multihead.__file__).parent

Suite = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    """(folder of a copy, checks) → what each check says of it."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    server = subprocess.Popen(
        [sys.executable, str(HERE / "server.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None

    def run(home: Path, *checks: str) -> dict[str, str]:
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps([str(home), checks]), file=server.stdin, flush=True)
        return json.loads(server.stdout.readline())

    yield run
    server.stdin.close()
    server.wait(timeout=30)


def broken(mutant: Mutant, home: Path) -> None:
    """A copy of the package with the mistake in it; all other files, compiled ones too, are links."""
    shutil.copytree(PACKAGE, home / "multihead", copy_function=os.symlink)
    file = home / "multihead" / ("layer" if mutant.of_the_layer else "") / mutant.file
    text = file.read_text()
    times = text.count(mutant.old)
    assert times == 1, f"{mutant.old!r} is {times} times in {mutant.file}: update tests/mutants/mutants.py"
    file.unlink()
    file.write_text(text.replace(mutant.old, mutant.new))


def test_the_suite_passes_without_a_mutant(suite: Suite) -> None:
    assert {name: said for name, said in suite(PACKAGE.parent).items() if said != "ok"} == {}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.fast(*(name for name, mutant in MUTANTS.items() if mutant.of_the_layer))
def test_killed(name: str, tmp_path: Path, suite: Suite) -> None:
    mutant = MUTANTS[name]
    broken(mutant, tmp_path)
    found = suite(tmp_path, *mutant.killed_by)
    # An error is no proof: a typo in the table raises as well.
    assert any(said.startswith("differs") for said in found.values()), f"{name} survived: {found}"
