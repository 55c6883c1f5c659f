"""File names in data files: they may only name regular files below a given folder, after all links are followed.

Names of files come in either of Unicode's normal forms, by the system and the program that wrote them, and look the
same. Not for: names that differ in case, or in characters that only look alike.
"""

import os
import posixpath
import reprlib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from cml.errors import DataError, UserError

LONGEST_NAME = 255  # bytes of a file name; on Windows UTF-16 characters
_LONGEST = 4096  # bytes of a path, what Linux can open


def relative_name(value: object, folder: object, *, portable: bool = True) -> str:
    """Check the name of a file below a folder, without looking at the disk."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"should be the path of a file, relative to {folder}")
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"should be relative to {folder} and without '..'")
    if "\0" in value or (portable and "\\" in value):
        raise ValueError("holds a backslash or NUL, which no portable file name has")
    coded = value.encode(errors="surrogatepass")
    if len(coded) > _LONGEST or max(map(len, coded.split(b"/"))) > LONGEST_NAME:
        raise ValueError(f"is longer than any file name: {LONGEST_NAME} bytes, {_LONGEST} with its folders")
    return posixpath.normpath(value)


def check_name_lengths(path: Path, subject: str) -> None:
    """Check that no name in a path is longer than a file system can hold."""
    for name in path.parts:
        length = len(name) if os.name == "nt" else len(os.fsencode(name))
        if length > LONGEST_NAME:
            got = f"Got {length} in {reprlib.repr(name)} instead"
            raise UserError(f"A file name in {subject} must have at most {LONGEST_NAME} bytes. {got}. Shorten it.")


def is_inside(path: Path, folder: Path) -> bool:
    """Tell whether a path lies in a folder after all links are followed."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(folder)
    except ValueError:  # a character that no path may contain
        return False


def check_no_link(root: Path, *names: str) -> None:
    """Check that folders in which cml writes are not links."""
    for end in range(len(names)):
        if (path := root.joinpath(*names[: end + 1])).is_symlink():
            raise UserError(f"{path} is a link, so cml would write elsewhere. Put a folder in its place.")


def file_inside(folder: Path, name: object, where: str, subject: str = "image") -> Path:
    """Find a regular file that a data file names.

    A name with accents may be written in another Unicode normal form than on the disk, as where a table from Windows
    names files that come from a Mac: both forms of each folder and file are tried.
    """
    try:
        plain = relative_name(name, folder)
    except ValueError as fault:
        raise DataError(f"{where}: the {subject} {reprlib.repr(name)} {fault}.") from None
    path = folder / plain
    if not os.path.isfile(path) and not plain.isascii():
        path = _spell_as_on_disk(folder, plain)
    if not os.path.isfile(path):
        raise DataError(f"{where}: the {subject} {path} is missing; add it, or delete the line.")
    try:
        return check_inside(path, folder)
    except DataError as error:
        raise DataError(f"{where}: the {subject} {error}") from None


def check_inside(path: Path, folder: Path) -> Path:
    """Check that a file lies in a folder after all links are followed."""
    if is_inside(path, Path(os.path.realpath(folder))):
        return path
    raise DataError(f"{path} leads out of {folder}, to {os.path.realpath(path)}; copy it there.")


def _spell_as_on_disk(folder: Path, name: str) -> Path:
    """The path of a name, each part of it in the Unicode normal form that exists; as it is where none does."""
    path = folder
    for part in name.split("/"):
        forms = [path / form for form in unicode_forms(part)]
        path = next(filter(os.path.exists, forms), forms[0])
    return path


T = TypeVar("T")


def unicode_forms(text: str) -> tuple[str, ...]:
    """Spell a text as it is, composed (NFC) and decomposed (NFD).

    Example:
        >>> [len(form) for form in unicode_forms("café.jpg")]
        [8, 9]
    """
    if text.isascii():
        return (text,)
    return tuple(dict.fromkeys([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))]))


def look_up(name: str, known: Mapping[str, T]) -> T | None:  # the value; None if no spelling of the name is known
    """Look up a name, by its other spellings where it is unknown as it is."""
    return next((known[form] for form in unicode_forms(name) if form in known), None)
