"""Word vectors in a memory-mapped ``.npy`` matrix, with the words in a text file of the same name beside it."""

import io
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Int64
from cml.errors import DataError
from cml.storage.npy import map_array
from cml.storage.regular_file import open_regular
from cml.word_vectors.word_vectors import WordVectors


class MatrixWithWords(WordVectors):
    """Base of word vectors in a ``.npy`` matrix (V, dimension) with the V words in another file.

    Args:
        path: The ``.npy`` file, a matrix of floating-point numbers.
        words: The file of the words, in the order of the matrix's rows.

    Raises:
        DataError: The matrix cannot be read or has another form, or the file of the words is missing.
    """

    def __init__(self, path: Path, words: Path) -> None:
        self.files = (path, words)
        try:
            self._matrix = map_array(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as an array of word vectors: {error}.") from None
        if self._matrix.ndim != 2 or self._matrix.dtype.kind != "f":
            raise DataError(
                f"{path} should hold one row of floating-point numbers per word. "
                f"Got shape {self._matrix.shape}, {self._matrix.dtype} instead."
            )
        if not words.is_file():
            raise DataError(f"{words} is missing; it should hold the words of {path.name}, one per line.")
        self.dimension = self._matrix.shape[1]

    @abstractmethod
    def _numbered_words(self) -> Iterable[tuple[int, str]]:
        """Yield line number, from 1, and word of all words."""

    def find(self, words: Collection[str]) -> dict[str, int]:
        """Look up words; see ``WordVectors.find``."""
        wanted = set(words)
        row_of: dict[str, int] = {}
        count = 0
        for count, word in self._numbered_words():
            if word in wanted:
                row_of.setdefault(word, count - 1)
        if count != len(self._matrix):
            raise DataError(f"{self.files[1]} holds {count} words, but {self.files[0]} {len(self._matrix)} vectors.")
        return row_of

    def _read(self, rows: Int64) -> NDArray[Any]:
        return np.asarray(self._matrix[rows])

    def place(self, row: int) -> str:
        """Describe where a row is stored; see ``WordVectors.place``."""
        return f"{self.files[0]} row {row}"


class NpyVectors(MatrixWithWords):
    """A ``.npy`` matrix whose words are in a UTF-8 text file, one per line."""

    def _numbered_words(self) -> Iterator[tuple[int, str]]:
        return text_words(self.files[1])


def text_words(path: Path) -> Iterator[tuple[int, str]]:
    """Read the words of a UTF-8 text file, one per line.

    Args:
        path: The text file.

    Yields:
        Line number, from 1, and word.

    Raises:
        DataError: The file is not UTF-8.
    """
    with io.TextIOWrapper(open_regular(path), "utf-8", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not a word list in UTF-8: {error}.") from None
