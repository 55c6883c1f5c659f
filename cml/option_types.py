"""Options converted and checked once, where a user's values enter: a command, a file, an argument of a public function.

The annotations of a dataclass are the one place that says what an option may be: the command line and a saved config
read the same ones. NumPy's numbers become Python's, names of files become paths and lists become tuples. A near miss is
refused with the value that may have been meant. Inside cml, dataclasses of options are plain.
"""

import contextlib
import copy
import difflib
import functools
import math
import numbers
import os
import reprlib
import types
import typing
from collections.abc import Container, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union

from cml.errors import UserError

T = TypeVar("T")

_ALIASES = {  # what others call a choice of cml
    "bf16": "bfloat16",
    "half": "bfloat16",
    "fp16": "bfloat16",
    "16": "bfloat16",
    "fp32": "float32",
    "32": "float32",
    "full": "float32",
}
_FLAGS = {
    **dict.fromkeys(("yes", "y", "true", "on", "1"), True),
    **dict.fromkeys(("no", "n", "false", "off", "0"), False),
}


def check_options(options: T) -> T:
    """Convert the options that a user gave, those of inner dataclasses too, and check their types and their own rules.

    A field of another kind than numbers, texts, paths, choices, flags, lists of them and dataclasses is left as it is.
    """
    options = copy.copy(options)
    convert_options(options)
    if hasattr(options, "check"):
        options.check()
    return options


def convert_options(options: Any) -> None:  # noqa: ANN401 - a dataclass
    """Convert the fields of a dataclass in place, as registered things do with their settings when they are made."""
    for name, value in convert_values(type(options), vars(options)).items():
        object.__setattr__(options, name, value)


