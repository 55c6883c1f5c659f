"""What sources of a user's own rows share: marks of missing labels, ordered levels, groups, the split."""

import functools
import re
import reprlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cml.console.messages import say
from cml.data.dataset_info import FILE_COLUMN, FIXED_COLUMNS, TEXT
from cml.data.vocabulary import means, split_alias
from cml.data_prep import label_cells
from cml.data_prep.dataset_source import DatasetSource, InfoTexts
from cml.data_prep.folder_split import Labelled, assign_roles, describe_split
from cml.data_prep.grouped_numbers import find_grouped_numbers
from cml.data_prep.label_kinds import KINDS, WITH_UNIT, KindName, check_distance, distance_of
from cml.data_prep.number_format import PLAIN, Decimal, NumberFormat, Thousands
from cml.data_prep.number_labels import NumberLabels, choose_number_labels, find_period
from cml.data_prep.person_items import CROP
from cml.data_prep.row_files import Quote, Row, cell, name_in, say_once
from cml.data_prep.several_rows import join_rows
from cml.errors import UserError

Several = Literal["", "mean", "median", "list", "first"]
SPLIT_OPTIONS = ("split_column", "group_column", "group_rows", "test_fraction", "query_fraction")
GROUP = "group"  # the column that keeps groups whose own name is none or taken
READING_OPTIONS = ("format", "decimal", "thousands", "quote", "several", "levels", "missing_value", "split_seed")


