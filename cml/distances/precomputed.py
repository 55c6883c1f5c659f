"""Label distances that are known: a matrix, neighbour lists or triples, in files that are mapped where they can be.

Not for: computing and writing such files, as ``cml distances`` does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64
from cml.distances.label_distance import LabelDistance, Progress
from cml.distances.labels import LabelError, Labels, short
from cml.distances.matrix_check import check_matrix, is_mapped, read_matrix
from cml.distances.nearest import KnownPairs, Neighbors, Search, check_k
from cml.distances.sparse_distances import LabelRows, SparseDistances
from cml.errors import DataError, UserError
from cml.processes.cores import CORES
from cml.storage.checksums import check_beside
from cml.storage.listed_names import read_names
from cml.storage.regular_file import map_array

_RECORDS = ("job.json", "approximation.json")  # which hold the checksums of files beside them
_COMPARED = 1 << 30  # bytes up to which a file is compared with its checksum; of larger ones --verify is
_TRIPLES = (".npz", ".csv", ".parquet")  # files of triples
_HASHED = 16 << 20  # bytes read at a time for the fingerprint
_ROWS = 1 << 16  # labels whose stored neighbours are sorted at a time
_GIVEN = "the matrix of label distances"


@dataclass(frozen=True, eq=False)
class Precomputed(LabelDistance):
    """Label distances that are known; a label is the row number of its item, or its name where rows have names.

    Args:
        path: A ``.npy`` file with an N x N matrix of floating-point label distances, where infinity says that two
            items cannot be compared; in Python also the matrix itself, of which a memory map is used in place, or a
            data frame or a ``DistanceMatrix`` of scikit-bio, whose rows have names. A matrix is checked as a whole, see
            ``cml.distances.matrix_check``. Or a folder of neighbour lists: ``ids.npy``
            (N, k) integer row numbers, -1 where a list is shorter, and ``distances.npy`` (N, k). Item j is then at the
            distance that the list of i or the list of j gives (the smaller, if they differ), at 0 from itself, and
            everything else cannot be compared: infinite. Or triples: a ``.npz`` file with the arrays ``i``, ``j`` and
            ``distance``, or a ``.csv`` or ``.parquet`` file with columns of these names; in Python also
            ``SparseDistances`` or a sparse matrix of SciPy. Pairs that are not named cannot be compared; an evaluation
            then ranks, for each query, the items of known distance alone.
        unit: The unit of the distances, for tables and axes.
        symmetric: False if the distance from i to j need not be that from j to i. Otherwise a matrix must equal its
            transpose but for rounding, which is averaged. Neighbour lists always count as symmetric; triples are
            symmetric unless they say otherwise.
        metric: True if the triangle inequality is known to hold. Neighbour lists and triples never count as a metric.
        names_path: A text file with the name of each row of a ``.npy`` file, one a line. Labels are then names.

    Example:
        >>> import numpy as np, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "distances.npy", np.array([[0, 2.5], [2.5, 0]], np.float32))
        >>> distance = Precomputed(str(folder / "distances.npy"), symmetric=True)
        >>> rows = distance.encode([0, 1])
        >>> distance.pairwise(rows[:1], rows).tolist()
        [[0.0, 2.5]]
    """

    path: str | Path | NDArray[Any] | SparseDistances
    unit: str = "as stored"
    symmetric: bool | None = None
    metric: bool = False
    names_path: str | Path = ""
    name: ClassVar[str] = "precomputed"

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Never: the distances are in a file of any path."""
        return False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "names_path", str(self.names_path))
        if self.names_path and Path(str(self.path)).suffix.lower() != ".npy":
            raise UserError(f"'names_path' names the rows of a .npy file, and 'path' is none. Got {self.names_path!r}.")
        if isinstance(self.path, Mapping):
            form, save = "a matrix", "save it with numpy.save"
            if "triples" in self.path:
                form, save = "sparse", "save its triples with SparseDistances.save"
            raise UserError(
                f"The label distance is {form} of shape {self.path.get('shape')}, which was given in Python; give it "
                f"again there (label_distance=...), or {save} and name the file: precomputed(path=FILE)."
            )
        if hasattr(self.path, "tocoo"):
            object.__setattr__(self, "path", SparseDistances.from_matrix(self.path))
        elif isinstance(self.path, str | Path):
            object.__setattr__(self, "path", str(self.path))
        elif not isinstance(self.path, SparseDistances):
            given = read_matrix(self.path)
            stored = _StoredMatrix(_GIVEN, given.array, names=given.names, symmetric=self.symmetric)
            object.__setattr__(self, "path", stored.matrix)
            self.__dict__["_stored"] = stored
        _ = self._stored  # a missing or wrong file is said at once

    def __repr__(self) -> str:
        source = f"matrix {self.path.shape}" if isinstance(self.path, np.ndarray) else f"path={self.path!r}"
        if isinstance(self.path, SparseDistances):
            source = repr(self.path)
        return f"Precomputed({source}, unit={self.unit!r}, symmetric={self.symmetric}, metric={self.metric})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.settings() == self.settings()

    def __hash__(self) -> int:
        return hash((self.unit, self._stored.items))

    @property
    def is_metric(self) -> bool:
        """As declared by ``metric``; False for neighbour lists and triples."""
        return self.metric and isinstance(self._stored, _StoredMatrix)

    @property
    def is_symmetric(self) -> bool:
        """Whether a matrix was found to be symmetric; True for neighbour lists; of triples as they say."""
        stored = self._stored
        if isinstance(stored, _StoredMatrix):
            return stored.rounding.symmetric
        return stored.symmetric if isinstance(stored, SparseDistances) else True

    @property
    def is_partial(self) -> bool:
        """True for triples."""
        return isinstance(self._stored, SparseDistances)

    def __reduce__(self) -> tuple[Any, ...]:
        settings, stored = (self.path, self.unit, self.symmetric, self.metric), self._stored
        if isinstance(self.path, np.ndarray) and isinstance(stored, _StoredMatrix):
            return _open_matrix, (settings[1:], stored)
        return type(self), (*settings, self.names_path)  # a file is opened there again

    @functools.cached_property
    def _stored(self) -> _StoredMatrix | _StoredLists | SparseDistances:
        if isinstance(self.path, SparseDistances):
            return self.path
        path = Path(str(self.path))
        if path.suffix.lower() in _TRIPLES:
            return SparseDistances.read(path)
        if path.is_dir():
            return _StoredLists(path)
        matrix = _load(path)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind != "f":
            raise DataError(
                f"{path} should hold a square matrix of floating-point label distances. "
                f"Got shape {matrix.shape}, {matrix.dtype} instead."
            )
        names = read_names(Path(self.names_path), len(matrix), str(path)) if self.names_path else None
        return _StoredMatrix(str(path), matrix, names=names, symmetric=self.symmetric, error=DataError)

    @property
    def items(self) -> int:
        """N, the number of items that the distances are of."""
        return self._stored.items

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The N names of the rows, such as those of a data frame; None if rows have only numbers."""
        return self._stored.names if isinstance(self._stored, _StoredMatrix) else None

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``rows`` (N,) int64
        """Check and pack row numbers."""
        stored, named = self._stored.items, self._rows_by_name
        form = f"should be a row number from 0 to {stored - 1} of {self._stored.name}"
        if named:
            first = ", ".join(map(short, [*named][:2]))
            form = f"should be one of the {stored} names of {self._stored.name}, {first}, ..."
        # names that are numbers are names, never positions
        numbered = not any(isinstance(name, int | float | np.number) for name in named)
        rows = [named.get(label) if isinstance(label, Hashable) else None for label in labels] if named else labels
        for position, (label, row) in enumerate(zip(labels, rows, strict=True)):
            if named and row is not None:
                continue
            is_whole = isinstance(label, int | np.integer) or (
                isinstance(label, float | np.floating) and float(label).is_integer()
            )
            if isinstance(label, bool | np.bool_) or not is_whole or not numbered or not 0 <= label < stored:
                raise LabelError(position, f"{form}. Got {short(label)} instead.")
        if named:
            rows = [label if row is None else row for label, row in zip(labels, rows, strict=True)]
        return Labels({"rows": np.array(rows, np.int64)})

    @functools.cached_property
    def _rows_by_name(self) -> dict[Any, int]:
        return {name: row for row, name in enumerate(self.names or ())}

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        return self._stored.block(a.arrays["rows"], b.arrays["rows"])

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 64 << 20) -> Search:
        """Prepare a search; of triples it looks at what is stored alone."""
        stored = self._stored
        if not isinstance(stored, SparseDistances):
            return super().searcher(labels, k, block_bytes=block_bytes)
        rows = LabelRows(labels.arrays["rows"])
        return lambda start, stop: stored.nearest(rows, start, stop, k)

    def neighbors(
        self,
        labels: Labels,
        k: int,
        *,
        block_bytes: int = 64 << 20,
        threads: int = CORES,
        progress: Progress | None = None,  # called with the number of rows of each block that is done
    ) -> Neighbors:
        """Find the k nearest labels of each label; see ``LabelDistance.neighbors``."""
        if not self.is_partial:
            return super().neighbors(labels, k, block_bytes=block_bytes, threads=threads, progress=progress)
        check_k(k, len(labels))
        search, parts = self.searcher(labels, k), []
        for start in range(0, len(labels), _ROWS):
            parts.append(search(start, min(start + _ROWS, len(labels))))
            if progress is not None:
                progress(len(parts[-1].ids))
        return Neighbors(
            np.concatenate([part.ids for part in parts]), np.concatenate([part.distances for part in parts])
        )

    def known_pairs(self, labels: Labels) -> KnownPairs | None:
        """List the pairs of two labels that triples name."""
        stored = self._stored
        return stored.known_pairs(LabelRows(labels.arrays["rows"])) if isinstance(stored, SparseDistances) else None

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them; of what was given in Python a digest."""
        if isinstance(self.path, str | Path):
            return super().settings()
        if isinstance(self.path, SparseDistances):
            triples, items = self.path, self.path.items
            path = {"triples": len(triples.distances), "shape": [items, items], "sha256": triples.digest}
        else:
            path = {"shape": [*self.path.shape], "dtype": self.path.dtype.str, "sha256": self._content}
        return {"path": path, "unit": self.unit, "symmetric": self.symmetric, "metric": self.metric}

    def fingerprint(self) -> str:
        """Return a hex digest of the settings and the stored numbers, wherever the file lies. Reads the file once."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        settings = f"{self.name}:{self.unit}:{self.is_symmetric}:{self.metric}:{self._content}"
        return hashlib.sha256(settings.encode()).hexdigest()

    @functools.cached_property
    def _content(self) -> str:
        digest = hashlib.sha256()
        for array in self._stored.arrays:
            digest.update(f"{array.dtype.str}:{array.shape}:{array.flags.c_contiguous}".encode())
            flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
            step = max(1, _HASHED // array.itemsize)
            for start in range(0, flat.size, step):
                digest.update(np.ascontiguousarray(flat[start : start + step]).data)
        return digest.hexdigest()


def _keep(array: NDArray[Any]) -> NDArray[Any]:
    """A memory map of floating-point numbers as it is, else a copy (N, N) float32 that cannot be written."""
    if is_mapped(array) and array.dtype.kind == "f":
        return array
    copy = array.astype(np.float32)
    copy.setflags(write=False)
    return copy


def _open_matrix(settings: tuple[str, bool | None, bool], stored: _StoredMatrix) -> Precomputed:
    """Make a label distance in another process without checking its matrix again."""
    distance = object.__new__(Precomputed)
    for name, value in zip(("path", "unit", "symmetric", "metric"), (stored.matrix, *settings), strict=True):
        object.__setattr__(distance, name, value)
    distance.__dict__["_stored"] = stored
    return distance


class _StoredMatrix:
    def __init__(
        self,
        name: str,
        matrix: NDArray[Any],
        *,
        names: tuple[Any, ...] | None = None,
        symmetric: bool | None = None,
        error: type[UserError] = UserError,
    ) -> None:
        self.name, self.names, self.error = name, names, error
        self.rounding = check_matrix(matrix, name=name, names=names, symmetric=symmetric, error=error)
        self.matrix: Any = _keep(matrix)
        self.arrays = [self.matrix]
        self.items = len(matrix)

    def __getstate__(self) -> dict[str, Any]:
        matrix: Any = self.matrix
        is_whole = isinstance(matrix, np.memmap) and not isinstance(matrix.base, np.ndarray) and matrix.filename
        if is_whole:  # another process maps the file, in place of a copy
            order: Literal["C", "F"] = "C" if matrix.flags.c_contiguous else "F"
            matrix = _MappedFile(str(matrix.filename), matrix.dtype.str, matrix.shape, int(matrix.offset), order)
        return {**vars(self), "matrix": matrix, "arrays": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if isinstance(self.matrix, _MappedFile):
            self.matrix = self.matrix.open()
        self.arrays = [self.matrix]

    def block(self, rows: Int64, columns: Int64) -> Float32:
        block = self.rounding.mend(self._read, rows, columns)
        bad = np.argwhere(~(block >= 0))  # of a matrix that was too large to look at as a whole
        if len(bad):
            row, column = rows[bad[0][0]], columns[bad[0][1]]
            raise self.error(
                f"{self.name} has {self.matrix[row, column]:g} at row {row}, column {column}; "
                "a label distance should be a number >= 0, or infinity for no comparison."
            )
        return block

    def _read(self, rows: Int64, columns: Int64) -> NDArray[Any]:
        if len(columns) and np.array_equal(columns, np.arange(columns[0], columns[0] + len(columns))):
            return np.asarray(self.matrix[rows, columns[0] : columns[0] + len(columns)])
        return np.asarray(self.matrix[rows[:, None], columns])


class _MappedFile(NamedTuple):
    """Where the numbers of a memory map are."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]

    def open(self) -> NDArray[Any]:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)


