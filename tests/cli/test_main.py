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
from multihead._base.estimate import duration, size
from multihead.cli import main
from multihead.cli.parser import COMMANDS, parse
from multihead.errors import MultiheadError
from multihead.table.column_info import ColumnInfo
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
    assert home.OPTIONS.__doc__
    assert callable(home.run)
    said = multihead(command, "--help")
    assert said.code == 0
    examples = said.out.partition("examples:\n")[2].partition("\n\n")[0].splitlines()
    assert examples
    for line in examples:  # as they are when they are pasted into a shell
        line = line.removeprefix("  source <(").replace("bash)", "bash").partition(" > ")[0]
        words = shlex.split(line.split(" | ")[-1 if line.strip().startswith("cat ") else 0], comments=True)
        given = words[words.index("multihead") + 1 :]
        assert parse(given)[0] == command, line


def test_words_that_mean_nothing(multihead: Multihead) -> None:
    for words in (("fly",), ("show",), ("show", "x", "--wings")):
        said = multihead(*words)
        assert said.code == 2
        error, hint = said.err.split("\n\n")
        assert error.startswith("multihead: ")
        assert "\n" not in error
        assert hint.startswith("hint: see multihead")
        assert said.out == ""


def test_no_command_lists_them_all(multihead: Multihead) -> None:
    said = multihead()
    assert (said.code, said.err) == (0, "")
    lines = [line.split() for line in said.out.splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines] == list(COMMANDS)
    assert all(len(line) > 3 for line in lines)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("mesure", "minilm"), "unknown command 'mesure'; did you mean measure?"),
        (("fly",), "unknown command 'fly'\n"),
        (("--verison",), "unrecognized arguments: --verison; did you mean --version?"),
        (("prune", "minilm", "--kepp", "0.5"), "unrecognized arguments: --kepp 0.5; did you mean --keep?"),
        (("prune", "minilm", "--kep", "0.5"), "unrecognized arguments: --kep 0.5; did you mean --keep?"),
        (("measure", "minilm", "-o", "x", "--batchsize=3"), "did you mean --batch-size?"),
        (("prune", "minilm", "--dt", "float32"), "unrecognized arguments: --dt float32"),
    ],
)
def test_misspelt_words_get_a_suggestion(multihead: Multihead, words: tuple[str, ...], line: str) -> None:
    said = multihead(*words)
    assert (said.code, said.out) == (2, "")
    assert line in said.err


