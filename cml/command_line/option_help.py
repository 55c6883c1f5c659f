"""How ``--help`` shows an option: its values, its default and its text, alike for all commands.

The parser tyro shows ``[INT [INT ...]]``, ``{None}|INT``, ``(default: None)`` and ``(default: )``. Here several values
are ``INT ...``, an option without a value by default is shown without one, and texts are wrapped as a paragraph. Of a
dataclass with many options, which has them in ``HELP_GROUPS``, ``--help`` shows the first group, ``--help-all`` all.
"""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

_EMPTY = ("", "''", "None")  # how tyro writes values that stand for "not given"
_NAMES = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
_IS_GROUP = "is_group_of_help"
_DIGITS = 4  # of a default that is no round number


def help_registry(
    *,
    shows_all: bool,
    hidden: Collection[str] = (),  # names of options with groups that are not shown
) -> ConstructorRegistry:
    """Make the rules for tyro that show the options of every dataclass in the same way."""
    registry = ConstructorRegistry()
    under_way: list[type] = []  # dataclasses that tyro's own rule is asked about

    @registry.struct_rule
    def show_options(info: StructTypeInfo) -> StructConstructorSpec | None:
        is_shown = hasattr(info.type, _IS_GROUP)  # its options are already as they should be
        if not dataclasses.is_dataclass(info.type) or info.type in under_way or is_shown:
            return None
        under_way.append(info.type)
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            under_way.pop()
        if not isinstance(spec, StructConstructorSpec):
            return None
        first = sorted(spec.fields, key=lambda option: not _is_missing(option.default))  # those that are required
        options = tuple(map(_show_option, first))
        groups: Mapping[str, Collection[str]] | None = getattr(info.type, "HELP_GROUPS", None)
        if groups is None:
            return dataclasses.replace(spec, fields=options)
        kept = {title: [name for name in names if name not in hidden] for title, names in groups.items()}
        shown = {title: names for title, names in kept.items() if names}
        return dataclasses.replace(spec, fields=_group(options, shown, shows_all))

    return registry


def _group(
    options: tuple[StructFieldSpec, ...], groups: Mapping[str, Collection[str]], shows_all: bool
) -> tuple[StructFieldSpec, ...]:
    """The options as one dataclass a group, for the help alone; without ``shows_all`` those of the first group."""
    by_name, count = {option.name: option for option in options}, sum(map(len, groups.values()))
    shown = []
    for title, names in groups.items() if shows_all else list(groups.items())[:1]:
        members = [(name, by_name[name].type, dataclasses.field(default=by_name[name].default)) for name in names]
        group = dataclasses.make_dataclass(title, members, namespace={_IS_GROUP: True}, frozen=True)
        text = "" if shows_all else f"--help-all shows {count - len(names)} more."
        shown.append(StructFieldSpec(name=title, type=group, default=group(), helptext=text))
    return tuple(shown)


def _show_option(option: StructFieldSpec) -> StructFieldSpec:
    """The option, with the help that is shown for it."""
    kind, *details = _unwrap(option.type)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):  # a group of options
        has_groups = hasattr(kind, "HELP_GROUPS")  # which have titles of their own
        shown_kind: Any = Annotated[(option.type, tyro.conf.arg(name=""))] if has_groups else option.type
        return dataclasses.replace(option, type=shown_kind, helptext=_first_paragraph(kind))
    texts = [detail.help for detail in details if getattr(detail, "help", None)]
    text = texts[-1] if texts else option.helptext() if callable(option.helptext) else option.helptext
    metavars = [detail.metavar for detail in details if getattr(detail, "metavar", None)]
    metavar = metavars[-1] if metavars else None
    is_repeatable = tyro.conf.UseAppendAction in details  # one value each time
    shown = tyro.conf.arg(
        help=None if text is None else _paragraph(text),
        help_behavior_hint=_format_default(is_required=_is_missing(option.default)),
        metavar=metavar if is_repeatable else _format_values(kind, option.default, metavar),
    )
    shown_type: Any = Annotated[(option.type, shown)]
    return dataclasses.replace(option, type=shown_type)


def _unwrap(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    """A type and what it is annotated with."""
    return (kind.__origin__, *kind.__metadata__) if hasattr(kind, "__metadata__") else (kind,)


def _paragraph(text: str) -> str:
    """A help text as one paragraph; tyro would break lines within a number such as 10,000."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.split()))
    return re.sub(r"(?<= )\.\.(?!\.)", "...", text)


def _first_paragraph(kind: type) -> str:
    """What a group of options is, without notes for programmers."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())


def _is_missing(default: object) -> bool:
    return default in (tyro.MISSING, tyro.MISSING_NONPROP)


def _format_default(*, is_required: bool) -> Callable[[str], str]:
    """What to write behind the text of an option whose default tyro writes as the argument."""

    def show(default: str) -> str:
        if is_required:
            return "(required)"
        if default in _EMPTY:
            return ""
        return f"(default: {_round(default)})"

    return show


def _round(default: str) -> str:
    """A default as text; a number of many digits with few."""
    try:
        number = float(default)
    except ValueError:
        return default
    return f"{number:.{_DIGITS}g}" if "." in default and len(default) > len("0.00001") else default


def _format_values(kind: Any, default: object, metavar: str | None) -> str | None:  # noqa: ANN401 - a type
    """The values of an option: ``INT``, ``{a,b}``, ``INT ...``; None where tyro's own form is right."""
    if _is_optional(kind):
        shown = _several(_inner_type(kind), metavar) or metavar or _value_name(_inner_type(kind))
        return f"{shown}|None" if shown is not None and default is not None else shown
    return _several(kind, metavar) or _marks(kind)


def _marks(kind: Any) -> str | None:  # noqa: ANN401 - a type
    """Choices without the empty one, or MARK for those of punctuation; None for another type."""
    choices = [str(choice) for choice in typing.get_args(kind)] if typing.get_origin(kind) is typing.Literal else []
    if any(choice and not choice[0].isalnum() for choice in choices):
        return "MARK"
    return f"{{{','.join(filter(None, choices))}}}" if "" in choices else None


def _several(kind: Any, metavar: str | None) -> str | None:  # noqa: ANN401 - a type
    """Any number of values, as ``INT ...``; None for another type."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is not tuple or parts[1:] != (Ellipsis,):
        return None
    if metavar is not None and metavar.startswith("["):
        return metavar
    name = metavar or _value_name(parts[0])
    return None if name is None else f"{name} ..."


def _is_optional(kind: Any) -> bool:  # noqa: ANN401 - a type
    """Whether a type is that of one kind of values, or None."""
    parts = typing.get_args(kind)
    return typing.get_origin(kind) in (typing.Union, types.UnionType) and type(None) in parts and len(parts) == 2


def _inner_type(kind: Any) -> Any:  # noqa: ANN401 - a type
    """The other type of an optional one."""
    return next(part for part in typing.get_args(kind) if part is not type(None))


def _value_name(kind: Any) -> str | None:  # noqa: ANN401 - a type
    """The name of one value: its type, or its choices."""
    if typing.get_origin(kind) is typing.Literal:
        return f"{{{','.join(map(str, typing.get_args(kind)))}}}"
    return _NAMES.get(kind)
