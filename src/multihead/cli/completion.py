"""`multihead completion SHELL`: a script that completes commands, options and their values in a shell.

The script asks the command itself: `multihead completion bash multihead measure --importance` prints the words that
may follow the line `multihead measure --importance`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from multihead.cli.options import Options, positional
from multihead.cli.output import write

EXAMPLES = """examples:
  source <(multihead completion bash)                                  # for this shell; or in ~/.bashrc
  multihead completion zsh > "${fpath[1]}/_multihead"
  multihead completion fish > ~/.config/fish/completions/multihead.fish"""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(Options):
    """Print a completion script for a shell."""

    shell: str = positional("whose script is printed", choices=("bash", "zsh", "fish"))
    line: tuple[str, ...] = positional(
        "for the script: print the words that may follow this line", default=(), nargs=argparse.REMAINDER
    )


OPTIONS = CompletionOptions

_BASH = """_multihead() {
    local words="$("${COMP_WORDS[0]}" completion bash "${COMP_WORDS[@]:0:COMP_CWORD}" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _multihead multihead"""

_ZSH = """#compdef multihead
_multihead() {
    local -a described
    described=("${(@f)$("$words[1]" completion zsh "${(@)words[1,CURRENT-1]}" 2>/dev/null)}")
    [[ -n "$described" ]] && _describe multihead described
    (( CURRENT > 2 )) && _files
}
if [ "$funcstack[1]" = _multihead ]; then _multihead "$@"; else compdef _multihead multihead; fi"""

_FISH = """complete -c multihead -n __fish_use_subcommand -f
complete -c multihead -a '(multihead completion fish (commandline -opc))'"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_BEFORE_TEXT = {"zsh": ":", "fish": "\t"}
"""Shells that show a text with every word, and the mark between the two."""


def run(options: CompletionOptions) -> int:
    """Run `multihead completion`: print the script, or the words that may follow a command line."""
    if not options.line:
        write(_SCRIPTS[options.shell])
        return 0
    mark = _BEFORE_TEXT.get(options.shell)
    for word, text in _following(options.line[1:]).items():
        write(f"{word}{mark}{text}" if mark and text else word)
    return 0


def _following(line: Sequence[str]) -> Mapping[str, str]:
    """The words that may follow a command line, without the name of the program, and their help."""
    from multihead.cli.parser import COMMANDS, command_parser

    if not line:
        return COMMANDS
    if line[0] not in COMMANDS:
        return {}
    arguments = command_parser(line[0])._actions
    last = next((x for x in arguments if line[-1] in x.option_strings and x.nargs != 0), None)
    if last is not None:
        return dict.fromkeys(map(str, last.choices or ()), "")
    return {
        word: " ".join((x.help or "").replace("%%", "%").split())
        for x in arguments
        for word in x.option_strings or map(str, x.choices or ())
    }
