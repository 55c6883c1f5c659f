"""Reading a command's options into a dataclass, picking a name, and printing on stdout and stderr."""

import contextlib
import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from cml.command_line.wrong_options import refused_by
from cml.errors import UserError, did_you_mean
from cml.processes.launch import launch

T = TypeVar("T")
PLUGIN = "--plugin FILE_OR_MODULE"
PLUGIN_HELP = "load your own parts, which the file or module registers; repeatable, on every command"


def parse(
    kind: type[T], arguments: Sequence[str], *, prog: str, description: str | None = None, default: T | None = None
) -> T:
    """Read ``arguments`` into the dataclass ``kind``; ``--help`` prints the options and exits.

    If the first option of ``kind`` is positional, its flag works as well.
    """
    import tyro

    about = inspect.cleandoc(kind.__doc__ or "") if description is None else description
    with refused_by(kind, arguments, prog):
        made = tyro.cli(
            kind,
            args=_unflagged(kind, arguments, prog),
            prog=prog,
            description=f"{about}\n{PLUGIN}: {PLUGIN_HELP}.".lstrip(),
            default=default,
            config=(tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes),
        )
    return cast("T", made)


def _unflagged(kind: type, arguments: Sequence[str], prog: str) -> Sequence[str]:
    """The arguments, with a positional first option of ``kind`` that was given by its flag moved to the front."""
    import tyro

    first = dataclasses.fields(kind)[0].name
    hint = typing.get_type_hints(kind, include_extras=True)[first]
    if tyro.conf.Positional not in getattr(hint, "__metadata__", ()):
        return arguments
    flagged: type[Any] = dataclasses.make_dataclass("Flagged", [(first, str, "")])
    given, others = parse_known(flagged, arguments, prog=prog)
    value: str = getattr(given, first)
    return [value, *others] if value else arguments


def parse_known(kind: type[T], arguments: Sequence[str], *, prog: str, default: T | None = None) -> tuple[T, list[str]]:
    """Read the options of ``kind`` anywhere in ``arguments``; returns them and the other arguments."""
    import tyro

    with refused_by(kind, (), prog):  # the other arguments are not judged here
        made, others = tyro.cli(
            kind,
            args=list(arguments),
            prog=prog,
            default=default,
            return_unknown_args=True,
            add_help=False,
            config=(tyro.conf.UseAppendAction,),
        )
    return cast("T", made), others


def load_plugins(arguments: Sequence[str]) -> list[str]:
    """Load what ``--plugin`` names anywhere in ``arguments``; returns the other arguments."""
    if not any(word.startswith("--plugin") for word in arguments):  # keep them as they are, including "--"
        return list(arguments)
    from cml.plugins import load

    named: type[Any] = dataclasses.make_dataclass("Plugins", [("plugin", tuple[str, ...], ())])
    given, rest = parse_known(named, arguments, prog="cml")
    for plugin in given.plugin:
        load(plugin)
    return rest


def pick(
    arguments: Sequence[str],
    kind: str,
    known: Iterable[str],
    summary: Callable[[str], str],
    prog: str,
    default: str | None = None,
) -> tuple[str, Sequence[str]]:
    """The first argument, one of ``known``, and the rest; without one, ``default`` or a help text that lists them."""
    if default is not None and (not arguments or arguments[0].startswith("-")):
        return default, arguments
    known = list(known)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {prog} {kind.upper()} [options]\n")
        for name in known:
            print(f"  {name:<15}{summary(name)}")
        print(f"\n  {PLUGIN}\n  {'':<15}{PLUGIN_HELP}")
        print(f"\n{prog} {kind.upper()} --help explains the options.")
        raise SystemExit(0)
    if arguments[0] not in known:
        hint = did_you_mean(arguments[0], known)
        raise UserError(f"Unknown {kind} {arguments[0]!r}.{hint} Known: {', '.join(known)}.")
    return arguments[0], arguments[1:]


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Tell a user who interrupts a command that the same command continues."""
    try:
        yield
    except KeyboardInterrupt as stop:
        said = str(stop) or "what is finished is kept"
        where = "" if "the same command" in said else "; the same command continues from there"
        raise KeyboardInterrupt(f"{said}{where}") from None


def say(text: str) -> None:
    """Print a message on stderr, so that stdout holds only results. Of several processes only the first prints."""
    if launch().first:
        print(text, file=sys.stderr, flush=True)


def others(options: object, *left_out: str) -> dict[str, Any]:
    """A command's options but for some, to pass on by their names."""
    return {name: value for name, value in vars(options).items() if name not in left_out}


def print_json(value: object) -> None:
    """Print a result as JSON on stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def show(value: object, *lines: str, as_json: bool) -> None:
    """Print a result on stdout, as JSON or as lines of text."""
    if as_json:
        print_json(value)
    else:
        print(*lines, sep="\n")
