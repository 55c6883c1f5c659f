"""What is suspicious about labels: constants, outliers, angles in another unit, markers of unknown ones."""

import math
import re
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float64
from cml.data.table_columns import is_place_distance
from cml.data.vocabulary import means
from cml.plausibility.codes import find_codes
from cml.plausibility.finding import Finding, Rule
from cml.plausibility.mixed_units import find_mixed_units
from cml.plausibility.swapped_places import LabelNumbers, as_label_numbers, find_swapped_places, mark_swapped_places

# Constant labels: all items have the same one, so that there is nothing to learn.

_MEND_OF_CONSTANTS = "Nothing can be learned from them: name another column of labels."


def find_equal_labels(labels: Sequence[Any] | NDArray[Any]) -> Iterator[Finding]:
    """Find labels that are no numbers, such as texts, lists of texts and poses, and all equal."""
    count = len(labels)
    if count < 2:
        return
    first = labels[0]
    if isinstance(labels, np.ndarray):
        are_equal, first = bool((labels == first).all()), first.tolist()
    else:
        is_plain = isinstance(first, str | list | dict)  # others may compare by elements
        are_equal = is_plain and all(type(label) is type(first) and label == first for label in labels)
    if are_equal:
        yield Finding(
            "constant-labels", f"all {count} labels are equal, {reprlib.repr(first)}", _MEND_OF_CONSTANTS, count, count
        )


def find_constant_labels(labels: LabelNumbers) -> Iterator[Finding]:
    """Find labels that are all equal, or a number of the label that is the same in all."""
    count = len(labels.values)
    if count < 2:
        return
    constant = (labels.values == labels.values[0]).all(axis=0)
    names = [name for name, is_constant in zip(labels.columns, constant.tolist(), strict=True) if is_constant]
    if constant.all():
        value = " ".join(f"{number:g}" for number in labels.values[0])
        yield Finding("constant-labels", f"all {count} labels are equal, {value}", _MEND_OF_CONSTANTS, count, count)
    elif names:
        yield Finding(
            "constant-labels",
            f"{', '.join(map(repr, names))} is the same number in all {count} labels",
            "It does not change any label distance: leave it out, or correct it.",
            count,
            count,
        )


# Outliers: a few labels far away from all others, such as the age 2014.

_FEWEST_WITH_OUTLIERS = 10  # items; of fewer, nobody can say what is far away
_MANY = 100  # items; of fewer, chance throws some farther
_MOST = 0.01  # share of all labels; more of them are a heavy tail
_FAR, _FAR_OF_FEW, _FAR_IN_LOGARITHM = 8.0, 20.0, 4.0  # interquartile ranges from the median
_GAP, _GAP_OF_SIGNED = 2.5, 6.0  # how many times as far away from the median as the farthest of the others
_BELOW_ZERO, _BELOW_ZERO_OF_FEW = 0.5, 0.75  # shares of the median of positive labels


def find_outliers(labels: LabelNumbers) -> Iterator[Finding]:
    """Find a few labels that lie far away from all others, on a plain and on a logarithmic scale.

    They lie 8 interquartile ranges or more from the median, are at most 1 % of the labels, and a gap separates them:
    they are 2.5 times as far away as all others. More is asked of fewer than 100 labels and of labels of both signs.
    Where no label is negative the same is asked of the logarithms of the positive ones with 4 ranges, since prices and
    sizes spread over powers. A single negative number among positive ones that are well above zero is found too.
    """
    if labels.distance.startswith(("circular", "rotation", "classes")) or len(labels.values) < _FEWEST_WITH_OUTLIERS:
        return
    kept = np.flatnonzero(~mark_swapped_places(labels))  # the others have a finding of their own
    for column, name in enumerate(labels.columns):
        values = labels.values[:, column]
        places = kept[_are_outliers(values[kept])]
        if len(places):
            middle = np.quantile(np.delete(values, places), (0.05, 0.95))
            yield Finding(
                "outliers",
                f"{len(places)} of {len(values)} numbers in {name!r} lie far away from the others, of which 90 % lie "
                f"from {middle[0]:g} to {middle[1]:g}",
                "Correct them, or leave these items out.",
                len(places),
                len(values),
                labels.describe_items(places, column),
            )


