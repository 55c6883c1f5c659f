"""The settings that results were made with, and the first difference between two of them, in words."""

import json
import re
from collections.abc import Mapping
from typing import Any

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
