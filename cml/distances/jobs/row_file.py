"""A ``.npy`` file that is written in pieces: rows, or the ends of rows, in any order and from several threads.

Its whole room on the disk is taken at the start, and it is written by ``pwrite``, not through a memory map: a disk
that is full is then an error at the start, and the memory of the process stays that of the pieces. Not for: knowing
which pieces are there (folder.py).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.jobs.work import Form
from cml.storage import system
from cml.storage.atomic import write_all
from cml.storage.npy import map_array
from cml.storage.work_folder import FolderError

TILE = 1024  # rows and columns mirrored at a time: runs of 4 KiB of float32, a page of the disk


class RowFile:
    """An array (rows, form.columns) on disk.

    Args:
        path: The file. One that has not exactly the right head and size is replaced by an empty one.
        rows: Rows.
        form: Columns and type.

    Attributes:
        is_new: True if the file was made now, so that it holds nothing yet.

    Raises:
        FolderError: the disk has no room for it.
    """

    def __init__(self, path: Path, rows: int, form: Form) -> None:
        self.path, self._rows, self._form = path, rows, form
        self._item = form.dtype.itemsize
        self._offset, size = _place(path, rows, form)
        self.is_new = self._offset == 0
        if self.is_new:
            path.unlink(missing_ok=True)
            empty = np.lib.format.open_memmap(path, "w+", form.dtype, (rows, form.columns))
            self._offset = int(empty.offset)
            size = self._offset + empty.nbytes
            del empty
        self._descriptor = os.open(path, os.O_RDWR | system.PLAIN)
        if self.is_new:
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(self._descriptor, 0, size)
                else:
                    os.ftruncate(self._descriptor, size)
            except OSError as error:
                os.close(self._descriptor)
                path.unlink()
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                raise FolderError(
                    f"The disk has no room for {path}: it takes {size:,} bytes ({error.strerror}). Free some space or "
                    "choose another folder."
                ) from None

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def write(self, start: int, block: NDArray[Any]) -> None:
        """Write ``block`` (R, C) as the last C columns of the rows from ``start`` on."""
        block = np.ascontiguousarray(block, self._form.dtype)
        first = self._form.columns - block.shape[1]
        if first == 0:
            self._write(start, 0, block)
            return
        for row in range(len(block)):
            self._write(start + row, first, block[row])

    def mirror(self, start: int) -> None:
        """Copy what is above the diagonal of a square array to below it, in the ``TILE`` rows from ``start`` on."""
        stop = min(start + TILE, self._rows)
        for first in range(0, stop, TILE):
            last = min(first + TILE, stop)
            tile = np.empty((last - first, stop - start), self._form.dtype)
            for row in range(len(tile)):
                self._read(first + row, start, tile[row])
            mirrored = np.ascontiguousarray(tile.T)
            if first == start:
                mirrored = np.where(np.tri(len(tile), len(tile), -1, dtype=np.bool_), mirrored, tile)
            for row in range(len(mirrored)):
                self._write(start + row, first, mirrored[row])

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        os.fsync(self._descriptor)

    def _at(self, row: int, column: int) -> int:
        return self._offset + (row * self._form.columns + column) * self._item

    def _write(self, row: int, column: int, values: NDArray[Any]) -> None:
        write_all(self._descriptor, values.reshape(-1).view(np.uint8).data, self._at(row, column))

    def _read(self, row: int, column: int, values: NDArray[Any]) -> None:
        into = values.view(np.uint8).data
        if system.read_at(self._descriptor, into, self._at(row, column)) != len(into):
            raise OSError(errno.EIO, "The file ends too early", str(self.path))


def is_sound(path: Path, rows: int, form: Form) -> bool:
    """True if ``path`` is a whole array (rows, form.columns) of the right type."""
    return _place(path, rows, form) != (0, 0)


def _place(path: Path, rows: int, form: Form) -> tuple[int, int]:
    """Where the numbers of a sound file begin and end; 0, 0 if it is none."""
    try:
        array: Any = map_array(path)
    except (OSError, ValueError):
        return 0, 0
    sound = isinstance(array, np.memmap) and array.shape == (rows, form.columns) and array.dtype == form.dtype
    return (int(array.offset), int(array.offset) + array.nbytes) if sound and array.flags.c_contiguous else (0, 0)