# ---- completion -------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What bash offers after these words, the last of which is being typed."""
    script = f"""
multihead() {{ {sys.executable} -m multihead "$@"; }}
source <(multihead completion bash)
COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}
complete -p multihead >&2
_multihead
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert done.stderr == "complete -o default -F _multihead multihead\n"
    return done.stdout.split()


def test_bash_completes_commands_options_and_values() -> None:
    assert completed("multihead", "c") == ["compare", "cost", "check", "curve", "completion"]
    assert completed("multihead", "measure", "--imp") == ["--importance"]
    assert completed("multihead", "measure", "--importance", "a") == ["ablation", "all"]
    assert completed("multihead", "completion", "f") == ["fish"]

    assert completed("multihead", "measure", "--corpus", "") == [], "bash then offers files"
    assert completed("multihead", "fly", "") == []


def test_completion_requires_only_a_shell(multihead: Multihead) -> None:
    said = multihead("completion")
    assert said.code == 2
    assert "required: shell\n" in said.err


@pytest.mark.parametrize(("shell", "mark"), [("bash", None), ("zsh", ":"), ("fish", "\t")])
def test_every_option_is_completed(shell: str, mark: str | None, multihead: Multihead) -> None:
    script = multihead("completion", shell)
    assert (script.code, script.err) == (0, "")
    assert f"completion {shell}" in script.out, "the script asks the command"
    for line, words in {
        ("multihead",): [*COMMANDS],
        ("multihead", "measure", "x"): ["--rank-timeout", "--no-kinds", "--out", "-o"],
        ("multihead", "check"): ["--held-out", "--fail-if"],
        ("multihead", "prune", "--method"): ["obs", "fisher", "random"],
    }.items():
        offered = multihead("completion", shell, *line).out.splitlines()
        names = [word.partition(mark)[0] if mark else word for word in offered]
        assert set(words) <= set(names)
        assert all(" " not in name for name in names)


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


@pytest.mark.parametrize(
    ("hint", "line"),
    [
        ("force=True replaces it", "--force replaces it"),
        ("name the column: column='body'", "name the column: --column 'body'"),
        ("batch_size=1, or bias=True", "--batch-size 1, or bias=True"),
        ("choose tokens >= 1", "choose tokens >= 1"),
    ],
)
def test_hints_for_python_name_the_options(
    multihead: Multihead, monkeypatch: pytest.MonkeyPatch, hint: str, line: str
) -> None:
    def refused(args: Any) -> int:
        raise MultiheadError("refused", hint=hint)

    monkeypatch.setattr("multihead.cli.measure.run", refused)
    assert multihead("measure", "embedded", "-o", "run").err == f"multihead: refused\n\nhint: {line}\n"


def test_a_closed_output_is_an_error() -> None:
    for closed, code in ((">&-", "2"), ("2>&-", "0")):
        command = f"{sys.executable} -m multihead cost gpt3 {closed} | cat >/dev/null; echo ${{PIPESTATUS[0]}}"
        done = run("-c", f"import subprocess; subprocess.run(['bash', '-c', {command!r}])")
        assert done.stdout == f"{code}\n"
        assert done.stderr == (
            "multihead: stdout is closed, so nothing can be printed\n\nhint: > /dev/null discards the output\n"
            if closed == ">&-"
            else ""
        )


@pytest.mark.parametrize("command", ["report", "prune", "measure", "curve", "check"])
def test_a_misspelt_model_is_the_first_error(
    command: str, multihead: Multihead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("report.html", "run/table.json", "smaller/config.json", "curve.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("{}")
    more = {
        "prune": ("--keep", "0.5", "-o", "smaller"),
        "measure": ("-o", "run"),
        "check": ("elsewhere",),
    }.get(command, ())
    said = multihead(command, "embeded", *more)
    assert said.code == 2
    assert said.err.startswith(
        "multihead: there is no model folder embeded\n\nhint: did you mean embedded? a model is"
    )


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
    HeadTable(("L0H0", "L0H1"), {"x": torch.ones(2)}, {"x": ColumnInfo("", "")}).save(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    words = ("compare", tmp_path, tmp_path, "--fail-if", "x>1")
    assert "\x1b" not in multihead(*words).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32m✓" in multihead(*words).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in multihead(*words).out


def test_the_list_of_commands_may_meet_a_closed_pipe() -> None:
    command = f"(sleep 0.2; {sys.executable} -m multihead) | true; echo ${{PIPESTATUS[0]}}"
    done = run("-c", f"import subprocess; subprocess.run(['bash', '-c', {command!r}])")
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


@pytest.mark.fast("--json")
@pytest.mark.parametrize("words", ["", "--json"])
def test_a_closed_pipe_has_the_exit_code_of_sigpipe(words: str, tmp_path: Path) -> None:
    heads = tuple(f"L{i}H{j}" for i in range(97) for j in range(23))
    HeadTable(heads, {"x": ("a word that fills the pipe" * 4,) * len(heads)}, {"x": ColumnInfo("", "")}).save(
        tmp_path
    )
    command = f"{sys.executable} -m multihead show {tmp_path} {words} | true; echo ${{PIPESTATUS[0]}}"
    done = run("-c", f"import subprocess; subprocess.run(['bash', '-c', {command!r}])")
    assert done.stdout.splitlines()[-1] == "141"
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
