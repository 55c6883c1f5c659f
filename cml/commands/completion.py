"""``cml completion bash``: the completion script of a shell, which asks ``cml completion words`` for what may follow.

The words come from ``--help-all``, so that they are those of this version, plugins aside. Not for names of files, which
the shells complete by themselves where no other word may follow.
"""

import contextlib
import importlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cml.command_line.command_list import COMMANDS, HELP_ALL
from cml.command_line.parse_options import parse
from cml.errors import UserError

SCRIPTS = {
    "bash": """\
# Completion of cml in bash. Add to ~/.bashrc: eval "$(cml completion bash)"
_cml() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(cml completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" \
        -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _cml cml
""",
    "zsh": """\
# Completion of cml in zsh. Add to ~/.zshrc, after compinit: eval "$(cml completion zsh)"
_cml() {
    local -a found
    found=("${(@f)$(cml completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $found[1] ]]; then compadd -- $found; else _files; fi
}
compdef _cml cml
""",
    "fish": """\
# Completion of cml in fish. Write to ~/.config/fish/completions/cml.fish
complete -c cml -a '(cml completion words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
WORDS = "words"
_LISTED = re.compile(r"^  ([a-z][\w-]*) +\S", re.MULTILINE)  # the tasks, sources and kinds that a help text lists
_BOXED = re.compile(r"^[│|] ((?:-\w, )?--[a-z].*)$", re.MULTILINE)  # an option in a help text
_FLAG = re.compile(r"--[a-z][\w-]*")
_VERBS = re.compile(r"The subcommands are cml \w+ ([\w, ]+) and (\w+)")
_WIDTH = 2000  # columns: every option on a line of its own


@dataclass(frozen=True)
class Completion:
    """Print the completion script of a shell.

    bash: eval "$(cml completion bash)" in ~/.bashrc; zsh: eval "$(cml completion zsh)" in ~/.zshrc, after compinit;
    fish: cml completion fish > ~/.config/fish/completions/cml.fish.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], Positional, arg(metavar="SHELL")]
    """bash, zsh or fish."""


def run(arguments: Sequence[str]) -> None:
    """Print the script, or the words that may stand at the end of a command line."""
    if arguments[:1] == [WORDS]:
        print("\n".join(complete_words(arguments[1:])))
        return
    print(SCRIPTS[parse(Completion, arguments, prog="cml completion").shell], end="")


def complete_words(
    words: Sequence[str],  # the words after ``cml``; the last one is incomplete and may be empty
) -> list[str]:
    """List the words that may stand in place of the last word of a command line."""
    *before, last = words or [""]
    return [word for word in _following(before, is_flag=last.startswith("-")) if word.startswith(last)]


def _following(before: Sequence[str], *, is_flag: bool) -> list[str]:
    """The words that may follow others: commands, their subcommands, flags, or the choices of the last flag."""
    if not before:
        return [*COMMANDS, "--help", "--version"]
    if before[0] not in COMMANDS:
        return []
    path = [before[0]]
    text = read_help(*path)
    if len(before) > 1 and before[1] in _subcommands(text):
        path.append(before[1])
        text = read_help(*path)
    if is_flag:
        return list(dict.fromkeys([*_FLAG.findall(" ".join(_flags(text))), "--help", HELP_ALL]))
    if before[-1].startswith("-"):
        return _choices(text, before[-1])
    return _subcommands(text) if len(before) == len(path) == 1 else []


def _subcommands(text: str) -> list[str]:
    """The subcommands that a help text lists."""
    usage, _, rest = text.partition("\n")
    if re.search(r" [A-Z]+ \[options\]$", usage):
        return list(dict.fromkeys(_LISTED.findall(rest)))
    verbs = _VERBS.search(" ".join(text.split()))
    return [*verbs[1].split(", "), verbs[2]] if verbs else []


def _flags(text: str) -> Iterator[str]:
    """The flags of each option of a help text, such as ``--json, --no-json``."""
    for option in _BOXED.findall(text):
        yield re.split(r"  ", option)[0]


def _choices(text: str, flag: str) -> list[str]:
    """The values of an option that has a fixed choice of them."""
    for option in _BOXED.findall(text):
        flags, _, values = re.split(r"  ", option)[0].partition("{")
        if flag in _FLAG.findall(flags) and values:
            return values.partition("}")[0].split(",")
    return []


def read_help(
    *words: str,  # the command with its subcommands: ``("train", "value")``
) -> str:  # what ``cml WORDS --help-all`` prints in a wide window, without colours; "" where it is an error
    """Read the help of a command."""
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")  # this encoding has the characters of the boxes
    window = {"COLUMNS": str(_WIDTH), "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in window}
    os.environ.update(window)
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit, UserError):
            importlib.import_module(f"cml.commands.{words[0]}").run([*words[1:], HELP_ALL])
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    output.seek(0)
    return _set_in_one_column(re.sub(r"\x1b\[[0-9;]*m", "", output.read()))


def _set_in_one_column(text: str) -> str:
    """The text with its boxes, which the parser sets side by side in a wide window, one below the other."""
    lines = text.splitlines()
    starts = sorted({0, *(match.start() + 1 for line in lines for match in re.finditer("[╮+][╭+]", line))})
    first = next((number for number, line in enumerate(lines) if line[:1] in ("╭", "+")), len(lines))
    columns = [
        [line[start:end] for line in lines[first:]] for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    return "\n".join([*lines[:first], *(line for column in columns for line in column)]) + "\n"
