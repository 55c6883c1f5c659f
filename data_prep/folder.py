"""A user's own folder: images and one CSV or JSONL file with a numeric label each.

Not for: labels that are not numbers; those have sources of their own.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from cml.data.image_files import Picture
from cml.data.images import native_size, read_image
from cml.data.inside import file_inside
from cml.data.label_form import LabelForm
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.errors import DataError, UserError
from cml.json_text import parse_json
from data_prep.source import check_shares, made_with, role_by_hash

_SPLITS = ("train", "query", "gallery", "test")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Folder:
    """Your own images with numeric labels: ages, angles, scores, measurements.

    Command: cml prepare folder --images DIR --labels labels.csv --out DIR

    Input: images in a folder, and a CSV file with a header or a JSONL file with one object a line; one line an image.

    Licence: yours.
    """

    images: Path
    """Folder of the images."""
    labels: Path
    """CSV file with a header (.csv), or JSON lines (.jsonl)."""
    file_column: str = "file_name"
    """Column with the image's path, relative to the folder of the images."""
    label_columns: tuple[str, ...] = ("value",)
    """Columns with the numbers of the label: one gives a number, several a vector."""
    split_column: str | None = None
    """Column that says train, query, gallery or test. Without it the split follows from the images' names."""
    test_share: float = 0.3
    """Without a split column: share of the images that are not for training."""
    query_share: float = 0.3
    """Share of the test images that are queries, where no column says it; the others are the gallery."""
    image_size: int | None = None
    """Larger images are shrunk once so that their shorter side has so many pixels; without it files are kept."""
    unit: str = ""
    """Unit of the label, for tables and axes: "years", "degrees", .."""

    def __post_init__(self) -> None:
        check_shares(test_share=self.test_share, query_share=self.query_share)
        if not self.label_columns:
            raise UserError("label_columns should name at least one column.")
        if self.image_size is not None and self.image_size < 16:
            raise UserError(f"The image_size should be at least 16 pixels. Got {self.image_size} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        origin = made_with(self, revision=1, files=[self.labels], images=self.images)
        if (done := already_prepared(out, origin)) is not None:
            return done
        items = list(self._items())
        info = DatasetInfo(
            name=self.images.resolve().name,
            task="value",
            label_column="value",
            label_unit=self.unit,
            frame="",
            source=f"a user's own images; label: {', '.join(self.label_columns)}",
            licence="the user's own",
            details={"label_columns": list(self.label_columns)},
            made_with=origin,
        )
        return write_dataset(out, info, items, skip_bad=skip_bad)

    def _items(self) -> Iterator[Item | DataError]:
        """Every row checked, nothing decoded yet: most mistakes show before the first image is written."""
        form = LabelForm()
        seen: dict[str, str] = {}
        for where, row in _rows(self.labels):
            try:
                yield self._item(where, row, form, seen)
            except DataError as error:
                yield error

    def _item(self, where: str, row: Row | DataError, form: LabelForm, seen: dict[str, str]) -> Item:
        if isinstance(row, DataError):
            raise row
        name = self._file_name(row, where)
        if name in seen:
            raise DataError(f"{where}: {name!r} stands already in {seen[name]}; an image has one line.")
        label = self._label(row, where)
        if (fault := form.fault(label)) is not None:
            raise DataError(f"{where}: the label {fault}.")
        item = Item(name, self._role(row, name, where), self._picture(name), label, where=where)
        seen[name] = where
        return item

    def _file_name(self, row: Row, where: str) -> str:
        value = _cell(row, self.file_column, where)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{where}: {self.file_column} should be the path of an image. Got {value!r} instead.")
        return str(file_inside(self.images, value.strip(), where).relative_to(self.images))

    def _label(self, row: Row, where: str) -> Any:  # noqa: ANN401 - a number or a list of numbers
        values = [_cell(row, column, where) for column in self.label_columns]
        if len(values) == 1 and isinstance(values[0], list):  # a JSONL line may hold the whole vector
            return [_number(value, self.label_columns[0], where) for value in values[0]]
        numbers = [_number(value, column, where) for value, column in zip(values, self.label_columns, strict=True)]
        return numbers[0] if len(numbers) == 1 else numbers

    def _role(self, row: Row, name: str, where: str) -> str:
        if self.split_column is None:
            return role_by_hash(name, self.test_share, self.query_share)
        value = _cell(row, self.split_column, where)
        if value not in _SPLITS:
            raise DataError(
                f"{where}: {self.split_column} should be one of {', '.join(_SPLITS)}. Got {value!r} instead."
            )
        return role_by_hash(name, 1.0, self.query_share) if value == "test" else str(value)

    def _picture(self, name: str) -> Picture:
        path = self.images / name
        return path if self.image_size is None else functools.partial(_shrunk, path, self.image_size)


def _shrunk(path: Path, size: int) -> Image.Image | bytes:
    height, width = native_size(path)
    shorter = min(height, width)
    if shorter <= size:
        return path.read_bytes()
    return Image.fromarray(read_image(path, (round(height * size / shorter), round(width * size / shorter))))


def _rows(path: Path) -> Iterator[tuple[str, Row | DataError]]:
    """The rows of a CSV or JSONL file, or what is wrong with one, each with "FILE:LINE"."""
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise UserError(f"The labels should be a .csv or .jsonl file. Got {path} instead.")
    empty = True
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for line, row in _csv(file, path) if path.suffix.lower() == ".csv" else _jsonl(file, path):
                yield f"{path}:{line}", row
                empty = False
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be UTF-8 text, but is not: {error.reason} at byte {error.start + 1}.") from None
    if empty:
        raise DataError(f"{path} lists no images.")


def _csv(file: Iterator[str], path: Path) -> Iterator[tuple[int, Row | DataError]]:
    reader = csv.DictReader(file, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                cells = len(reader.fieldnames or ())
                fault = DataError(f"{path}:{reader.line_num}: should have {cells} cells, as the header has.")
                yield reader.line_num, fault
            else:
                yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}:{reader.reader.line_num}: is not CSV: {error}.") from None


def _jsonl(file: Iterator[str], path: Path) -> Iterator[tuple[int, Row | DataError]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line.encode(), finite=False)
        except ValueError as error:
            row = DataError(f"{path}:{number}: {error}.")
        if not isinstance(row, dict | DataError):
            row = DataError(f"{path}:{number}: should be a JSON object {{..}}.")
        yield number, row


def _cell(row: Row, column: str, where: str) -> Any:  # noqa: ANN401 - whatever the file holds
    if column not in row:
        raise DataError(f"{where}: there is no column {column!r}. There are: {', '.join(map(str, row))}.")
    return row[column]


def _number(value: object, column: str, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{where}: {column} should be a finite number. Got {value!r} instead.")
    return number
