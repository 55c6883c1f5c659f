"""Refused command lines in one line: which option, what is wrong, what was perhaps meant.

The argument parser says it in a box of several lines. Not for: what an option's value means, which its owner checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import typing
from collections.abc import Iterator

from cml.errors import UserError


@contextlib.contextmanager
def refused_by(kind: type, prog: str) -> Iterator[None]:
    """While ``prog`` parses options of the dataclass ``kind``: what the parser refuses is a ``UserError``."""
    from tyro import _errors  # the parser's own account of a refusal; pyproject.toml holds it to versions that have it

    def refuse(event: _errors.ParseErrorEvent) -> None:
        raise UserError(f"{_refusal(event, kind, prog)} '{prog} --help' lists all options.")

    with _errors.on_parse_error(refuse):
        yield


def _refusal(event: typing.Any, kind: type, prog: str) -> str:  # noqa: ANN401 - one of several events
    """One sentence for what the parser refuses."""
    argument: typing.Any = getattr(event, "argument", None)
    called = (
        "" if argument is None else argument.lowered.metavar if argument.is_positional() else argument.display_name()
    )
    unknown = getattr(event, "tokens", None) or getattr(event, "unrecognized_tokens", None)
    match type(event).__name__:
        case "UnrecognizedArgs" | "MissingArgs" if unknown:
            flag = next((token.partition("=")[0] for token in unknown if token.startswith("--")), None)
            return f"Unrecognized options: {' '.join(unknown)}." if flag is None else _unknown(flag, kind, prog)
        case "MissingArgs":
            missing = [one.arg for one in event.missing_arguments]
            names = [one.lowered.metavar if one.is_positional() else one.display_name() for one in missing]
            return f"{prog} needs {' and '.join(names)}."
        case "InvalidChoice":
            return f"Invalid choice {event.value!r} for {called}. Expected one of {event.choices}."
        case "BadValue":
            return f"Missing value for argument '{called}'. Expected {argument.lowered.nargs} values."
        case _:
            said = str(getattr(event, "message", "These options cannot be read"))
            said = " ".join(said.split()).partition(" Got errors:")[0]
            said = f"{called}: {said}" if called else said
            return said if said.endswith(".") else f"{said}."


def _unknown(flag: str, kind: type, prog: str) -> str:
    known = sorted(_flags(kind))
    close = difflib.get_close_matches(flag.replace("_", "-"), known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    if flag == "--batch-size" and "--sampler" in known:
        hint = " The size of batches is the sampler's, as in --sampler 'random(batch_size=60)'."
    return f"{prog} has no option {flag}.{hint}"


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
