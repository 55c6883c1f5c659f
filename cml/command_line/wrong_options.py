"""Refused command lines in one line: which option, what is wrong, what was perhaps meant.

The argument parser says it in a box of several lines. Not for: what an option's value means, which its owner checks.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterator, Sequence

from cml.errors import UserError

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_RULE = re.compile(r"[─-]{3,}")


def check_flags(kind: type, arguments: Sequence[str], prog: str) -> None:
    """Check that every ``--flag`` among ``arguments`` is an option of the dataclass ``kind``.

    Raises:
        UserError: one is not; the message names the nearest one.
    """
    known = set(_flags(kind))
    for word in arguments:
        if not word.startswith("--") or word == "--" or word.startswith("--tyro-"):
            continue
        flag = word.partition("=")[0]
        if flag.replace("_", "-") in known | {"--help"}:
            continue
        close = difflib.get_close_matches(flag.replace("_", "-"), sorted(known), n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        if flag == "--batch-size" and "--sampler" in known:
            hint = "The size of batches is the sampler's, as in --sampler 'random(batch_size=60)'. "
        raise UserError(f"{prog} has no option {flag}. {hint}'{prog} --help' lists all.")


def one_line(box: str, prog: str) -> str:
    """What the argument parser printed in its box above the first rule, as one sentence.

    Args:
        box: The printed text, in a frame or not.
        prog: The command, as in ``cml train pose``.
    """
    rows: list[str] = []
    for line in _ESCAPE.sub("", box).splitlines():
        inside = line.strip().strip("│").rstrip()
        if inside[:1] in ("╭", "╰") or not inside:
            continue
        if not _RULE.fullmatch(inside.strip()):
            rows.append(inside)
        elif "│" in box:
            break
        elif rows[1:]:  # where the terminal knows no frames, the first rule is below the title
            rows = rows[1:]
            break
    missing = [match[1] for row in rows if (match := re.match(r"\s*(--[\w-]+|[A-Z]{2,}$)", row))]
    if rows and rows[0].strip().startswith("Missing from") and missing:
        said = f"{prog} needs {' and '.join(missing)}."
    else:
        said = " ".join(" ".join(rows).split()) or "These options cannot be read."
        said = said.removeprefix("Error parsing ").partition(" Got errors:")[0]
        said = said[0].upper() + said[1:]
        said += "" if said.endswith(".") else "."
    return f"{said} '{prog} --help' lists all options."


def _flags(kind: type) -> Iterator[str]:
    """The flags of a dataclass; those of a dataclass inside it have no prefix."""
    hints = typing.get_type_hints(kind)
    for option in dataclasses.fields(kind):
        inner = hints[option.name]
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from _flags(inner)
        else:
            name = option.name.replace("_", "-")
            yield from (f"--{name}", f"--no-{name}") if inner is bool else (f"--{name}",)
