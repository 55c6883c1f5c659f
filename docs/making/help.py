"""The reference pages of the commands, from the output of ``--help-all``."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cml.command_line.command_list import HELP_ALL
from cml.errors import UserError

HELP = "-h, --help"
WIDTH = 2000  # columns: every option on a line of its own
SUBCOMMANDS = {"bench": ("table", "page", "check")}  # commands that also work without a subcommand
LISTED = re.compile(r"^  (?P<name>[a-z][\w-]*) +(?P<about>\S.*)$", re.MULTILINE)
BOX = re.compile(r"^[│|] (?P<inside>.*?) *[│|]$")
OPTION = re.compile(r"(?P<flags>-\S.*?|\[?[A-Z_]+\]?(?: \.\.\.)?)(?: {2,}(?P<text>.*))?")


@dataclass(frozen=True)
class Command:
    """A command with its subcommands or its options.

    Attributes:
        words: ``("train", "value")``.
        about: Its description.
        usage: Its usage line.
        options: Flags with their descriptions, in the order of ``--help-all``.
    """

    words: tuple[str, ...]
    about: str
    usage: str
    options: dict[str, str]


def commands(*words: str) -> Iterator[Command]:
    """Yield all commands below ``cml WORDS`` that take options."""
    text = read_help(*words)
    usage, _, rest = text.partition("\n")
    if re.search(r" [A-Z]+ \[options\]$", usage):
        for name in dict.fromkeys(match["name"] for match in LISTED.finditer(rest)):
            yield from commands(*words, name)
        return
    about = rest.partition("--plugin FILE_OR_MODULE:")[0]
    yield Command(words, " ".join(about.split()), usage.removeprefix("usage: "), options(rest))
    for subcommand in SUBCOMMANDS.get(" ".join(words), ()):
        yield from commands(*words, subcommand)


def options(text: str) -> dict[str, str]:
    """Read the options in the boxes of a help text: flags to descriptions."""
    texts: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        boxed = BOX.match(line)
        if boxed is None:
            continue
        inside = boxed["inside"]
        option = OPTION.fullmatch(inside)
        if option and not inside.startswith(" "):
            last = option["flags"].strip()
            texts[last] = (option["text"] or "").strip()
        elif last and inside.startswith(" "):
            texts[last] = f"{texts[last]} {inside.strip()}".strip()
    return texts


def page(about: str, subcommands: list[Command]) -> str:
    """Write the page of a command.

    Each subcommand is a section. Options that all subcommands share are listed once.

    Args:
        about: The description of the command.
        subcommands: The command, or its subcommands.
    """
    name = subcommands[0].words[0]
    lines = [f"# cml {name}\n", f"{about[:1].upper()}{about[1:]}.\n"]
    several = len(subcommands) > 1
    shared = set.intersection(*(set(command.options.items()) for command in subcommands)) if several else set()
    for command in subcommands:
        if several:
            lines.append(f"## cml {' '.join(command.words)}\n")
        lines.append(f"{escape(command.about)}\n")
        lines.append(f"```text\n{command.usage}\n```\n")
        lines += definition_list({key: text for key, text in command.options.items() if (key, text) not in shared})
    if shared:
        lines.append("## Options of every subcommand\n")
        lines += definition_list({key: text for key, text in subcommands[0].options.items() if (key, text) in shared})
    lines.append("`-h, --help`\n: Print the help and exit.\n")
    lines.append("`--plugin FILE_OR_MODULE`\n: Load a file or module that registers your own parts. Can be repeated.\n")
    return "\n".join(lines)


def definition_list(options: dict[str, str]) -> list[str]:
    """Write options as the lines of a definition list."""
    return [f"`{flags}`\n: {escape(text)}\n" for flags, text in options.items() if flags != HELP]


def escape(text: str) -> str:
    """Escape all characters that mean something in Markdown."""
    return re.sub(r"([*_`\\<>\[\]$~|{}])", r"\\\1", text)


def read_help(
    *words: str,  # the command with its subcommands: ``("train", "value")``
) -> str:  # what ``cml WORDS --help-all`` prints in a wide window, without colours; "" where it is an error
    """Read the help of a command."""
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")  # this encoding has the characters of the boxes
    window = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
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
    starts = sorted({0, *(match.start() + 1 for line in lines for match in re.finditer("(?<=[─-])[╮+][╭+]", line))})
    first = next((number for number, line in enumerate(lines) if line[:1] in ("╭", "+")), len(lines))
    columns = [
        [line[start:end] for line in lines[first:]] for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    return "\n".join([*lines[:first], *(line for column in columns for line in column)]) + "\n"