class _StoredLists:
    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self.ids, self.distances = _load(folder / "ids.npy"), _load(folder / "distances.npy")
        self.arrays = [self.ids, self.distances]
        if self.ids.ndim != 2 or self.ids.dtype.kind != "i" or self.distances.dtype.kind != "f":
            form = "ids.npy (N, k) of whole numbers and distances.npy of floating-point ones"
            raise DataError(f"{folder} should hold {form}.")
        if self.ids.shape != self.distances.shape:
            raise DataError(f"{folder} has ids of shape {self.ids.shape} and distances of {self.distances.shape}.")
        self.items = len(self.ids)
        if self.ids.min(initial=-1) < -1 or self.ids.max(initial=-1) >= self.items:
            raise DataError(
                f"{folder / 'ids.npy'} names items {self.ids.min()} to {self.ids.max()}; "
                f"it has {self.items} rows, so they should be -1 (none) to {self.items - 1}."
            )
        bad = np.argwhere(~(self.distances >= 0) & (self.ids >= 0))
        if len(bad):
            row, place = bad[0]
            fault = f"has {self.distances[row, place]:g} at row {row}, place {place}"
            raise DataError(f"{folder / 'distances.npy'} {fault}; a label distance should be a number >= 0.")

    def block(self, rows: Int64, columns: Int64) -> Float32:
        rows, row_places = np.unique(rows, return_inverse=True)
        columns, column_places = np.unique(columns, return_inverse=True)
        block = np.minimum(self._read_lists(rows, columns), self._read_lists(columns, rows).T)
        block[rows[:, None] == columns] = 0
        return block[row_places[:, None], column_places]

    def _read_lists(self, rows: Int64, columns: Int64) -> Float32:
        """Read what the lists of ``rows`` say of the ascending ``columns``: (R, C), infinite where nothing."""
        block = np.full((len(rows), len(columns)), np.inf, np.float32)
        if block.size:
            ids = np.asarray(self.ids[rows])
            places = np.minimum(np.searchsorted(columns, ids), len(columns) - 1)
            row, slot = np.nonzero((columns[places] == ids) & (ids >= 0))
            block[row, places[row, slot]] = self.distances[rows[row], slot]
        return block


def _load(path: Path) -> NDArray[Any]:
    try:
        array = map_array(path)
        if array.nbytes <= _COMPARED:
            check_beside(path, _RECORDS, f"Delete {path.parent} and run 'cml distances' again.")
        return array
    except FileNotFoundError:
        raise DataError(
            f"{path} is missing: label distances are a .npy matrix, a folder with ids.npy and distances.npy, or a "
            ".npz, CSV or Parquet file of triples."
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a .npy array of numbers: {error}.") from None
