"""The reference of the command line, from its parsers."""

from __future__ import annotations

import argparse

from docstring import item

from multihead.cli.parser import COMMANDS, EPILOG, command_parser

HEAD = """\
<!-- From the parsers in src/multihead/cli. Edit them there, then run `make reference`. -->

# Command line

`multihead COMMAND --help` prints the same.
"""


def page() -> str:
    """The text of the page."""
    index = [item(f"[`{name}`](#multihead-{name})", line) for name, line in COMMANDS.items()]
    sections = [_section(name) for name in COMMANDS]
    return "\n".join([HEAD, *index, "", _code(EPILOG), "", "\n\n".join(sections)]) + "\n"


def _section(name: str) -> str:
    command = command_parser(name)
    positional = [action for action in command._actions if not action.option_strings]
    usage = " ".join([f"multihead {name}", *map(_usage, positional), "[options]"])
    parts = [f"## `multihead {name}`", command.description or COMMANDS[name], _code(usage)]
    for group in command._action_groups:
        actions = [
            a for a in group._group_actions if a.help is not argparse.SUPPRESS and "-h" not in a.option_strings
        ]
        if actions:
            parts.append(f"**{_title(group.title or '')}**\n\n" + "\n".join(map(_item, actions)))
    return "\n\n".join([*parts, *([_code(command.epilog)] if command.epilog else [])])


def _title(title: str) -> str:
    return title[:1].upper() + title[1:]


def _usage(action: argparse.Action) -> str:
    return f"[{_value(action)}]" if action.nargs in ("?", "*") else _value(action)


def _item(action: argparse.Action) -> str:
    """`--keep X`: what it does."""
    value = "" if action.nargs == 0 else f" {_value(action)}" if action.option_strings else _value(action)
    names = [f"`{flag}{value}`" for flag in action.option_strings] or [f"`{value}`"]
    text = " ".join((action.help or "").replace("%%", "%").split())
    return item(", ".join(names), text)


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def _code(text: str | None) -> str:
    return f"```text\n{(text or '').strip()}\n```"
