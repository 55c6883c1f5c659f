"""Labels that are files: one sequence an item, as .npy, .npz, .csv or .json."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data_prep.array_files import load_arrays
from cml.data_prep.folder_split import Labelled
from cml.data_prep.row_files import Row, cell
from cml.errors import DataError
from cml.registry import Choice
from cml.storage.json_file import read_json
from cml.storage.regular_file import open_regular
from cml.storage.safe_paths import file_inside

SUFFIXES = (".npy", ".npz", ".csv", ".json")
_FORM = "should hold one array of numbers (T,) or (T, F), T at least 1"


def read_label_file(row: Row, columns: Sequence[str], folder: Path, name: str, where: str) -> list[str]:
    """Read the sequence of an image: of each step its numbers, as a text, since sequences differ in length."""
    path = _find(row, columns, folder, name, where)
    try:
        steps = _load(path)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    bad = np.argwhere(~np.isfinite(steps))
    if len(bad):
        step, place = bad[0].tolist()
        raise DataError(
            f"{where}: {path} holds {steps[step, place]:g} at step {step} where a finite number should be; fill it in, "
            "or leave the item out."
        )
    return [" ".join(map(repr, step)) for step in steps.tolist()]


def refuse_other_widths(rows: Sequence[Labelled | DataError]) -> list[Labelled | DataError]:
    """The rows, with an error in place of each whose steps have another number of numbers than the first's."""
    widths = [len(row.label[0].split()) if isinstance(row, Labelled) else 0 for row in rows]
    first = next((place for place, width in enumerate(widths) if width), 0)
    checked: list[Labelled | DataError] = []
    for row, width in zip(rows, widths, strict=True):
        if isinstance(row, Labelled) and width != widths[first]:
            numbers = f"{width} numbers" if width != 1 else "1 number"
            fault = f"the label has {numbers} a step, the first has {widths[first]}; export all with the same columns."
            checked.append(DataError(f"{row.where}: {fault}"))
        else:
            checked.append(row)
    return checked


def check_band(rows: Sequence[Labelled], label_distance: str) -> None:
    """Refuse a label distance whose band keeps the longest sequence from the shortest, which is no fault of a row."""
    settings = Choice.parse(label_distance).settings if label_distance else {}
    band, open_ends = settings.get("band", 0), settings.get("open_ends", 0)
    if not rows or not isinstance(band, int) or not isinstance(open_ends, int) or band < 1:
        return
    least, most = min(rows, key=lambda row: len(row.label)), max(rows, key=lambda row: len(row.label))
    differ = len(most.label) - len(least.label)
    if differ > band + open_ends:
        raise DataError(
            f"{most.where}: the label has {len(most.label)} steps, and that of {least.where} has {len(least.label)}: "
            f"the band of {band} steps is narrower than their lengths differ. Set 'band' in --label-distance to at "
            f"least {differ - open_ends}, or to 0 for none."
        )


def _find(row: Row, columns: Sequence[str], folder: Path, name: str, where: str) -> Path:
    """The file that a row names, or that of the image's name with another ending."""
    if not columns:
        stem = PurePosixPath(name).with_suffix("")
        found = [suffix for suffix in SUFFIXES if (folder / f"{stem}{suffix}").is_file()]
        if len(found) != 1:
            got = f"it has {' and '.join(found)}" if found else "it has none"
            raise DataError(f"{where}: {folder} should have one of {stem}{{{','.join(SUFFIXES)}}}; {got}.")
        return file_inside(folder, f"{stem}{found[0]}", where, "label file")
    value = cell(row, columns[0], where)
    if not isinstance(value, str) or PurePosixPath(value.strip()).suffix.lower() not in SUFFIXES:
        rule = f"{columns[0]} should be the path of a file {', '.join(SUFFIXES)}, relative to {folder}"
        raise DataError(f"{where}: {rule}. Got {value!r} instead.")
    return file_inside(folder, value.strip(), where, "label file")


def _load(path: Path) -> Float64:  # (T, F)
    suffix = path.suffix.lower()
    content: Any = None
    if suffix == ".json":
        content = read_json(path, "a sequence", finite=False)
    elif suffix == ".csv":
        content = _read_csv(path)
    else:
        arrays = load_arrays(path)
        if len(arrays) != 1:
            raise DataError(f"{path} {_FORM}. It holds {len(arrays)} arrays: {', '.join(list(arrays)[:8])}.")
        content = next(iter(arrays.values()))
    try:
        steps = np.asarray(content)
    except ValueError:  # steps of different widths
        raise DataError(f"{path} {_FORM}; its steps differ in length.") from None
    if steps.ndim not in (1, 2) or steps.dtype.kind not in "fiub" or not steps.size:
        got = f"{steps.dtype} of shape {steps.shape}" if steps.dtype.kind not in "OU" else type(content).__name__
        raise DataError(f"{path} {_FORM}. It holds {got}.")
    return np.asarray(steps.reshape(len(steps), -1), np.float64)


def _read_csv(path: Path) -> list[list[float]]:
    """The rows of numbers; a first row of names is left out."""
    with open_regular(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        rows: list[list[float]] = []
        for number, cells in enumerate(csv.reader(text), start=1):
            numbers = [_number(value) for value in cells]
            if not cells or (number == 1 and None in numbers):
                continue
            if None in numbers:
                value = cells[numbers.index(None)]
                raise DataError(f"{path}:{number}: a step should be numbers. Got {value!r} instead.")
            rows.append([value for value in numbers if value is not None])
    return rows


def _number(value: str) -> float | None:
    try:
        return float(value) if value.strip() else math.nan
    except ValueError:
        return None
