"""What sources of vectors and texts share: a table with a row for each item, its label, split and groups."""

import functools
import itertools
import reprlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cml.array_types import Floating
from cml.console.messages import say
from cml.data.dataset_info import TEXT
from cml.data.input_form import InputForm
from cml.data.label_form import LabelForm
from cml.data.prepared_writer import Item
from cml.data_prep import label_cells
from cml.data_prep.dataset_source import Content, InfoTexts
from cml.data_prep.folder_split import Labelled, assign_roles, describe_split, read_split
from cml.data_prep.grouped_numbers import find_grouped_numbers
from cml.data_prep.hf_parquet import ParquetTable
from cml.data_prep.kept_columns import read_kept, unify_columns
from cml.data_prep.label_kinds import KINDS, WITH_UNIT, check_distance, distance_of
from cml.data_prep.label_options import LabelOptions, Misread, describe_first, refuse_bad_rows
from cml.data_prep.number_format import PLAIN, Decimal, NumberFormat, Thousands
from cml.data_prep.number_labels import NumberLabels, choose_number_labels, find_period
from cml.data_prep.readers import find_reader, read_labels
from cml.data_prep.row_files import CELLS, MissingColumn, Row, cell, number, say_once
from cml.data_prep.shrink import Shrink
from cml.data_prep.unique_ids import note_unique
from cml.errors import DataError, UserError

Rows = Floating
KindOfRow = Literal["numbers", "angle", "rotation", "direction", "place", "captions", "classes"]
_UNIQUE = "ids must be unique; the rows of one item, as of several raters, are joined by --several mean or median"
SUFFIXES = (*CELLS, ".jsonl", ".parquet", ".xlsx")
_PICTURES = Shrink(256)
_BLOCK = 256  # vectors that are compared at once


