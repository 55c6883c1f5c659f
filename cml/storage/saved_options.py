"""The options that results were made with: read back, checked, and compared with those that are wanted."""

import dataclasses
import json
import math
import re
import reprlib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, ValidationError, convert

from cml.errors import DataError, UserError, did_you_mean
from cml.option_types import check_options, suggest_value
from cml.storage.json_file import read_json

T = TypeVar("T")
Count = Annotated[int, Meta(ge=0, le=1 << 60)]
"""A number of items, steps or bytes."""
TINY = 1e-12  # the smallest positive number that makes sense as an option


def check_bounds(
    options: object,  # the dataclass; an option whose default is None may be None
    bounds: Mapping[tuple[float, float], Sequence[str]],
) -> None:
    """Check the numbers of a dataclass."""
    for (low, high), names in bounds.items():
        for name in names:
            value = getattr(options, name)
            for number in value if isinstance(value, tuple | list) else () if value is None else (value,):
                if low <= number <= high:
                    continue
                rule = f"at most {high:,}" if number > high else "above 0" if low == TINY else f"{low} or more"
                if isinstance(number, float) and not math.isfinite(number):
                    rule = "a finite number"
                none = ", or none" if getattr(type(options), name, 0) is None else ""
                raise UserError(f"'{name}' must be {rule}{none}. Got {reprlib.repr(value)} instead.")


def read_record(path: Path, kind: type[T], subject: str, mend: str) -> T:
    """Read a record from a JSON file that cml wrote."""
    return record(read_json(path, subject), kind, str(path), subject, mend)


def record(value: object, kind: type[T], where: str, subject: str, mend: str = "") -> T:
    """Convert JSON that has been read to a record."""
    try:
        return convert(value, kind, strict=True)
    except ValidationError as error:
        raise DataError(f"{_describe(error, value, where, subject, 'entry')} {mend}".rstrip()) from None


def saved_options(kind: type[T], value: object, where: str, subject: str) -> T:
    """Convert JSON that has been read to options."""
    if isinstance(value, dict) and (name := _unknown(kind, value)) is not None:
        raise DataError(f"{where} has the option {name}")
    try:
        return check_options(convert(value, kind, strict=True))
    except ValidationError as error:
        raise DataError(_describe(error, value, where, subject, "option", kind)) from None
    except UserError as error:
        raise DataError(f"{where}: {error}") from None


def _describe(
    error: ValidationError,
    value: Any,  # noqa: ANN401 - any JSON
    where: str,
    subject: str,
    noun: str,
    kind: Any = None,  # noqa: ANN401 - a type
) -> str:
    """The error of msgspec, with the entry's name and value if they are known, and what may have been meant."""
    reason, _, path = str(error).replace("`", "").partition(" - at $")
    keys = re.findall(r"\w+|\.\.\.", path)
    name = next((key for key in reversed(keys) if not key.isdigit()), "...")
    if name == "...":  # in a mapping, whose keys msgspec does not name
        return f"{where} is not {subject}: {reason}."
    reason, shown, hint = reason[0].lower() + reason[1:], "", ""
    if "..." not in keys:
        for key in keys:
            value = value[int(key) if isinstance(value, list) else key]
            kind = typing.get_type_hints(kind).get(key) if dataclasses.is_dataclass(kind) else None
        shown = f" {reprlib.repr(value)}"
        hint = suggest_value(value, kind)
    return f"{where}: the {noun} {name!r} cannot be{shown or ' so'}: {reason}.{hint}"


def _unknown(kind: Any, values: Mapping[str, Any]) -> str | None:  # noqa: ANN401 - a dataclass
    """A message on the first name in a JSON object, or in one inside it, that is not an option of the dataclass."""
    kinds = typing.get_type_hints(kind)
    for name, inner in values.items():
        if name not in kinds:
            return f"{name!r}, which this version of cml does not know.{did_you_mean(str(name), kinds)}"
        is_nested = isinstance(inner, dict) and dataclasses.is_dataclass(kinds[name])
        if is_nested and (message := _unknown(kinds[name], inner)) is not None:
            return message
    return None


_LONGEST = 80  # characters of a value that a message shows
_DIGEST = re.compile(r"[0-9a-f]{16,}")
_CHANGED_CODE = (
    "the code of the label distance was changed, or a value that it refers to; with a 'version' "
    "(cml.distances.register), it may change"
)


def as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a mapping to what a JSON file returns: tuples become lists, keys become strings."""
    return json.loads(json.dumps(dict(value)))  # type: ignore[no-any-return]


def difference(
    there: object,
    wanted: Mapping[str, Any],
    about_there: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
) -> str:  # the difference in words; "" if there is none
    """Name the first option in which settings differ from the wanted ones, with both values.

    Digests mean nothing to a reader: of what they are of, the first difference is named.
    """
    if there == wanted:
        return ""
    if not isinstance(there, Mapping) or not there:
        return "it does not say how"
    then, now = _flat(there), _flat(wanted)
    key = next((key for key in {**now, **then} if then.get(key) != now.get(key)), None)
    if key is None:
        return ""
    if key == "revision":
        return "another version of cml made it"
    if not all(isinstance(values.get(key), str) and _DIGEST.fullmatch(values[key]) for values in (then, now)):
        return _both(key, then.get(key), now.get(key))
    for name, value in (about or {}).items():
        if about_there is not None and about_there.get(name) != value:
            if name == "label_distance" and _mask(about_there.get(name)) == _mask(value):
                return _CHANGED_CODE
            return _both(name, about_there.get(name), value)
    if key == "distance_fingerprint":
        return _CHANGED_CODE
    return f"not with the same {key.removesuffix('_fingerprint')}"


def _mask(description: object) -> str:
    """A description without its digests."""
    return _DIGEST.sub("", str(description))


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a mapping and of the mappings inside it, under their own names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value) if isinstance(value, Mapping) else {key: value}
    return flat


def _both(name: str, then: object, now: object) -> str:
    texts = [str("nothing" if value is None else value) for value in (then, now)]
    if max(map(len, texts)) > _LONGEST:  # a common beginning says nothing
        alike = next((place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 0)
        texts = [f"..{text[alike:]}" if alike > _LONGEST // 2 else text for text in texts]
    return f"{name} was {texts[0][:_LONGEST]}, now {texts[1][:_LONGEST]}"
