"""`multihead completion SHELL`: a script that completes commands, options and their values in a shell."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from multihead.cli.options import add_command
from multihead.cli.output import write

_EPILOG = """examples:
  source <(multihead completion bash)                                  # for this shell; or in ~/.bashrc
  multihead completion zsh > "${fpath[1]}/_multihead"
  multihead completion fish > ~/.config/fish/completions/multihead.fish"""


def add(commands: Any) -> None:
    parser = add_command(commands, "completion", "Print a completion script for a shell.", _EPILOG)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    write({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](_all_commands()))
    return 0


@dataclass(frozen=True)
class _Argument:
    flags: tuple[str, ...]
    """none: it is positional"""
    text: str
    values: tuple[str, ...]
    """what it may be, if it is one of a few"""
    is_switch: bool


@dataclass(frozen=True)
class _Command:
    name: str
    text: str
    arguments: tuple[_Argument, ...]

    @property
    def words(self) -> list[str]:
        """Every option, and the values of positional arguments."""
        return [word for x in self.arguments for word in x.flags or x.values]


def _all_commands() -> list[_Command]:
    """Commands, options and values that a shell can complete."""
    from multihead.cli import COMMANDS, command_parser

    return [
        _Command(name, text, tuple(_argument(action) for action in command_parser(name)._actions))
        for name, text in COMMANDS.items()
    ]


def _argument(action: argparse.Action) -> _Argument:
    text = " ".join((action.help or "").replace("%%", "%").split())
    values = tuple(map(str, action.choices or ()))
    return _Argument(tuple(action.option_strings), text, values, action.nargs == 0)


_BASH = """_multihead() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local command="${COMP_WORDS[1]}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "COMMANDS" -- "$current")); return
    fi
    case "$command" in
OPTIONS
    esac
    case "$command $previous" in
VALUES
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _multihead multihead"""

_ZSH = """#compdef multihead
_multihead() {
    local -a described
    if (( CURRENT == 2 )); then
        described=(COMMANDS)
        _describe command described; return
    fi
    case "$words[2] $words[CURRENT-1]" in
VALUES
    esac
    if (( $#described )); then
        _describe value described; return
    fi
    case $words[2] in
OPTIONS
    esac
    _describe option described
    _files
}
if [ "$funcstack[1]" = _multihead ]; then _multihead "$@"; else compdef _multihead multihead; fi"""


def _filled(script: str, **parts: list[str]) -> str:
    for name, lines in parts.items():
        script = script.replace(name, (" " if name == "COMMANDS" else "\n").join(lines))
    return script


def _bash(commands: list[_Command]) -> str:
    """The completion script of bash."""
    return _filled(
        _BASH,
        COMMANDS=[command.name for command in commands],
        OPTIONS=[
            f'        {command.name}) words="{" ".join(command.words)}" ;;' for command in commands
        ],
        VALUES=[
            f'        "{command.name} {flag}") words="{" ".join(x.values)}" ;;'
            for command in commands for x in command.arguments if x.values for flag in x.flags
        ],
    )  # fmt: skip


def _zsh(commands: list[_Command]) -> str:
    """The completion script of zsh."""

    def described(word: str, text: str) -> str:
        escaped = text.replace(":", "\\:").replace("'", "'\\''")
        return f"'{word}:{escaped}'"

    return _filled(
        _ZSH,
        COMMANDS=[described(command.name, command.text) for command in commands],
        OPTIONS=[
            f"        {command.name}) described=({' '.join(words)}) ;;"
            for command in commands
            if (words := [described(word, x.text) for x in command.arguments for word in x.flags or x.values])
        ],
        VALUES=[
            f'        "{command.name} {flag}") described=({" ".join(x.values)}) ;;'
            for command in commands for x in command.arguments if x.values for flag in x.flags
        ],
    )  # fmt: skip


def _fish(commands: list[_Command]) -> str:
    """The completion script of fish."""
    lines: list[str] = []
    for command in commands:
        lines.append(
            f"complete -c multihead -n __fish_use_subcommand -f -a {command.name} -d {_fish_quoted(command.text)}"
        )
        inside = f"complete -c multihead -n '__fish_seen_subcommand_from {command.name}'"
        for x in command.arguments:
            values = f" -x -a {_fish_quoted(' '.join(x.values))}" if x.values else "" if x.is_switch else " -r"
            for flag in x.flags:
                form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                lines.append(f"{inside} {form}{values} -d {_fish_quoted(x.text)}")
            if not x.flags and x.values:
                lines.append(f"{inside} -f -a {_fish_quoted(' '.join(x.values))}")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
