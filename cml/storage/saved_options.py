"""Frozen dataclasses of options from JSON that somebody else wrote: every option known, of its type and in its range.

msgspec converts strictly; here its errors get the file, the option and the value. Not for: reading the JSON itself
(strict_json.py).
"""

from __future__ import annotations

import dataclasses
import re
import reprlib
import typing
from typing import Any, TypeVar

from cml.errors import DataError, UserError

T = TypeVar("T")


def saved_options(kind: type[T], value: object, where: str, what: str) -> T:
    """The dataclass ``kind`` that a JSON value holds; an option that it leaves out has its default.

    Args:
        kind: A dataclass; its ``__post_init__`` checks ranges with ``UserError``.
        value: What the JSON held.
        where: The file, for errors.
        what: What the file should hold, for errors: "a run's config".

    Raises:
        DataError: an option is missing, unknown, of another type or out of range.

    Example:
        >>> @dataclasses.dataclass
        ... class Walk:
        ...     steps: int
        >>> Walk.__annotations__["steps"] = int
        >>> saved_options(Walk, {"steps": 3}, "walk.json", "a walk").steps
        3
        >>> saved_options(Walk, {"steps": "many"}, "walk.json", "a walk")
        Traceback (most recent call last):
        cml.errors.DataError: walk.json: the option 'steps' cannot be 'many': expected int, got str.
    """
    import msgspec

    if (name := _unknown(kind, value)) is not None:
        raise DataError(f"{where} has the option {name!r}, which this version of cml does not know.")
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).replace("`", "").partition(" - at $")
        if not path:
            raise DataError(f"{where} is not {what}: {reason}.") from None
        found: Any = value
        for key in (keys := re.findall(r"\w+", path)):
            found = found[int(key) if isinstance(found, list) else key]
        name = next(key for key in reversed(keys) if not key.isdigit())
        reason = reason[0].lower() + reason[1:]
        raise DataError(f"{where}: the option {name!r} cannot be {reprlib.repr(found)}: {reason}.") from None
    except UserError as error:
        raise DataError(f"{where}: {error}") from None


def _unknown(kind: Any, value: object) -> str | None:  # noqa: ANN401 - a type
    """The first name in a JSON object, or in one inside it, that is no option of the dataclass."""
    if not dataclasses.is_dataclass(kind) or not isinstance(value, dict):
        return None
    kinds = typing.get_type_hints(kind)
    for name, inner in value.items():
        if name not in kinds:
            return str(name)
        if (found := _unknown(kinds[name], inner)) is not None:
            return found
    return None
