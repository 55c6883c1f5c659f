"""JSON files: read strictly, since anybody may have written them, and written atomically."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from cml.errors import DataError, UserError
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular
from cml.storage.strict_json import parse_json
from cml.version import __version__

FORMAT = 1  # of the folders that cml writes; raise it when what is in them changes, and say what to run instead


def read_json(path: Path, subject: str, *, finite: bool = True) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file."""
    return read_parsed(path, subject, "JSON", lambda raw: parse_json(raw, finite=finite))


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
