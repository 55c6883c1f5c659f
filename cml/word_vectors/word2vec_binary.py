"""Word vectors in word2vec's binary format."""

import functools
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from cml.array_types import Float32
from cml.errors import DataError
from cml.word_vectors.scanned_file import ScannedVectors

_LONGEST_WORD = 4096  # bytes; a file without a space for longer is not a binary one


class BinaryVectors(ScannedVectors):
    """word2vec's binary file: after a line with the counts, each word, a space, and its float32 numbers.

    Args:
        path: The binary file.
        count: Number of words, as the first line says.
        dimension: Length of a vector, as the first line says.

    Raises:
        DataError: ``dimension`` is below 1.
    """

    def __init__(self, path: Path, count: int, dimension: int) -> None:
        super().__init__(path)
        self._count, self.dimension = count, dimension
        if dimension < 1:
            raise DataError(f"{path} line 1 should be the number of words and the length of a vector.")
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def place(self, row: int) -> str:
        """Describe where a row is stored; see ``WordVectors.place``."""
        return f"{self.files[0]} word {row + 1} of {self._count}"

    def _scan(self) -> Iterator[tuple[int, bytes, Callable[[], Float32]]]:
        at = self._map.find(b"\n") + 1
        for row in range(self._count):
            space = self._map.find(b" ", at, at + _LONGEST_WORD)
            end = space + 1 + 4 * self.dimension
            if space < 0 or end > len(self._map):
                raise DataError(f"{self.place(row)} is incomplete. Is the file cut off, or of another dimension?")
            yield row, self._map[at:space].lstrip(b"\n"), functools.partial(self._numbers, space + 1)
            at = end
        if self._map[at:].strip():
            raise DataError(f"{self.files[0]} continues after its {self._count} words of {self.dimension} numbers.")

    def _numbers(self, at: int) -> Float32:
        return np.frombuffer(self._map, "<f4", self.dimension, at).astype(np.float32)
