"""What sources of a user's own rows share: marks of missing labels, ordered levels, several rows an item, bad rows."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from cml.console.messages import say
from cml.data.prepared_writer import SKIP_HINT
from cml.data.vocabulary import means
from cml.data_prep.dataset_source import DatasetSource
from cml.data_prep.folder_split import Labelled
from cml.data_prep.row_files import Quote, Row, cell
from cml.errors import DataError, UserError

Several = Literal["", "mean", "median", "list", "first"]
_NAMED = 3  # rows that an error names of each kind
_FEWEST = 10  # items with several rows, from which the agreement of rows is estimated


class Misread(DataError):
    """The file as a whole means something else than it was read as: leaving out rows would not mend it."""


@dataclass(frozen=True)
class LabelOptions(DatasetSource):
    """The options of labels in a user's own rows."""

    several: Several = field(default="", kw_only=True)
    """What becomes of several rows of one item, as of several raters: the mean or the median of their numbers, the list
    of all, or the first. By default they are an error."""
    levels: tuple[str, ...] = field(default=(), kw_only=True)
    """Ordered texts that the label is one of, the lowest first, such as none mild moderate severe: they become the
    numbers 0, 1, 2 ..."""
    missing_value: tuple[str, ...] = field(default=(), kw_only=True)
    """Cells that stand for an unknown label, such as -99: their items are left out and counted."""
    format: str = field(default="", kw_only=True)
    """Format of the labels: arrays, coco, comparisons, deeplabcut, joints (wide or long tables), parquet, ucr, xlsx,
    yolo, or rows for a plain CSV, TSV or JSONL file. By default it is recognised."""
    quote: Quote = field(default='"', kw_only=True)
    """What texts are quoted with in a CSV or TSV file. With none, a quote is a character as any other."""

    def unset_options(self) -> tuple[str, ...]:
        """The options that have their defaults, which are not recorded: datasets of before stay the same."""
        defaults = {"several": "", "levels": (), "missing_value": (), "format": "", "quote": '"'}
        return tuple(name for name, default in defaults.items() if getattr(self, name) == default)

    def is_missing(self, row: Row, columns: Sequence[str], where: str) -> bool:
        """Tell whether a label is marked as missing."""
        marks = {text.strip() for text in self.missing_value}
        numbers = {number for number in map(_number, marks) if number is not None}
        cells = [cell(row, column, where) for column in columns]
        return any(str(value).strip() in marks or _number(value) in numbers for value in cells)

    def are_raters(self, kind: str, columns: Sequence[str]) -> bool:
        """Tell whether each column of a label is one rater's, as rater1 and rater2; asks how they are joined."""
        named = [re.sub(r"\d+$", "", column) for column in columns]
        are = kind == "numbers" and len(columns) > 1 and all(means(name, "rater") for name in named)
        if are and not self.several:
            raise UserError(
                f"The columns {', '.join(columns)} are called raters: join their numbers by --several mean or median. "
                "If they are parts of one label, rename them."
            )
        return are

    def split_raters(self, item: Labelled) -> Labelled:
        """Move the numbers of all raters but the first to those of further rows."""
        if isinstance(item.label, list):
            item.label, *item.further = item.label
        return item

    def check_several(self, kind: str) -> None:
        """Check that rows of a kind of label can be joined so."""
        allowed = {"numbers": ("mean", "median", "list", "first"), "place": ("mean", "median", "first")}
        known = allowed.get(kind, ("mean", "first") if kind == "angle" else ("first",))
        if self.several and self.several not in known:
            raise UserError(f"Several labels of kind {kind!r} give {' or '.join(known)}. Got {self.several!r} instead.")
        if self.levels and (kind != "numbers" or len(set(self.levels)) < max(2, len(self.levels))):
            raise UserError("The levels belong to --kind numbers, and are two or more different texts.")

    def join_rows(self, items: Iterable[Labelled], period: float | None) -> dict[str, Any]:
        """Give each item one label of those of its rows, and say how well they agree.

        ``period`` is that of angles; None for others. Returns what dataset.json records.
        """
        if not self.several:
            return {}
        items = list(items)
        groups = [(item, np.array([item.label, *item.further], np.float64)) for item in items if item.further]
        for item in items if self.several == "list" else ():
            item.label = [item.label, *item.further]
        if not groups:
            return {}
        for item, labels in groups:
            if self.several == "mean" and period is not None:
                turns = labels * (2 * math.pi / period)
                mean = np.arctan2(np.sin(turns).mean(axis=0), np.cos(turns).mean(axis=0)) * (period / (2 * math.pi))
                item.label = (mean % period).tolist()
            elif self.several in ("mean", "median"):
                joined = labels.mean(axis=0) if self.several == "mean" else np.median(labels, axis=0)
                item.label = joined.tolist()
        count, most = sum(len(labels) for _, labels in groups), max(len(labels) for _, labels in groups)
        said = f"{len(groups)} items have several rows, {most} at most, {count} in all; their labels are "
        said += {"list": "the lists of all", "first": "those of their first rows"}.get(
            self.several, f"their {self.several}s"
        )
        ceiling = None if period is not None else _estimate_ceiling([labels for _, labels in groups])
        if ceiling is not None:
            said += (
                f". By their agreement, the correlation of predictions with their means can be {ceiling:.2f} at most"
            )
        say(f"{said}.")
        return {"several": {"how": self.several, "items": len(groups), "rows": count, "ceiling": ceiling}}


def _number(value: object) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None


def _estimate_ceiling(groups: Sequence[Any]) -> float | None:
    """The root of the reliability of means, by the variance within items and between them (one-way ICC)."""
    if len(groups) < _FEWEST or any(labels.ndim != 1 for labels in groups):
        return None
    within = float(np.mean([labels.var(ddof=1) for labels in groups]))
    rows = float(np.mean([1 / len(labels) for labels in groups]))
    between = float(np.var([labels.mean() for labels in groups], ddof=1))
    return math.sqrt(max(0.0, 1 - within * rows / between)) if between > 0 else None


def refuse_bad_rows(rows: Iterable[object]) -> None:
    """Raise the first bad row of the most frequent kind, with how many there are of each kind, and the first ones."""
    rows = list(rows)
    faults = [row for row in rows if isinstance(row, DataError)]
    if not faults:
        return
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kinds.setdefault(re.sub(r"'[^']*'|[\d.,]+", "_", str(fault).partition(": ")[2]), []).append(str(fault))
    common = max(kinds.values(), key=len)
    text = common[0]
    if len(faults) > 1:
        each = [f"{len(same)} as in {', '.join(map(_shorten, same[:_NAMED]))}" for same in kinds.values()]
        more = f", and {len(kinds) - _NAMED} further kinds" if len(kinds) > _NAMED else ""
        text += f" {len(faults)} rows are bad: {'; '.join(each[:_NAMED])}{more}."
    # where most rows are bad, the file was read in the wrong way, and leaving out would hide it
    raise DataError(f"{text} {SKIP_HINT}" if len(faults) == 1 or 2 * len(faults) < len(rows) else text)


def _shorten(where: str) -> str:
    """The line alone of "FILE:LINE: fault"."""
    where = where.partition(": ")[0]
    line = where.rpartition(":")[2]
    return f"line {line}" if line.isdecimal() else where.rpartition(", ")[2]


def describe_first(file: object, item: Labelled, describe: Callable[[Any], str]) -> None:
    """Print how labels are read, with the first item as an example."""
    say(f"{file}: reads {describe(item.label)} ({item.name})")
