"""What every reader of word vectors offers: which words it knows, and the vectors of those that are asked for.

A word is identified by the row number of its vector, which is the same in all calls and processes.
"""

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.errors import DataError


class WordVectors(ABC):
    """Word vectors in one or more files.

    Attributes:
        files: The files that are read.
        dimension: Length of a vector.
    """

    files: tuple[Path, ...]
    dimension: int

    @abstractmethod
    def find(self, words: Collection[str]) -> dict[str, int]:
        """Look up words.

        Args:
            words: Words in any order.

        Returns:
            The row number of each word that the file knows, the first row of a duplicate word. Unknown words are left
            out.

        Raises:
            DataError: The file is damaged.
        """

    @abstractmethod
    def _read(self, rows: Int64) -> NDArray[Any]:
        """Read the vectors (len(rows), dimension) as they are stored."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Describe where a row is stored, for an error message.

        Args:
            row: Row number, from 0.

        Returns:
            File and line, row or word, as in "glove.txt line 7".
        """

    def rows(self, rows: Int64) -> Float64:
        """Return vectors by row number.

        Args:
            rows: (R,) row numbers, as ``find`` gives them.

        Returns:
            (R, dimension) float64, all finite.

        Raises:
            DataError: A vector holds NaN or infinity, or the file has no such row.
        """
        vectors = self._read(rows).astype(np.float64)
        wrong = np.argwhere(~np.isfinite(vectors))
        if len(wrong):
            row, column = wrong[0]
            place, value = self.place(int(rows[row])), vectors[row, column]
            raise DataError(f"{place}: the vector holds {value}; it should be finite.")
        return vectors

    def sha256(self) -> str:
        """Return the SHA-256 of the files' content as hex digits. The files are read once for it."""
        return self._sha256

    @functools.cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()
