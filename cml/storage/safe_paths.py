"""File names in data files: they may only name regular files below a given folder, after all links are followed."""

import os
import posixpath
import reprlib
from pathlib import Path

from cml.errors import DataError, UserError

_LONGEST, _LONGEST_PART = 4096, 255  # bytes, what Linux can open


def relative_name(value: object, folder: object, *, portable: bool = True) -> str:
    """A name in its normal form, or ``ValueError``, to follow it; ``portable`` refuses a backslash. Needs no disk."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"should be the path of a file, relative to {folder}")
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"should be relative to {folder} and without '..'")
    if "\0" in value or (portable and "\\" in value):
        raise ValueError("holds a backslash or NUL, which no portable file name has")
    coded = value.encode(errors="surrogatepass")
    if len(coded) > _LONGEST or max(map(len, coded.split(b"/"))) > _LONGEST_PART:
        raise ValueError(f"is longer than any file name: {_LONGEST_PART} bytes, {_LONGEST} with its folders")
    return posixpath.normpath(value)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` lies in the resolved ``folder`` after all links are followed."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(folder)
    except ValueError:  # a character that no path may contain
        return False


def check_no_link(root: Path, *names: str) -> None:
    """Check that ``root / names[0]``, ``root / names[0] / names[1]``, .., in which cml writes, are not links."""
    for end in range(len(names)):
        if (path := root.joinpath(*names[: end + 1])).is_symlink():
            raise UserError(f"{path} is a link, so cml would write elsewhere. Put a folder in its place.")


def file_inside(folder: Path, name: object, where: str, what: str = "image") -> Path:
    """The regular file ``name`` in ``folder``, or ``DataError`` with ``where`` ("FILE:LINE") and ``what`` it is."""
    try:
        path = folder / relative_name(name, folder)
    except ValueError as fault:
        raise DataError(f"{where}: the {what} {reprlib.repr(name)} {fault}.") from None
    try:
        found = path.is_file()
    except (OSError, ValueError):  # ValueError: a character that no path may contain
        found = False
    if not found:
        raise DataError(f"{where}: the {what} {path} is missing; add it, or delete the line.")
    if not is_inside(path, Path(os.path.realpath(folder))):
        raise DataError(
            f"{where}: the {what} {path} leads out of {folder}, to {os.path.realpath(path)}; copy it there."
        )
    return path
