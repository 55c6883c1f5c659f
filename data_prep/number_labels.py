"""Labels of numbers in a user's table: which column means what, in which unit, and the checks of each kind."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cml.data.table_columns import describe_order, is_place_distance, order_place
from cml.data_prep.label_cells import read_numbers
from cml.data_prep.label_kinds import KINDS, KindName, distance_of
from cml.data_prep.number_format import NumberFormat
from cml.data_prep.row_files import Row
from cml.errors import DataError, UserError

RADIANS = "radians"
_NAMES_OF_RADIANS = ("radians", "radian", "rad")
_IN_RADIANS = re.compile(r".*[^a-z](rad|rads|radians?)[\])]?", re.IGNORECASE)  # angle_rad, yaw [rad]
_RANGES = (("latitude", -90, 90), ("longitude", -180, 360))  # degrees
_OFF = 2e-3  # how far a rotation's rows may be from unit length and square


@dataclass(frozen=True)
class NumberLabels:
    """How labels of numbers are read. Made by ``choose_number_labels``."""

    kind: KindName  # the kind of label
    columns: tuple[str, ...]  # the label columns, in the order of the label
    distance: str  # the label distance that the user chose; "" for that of the kind, whose rules are then checked
    unit: str  # the unit that tables and plots show
    to_degrees: bool  # whether the cells are radians that are stored as degrees
    written: NumberFormat  # the marks that numbers are written with
    # how the columns were understood, a sentence each, where that is not as they were named
    notes: tuple[str, ...] = ()

    def read(self, row: Row, where: str) -> float | list[float]:
        """Read the label of a row."""
        label = read_numbers(row, self.columns, where, self.written)
        if self.to_degrees:
            label = np.degrees(label).tolist()
        if not self.distance:
            _check_kind(self.kind, label, self.columns, where)
        return label


def choose_number_labels(
    kind: KindName,
    columns: Sequence[str],
    distance: str,  # the label distance that the user chose; "" for that of the kind
    unit: str,  # the unit that the user stated; "" for none
    written: NumberFormat,
) -> NumberLabels:
    """Decide how labels of numbers are read, by the names of their columns and the unit.

    Columns of places that are called latitude and longitude are taken for what they are called. Radians, which the unit
    or the ending of a column's name states, are compared with a period of 2 pi (angles) or stored as degrees
    (rotations, places and headings).
    """
    columns, notes = tuple(columns), []
    is_place = is_place_distance(distance) if distance else kind == "place"
    if is_place and (ordered := order_place(columns)) != columns:
        notes.append(describe_order(ordered))
        columns = ordered
    named = [column for column in columns if _IN_RADIANS.fullmatch(column)]
    is_angular = kind in ("angle", "rotation", "place") and not distance
    states_radians = unit.lower() in _NAMES_OF_RADIANS
    if not is_angular:
        return NumberLabels(kind, columns, distance, unit or KINDS[kind].unit, False, written, tuple(notes))
    if named and unit and not states_radians:
        raise UserError(f"The column {named[0]!r} says radians, but the unit is {unit!r}: rename it, or mend --unit.")
    if named and len(named) < len(columns):
        other = next(column for column in columns if column not in named)
        raise UserError(f"The column {named[0]!r} says radians, but {other!r} does not: bring both into one unit.")
    if not named and not states_radians:
        if kind != "angle" and unit.lower() not in ("", "degrees", "degree", "deg"):
            raise UserError(f"The unit of a label of kind {kind!r} is degrees or radians. Got {unit!r} instead.")
        shown = unit if kind == "angle" and unit else KINDS[kind].unit
        return NumberLabels(kind, columns, distance, shown, False, written, tuple(notes))
    if kind == "rotation" and len(columns) != 3:
        raise UserError(f"Radians belong to Euler angles, three columns. Got {', '.join(columns)}.")
    if named and not states_radians:
        notes.append(f"The label is read as radians, as the name of the column {named[0]!r} says.")
    if kind == "angle":
        period = f"circular(period={2 * math.pi!r})"
        return NumberLabels(kind, columns, period, RADIANS, False, written, tuple(notes))
    return NumberLabels(kind, columns, distance, KINDS[kind].unit, True, written, tuple(notes))


def _check_kind(kind: KindName, label: float | list[float], columns: Sequence[str], where: str) -> None:
    """Check the ranges of places and rotations."""
    distance_of(kind, label, where)
    if kind == "place" and isinstance(label, list):
        for value, (name, low, high) in zip(label, _RANGES, strict=False):
            if not low <= value <= high:
                swapped = name == "latitude" and abs(label[1]) <= _RANGES[0][2]
                mend = "; are latitude and longitude swapped? Name their columns by --label-columns" if swapped else ""
                raise DataError(f"{where}: the {name} should be in {low}..{high} degrees. Got {value:g} instead{mend}.")
    if kind == "rotation" and isinstance(label, list) and len(label) != 3:
        rows = np.reshape(label, (-1, 3 if len(label) == 9 else 4))
        off = np.abs(rows @ rows.T - np.eye(len(rows))).max()
        if off > _OFF or (len(rows) == 3 and np.linalg.det(rows) < 0):
            form = "quaternion x, y, z, w of length 1"
            if len(rows) == 3:
                form = "matrix whose rows are a right-handed frame"
            got = " ".join(f"{value:g}" for value in label)
            raise DataError(f"{where}: {' '.join(columns)} should be a {form}. Got {got} instead.")