def _are_outliers(values: Float64) -> Bools:
    """(N,) whether each value is an outlier; sentinels, which have a finding of their own, are not."""
    known = ~np.isin(values, find_markers(values))
    found = np.zeros(len(values), bool)
    most = max(1, int(_MOST * len(values)))
    is_many = len(values) >= _MANY
    negative = known & (values < 0)
    if 0 < negative.sum() <= most:
        others = values[known & ~negative]
        middle = float(np.median(others))
        is_above = len(others) >= _FEWEST_WITH_OUTLIERS - 1 and others.min() > middle / 4
        if is_above and -values[negative].max() > (_BELOW_ZERO if is_many else _BELOW_ZERO_OF_FEW) * middle:
            found |= negative
    rest = known & ~found
    has_signs = bool((values[rest] < 0).any())
    gap = _GAP if is_many and not has_signs else _GAP_OF_SIGNED
    far = _are_far(values, rest, _FAR if is_many else _FAR_OF_FEW, gap, most)
    if far.any() and not has_signs:
        positive = rest & (values > 0)
        far &= _are_far(np.log(np.where(positive, values, 1)), positive, _FAR_IN_LOGARITHM, _GAP, most)
    return found | far


def _are_far(values: Float64, rest: Bools, ranges: float, gap: float, most: int) -> Bools:
    """(N,) whether each of the values that ``rest`` marks belongs to the largest group that a gap sets apart."""
    far = np.zeros(len(values), bool)
    low, middle, high = np.quantile(values[rest], (0.25, 0.5, 0.75))
    if high == low:
        return far
    away = np.where(rest, np.abs(values - middle), 0)
    order = np.argsort(-away)
    farthest = away[order[: most + 1]]
    is_apart = (farthest[:-1] > gap * farthest[1:]) & (farthest[:-1] > ranges * (high - low))
    size = int(np.flatnonzero(is_apart)[-1]) + 1 if is_apart.any() else 0
    far[order[:size]] = True
    return far


# Radians: angles that are compared as degrees, but all lie within one turn of radians.

_FEWEST_ANGLES = 8  # items
_TURN_IN_RADIANS = 2 * math.pi + 1e-3
_HALF_TURN = math.pi + 1e-3
_SPREAD, _REACH = 3.3, 2.0  # radians; small angles in degrees, as of a steering wheel, do not spread so evenly
_SPREAD_OF_TURNS, _REACH_OF_TURNS = 1.2, 0.5  # of rotations and headings, which hardly stay within 6 degrees
_SPREAD_OF_HALF_TURNS, _SPREAD_OF_QUARTERS, _REACH_OF_QUARTERS = 1.8, 2.6, 1.4
_FILLED = 0.8  # share of a turn in another unit that angles cover
_TURN_IN_GRADIANS = 400
_EVEN = 0.22  # the least standard deviation as a share of the range
_RADIANS = re.compile(r"circular\(period=6\.28\d*\)")
_EULERS = re.compile(r"rotation\(.*form='?euler\b.*\)")
_DEGREES = re.compile(r"circular(\(.*period=360(\.0)?\b.*\)|\(\))?")
_TURNS = re.compile(r"rotation\(.*form='?(euler|rotvec)\b.*\)")


def find_radians(labels: LabelNumbers) -> Iterator[Finding]:
    """Find angles in degrees within 2 pi that spread over much of a turn of radians and are no whole numbers.

    That is asked of every angular part of a label distance: angles, Euler angles, rotation vectors, latitudes and
    longitudes, and headings. Marks of unknown labels are set aside.
    """
    yield from _find_degrees(labels)
    yield from _find_other_turns(labels)
    for values, name, spread, reach in _angular_parts(labels):
        if len(values) < _FEWEST_ANGLES or np.abs(values).max() > _TURN_IN_RADIANS:
            continue
        is_spread = np.ptp(values, axis=0).max() >= spread and np.abs(values).max() >= reach
        is_spread |= name == "angles" and _are_even(values)
        if is_spread and (values != np.round(values)).mean() > 0.5:
            yield Finding(
                "radians",
                f"all {len(values)} {name} lie from {values.min():.3g} to {values.max():.3g}, but are compared as "
                "degrees",
                "If they are radians, "
                + (
                    "say so by --label-columns latitude longitude heading_rad=COLUMN."
                    if name == "headings"
                    else "prepare them with --unit radians."
                ),
                len(values),
                len(values),
            )


