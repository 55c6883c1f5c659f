"""What sources of vectors and texts share: a table with a row for each item, its label, split and groups."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cml.array_types import Floating
from cml.console.messages import say
from cml.data.dataset_info import TEXT
from cml.data.input_form import InputForm
from cml.data.label_form import LabelForm
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, InfoTexts
from cml.data_prep.folder_split import Labelled, read_split
from cml.data_prep.hf_parquet import ParquetTable
from cml.data_prep.kept_columns import read_kept, unify_columns
from cml.data_prep.label_kinds import KindName
from cml.data_prep.label_options import LabelOptions, describe_first
from cml.data_prep.number_format import PLAIN, NumberFormat
from cml.data_prep.readers import find_reader, read_labels
from cml.data_prep.row_errors import refuse_bad_rows
from cml.data_prep.row_files import CELLS, Misread, MissingColumn, Row, cell, cut_blocks, name_in, number
from cml.data_prep.shrink import Shrink
from cml.data_prep.unique_ids import note_unique
from cml.errors import DataError, UserError

Rows = Floating
KindOfRow = Literal["numbers", "angle", "rotation", "direction", "place", "captions", "classes"]
_UNIQUE = "ids must be unique; the rows of one item, as of several raters, are joined by --several mean or median"
SUFFIXES = (*CELLS, ".jsonl", ".json", ".parquet", ".xlsx")
_PICTURES = Shrink(256)
_BLOCK = 256  # vectors that are compared at once


@dataclass(frozen=True)
class LabelledRows(LabelOptions):
    """Rows of a table, each with a label and a vector or text. A source of its own says where these come from."""

    source: Path
    """Table with a row for each item: a CSV file with a header, a JSONL file or a Parquet file."""
    kind: KindOfRow = field(default="numbers", kw_only=True)
    """Kind of label, as for cml prepare folder."""
    id_column: str | None = field(default=None, kw_only=True)
    """Column with a unique id for each row. By default the ids are the numbers of the rows, from 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_known = self.source.suffix.lower() in SUFFIXES or find_reader(self.source, self.kind) is not None
        if not is_known and not self.format:
            raise UserError(f"The source should be a {', '.join(SUFFIXES)} file. Got {self.source} instead.")
        if self.several and self.id_column is None and not (self._numbers is not None and self._numbers.of_raters):
            raise UserError("With 'several', an id_column should name the item of each row.")

    @property
    def _kind(self) -> KindName:
        return self.kind

    @property
    def described_columns(self) -> tuple[str, ...]:
        """The columns that say something of a row: its label, id, split, group and what is kept."""
        named = (self.id_column, self.split_column, self.group_column)
        return tuple(dict.fromkeys([*self._cells, *filter(None, named), *self.keep_columns]))

    @abstractmethod
    def form(self) -> InputForm:
        """The form of the items, which is asked for before ``read_inputs``."""
        raise NotImplementedError

    @abstractmethod
    def read_inputs(self) -> Iterator[Rows | str | DataError]:
        """The item of each row of the table, a vector (F,) float16 or float32 or a text, or what is wrong with it."""
        raise NotImplementedError

    def find_picture(self, row: Row, where: str) -> Path | None:
        """The image file that shows the item of a row; None for none."""
        return None

    def read_table(self, columns: tuple[str, ...]) -> Iterator[tuple[str, Row | DataError]]:
        """Read the rows of the table."""
        if self.source.suffix.lower() != ".parquet":
            yield from read_labels(self.source, self.kind, format=self.format, items="rows", quote=self.quote)
            return
        table = ParquetTable(self.source)
        columns = tuple(column if column in table.columns else column.partition(".")[0] for column in columns)
        for column in columns:
            cell(dict.fromkeys(table.columns), column, str(self.source), option="the columns' options")
        for position, row in enumerate(table.read(list(columns))):
            yield f"{self.source}, row {position}", row

    def details(self, form: InputForm) -> dict[str, Any]:
        """Further content of dataset.json."""
        if form.kind == "texts":
            return {"inputs": {"kind": "texts"}}
        return {"inputs": {"kind": "vectors", "size": form.shape[0], "columns": list(form.columns)}}

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        missing: list[str] = []
        rows = list(self._read_labels(missing))
        if not skip_bad:
            refuse_bad_rows(rows)
        labelled = [row for row in rows if isinstance(row, Labelled)]
        if not labelled:
            raise DataError(f"{self.source} lists no rows.")
        unify_columns(labelled)
        describe_first(self.source, labelled[0], self._describe)
        roles, details = self._deal(labelled, self.source)
        form = self.form()
        details |= self.details(form)
        if missing:
            say(f"{self.source}: {len(missing)} rows with a missing label are left out.")
            details["left_out"] = {"missing label": len(missing)}
        texts: InfoTexts = {
            "name": self.source.stem,
            "source": f"a user's own table; label: {', '.join(self._label_columns)}",
            **self._describe_kind(),
        }
        items = self._items(rows, roles)
        return Content(_remark_constant(items, form) if form.shape else items, details, texts, total=len(rows))

    def _read_labels(self, missing: list[str]) -> Iterator[Labelled | DataError | None]:
        """What each row says of its item, in order; None for a row that gives no item of its own.

        Rows whose label is marked as missing are added to ``missing``. Nothing is left out, so that vectors and
        texts fit by their position.
        """
        form, seen, items = LabelForm(), dict[str, str](), dict[str, Labelled]()
        printed: set[str] = set()  # how the file was understood
        self._note_reading(self.source, printed)
        for position, (where, row, label) in enumerate(self._read_blocks_of_labels()):
            try:
                if isinstance(row, DataError):
                    raise row
                if self.missing_value and self._is_missing(row, where):
                    missing.append(where)
                    yield None
                    continue
                item = self._split_raters(self._read_row(position, row, where, printed, label))
                if (fault := form.fault(item.label)) is not None:
                    raise DataError(f"{where}: the label {fault}.")
                if self.several and (first := items.setdefault(item.item_id, item)) is not item:
                    first.further = [*first.further, item.label, *item.further]
                    yield None
                    continue
                if self.id_column is not None:
                    note_unique(seen, item.item_id, where, f"the id {item.item_id!r}", _UNIQUE)
                yield item
            except DataError as error:
                if isinstance(error, MissingColumn) and self.source.suffix.lower() != ".jsonl":
                    raise  # no row has it
                if isinstance(error, Misread):
                    raise
                yield error

    def _read_blocks_of_labels(self) -> Iterator[tuple[str, Row | DataError, Any]]:
        """The rows, and their labels where many are read at once, else None."""
        for block in cut_blocks(self.read_table(self.described_columns), _BLOCK):
            labels = None if self._numbers is None else self._numbers.read_plain([row for _, row in block])
            for (where, row), label in zip(block, labels or itertools.repeat(None), strict=False):
                yield where, row, label

    def _read_row(self, position: int, row: Row, where: str, printed: set[str], label: Any) -> Labelled:  # noqa: ANN401
        if label is None:
            label = self._read_label(row, where)
        name = f"{position:06d}"
        if self.id_column is not None:
            name = name_in(row, self.id_column, where, option="--id-column").strip()
        if not name.isprintable():
            raise DataError(f"{where}: {self.id_column} should be printable text. Got {name!r} instead.")
        split = read_split(row, self.split_column, where, printed)
        group = self._read_group(row, name, position, where)
        kept = read_kept(row, self.keep_columns, where)
        return Labelled(name, name, where, split, group, label, kept, self.find_picture(row, where))

    def _items(self, rows: list[Labelled | DataError | None], roles: Mapping[str, str]) -> Iterator[Item | DataError]:
        changed = DataError(f"{self.source} has changed while it was read; prepare it again.")
        rows.reverse()
        taken = (rows.pop() for _ in range(len(rows)))  # so that the memory of each is free behind it
        for row, given in itertools.zip_longest(taken, self.read_inputs(), fillvalue=changed):
            if isinstance(row, DataError):
                yield row
            elif row is None:
                continue
            elif isinstance(given, DataError):
                yield given
            else:
                picture = None if row.picture is None else _PICTURES.picture(row.picture)
                kept = self._keep_columns(row)
                yield Item(
                    row.item_id,
                    roles[row.name],
                    picture,
                    row.label,
                    extra={**kept, TEXT: given} if isinstance(given, str) else kept,
                    where=row.where,
                    vector=None if isinstance(given, str) else given,
                )


