"""kill -9 at any moment, then --resume: the file of the table is the same, byte for byte."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import warm
from cli.conftest import Folders, Said

# The real command, which kills itself with SIGKILL right after, or in the midst of, its n-th write.
KILLED = """
import os, signal, sys
from multihead._base import atomic_files as files
from multihead.corpus import run
from multihead.corpus import state

when, left = sys.argv[1], int(sys.argv[2])
write_atomically, replace = files.write_atomically, files.Path.replace

def dying(path, data):
    global left
    left -= 1
    if not left and when == "during":
        files.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    write_atomically(path, data)
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

state.write_atomically = dying
from multihead.cli import main
sys.exit(main(sys.argv[3:]))
"""


def killed(when: str, write: int, *words: object) -> None:
    done = warm.run(KILLED, when, write, *words)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_killed_twice_and_resumed_the_table_is_the_same_file(
    multihead: Callable[..., Said], given: Folders, tmp_path: Path
) -> None:
    options = (
        "--corpus",
        given.corpus,
        "--batch-size",
        2,
        "--save-every",
        0,
        "--importance",
        "gradient",
        "--similarity",
    )
    words = ("measure", given.gpt2, *options)
    run, whole = tmp_path / "run", tmp_path / "whole"
    killed("after", 2, *words, "-o", run)  # of the 4 batches of the first stage
    assert sorted(p.name for p in run.iterdir()) == [".lock", "state"]
    killed("during", 2, *words, "-o", run, "--resume")  # a batch, and half a write
    left = sorted(p.name for p in (run / "state").iterdir())
    assert [name for name in left if name.endswith(".part")], "the half of a file that never got its name"
    said = multihead(*words, "-o", run, "--resume")
    assert said.code == 0, said.err
    assert "resuming after 3 of 4 batches" in said.err
    assert multihead(*words, "-o", whole).code == 0
    assert (run / "table.json").read_bytes() == (whole / "table.json").read_bytes()
    assert [p.name for p in run.iterdir()] == ["table.json"], "halves are swept away"


def test_killed_from_outside_once_a_state_is_there(
    multihead: Callable[..., Said], given: Folders, tmp_path: Path
) -> None:
    """The corpus would take minutes; the state is there after the first batch."""
    corpus, run = tmp_path / "long.txt", tmp_path / "run"
    corpus.write_text("the cat sat on the mat and the dog ran to the old house .\n" * 4000)
    words = [
        "measure",
        given.gpt2,
        "--corpus",
        corpus,
        "--batch-size",
        1,
        "--save-every",
        0,
        "--no-kinds",
        "-o",
        run,
    ]
    command = warm.start(warm.COMMAND, *words)
    while not (run / "state" / "statistics-part-0.safetensors").exists():
        assert command.process.is_alive(), command.stderr
        time.sleep(0.01)
    command.process.kill()
    assert command.wait().returncode == -signal.SIGKILL
    assert not (run / "table.json").exists()
    from multihead.corpus.state import load_state

    assert 1 <= load_state(run / "state" / "statistics-part-0.safetensors")["batches"] < 4000
