"""Labels of numbers in a user's table: which column means what, in which unit, and the checks of each kind."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cml.data.table_columns import describe_order, is_place_distance, order_place
from cml.data.vocabulary import means, order_by_meaning, split_alias
from cml.data_prep.label_cells import read_numbers
from cml.data_prep.label_kinds import KINDS, KindName, distance_of
from cml.data_prep.number_format import NumberFormat
from cml.data_prep.row_files import Row, cell, read_plain
from cml.errors import DataError, UserError
from cml.registry import Choice

RADIANS = "radians"
_NAMES_OF_RADIANS = ("radians", "radian", "rad")
_RANGES = (("latitude", -90, 90), ("longitude", -180, 360))  # degrees
_MEANINGS: Mapping[tuple[KindName, int], tuple[str, ...]] = {
    ("rotation", 3): ("Z", "Y", "X"),
    ("rotation", 4): ("x", "y", "z", "w"),
    ("direction", 3): ("x", "y", "z"),
    ("place", 2): ("latitude", "longitude"),
    ("place", 3): ("latitude", "longitude", "heading"),
}
_SHOWN = 4  # numbers of a label that a line names
_OFF = 2e-3  # how far a rotation's rows may be from unit length and square


@dataclass(frozen=True)
class NumberLabels:
    """How labels of numbers are read. Made by ``choose_number_labels``."""

    kind: KindName  # the kind of label
    columns: tuple[str, ...]  # the label columns, in the order of the label
    distance: str  # the label distance that the user chose; "" for that of the kind, whose rules are then checked
    unit: str  # the unit that tables and plots show
    to_degrees: tuple[bool, ...]  # which of the cells are radians that are stored as degrees
    written: NumberFormat  # the marks that numbers are written with
    names: tuple[str, ...]  # what the numbers are called, in the order of the label
    # how the columns were understood, a sentence each, where that is not as they were named
    notes: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()  # ordered texts that stand for 0, 1, 2 ...
    of_raters: bool = False  # whether each column is the judgement of a rater, of one number

    def read(self, row: Row, where: str) -> float | list[float]:
        """Read the label of a row."""
        columns = self.columns
        if self.of_raters:  # who need not have judged every item
            columns = tuple(name for name in columns if cell(row, name, where) not in (None, "")) or columns
        label = read_numbers(row, columns, where, self.written, self.levels)
        if self.kind == "rotation" and len(self.names) == 1 and isinstance(label, list):
            places = [f"{self.columns[0]}.{place}" for place in range(len(label))]
            _order_rotation(tuple(places), self.distance)  # raises unless the names say what the numbers are
        if any(self.to_degrees):
            turned = self.to_degrees if len(self.to_degrees) > 1 else self.to_degrees[0]
            label = np.where(turned, np.degrees(label), label).tolist()
        if not self.distance:
            _check_kind(self.kind, label, self.names, where)
        return label

    def read_plain(self, rows: Sequence[Row | DataError]) -> list[Any] | None:
        """Read the labels of many rows at once; None where ``read`` has to read each."""
        if self.kind != "numbers" or self.levels or self.of_raters or any(self.to_degrees):
            return None
        numbers = read_plain(rows, self.columns, self.written)
        return None if numbers is None else numbers.tolist() if len(self.columns) > 1 else numbers[:, 0].tolist()

    def describe(self, label: float | list[float]) -> str:
        """Say what the numbers of a label are, as in "yaw (Z), pitch (Y), roll (X) in degrees: 90, 0, 5"."""
        if self.of_raters:
            return f"{', '.join(self.columns)} as numbers of {len(self.columns)} raters; the first: {label}"
        values = label if isinstance(label, list) else [label]
        meanings = _MEANINGS.get((self.kind, len(values)), ()) if not self.distance else ()
        names = self.names if len(self.names) == len(values) else [f"{self.names[0]}.{i}" for i in range(len(values))]
        named = [
            name if meaning in ("", name) else f"{name} ({meaning})"
            for name, meaning in itertools.zip_longest(names, meanings, fillvalue="")
        ]
        unit = f" in {self.unit}" if self.unit and self.unit != KINDS["rotation"].unit else ""
        if self.kind == "rotation" and len(values) == len(_EULER):
            unit = " in degrees"
        shown = ", ".join(f"{value:.6g}" for value in values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
        listed = ", ".join(named[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
        return f"{listed}{unit}: {shown}"


def choose_number_labels(
    kind: KindName,
    columns: Sequence[str],  # names of columns, or "meaning=column"
    distance: str,  # the label distance that the user chose; "" for that of the kind
    unit: str,  # the unit that the user stated; "" for none
    written: NumberFormat,
) -> NumberLabels:
    """Decide how labels of numbers are read, by the names of their columns and the unit.

    Columns are taken for what they are called: latitude and longitude, yaw, pitch and roll, the parts of a quaternion.
    Names that leave the order open are refused. Radians, which the unit or a name states, are compared with a period
    of 2 pi (angles) or stored as degrees (rotations, places and headings).
    """
    named = [split_alias(column) for column in columns]
    names, notes = tuple(name for name, _ in named), []
    compared = distance or next(iter(KINDS[kind].distances.values()), "")
    if is_place_distance(compared):
        ordered = order_place(names)
    elif kind == "rotation" or compared.startswith("rotation"):
        ordered = _order_rotation(names, distance)
    elif kind == "direction":
        ordered = order_by_meaning(names, _QUATERNION[:3]) or names
    elif kind == "angle" and not distance:
        _check_angle(names, unit)
        ordered = names
    else:
        ordered = names
    if ordered != names:
        notes.append(describe_order(ordered))
    column_of = dict(named)
    columns = tuple(column_of[name] for name in ordered)
    in_radians = [name for name in ordered if means(name, "radians")]
    states_radians = unit.lower() in _NAMES_OF_RADIANS

    def settle(distance: str, shown: str, to_degrees: Sequence[bool] = ()) -> NumberLabels:
        return NumberLabels(kind, columns, distance, shown, tuple(to_degrees), written, ordered, tuple(notes))

    if not (is_place_distance(compared) or compared.startswith(("circular", "rotation"))):
        return settle(distance, unit or KINDS[kind].unit)
    if distance.startswith("circular"):
        return settle(distance, unit or ("" if kind == "numbers" else KINDS[kind].unit))
    if in_radians and unit and not states_radians:
        raise UserError(
            f"The column {in_radians[0]!r} says radians, but the unit is {unit!r}: rename it, or mend --unit."
        )
    if (
        in_radians
        and len(in_radians) < len(ordered)
        and not (is_place_distance(compared) and in_radians == [ordered[-1]])
    ):
        other = next(name for name in ordered if name not in in_radians)
        raise UserError(f"The column {in_radians[0]!r} says radians, but {other!r} does not: bring both into one unit.")
    if not in_radians and not states_radians:
        if kind != "angle" and unit.lower() not in ("", "degrees", "degree", "deg"):
            raise UserError(f"The unit of a label of kind {kind!r} is degrees or radians. Got {unit!r} instead.")
        shown = unit if kind == "angle" and unit else KINDS[kind].unit
        return settle(distance, shown)
    if compared.startswith("rotation") and len(ordered) != 3:
        raise UserError(f"Radians belong to Euler angles, three columns. Got {', '.join(ordered)}.")
    if in_radians and not states_radians:
        notes.append(f"The label is read as radians, as the name of the column {in_radians[0]!r} says.")
    if kind == "angle":
        return settle(f"circular(period={2 * math.pi!r})", RADIANS)
    is_heading = is_place_distance(compared) and in_radians == [ordered[-1]]
    return settle(distance, KINDS[kind].unit, [not is_heading or name in in_radians for name in ordered])


def find_period(distance: str) -> float:
    """The period of a circular label distance."""
    settings = Choice.parse(distance).settings
    return float(settings.get("period", 360.0))


_EULER, _QUATERNION = ("yaw", "pitch", "roll"), ("qx", "qy", "qz", "qw")


def _order_rotation(names: tuple[str, ...], distance: str) -> tuple[str, ...]:
    """Put the columns of a rotation into the order of the label, by their names."""
    if len(names) == len(_QUATERNION):
        ordered = order_by_meaning(names, _QUATERNION)
        if "scalar_first" in distance or all(means(name, "xyzw") for name in names):
            return names
        return ordered if ordered is not None else _ask_for_quaternion(names)
    if len(names) != len(_EULER) or "rotvec" in distance:
        return names
    if (ordered := order_by_meaning(names, _EULER)) is not None:
        return names if "order=" in distance else ordered
    if "euler" in distance:
        return names
    columns = " ".join(f"{meaning}={name}" for meaning, name in zip(_EULER, names[::-1], strict=True))
    raise UserError(
        f"The numbers {', '.join(names)} may be Euler angles or a rotation vector. For Euler angles say which is "
        f"which, as in --label-columns {columns}; for a rotation vector take --label-distance "
        "'rotation(form=rotvec)', with --unit radians if its length is in radians."
    )


def _ask_for_quaternion(names: tuple[str, ...]) -> tuple[str, ...]:
    w_last, w_first = (
        " ".join(f"{meaning}={name}" for meaning, name in zip(meanings, names, strict=True))
        for meanings in (_QUATERNION, (_QUATERNION[-1], *_QUATERNION[:-1]))
    )
    raise UserError(
        f"The numbers {', '.join(names)} may be a quaternion x, y, z, w or w, x, y, z: say it by --label-columns "
        f"{w_last}, or {w_first}."
    )


_PERIODS = {"hour": 24, "weekday": 7, "month": 12}


def _check_angle(names: tuple[str, ...], unit: str) -> None:
    """Refuse hours, weekdays and months that would be compared as degrees."""
    for name in names if unit.lower() in ("", "degrees") else ():
        for meaning, period in _PERIODS.items():
            if means(name, meaning) and not means(name, "angle"):
                raise UserError(
                    f"The column {name!r} is called a{'n' * (meaning == 'hour')} {meaning}, but an angle turns with "
                    f'360 degrees. Give --label-distance "circular(period={period})", or, if it is in degrees, '
                    f"--label-columns angle={name}."
                )


def _check_kind(kind: KindName, label: float | list[float], columns: Sequence[str], where: str) -> None:
    """Check the ranges of places and rotations."""
    distance_of(kind, label, where)
    if kind == "place" and isinstance(label, list):
        for value, (name, low, high) in zip(label, _RANGES, strict=False):
            if not low <= value <= high:
                swapped = name == "latitude" and abs(label[1]) <= _RANGES[0][2]
                mend = "; are latitude and longitude swapped? Name their columns by --label-columns" if swapped else ""
                raise DataError(f"{where}: the {name} should be in {low}..{high} degrees. Got {value:g} instead{mend}.")
    if kind == "direction" and isinstance(label, list) and abs(math.hypot(*label) - 1) > _OFF:
        got = " ".join(f"{value:g}" for value in label)
        rule = "should be a direction x, y, z of length 1"
        raise DataError(f"{where}: {' '.join(columns)} {rule}. Got {got} of length {math.hypot(*label):g} instead.")
    if kind == "rotation" and isinstance(label, list) and len(label) != 3:
        rows = np.reshape(label, (-1, 3 if len(label) == 9 else 4))
        off = np.abs(rows @ rows.T - np.eye(len(rows))).max()
        if off > _OFF or (len(rows) == 3 and np.linalg.det(rows) < 0):
            form = "quaternion x, y, z, w of length 1"
            if len(rows) == 3:
                form = "matrix whose rows are a right-handed frame"
            got = " ".join(f"{value:g}" for value in label)
            raise DataError(f"{where}: {' '.join(columns)} should be a {form}. Got {got} instead.")
