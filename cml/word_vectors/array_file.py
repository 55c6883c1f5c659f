"""Word vectors in a memory-mapped ``.npy`` matrix, with the words in a text or parquet file."""

import io
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError, extra_needed
from cml.storage.atomic import open_regular
from cml.storage.npy import map_array
from cml.word_vectors.contract import WordVectors


class ArrayVectors(WordVectors):
    """A memory-mapped matrix (V, D) and its words.

    Args:
        path: The .npy file of the matrix.
        words: The file of its words.
        read_words: Returns the words of that file with their line numbers, from 1.

    Raises:
        DataError: the matrix is not one of floating-point numbers, or the words are missing.
    """

    def __init__(self, path: Path, words: Path, read_words: Callable[[Path], Iterable[tuple[int, str]]]) -> None:
        self.files = (path, words)
        self._words = read_words
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

    def find(self, words: Collection[str]) -> dict[str, int]:
        """As ``WordVectors.find``."""
        wanted = set(words)
        found: dict[str, int] = {}
        count = 0
        for count, word in self._words(self.files[1]):
            if word in wanted:
                found.setdefault(word, count - 1)
        if count != len(self._matrix):
            raise DataError(f"{self.files[1]} holds {count} words, but {self.files[0]} {len(self._matrix)} vectors.")
        return found

    def _read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._matrix[rows])

    def place(self, row: int) -> str:
        """As ``WordVectors.place``."""
        return f"{self.files[0]} row {row}"


def text_words(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and words of a text file."""
    with io.TextIOWrapper(open_regular(path), "utf-8", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not a word list in UTF-8: {error}.") from None


def parquet_words(path: Path) -> Iterable[tuple[int, str]]:
    """Line numbers, from 1, and words of a parquet file."""
    with extra_needed("glove", f"Reading {path}"):
        import pyarrow.parquet
    try:
        words = pyarrow.parquet.read_table(path, columns=["index"]).column("index").to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read as a list of words: {error}.") from None
    return enumerate(words, 1)
