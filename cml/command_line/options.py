"""Reading a command's options into a dataclass, picking a name, and saying things on stdout and stderr."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from typing import TypeVar, cast

from cml.processes.launch import launch

T = TypeVar("T")


def parse(kind: type[T], arguments: Sequence[str], *, prog: str, description: str, default: T | None = None) -> T:
    """Read ``arguments`` into the dataclass ``kind``; ``--help`` prints the options and exits.

    Raises:
        UserError: an argument is wrong or missing.
    """
    import tyro

    from cml.command_line.wrong_options import check_flags, one_line
    from cml.errors import UserError

    config = (tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)
    check_flags(kind, arguments, prog)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            made = tyro.cli(
                kind, args=list(arguments), prog=prog, description=description, default=default, config=config
            )
    except SystemExit as stopped:
        if stopped.code:
            raise UserError(one_line(said.getvalue(), prog)) from None
        raise
    return cast("T", made)


def pick(arguments: Sequence[str], kind: str, known: dict[str, str], prog: str) -> tuple[str, Sequence[str]]:
    """The first argument as one of ``known`` (name to summary), and the rest; help when it is missing.

    Raises:
        UserError: unknown name.
    """
    from cml.errors import UserError, did_you_mean

    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {prog} {kind.upper()} [options]\n")
        for name, summary in known.items():
            print(f"  {name:<14}{summary}")
        print(f"\n{prog} {kind.upper()} --help tells the options.")
        raise SystemExit(0)
    if arguments[0] not in known:
        hint = did_you_mean(arguments[0], known)
        raise UserError(f"Unknown {kind} {arguments[0]!r}.{hint} Known: {', '.join(known)}.")
    return arguments[0], arguments[1:]


def say(text: str) -> None:
    """Progress in words: on stderr, so that results alone are on stdout. Of several processes the first speaks."""
    if launch().first:
        print(text, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """A result for machines, on stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))
