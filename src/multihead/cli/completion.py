"""`multihead completion SHELL`: a script that completes commands, options and their values in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
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
    write({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]())
    return 0


def _commands() -> Iterator[tuple[str, str, list[argparse.Action]]]:
    """Every command with its line of help and its arguments."""
    from multihead.cli import COMMANDS, command_parser

    for name, line in COMMANDS.items():
        yield name, line, [a for a in command_parser(name)._actions if a.help is not argparse.SUPPRESS]


def _values(action: argparse.Action) -> str:
    return " ".join(map(str, action.choices or ()))


def _bash() -> str:
    options: list[str] = []
    values: list[str] = []
    for name, _, actions in _commands():
        words = [flag for action in actions for flag in action.option_strings]
        words += [_values(action) for action in actions if not action.option_strings and action.choices]
        options.append(f'        {name}) words="{" ".join(words)}" ;;')
        values += [
            f'        "{name} {flag}") words="{_values(action)}" ;;'
            for action in actions if action.choices for flag in action.option_strings
        ]  # fmt: skip
    names = " ".join(name for name, _, _ in _commands())
    return "\n".join(
        [
            "_multihead() {",
            '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
            '    local command="${COMP_WORDS[1]}" words=""',
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f'        COMPREPLY=($(compgen -W "{names}" -- "$current")); return',
            "    fi",
            '    case "$command" in', *options, "    esac",
            '    case "$command $previous" in', *values, "    esac",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _multihead multihead",
        ]
    )  # fmt: skip


def _zsh() -> str:
    lines = [f"        '{name}:{_zsh_quoted(line)}'" for name, line, _ in _commands()]
    cases: list[str] = []
    for name, _, actions in _commands():
        words = [
            f"'{flag}:{_zsh_quoted(' '.join((action.help or '').replace('%%', '%').split()))}'"
            for action in actions for flag in action.option_strings
        ]  # fmt: skip
        words += [f"'{value}'" for action in actions if not action.option_strings for value in action.choices or ()]
        cases.append(f"        {name}) words=({' '.join(words)}) ;;")
    return "\n".join(
        [
            "#compdef multihead",
            "_multihead() {",
            "    local -a words_",
            "    if (( CURRENT == 2 )); then", "        words_=(", *lines, "        )",
            "        _describe command words_; return",
            "    fi",
            "    case $words[2] in", *(case.replace("words=(", "words_=(") for case in cases), "    esac",
            "    _describe option words_",
            "    _files",
            "}",
            'if [ "$funcstack[1]" = _multihead ]; then _multihead "$@"; else compdef _multihead multihead; fi',
        ]
    )  # fmt: skip


def _fish() -> str:
    lines: list[str] = []
    for name, line, actions in _commands():
        lines.append(f"complete -c multihead -n __fish_use_subcommand -f -a {name} -d {_fish_quoted(line)}")
        inside = f"complete -c multihead -n '__fish_seen_subcommand_from {name}'"
        for action in actions:
            text = _fish_quoted(" ".join((action.help or "").replace("%%", "%").split()))
            values = (
                f" -x -a {_fish_quoted(_values(action))}" if action.choices else "" if action.nargs == 0 else " -r"
            )
            for flag in action.option_strings:
                form = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                lines.append(f"{inside} {form}{values} -d {text}")
            if not action.option_strings and action.choices:
                lines.append(f"{inside} -f -a {_fish_quoted(_values(action))}")
    return "\n".join(lines)


def _zsh_quoted(text: str) -> str:
    return text.replace("'", "'\\''").replace(":", "\\:")


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
