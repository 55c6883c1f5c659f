"""The commands of cml as pages, from what ``--help`` prints."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

from cml import cli

HELP = "-h, --help"
VERBS = {"bench": ("check", "table", "page", "submit", "embedding")}  # commands that do something without one, too
WIDTH = 2000  # columns: every option on a line of its own
LISTED = re.compile(r"^  (?P<name>[a-z][\w-]*) +(?P<about>\S.*)$", re.MULTILINE)
BOX = re.compile(r"^[│|] (?P<inside>.*?) *[│|]$")
OPTION = re.compile(r"(?P<flags>-\S.*?|\[?[A-Z]+\]?)(?: {2,}(?P<text>.*))?")


@dataclass(frozen=True)
class Command:
    """A command with its subcommands or its options.

    Attributes:
        words: ``("train", "value")``.
        about: What it does.
        usage: Its usage line.
        options: Flags with what they do, in the order of ``--help``.
    """

    words: tuple[str, ...]
    about: str
    usage: str
    options: dict[str, str]


def help_of(*words: str) -> str:
    """What ``cml WORDS --help`` prints."""
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8")  # whose encoding has the boxes that mark options
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        cli.main([*words, "--help"])
    printed.seek(0)
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.read())


def commands(*words: str) -> Iterator[Command]:
    """All commands below ``cml WORDS``, those that take options."""
    text = help_of(*words)
    usage, _, rest = text.partition("\n")
    if re.search(r" [A-Z]+ \[options\]$", usage):
        for name in dict.fromkeys(found["name"] for found in LISTED.finditer(rest)):
            yield from commands(*words, name)
        return
    about = rest.partition("--plugin FILE_OR_MODULE:")[0]
    yield Command(words, " ".join(about.split()), usage.removeprefix("usage: "), options(rest))
    for verb in VERBS.get(" ".join(words), ()):
        yield from commands(*words, verb)


def options(text: str) -> dict[str, str]:
    """The options in the boxes of a help text."""
    found: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        boxed = BOX.match(line)
        if boxed is None:
            continue
        inside = boxed["inside"]
        option = OPTION.fullmatch(inside)
        if option and not inside.startswith(" "):
            last = option["flags"].strip()
            found[last] = (option["text"] or "").strip()
        elif last and inside.startswith(" "):
            found[last] = f"{found[last]} {inside.strip()}".strip()
    return found


def page(about: str, many: list[Command]) -> str:
    """The page of ``cml NAME``: each of its subcommands is a section, options that all have come once."""
    name = many[0].words[0]
    lines = [f"# cml {name}\n", f"{about[:1].upper()}{about[1:]}.\n"]
    shared = set.intersection(*(set(one.options.items()) for one in many)) if len(many) > 1 else set()
    for one in many:
        if len(many) > 1:
            lines.append(f"## cml {' '.join(one.words)}\n")
        lines.append(f"{escaped(one.about)}\n")
        lines.append(f"```text\n{one.usage}\n```\n")
        lines += listed({key: text for key, text in one.options.items() if (key, text) not in shared})
    if shared:
        lines.append("## Options of every subcommand\n")
        lines += listed({key: text for key, text in many[0].options.items() if (key, text) in shared})
    lines.append("`-h, --help`\n: Print this and exit.\n")
    lines.append("`--plugin FILE_OR_MODULE`\n: Load your own parts, which the file or module registers; repeatable.\n")
    return "\n".join(lines)


def listed(options: dict[str, str]) -> list[str]:
    """Options as definitions."""
    return [
        f"`{flags.replace('{None}|', '')}`\n: {escaped(text)}\n" for flags, text in options.items() if flags != HELP
    ]


def escaped(text: str) -> str:
    """Text in which no character is Markdown."""
    return re.sub(r"([*_`\\<>\[\]$~|{}])", r"\\\1", text)
