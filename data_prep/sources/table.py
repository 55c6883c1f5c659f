"""A user's own table of vectors: columns of numbers in a CSV, JSONL or Parquet file, or a .npy file beside it."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cml.console.messages import say
from cml.data.input_form import InputForm
from cml.data.table_columns import match_columns
from cml.data_prep.array_files import load_columns
from cml.data_prep.folder_split import Labelled
from cml.data_prep.hf_parquet import ParquetTable
from cml.data_prep.label_options import READING_OPTIONS, SPLIT_OPTIONS
from cml.data_prep.labelled_rows import LabelledRows, Rows, read_feature
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_files import Row, cell, cut_blocks, read_plain
from cml.data_prep.vector_rows import check_row, is_vector_text, map_vectors, name_column, read_vector_text, store_row
from cml.errors import DataError, UserError
from cml.storage.json_file import find_repeated
from cml.storage.safe_paths import file_inside

_CELLS = 1 << 14  # of rows that are read at once
_Block = tuple[Iterable[tuple[str, Row | DataError]], NDArray[Any] | None]  # rows and their numbers (B, F)


@dataclass(frozen=True)
class Table(LabelledRows):
    """Your own vectors and labels: columns of a CSV, JSONL or Parquet file, or the rows of a .npy file beside it.

    Command: cml prepare table --source table.csv --features "emb_*" --label-columns age --out DIR

    Input: a table with a row for each item. --features selects the columns of numbers; a column of a JSONL or Parquet
    file may also hold whole lists of numbers, all of one length. With --vectors FILE.npy, the vectors are the rows of
    that file, in the order of the table. With --images FOLDER, cml explore shows a picture of each item that has one.

    Numbers are stored as float32, those of float16 files as they are. Training standardises them.

    Licence: yours.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": (
            *("source", "features", "vectors", "kind", "label_columns", "label_distance", "unit", "id_column"),
            *SPLIT_OPTIONS,
            "keep_columns",
        ),
        "reading": (*READING_OPTIONS, "allow_missing"),
        "pictures": ("images", "file_column"),
    }

    features: tuple[str, ...] = field(default=(), kw_only=True)
    """Columns of the vectors: names, patterns in quotes such as "emb_*", or what the names begin with. Columns with
    labels, ids, groups and splits are left out of patterns."""
    vectors: Path | None = field(default=None, kw_only=True)
    """File with the vectors: .npy, (N, F) floats, a row for each row of the table; or .npz, .pt, .h5, .safetensors or a
    folder of .npy files, joined by --id-column where it names its items, else a row for each row."""
    images: Path | None = field(default=None, kw_only=True)
    """Folder of pictures that cml explore and reports show; they are stored with a shorter side of at most 256 pixels.
    Models do not see them."""
    file_column: str = field(default="file_name", kw_only=True)
    """Column with the path of an item's picture, relative to the folder of --images. An empty cell is no picture."""
    allow_missing: bool = field(default=False, kw_only=True)
    """Keep missing numbers of the vectors (empty cells, NaN), and train with --missing mean then. By default they are
    errors. A missing label is always one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.features) == (self.vectors is not None):
            got = "both" if self.features else "neither"
            raise UserError(
                'Name the columns of the vectors, as in --features "emb_*", or their file by --vectors FILE.npy. Got '
                f"{got}."
            )

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        inputs = [self.source] if self.vectors is None else [self.source, self.vectors]
        files = [file for path in inputs for file in (sorted(path.glob("*.npy")) if path.is_dir() else [path])]
        images = [] if self.images is None else [self.images]
        return record_provenance(self, revision=1, files=files, images=images, ignored=self.unset_options())

    @property
    def described_columns(self) -> tuple[str, ...]:
        """See ``LabelledRows.described_columns``."""
        pictures = () if self.images is None else (self.file_column,)
        return tuple(dict.fromkeys([*super().described_columns, *pictures]))

    def find_picture(self, row: Row, where: str) -> Path | None:
        """See ``LabelledRows.find_picture``."""
        if self.images is None:
            return None
        name = cell(row, self.file_column, where, option="--file-column")
        if name is None or (isinstance(name, str) and not name.strip()):
            return None
        if not isinstance(name, str):
            raise DataError(f"{where}: {self.file_column} should be the path of an image. Got {name!r} instead.")
        return file_inside(self.images, name.strip(), where)

    def details(self, form: InputForm) -> dict[str, Any]:
        """See ``LabelledRows.details``."""
        details = super().details(form)
        if self.allow_missing:
            details["inputs"]["missing"] = True
        return details

    def form(self) -> InputForm:
        """See ``LabelledRows.form``."""
        if self.vectors is not None:
            return InputForm("vectors", self._mapped.shape[1:])
        if len(self._columns) > 1 and self.source.suffix.lower() != ".parquet":
            return InputForm("vectors", (len(self._columns),), self._columns)
        first = next((vector for vector in self.read_inputs() if not isinstance(vector, DataError)), None)
        if first is None:
            raise next(vector for vector in self.read_inputs() if isinstance(vector, DataError))
        is_of_columns = len(first) == len(self._columns) > 1 or (len(first) == 1 and len(self._columns) == 1)
        return InputForm("vectors", first.shape, self._columns if is_of_columns else ())

    def read_inputs(self) -> Iterator[Rows | DataError]:
        """See ``LabelledRows.read_inputs``."""
        if self.vectors is not None and self.vectors.suffix.lower() != ".npy" and self._named[0]:
            say(f"{self.vectors}: vectors and rows are joined by the ids in {self.id_column}.")
            yield from self._read_named()
        elif self.vectors is not None:
            say(f"{self.vectors} has no ids: its vectors belong to the rows of {self.source}, in their order.")
            yield from self._read_npy()
        else:
            yield from self._read_blocks()

    def _read_row(self, position: int, row: Row, where: str, printed: set[str], label: Any) -> Labelled:  # noqa: ANN401
        text = row.get(self.features[0]) if self.features and not position else None
        if isinstance(text, str) and "..." in text and text.lstrip().startswith("["):
            read_vector_text(text, self.features[0], where)  # raises, before all else: NumPy has cut it
        try:
            return super()._read_row(position, row, where, printed, label)
        except DataError as error:
            if self.vectors is None:
                raise
            raise _mention_row(error, self.vectors) from None

    @functools.cached_property
    def _columns(self) -> tuple[str, ...]:
        """The feature columns, in the order in which they are named or stand in the file."""
        if self.source.suffix.lower() == ".parquet":
            names = ParquetTable(self.source).columns
        else:
            first = next((row for _, row in self.read_table(()) if not isinstance(row, DataError)), None)
            names = [] if first is None else list(first)
        described = set(self.described_columns)  # which is made anew each time
        usable = [name for name in names if name not in described]
        chosen: dict[str, None] = {}
        for text in self.features:
            if text in described:
                raise UserError(f"{text!r} is a feature and a label, id, split or group as well: name it once.")
            try:
                chosen |= dict.fromkeys(match_columns(usable, text))
            except UserError as error:
                raise DataError(f"{self.source}: {error} Name yours with --features.") from None
        return tuple(chosen)

    @functools.cached_property
    def _mapped(self) -> NDArray[Any]:
        """The vectors of the file beside the table."""
        assert self.vectors is not None
        return map_vectors(self.vectors) if self.vectors.suffix.lower() == ".npy" else self._named[1]

    @functools.cached_property
    def _named(self) -> tuple[dict[str, int], NDArray[Any]]:
        """The place of each item in a file of arrays, none where it names none; and the vectors."""
        assert self.vectors is not None
        columns = load_columns(self.vectors)
        rows = [array for array in columns.values() if isinstance(array, np.ndarray) and array.ndim == 2]
        if len(rows) != 1 or rows[0].dtype.kind not in "fiu":
            shown = ", ".join(f"{name} {np.shape(column)}" for name, column in columns.items())
            raise DataError(f"{self.vectors} should hold one array of vectors, (N, F) floats. It holds {shown}.")
        ids = next((list(map(str, columns[name])) for name in ("id", "file_name") if name in columns), [])
        if (twice := find_repeated(ids)) is not None:
            raise DataError(f"{self.vectors} has two vectors of the item {twice!r}.")
        if ids and self.id_column is None:
            raise UserError(
                f"{self.vectors} names its items: name the column of the table that they are in by --id-column."
            )
        return {name: place for place, name in enumerate(ids)}, rows[0]

    def _read_named(self) -> Iterator[Rows | DataError]:
        """The vectors by the ids of the table's rows."""
        assert self.id_column is not None
        places, vectors = self._named
        for where, row in self.read_table((self.id_column,)):
            name = str(cell(row, self.id_column, where)).strip() if not isinstance(row, DataError) else ""
            if isinstance(row, DataError):
                yield row
            elif name in places:
                yield self._check(store_row(vectors[places[name]]), f"{self.vectors}, item {name}")
            else:
                yield DataError(f"{where}: {self.vectors} has no vector of the item {name!r}.")

    def _read_npy(self) -> Iterator[Rows | DataError]:
        count = sum(1 for _ in self.read_table(self.described_columns[:1]))
        if count != len(self._mapped):
            raise DataError(
                f"{self.vectors} has {len(self._mapped)} rows, but {self.source} has {count}. "
                "Each row of the table needs its vector, in the same order."
            )
        for position, row in enumerate(self._mapped):
            yield self._check(store_row(row), f"{self.vectors}, row {position}")

    def _read_cells(self, row: Row, where: str) -> Rows:
        """The vector of a row of a CSV or JSONL file."""
        columns = self._columns
        values = [cell(row, column, where, option="--features") for column in columns]
        if len(values) == 1 and isinstance(values[0], str) and is_vector_text(values[0]):
            values = [read_vector_text(values[0], columns[0], where)]
        if len(values) == 1 and isinstance(values[0], list):
            columns, values = columns * len(values[0]), values[0]
        numbers = [
            read_feature(value, column, where, allow_missing=self.allow_missing, written=self.written)
            for column, value in zip(columns, values, strict=True)
        ]
        return self._check(store_row(np.array(numbers, np.float64)), where)

    def _read_blocks(self) -> Iterator[Rows | DataError]:
        """The vectors of the table's columns: of a block at once, or row by row where that has a fault."""
        width = 0
        is_parquet = self.source.suffix.lower() == ".parquet"
        for rows, numbers in self._parquet_blocks() if is_parquet else self._text_blocks():
            stored = None if numbers is None else store_row(numbers)
            if stored is not None and width in (0, stored.shape[1]) and np.isfinite(stored).all():
                width = stored.shape[1]
                yield from stored
                continue
            for place, (where, row) in enumerate(rows):
                try:
                    if isinstance(row, DataError):
                        raise row
                    vector = self._read_cells(row, where) if stored is None else self._check(stored[place], where)
                    width = width or len(vector)
                    _check_length(vector, width, where)
                except DataError as error:
                    yield error
                else:
                    yield vector

    def _text_blocks(self) -> Iterator[_Block]:
        for block in cut_blocks(self.read_table(()), max(1, _CELLS // len(self._columns))):
            yield block, read_plain([row for _, row in block], self._columns, self.written)

    def _parquet_blocks(self) -> Iterator[_Block]:
        position = 0
        for batch in ParquetTable(self.source).read_batches(self._columns):
            yield self._place_rows(batch, position), _batch_numbers(batch, self._columns)
            position += batch.num_rows

    def _place_rows(self, batch: Any, position: int) -> Iterator[tuple[str, Row]]:  # noqa: ANN401 - of pyarrow
        for number, row in enumerate(batch.to_pylist(), start=position):
            yield f"{self.source}, row {number}", row

    def _check(self, vector: Rows, where: str) -> Rows:
        """A vector whose numbers are finite, or missing where that is allowed."""
        names = self._columns if self.vectors is None else ()
        missing = np.isnan(vector)
        if missing.any() and not self.allow_missing:
            name = name_column(int(np.argmax(missing)), vector, names)
            read_feature(float("nan"), name, where, allow_missing=False)  # raises with the mends of a table
        return check_row(vector, where, names, allow_missing=self.allow_missing)


def _mention_row(error: DataError, vectors: Path) -> DataError:
    """The error of a row, whose mend keeps the vectors in step where it is to delete the line."""
    text, both = str(error), f"delete the line and its row of {vectors.name}"
    return DataError(text.replace("delete the line", both)) if "delete the line" in text else error


def _check_length(vector: Rows, width: int, where: str) -> None:
    if len(vector) != width:
        raise DataError(f"{where}: the vector should have {width} numbers, as the first one has. It has {len(vector)}.")


def _batch_numbers(batch: Any, columns: tuple[str, ...]) -> NDArray[Any] | None:  # noqa: ANN401 - of pyarrow
    """The columns of a batch as (B, F) floats; None if they have to be read cell by cell."""
    arrays = [_column_numbers(batch.column(name)) for name in columns]
    if len(arrays) == 1 and arrays[0] is not None and arrays[0].ndim == 2:
        return arrays[0]
    plain = [array for array in arrays if array is not None and array.ndim == 1]
    return np.stack(plain, axis=1) if len(plain) == len(arrays) else None


def _column_numbers(column: Any) -> NDArray[Any] | None:  # noqa: ANN401 - an array of pyarrow
    """A column as an array of floats: (B,), or (B, F) for lists of one length; None if its cells differ in kind."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        array = np.asarray(column.to_numpy(zero_copy_only=False))
        return array if array.dtype.kind == "f" else None if array.dtype.kind == "O" else array.astype(np.float64)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type) or column.null_count or not len(column):
        return None
    lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
    flat = column.flatten()
    if not lengths[0] or (lengths != lengths[0]).any() or flat.null_count:
        return None
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), int(lengths[0]))
