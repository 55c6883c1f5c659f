"""The base of word vectors in files that must be searched from the start: GloVe text, word2vec text and binary.

A search reads and checks the whole file once, and keeps the vectors of the words that it finds.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64
from cml.errors import DataError
from cml.word_vectors.word_vectors import WordVectors


class ScannedVectors(WordVectors):
    """Base of word vectors in a file without an index.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._lock = threading.Lock()
        self._searched: set[str] = set()  # words that a search was for, known or not
        self._row_of: dict[str, int] = {}
        self._vectors: dict[int, Float32] = {}

    @abstractmethod
    def _scan(self) -> Iterator[tuple[int, bytes, Callable[[], Float32]]]:
        """Yield row number, word and a function for its vector, for all words; checks the whole file."""

    def find(self, words: Collection[str]) -> dict[str, int]:
        """Look up words; see ``WordVectors.find``."""
        with self._lock:
            wanted = {word.encode("utf-8", "surrogatepass"): word for word in set(words) - self._searched}
            if wanted:
                for row, word, read_vector in self._scan():
                    if word in wanted and wanted[word] not in self._row_of:
                        self._row_of[wanted[word]] = row
                        self._vectors[row] = read_vector()
                self._searched.update(wanted.values())
            return {word: self._row_of[word] for word in words if word in self._row_of}

    def _read(self, rows: Int64) -> NDArray[Any]:
        with self._lock:
            missing = set(rows.tolist()) - self._vectors.keys()
            if missing:  # row numbers that another process found
                for row, _, read_vector in self._scan():
                    if row in missing:
                        self._vectors[row] = read_vector()
            try:
                vectors = [self._vectors[row] for row in rows.tolist()]
            except KeyError as error:
                raise DataError(f"{self.files[0]} has no row {error}: the labels belong to other vectors.") from None
        return np.array(vectors, np.float32).reshape(len(vectors), self.dimension)