def _are_even(values: Float64) -> bool:
    """Whether angles fill half a turn of radians evenly, with decimals that small angles in degrees hardly have."""
    widths, ends = np.ptp(values, axis=0), np.abs(values).max(axis=0)
    are_positive = (values >= 0).all(axis=0) & (widths >= _SPREAD_OF_HALF_TURNS) & (ends <= _HALF_TURN)
    are_quarters = (widths >= _SPREAD_OF_QUARTERS) & (ends >= _REACH_OF_QUARTERS) & (ends <= _HALF_TURN / 2)
    are_wide = (are_positive | are_quarters) & (values.std(axis=0) >= _EVEN * widths)
    return bool(are_wide.any() and (values != np.round(values, 2)).mean() > 0.5)


def _find_degrees(labels: LabelNumbers) -> Iterator[Finding]:
    """Find angles that were called radians, but lie beyond one turn of radians."""
    known = labels.values[~_mark_unknown(labels)]
    if _RADIANS.fullmatch(labels.distance) is not None:
        turn, shown = _TURN_IN_RADIANS, known
    elif _EULERS.fullmatch(labels.distance) is not None:
        turn, shown = math.degrees(_TURN_IN_RADIANS), np.radians(known)
    else:
        return
    beyond = int((np.abs(known) > turn).any(axis=1).sum())
    if len(known) >= _FEWEST_ANGLES and beyond > len(known) / 2:
        yield Finding(
            "radians",
            f"{beyond} of {len(known)} angles in radians lie beyond one turn, from {shown.min():.4g} to "
            f"{shown.max():.4g}",
            "If they are degrees, leave --unit radians out, or say --unit degrees and rename columns called radians.",
            beyond,
            len(known),
        )


def _find_other_turns(labels: LabelNumbers) -> Iterator[Finding]:
    """Find angles that fill 0 to 1, as shares of a turn, or lie from 0 to 400, as gradians, compared as degrees."""
    known = labels.values[~_mark_unknown(labels)]
    if _DEGREES.fullmatch(labels.distance) is None or len(known) < _FEWEST_ANGLES or known.min() < 0:
        return
    low, high, width = float(known.min()), float(known.max()), float(np.ptp(known))
    beyond = int((known > _TURN_IN_DEGREES).any(axis=1).sum())
    is_share = high <= 1 and width >= _FILLED and (known % 1 != 0).mean() > 0.5
    is_gradian = beyond > 1 and high <= _TURN_IN_GRADIANS and width >= _FILLED * _TURN_IN_GRADIANS
    if is_share or is_gradian:
        turn, unit = (1, "shares of a turn") if is_share else (_TURN_IN_GRADIANS, "gradians")
        yield Finding(
            "radians",
            f"all {len(known)} angles lie from {low:.3g} to {high:.3g}, but are compared as degrees",
            f'If they are {unit}, take --label-distance "circular(period={turn})".',
            len(known),
            len(known),
        )


def _angular_parts(labels: LabelNumbers) -> Iterator[tuple[Float64, str, float, float]]:
    """The parts of labels that are compared as degrees, with the least spread and reach of ones in radians."""
    known = labels.values[~_mark_unknown(labels)]
    if not len(known):
        return
    if _DEGREES.fullmatch(labels.distance) is not None:
        yield known, "angles", _SPREAD, _REACH
    elif _TURNS.fullmatch(labels.distance) is not None:
        yield known, "angles", _SPREAD_OF_TURNS, _REACH_OF_TURNS
    elif is_place_distance(labels.distance):
        latitudes = known[:, 0]
        if np.abs(latitudes).max() <= math.pi / 2 + 1e-3:  # there is hardly any land within one turn of (0, 0)
            yield known[:, :2], "latitudes and longitudes", 0.0, 0.0
        if known.shape[1] > len(("latitude", "longitude")):
            yield known[:, 2:], "headings", _SPREAD_OF_TURNS, _REACH_OF_TURNS


def _mark_unknown(labels: LabelNumbers) -> Bools:  # -> (N,)
    """Tell which labels hold a mark of an unknown one, so that other rules can leave them out."""
    is_angle = labels.distance.startswith(("circular", "rotation"))
    unknown = np.zeros(len(labels.values), bool)
    for column in range(labels.values.shape[1]):
        values = labels.values[:, column]
        unknown |= np.isin(values, find_markers(values, is_angle=is_angle))
    if labels.distance.startswith(("haversine", "place")):
        unknown |= (labels.values[:, :2] == 0).all(axis=1)
    return unknown


