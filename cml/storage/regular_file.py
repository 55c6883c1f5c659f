"""Opening files that may be named badly or be no files at all."""

import contextlib
import errno
import hashlib
import io
import os
import stat
from pathlib import Path

from cml.storage import system


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading."""
    descriptor = os.open(path, os.O_RDONLY | system.NO_WAIT | system.PLAIN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def digest_file(path: Path) -> str:
    """Compute the SHA-256 of a regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_path(path: Path) -> contextlib.AbstractContextManager[str]:
    """Name a file for a library that takes only Unicode text, which the name of a file need not be."""
    name = str(path)
    is_text = name.encode(errors="ignore").decode() == name
    return contextlib.nullcontext(name) if is_text else system.other_name(path)
