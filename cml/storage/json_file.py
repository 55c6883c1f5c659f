"""JSON and YAML files: read strictly, since anybody may have written them, and written atomically."""

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any, NoReturn

from cml.errors import DataError, UserError, require_extra
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular
from cml.version import __version__

FORMAT = 1  # of the folders that cml writes; raise it when what is in them changes, and say what to run instead


def read_json(
    path: Path,
    subject: str,
    *,
    finite: bool = True,
    without: Collection[str] = (),  # keys whose values are not kept, which takes less memory
) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file."""
    return read_parsed(path, subject, "JSON", lambda raw: parse_json(raw, finite=finite, without=without))


def read_parsed(path: Path, subject: str, form: str, parse: Callable[[bytes], Any]) -> Any:  # noqa: ANN401
    """Read a file of some format."""
    try:
        with open_regular(path) as file:
            return parse(file.read())
    except FileNotFoundError:
        raise DataError(f"{path} is missing: it should hold {subject}.") from None
    except OSError as error:
        raise DataError(f"{path} should hold {subject}, but cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path} should hold {subject} as {form}, but cannot be parsed: it {error}.") from None


def with_format(content: Mapping[str, Any]) -> dict[str, Any]:
    """Add the version of cml and the format of its folders to what a JSON file is to hold."""
    return {"cml": __version__, "format": FORMAT, **content}


def format_fault(content: Mapping[str, Any]) -> str:
    """Say which other format a folder has than the one that is read; "" if it has that one."""
    there = content.get("format")
    if there == FORMAT and not isinstance(there, bool):
        return ""
    found = "no format" if "format" not in content else f"the format {short(there)}"
    return f"has {found}, but this version of cml reads format {FORMAT}"


def check_format(content: Mapping[str, Any], path: Path, mend: str) -> None:
    """Refuse a folder of another format by name, before its entries are read as something else."""
    if fault := format_fault(content):
        raise DataError(f"{path} {fault}. {mend}")


def write_json(path: Path, value: object) -> None:
    """Write a value as readable JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = (text[: error.start].rpartition("\n")[2] + text[error.start :].partition("\n")[0]).strip()
        raise UserError(
            f"The path {line!a} in what {path} should note is not UTF-8 text: rename the file or folder."
        ) from None
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(raw: bytes, *, surrogates: bool = False, finite: bool = True, without: Collection[str] = ()) -> Any:  # noqa: ANN401 - any JSON
    """Read one JSON value."""
    decoder = _STRICT if finite else _LENIENT
    if without:
        decoder = json.JSONDecoder(
            parse_float=decoder.parse_float,
            parse_constant=decoder.parse_constant,
            object_pairs_hook=lambda pairs: _object([pair for pair in pairs if pair[0] not in without]),
        )
    try:
        text = raw.decode()
        value = decoder.decode(text)
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


def find_repeated(names: Iterable[str]) -> str | None:
    """Find the first of some names that is there again, in one pass: a stranger's file may have 100,000 of them."""
    counts = Counter(names)
    return next((name for name, count in counts.items() if count > 1), None) if len(counts) < counts.total() else None


def _refuse(constant: str) -> NoReturn:
    raise _Fault(f"holds {constant}, which JSON does not know: numbers must be finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(value := dict(pairs)) < len(pairs):
        twice = find_repeated(key for key, _ in pairs)
        raise _Fault(f"names the key {reprlib.repr(twice)} twice")
    return value


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise _Fault(f"holds {number[:20]}, which is too large: numbers must be finite")
    return value


_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)
_LENIENT = json.JSONDecoder(object_pairs_hook=_object)


_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


def parse_yaml(raw: bytes) -> Any:  # noqa: ANN401 - any YAML
    """Read one YAML document."""
    with require_extra("yaml", "Reading YAML"):
        from yaml import MappingNode, SafeLoader, YAMLError
    loader_type: Any = type("Loader", (SafeLoader,), {})  # a subclass, so that the library's own does not change
    loader_type.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, [*"+-0123456789"])
    try:
        loader = loader_type(raw)
        node = loader.get_single_node()
        keys = [key.value for key, _ in node.value] if isinstance(node, MappingNode) else []
        if (twice := find_repeated(keys)) is not None:
            raise YAMLError(f"it names the key {twice!r} twice")
        return None if node is None else loader.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        parts = [getattr(error, "context", ""), getattr(error, "problem", "")]
        reason = ", ".join(part for part in parts if part) or error
        raise ValueError(f"is not YAML: {reason}{f' in line {mark.line + 1}' if mark else ''}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    except (ValueError, TypeError, OverflowError) as error:  # an impossible date or number
        raise ValueError(f"holds a value that cannot be read: {error}") from None