@dataclass(frozen=True)
class LabelledRows(LabelOptions):
    """Rows of a table, each with a label and a vector or text. A source of its own says where these come from."""

    source: Path
    """Table with a row for each item: a CSV file with a header, a JSONL file or a Parquet file."""
    kind: KindOfRow = field(default="numbers", kw_only=True)
    """Kind of label, as for cml prepare folder."""
    label_columns: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Columns with the label. The default depends on the kind: value; angle; x y z w of a quaternion; latitude
    longitude; caption; class."""
    label_distance: str = field(default="", kw_only=True)
    """Label distance of numbers, angles, rotations or places, such as "circular(period=24)"; by default that of the
    kind. Label distances that read files or use the network are not allowed."""
    id_column: str | None = field(default=None, kw_only=True)
    """Column with a unique id for each row. By default the ids are the numbers of the rows, from 0."""
    split_column: str | None = field(default=None, kw_only=True)
    """Column that contains train, query, gallery, test or val. By default the split is random, with exact fractions."""
    group_column: str | None = field(default=None, kw_only=True)
    """Column that identifies rows that belong together, such as those of one patient. Groups are never split."""
    keep_columns: tuple[str, ...] = field(default=(), kw_only=True)
    """Further columns to keep, which cml explore and cml search show and exports hold."""
    split_seed: int = field(default=0, kw_only=True)
    """Random seed of the split."""
    test_fraction: float = field(default=0.3, kw_only=True)
    """Fraction of rows (or of classes, with --kind classes) held out for testing, if there is no split column."""
    query_fraction: float = field(default=0.3, kw_only=True)
    """Fraction of test rows that are queries; the others form the gallery. With 1, or with fewer than 200 test rows,
    each test row is a query against all the others."""
    unit: str = field(default="", kw_only=True)
    """Unit of the numbers, such as years; it is shown in tables and plots. Angles, Euler angles and places are degrees
    unless this is radians, or the names of their columns end in _rad."""

    decimal: Decimal = field(default=".", kw_only=True)
    """Decimal mark of the numbers."""
    thousands: Thousands = field(default="", kw_only=True)
    """Separator of groups of three digits, such as a comma in 1,200. By default there is none."""

    licence = "the user's own"
    whole_fractions = ("query_fraction",)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_known = self.source.suffix.lower() in SUFFIXES or find_reader(self.source, self.kind) is not None
        if not is_known and not self.format:
            raise UserError(f"The source should be a {', '.join(SUFFIXES)} file. Got {self.source} instead.")
        if self.query_fraction == 1 and self.group_column is not None:
            fault = "rows of a group would find each other"
            raise UserError(f"With a group_column, query_fraction should be below 1: {fault}.")
        if not self.labels:
            raise UserError("label_columns should name at least one column.")
        if len(self.labels) > 1 and self.kind == "classes":
            raise UserError("A row has one label of kind 'classes'; label_columns should name one column.")
        if self.unit and self.kind not in WITH_UNIT:
            raise UserError(f"A unit belongs to numbers and angles. Got {self.unit!r} for {self.kind}; leave it out.")
        if self.label_distance:
            check_distance(self.kind, self.label_distance)
        NumberFormat(self.decimal, self.thousands)
        self.check_several(self.kind)
        if self.several and self.id_column is None and not self.are_raters(self.kind, self.labels):
            raise UserError("With 'several', an id_column should name the item of each row.")
        if self.kind in WITH_UNIT:
            _ = self._numbers  # raises where the names of the columns contradict the kind or the unit

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns."""
        return KINDS[self.kind].default if self.label_columns is None else self.label_columns

    @functools.cached_property
    def written(self) -> NumberFormat:
        """The marks that the table's numbers are written with."""
        return NumberFormat(self.decimal, self.thousands)

    @functools.cached_property
    def _numbers(self) -> NumberLabels:
        """How labels of numbers are read."""
        chosen = choose_number_labels(self.kind, self.labels, self.label_distance, self.unit, self.written)
        return replace(chosen, levels=self.levels, of_raters=self.are_raters(self.kind, self.labels))

    @property
    def described_columns(self) -> tuple[str, ...]:
        """The columns that say something of a row: its label, id, split, group and what is kept."""
        named = (self.id_column, self.split_column, self.group_column)
        return tuple(dict.fromkeys([*self._cells, *filter(None, named), *self.keep_columns]))

    @property
    def _cells(self) -> tuple[str, ...]:
        """The columns that the label is read from."""
        return self._numbers.columns if self.kind in WITH_UNIT else self.labels

    def _describe(self, label: Any) -> str:  # noqa: ANN401
        """How a label is read, with its numbers."""
        if self.kind in WITH_UNIT:
            return self._numbers.describe(label)
        return f"{', '.join(self.labels)} as {self.kind}: {reprlib.repr(label)}"

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
        is_classes, is_grouped = self.kind == "classes", self.group_column is not None
        roles = assign_roles(
            labelled,
            self.test_fraction,
            self.query_fraction,
            seed=self.split_seed,
            classes=is_classes,
            grouped=is_grouped,
        )
        kind, form = KINDS[self.kind], self.form()
        details = {
            "label_columns": list(self._numbers.columns if self.kind in WITH_UNIT else self.labels),
            **self.details(form),
            **describe_split(roles, classes=is_classes),
        }  # fmt: skip
        if missing:
            say(f"{self.source}: {len(missing)} rows with a missing label are left out.")
            details["left_out"] = {"missing label": len(missing)}
        details |= {"levels": list(self.levels)} if self.levels else {}
        if self.kind == "numbers" and self.written == PLAIN and not self.levels:
            grouped = find_grouped_numbers(self.source, self.labels)
            details |= {"grouped_numbers": grouped} if grouped else {}
        if kind.distances:
            distance = self._numbers.distance or distance_of(self.kind, labelled[0].label, labelled[0].where)
            details |= {} if distance == "euclidean" else {"label_distance": distance}
            details |= self.join_rows(labelled, find_period(distance) if self.kind == "angle" else None)
        texts: InfoTexts = {
            "name": self.source.stem,
            "task": kind.task,
            "label_unit": self._numbers.unit if self.kind in WITH_UNIT else self.unit or kind.unit,
            "source": f"a user's own table; label: {', '.join(self.labels)}",
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
        for note in self._numbers.notes if self.kind in WITH_UNIT else ():
            say_once(printed, f"{self.source}: {note}")
        of_raters = self.kind in WITH_UNIT and self._numbers.of_raters
        for position, (where, row) in enumerate(self.read_table(self.described_columns)):
            try:
                if isinstance(row, DataError):
                    raise row
                if self.missing_value and self.is_missing(row, self._cells, where):
                    missing.append(where)
                    yield None
                    continue
                item = self._read_row(position, row, where, printed)
                if of_raters:
                    item = self.split_raters(item)
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

    def _read_row(self, position: int, row: Row, where: str, printed: set[str]) -> Labelled:
        if self.kind in ("captions", "classes"):
            label: Any = label_cells.READ[self.kind](row, self.labels, where)
        else:
            label = self._numbers.read(row, where)
        name = f"{position:06d}"
        if self.id_column is not None:
            name = str(cell(row, self.id_column, where, option="--id-column")).strip()
        if not name or not name.isprintable():
            raise DataError(f"{where}: {self.id_column} should be printable text. Got {name!r} instead.")
        split = read_split(row, self.split_column, where, printed)
        group = name if self.group_column is None else str(cell(row, self.group_column, where, option="--group-column"))
        kept = read_kept(row, self.keep_columns, where)
        return Labelled(name, name, where, split, group, label, kept, self.find_picture(row, where))

    def _items(self, rows: list[Labelled | DataError | None], roles: Mapping[str, str]) -> Iterator[Item | DataError]:
        changed = DataError(f"{self.source} has changed while it was read; prepare it again.")
        for row, given in itertools.zip_longest(rows, self.read_inputs(), fillvalue=changed):
            if isinstance(row, DataError):
                yield row
            elif row is None:
                continue
            elif isinstance(given, DataError):
                yield given
            else:
                picture = None if row.picture is None else _PICTURES.picture(row.picture)
                yield Item(
                    row.item_id,
                    roles[row.name],
                    picture,
                    row.label,
                    extra={**row.extra, TEXT: given} if isinstance(given, str) else row.extra,
                    where=row.where,
                    vector=None if isinstance(given, str) else given,
                )


def _remark_constant(items: Iterator[Item | DataError], form: InputForm) -> Iterator[Item | DataError]:
    """Pass items on, and say at the end which numbers of their vectors are all the same."""
    low, high, count = np.full(form.shape, np.inf), np.full(form.shape, -np.inf), 0
    while block := list(itertools.islice(items, _BLOCK)):
        vectors = [item.vector for item in block if isinstance(item, Item) and item.vector is not None]
        if vectors:
            low, high = np.fmin(low, np.fmin.reduce(vectors)), np.fmax(high, np.fmax.reduce(vectors))
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
