"""Arrays of a distance job on disk, written strip by strip.

The whole room of an array on the disk is taken at the start, and it is written by pwrite, not through a memory map: a
disk that is full is then an error at the start, and the memory of the process stays that of the strips.
"""

import errno
import io
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.jobs.work import Form
from cml.storage import system
from cml.storage.atomic import write_all
from cml.storage.regular_file import map_array
from cml.storage.work_folder import FolderError

TILE = 1024  # rows and columns mirrored at a time: runs of 4 KiB of float32, a page of the disk


class RowFile(io.FileIO):
    """An array (rows, form.columns) on disk; a file that has not exactly the right head and size is replaced."""

    def __init__(self, path: Path, rows: int, form: Form) -> None:  # path: the ``.npy`` file; rows: rows of the array
        self._rows, self._form = rows, form
        start = find_start(path, rows, form)
        is_new = start is None
        if start is None:
            path.unlink(missing_ok=True)
            start = int(np.lib.format.open_memmap(path, "w+", form.dtype, (rows, form.columns)).offset)
        self._start = start
        super().__init__(path, "r+")
        if is_new and hasattr(os, "posix_fallocate"):
            size = os.fstat(self.fileno()).st_size
            try:
                os.posix_fallocate(self.fileno(), 0, size)
            except OSError as error:
                self.close()
                path.unlink()
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                raise FolderError(
                    f"The disk has no room for {path}: it takes {size:,} bytes ({error.strerror}). Free some space or "
                    "choose another folder."
                ) from None

    def put(
        self,
        start: int,
        block: NDArray[Any],  # (R, C), the last C columns of the rows from ``start`` on
    ) -> int:  # the CRC-32 of the block
        """Write a block of rows and wait until it is on the disk."""
        block = np.ascontiguousarray(block, self._form.dtype)
        if (first := self._form.columns - block.shape[1]) == 0:
            self._put(start, 0, block)
        else:
            for row, values in enumerate(block, start):
                self._put(row, first, values)
        os.fsync(self.fileno())
        return zlib.crc32(block.view(np.uint8).data)

    def crc(self, start: int, stop: int, first: int) -> int:
        """Compute the CRC-32 of some rows, from the column ``first`` on, as they are on the disk."""
        rows, crc = 1 if first else stop - start, 0  # whole rows lie beside each other
        into = np.empty(rows * (self._form.columns - first), self._form.dtype).view(np.uint8).data
        for row in range(start, stop, rows):
            if system.read_at(self.fileno(), into, self._at(row, first)) != len(into):
                return -1
            crc = zlib.crc32(into, crc)
        return crc

    def mirror(self, start: int) -> None:  # start: first row of the band
        """Copy what is above the diagonal of a square array to below it, in a band of ``TILE`` rows."""
        stop = min(start + TILE, self._rows)
        for first in range(0, stop, TILE):
            tile = np.empty((min(first + TILE, stop) - first, stop - start), self._form.dtype)
            for row, values in enumerate(tile, first):
                into = values.view(np.uint8).data
                if system.read_at(self.fileno(), into, self._at(row, start)) != len(into):
                    raise OSError(errno.EIO, "The file ends too early", str(self.name))
            mirrored = np.ascontiguousarray(tile.T)
            if first == start:
                mirrored = np.where(np.tri(len(tile), len(tile), -1, dtype=np.bool_), mirrored, tile)
            for row, values in enumerate(mirrored, start):
                self._put(row, first, values)
        os.fsync(self.fileno())

    def _at(self, row: int, column: int) -> int:
        return self._start + (row * self._form.columns + column) * self._form.dtype.itemsize

    def _put(self, row: int, column: int, values: NDArray[Any]) -> None:
        write_all(self.fileno(), values.reshape(-1).view(np.uint8).data, self._at(row, column))


def find_start(
    path: Path,  # the ``.npy`` file
    rows: int,
    form: Form,
) -> int | None:  # their offset in bytes, or None if the file is missing or has another form
    """Find where the numbers of a sound file begin."""
    try:
        array: Any = map_array(path)
    except (OSError, ValueError):
        return None
    sound = isinstance(array, np.memmap) and array.shape == (rows, form.columns) and array.dtype == form.dtype
    return int(array.offset) if sound and array.flags.c_contiguous else None
