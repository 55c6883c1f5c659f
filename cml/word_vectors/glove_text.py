"""Word vectors as text: GloVe's format, and word2vec's text format, which is the same after a line of counts."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from cml.array_types import Float32
from cml.errors import DataError
from cml.word_vectors.scanned_file import ScannedVectors


class TextVectors(ScannedVectors):
    """A text file with a word and the numbers of its vector on each line, separated by spaces.

    word2vec's text format begins with a line of two counts, words and dimension; GloVe's has no such line.

    Args:
        path: The text file.
        header: The two counts of the first line, or None if the first line is already a vector.

    Raises:
        DataError: The first vector cannot be read.
    """

    def __init__(self, path: Path, header: tuple[int, int] | None) -> None:
        super().__init__(path)
        self._header = header
        with path.open("rb") as file:
            if header:
                file.readline()
            line = file.readline().rstrip()
        self.dimension = header[1] if header else line.count(b" ")
        if self.dimension < 1:
            raise DataError(f"{path} line 1 should be a word and its vector, separated by spaces. Got {line[:60]!r}.")
        self._numbers(0, line)

    def place(self, row: int) -> str:
        """Describe where a row is stored; see ``WordVectors.place``."""
        return f"{self.files[0]} line {row + (2 if self._header else 1)}"

    def _numbers(self, row: int, line: bytes) -> Float32:
        try:
            return np.array([float(number) for number in line.split(b" ")[-self.dimension :]], np.float32)
        except ValueError as error:
            raise DataError(f"{self.place(row)} should end in {self.dimension} numbers: {error}.") from None

    def _scan(self) -> Iterator[tuple[int, bytes, Callable[[], Float32]]]:
        row = -1
        with self.files[0].open("rb") as file:
            if self._header:
                file.readline()
            for row, line_with_end in enumerate(file):
                line = line_with_end.rstrip()
                word, _, _ = line.partition(b" ")
                if line.count(b" ") != self.dimension:
                    word = self._word_with_spaces(row, line)
                yield row, word, functools.partial(self._numbers, row, line)
        if self._header and row + 1 != self._header[0]:
            raise DataError(f"{self.files[0]} promises {self._header[0]} words, but holds {row + 1}. Is it cut off?")

    def _word_with_spaces(self, row: int, line: bytes) -> bytes:
        """Return a word that contains spaces, as a few of GloVe's largest file do."""
        fields = line.split(b" ")
        if len(fields) <= self.dimension + 1 or any(map(_is_number, fields[1 : -self.dimension])):
            fault = f"has {len(fields) - 1} numbers, the first vector has {self.dimension}."
            raise DataError(f"{self.place(row)} {fault}")
        return b" ".join(fields[: -self.dimension])


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
