"""Radians: angles that are compared as degrees, but all lie within one turn of radians."""

import math
import re
from collections.abc import Iterator

import numpy as np

from cml.plausibility.finding import Finding
from cml.plausibility.label_numbers import LabelNumbers

_FEWEST = 8  # items
_TURN = 2 * math.pi + 1e-3
_SPREAD, _REACH = 4.0, 2.75  # radians; small angles in degrees, as of a steering wheel, do not spread so evenly
_DEGREES = re.compile(r"circular(\(.*period=360(\.0)?\b.*\)|\(\))?|rotation\(.*form='?euler\b.*\)")


def find_radians(labels: LabelNumbers) -> Iterator[Finding]:
    """Find angles in degrees within 2 pi that spread over most of a turn of radians and are no whole numbers."""
    values = labels.values
    if _DEGREES.fullmatch(labels.distance) is None or len(values) < _FEWEST:
        return
    is_within = np.abs(values).max() <= _TURN
    is_spread = np.ptp(values, axis=0).max() >= _SPREAD and np.abs(values).max() >= _REACH
    if is_within and is_spread and (values != np.round(values)).mean() > 0.5:
        yield Finding(
            "radians",
            f"all {len(values)} angles lie from {values.min():.3g} to {values.max():.3g}, but are compared as degrees",
            "If they are radians, prepare them with --unit radians.",
            len(values),
            len(values),
        )