def convert_values(made_of: Any, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Convert fields of the dataclass ``made_of`` by their annotations; returns those that became other objects."""
    converted, options = {}, _options_of(made_of)
    for name, value in values.items():
        option = options.get(name)
        if option is None or value is option.default or type(value) in option.types:
            continue  # most are cml's own defaults, or need no conversion
        if type(value) is str and value in option.choices:
            continue
        if type(value) is tuple and {*map(type, value)} <= option.item_types and len(value) in option.lengths:
            continue
        new = convert_option(name, value, option.kind, default=option.default)
        if option.is_nested and is_dataclass(new):
            new = check_options(new)
        if new is not value:
            converted[name] = new
    return converted


def convert_option(name: str, value: object, kind: Any, *, default: object = None) -> Any:  # noqa: ANN401 - a type
    """Check the type of one option."""
    kinds = _alternatives(kind)
    if not all(_is_known(one) for one in kinds):
        return value
    with contextlib.suppress(TypeError):
        return _convert_to_any(value, kinds)
    choices = [choice for one in kinds if typing.get_origin(one) is Literal for choice in typing.get_args(one)]
    rules = [_rule(one) for one in kinds if one is not type(None) and typing.get_origin(one) is not Literal]
    if str in kinds and isinstance(default, str) and default:
        rules[-1] += f", such as {default!r}"
    if choices:
        rules.append(join_choices(choices))
    none = ", or none" if type(None) in kinds else ""
    hint = suggest_value(value, kind)
    raise UserError(f"'{name}' must be {' or '.join(rules)}{none}. Got {describe_value(value)} instead.{hint}")


def reads_as_number(text: str) -> bool:
    """Whether a text is one number, such as ``1e-3``."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_number(value: object, *, whole: bool = False) -> bool:
    """Whether a value is a number of Python or of NumPy; True and False are none."""
    kinds = numbers.Integral if whole else numbers.Real
    return isinstance(value, kinds) and not isinstance(value, bool)


def describe_value(value: object) -> str:
    """Show a value in an error: a class or function by its name, anything else shortened."""
    title = getattr(value, "__qualname__", None)
    return title if callable(value) and isinstance(title, str) else reprlib.repr(value)


def join_choices(choices: Sequence[object]) -> str:  # ``a or b``, or ``one of a, b, c``
    """List choices in a sentence."""
    words = [str(choice) for choice in choices]
    return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"


def suggest_choice(
    value: object, choices: Sequence[object]
) -> str:  # a question to append to an error; "" if none is near
    """Suggest the choice that a near miss may have meant.

    Example:
        >>> suggest_choice("Cosine", ["cosine", "constant"]), suggest_choice("bf16", ["float32", "bfloat16"])
        (" Did you mean 'cosine'?", " Did you mean 'bfloat16'?")
    """
    if isinstance(value, bool):
        return ""
    named = value if isinstance(value, str | int) else getattr(value, "__name__", value)
    word = str(named).strip().lower()
    by_word = {str(choice).lower(): choice for choice in choices}
    if value is None and word not in by_word:
        return ""
    close = word if word in by_word else _ALIASES.get(word, "")
    if close not in by_word:
        close = next(iter(difflib.get_close_matches(word, by_word, n=1)), "")
    return f" Did you mean {by_word[close]!r}?" if close in by_word else ""


def suggest_value(
    value: object,
    kind: Any,  # noqa: ANN401 - a type
) -> str:  # a question to append to an error; "" if none is near
    """Suggest the value that may have been meant by one of another type."""
    for one in _alternatives(kind):
        if typing.get_origin(one) is Literal:
            hint = suggest_choice(value, typing.get_args(one))
            if hint:
                return hint
        word = str(value).strip()
        meant: object = None
        if one is bool and isinstance(value, str | int):
            meant = _FLAGS.get(word.lower())
        elif one in (int, float) and (isinstance(value, str) or is_number(value)):
            try:
                number = float(word)
            except (ValueError, OverflowError):
                continue
            if math.isfinite(number) and (one is float or number.is_integer()):
                meant = int(number) if number.is_integer() else number
        elif _parts(one) and isinstance(value, int | str) and not isinstance(value, bool):
            parts = _parts(one)
            try:
                meant = _convert((value,) * (1 if parts[-1] is Ellipsis else len(parts)), one)
            except (TypeError, ValueError):
                continue
        if meant is not None:
            return f" Did you mean {meant!r}?"
    return ""


class _Option(NamedTuple):
    """What a field may be; values of the exact types need no conversion."""

    kind: Any
    default: Any
    is_nested: bool
    types: set[type]
    choices: set[str]
    item_types: set[type]  # of a tuple's values
    lengths: Container[int]


@functools.cache
def _options_of(made_of: type) -> dict[str, _Option]:
    """What the fields of a dataclass may be; none of one whose annotations cannot be read."""
    try:
        hints = typing.get_type_hints(made_of)
    except Exception:
        return {}
    return {field.name: _option_of(hints[field.name], field.default) for field in fields(made_of) if field.init}


def _option_of(kind: Any, default: object) -> _Option:  # noqa: ANN401 - a type
    kinds = _alternatives(kind)
    types_ = {bool, int, float, type(None), *(() if Path in kinds else (str,))}
    choices = {word for one in kinds if typing.get_origin(one) is Literal for word in typing.get_args(one)}
    parts = next((_parts(one) for one in kinds if typing.get_origin(one) is tuple), ())
    lengths = range(1 << 30) if Ellipsis in parts else (len(parts),)
    item_types = {*parts} & {bool, int, float, str} if len({*parts} - {Ellipsis}) == 1 else set()
    words = {word for word in choices if isinstance(word, str)}
    return _Option(kind, default, any(map(is_dataclass, kinds)), types_ & {*kinds}, words, item_types, lengths)


def _alternatives(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    """The types of which a value may have one."""
    if typing.get_origin(kind) is Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (Union, types.UnionType):
        return tuple(one for part in typing.get_args(kind) for one in _alternatives(part))
    return (kind,)


def _parts(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    """The kinds of the values of a tuple, with an Ellipsis after the kind of any number of them; () of another type."""
    if typing.get_origin(kind) is Sequence:
        return (*typing.get_args(kind), Ellipsis)
    return typing.get_args(kind) if typing.get_origin(kind) is tuple else ()


def _is_known(kind: Any) -> bool:  # noqa: ANN401 - a type
    if parts := _parts(kind):
        return all(part is Ellipsis or all(map(_is_known, _alternatives(part))) for part in parts)
    is_choice = typing.get_origin(kind) is Literal
    return is_choice or kind in (bool, int, float, str, Path, type(None)) or is_dataclass(kind)


def _convert_to_any(value: object, kinds: Sequence[Any]) -> Any:  # noqa: ANN401 - any value
    """The value as the first of ``kinds`` that takes it; a TypeError if none does."""
    for kind in kinds:
        with contextlib.suppress(TypeError, ValueError):
            return _convert(value, kind)
    raise TypeError


def _convert(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any value and type
    """The value as ``kind``; a TypeError or ValueError if it is something else."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        for choice in typing.get_args(kind):
            if type(choice) is bool or isinstance(value, bool):
                matches = value is choice
            else:
                matches = isinstance(value, type(choice) | numbers.Integral) and value == choice
            if matches:
                return choice
        raise ValueError
    if parts := _parts(kind):
        values = value.tolist() if getattr(value, "ndim", 0) == 1 else value
        if not isinstance(values, tuple | list) or (parts[-1] is not Ellipsis and len(values) != len(parts)):
            raise TypeError
        kinds = [parts[0]] * len(values) if parts[-1] is Ellipsis else parts
        return tuple(_convert_to_any(part, _alternatives(one)) for part, one in zip(values, kinds, strict=True))
    if kind is bool:
        if isinstance(value, bool):
            return value
        if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
            return bool(value)
    elif kind in (int, float):
        if is_number(value, whole=kind is int):
            return _convert_number(value, kind)
    elif kind is str:
        if type(value).__module__ == "torch" and type(value).__name__ == "device":
            return str(value)
        text = os.fspath(value)  # a TypeError unless it is a text or a path
        if isinstance(text, str):
            return str.__str__(text)
    elif kind is Path:
        return Path(value)
    elif isinstance(value, kind):
        return value
    raise TypeError


def _convert_number(value: Any, kind: type) -> int | float:  # noqa: ANN401 - a number of any library
    if kind is int:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _rule(kind: Any) -> str:  # noqa: ANN401 - a type
    """What a value of a type is called in an error."""
    if parts := _parts(kind):
        words = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}.get(parts[0], "values")
        if typing.get_origin(parts[0]) is Literal:
            words = f"choices among {', '.join(map(str, typing.get_args(parts[0])))}"
        return f"a list of {words}" if parts[-1] is Ellipsis else f"{len(parts)} {words}"
    names = {bool: "True or False", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
    return names.get(kind, f"a {getattr(kind, '__name__', kind)}")
