"""The lines of UTF-8 text files, each with its place for error messages."""

import io
from pathlib import Path

from cml.errors import DataError
from cml.storage.regular_file import open_regular


def read_lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a UTF-8 text file that are not blank, each with "FILE:LINE"."""
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be UTF-8 text, but is not: {error.reason} at byte {error.start + 1}.") from None
    return [(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]


def read_words(path: Path) -> list[tuple[str, list[str]]]:
    """The lines of a text file, each with "FILE:LINE", cut at white space."""
    if not (lines := [(where, line.split()) for where, line in read_lines(path)]):
        raise DataError(f"{path} is empty.")
    return lines
