"""Reading a command's options into a dataclass, or saying what is wrong with them; picking a name; printing."""

import contextlib
import dataclasses
import difflib
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from cml.errors import UserError, did_you_mean
from cml.renamed_options import current_name

T = TypeVar("T")
PLUGIN = "--plugin FILE_OR_MODULE"
PLUGIN_HELP = "load a file or module that registers your own parts; can be repeated, for every command"


def parse(
    kind: type[T], arguments: Sequence[str], *, prog: str, description: str | None = None, default: T | None = None
) -> T:
    """Read ``arguments`` into the dataclass ``kind``; a positional first option may be given by its flag too."""
    import tyro

    about = inspect.cleandoc(kind.__doc__ or "") if description is None else description
    about = f"{about}\n{PLUGIN}: {PLUGIN_HELP}.".lstrip()
    flat = (tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)
    with refused_by(kind, arguments, prog):
        args = _unflagged(kind, arguments, prog)
        return cast("T", tyro.cli(kind, args=args, prog=prog, description=about, default=default, config=flat))


def _unflagged(kind: type, arguments: Sequence[str], prog: str) -> Sequence[str]:
    """The arguments, with a positional first option that was given by its flag moved to the front."""
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
    close = _successor(flag, known) or difflib.get_close_matches(flag.replace("_", "-"), known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    if flag == "--batch-size" and "--sampler" in known:
        hint = " The size of batches is the sampler's, as in --sampler 'random(batch_size=60)'."
    return f"{prog} has no option {flag}.{hint}"


def _successor(flag: str, known: Sequence[str]) -> list[str]:
    """The flag of the option that a flag of an earlier version is called today, if it is among ``known``."""
    dashes, name = ("--no-", flag[5:]) if flag.startswith("--no-") else ("--", flag[2:])
    options = [other.removeprefix(dashes).replace("-", "_") for other in known if other.startswith(dashes)]
    successor = current_name(name.replace("-", "_"), options)
    return [dashes + successor.replace("_", "-")] if successor else []


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
