"""The interface of all files of word vectors: which words they know, and the vectors of the few that are needed.

A vector is identified by its row number in the file, which is the same in all calls and processes.
"""

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError


class WordVectors(ABC):
    """The vectors of a file.

    Attributes:
        files: The files that are read.
        dimension: Length of a vector.
    """

    files: tuple[Path, ...]
    dimension: int

    @abstractmethod
    def find(self, words: Collection[str]) -> dict[str, int]:
        """Row numbers of those of ``words`` that the file knows; the first of a duplicate word."""

    @abstractmethod
    def _read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The vectors (len(rows), dimension) as they are stored."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Where a row is, for an error message."""

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Vectors by row number: (len(rows), dimension).

        Raises:
            DataError: a vector holds NaN or infinity.
        """
        vectors = self._read(rows).astype(np.float64)
        wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(wrong):
            value = vectors[wrong[0]][~np.isfinite(vectors[wrong[0]])][0]
            raise DataError(f"{self.place(int(rows[wrong[0]]))}: the vector holds {value}; it should be finite.")
        return vectors

    def sha256(self) -> str:
        """Hex digest of the content of the files, which are read once for it."""
        return self._sha256

    @functools.cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()
