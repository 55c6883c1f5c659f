"""Reading a command's options into a dataclass, with errors in one line."""

import contextlib
import dataclasses
import difflib
import inspect
import io
import os
import re
import typing
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from cml.command_line.command_list import HELP, HELP_ALL, PLUGIN, PLUGIN_HELP
from cml.errors import UserError
from cml.option_types import check_options, suggest_choice
from cml.storage.safe_paths import check_name_lengths

# Errors in a command line as one line: which option, what is wrong, what may have been meant.
#
# The parser tyro prints its account of an error in a box on stderr and exits. The first paragraph of that box is what
# its public interface offers; it is read here, so that no version of tyro is tied to the names of its internals.
# Without it, tests/commands/test_wrong_options.py fails.

_BOX = re.compile(r"^[\s│|╭╰╮╯]*|[\s│|╭╰╮╯]*$")
_RULE = re.compile(r"[─━-]{3,}")
_WIDE = "100000"  # columns, so that the box breaks no line


@contextlib.contextmanager
def explain_wrong_options(kind: type, arguments: Sequence[str], prog: str) -> Iterator[None]:
    """Turn the parser's errors into a ``UserError`` while it parses."""
    columns = os.environ.get("COLUMNS")
    try:
        with contextlib.redirect_stderr(io.StringIO()) as account:
            if HELP.isdisjoint(arguments):  # whose lines should fit the terminal
                os.environ["COLUMNS"] = _WIDE
            yield
    except SystemExit as end:
        if not end.code:
            raise
        text = _explain_unknown(kind, arguments, prog) or _explain(account.getvalue(), prog)
        raise UserError(f"{text} '{prog} --help' lists all options.") from None
    finally:
        os.environ.pop("COLUMNS", None)
        if columns is not None:
            os.environ["COLUMNS"] = columns


def _explain(account: str, prog: str) -> str:
    """One sentence of the parser's account: a title, with ASCII alone a rule, the fault, a rule, hints."""
    lines = [_BOX.sub("", line) for line in account.splitlines()[1:]]
    while lines and _RULE.fullmatch(lines[0]):
        del lines[0]
    end = next((number for number, line in enumerate(lines) if _RULE.fullmatch(line)), len(lines))
    body = [line for line in lines[:end] if line]
    text = " ".join(body).partition(" Got errors:")[0].removesuffix(".")
    if text.startswith("Missing from "):  # below it the options, each with its help
        options = [word for line in body[1:] for word in [line.split()[0]] if word.startswith("--") or word.isupper()]
        return f"{prog} needs {' and '.join(dict.fromkeys(options))}."
    if choice := re.fullmatch(r"invalid choice (.*) for argument '(\S+)'\. (Expected .*)", text):
        return f"Invalid choice {choice[1]} for {choice[2]}. {choice[3]}.{_suggest(choice[1], choice[3])}"
    if text.startswith("Unrecognized options: "):
        words = text.removeprefix("Unrecognized options: ").split(", ")
        return f"Unrecognized options: {' '.join(words)}."
    text = re.sub(r"'\('(\S+)',\)'", r"'\1'", text.removeprefix("Error parsing "))  # as tyro 1.0.0 names an option
    return f"{text or 'These options cannot be read'}."


def _suggest(given: str, expected: str) -> str:
    """The choice that may have been meant, as of an option in Python."""
    word, choices = re.match(r"'(.*?)'", given), re.findall(r"'(.*?)'", expected)
    return suggest_choice(word[1], choices) if word else ""


def _explain_unknown(kind: type, arguments: Sequence[str], prog: str) -> str:
    """A sentence on the first flag in ``arguments`` that is not an option of ``kind``; "" if all are."""
    known = sorted({"--help", HELP_ALL, *_flags(kind)})
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


T = TypeVar("T")


def parse(
    kind: type[T],
    arguments: Sequence[str],
    *,
    prog: str,
    description: str | None = None,  # what the help says of the command; by default, the docstring of ``kind``
    default: T | None = None,  # the options where an argument does not set them; by default, those of ``kind``
    hidden: Collection[str] = (),  # options of a dataclass with groups that the command refuses: help leaves them out
) -> T:
    """Read all options of a command; ``--help`` prints them and exits, ``--help-all`` the rare ones too.

    A positional first option may be given by its flag too: ``cml evaluate RUN`` or ``cml evaluate --run RUN``.
    """
    import tyro

    rules: Any = contextlib.nullcontext()
    if not HELP.isdisjoint(arguments):  # else nobody sees how help shows an option
        from cml.command_line.option_help import help_registry

        rules = help_registry(shows_all=HELP_ALL in arguments, hidden=hidden)
        arguments = ["--help"]
    about = inspect.cleandoc(kind.__doc__ or "") if description is None else description
    about = f"{about}\n{PLUGIN}: {PLUGIN_HELP}.".lstrip()
    flat = (tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)
    with explain_wrong_options(kind, arguments, prog), rules:
        args = _move_positional_flag(kind, arguments, prog)
        options = cast("T", tyro.cli(kind, args=args, prog=prog, description=about, default=default, config=flat))
        options = check_options(options)
    _check_paths(options)
    return options


def _check_paths(options: Any) -> None:  # noqa: ANN401 - a dataclass
    """Refuse names that no file can have, before the command works for an output that it cannot write."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            _check_paths(value)
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, Path):
                check_name_lengths(path, f"--{field.name.replace('_', '-')}")


def _move_positional_flag(kind: type, arguments: Sequence[str], prog: str) -> Sequence[str]:
    """The arguments, with a positional first option that was given by its flag moved to the front."""
    import tyro

    first = dataclasses.fields(kind)[0].name
    hint = typing.get_type_hints(kind, include_extras=True)[first]
    if tyro.conf.Positional not in getattr(hint, "__metadata__", ()):
        return arguments
    flagged: type[Any] = dataclasses.make_dataclass("Flagged", [(first, str, "")])
    options, other_arguments = parse_known(flagged, arguments, prog=prog)
    value: str = getattr(options, first)
    return [value, *other_arguments] if value else arguments


def parse_known(
    kind: type[T],
    arguments: Sequence[str],
    *,
    prog: str,
    default: T | None = None,  # the options where an argument does not set them; by default, those of ``kind``
) -> tuple[T, list[str]]:
    """Read some options, which may stand anywhere in a command's arguments."""
    import tyro

    with explain_wrong_options(kind, (), prog):  # the other arguments are not judged here
        options, other_arguments = tyro.cli(
            kind,
            args=list(arguments),
            prog=prog,
            default=default,
            return_unknown_args=True,
            add_help=False,
            config=(tyro.conf.UseAppendAction,),
        )
    return cast("T", options), other_arguments


@dataclass(frozen=True)
class _Plugins:
    plugin: tuple[str, ...] = ()


def load_plugins(arguments: Sequence[str]) -> list[str]:
    """Load the plugins that ``--plugin`` names."""
    if not any(word.startswith("--plugin") for word in arguments):  # keep them as they are, including "--"
        return list(arguments)
    from cml.plugins import load

    options, other_arguments = parse_known(_Plugins, arguments, prog="cml")
    for plugin in options.plugin:
        load(plugin)
    return other_arguments