def _remark_constant(items: Iterator[Item | DataError], form: InputForm) -> Iterator[Item | DataError]:
    """Pass items on, and say at the end which numbers of their vectors are all the same."""
    low, high, count = np.full(form.shape, np.inf), np.full(form.shape, -np.inf), 0
    while block := list(itertools.islice(items, _BLOCK)):
        vectors = [item.vector for item in block if isinstance(item, Item) and item.vector is not None]
        if vectors:
            stacked = np.stack(vectors)
            low, high = np.fmin(low, np.fmin.reduce(stacked)), np.fmax(high, np.fmax.reduce(stacked))
        count += len(block)
        yield from block
    remark = form.describe_constant(np.flatnonzero(low == high).tolist())
    if remark and count > 1:
        say(f"{remark}.")


def read_feature(
    value: Any,  # noqa: ANN401 - a cell
    column: str,
    where: str,
    *,
    allow_missing: bool,
    written: NumberFormat = PLAIN,
) -> float:  # the number; NaN if it is missing
    """Read a cell as a number of a vector."""
    is_missing = value is None or value != value or (isinstance(value, str) and value.strip().lower() in _MISSING)
    if is_missing and allow_missing:
        return float("nan")
    if is_missing:
        raise DataError(
            f"{where}: {column} should be a number, but is missing ({value!r}). Fill it, leave the row or the column "
            "out, or keep it as missing by --allow-missing."
        )
    if isinstance(value, bool):
        return float(value)
    try:
        return number(value, column, where, written=written, own=False)
    except DataError as error:
        raise DataError(f"{str(error).removesuffix('.')}, or leave the column out of --features.") from None


_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
