"""Errors in a command line, which the argument parser prints in a box, as one line with what may have been meant."""

import contextlib
import dataclasses
import difflib
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from cml.errors import UserError


@contextlib.contextmanager
def refused_by(kind: type, arguments: Sequence[str], prog: str) -> Iterator[None]:
    """While ``prog`` parses options of the dataclass ``kind``, turn the parser's errors into a ``UserError``."""
    from tyro import _errors  # private; pyproject.toml restricts tyro to versions that have it

    def refuse(event: _errors.ParseErrorEvent) -> None:
        said = _unknown(kind, arguments, prog) or _refusal(event, prog)
        raise UserError(f"{said} '{prog} --help' lists all options.")

    with _errors.on_parse_error(refuse):
        yield


def _refusal(event: Any, prog: str) -> str:  # noqa: ANN401 - one of several events
    """One sentence on what the parser refuses."""
    argument: Any = getattr(event, "argument", None)
    match type(event).__name__:
        case "UnrecognizedArgs":
            return f"Unrecognized options: {' '.join(event.tokens)}."
        case "MissingArgs":
            return f"{prog} needs {' and '.join(_called(one.arg) for one in event.missing_arguments)}."
        case "InvalidChoice":
            return f"Invalid choice {event.value!r} for {_called(argument)}. Expected one of {event.choices}."
        case "BadValue":
            return f"Missing value for argument '{_called(argument)}'. Expected {argument.lowered.nargs} values."
        case _:
            said = " ".join(str(getattr(event, "message", "These options cannot be read")).split())
            said = said.partition(" Got errors:")[0].removesuffix(".")
            return f"{said}." if argument is None else f"{_called(argument)}: {said}."


def _called(argument: Any) -> str:  # noqa: ANN401 - the parser's own class
    return str(argument.lowered.metavar if argument.is_positional() else argument.display_name())


def _unknown(kind: type, arguments: Sequence[str], prog: str) -> str:
    """A sentence on the first flag in ``arguments`` that is not an option of ``kind``; "" if all are."""
    known = sorted({"--help", *_flags(kind)})
    flags = [word.partition("=")[0] for word in arguments if word[:2] == "--" and word[2:3].isalpha()]
    flag = next((flag for flag in flags if flag.replace("_", "-") not in known), "")
    if not flag:
        return ""
    close = difflib.get_close_matches(flag.replace("_", "-"), known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    if flag == "--batch-size" and "--sampler" in known:
        hint = " The size of batches is the sampler's, as in --sampler 'random(batch_size=60)'."
    return f"{prog} has no option {flag}.{hint}"


def _flags(kind: type) -> Iterator[str]:
    """The flags of a dataclass; those of a nested dataclass have no prefix."""
    hints = typing.get_type_hints(kind)
    for option in dataclasses.fields(kind):
        inner = hints[option.name]
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from _flags(inner)
        else:
            name = option.name.replace("_", "-")
            yield from (f"--{name}", f"--no-{name}") if inner is bool else (f"--{name}",)
