"""JSON from untrusted files: NaN, duplicate keys, lone surrogates, huge numbers and endless nesting are errors."""

import json
import math
import re
import reprlib
from typing import Any, NoReturn

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(raw: bytes, *, surrogates: bool = False, finite: bool = True) -> Any:  # noqa: ANN401 - any JSON
    """Read one JSON value."""
    try:
        text = raw.decode()
        value = (_STRICT if finite else _LENIENT).decode(text)
        if not surrogates and _SURROGATE.search(text):  # most are halves of a valid pair
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos + 1}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text: {error.reason} at byte {error.start + 1}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"holds half a character: {error.object[error.start]!a}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except _Fault:
        raise
    except ValueError:  # Python's limit for integers
        raise ValueError("holds a number of thousands of digits") from None
    return value


class _Fault(ValueError):
    pass


def _refuse(constant: str) -> NoReturn:
    raise _Fault(f"holds {constant}, which JSON does not know: numbers must be finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(value := dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Fault(f"names the key {reprlib.repr(twice)} twice")
    return value


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise _Fault(f"holds {number[:20]}, which is too large: numbers must be finite")
    return value


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)
_LENIENT = json.JSONDecoder(object_pairs_hook=_object)
