"""Cameras on the ground that look in a direction. Not for: points without a heading (haversine, euclidean)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.haversine import EARTH_RADIUS, check_on_earth
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, pack_vectors
from cml.errors import UserError
from cml.settings import check_above_zero, check_word

_CHORDS = 32  # of a sector's arc


@dataclass(frozen=True)
class Place(LabelDistance):
    """1 - intersection over union of two fields of view, each a sector of a circle on the ground.

    A label is a position and a heading: [latitude, longitude, heading] in degrees, or [east, north, heading] with
    metres first. Headings run clockwise from north. An arc is drawn as 32 chords.

    Args:
        metres: How far a camera sees: the radius of the sector.
        degrees: How wide it sees: the angle of the sector, up to 180.
        coordinates: ``degrees`` for latitude and longitude, ``metres`` for east and north, as of UTM.

    Source:
        Leyva-Vallina et al., "Data-efficient Large Scale Place Recognition with Graded Similarity Supervision",
        CVPR 2023, section 3.1: the overlap of fields of view; there 50 m and 90 degrees.

    Example:
        >>> distance = Place(coordinates="metres")
        >>> views = distance.encode([[0, 0, 0], [0, 0, 90], [0, 0, 45], [500, 0, 0]])
        >>> [f"{one:.4f}" for one in distance.pairwise(views[:1], views)[0]]
        ['0.0000', '1.0000', '0.6667', '1.0000']
    """

    metres: float = 50.0
    degrees: float = 90.0
    coordinates: Literal["degrees", "metres"] = "degrees"
    name: ClassVar[str] = "place"
    unit: ClassVar[str] = "1 - overlap"
    is_symmetric: ClassVar[bool] = False  # the last digits depend on which polygon cuts the other

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_zero("metres", self.metres)
        if not 0 < self.degrees <= 180:
            raise UserError(f"The 'degrees' must be above 0 and at most 180. Got {self.degrees!r} instead.")
        check_word("coordinates", self.coordinates, ("degrees", "metres"))

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # array ``views`` (N, 3) float64: x and y in metres or radians, heading in radians
        """Check and pack positions with headings."""
        if self.coordinates == "metres":
            numbers = pack_vectors(labels, "[east, north, heading]")
            return Labels({"views": np.column_stack([numbers[:, :2], np.radians(numbers[:, 2])])})
        numbers = pack_vectors(labels, "[latitude, longitude, heading]")
        check_on_earth(numbers)
        return Labels({"views": np.radians(numbers[:, [1, 0, 2]], order="C")})  # longitude is x

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        result = np.empty((len(a), len(b)), np.float32)
        on_globe = self.coordinates == "degrees"
        first, second = (np.ascontiguousarray(side.arrays["views"]) for side in (a, b))  # compiled for this form alone
        _fill(first, second, on_globe, self.metres, math.radians(self.degrees), result)
        return result


@compile_loop(fastmath=AS_WRITTEN)
def _sector(x: float, y: float, heading: float, radius: float, angle: float) -> Float64:
    """Draw the sector as a polygon (_CHORDS + 2, 2), clockwise."""
    corners = np.empty((_CHORDS + 2, 2))
    corners[0, 0], corners[0, 1] = x, y
    for k in range(_CHORDS + 1):
        way = heading + angle * (k / _CHORDS - 0.5)
        corners[k + 1, 0], corners[k + 1, 1] = x + radius * math.sin(way), y + radius * math.cos(way)
    return corners


@compile_loop(fastmath=AS_WRITTEN)
def _area(polygon: Float64, count: int) -> float:
    total = 0.0
    for k in range(count):
        last = k - 1 if k else count - 1
        total += polygon[last, 0] * polygon[k, 1] - polygon[k, 0] * polygon[last, 1]
    return abs(total) / 2


@compile_loop(fastmath=AS_WRITTEN)
def _shared_area(polygon: Float64, other: Float64) -> float:
    """Compute the area that two convex clockwise polygons share, by cutting one along each side of the other."""
    # coordinates are written one by one: numba compiles assignments of rows for seconds
    count = polygon.shape[0]
    old, new = np.empty((2 * count + 2, 2)), np.empty((2 * count + 2, 2))
    for k in range(count):
        old[k, 0], old[k, 1] = polygon[k, 0], polygon[k, 1]
    for side in range(other.shape[0]):
        x, y = other[side - 1, 0], other[side - 1, 1]
        across, along = other[side, 0] - x, other[side, 1] - y
        kept = 0
        for k in range(count):
            last = k - 1 if k else count - 1
            here = along * (old[k, 0] - x) - across * (old[k, 1] - y)  # >= 0 on the inner side
            before = along * (old[last, 0] - x) - across * (old[last, 1] - y)
            if (here >= 0) != (before >= 0):
                share = before / (before - here)
                for axis in range(2):
                    new[kept, axis] = old[last, axis] + share * (old[k, axis] - old[last, axis])
                kept += 1
            if here >= 0:
                new[kept, 0], new[kept, 1] = old[k, 0], old[k, 1]
                kept += 1
        old, new, count = new, old, kept
    return _area(old, count)


@compile_loop(fastmath=AS_WRITTEN)
def _fill(a: Float64, b: Float64, on_globe: bool, radius: float, angle: float, out: Float32) -> None:
    whole = _area(_sector(0.0, 0.0, 0.0, radius, angle), _CHORDS + 2)
    for i in range(a.shape[0]):
        mine = _sector(0.0, 0.0, a[i, 2], radius, angle)
        for j in range(b.shape[0]):
            x, y = b[j, 0] - a[i, 0], b[j, 1] - a[i, 1]
            if on_globe:  # flat around the pair, which is close together or shares nothing
                x -= 2 * math.pi * math.floor(x / (2 * math.pi) + 0.5)
                x *= EARTH_RADIUS * math.cos((a[i, 1] + b[j, 1]) / 2)
                y *= EARTH_RADIUS
            shared = 0.0
            if x == 0 and y == 0 and a[i, 2] == b[j, 2]:
                shared = whole
            elif x * x + y * y < 4 * radius * radius:
                shared = _shared_area(_sector(x, y, b[j, 2], radius, angle), mine)
            out[i, j] = max(0.0, 1 - shared / (2 * whole - shared))
