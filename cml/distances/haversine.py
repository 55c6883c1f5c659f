"""Points on the earth. Not for: coordinates in metres (euclidean), cameras with a heading (place)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, pack_vectors, refuse

EARTH_RADIUS = 6_371_008.8  # metres, the mean radius


_UNDEFINED = 1e-6  # radii from the earth's centre within which there is no direction


@dataclass(frozen=True)
class Haversine(LabelDistance):
    """Great-circle distance in metres between [latitude, longitude] in degrees.

    The earth is taken as a sphere of its mean radius, which is up to 0.5 % away from the ellipsoid.

    Example:
        >>> distance = Haversine()
        >>> cities = distance.encode([[48.8566, 2.3522], [51.5074, -0.1278]])
        >>> distance.pairwise(cities[:1], cities).round(-3).tolist()
        [[0.0, 344000.0]]
    """

    name: ClassVar[str] = "haversine"
    is_metric: ClassVar[bool] = True
    unit: ClassVar[str] = "m"

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # array ``places`` (N, 3) float64: latitude and longitude in radians, cosine of the latitude
        """Check and pack points on the earth."""
        degrees = pack_vectors(labels, "[latitude, longitude]")
        check_on_earth(degrees)
        radians = np.radians(degrees)
        return Labels({"places": np.column_stack([radians, np.cos(radians[:, 0])])})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        result = np.empty((len(a), len(b)), np.float32)
        _fill(a.arrays["places"], b.arrays["places"], result)
        return result

    def label_vectors(self, labels: Labels) -> Float64:  # (N, 3) float64 in metres from the earth's centre
        """Place the points in space: what a regression predicts."""
        latitude, longitude, cosine = labels.arrays["places"].T
        return EARTH_RADIUS * np.column_stack(
            [cosine * np.cos(longitude), cosine * np.sin(longitude), np.sin(latitude)]
        )

    def labels_from_vectors(
        self,
        vectors: Float64,  # (N, 3), seen from the earth's centre, of any length
    ) -> Float64:  # (N, 2) latitude and longitude in degrees, the longitude from -180 to 180
        """Return the points on the earth in the direction of points in space; NaN at the earth's centre."""
        x, y, z = vectors.T
        degrees: Float64 = np.degrees(np.column_stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]))
        degrees[np.linalg.norm(vectors, axis=1) < _UNDEFINED * EARTH_RADIUS] = np.nan
        return degrees


def check_on_earth(
    degrees: Float64,  # (N, C) positions, whose first two columns are latitude and longitude in degrees
) -> None:
    """Check that positions are latitudes and longitudes."""
    is_swapped = len(degrees) > 0 and np.abs(degrees[:, 1]).max() <= 90
    for values, axis, low, high in ((degrees[:, 0], "latitude", -90, 90), (degrees[:, 1], "longitude", -180, 360)):
        out = (values < low) | (values > high)
        mend = " Latitude and longitude seem to be swapped." if axis == "latitude" and is_swapped else ""
        refuse(out, f"has the {axis} {{:g}}; it should be in {low}..{high} degrees.{mend}", values)


@compile_loop(fastmath=AS_WRITTEN)
def _fill(a: Float64, b: Float64, out: Float32) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            up, along = math.sin((a[i, 0] - b[j, 0]) / 2), math.sin((a[i, 1] - b[j, 1]) / 2)
            square = up * up + a[i, 2] * b[j, 2] * (along * along)
            out[i, j] = 2 * EARTH_RADIUS * math.asin(math.sqrt(min(square, 1.0)))
