"""Labels that go round. Not for: numbers on a line (euclidean), or rotations in space (rotation)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, check_same_length, pack_vectors
from cml.settings import check_above_zero, check_word

_TILE = 1024  # labels whose sums stay in the first-level cache
_UNDEFINED = 1e-6  # periods from the centre of a circle within which there is no direction


@dataclass(frozen=True)
class Circular(LabelDistance):
    """The shorter way round between two numbers of a period, or between two vectors of such numbers.

    Any real numbers may be given: with a period of 360, -10 and 350 are the same label.

    Args:
        period: The period after which a label repeats: 360 for degrees, 24 for hours, 1 for hues in 0..1.
        reduce: How the distances of a vector's components become one: ``rms``, their root mean square, or ``max``.

    Example:
        >>> distance = Circular(period=24)
        >>> hours = distance.encode([23, 1, 12.5])
        >>> distance.pairwise(hours[:1], hours).tolist()
        [[0.0, 2.0, 10.5]]
    """

    period: float = 360.0
    reduce: Literal["rms", "max"] = "rms"
    name: ClassVar[str] = "circular"
    is_metric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_zero("period", self.period)
        check_word("reduce", self.reduce, ("rms", "max"))

    @property
    def unit(self) -> str:
        """Degrees with a period of 360, else the label's own unit."""
        return "degrees" if self.period == 360 else "label units"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``phases`` (N, D) float64 between -period and period
        """Check numbers or vectors and pack them within one period."""
        return Labels({"phases": np.fmod(pack_vectors(labels), self.period)})  # fmod does not round

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        left, right = a.arrays["phases"], b.arrays["phases"]
        check_same_length(left, right)
        result = np.empty((len(a), len(b)), np.float32)
        if left.shape[1] == 1 and min(left.min(initial=0), right.min(initial=0)) >= 0:
            _fill_within(left[:, 0], np.ascontiguousarray(right[:, 0]), float(self.period), result)
            return result
        _fill(left, np.ascontiguousarray(right.T), float(self.period), self.reduce == "max", result)
        return result

    def label_vectors(self, labels: Labels) -> Float64:  # (N, 2 D) float64, in the unit of the period
        """Place each component on a circle as long around as the period: what a regression predicts."""
        angles = labels.arrays["phases"] * (2 * math.pi / self.period)
        return self.period / (2 * math.pi) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    def labels_from_vectors(self, vectors: Float64) -> Float64:  # (N, D) float64
        """Return the positions on the circles, from 0 to the period; NaN at the centre of one."""
        cosines, sines = np.split(vectors, 2, axis=1)
        positions: Float64 = np.arctan2(sines, cosines) * (self.period / (2 * math.pi)) % self.period
        return np.where(np.hypot(sines, cosines) < _UNDEFINED * self.period, np.nan, positions)


@compile_loop(fastmath=AS_WRITTEN, inline=True)
def _shorter_way(phase: float, other: float, period: float) -> float:
    """The shorter way round between phases that are less than two periods apart.

    A period is taken off where the remainder of a division would take it off, and as exactly (Sterbenz, Floating-Point
    Computation, 1974).
    """
    way = abs(phase - other)
    way = way - period if way >= period else way
    way = way - period if way >= period else way
    back = period - way
    return back if back < way else way


@compile_loop(fastmath=AS_WRITTEN)
def _fill_within(a: Float64, b: Float64, period: float, out: Float32) -> None:
    """Fill ``out`` from phases (A,) and (B,) that are less than one period apart, of which nothing is taken off."""
    for i in range(len(a)):
        phase, row = a[i], out[i]
        for j in range(len(b)):
            way = abs(phase - b[j])
            back = period - way
            row[j] = back if back < way else way


@compile_loop(fastmath=AS_WRITTEN)
def _fill(a: Float64, columns: Float64, period: float, largest: bool, out: Float32) -> None:
    """Fill ``out`` from phases (A, D) and (D, B)."""
    width, ways = a.shape[1], np.empty(_TILE)
    for start in range(0, columns.shape[1], _TILE):
        stop = min(columns.shape[1], start + _TILE)
        for i in range(a.shape[0]):
            row = out[i, start:stop]
            if width == 1:
                phase, column = a[i, 0], columns[0, start:stop]
                for j in range(len(row)):
                    row[j] = _shorter_way(phase, column[j], period)
                continue
            ways[:] = 0
            for k in range(width):
                # slices and single numbers, of which the compiler sees that no index is negative and none changes
                phase, column = a[i, k], columns[k, start:stop]
                if largest:
                    for j in range(len(column)):
                        ways[j] = max(ways[j], _shorter_way(phase, column[j], period))
                else:
                    for j in range(len(column)):
                        ways[j] += _shorter_way(phase, column[j], period) ** 2
            for j in range(len(row)):
                row[j] = ways[j] if largest else math.sqrt(ways[j] / width)