@dataclass(frozen=True)
class LabelOptions(DatasetSource):
    """The options of labels in a user's own rows."""

    label_columns: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Columns with the label. The default depends on the kind: value; angle; x y z w of a quaternion; x y z of a
    direction; latitude longitude; class x0 y0 x1 y1; caption; class; keypoints; none for masks."""
    label_distance: str = field(default="", kw_only=True)
    """Label distance of numbers, angles, rotations or places, such as "circular(period=24)"; by default that of the
    kind. Label distances that read files or use the network are not allowed."""
    split_column: str | None = field(default=None, kw_only=True)
    """Column that contains train, query, gallery, test or val. By default the split is random, with exact fractions."""
    group_column: str | None = field(default=None, kw_only=True)
    """Column that identifies items that belong together, such as those of a person or a video. A group is never split
    between training and test. The dataset keeps the column, so that cml train also holds out whole groups."""
    group_rows: int = field(default=0, kw_only=True)
    """Number of consecutive rows that form a group, for frames of a film or a recording without a column of groups. It
    should be several times the number of frames that stay alike. 0: no groups."""
    keep_columns: tuple[str, ...] = field(default=(), kw_only=True)
    """Further columns to keep. cml explore and cml search show them, and exports contain them. If an item has several
    rows, those of the first row are kept."""
    split_seed: int = field(default=0, kw_only=True)
    """Random seed of the split."""
    test_fraction: float = field(default=0.3, kw_only=True)
    """Fraction of items (or of classes, with --kind classes) held out for testing, if there is no split column."""
    query_fraction: float = field(default=0.3, kw_only=True)
    """Fraction of test items that are queries; the others form the gallery. With 1, or with fewer than 200 test items
    without groups, each test item is a query against all the others, of other groups if there are groups."""
    unit: str = field(default="", kw_only=True)
    """Unit of the numbers, such as years; it is shown in tables and plots. Angles, Euler angles and places are read as
    degrees unless the unit is radians, or the names of their columns end in _rad."""
    decimal: Decimal = field(default=".", kw_only=True)
    """Decimal mark of the numbers."""
    thousands: Thousands = field(default="", kw_only=True)
    """Separator of groups of three digits, such as a comma in 1,200. By default there is none."""
    several: Several = field(default="", kw_only=True)
    """How to combine several rows of one item, such as those of several raters: the mean or the median of their
    numbers, the list of all numbers, or the first row. By default, several rows are an error."""
    levels: tuple[str, ...] = field(default=(), kw_only=True)
    """Ordered names of the values of the label, the lowest first, such as none mild moderate severe. They become the
    numbers 0, 1, 2 ..."""
    missing_value: tuple[str, ...] = field(default=(), kw_only=True)
    """Cells that mark an unknown label, such as -99. Their items are left out and counted."""
    format: str = field(default="", kw_only=True)
    """Format of the labels: arrays, coco, comparisons, deeplabcut, joints (wide or long tables), parquet, ucr, xlsx,
    yolo, or rows for a plain CSV, TSV or JSONL file. By default the format is detected."""
    quote: Quote = field(default='"', kw_only=True)
    """Quotation mark of texts in a CSV or TSV file. With none, quotation marks are ordinary characters."""

    licence = "the user's own"
    whole_fractions = ("query_fraction",)

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self._kind
        self._check_groups()
        if self.label_columns == ():
            raise UserError("label_columns should name at least one column.")
        if len(self.label_columns or ()) > 1 and kind in ("classes", "masks", "keypoints", "sequence"):
            raise UserError(f"An item has one label of kind {kind!r}; label_columns should name one column.")
        if self.unit and kind not in WITH_UNIT:
            raise UserError(f"A unit belongs to numbers and angles. Got {self.unit!r} for {kind}; leave it out.")
        if self.label_distance:
            check_distance(kind, self.label_distance)
        self._check_several()
        _ = self.written, self._numbers  # raise where marks, names of columns, kind and unit contradict each other

    @property
    @abstractmethod
    def _kind(self) -> KindName:
        """The kind of label."""
        raise NotImplementedError

    @property
    def _label_columns(self) -> tuple[str, ...]:
        """The columns of the label, "COLUMN" or "MEANING=COLUMN"."""
        return KINDS[self._kind].default if self.label_columns is None else self.label_columns

    @functools.cached_property
    def _cells(self) -> tuple[str, ...]:
        """The columns that the label is read from."""
        if self._numbers is not None:
            return self._numbers.columns
        return tuple(split_alias(column)[1] for column in self._label_columns)

    @functools.cached_property
    def written(self) -> NumberFormat:
        """The marks that numbers are written with."""
        return NumberFormat(self.decimal, self.thousands)

    @functools.cached_property
    def _numbers(self) -> NumberLabels | None:
        """How labels of numbers are read; None for other kinds."""
        if self._kind not in WITH_UNIT:
            return None
        columns = self._label_columns
        chosen = choose_number_labels(self._kind, columns, self.label_distance, self.unit, self.written)
        return replace(chosen, levels=self.levels, of_raters=self._are_raters())

    def _note_reading(self, file: object, printed: set[str]) -> None:
        """Print how the columns were understood."""
        for note in self._numbers.notes if self._numbers is not None else ():
            say_once(printed, f"{file}: {note}")

    def _read_label(self, row: Row, where: str) -> Any:  # noqa: ANN401 - a label
        """The label of a row, of a kind of numbers or texts."""
        if self._numbers is not None:
            return self._numbers.read(row, where)
        return label_cells.READ[self._kind](row, self._cells, where)

    def _describe(self, label: Any) -> str:  # noqa: ANN401
        """How a label is read, with its numbers."""
        if self._numbers is not None:
            return self._numbers.describe(label)
        text = label[0] if isinstance(label, list) else label
        return f"{', '.join(self._label_columns)} as {self._kind}: {reprlib.repr(text)}"

    def _deal(self, items: Sequence[Labelled], file: Path | None) -> tuple[dict[str, str], dict[str, Any]]:
        """The role of each item, by its name, and what dataset.json says of labels; rows of one item are joined."""
        is_classes, is_grouped = self._kind == "classes", self._is_grouped
        test, queries = self.test_fraction, self.query_fraction
        roles = assign_roles(items, test, queries, seed=self.split_seed, classes=is_classes, grouped=is_grouped)
        if is_grouped and not is_classes and "gallery" not in roles.values():
            tested = [item.group for item in items if roles[item.name] == "query"]
            _check_several_groups(tested, has_split=self.split_column is not None)
        if self.split_column is not None and items:
            say(f"{_before(file)}{self.split_column} says {_describe_roles(items, roles)}.")
        columns = self._label_columns if self._numbers is None else self._cells
        details: dict[str, Any] = {"label_columns": list(columns), **describe_split(roles, classes=is_classes)}
        if file is not None and self._kind == "numbers" and self.written == PLAIN and not self.levels:
            grouped = find_grouped_numbers(file, self._cells)
            details |= {"grouped_numbers": grouped} if grouped else {}
        details |= {"levels": list(self.levels)} if self.levels else {}
        details |= {"group_column": self._kept_group} if is_grouped else {}
        if KINDS[self._kind].distances and items:
            chosen = self.label_distance if self._numbers is None else self._numbers.distance
            distance = chosen or distance_of(self._kind, items[0].label, items[0].where)
            details |= {} if distance == "euclidean" else {"label_distance": distance}
            if not self.label_distance and self._kind != "boxes":  # which have no other
                of_kind = f"labels of kind {self._kind}{' (--kind)' if self._kind == 'numbers' else ''}"
                say(f"{_before(file)}{of_kind} are compared by {distance} (--label-distance).")
            details |= join_rows(items, self.several, find_period(distance) if self._kind == "angle" else None)
        return roles, details

    @functools.cached_property
    def _kept_group(self) -> str:
        """The column of the dataset that keeps the groups: called "group" where the name of their own is taken."""
        column = self.group_column or GROUP
        label_column = self._texts({"task": KINDS[self._kind].task})["label_column"]
        is_taken = column in (*FIXED_COLUMNS, label_column, CROP, TEXT) or column.endswith(FILE_COLUMN)
        return GROUP if is_taken else column

    def _keep_columns(self, item: Labelled) -> dict[str, Any]:
        """The further columns that the dataset keeps of an item: those that were named, and its group."""
        if not self._is_grouped:
            return item.extra
        group = item.extra.get(self.group_column, item.group) if self.group_column is not None else item.group
        return {**item.extra, self._kept_group: group}

    @property
    def _is_grouped(self) -> bool:
        """Whether items have groups."""
        return self.group_column is not None or self.group_rows > 0

    def _check_groups(self) -> None:
        """Check that consecutive rows can form groups."""
        if self.group_rows < 0 or self.group_rows == 1:
            raise UserError(f"'group_rows' must be 0 or at least 2. Got {self.group_rows} instead.")
        if self.group_rows and self.group_column is not None:
            raise UserError("Give either 'group_rows' or a 'group_column'. Got both instead.")
        if self.group_rows and GROUP in self.keep_columns:
            raise UserError(f"The column {GROUP!r} keeps the groups of 'group_rows': leave it out of 'keep_columns'.")

    def _read_group(self, row: Row, name: str, position: int, where: str) -> str:
        """The group of an item, the number of whose row counts from 0; without groups its name."""
        if self.group_rows:
            first = position // self.group_rows * self.group_rows
            return f"rows {first + 1} to {first + self.group_rows}"
        return name if self.group_column is None else name_in(row, self.group_column, where, option="--group-column")

    def _describe_kind(self) -> InfoTexts:
        """The task and the unit of the labels."""
        kind = KINDS[self._kind]
        return {"task": kind.task, "label_unit": self._numbers.unit if self._numbers else self.unit or kind.unit}

    def unset_options(self) -> tuple[str, ...]:
        """The options that have their defaults, which are not recorded: datasets of before stay the same."""
        defaults = {"several": "", "levels": (), "missing_value": (), "format": "", "quote": '"', "group_rows": 0}
        return tuple(name for name, default in defaults.items() if getattr(self, name) == default)

    def _is_missing(self, row: Row, where: str) -> bool:
        """Tell whether a label is marked as missing."""
        marks = {text.strip() for text in self.missing_value}
        numbers = {number for number in map(_number, marks) if number is not None}
        cells = [cell(row, column, where) for column in self._cells] if marks else []
        texts = ("" if value is None else str(value).strip() for value in cells)
        return not marks.isdisjoint(texts) or any(_number(value) in numbers for value in cells)

    def _are_raters(self) -> bool:
        """Tell whether each column of a label is one rater's, as rater1 and rater2; asks how they are joined."""
        columns = self._label_columns
        named = [re.sub(r"\d+$", "", column) for column in columns]
        are = self._kind == "numbers" and len(columns) > 1 and all(means(name, "rater") for name in named)
        if are and not self.several:
            raise UserError(
                f"The columns {', '.join(columns)} are called raters: join their numbers by --several mean or median. "
                "If they are parts of one label, rename them."
            )
        return are

    def _split_raters(self, item: Labelled) -> Labelled:
        """Move the numbers of all raters but the first to those of further rows."""
        if self._numbers is not None and self._numbers.of_raters and isinstance(item.label, list):
            item.label, *item.further = item.label
        return item

    def _check_several(self) -> None:
        """Check that rows of a kind of label can be joined so."""
        kind = self._kind
        allowed = {"numbers": ("mean", "median", "list", "first"), "place": ("mean", "median", "first")}
        known = allowed.get(kind, ("mean", "first") if kind == "angle" else ("first",))
        if self.several and self.several not in known:
            raise UserError(f"Several labels of kind {kind!r} give {' or '.join(known)}. Got {self.several!r} instead.")
        if self.levels and (kind != "numbers" or len(set(self.levels)) < max(2, len(self.levels))):
            raise UserError("The levels belong to --kind numbers, and are two or more different texts.")