# Circular: angles, hours and months by their names that are compared as plain numbers.

_PERIODS = {"hour": (24.0,), "weekday": (7.0,), "month": (12.0,), "angle": (360.0, 2 * math.pi)}
_WIDE = 0.6  # share of a period that the numbers cover, so that both ends are near each other


def find_circular(labels: LabelNumbers) -> Iterator[Finding]:
    """Find numbers that are angles, hours or months by their names, cover their period, and are compared as plain."""
    if labels.distance.partition("(")[0] not in ("", "euclidean"):
        return
    for column, name in enumerate(labels.columns):
        values = labels.values[:, column]
        values = values[~np.isin(values, find_markers(values))]
        kind = next((kind for kind in _PERIODS if means(name, kind)), "")
        if not kind or len(values) < _FEWEST_ANGLES:
            continue
        for period in sorted(_PERIODS[kind]):
            low, high = float(values.min()), float(values.max())
            is_within = high - low <= period * (1 + 1e-3) and (low >= 0 or low >= -period / 2 * (1 + 1e-3))
            if is_within and high <= period * (1 + 1e-3) and high - low >= _WIDE * period:
                unit = "radians" if period < _TURN_IN_RADIANS and kind == "angle" else f"period {period:g}"
                yield Finding(
                    "circular",
                    f"{name!r} is called {'an angle' if kind == 'angle' else f'a {kind}'} and lies from {low:.4g} to "
                    f"{high:.4g}, but is compared as a plain number, so its two ends are farthest apart",
                    f"If it is periodic ({unit}), use --kind angle"
                    + (" --unit radians." if unit == "radians" else _spell_period(period)),
                    len(values),
                    len(values),
                )
                break


def _spell_period(period: float) -> str:
    return "." if period == _TURN_IN_DEGREES else f' --label-distance "circular(period={period:g})".'


# Sentinels: numbers such as -1 or -999 that stand for a label that is not known.

_LOW = (0, -1, -9, -10, -99, -100, -999, -1000, -9999, -99999)
_INNER = (-10, -99, -100, 99)  # marks within a turn in degrees
_FEWEST_VALUES = 5  # different numbers
_MEASURED = 0.8  # share of the other numbers that are not whole
_RECURS = 2  # times as often as any other number
_HIGH = (99, 999, 9999, 99999)
_FEW_VALUES = 10  # different numbers; of fewer, such as ratings from -1 to 1, an end says nothing
_FINE = 30  # different numbers; of fewer, such as ratings from -1 to 20, a lone negative one says nothing
_TURN_IN_DEGREES = 360  # degrees
_GAP_OF_FEW, _LEAST_GAP, _FAR_GAP, _GAP_OF_RECURRING = 0.25, 5.0, 2.0, 0.1
_GAP_OF_ZERO, _GAP_OF_SENTINEL = 0.15, 0.5  # distance to the next number as a share of the range of the others


def find_sentinels(labels: LabelNumbers) -> Iterator[Finding]:
    """Find numbers that recur exactly, at an end of the range and away from all others.

    A negative one is also found where all others are at least 0. Of angles, any number within a turn is usual. Of
    places, latitude and longitude 0 are found anywhere.
    """
    if labels.distance.startswith("classes"):
        return
    if labels.distance.startswith(("haversine", "place")) and (found := _find_null_island(labels)):
        yield found
        return
    is_angle = labels.distance.startswith(("circular", "rotation"))
    for column, name in enumerate(labels.columns):
        values = labels.values[:, column]
        for marker in find_markers(values, is_angle=is_angle):
            places = np.flatnonzero(values == marker)
            yield Finding(
                "sentinels",
                f"{len(places)} of {len(values)} numbers in {name!r} are exactly {marker:g}, away from all others",
                f"If that stands for an unknown label, leave these items out by --missing-value {marker:g}.",
                len(places),
                len(values),
                [labels.items[place] for place in places[:8].tolist()],
            )


def _find_null_island(labels: LabelNumbers) -> Finding | None:
    """Places at latitude and longitude 0, in the sea, where others are elsewhere."""
    places = np.flatnonzero((labels.values[:, :2] == 0).all(axis=1))
    if not 1 < len(places) < len(labels.values):
        return None
    return Finding(
        "sentinels",
        f"{len(places)} of {len(labels.values)} places are exactly at latitude 0 and longitude 0",
        "If that stands for an unknown place, leave these items out.",
        len(places),
        len(labels.values),
        [labels.items[place] for place in places[:8].tolist()],
    )


