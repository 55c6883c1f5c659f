"""Word vectors in files that must be searched from the start: GloVe text, word2vec text and binary.

A search reads and checks the whole file once, and keeps the vectors of the words that it finds.
"""

import functools
import mmap
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError
from cml.word_vectors.contract import WordVectors

_LONGEST_WORD = 4096  # bytes; a file without a space for longer is not a binary one
_Float32 = NDArray[np.float32]


class _Scanned(WordVectors):
    """A file that must be searched from the start; what was found is kept."""

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._found: dict[str, int] = {}
        self._vectors: dict[int, _Float32] = {}

    @abstractmethod
    def _scan(self) -> Iterator[tuple[int, bytes, Callable[[], _Float32]]]:
        """Row number, word and a function for its vector, for all words; checks the whole file."""

    def find(self, words: Collection[str]) -> dict[str, int]:
        with self._lock:
            wanted = {word.encode("utf-8", "surrogatepass"): word for word in set(words) - self._asked}
            if wanted:
                for row, word, vector in self._scan():
                    if word in wanted and wanted[word] not in self._found:
                        self._found[wanted[word]] = row
                        self._vectors[row] = vector()
                self._asked.update(wanted.values())
            return {word: self._found[word] for word in words if word in self._found}

    def _read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        with self._lock:
            missing = set(rows.tolist()) - self._vectors.keys()
            if missing:  # row numbers that another process found
                for row, _, vector in self._scan():
                    if row in missing:
                        self._vectors[row] = vector()
            try:
                kept = [self._vectors[row] for row in rows.tolist()]
            except KeyError as error:
                raise DataError(f"{self.files[0]} has no row {error}: the labels belong to other vectors.") from None
        return np.array(kept, np.float32).reshape(len(kept), self.dimension)


class TextVectors(_Scanned):
    """A word and its numbers per line; word2vec's format begins with a line of counts."""

    def __init__(self, path: Path, header: tuple[int, int] | None) -> None:
        super().__init__(path)
        self._header = header
        with path.open("rb") as file:
            line = (file.readline(), file.readline())[1 if header else 0].rstrip()
        self.dimension = header[1] if header else line.count(b" ")
        if self.dimension < 1:
            raise DataError(f"{path} line 1 should be a word and its vector, separated by spaces. Got {line[:60]!r}.")
        self._numbers(0, line)

    def place(self, row: int) -> str:
        """As ``WordVectors.place``."""
        return f"{self.files[0]} line {row + (2 if self._header else 1)}"

    def _numbers(self, row: int, line: bytes) -> _Float32:
        try:
            return np.array([float(number) for number in line.split(b" ")[-self.dimension :]], np.float32)
        except ValueError as error:
            raise DataError(f"{self.place(row)} should end in {self.dimension} numbers: {error}.") from None

    def _scan(self) -> Iterator[tuple[int, bytes, Callable[[], _Float32]]]:
        row = -1
        with self.files[0].open("rb") as file:
            if self._header:
                file.readline()
            for row, ended in enumerate(file):
                line = ended.rstrip()
                word, _, _ = line.partition(b" ")
                if line.count(b" ") != self.dimension:
                    word = self._spaced(row, line)
                yield row, word, functools.partial(self._numbers, row, line)
        if self._header and row + 1 != self._header[0]:
            raise DataError(f"{self.files[0]} promises {self._header[0]} words, but holds {row + 1}. Is it cut off?")

    def _spaced(self, row: int, line: bytes) -> bytes:
        """The word of a line with more fields than expected: GloVe's largest file has words that contain spaces."""
        fields = line.split(b" ")
        for field in fields[1 : -self.dimension]:
            if _is_number(field):
                break
        else:
            if len(fields) > self.dimension + 1:
                return b" ".join(fields[: -self.dimension])
        raise DataError(f"{self.place(row)} has {len(fields) - 1} numbers, the first vector has {self.dimension}.")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


class BinaryVectors(_Scanned):
    """word2vec's binary file: after a line with the counts, each word, a space, and its float32 numbers."""

    def __init__(self, path: Path, count: int, dimension: int) -> None:
        super().__init__(path)
        self._count, self.dimension = count, dimension
        if dimension < 1:
            raise DataError(f"{path} line 1 should be the number of words and the length of a vector.")
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def place(self, row: int) -> str:
        """As ``WordVectors.place``."""
        return f"{self.files[0]} word {row + 1} of {self._count}"

    def _scan(self) -> Iterator[tuple[int, bytes, Callable[[], _Float32]]]:
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

    def _numbers(self, at: int) -> _Float32:
        return np.frombuffer(self._map, "<f4", self.dimension, at).astype(np.float32)
