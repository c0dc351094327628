"""The manners of every command: help at once, no tracebacks, colours, exit codes."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import Said
from multihead.cli import COMMANDS, main, parser
from multihead.cli.console import duration, size
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

Multihead = Callable[..., Said]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[2] / "src")
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )


def test_help_does_not_import_torch() -> None:
    asks = "import sys; from multihead.cli import main\ntry: main({!r})\nexcept SystemExit: pass\n"
    heavy = "print('HEAVY', sorted({'torch', 'numpy', 'rich', 'jaxtyping', 'transformers'} & set(sys.modules)))"
    for words in (["--help"], *([command, "--help"] for command in COMMANDS)):
        done = run("-c", asks.format(words) + heavy)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "HEAVY []", words
        assert "usage: multihead" in done.stdout


def test_the_module_runs_and_says_its_version() -> None:
    done = run("-m", "multihead", "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("multihead 0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_there(command: str, multihead: Multihead) -> None:
    home = importlib.import_module(f"multihead.cli.{command}")
    assert callable(home.add)
    assert callable(home.run)
    said = multihead(command, "--help")
    assert said.code == 0
    examples = said.out.partition("examples:\n")[2].partition("\n\n")[0].splitlines()
    assert examples
    for line in examples:  # as they are when they are pasted into a shell
        words = shlex.split(line.split(" | ")[-1 if line.strip().startswith("cat ") else 0], comments=True)
        given = words[words.index("multihead") + 1 :]
        assert parser(command).parse_args(given).command == command, line


def test_words_that_mean_nothing(multihead: Multihead) -> None:
    for words in ((), ("fly",), ("show",), ("show", "x", "--wings")):
        said = multihead(*words)
        assert said.code == 2
        assert "usage: multihead" in said.err
        assert said.out == ""


class Boom(RuntimeError):
    pass


@pytest.mark.parametrize(
    "wrong, code, line",
    [
        (Boom("it\n  broke"), 2, "multihead: Boom: it broke\n\nhint: MULTIHEAD_TRACEBACK=1"),
        (KeyboardInterrupt(), 130, "multihead: stopped\n"),
        (PermissionError(13, "Permission denied", "x"), 2, "multihead: x: Permission denied\n"),
        (RuntimeError("CUDA out of memory. Tried"), 2, "multihead: out of memory: CUDA out of memory. Tried"),
        (MemoryError(), 2, "multihead: out of memory: no message\n\nhint: a smaller --batch-size"),
    ],
)
def test_whatever_goes_wrong_is_a_line(
    multihead: Multihead, monkeypatch: pytest.MonkeyPatch, wrong: BaseException, code: int, line: str
) -> None:
    def broken(args: Any) -> int:
        raise wrong

    monkeypatch.delenv("MULTIHEAD_TRACEBACK", raising=False)
    monkeypatch.setattr("multihead.cli.show.run", broken)
    said = multihead("show", "x")
    assert said.code == code
    assert said.err.startswith(line)


def test_a_traceback_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: Any) -> int:
        raise Boom

    monkeypatch.setenv("MULTIHEAD_TRACEBACK", "1")
    monkeypatch.setattr("multihead.cli.show.run", broken)
    with pytest.raises(Boom):
        main(["show", "x"])


def test_warnings_are_lines_too(multihead: Multihead, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(args: Any) -> int:
        warnings.warn("mind the gap", stacklevel=1)
        return 0

    before = warnings.showwarning
    monkeypatch.setattr("multihead.cli.show.run", warned)
    assert multihead("show", "x").err == "warning: mind the gap\n"
    assert warnings.showwarning is before


def test_colours(multihead: Multihead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HeadTable(("L0H0", "L0H1"), {"x": torch.ones(2)}, {"x": Meaning("", "")}).save(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    words = ("compare", tmp_path, tmp_path, "--fail-if", "x>1")
    assert "\x1b" not in multihead(*words).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32m✓" in multihead(*words).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in multihead(*words).out


def test_a_closed_pipe_is_no_failure(tmp_path: Path) -> None:
    heads = tuple(f"L{i}H{j}" for i in range(97) for j in range(23))
    HeadTable(heads, {"x": torch.ones(len(heads))}, {"x": Meaning("", "")}).save(tmp_path)
    command = f"{sys.executable} -m multihead show {tmp_path} | head -n 2; echo ${{PIPESTATUS[0]}}"
    done = run("-c", f"import subprocess; subprocess.run(['bash', '-c', {command!r}])")
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_sizes_and_durations() -> None:
    assert [size(x) for x in (7, 1500, 23_400, 2.5e9, 7e15)] == ["7 B", "1.5 kB", "23 kB", "2.5 GB", "7000 TB"]
    assert [duration(x) for x in (0.2, 59.4, 75, 3700, 90_000)] == [
        "1 s",
        "59 s",
        "1 min 15 s",
        "1 h 1 min",
        "25 h 0 min",
    ]