def find_markers(
    values: Float64,  # (N,) the numbers
    *,
    is_angle: bool = False,  # whether any number within a turn is usual
) -> list[float]:  # the sentinels, at most two
    """Find the numbers that stand for unknown labels in a column."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < _FEWEST_VALUES:
        return []
    # of few different numbers, such as ratings from -1 to 1, an end says nothing; measured ones hardly recur
    is_fine = len(distinct) > _FEW_VALUES or (distinct != np.round(distinct)).mean() > 0.5
    found = []
    low, high = float(distinct[0]), float(distinct[-1])
    if low in _LOW and counts[0] > 1 and is_fine and (low or len(distinct) > _FEW_VALUES):
        rest = distinct[1:]
        gap, spread = float(rest[0]) - low, float(rest[-1] - rest[0])
        is_alone = gap > (_GAP_OF_SENTINEL if low else _GAP_OF_ZERO) * spread
        if is_alone or (low < 0 <= rest[0] and (len(distinct) > _FINE or _recurs_alone(values, low))):
            found.append(low)
    elif low in _LOW and low < 0 < distinct[1] and counts[0] > 1:  # among few whole numbers
        gap, spread = float(distinct[1]) - low, float(distinct[-1] - distinct[1])
        if gap > max(_GAP_OF_FEW * spread, _LEAST_GAP):
            found.append(low)
    if high in _HIGH and counts[-1] > 1:
        rest = distinct[:-1]
        gap, spread = high - float(rest[-1]), float(rest[-1] - rest[0])
        recurs = counts[-1] > _RECURS and counts[-1] >= _RECURS * counts[:-1].max() and gap > _GAP_OF_RECURRING * spread
        if gap > (_GAP_OF_SENTINEL if is_fine else _FAR_GAP) * spread or (is_fine and recurs):
            found.append(high)
    if not is_angle:
        return found
    # of angles, any number within a turn is usual, unless it recurs among measured ones that do not
    inside = distinct[~np.isin(distinct, (*_LOW, *_HIGH))]
    in_radians = len(inside) > 0 and float(np.abs(inside).max()) <= _TURN_IN_RADIANS
    turn = _TURN_IN_RADIANS if in_radians else _TURN_IN_DEGREES
    outside = [marker for marker in found if abs(marker) > turn]
    inner = [float(marker) for marker in _INNER if marker in distinct and _recurs_alone(values, marker)]
    below = [marker for marker in (-1.0, -9.0) if marker == low and distinct[1] >= 0 and _recurs_alone(values, marker)]
    return list(dict.fromkeys([*outside, *inner, *below]))


def _recurs_alone(values: Float64, marker: float) -> bool:
    """Whether a number recurs, and all others are measured ones that do not: it is no measurement."""
    others = values[values != marker]
    count = len(values) - len(others)
    is_measured = len(others) > 0 and (others != np.round(others)).mean() > _MEASURED
    return bool(count > 1 and is_measured and count >= _RECURS * np.unique(others, return_counts=True)[1].max())


LABEL_RULES: Mapping[Rule, Callable[[LabelNumbers], Iterator[Finding]]] = {
    "constant-labels": find_constant_labels,
    "sentinels": find_sentinels,
    "outliers": find_outliers,
    "mixed-units": find_mixed_units,
    "radians": find_radians,
    "circular": find_circular,
    "codes": find_codes,
    "swapped-places": find_swapped_places,
}


def find_in_labels(
    # N labels of any kind. If they are no numbers, nor short vectors of numbers, only equal ones are found
    labels: Sequence[Any],
    *,
    items: Sequence[str] = (),
    columns: Sequence[str] = (),
    distance: str = "",
    skip: Collection[str] = (),
) -> list[Finding]:
    """Find what is suspicious about labels.

    Example:
        >>> ages = [25, 31, 44, 19, 52, 38, 61, 47, 29, 33, 2014]
        >>> [finding.rule for finding in find_in_labels(ages)]
        ['outliers']
    """
    numbers = as_label_numbers(labels, items=items, columns=columns, distance=distance)
    if numbers is None:
        return [] if "constant-labels" in skip else list(find_equal_labels(labels))
    return [finding for rule, find in LABEL_RULES.items() if rule not in skip for finding in find(numbers)]
