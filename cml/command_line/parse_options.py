"""Reading a command's options into a dataclass, with errors in one line."""

import dataclasses
import inspect
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from cml.command_line.plugin_help import PLUGIN, PLUGIN_HELP
from cml.command_line.wrong_options import explain_wrong_options
from cml.option_types import check_options
from cml.storage.safe_paths import check_name_lengths

T = TypeVar("T")


def parse(
    kind: type[T],
    arguments: Sequence[str],
    *,
    prog: str,
    description: str | None = None,  # what the help says of the command; by default, the docstring of ``kind``
    default: T | None = None,  # the options where an argument does not set them; by default, those of ``kind``
) -> T:
    """Read all options of a command; ``--help`` prints them and exits.

    A positional first option may be given by its flag too: ``cml evaluate RUN`` or ``cml evaluate --run RUN``.
    """
    import tyro

    from cml.command_line.option_help import help_registry

    about = inspect.cleandoc(kind.__doc__ or "") if description is None else description
    about = f"{about}\n{PLUGIN}: {PLUGIN_HELP}.".lstrip()
    flat = (tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)
    with explain_wrong_options(kind, arguments, prog), help_registry():
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
