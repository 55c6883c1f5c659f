"""Arrays as the explorer's page unpacks them: one compressed block of bytes, and where in it each lies."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_UNKNOWN = 65535  # in place of an infinite distance
_MAP_STEPS, _POINT_STEPS = 32000, 127  # whole numbers that a coordinate is rounded to


class PackedArrays:
    """Named arrays of a page, rounded to the precision that it shows."""

    def __init__(self) -> None:
        self.index: dict[str, list[Any]] = {}
        """Name to kind of number, offset in bytes, count, and factor of the numbers."""
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, name: str, array: NDArray[Any], scale: float = 1.0) -> None:
        """Add an array as it is."""
        content = np.ascontiguousarray(array).tobytes()
        self.index[name] = [array.dtype.name, self._length, array.size, scale]
        self._parts.append(content + bytes(-len(content) % 8))
        self._length += len(self._parts[-1])

    def add_map(self, name: str, points: NDArray[Any]) -> None:
        """Add a map (N, 2), centred and scaled to fill the square from -1 to 1, as int16."""
        centred = points - (points.min(axis=0) + points.max(axis=0)) / 2
        self.add(name, _round_to_steps(centred, _MAP_STEPS).astype(np.int16))

    def add_points(self, name: str, points: NDArray[Any]) -> None:
        """Add points (N, D), scaled to at most 1, as int8."""
        self.add(name, _round_to_steps(points, _POINT_STEPS).astype(np.int8))

    def add_items(self, name: str, ids: NDArray[Any], count: int) -> None:
        """Add numbers of items, as uint16 or uint32."""
        self.add(name, ids.astype(np.uint16 if count <= _UNKNOWN else np.uint32))

    def add_distances(self, name: str, distances: NDArray[Any]) -> None:
        """Add distances as uint16, infinite ones included."""
        finite = np.isfinite(distances)
        scale = max(float(distances[finite].max(initial=0)) / (_UNKNOWN - 1), 1e-30)
        steps = np.rint(np.where(finite, distances, 0).clip(min=0) / scale)
        self.add(name, np.where(finite, steps, _UNKNOWN).astype(np.uint16), scale)

    def encode(self) -> str:
        """All arrays, compressed, in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode()


def _round_to_steps(points: NDArray[Any], steps: int) -> NDArray[Any]:
    """Scale points so that the largest coordinate is ``steps``, and round them."""
    largest = max(float(np.abs(points).max()), 1e-30)
    rounded: NDArray[Any] = np.rint(points * (steps / largest))
    return rounded
