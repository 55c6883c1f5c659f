"""Points on the earth. Not for: coordinates in metres (euclidean), cameras with a heading (place)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.distances.compiled import AS_WRITTEN, compiled
from cml.distances.label_distance import Float32, Float64, LabelDistance
from cml.distances.labels import Labels, refuse
from cml.distances.vectors import pack_vectors

EARTH_RADIUS = 6_371_008.8  # metres, the mean radius


@dataclass(frozen=True)
class Haversine(LabelDistance):
    """Great-circle distance in metres between [latitude, longitude] in degrees, on a sphere of the earth's mean radius.

    The sphere is up to 0.5 % away from the ellipsoid.

    Example:
        >>> distance = Haversine()
        >>> cities = distance.encode([[48.8566, 2.3522], [51.5074, -0.1278]])
        >>> distance.pairwise(cities[:1], cities).round(-3).tolist()
        [[0.0, 344000.0]]
    """

    name: ClassVar[str] = "haversine"
    is_metric: ClassVar[bool] = True
    unit: ClassVar[str] = "m"

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N places as (N, 3) float64 ``places``: latitude and longitude in radians, cosine of the latitude."""
        degrees = pack_vectors(labels, "[latitude, longitude]")
        check_on_earth(degrees)
        radians = np.radians(degrees)
        return Labels({"places": np.column_stack([radians, np.cos(radians[:, 0])])})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Metres (len(a), len(b)) float32."""
        result = np.empty((len(a), len(b)), np.float32)
        _fill(a.arrays["places"], b.arrays["places"], result)
        return result

    def label_vectors(self, labels: Labels) -> Float64:
        """Points (N, 3) in space, in metres from the earth's centre: what a regression predicts."""
        latitude, longitude, cosine = labels.arrays["places"].T
        return EARTH_RADIUS * np.column_stack(
            [cosine * np.cos(longitude), cosine * np.sin(longitude), np.sin(latitude)]
        )


def check_on_earth(degrees: Float64) -> None:
    """Raise ``LabelError`` unless the first two columns of (N, C) are a latitude and a longitude in degrees."""
    for values, what, low, high in ((degrees[:, 0], "latitude", -90, 90), (degrees[:, 1], "longitude", -180, 360)):
        out = (values < low) | (values > high)
        refuse(out, f"has the {what} {{:g}}; it should be in {low}..{high} degrees.", values)


@compiled(fastmath=AS_WRITTEN)
def _fill(a: Float64, b: Float64, out: Float32) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            up, along = math.sin((a[i, 0] - b[j, 0]) / 2), math.sin((a[i, 1] - b[j, 1]) / 2)
            square = up * up + a[i, 2] * b[j, 2] * (along * along)
            out[i, j] = 2 * EARTH_RADIUS * math.asin(math.sqrt(min(square, 1.0)))