def _number(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


_PLURALS = {"train": "training items", "query": "queries", "gallery": "gallery items"}


def _describe_roles(items: Sequence[Labelled], roles: Mapping[str, str]) -> str:
    """What became of each value of the split column, as in "train: 70 training items; test: 30 queries"."""
    counts = Counter((item.split or "", roles[item.name]) for item in items)
    dealt = {
        split: [f"{counts[split, role]} {noun}" for role, noun in _PLURALS.items() if counts[split, role]]
        for split in dict.fromkeys(split for split, _ in counts)
    }
    how = " (--query-fraction)" if len(dealt.get("test", ())) > 1 else ""
    return "; ".join(
        f"{split}: {' and '.join(parts)}{how if split == 'test' else ''}" for split, parts in dealt.items()
    )


def _before(file: Path | None) -> str:
    """What begins a message about a file of labels."""
    return "" if file is None else f"{file}: "


def _check_several_groups(groups: Sequence[str], *, has_split: bool) -> None:  # of the test items
    """Check that queries have items of other groups to be searched among."""
    if groups and len(set(groups)) == 1:
        mend = (
            "Mark items of other groups as test items, too." if has_split else "Raise test_fraction (--test-fraction)."
        )
        raise UserError(
            f"All {len(groups)} test items are of the group {groups[0]!r}, so that no query has items of other groups "
            f"to be searched among. {mend}"
        )


def describe_first(file: object, item: Labelled, describe: Callable[[Any], str]) -> None:
    """Print how labels are read, with the first item as an example."""
    say(f"{file}: reads {describe(item.label)} ({item.name})")
