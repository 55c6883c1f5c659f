"""Arrays in untrusted ``.npz`` files: sizes, shapes and types are checked before anything is decompressed."""

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.storage.regular_file import open_regular

_SUFFIX = ".npy"
_OVERHEAD = 1 << 16  # bytes of headers and the table of contents, far more than NumPy writes
_MOST_UNPACKED = 100  # times the size of a file; sorted item numbers and distances of few values compress well


class ArraySpec(NamedTuple):
    """The shape and the type that an array must have."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.shape}, {self.dtype}"


class DigestError(ValueError):
    """A file is another one than was recorded."""


def read_npz(
    path: Path,
    expected: Mapping[str, ArraySpec],
    *,
    sha256: str = "",  # the digest that the file must have, in hexadecimal digits; "" for any
) -> dict[str, NDArray[Any]]:
    """Read the arrays of a ``.npz`` file, as ``numpy.savez_compressed`` writes it.

    The memory that is used depends on ``expected`` alone, not on what the file claims or decompresses to.
    """
    total = sum(spec.size for spec in expected.values())
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > 2 * total + _OVERHEAD:  # what cannot be compressed hardly grows
            raise ValueError(f"it has {size:,} bytes, but its arrays have only {total:,}")
        if sha256 and hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise DigestError(f"its SHA-256 is not {sha256}")
        try:
            with zipfile.ZipFile(file) as archive:
                names = sorted(archive.namelist())
                if names != sorted(name + _SUFFIX for name in expected):
                    raise ValueError(f"it must hold the arrays {', '.join(expected)}. Got {_list_names(names)}")
                return {name: _read_array(archive, name, spec) for name, spec in expected.items()}
        except (OSError, ValueError):
            raise
        except Exception as error:  # a damaged archive leads the modules zipfile and zlib to errors of many classes
            raise ValueError(f"it is damaged ({_in_one_line(error)})") from None


def read_vectors(path: Path, names: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read vectors (T,) of numbers, and optional single numbers, from a ``.npz`` file as ``numpy.savez`` writes it.

    NumPy reads it, without pickle, and unpacks at most ``_MOST_UNPACKED`` times the size of the file: without that
    bound a few kilobytes could ask for all memory, and test_broken_files in tests/distances/test_sparse_distances.py
    fails.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(2) != b"PK":  # NumPy would read an array or a pickle as such
            raise ValueError("it is damaged (it is no .npz file)")
        file.seek(0)
        with contextlib.ExitStack() as opened:
            with _name_damage():
                archive = opened.enter_context(np.load(file, allow_pickle=False))
                stored = sorted(archive.files)
                unpacked = sum(member.file_size for member in archive.zip.infolist())  # no more is read of a member
            if not {*names} <= {*stored} <= {*names, *optional} or len({*stored}) < len(stored):
                form = ", ".join(names) + (f" and may hold {', '.join(optional)}" if optional else "")
                raise ValueError(f"it must hold the arrays {form}. Got {_list_names(stored)}")
            if unpacked > _MOST_UNPACKED * size:
                raise ValueError(
                    f"it has {size:,} bytes, but its arrays unpack to {unpacked:,}, more than {_MOST_UNPACKED} times "
                    "as much; save it by numpy.savez"
                )
            with _name_damage():
                arrays = {name: archive[name] for name in stored}
                kinds = {name: array.dtype.kind for name, array in arrays.items()}
    for name, array in arrays.items():
        if kinds[name] not in "biuf" or array.ndim != (name in names):
            form = "must be a vector of numbers" if name in names else "must be a single number"
            raise ValueError(f"{name} {form}. Got {array.shape}, {array.dtype}")
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


@contextlib.contextmanager
def _name_damage() -> Iterator[None]:
    """Turn the errors of many classes to which a damaged archive leads zipfile, zlib and NumPy into a clause."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"it is damaged ({_in_one_line(error)})") from None


def _list_names(names: list[str]) -> str:
    return repr(names[:5])[1:-1] + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _read_array(archive: zipfile.ZipFile, name: str, expected: ArraySpec) -> NDArray[Any]:
    member = archive.getinfo(name + _SUFFIX)
    with archive.open(member) as stream:
        shape, dtype = _read_header(stream, name)
        if shape != expected.shape or dtype.newbyteorder("=") != expected.dtype:
            raise ValueError(f"{name} must be {expected}. Got {shape}, {dtype}")
        content = stream.read(expected.size + 1)  # the sum of what is read is checked at its end
    if len(content) != expected.size:
        there = "more" if len(content) > expected.size else f"{len(content):,}"
        raise ValueError(f"{name} must have {expected.size:,} bytes. Got {there}")
    return np.frombuffer(content, dtype).reshape(shape).astype(expected.dtype)


def _read_header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of an array, from at most 64 KiB."""
    if np.lib.format.read_magic(stream) != (1, 0):  # later versions are for field names, and have longer headers
        raise ValueError(f"{name} must be in version 1.0 of the format .npy")
    try:
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # NumPy reads the header as Python text, and raises whatever that leads it to
        raise ValueError(f"the header of {name} cannot be read ({_in_one_line(error)})") from None
    if is_fortran:
        raise ValueError(f"{name} must be in C order")
    return shape, dtype


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
